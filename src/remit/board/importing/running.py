"""`import_board`: the old files read, made into a board in one write set, and kept as they were under `specs/imported/`.

Only where there is no board of ours with tasks yet. The old folder is never touched, unless it is `specs/`, where the board is to be.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remit.board import archive
from remit.board.book import SPECS, Board
from remit.board.entries import DRAWN
from remit.board.importing.old_state import OldState, read_old_state
from remit.board.importing.old_todo import OldTodo, read_old_todo
from remit.board.importing.pairing import Paired, Slot, pair
from remit.board.importing.settling import Drift, settle
from remit.board.owing import Debt, owed
from remit.board.reading import read_state, state_to_bytes
from remit.board.task import State, Task, slug_of
from remit.board.todo import text_of
from remit.board.writeset import read_or_none
from remit.core.errors import Misused, Refused, Unavailable

PLACES = (".opencode/specs", ".claude/specs", SPECS, ".opencode")
"""Where older systems kept their board; the first that has one is read."""
MARK = "imported_from"
_CONFLICT = re.compile(r"^(?:<{7}|>{7})(?: |$)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    folder: str
    """Where the old files are, relative to the root."""
    tasks: int = 0
    archived: int = 0
    only_in_state: tuple[int, ...] = ()
    only_in_todo: tuple[int, ...] = ()
    drifts: tuple[Drift, ...] = ()
    told: tuple[str, ...] = ()
    """Everything else that was not as it should be, a sentence each."""
    debt: Debt | None = None
    """The commit that is owed for it; None: nothing was written."""
    kept_in: str = ""
    """Where the old files are kept."""
    is_done: bool = True
    """False: it was a rehearsal."""
    was_done: bool = False
    """It had been imported before: nothing was changed."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "folder": self.folder,
            "tasks": self.tasks,
            "archived": self.archived,
            "only_in_state": list(self.only_in_state),
            "only_in_todo": list(self.only_in_todo),
            "drift": [
                {"task": one.number, "field": one.field, "state": one.state, "todo": one.todo, "settled": one.settled}
                for one in self.drifts
            ],
            "told": list(self.told),
            "kept_in": self.kept_in,
            "imported": self.is_done and not self.was_done,
            "was_imported": self.was_done,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """The board that the old files come to."""

    state: State
    shelf: State
    told: Imported


def import_board(board: Board, folder: Path | None = None, *, is_rehearsal: bool = False) -> Imported:
    """Raises `Misused` when there is nothing to read, `Refused` when the project has a board already."""
    source = _source(board, folder)
    text = read_or_none(source / "TODO.md")
    old = read_old_state(source)
    if text is not None:
        old.files["TODO.md"] = text
    stamp = hashlib.sha256(b"\0".join(name.encode() + b"\0" + data for name, data in sorted(old.files.items()))).hexdigest()
    name = _shown(board, source)
    if _is_done(board, source, stamp):
        return Imported(folder=name, was_done=True, told=(f"{name} was imported before: nothing was changed.",))
    made = _made(board, source, old, _readable(text))
    if is_rehearsal:
        return replace(made.told, is_done=False)
    return _write(board, made, old, name, stamp)


def _source(board: Board, folder: Path | None) -> Path:
    if folder is not None:
        source = folder if folder.is_absolute() else Path.cwd() / folder
        if source.is_file():
            source = source.parent
        if any((source / name).is_file() for name in ("TODO.md", "state.json")):
            return source
        raise Misused(f"{folder} has neither TODO.md nor state.json.", code="FILE_NOT_FOUND", advice="Name the folder that has them.")
    found = [board.root / place for place in PLACES if any((board.root / place / name).is_file() for name in ("TODO.md", "state.json"))]
    if not found:
        raise Misused(
            f"There is no old board here: none of {', '.join(PLACES)} has a TODO.md or a state.json.",
            code="FILE_NOT_FOUND",
            advice="Name its folder: remit board import FOLDER",
        )
    return found[0]


def _is_done(board: Board, source: Path, stamp: str) -> bool:
    """Raises `Refused` for a board of ours that came from elsewhere."""
    data = read_or_none(board.state_path)
    is_here = source.resolve() == board.specs.resolve()
    if data is None and not is_here and archive.numbers(board):
        raise Refused(f"{archive.ARCHIVE} has tasks of another board.", advice="Import into a project without one.")
    if data is None or f'"{DRAWN}"'.encode() not in data:
        if data is None or is_here:
            return False
        raise Refused(
            f"{SPECS} has a state.json of its own, which is not a board of remit.",
            advice=f"Import that one first: remit board import {SPECS}",
        )
    try:
        state = read_state(data, "specs/state.json").state
    except Unavailable:
        if is_here:
            return False
        raise
    before = state.extra.get(MARK)
    if is_here or (isinstance(before, dict) and before.get("sha256") == stamp):
        return True
    if not state.tasks and not archive.numbers(board):
        return False
    raise Refused(
        f"This project has a board with {len(state.tasks)} tasks ({len(archive.numbers(board))} in the archive): two boards are not mixed.",
        advice='Import into a project without one, or add single tasks with `remit task "TEXT"`.',
    )


def _readable(data: bytes | None) -> str:
    text = "" if data is None else text_of(data)
    if _CONFLICT.search(text):
        raise Refused(
            "The old TODO.md has the marks of an unfinished merge (<<<<<<<).", code="MERGE_CONFLICT", advice="Settle the merge in it first."
        )
    return text


