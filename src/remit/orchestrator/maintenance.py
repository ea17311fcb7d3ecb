"""The board kept in order: `remit todo` archives what is done, `remit task --sync` brings TODO.md and state.json together.

Neither runs an agent or changes a status. Folders that belong to no task are reported and left alone.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remit.board.archive import put_away
from remit.board.board import Board, Draft
from remit.board.claims import holders
from remit.board.graph import CLOSED, circle_words, cycles, next_command
from remit.board.pending_commits import owed
from remit.board.statuses import IN_PROGRESS, Status
from remit.board.task import State, Task
from remit.board.write_set import read_or_none
from remit.core.errors import Refused
from remit.orchestrator.changes import archived_statuses, change_board, committed, name_tasks, spell_numbers
from remit.orchestrator.outcome import Outcome

ASK_ABOVE = 5
MAX_SHOWN = 20
"""Lines of one kind; `--json` has them all."""
_FOLDER = re.compile(r"(\d{1,9})_(.+)")
_SYNC_SUBJECT = "task: sync TODO.md and state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Archivable:
    """What `todo` would archive now."""

    tasks: tuple[Task, ...]
    claimed: tuple[Task, ...] = ()
    """Done by their marker, and still being worked on."""


def todo(board: Board, *, agreed: Callable[[Sequence[Task]], bool], dry_run: bool = False) -> Outcome:
    """`agreed` is asked when more than five would go; only what it agreed to goes, whatever is completed meanwhile."""
    seen = archivable(board, board.look().state)
    if len(seen.tasks) > ASK_ABOVE and not dry_run and not agreed(seen.tasks):
        how = "`remit todo --dry-run` shows them; `remit todo --yes` archives them."
        raise Refused(f"{len(seen.tasks)} tasks would be archived, and nobody agreed: nothing was changed.", advice=how)
    wanted = {task.number for task in seen.tasks}

    def step(draft: Draft) -> Archivable:
        now = archivable(board, draft.state)
        gone = tuple(task for task in now.tasks if task.number in wanted)
        if gone:
            numbers = [task.number for task in gone]
            put_away(board, draft, numbers)
            draft.state = draft.state.noting(draft.at, f"{name_tasks(numbers)} archived", task_numbers=numbers)
        return Archivable(tasks=gone, claimed=now.claimed)

    def subject(gone: Archivable) -> str:
        return f"todo: archive {len(gone.tasks)} task{'s' if len(gone.tasks) > 1 else ''}" if gone.tasks else ""

    gone, draft, debt = change_board(board, step, subject, dry_run=dry_run)
    return committed(board, _archived_outcome(board, gone, draft, dry_run=dry_run), debt)


def archivable(board: Board, state: State) -> Archivable:
    working = holders(board)
    done = [task for task in state.tasks if task.status in (Status.COMPLETED, Status.ABANDONED)]
    return Archivable(
        tasks=tuple(task for task in done if task.number not in working),
        claimed=tuple(task for task in done if task.number in working),
    )


def _archived_outcome(board: Board, gone: Archivable, draft: Draft, *, dry_run: bool) -> Outcome:
    orphans, misnamed = folders_without_task(board, draft.state, moved=frozenset(draft.moves))
    missing = {
        task.number: task.folder
        for task in draft.state.tasks
        if any(artifact.path.startswith(f"{task.folder}/") for artifact in task.artifacts) and not (board.root / task.folder).is_dir()
    }
    warnings = [f"Task {task.number} is still being worked on: it stays." for task in gone.claimed]
    warnings += [*_folder_lines(orphans, misnamed)]
    warnings += [f"Task {number} has files on record, but its folder {folder} does not exist." for number, folder in missing.items()]
    abandoned = [task.number for task in gone.tasks if task.status is Status.ABANDONED]
    back = f"`remit task --recover {spell_numbers(abandoned)}` brings back what was abandoned" if abandoned and not dry_run else ""
    numbers = [task.number for task in gone.tasks]
    return Outcome(
        command="todo",
        status="completed",
        summary=_archived_summary(gone.tasks, dry_run=dry_run),
        warnings=(*draft.notices, *_first(warnings)),
        next_steps=back,
        data={
            "archived": [] if dry_run else numbers,
            "would_archive": numbers if dry_run else [],
            "dry_run": dry_run,
            "orphan_folders": list(orphans),
            "misnamed_folders": list(misnamed),
            "missing_folders": {str(number): folder for number, folder in missing.items()},
        },
    )


def _archived_summary(tasks: Sequence[Task], *, dry_run: bool) -> str:
    if not tasks:
        return "Nothing to archive: no task is completed or abandoned."
    are = "would be" if dry_run else "is" if len(tasks) == 1 else "are"
    lines = [f"{name_tasks([task.number for task in tasks])} {are} archived:"]
    lines += [f"  {task.number}. {task.title} [{task.status.marker}]" for task in tasks[:MAX_SHOWN]]
    lines += [f"  … and {len(tasks) - MAX_SHOWN} more"] if len(tasks) > MAX_SHOWN else []
    return "\n".join(lines)


# ---- sync


@dataclass(frozen=True, slots=True, kw_only=True)
class Inconsistencies:
    """What does not fit together, by kind."""

    stopped: tuple[Task, ...] = ()
    """In progress by their marker, and claimed by no living process."""
    missing_files: Mapping[int, tuple[str, ...]]
    unknown: Mapping[int, tuple[int, ...]]
    """Dependencies on tasks that never existed."""
    circles: tuple[tuple[int, ...], ...] = ()
    orphans: tuple[str, ...] = ()
    misnamed: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "stopped": [{"task_number": task.number, "status": str(task.status), "run": next_command(task)} for task in self.stopped],
            "missing_files": {str(number): list(paths) for number, paths in self.missing_files.items()},
            "unknown_dependencies": {str(number): list(found) for number, found in self.unknown.items()},
            "cycles": [list(circle) for circle in self.circles],
            "orphan_folders": list(self.orphans),
            "misnamed_folders": list(self.misnamed),
        }

    def lines(self) -> Iterator[str]:
        yield from _first(
            f"Task {task.number} is [{task.status.marker}] and nobody works on it: `{next_command(task)}` goes on." for task in self.stopped
        )
        yield from _first(f"Task {number} names files that are gone: {', '.join(paths)}." for number, paths in self.missing_files.items())
        yield from _first(
            f"Task {number} depends on {name_tasks(found).lower()}, which never was." for number, found in self.unknown.items()
        )
        yield from _first(f"{circle_words(circle)}." for circle in self.circles)
        yield from _first(_folder_lines(self.orphans, self.misnamed))


def sync(board: Board, *, dry_run: bool = False) -> Outcome:
    """Finish what a crash left, read TODO.md back, draw it again, and report what does not fit together."""
    before = read_or_none(board.todo_path)

    def step(draft: Draft) -> tuple[Inconsistencies, bool]:
        return find_inconsistencies(board, draft.state), bool(draft.notices)

    # Where nothing is taken over from TODO.md nothing may be written with it either: else every sync would be a change.
    (found, is_edited), draft, debt = change_board(board, step, lambda made: _SYNC_SUBJECT if made[1] else "", dry_run=dry_run)
    is_changed = before != read_or_none(board.todo_path) or is_edited
    lines = list(found.lines())
    tasks = f"{len(draft.state.tasks):,} task{'s' if len(draft.state.tasks) != 1 else ''}"
    done = f"{'would be' if dry_run else 'are'} brought together" if is_changed else "agree"
    more = f" {len(lines)} finding{'s' if len(lines) != 1 else ''} below." if lines else ""
    outcome = Outcome(
        command="task",
        status="completed",
        summary=f"TODO.md and state.json {done}: {tasks}.{more}",
        warnings=(*draft.notices, *lines),
        next_steps=next_command(found.stopped[0]) if found.stopped else "",
        data={"changed": is_changed, "dry_run": dry_run, **found.to_dict()},
    )
    if is_changed and not dry_run and debt is None:
        debt = owed(board, _SYNC_SUBJECT, ())
    return committed(board, outcome, debt)


def find_inconsistencies(board: Board, state: State) -> Inconsistencies:
    """Reads folders and asks for files; changes nothing."""
    working = holders(board)
    known = {task.number for task in state.tasks} | archived_statuses(board).keys()
    orphans, misnamed = folders_without_task(board, state)
    return Inconsistencies(
        stopped=tuple(task for task in state.tasks if task.status in IN_PROGRESS and task.number not in working),
        missing_files={task.number: paths for task in state.tasks if (paths := _missing_files(board, task))},
        unknown={task.number: found for task in state.tasks if (found := tuple(one for one in task.dependencies if one not in known))},
        circles=tuple(cycles(task for task in state.tasks if task.status not in CLOSED)),
        orphans=orphans,
        misnamed=misnamed,
    )


def _missing_files(board: Board, task: Task) -> tuple[str, ...]:
    paths = dict.fromkeys([*(artifact.path for artifact in task.artifacts), *([task.plan_path] if task.plan_path else [])])
    return tuple(path for path in paths if "://" not in path and not (board.root / path).exists())


def folders_without_task(board: Board, state: State, *, moved: Collection[str] = ()) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Folders in specs/ whose number is no task's, and those not named like their task. `moved`: those that are going away."""
    known = {task.number: task.folder for task in state.tasks}
    orphans, misnamed = [], []
    for entry in sorted(os.scandir(board.specs), key=lambda one: one.name) if board.specs.is_dir() else ():
        path = f"{board.specs.name}/{entry.name}"
        named = _FOLDER.fullmatch(entry.name)
        if named is None or path in moved or not entry.is_dir(follow_symlinks=False):
            continue
        if int(named[1]) not in known:
            orphans.append(path)
        elif known[int(named[1])] != path:
            misnamed.append(path)
    return tuple(orphans), tuple(misnamed)


def _folder_lines(orphans: Sequence[str], misnamed: Sequence[str]) -> Iterator[str]:
    yield from (f"{folder} belongs to no task." for folder in orphans)
    yield from (f"{folder} is not named like its task." for folder in misnamed)


def _first(found: "Sequence[str] | Iterator[str]") -> Iterator[str]:
    lines = list(found)
    yield from lines[:MAX_SHOWN]
    if len(lines) > MAX_SHOWN:
        yield f"… and {len(lines) - MAX_SHOWN} more like that (--json has them all)."
