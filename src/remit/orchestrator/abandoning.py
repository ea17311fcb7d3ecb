"""Tasks given up and brought back: `remit task --abandon R --reason …`, `--recover R` (S6.9). All are checked before any is changed."""

from collections.abc import Iterable, Iterator, Sequence

from remit.board.archive import archived_tasks, bring_back
from remit.board.board import Board, Draft
from remit.board.claims import holders
from remit.board.graph import CLOSED
from remit.board.statuses import Status, check_move
from remit.board.task import State, Task
from remit.core.errors import Misused, Refused
from remit.orchestrator.changing import changing, found, kept, named, replaced, spelled
from remit.orchestrator.outcome import Outcome
from remit.orchestrator.tasks import one_line

NAMED_AT_MOST = 10


def abandon(board: Board, numbers: Sequence[int], reason: str, *, force: bool = False, is_rehearsal: bool = False) -> Outcome:
    why = one_line(reason)
    if not why:
        raise Misused("[ABANDONED] needs a reason.", advice=f"remit task --abandon {spelled(numbers)} --reason 'why'")

    def step(draft: Draft) -> list[str]:
        tasks = found(board, draft.state, numbers)
        working = holders(board)
        warnings = [warning for task in tasks for warning in _check(task, why, is_worked_on=task.number in working, force=force)]
        moved = [task.moved(Status.ABANDONED, at=draft.at, reason=why) for task in tasks]
        draft.state = _noted(replaced(draft.state, moved), draft.at, f"abandoned: {why}", numbers)
        return [*warnings, *_left_waiting(draft.state, numbers)]

    warnings, draft, debt = changing(board, step, lambda _: _subject("abandon", numbers), is_rehearsal=is_rehearsal)
    it = "it" if len(numbers) == 1 else "them"
    after = f"`remit task --recover {spelled(numbers)}` brings {it} back, `remit todo` archives {it}"
    return kept(board, _told(draft, numbers, "abandoned", warnings, after, is_rehearsal=is_rehearsal), debt)


def recover(board: Board, numbers: Sequence[int], *, is_rehearsal: bool = False) -> Outcome:
    """[ABANDONED] → [NOT STARTED], those in the archive too."""

    def step(draft: Draft) -> None:
        there = {task.number for task in draft.state.tasks}
        shelved = {task.number: task for task in archived_tasks(board)} if not there.issuperset(numbers) else {}
        away = [number for number in numbers if number not in there and number in shelved]
        for number in away:
            _must_be_abandoned(shelved[number])
        if away:
            bring_back(board, draft, away)
        tasks = [_must_be_abandoned(task) for task in found(board, draft.state, numbers)]
        moved = [task.moved(Status.NOT_STARTED, at=draft.at) for task in tasks]
        draft.state = _noted(replaced(draft.state, moved), draft.at, "recovered", numbers)

    _, draft, debt = changing(board, step, lambda _: _subject("recover", numbers), is_rehearsal=is_rehearsal)
    return kept(board, _told(draft, numbers, "recovered", [], f"remit research {numbers[0]}", is_rehearsal=is_rehearsal), debt)


def _check(task: Task, reason: str, *, is_worked_on: bool, force: bool) -> Iterator[str]:
    if is_worked_on and not force:
        raise Refused(
            f"Task {task.number} is being worked on now.",
            advice=f"Stop it first (`remit cancel {task.session_id or 'SESSION'}`), or use --force.",
        )
    if is_worked_on:
        yield f"Task {task.number} is being worked on: what comes of it is kept, and its status left as you set it."
    try:
        check_move(task.number, task.status, Status.ABANDONED, reason=reason)
    except Refused as refused:
        if not force or task.status is Status.ABANDONED:
            raise
        yield f"The status check was skipped (--force): {refused.message}"


def _must_be_abandoned(task: Task) -> Task:
    if task.status is not Status.ABANDONED:
        raise Refused(
            f"Task {task.number} is [{task.status.marker}]: only [ABANDONED] tasks are recovered.",
            code="INVALID_STATUS_TRANSITION",
            advice="It is on the board as it is." if task.status not in CLOSED else "",
        )
    return task


def _left_waiting(state: State, numbers: Iterable[int]) -> Iterator[str]:
    gone = set(numbers)
    waiting = [task.number for task in state.tasks if task.status not in CLOSED and gone.intersection(task.dependencies)]
    if waiting:
        more = f" and {len(waiting) - NAMED_AT_MOST} more" if len(waiting) > NAMED_AT_MOST else ""
        yield f"Still waiting for what is abandoned: {named(waiting[:NAMED_AT_MOST])}{more}."


def _noted(state: State, at: str, words: str, numbers: Sequence[int]) -> State:
    more = {"task_number": numbers[0]} if len(numbers) == 1 else {"task_numbers": list(numbers)}
    return state.noting(at, f"{named(numbers)} {words}", **more)


def _subject(verb: str, numbers: Sequence[int]) -> str:
    subject = f"task {spelled(numbers)}: {verb}"
    return subject if len(subject) <= 72 else f"task: {verb} {len(numbers)} tasks"


def _told(draft: Draft, numbers: Sequence[int], verb: str, warnings: Sequence[str], after: str, *, is_rehearsal: bool) -> Outcome:
    are = ("would be" if is_rehearsal else "is" if len(numbers) == 1 else "are") + f" {verb}"
    return Outcome(
        command="task",
        status="completed",
        summary=f"{named(numbers)} {are}.",
        task_number=numbers[0] if len(numbers) == 1 else None,
        task_status=draft.state.task(numbers[0]).status.marker if len(numbers) == 1 else "",
        next_steps=after,
        warnings=(*draft.notices, *warnings),
        data={"task_numbers": list(numbers), "dry_run": is_rehearsal},
    )
