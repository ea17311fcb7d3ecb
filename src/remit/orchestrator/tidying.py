"""The board kept in order: `remit task --sync` (S6.9). Runs no agent.

`sync` finishes what a crash left, reads TODO.md back, draws it anew and tells what does not fit together. It changes no status: which task
was worked on when its process died is told, with the command that goes on.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from remit.board.board import Board, Draft
from remit.board.claims import holders
from remit.board.graph import CLOSED, circle_words, cycles, next_command
from remit.board.pending_commits import owed
from remit.board.statuses import IN_PROGRESS
from remit.board.task import State, Task
from remit.board.write_set import read_or_none
from remit.orchestrator.changing import archived_statuses, changing, kept, named
from remit.orchestrator.outcome import Outcome

SYNCED = "task: sync TODO.md and state.json"
TOLD_AT_MOST = 20
"""Of one kind of finding; `--json` has them all."""
_FOLDER = re.compile(r"(\d{1,9})_(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What does not fit together, by kind; nothing of it is changed by looking."""

    stopped: tuple[Task, ...] = ()
    """In progress by their marker, with nobody alive who works on them."""
    gone: Mapping[int, tuple[str, ...]]
    """Files that tasks name and that are not there."""
    unknown: Mapping[int, tuple[int, ...]]
    """Dependencies on tasks that never were."""
    circles: tuple[tuple[int, ...], ...] = ()
    orphans: tuple[str, ...] = ()
    """Folders in specs/ whose number is no task's."""
    misnamed: tuple[str, ...] = ()
    """Folders whose number is a task's and whose name is not."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "stopped": [{"task_number": task.number, "status": str(task.status), "run": next_command(task)} for task in self.stopped],
            "missing_files": {str(number): list(paths) for number, paths in self.gone.items()},
            "unknown_dependencies": {str(number): list(found) for number, found in self.unknown.items()},
            "cycles": [list(circle) for circle in self.circles],
            "orphan_folders": list(self.orphans),
            "misnamed_folders": list(self.misnamed),
        }

    def lines(self) -> Iterator[str]:
        """A sentence each, for the person."""
        yield from _some(
            [
                f"Task {task.number} is [{task.status.marker}] and nobody works on it: `{next_command(task)}` goes on."
                for task in self.stopped
            ]
        )
        yield from _some([f"Task {number} names files that are gone: {', '.join(paths)}." for number, paths in self.gone.items()])
        yield from _some([f"Task {number} depends on {named(found).lower()}, which never was." for number, found in self.unknown.items()])
        yield from _some([f"{circle_words(circle)}." for circle in self.circles])
        yield from _some([f"{folder} belongs to no task." for folder in self.orphans])
        yield from _some([f"{folder} is not named like its task." for folder in self.misnamed])


def sync(board: Board, *, is_rehearsal: bool = False) -> Outcome:
    before = read_or_none(board.todo_path)

    def step(draft: Draft) -> tuple[Findings, bool]:
        return look_over(board, draft.state), bool(draft.notices)

    # Where nothing is taken over from TODO.md nothing may be written with it either: else every sync would be a change.
    (findings, is_edited), draft, debt = changing(board, step, lambda made: SYNCED if made[1] else "", is_rehearsal=is_rehearsal)
    after = read_or_none(board.todo_path)
    is_changed = before != after or is_edited
    told = list(findings.lines())
    outcome = Outcome(
        command="task",
        status="completed",
        summary=_synced(draft, is_changed, len(told), is_rehearsal=is_rehearsal),
        warnings=(*draft.notices, *told),
        next_steps=next_command(findings.stopped[0]) if findings.stopped else "",
        data={"changed": is_changed, "dry_run": is_rehearsal, **findings.to_dict()},
    )
    if is_changed and not is_rehearsal and debt is None:
        debt = owed(board, SYNCED, ())
    return kept(board, outcome, debt)


def look_over(board: Board, state: State) -> Findings:
    """Everything that does not fit together. Reads folders and asks for files; changes nothing."""
    working = holders(board)
    archived = archived_statuses(board)
    known = {task.number for task in state.tasks} | archived.keys()
    orphans, misnamed = folders(board, state)
    return Findings(
        stopped=tuple(task for task in state.tasks if task.status in IN_PROGRESS and task.number not in working),
        gone={task.number: paths for task in state.tasks if (paths := _gone(board, task))},
        unknown={task.number: found for task in state.tasks if (found := tuple(one for one in task.dependencies if one not in known))},
        circles=tuple(cycles(task for task in state.tasks if task.status not in CLOSED)),
        orphans=orphans,
        misnamed=misnamed,
    )


def _gone(board: Board, task: Task) -> tuple[str, ...]:
    paths = dict.fromkeys([*(artifact.path for artifact in task.artifacts), *([task.plan_path] if task.plan_path else [])])
    return tuple(path for path in paths if "://" not in path and not (board.root / path).exists())


def folders(board: Board, state: State, *, moved: Collection[str] = ()) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those in specs/ whose number is no task's, and those that are not named like their task. `moved`: those that are going away."""
    known = {task.number: task.folder for task in state.tasks}
    orphans, misnamed = [], []
    for entry in sorted(os.scandir(board.specs), key=lambda one: one.name) if board.specs.is_dir() else ():
        path = f"{board.specs.name}/{entry.name}"
        spelled = _FOLDER.fullmatch(entry.name)
        if spelled is None or path in moved or not entry.is_dir(follow_symlinks=False):
            continue
        if int(spelled[1]) not in known:
            orphans.append(path)
        elif known[int(spelled[1])] != path:
            misnamed.append(path)
    return tuple(orphans), tuple(misnamed)


def _synced(draft: Draft, is_changed: bool, findings: int, *, is_rehearsal: bool) -> str:
    tasks = f"{len(draft.state.tasks):,} task{'s' if len(draft.state.tasks) != 1 else ''}"
    if not is_changed:
        words = f"TODO.md and state.json agree: {tasks}."
    else:
        words = f"TODO.md and state.json {'would be' if is_rehearsal else 'are'} brought together: {tasks}."
    return words + (f" {findings} finding{'s' if findings != 1 else ''} below." if findings else "")


def _some(lines: list[str]) -> Iterator[str]:
    yield from lines[:TOLD_AT_MOST]
    if len(lines) > TOLD_AT_MOST:
        yield f"… and {len(lines) - TOLD_AT_MOST} more like that (--json has them all)."
