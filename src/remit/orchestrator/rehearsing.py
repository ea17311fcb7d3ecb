"""`--dry-run`: what a command would do with a task, found out without touching anything: route, agent, context, paths, time.

Refuses whatever the command itself would refuse, in the same words. Writes nothing, opens no record. Blocking.
"""

from collections.abc import Callable
from typing import Any

from remit.board import claims
from remit.board.board import Board
from remit.board.statuses import BEGINS
from remit.core.deadline import allowed_timeout
from remit.core.ports import AgentPort
from remit.orchestrator.complexity import context_loaded, context_words, judged
from remit.orchestrator.course import Errand, open_dependencies, phases_of
from remit.orchestrator.outcome import Outcome
from remit.orchestrator.working import check_entry, must_exist, routed
from remit.settings import Settings

BUILT_IN = "remit.agents.builtin"
"""How the places of agents that come with remit begin."""


def rehearsed(board: Board, settings: Settings, find: Callable[[str], AgentPort | None], errand: Errand) -> Outcome:
    """`find`: the agents that there are."""
    must_exist(board, errand.number)
    seen = board.look()
    task = seen.state.task(errand.number)
    brief = errand.brief_of(board, seen.state, task, errand)
    skipped = check_entry(task, errand.command, force=errand.force)
    route = routed(settings.routing, errand.command, task)
    agent = find(route.agent) if route.agent is not None else None
    limits = settings.limits_for(errand.command)
    timeout = allowed_timeout(errand.timeout, limits)
    found = judged(task, seen.state, phases_of(board.root, brief.plan))
    context = context_loaded(board.root, found, task.language)
    holder = claims.holder_of(board, errand.number)
    held = (f"It would be refused now: `remit {holder.command}` works on the task (process {holder.pid}).",) if holder else ()
    missing = () if agent is not None else (f"There is no agent named {route.agent!r}: `remit agents` lists who there is.",)
    data: dict[str, Any] = {
        "dry_run": True,
        "route": route.log_line,
        "agent": route.agent,
        "carried_by": carried_by(agent),
        "status_now": task.status.marker,
        "status_meanwhile": BEGINS[errand.command].marker,
        "context": context,
        "context_words": context_words(context),
        "write_to": brief.write_to,
        "reports": list(brief.reports),
        "plan": brief.plan,
        "timeout_seconds": timeout,
    }
    return Outcome(
        command=errand.command,
        status="completed",
        summary=f"Would hand task {errand.number} to {route.agent}, which writes {brief.write_to}.",
        task_number=errand.number,
        task_status=task.status.marker,
        warnings=(*seen.notices, *skipped, *open_dependencies(seen.state, task), *held, *missing),
        data=data,
    )


def carried_by(agent: AgentPort | None) -> str:
    """What would carry it out, and where that is declared; of a role, as `remit roles` says it."""
    if agent is None or agent.spec.kind == "profile":  # a role for which nobody is configured
        return "nobody"
    if agent.spec.kind == "function" and agent.spec.source.startswith(BUILT_IN):
        return "built-in"
    if carrier := getattr(getattr(agent, "definition", None), "runs_on", None):
        return f"{carrier} ({agent.spec.kind})"
    return f"{agent.spec.kind} ({agent.spec.source})" if agent.spec.source else agent.spec.kind
