"""`plan N` and `revise N [reason]`: the plan of a task, and the next version of it (S6.5, S6.9)."""

from remit.app import Remit
from remit.board.board import Board
from remit.board.task import State, Task
from remit.core.errors import Misused
from remit.orchestrator.course import Errand, reports_of, work_on
from remit.orchestrator.outcome import Outcome, Waiting, plainly
from remit.orchestrator.processing import next_number, next_version
from remit.orchestrator.prompts import Brief, depended_on


async def plan(
    remit: Remit,
    board: Board,
    number: int,
    *,
    focus: str = "",
    force: bool = False,
    timeout: float | None = None,
    waiting: Waiting = plainly,
) -> Outcome:
    return await work_on(remit, board, plan_errand(number, focus=focus, force=force, timeout=timeout), waiting=waiting)


async def revise(
    remit: Remit,
    board: Board,
    number: int,
    *,
    reason: str = "",
    force: bool = False,
    timeout: float | None = None,
    waiting: Waiting = plainly,
) -> Outcome:
    return await work_on(remit, board, revise_errand(number, reason=reason, force=force, timeout=timeout), waiting=waiting)


def plan_errand(number: int, *, focus: str = "", force: bool = False, timeout: float | None = None) -> Errand:
    return Errand(command="plan", number=number, brief_of=_brief_of, focus=focus, force=force, timeout=timeout)


def revise_errand(number: int, *, reason: str = "", force: bool = False, timeout: float | None = None) -> Errand:
    return Errand(command="revise", number=number, brief_of=_revised, focus=reason, force=force, timeout=timeout)


def _revised(board: Board, state: State, task: Task, errand: Errand) -> Brief:
    """Raises `Misused`: "Task N has no plan. Use plan instead." (S6.10)"""
    if not task.has_plan:
        raise Misused(f"Task {task.number} has no plan. Use plan instead.", advice=f"`remit plan {task.number}`")
    if not (board.root / task.plan_path).is_file():
        raise Misused(
            f"The plan of task {task.number}, {task.plan_path}, is not there.",
            advice=f"Bring it back, or make a new one: `remit plan {task.number} --force`.",
        )
    return _brief_of(board, state, task, errand)


def _brief_of(board: Board, state: State, task: Task, errand: Errand) -> Brief:
    next_one = next_number(board.root, task, "plans", "implementation")
    return Brief(
        command=errand.command,
        task=task,
        focus=errand.focus,
        write_to=f"{task.folder}/plans/implementation-{next_one:03d}.md",
        reports=reports_of(board.root, task),
        plan=task.plan_path if task.plan_path and (board.root / task.plan_path).is_file() else "",
        version=next_version(task),
        depends=depended_on(state, task),
    )
