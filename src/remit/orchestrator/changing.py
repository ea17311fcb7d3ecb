"""One change of the board as a command makes it: carried out or only rehearsed, kept in git, told. For commands that run no agent."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from remit.board.archive import archived_tasks, not_found
from remit.board.board import Board, Draft, no_board
from remit.board.pending_commits import Debt, owed, pay, pay_left
from remit.board.statuses import Status
from remit.board.task import State, Task
from remit.orchestrator.outcome import Outcome

Made = TypeVar("Made")


def changing(
    board: Board, step: Callable[[Draft], Made], subject: Callable[[Made], str], *, is_rehearsal: bool, make: bool = False
) -> tuple[Made, Draft, Debt | None]:
    """Let `step` change the board, as one set of writes. A rehearsal does the same to a draft that nobody writes.

    `subject`: of the commit that is owed for it, empty for none; `kept` pays it. What a killed command owed is paid first.
    """
    if not is_rehearsal:
        left = pay_left(board)
        with board.change(make=make) as draft:
            made = step(draft)
            debt = _noted(board, draft, subject(made))
        draft.notices = (*left, *draft.notices)
        return made, draft, debt
    seen = board.look()
    if not seen.exists and not make:
        raise no_board()
    draft = Draft(state=seen.state, at=board.now(), notices=seen.notices, _root=board.root)
    return step(draft), draft, None


def _noted(board: Board, draft: Draft, subject: str) -> Debt | None:
    """The board's own files, those of the draft and the folders it moves, no other."""
    if not subject:
        return None
    debt = owed(board, subject, (*draft.files, *draft.moves.values()), deleted=draft.moves)
    draft.files[debt.note] = debt.to_bytes()
    return debt


def kept(board: Board, outcome: Outcome, debt: Debt | None) -> Outcome:
    """Commit what was changed, and say so."""
    made = pay(board, debt)
    return replace(outcome, commit=made.short, warnings=(*outcome.warnings, *([made.warning] if made.warning else ())))


def replaced(state: State, tasks: Sequence[Task]) -> State:
    """With these in the places of those that have their numbers: one walk, however many there are."""
    new = {task.number: task for task in tasks}
    return replace(state, tasks=tuple(new.get(task.number, task) for task in state.tasks))


def found(board: Board, state: State, numbers: Sequence[int]) -> list[Task]:
    """All of them, or `Misused`: "Task N not found", and whether it is in the archive."""
    there = {task.number: task for task in state.tasks}
    missing = next((number for number in numbers if number not in there), None)
    if missing is not None:
        raise not_found(board, missing)
    return [there[number] for number in numbers]


def spelled(numbers: Sequence[int]) -> str:
    """As they are typed: `337, 343-345`."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 2 else ", ".join(map(str, part)) for part in parts)


def named(numbers: Sequence[int]) -> str:
    """`Task 3`, `Tasks 3, 5-7`"""
    return f"Task{'s' if len(numbers) > 1 else ''} {spelled(numbers)}"


def archived_statuses(board: Board) -> dict[int, Status]:
    """How the archived tasks ended, by number."""
    return {task.number: task.status for task in archived_tasks(board)}
