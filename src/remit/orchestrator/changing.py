"""One change of the board as a command makes it: carried out or only rehearsed, kept in git, told. For commands that run no agent."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from remit.board.book import Board, Draft
from remit.core.errors import Misused
from remit.orchestrator.outcome import Outcome

Made = TypeVar("Made")


def changing(board: Board, step: Callable[[Draft], Made], *, is_rehearsal: bool, make: bool = False) -> tuple[Made, Draft]:
    """Let `step` change the board, as one set of writes. A rehearsal does the same to a draft that nobody writes."""
    if not is_rehearsal:
        with board.change(make=make) as draft:
            made = step(draft)
        return made, draft
    seen = board.look()
    if not seen.exists and not make:
        raise no_board()
    draft = Draft(state=seen.state, at=board.now(), notices=seen.notices)
    return step(draft), draft


def no_board() -> Misused:
    return Misused("This project has no board yet.", advice='`remit task "TEXT"` records the first task and makes it.')


def kept(board: Board, outcome: Outcome, draft: Draft, subject: str, *, deleted: Sequence[str] = ()) -> Outcome:
    """Commit what was changed, and say so: the board's own files and those of the draft, no other."""
    try:
        from remit.board.committing import commit  # only here: reading commands need no git
    except ImportError:
        return outcome

    paths = [path.relative_to(board.root).as_posix() for path in (board.state_path, board.todo_path)]
    made = commit(board.root, [*paths, *(path for path in draft.files if path not in paths)], subject, deleted=deleted)
    return replace(outcome, commit=made.hash, warnings=(*outcome.warnings, *([made.warning] if made.warning else ())))
