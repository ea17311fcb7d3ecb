"""Agents in processes of their own: started by forking a warm interpreter, watched by a supervisor, killed whole.

    Remit process                          fork server (clean interpreter, agents' modules loaded, one per Remit)
      pool ── control socket ──────────────► forks, per delegation:
        │                                      supervisor (adopts orphans, drains output, no agent code)
        ├── orders and report ───────────────►   │
        └── calls: perform, ctx ─────────────►   └── worker (own session, dies with its supervisor, runs the agent)
            or pipes: input, output                  or command (the same; a program of any kind in the worker's place)

Commands have a smaller fork server of their own. Each process watches the one above it, so a kill -9 of any of them leaves nothing
behind: a worker dies with its supervisor, a command and all orphans of a dead supervisor are adopted by the fork server, which kills
them, and supervisor and fork server end when the Remit process does.
The parent's side is `pool` (with `worker_client` and `command_process`), the child's is `fork_server`, `worker_process`, `supervisor`.
"""
