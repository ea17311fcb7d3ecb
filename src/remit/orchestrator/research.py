"""`research N [focus]`: a study of a task, filed as its next report (S6.5, S6.6)."""

from remit.app import Remit
from remit.board.board import Board
from remit.board.task import State, Task
from remit.orchestrator.course import Errand, reports_of, work_on
from remit.orchestrator.outcome import Outcome, Waiting, plainly
from remit.orchestrator.processing import next_number
from remit.orchestrator.prompts import Brief, depended_on


async def research(
    remit: Remit,
    board: Board,
    number: int,
    *,
    focus: str = "",
    force: bool = False,
    timeout: float | None = None,
    waiting: Waiting = plainly,
) -> Outcome:
    return await work_on(remit, board, research_errand(number, focus=focus, force=force, timeout=timeout), waiting=waiting)


def research_errand(number: int, *, focus: str = "", force: bool = False, timeout: float | None = None) -> Errand:
    return Errand(command="research", number=number, brief_of=_brief_of, focus=focus, force=force, timeout=timeout)


def _brief_of(board: Board, state: State, task: Task, errand: Errand) -> Brief:
    next_one = next_number(board.root, task, "reports", "research")
    return Brief(
        command=errand.command,
        task=task,
        focus=errand.focus,
        write_to=f"{task.folder}/reports/research-{next_one:03d}.md",
        reports=reports_of(board.root, task),
        plan=task.plan_path if task.plan_path and (board.root / task.plan_path).is_file() else "",
        depends=depended_on(state, task),
    )
