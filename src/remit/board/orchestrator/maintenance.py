"""The board kept in order: `remit todo` archives what is done, `remit task --sync` brings TODO.md and state.json together.

Neither runs an agent or changes a status. Folders that belong to no task are reported and left alone.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from remit.board.archive import put_away
from remit.board.board import Board, Draft
from remit.board.claims import holders
from remit.board.graph import CLOSED, circle_words, cycles, next_command
from remit.board.orchestrator.changes import archived_statuses, change_board, committed, count_words, name_tasks, spell_numbers
from remit.board.orchestrator.outcome import Outcome
from remit.board.pending_commits import owed
from remit.board.statuses import IN_PROGRESS, Status
from remit.board.task import State, Task
from remit.board.write_set import read_or_none
from remit.core.errors import Refused

ASK_ABOVE = 5
MAX_SHOWN = 20
"""Lines of one kind; `--json` has them all."""
_FOLDER = re.compile(r"(\d{1,9})_(.+)")
_SYNC_SUBJECT = "task: sync TODO.md and state.json"


def todo(board: Board, *, agreed: Callable[[Sequence[Task]], bool], dry_run: bool = False) -> Outcome:
    """`agreed` is asked when more than five would go; only what it agreed to goes, whatever is completed meanwhile."""
    seen, _ = archivable(board, board.look().state)
    if len(seen) > ASK_ABOVE and not dry_run and not agreed(seen):
        how = "`remit todo --dry-run` shows them; `remit todo --yes` archives them."
        raise Refused(f"{len(seen)} tasks would be archived, and nobody agreed: nothing was changed.", advice=how)
    wanted = {task.number for task in seen}

    def step(draft: Draft) -> tuple[list[Task], list[Task]]:
        now, claimed = archivable(board, draft.state)
        gone = [task for task in now if task.number in wanted]
        if gone:
            numbers = [task.number for task in gone]
            put_away(board, draft, numbers)
            draft.state = draft.state.noting(draft.at, f"{name_tasks(numbers)} archived", task_numbers=numbers)
        return gone, claimed

    def subject(made: tuple[list[Task], list[Task]]) -> str:
        return f"todo: archive {count_words(len(made[0]), 'task')}" if made[0] else ""

    (gone, claimed), draft, debt = change_board(board, step, subject, dry_run=dry_run)
    return committed(board, _archived_outcome(board, gone, claimed, draft, dry_run=dry_run), debt)


def archivable(board: Board, state: State) -> tuple[list[Task], list[Task]]:
    """What `todo` would archive now, and what is done by its marker and still being worked on."""
    working = holders(board)
    done = [task for task in state.tasks if task.status in (Status.COMPLETED, Status.ABANDONED)]
    return [task for task in done if task.number not in working], [task for task in done if task.number in working]


def _archived_outcome(board: Board, gone: Sequence[Task], claimed: Sequence[Task], draft: Draft, *, dry_run: bool) -> Outcome:
    orphans, misnamed = folders_without_task(board, draft.state, moved=frozenset(draft.moves))
    missing = {
        task.number: task.folder
        for task in draft.state.tasks
        if any(artifact.path.startswith(f"{task.folder}/") for artifact in task.artifacts) and not (board.root / task.folder).is_dir()
    }
    warnings = [f"Task {task.number} is still being worked on: it stays." for task in claimed]
    warnings += [*_folder_lines(orphans, misnamed)]
    warnings += [f"Task {number} has files on record, but its folder {folder} does not exist." for number, folder in missing.items()]
    abandoned = [task.number for task in gone if task.status is Status.ABANDONED]
    back = f"`remit task --recover {spell_numbers(abandoned)}` brings back what was abandoned" if abandoned and not dry_run else ""
    numbers = [task.number for task in gone]
    return Outcome(
        command="todo",
        status="completed",
        summary=_archived_summary(gone, dry_run=dry_run),
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


def sync(board: Board, *, dry_run: bool = False) -> Outcome:
    """Finish what a crash left, read TODO.md back, draw it again, and report what does not fit together."""
    before = read_or_none(board.todo_path)

    # Where nothing is taken over from TODO.md nothing may be written with it either: else every sync would be a change.
    is_edited, draft, debt = change_board(
        board, lambda draft: bool(draft.notices), lambda is_edited: _SYNC_SUBJECT if is_edited else "", dry_run=dry_run
    )
    data, lines = find_inconsistencies(board, draft.state)
    is_changed = before != read_or_none(board.todo_path) or is_edited
    done = f"{'would be' if dry_run else 'are'} brought together" if is_changed else "agree"
    more = f" {count_words(len(lines), 'finding')} below." if lines else ""
    outcome = Outcome(
        command="task",
        status="completed",
        summary=f"TODO.md and state.json {done}: {count_words(len(draft.state.tasks), 'task')}.{more}",
        warnings=(*draft.notices, *lines),
        next_steps=data["stopped"][0]["run"] if data["stopped"] else "",
        data={"changed": is_changed, "dry_run": dry_run, **data},
    )
    if is_changed and not dry_run and debt is None:
        debt = owed(board, _SYNC_SUBJECT, ())
    return committed(board, outcome, debt)


def find_inconsistencies(board: Board, state: State) -> tuple[dict[str, Any], list[str]]:
    """What does not fit together, by kind, and the same in lines. Reads folders and asks for files; changes nothing."""
    working = holders(board)
    known = {task.number for task in state.tasks} | archived_statuses(board).keys()
    stopped = [task for task in state.tasks if task.status in IN_PROGRESS and task.number not in working]
    missing = {task.number: paths for task in state.tasks if (paths := _missing_files(board, task))}
    unknown = {task.number: found for task in state.tasks if (found := [one for one in task.dependencies if one not in known])}
    circles = cycles(task for task in state.tasks if task.status not in CLOSED)
    orphans, misnamed = folders_without_task(board, state)
    data = {
        "stopped": [{"task_number": task.number, "status": str(task.status), "run": next_command(task)} for task in stopped],
        "missing_files": {str(number): paths for number, paths in missing.items()},
        "unknown_dependencies": {str(number): found for number, found in unknown.items()},
        "cycles": [list(circle) for circle in circles],
        "orphan_folders": list(orphans),
        "misnamed_folders": list(misnamed),
    }
    kinds: Sequence[Iterable[str]] = (
        (f"Task {task.number} is [{task.status.marker}] and nobody works on it: `{next_command(task)}` goes on." for task in stopped),
        (f"Task {number} names files that are gone: {', '.join(paths)}." for number, paths in missing.items()),
        (f"Task {number} depends on {name_tasks(found).lower()}, which never was." for number, found in unknown.items()),
        (f"{circle_words(circle)}." for circle in circles),
        _folder_lines(orphans, misnamed),
    )
    return data, [line for lines in kinds for line in _first(lines)]


def _missing_files(board: Board, task: Task) -> list[str]:
    paths = dict.fromkeys([*(artifact.path for artifact in task.artifacts), *([task.plan_path] if task.plan_path else [])])
    return [path for path in paths if "://" not in path and not (board.root / path).exists()]


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


def _first(found: Iterable[str]) -> Iterator[str]:
    lines = list(found)
    yield from lines[:MAX_SHOWN]
    if len(lines) > MAX_SHOWN:
        yield f"… and {len(lines) - MAX_SHOWN} more like that (--json has them all)."
