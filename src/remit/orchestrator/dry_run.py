"""`--dry-run` of research, plan, revise and implement: what the command would do with a task, without touching anything.

Refuses whatever the command itself would refuse, in the same words. Writes nothing and opens no record. Blocking.
"""

from collections.abc import Sequence
from typing import Any

from remit.board import claims
from remit.board.board import Board
from remit.board.plans import Phase
from remit.board.statuses import BEGINS
from remit.board.task import State, Task
from remit.core.agents import is_built_in
from remit.core.deadline import allowed_timeout
from remit.core.ports import AgentPort
from remit.orchestrator.implement import check_dependencies, order_tasks, plan_of
from remit.orchestrator.lifecycle import (
    Find,
    check_entry,
    complexity_of,
    context_words,
    loaded_context,
    must_exist,
    require_agent,
    roles_of,
    route_task,
)
from remit.orchestrator.outcome import Outcome
from remit.orchestrator.phases import WHOLE, Piece
from remit.orchestrator.research_plan import Command, open_dependencies, phase_count
from remit.settings import Settings


def dry_run(board: Board, settings: Settings, find: Find, command: Command) -> Outcome:
    """Of research, plan or revise."""
    must_exist(board, command.number)
    seen = board.look()
    task = seen.state.task(command.number)
    brief = command.brief(board, seen.state, task)
    skipped = check_entry(task, command.name, force=command.force)
    chosen = route_task(settings.routing, command.name, task)
    require_agent(find, chosen)
    agent = find(chosen.agent) if chosen.agent is not None else None
    complexity, reason = complexity_of(task, seen.state, phase_count(board.root, brief.plan))
    context = loaded_context(board.root, complexity, reason, task.language)
    missing = () if agent is not None else (f"There is no agent named {chosen.agent!r}: `remit agents` lists those there are.",)
    data: dict[str, Any] = {
        "dry_run": True,
        "route": chosen.log_line,
        "agent": chosen.agent,
        "carried_by": carried_by(agent),
        "status_now": task.status.marker,
        "status_meanwhile": BEGINS[command.name].marker,
        "context": context,
        "context_words": context_words(context),
        "write_to": brief.write_to,
        "reports": list(brief.reports),
        "plan": brief.plan,
        "timeout_seconds": allowed_timeout(command.timeout, settings.limits_for(command.name)),
    }
    return Outcome(
        command=command.name,
        status="completed",
        summary=f"Would hand task {command.number} to {chosen.agent}, which writes {brief.write_to}.",
        task_number=command.number,
        task_status=task.status.marker,
        warnings=(*seen.notices, *skipped, *open_dependencies(seen.state, task), *_claimed(board, command.number), *missing),
        data=data,
    )


def dry_run_implement(
    settings: Settings, board: Board, find: Find, numbers: Sequence[int], *, force: bool = False, timeout: float | None = None
) -> Outcome:
    """Which phases would run, by which agent, and by which commands they would be accepted."""
    allowed_timeout(timeout, settings.limits_for("implement"))
    order = order_tasks(board, numbers, force)
    state = board.look().state
    plans = [_implement_plan(settings, board, find, state, state.task(number), force, order.order) for number in order.order]
    lines = [line for plan in plans for line in plan.pop("lines")]
    lines += [f"Task {number} is completed already." for number in order.done]
    return Outcome(
        command="implement",
        status="completed",
        summary="\n".join(lines) or "Nothing would be done.",
        task_number=numbers[0] if len(numbers) == 1 else None,
        task_status=state.task(numbers[0]).status.marker if len(numbers) == 1 else "",
        warnings=tuple(words for plan in plans for words in plan.pop("warnings")),
        data={"dry_run": True, "tasks": plans},
    )


def _implement_plan(
    settings: Settings, board: Board, find: Find, state: State, task: Task, force: bool, order: Sequence[int]
) -> dict[str, Any]:
    plan = plan_of(board, task)
    chosen = route_task(settings.routing, "implement", task)
    require_agent(find, chosen)
    by = {name: carried_by(find(name)) for name in roles_of(find, chosen.agent)}
    phases: Sequence[Phase] = plan.phases or (WHOLE,)
    open_ones = [phase for phase in phases if phase.is_open]
    pieces = [Piece(task=task, state=state, plan=plan, phase=one, is_last=one is open_ones[-1]) for one in open_ones]
    agent = f"{chosen.agent} ({chosen.mode})" if chosen.mode else f"{chosen.agent}"
    lines = [f"Task {task.number}: {task.title} [{task.status.marker}], by {agent}", *(f"  {name}: {one}" for name, one in by.items())]
    lines += [f"  phase {one.number}: {one.name} [{one.status}]: left out" for one in phases if not one.is_open]
    for piece in pieces:
        what = "the task as a whole" if piece.phase is WHOLE else f"phase {piece.phase.number}: {piece.phase.name} [{piece.phase.status}]"
        lines.append(f"  {what}: would run" + "".join(f"\n    accepted by `{command}`" for command in piece.accept))
    lines += [] if pieces else ["  every phase is done: it would be completed at once"]
    warnings = [*_claimed(board, task.number), *check_entry(task, "implement", force=force)]
    warnings += [*check_dependencies(board, state, task, force=force, sparing=order), *(f"{task.plan_path}: {one}" for one in plan.faults)]
    return {
        "task_number": task.number,
        "agent": chosen.agent,
        "mode": chosen.mode,
        "carried_by": by,
        "would_run": [{"phase": one.phase.number or None, "name": one.phase.name, "accept": list(one.accept)} for one in pieces],
        "left_out": [one.number for one in phases if not one.is_open],
        "warnings": warnings,
        "lines": lines,
    }


def _claimed(board: Board, number: int) -> tuple[str, ...]:
    holder = claims.holder_of(board, number)
    return (f"It would be refused now: `remit {holder.command}` works on task {number} (process {holder.pid}).",) if holder else ()


def carried_by(agent: AgentPort | None) -> str:
    """What would carry it out, and where that is declared; of a role, in the words of `remit roles`."""
    if agent is None or agent.spec.kind == "profile":  # a role without an agent
        return "nobody"
    if agent.spec.kind == "function" and is_built_in(agent.spec):
        return "built-in"
    if carrier := getattr(getattr(agent, "definition", None), "runs_on", None):
        return f"{carrier} ({agent.spec.kind})"
    return f"{agent.spec.kind} ({agent.spec.source})" if agent.spec.source else agent.spec.kind