def _made(board: Board, source: Path, old: OldState, text: str) -> _Made:
    todo = read_old_todo(text, {slug_of(str(name)) for entry in old.entries for name in (entry.raw.get("title"), entry.name) if name})
    paired = pair(old, todo)
    if not old.files or (not paired.slots and not text.strip()):
        raise Misused(f"{_shown(board, source)} holds no task that could be read.", advice="; ".join(old.told) or "Look into its files.")

    def place(path: str) -> str:
        return _placed(board.root, source, path)

    settled = {id(slot): settle(slot, place) for slot in paired.slots if slot.number}
    on_board = [slot for slot in _in_order(paired, todo) if slot.number and not slot.is_archived]
    away = [slot for slot in paired.slots if slot.number and slot.is_archived]
    doubles = tuple(dict(entry.raw) for slot in paired.slots if not slot.number for entry in slot.entries)
    tasks = tuple(settled[id(slot)][0] for slot in on_board)
    shelf = State(tasks=tuple(settled[id(slot)][0] for slot in away), completed=doubles, next_number=paired.next_number)
    told = Imported(
        folder=_shown(board, source),
        tasks=len(tasks),
        archived=len(away) + len(doubles),
        only_in_state=tuple(slot.number for slot in on_board if slot.block is None),
        only_in_todo=tuple(slot.number for slot in on_board if not slot.entries),
        drifts=tuple(drift for slot in (*on_board, *away) for drift in settled[id(slot)][1]),
        told=(*old.told, *paired.told, *_gone(board.root, tasks)),
    )
    return _Made(state=_state(old, todo, paired, tasks), shelf=shelf, told=told)


def _state(old: OldState, todo: OldTodo, paired: Paired, tasks: tuple[Task, ...]) -> State:
    numbers = [paired.of_block[block.index].number for block in todo.blocks]
    texts = todo.sheet.texts(numbers) if todo.sheet.blocks or any(todo.sheet.gaps.values()) else old.texts
    if texts.get("top") in ("# TODO", ""):
        texts = {key: text for key, text in texts.items() if key != "top"}
    strange: dict[str, Any] = {"imported_entries": old.strange} if old.strange else {}
    shown = "\n".join(texts.values())
    if lost := {key: text for key, text in old.texts.items() if text not in shown}:
        strange["imported_todo_texts"] = lost
    return State(
        tasks=tasks,
        next_number=paired.next_number,
        activities=tuple(old.activities),
        texts=texts,
        last_updated=old.last_updated,
        extra={**old.extra, **strange},
    )


def _in_order(paired: Paired, todo: OldTodo) -> Sequence[Slot]:
    """As TODO.md has them, then the others as state.json has them."""
    drawn = {id(paired.of_block[block.index]): paired.of_block[block.index] for block in todo.blocks}
    return [*drawn.values(), *(slot for slot in paired.slots if id(slot) not in drawn)]


def _placed(root: Path, source: Path, path: str) -> str:
    """Old paths were relative to the root, to the folder, or to the one above it."""
    if not path or path.startswith("/") or "://" in path or "\0" in path:
        return path
    for base in (root, source, source.parent):
        found = base / path
        try:
            if found.exists() and found.resolve().is_relative_to(root.resolve()):
                return found.resolve().relative_to(root.resolve()).as_posix()
        except OSError:  # a path longer than the system allows is no file
            break
    return path


def _gone(root: Path, tasks: Sequence[Task]) -> list[str]:
    missing = [task.number for task in tasks if any(_is_missing(root, artifact.path) for artifact in task.artifacts)]
    if not missing:
        return []
    shown = ", ".join(map(str, missing[:10])) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
    return [f"Artifacts that are named and are not there: of Task {shown}."]


def _is_missing(root: Path, path: str) -> bool:
    try:
        return not (root / path).exists()
    except (OSError, ValueError):
        return True


def _write(board: Board, made: _Made, old: OldState, name: str, sha256: str) -> Imported:
    with board.change(f"Imported {made.told.tasks} tasks from {name}", anew=True) as draft:
        kept_in = f"{SPECS}/imported/{re.sub(r'[-:]', '', draft.at)}"
        mark = {MARK: {"folder": name, "at": draft.at, "sha256": sha256, "kept_in": kept_in}}
        draft.state = replace(made.state, extra={**made.state.extra, **mark})
        for path, data in old.files.items():
            draft.files[f"{kept_in}/{path}"] = data
        if made.shelf.tasks or made.shelf.completed or board.archive_path.exists():
            draft.read(archive.ARCHIVE)
            draft.files[archive.ARCHIVE] = state_to_bytes(replace(made.shelf, last_updated=draft.at))
        debt = owed(board, f"board: import {made.told.tasks} task{'s' if made.told.tasks != 1 else ''}", draft.files)
        draft.files[debt.note] = debt.to_bytes()
    _sweep_copies(board, old)
    return replace(made.told, kept_in=kept_in, debt=debt)


def _sweep_copies(board: Board, old: OldState) -> None:
    """What the board kept beside its new files is what we have kept already."""
    kept = set(old.files.values())
    for path in board.specs.glob("*.kept-*"):
        if path.is_file() and path.read_bytes() in kept:
            path.unlink()


def _shown(board: Board, source: Path) -> str:
    resolved, root = source.resolve(), board.root.resolve()
    return resolved.relative_to(root).as_posix() if resolved.is_relative_to(root) else str(source)
