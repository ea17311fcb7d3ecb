"""Agents in processes of their own: started by forking a warm interpreter, watched by a supervisor, killed whole.

    Remit process                          zygote (clean interpreter, agents' modules loaded, one per Remit)
      pool ── control socket ──────────────► forks, per delegation:
        │                                      supervisor (adopts orphans, drains output, no agent code)
        ├── orders and report ───────────────►   │
        └── frames: job, ctx, answer ────────►   └── worker (own session, dies with its supervisor, runs the agent)
            or pipes: input, output                  or command (the same; a program of any kind in the worker's place)

Commands come from a `forker`, a smaller zygote that can do nothing else. Each process watches the one above it, so a kill -9 of any of
them leaves nothing behind: a worker dies with its supervisor, a command and all orphans of a dead supervisor fall to the zygote, which
kills them, and supervisor and zygote end when the Remit process does.
The parent's side is `pool` (with `child`, `program` and `service`), the child's is `forker`, `zygote`, `supervisor`, `worker` and `remote`.
"""

from remit.agents.process.pool import Job, ProcessPool
from remit.agents.process.program import Program, Spawned
from remit.agents.process.target import Target, target_of
from remit.agents.process.wire import AgentRaised

__all__ = ["AgentRaised", "Job", "ProcessPool", "Program", "Spawned", "Target", "target_of"]
