"""What a command of the board came to: for the person, for `--json`, and for whoever goes on from it.

Light: commands that run no agent use it as well, and must not wait for the engine to be imported.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from remit.board.archive import archived_tasks, not_found
from remit.board.board import Board, Draft, no_board
from remit.board.pending_commits import Debt, owed, pay, pay_left
from remit.board.task import State, Status, Task

if TYPE_CHECKING:
    from remit.app import Remit
    from remit.board.commits import Committed
    from remit.core.errors import ErrorInfo
    from remit.core.result import Artifact, Return
    from remit.runtime.context import Handle


# ---- What a command of the board came to: for the person, for `--json`, and for whoever goes on from it.


Waiting: TypeAlias = "Callable[[Remit, Handle], Awaitable[Return]]"
"""How a delegation is waited for: the command line shows it meanwhile and listens for Ctrl-C; a program just waits."""


async def wait_for_result(remit: "Remit", handle: "Handle") -> "Return":
    """Wait and show nothing."""
    return await handle.result()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    command: str
    status: str
    """completed, partial, failed or blocked: as a return has it."""
    summary: str
    task_number: int | None = None
    task_status: str = ""
    """The marker its task has now."""
    artifacts: "tuple[Artifact, ...]" = ()
    errors: "tuple[ErrorInfo, ...]" = ()
    next_steps: str = ""
    warnings: tuple[str, ...] = ()
    """Of the return, of the board (TODO.md edits), of git: each a sentence."""
    commit: str = ""
    """The commit that was made, abbreviated; empty: none."""
    session_id: str = ""
    """Of the last delegation; empty: nothing was delegated."""
    stop_reason: str = "finished"
    data: dict[str, Any] = field(default_factory=dict)
    """More for `--json`: resume_from_phase, phase_statuses, created task numbers, …; never in the place of what stands above."""

    @classmethod
    def of_return(cls, command: str, result: "Return", **more: Any) -> "Outcome":
        """What an agent returned, with what the command adds or changes."""
        fields = {
            "status": str(result.status),
            "summary": result.summary,
            "artifacts": tuple(result.artifacts),
            "errors": tuple(result.errors),
            "next_steps": result.next_steps,
            "warnings": result.warnings,
            "session_id": result.session_id,
            "stop_reason": str(result.stop_reason),
        }
        return cls(command=command, **{**fields, **more})

    def to_dict(self) -> dict[str, Any]:
        told = {
            "command": self.command,
            "status": self.status,
            "summary": self.summary,
            "task_number": self.task_number,
            "task_status": self.task_status,
            "artifacts": [artifact.to_dict() for artifact in self.artifacts],
            "errors": [error.to_dict() for error in self.errors],
            "next_steps": self.next_steps,
            "warnings": list(self.warnings),
            "commit": self.commit,
            "session_id": self.session_id,
            "stop_reason": self.stop_reason,
        }
        return {**told, **{name: value for name, value in self.data.items() if name not in told}}


# ---- One change of the board as a command makes it: carried out or only tried, then committed. Light to import.


T = TypeVar("T")


def change_board(
    board: Board, step: Callable[[Draft], T], subject: Callable[[T], str], *, dry_run: bool, make: bool = False
) -> tuple[T, Draft, Debt | None]:
    """Let `step` change the board as one set of writes. A dry run changes a draft that is never written.

    `subject`: of the commit that is owed for it, empty for none; `committed` makes it. Commits that a killed command owed are made first.
    """
    if not dry_run:
        left = pay_left(board)
        with board.change(make=make) as draft:
            made = step(draft)
            debt = _note_debt(board, draft, subject(made))
        draft.notices = (*left, *draft.notices)
        return made, draft, debt
    seen = board.look()
    if not seen.exists and not make:
        raise no_board()
    draft = Draft(state=seen.state, at=board.now(), notices=seen.notices, _root=board.root)
    return step(draft), draft, None


def _note_debt(board: Board, draft: Draft, subject: str) -> Debt | None:
    """For the board's own files, those of the draft and the folders it moves."""
    if not subject:
        return None
    debt = owed(board, subject, (*draft.files, *draft.moves.values()), deleted=draft.moves)
    draft.files[debt.note] = debt.to_bytes()
    return debt


def committed(board: Board, outcome: Outcome, debt: Debt | None) -> Outcome:
    """Commit the change; the outcome with the commit, or with the warning why there is none."""
    made = commit_debt(board, debt, outcome.command, outcome.task_number)
    return replace(outcome, commit=made.short, warnings=(*outcome.warnings, *([made.warning] if made.warning else ())))


def commit_debt(board: Board, debt: Debt | None, command: str, task_number: int | None = None) -> "Committed":
    """Make the commit that is owed. One that fails is entered in the error ledger; one that only has to wait is not."""
    made = pay(board, debt)
    if debt is not None and made.warning and not made.later:
        note_failed_commit(board.root, made.warning, command, task_number, debt.session_id)
    return made


def note_failed_commit(root: Path, warning: str, command: str, task_number: int | None = None, session_id: str = "") -> None:
    """A ledger that cannot be written must not fail the command: the warning is shown either way."""
    from remit.core.errors import ErrorInfo, RemitError
    from remit.runtime.error_ledger import ErrorLedger, ErrorOccurrence

    advice = "Commit the files by hand, and look at what git said."
    error = ErrorInfo(type="git", message=warning, code="GIT_COMMIT_FAILED", recoverable=True, recommendation=advice)
    try:
        ErrorLedger(root / ".remit" / "errors.json").note(
            [ErrorOccurrence(error=error, command=command, task_number=task_number, session_id=session_id or None)]
        )
    except RemitError:
        return


def replace_tasks(state: State, tasks: Sequence[Task]) -> State:
    new = {task.number: task for task in tasks}
    return replace(state, tasks=tuple(new.get(task.number, task) for task in state.tasks))


def find_tasks(board: Board, state: State, numbers: Sequence[int]) -> list[Task]:
    """All of them, or `Misused`: "Task N not found", and whether it is in the archive."""
    there = {task.number: task for task in state.tasks}
    missing = next((number for number in numbers if number not in there), None)
    if missing is not None:
        raise not_found(board, missing)
    return [there[number] for number in numbers]


def spell_numbers(numbers: Sequence[int]) -> str:
    """As they are typed: `337, 343-345`."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 2 else ", ".join(map(str, part)) for part in parts)


def name_tasks(numbers: Sequence[int]) -> str:
    """`Task 3`, `Tasks 3, 5-7`"""
    return f"Task{'s' if len(numbers) > 1 else ''} {spell_numbers(numbers)}"


def archived_statuses(board: Board) -> dict[int, Status]:
    return {task.number: task.status for task in archived_tasks(board)}


def one_line(text: str, most: int = 0) -> str:
    """Without line breaks and control characters, fit for a line of TODO.md; cut between words where it is longer than `most`."""
    flat = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return flat if not most or len(flat) <= most else f"{flat[: most - 1].rpartition(' ')[0] or flat[: most - 1]}…"


def count_words(count: int, one: str) -> str:
    """`1 group`, `2 groups`"""
    return f"{count:,} {one}{'s' * (count != 1)}"
