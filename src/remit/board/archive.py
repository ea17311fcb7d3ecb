"""The archive: `specs/archive/state.json` and the folders of archived tasks.

A task is archived or restored in the same write set as the change of the board; its folder is renamed, and the paths of its reports and
plans follow. Numbers of archived tasks are never reused."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from remit.board.state_file import read_state, state_to_bytes, task_to_entry
from remit.board.task import State, Task
from remit.board.write_set import read_or_none

if TYPE_CHECKING:
    from remit.board.board import Board, Draft

FOLDER = "specs/archive"
ARCHIVE = f"{FOLDER}/state.json"
_NUMBER = re.compile(rb'"project_number"\s*:\s*"?(\d+)')


def archived(board: "Board") -> State:
    """The archive on disk; empty if there is none. Raises `Unavailable` if it is damaged."""
    data = read_or_none(board.archive_path)
    return State() if data is None else read_state(data, ARCHIVE).state


def archived_tasks(board: "Board") -> tuple[Task, ...]:
    return archived(board).tasks


def numbers(board: "Board") -> frozenset[int]:
    """All archived numbers; read without parsing the rest, also from a damaged archive."""
    data = read_or_none(board.archive_path)
    return frozenset() if data is None else frozenset(map(int, _NUMBER.findall(data)))


def numbered(board: "Board", state: State) -> State:
    """The state with a next number that neither board nor archive has used."""
    highest = max(numbers(board), default=0)
    return state if highest < state.next_number else replace(state, next_number=highest + 1)


def put_away(board: "Board", draft: "Draft", gone: Iterable[int]) -> None:
    """Move tasks of the draft into the archive, with their folders. Raises `Misused`: "Task N not found"."""
    tasks = [draft.state.task(number) for number in dict.fromkeys(gone)]
    shelf = archived(board)
    doubles = [found for task in tasks if (found := shelf.find(task.number)) is not None]
    # Duplicate numbers only result from a git merge; the older entry is kept as data.
    shelf = replace(shelf.without(task.number for task in doubles), completed=(*shelf.completed, *map(task_to_entry, doubles)))
    moved = tuple(_moved(board, draft, task, task.folder, _away(task)) for task in tasks)
    draft.state = draft.state.without(task.number for task in tasks)
    _put(draft, shelf.with_tasks(moved))


def bring_back(board: "Board", draft: "Draft", wanted: Iterable[int]) -> None:
    """Move archived tasks back to the end of the board, with their folders. Raises `Misused`: "Task N not found"."""
    shelf = archived(board)
    tasks = [shelf.task(number) for number in dict.fromkeys(wanted)]
    moved = tuple(_moved(board, draft, task, _away(task), task.folder) for task in tasks)
    draft.state = draft.state.with_tasks(moved)
    _put(draft, shelf.without(task.number for task in tasks))


def _away(task: Task) -> str:
    return f"{FOLDER}/{task.number:03d}_{task.slug}"


def _put(draft: "Draft", shelf: State) -> None:
    draft.files[ARCHIVE] = state_to_bytes(replace(shelf, last_updated=draft.at))


def _moved(board: "Board", draft: "Draft", task: Task, source: str, target: str) -> Task:
    """Move its folder, unless it is missing or the target exists: then it stays, and its paths stay valid."""
    if not (board.root / source).is_dir() or (board.root / target).exists():
        return task
    draft.move(source, target)
    return _renamed(task, lambda path: f"{target}/{path[len(source) + 1 :]}" if path.startswith(f"{source}/") else path)


def _renamed(task: Task, place: Callable[[str], str]) -> Task:
    return replace(
        task,
        artifacts=tuple(replace(one, path=place(one.path)) for one in task.artifacts),
        plan_path=place(task.plan_path),
        plan_versions=tuple(replace(one, path=place(one.path)) for one in task.plan_versions),
    )
