"""What is done with taken off the board: `remit todo` (S6.9). Completed and abandoned tasks go to the archive with their folders.

Delegates nothing. Above five it asks first; what it was told to ask with is the caller's. Folders that fit no task are told, not touched.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from remit.board.archive import put_away
from remit.board.board import Board, Draft
from remit.board.claims import holders
from remit.board.statuses import Status
from remit.board.task import State, Task
from remit.core.errors import Refused
from remit.orchestrator.changing import changing, kept, named, spelled
from remit.orchestrator.outcome import Outcome
from remit.orchestrator.tidying import folders

ASKED_ABOVE = 5
SHOWN = 20
_HOW = "`remit todo --dry-run` shows them; `remit todo --yes` archives them."
_ARCHIVED = (Status.COMPLETED, Status.ABANDONED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """What `todo` would archive now."""

    tasks: tuple[Task, ...]
    held: tuple[Task, ...] = ()
    """Done by their marker, and somebody works on them still."""


def todo(board: Board, *, agreed: Callable[[Sequence[Task]], bool], is_rehearsal: bool = False) -> Outcome:
    """`agreed` is asked when more than five would go; what it agreed to is what goes, whatever is completed meanwhile."""
    seen = leaving(board, board.look().state)
    if len(seen.tasks) > ASKED_ABOVE and not is_rehearsal and not agreed(seen.tasks):
        raise Refused(f"{len(seen.tasks)} tasks would be archived, and nobody agreed: nothing was changed.", advice=_HOW)
    wanted = {task.number for task in seen.tasks}

    def step(draft: Draft) -> Leaving:
        now = leaving(board, draft.state)
        gone = tuple(task for task in now.tasks if task.number in wanted)
        if gone:
            numbers = [task.number for task in gone]
            put_away(board, draft, numbers)
            draft.state = draft.state.noting(draft.at, f"{named(numbers)} archived", task_numbers=numbers)
        return Leaving(tasks=gone, held=now.held)

    gone, draft, debt = changing(board, step, _subject, is_rehearsal=is_rehearsal)
    return kept(board, _told(board, gone, draft, is_rehearsal=is_rehearsal), debt)


def _subject(gone: Leaving) -> str:
    return f"todo: archive {len(gone.tasks)} task{'s' if len(gone.tasks) > 1 else ''}" if gone.tasks else ""


def leaving(board: Board, state: State) -> Leaving:
    """Completed and abandoned tasks on which nobody works."""
    working = holders(board)
    done = [task for task in state.tasks if task.status in _ARCHIVED]
    return Leaving(
        tasks=tuple(task for task in done if task.number not in working),
        held=tuple(task for task in done if task.number in working),
    )


def _told(board: Board, gone: Leaving, draft: Draft, *, is_rehearsal: bool) -> Outcome:
    orphans, misnamed = folders(board, draft.state, moved=frozenset(draft.moves))
    missing = _missing(board, draft)
    warnings = [f"Task {task.number} is still being worked on: it stays." for task in gone.held]
    warnings += [f"{folder} belongs to no task." for folder in orphans]
    warnings += [f"{folder} is not named like its task." for folder in misnamed]
    warnings += [f"Task {number} has files on record, and its folder {folder} is not there." for number, folder in missing.items()]
    return Outcome(
        command="todo",
        status="completed",
        summary=_summary(gone.tasks, is_rehearsal=is_rehearsal),
        warnings=(*draft.notices, *warnings[:SHOWN], *([f"… and {len(warnings) - SHOWN} more (--json)."] if len(warnings) > SHOWN else [])),
        next_steps="" if not gone.tasks or is_rehearsal else _recovering(gone.tasks),
        data={
            "archived": [] if is_rehearsal else [task.number for task in gone.tasks],
            "would_archive": [task.number for task in gone.tasks] if is_rehearsal else [],
            "dry_run": is_rehearsal,
            "orphan_folders": list(orphans),
            "misnamed_folders": list(misnamed),
            "missing_folders": {str(number): folder for number, folder in missing.items()},
        },
    )


def _summary(tasks: Sequence[Task], *, is_rehearsal: bool) -> str:
    if not tasks:
        return "Nothing to archive: no task is completed or abandoned."
    are = "would be" if is_rehearsal else "is" if len(tasks) == 1 else "are"
    lines = [f"{named([task.number for task in tasks])} {are} archived:"]
    lines += [f"  {task.number}. {task.title} [{task.status.marker}]" for task in tasks[:SHOWN]]
    lines += [f"  … and {len(tasks) - SHOWN} more"] if len(tasks) > SHOWN else []
    return "\n".join(lines)


def _recovering(tasks: Sequence[Task]) -> str:
    abandoned = [task.number for task in tasks if task.status is Status.ABANDONED]
    return f"`remit task --recover {spelled(abandoned)}` brings back what was abandoned" if abandoned else ""


def _missing(board: Board, draft: Draft) -> dict[int, str]:
    """Tasks that have files on record, and no folder where these would be."""
    return {
        task.number: task.folder
        for task in draft.state.tasks
        if any(artifact.path.startswith(f"{task.folder}/") for artifact in task.artifacts) and not (board.root / task.folder).is_dir()
    }
