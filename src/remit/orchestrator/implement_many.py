"""`remit implement 3-7`: several tasks in turn, by their dependencies, up to the first that is not completed (S6.9); and what a run would
do, without doing it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from remit.app import Remit
from remit.board import claims
from remit.board.board import Board
from remit.board.plans import Phase
from remit.board.statuses import Status
from remit.board.task import State, Task
from remit.core.errors import ErrorInfo, Refused, RemitError, Unavailable
from remit.core.ports import AgentPort
from remit.core.result import StopReason
from remit.orchestrator.dependencies import check_dependencies, in_turn
from remit.orchestrator.implement import implement, plan_of
from remit.orchestrator.outcome import Outcome, Waiting, plainly
from remit.orchestrator.phases import WHOLE, Piece, silently
from remit.orchestrator.rehearsing import BUILT_IN, carried_by
from remit.orchestrator.working import check_entry, must_exist, routed
from remit.settings import Settings
from remit.system.threads import off_loop


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """The tasks of a run of several."""

    order: tuple[int, ...]
    done: tuple[int, ...]
    """Completed before: nothing is to be done."""


async def implement_each(
    remit: Remit,
    board: Board,
    numbers: Sequence[int],
    *,
    force: bool = False,
    timeout: float | None = None,
    waiting: Waiting = plainly,
    telling: Callable[[str], None] = silently,
    each: Callable[[Outcome], None] | None = None,
) -> Outcome:
    """Implement them in turn, each in its own time; `each` is told what one came to as soon as it is known.

    All are looked at before anything is begun: raises `Refused` or `Misused` for one that is not there or may not be begun.
    """
    turns = await off_loop(turns_of, board, numbers, force)
    outcomes: list[Outcome] = []
    for at, number in enumerate(turns.order, 1):
        telling(f"task {number} ({at} of {len(turns.order)})")
        try:
            outcome = await implement(remit, board, number, force=force, timeout=timeout, waiting=waiting, telling=telling)
        except RemitError as error:  # it may be claimed, or changed, since it was looked at
            outcome = _refused(number, error)
        outcomes.append(outcome)
        if each is not None:
            each(outcome)
        if outcome.status != "completed":
            break
    return _together(turns, outcomes)


def turns_of(board: Board, numbers: Sequence[int], force: bool) -> Turns:
    """In which order, after all of them were checked. Blocking."""
    must_exist(board, *numbers)
    state = board.look().state
    order = in_turn(state, numbers)
    done = tuple(number for number in order if state.task(number).status is Status.COMPLETED)
    left = tuple(number for number in order if number not in done)
    for number in left:
        task = state.task(number)
        check_entry(task, "implement", force=force)
        check_dependencies(board, state, task, force=force, sparing=left)
        plan_of(board, task)
    return Turns(order=left, done=done)


def _refused(number: int, error: RemitError) -> Outcome:
    reason = StopReason.UNAVAILABLE if isinstance(error, Unavailable) else StopReason.REFUSED
    told = ErrorInfo(
        type="refused" if isinstance(error, Refused) else "execution",
        code=error.code,
        message=error.message,
        recoverable=True,
        recommendation=error.advice,
    )
    return Outcome(
        command="implement", status="failed", summary=error.message, task_number=number, errors=(told,), next_steps=error.advice,
        stop_reason=str(reason),
    )  # fmt: skip


def _together(turns: Turns, outcomes: Sequence[Outcome]) -> Outcome:
    completed = [outcome.task_number for outcome in outcomes if outcome.status == "completed"]
    last = outcomes[-1] if outcomes else None
    not_begun = turns.order[len(outcomes) :]
    parts = [f"Already completed: {_listed(turns.done)}."] if turns.done else []
    parts += [f"Completed: {_listed([number for number in completed if number is not None])}."] if completed else []
    is_short = last is not None and last.status != "completed"
    if is_short and last is not None:
        parts.append(f"Task {last.task_number} is not completed: {last.summary}")
    parts += [f"Not begun: {_listed(not_begun)}."] if not_begun else []
    return Outcome(
        command="implement",
        status=last.status if last is not None else "completed",
        summary=" ".join(parts) or "Nothing was to be done.",
        errors=last.errors if last is not None else (),
        next_steps=last.next_steps
        if is_short and last is not None
        else "`remit review N` looks the work of one over; `remit todo` archives them.",
        session_id=last.session_id if last is not None else "",
        stop_reason=last.stop_reason if last is not None else "finished",
        data={
            "completed": completed,
            "already_completed": list(turns.done),
            "not_begun": list(not_begun),
            "outcomes": [outcome.to_dict() for outcome in outcomes],
        },
    )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(f"task {number}" if at == 0 else str(number) for at, number in enumerate(numbers))


# ---- without doing it


Find = Callable[[str], AgentPort | None]
"""The agents that there are, by name."""
EXECUTOR, IMPLEMENTER = "task-executor", "implementer"


def rehearsed(settings: Settings, board: Board, find: Find, numbers: Sequence[int], *, force: bool = False) -> Outcome:
    """Which phases would run, by whom, and by which commands they would be accepted. Changes nothing. Blocking."""
    turns = turns_of(board, numbers, force)
    state = board.look().state
    plans = [_rehearsed(settings, board, find, state, state.task(number), force, turns.order) for number in turns.order]
    lines = [line for plan in plans for line in plan["lines"]]
    lines += [f"Task {number} is completed already." for number in turns.done]
    tasks = [{key: value for key, value in plan.items() if key not in ("lines", "warnings")} for plan in plans]
    return Outcome(
        command="implement",
        status="completed",
        summary="\n".join(lines) or "Nothing would be done.",
        task_number=numbers[0] if len(numbers) == 1 else None,
        task_status=state.task(numbers[0]).status.marker if len(numbers) == 1 else "",
        warnings=tuple(words for plan in plans for words in plan["warnings"]),
        data={"dry_run": True, "tasks": tasks},
    )


def _rehearsed(settings: Settings, board: Board, find: Find, state: State, task: Task, force: bool, order: Sequence[int]) -> dict[str, Any]:
    plan = plan_of(board, task)
    chosen = routed(settings.routing, "implement", task)
    by = _carriers(chosen.agent or "", find)
    agent = f"{chosen.agent} ({chosen.mode})" if chosen.mode else f"{chosen.agent}"
    phases: Sequence[Phase] = plan.phases or (WHOLE,)
    open_ = [phase for phase in phases if phase.is_open]
    pieces = [Piece(task=task, state=state, plan=plan, phase=one, is_last=one is open_[-1]) for one in open_]
    lines = [
        f"Task {task.number}: {task.title} [{task.status.marker}], by {agent}",
        *(f"  {name}: {carrier}" for name, carrier in by.items()),
    ]
    lines += [f"  phase {one.number}: {one.name} [{one.status}]: left out" for one in phases if not one.is_open]
    for piece in pieces:
        what = "the task as a whole" if piece.phase is WHOLE else f"phase {piece.phase.number}: {piece.phase.name} [{piece.phase.status}]"
        lines.append(f"  {what}: would run" + "".join(f"\n    accepted by `{command}`" for command in piece.accept))
    lines += [] if pieces else ["  every phase is done: it would be completed at once"]
    holder = claims.holder_of(board, task.number)
    told = [f"Task {task.number} is being worked on by `remit {holder.command}` (process {holder.pid})."] if holder is not None else []
    told += [*check_entry(task, "implement", force=force), *check_dependencies(board, state, task, force=force, sparing=order)]
    told += [f"{task.plan_path}: {fault}" for fault in plan.faults]
    run = [{"phase": one.phase.number or None, "name": one.phase.name, "accept": list(one.accept)} for one in pieces]
    return {
        "task_number": task.number,
        "agent": chosen.agent,
        "mode": chosen.mode,
        "carried_by": by,
        "would_run": run,
        "left_out": [one.number for one in phases if not one.is_open],
        "warnings": told,
        "lines": lines,
    }


def _carriers(name: str, find: Find) -> dict[str, str]:
    """Who carries the role out; and, for the built-in that hands each phase on, the implementer too."""
    agent = find(name)
    found = {name: carried_by(agent)}
    if name == EXECUTOR and agent is not None and agent.spec.kind == "function" and agent.spec.source.startswith(BUILT_IN):
        found[IMPLEMENTER] = carried_by(find(IMPLEMENTER))
    return found
