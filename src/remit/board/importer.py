"""`remit board import`: converts an existing `TODO.md` and `state.json` into a board, without losing a line.

state.json is read as far as possible; differences in TODO.md are merged like any edit of a person. A replaced or unreadable value of
state.json is kept in the task's entry under `imported`. The old files are copied to `specs/imported/`."""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pydantic_core import from_json

from remit.board import archive
from remit.board.board import SPECS, Board
from remit.board.outcome import count_words
from remit.board.state_file import DRAWN, data_to_state, entry_to_task, read_state, state_to_bytes, task_to_entry
from remit.board.task import NEED_REASON, SCHEMA_VERSION, Priority, State, Status, Task, TaskArtifact, slug_of, status_of
from remit.board.todo import link_to, one_line, read_block, read_sheet, text_of
from remit.board.todo_merge import MergeResult, merge
from remit.board.write_set import read_or_none
from remit.core.errors import Misused, Refused, Unavailable

PLACES = (".opencode/specs", ".claude/specs", SPECS, ".opencode")
"""Possible places of a board; the first existing one is read."""
MARK = "imported_from"
NO_REASON = "not recorded before the import"
_FILES = ("TODO.md", "state.json", "archive/state.json")
_OTHER_NAMES = {"in_progress": Status.IMPLEMENTING, "todo": Status.NOT_STARTED, "pending": Status.NOT_STARTED, "done": Status.COMPLETED}
_LINKED = ("Research", "Implementation", "Plan")
_LINK = re.compile(r"\[[^\[\]]*\]\(<?([^()<>]+)>?\)")
_LINK_LINE = re.compile(rf"^.*\*\*(?:{'|'.join(_LINKED)})\*\*:.*$", re.MULTILINE)
_EMPTY: tuple[Any, ...] = (None, "", [], {})


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    folder: str
    """Location of the old files, relative to the root."""
    tasks: int = 0
    archived: int = 0
    only_in_state: tuple[int, ...] = ()
    only_in_todo: tuple[int, ...] = ()
    merged: tuple[str, ...] = ()
    """Differences taken from TODO.md, one line each."""
    notes: tuple[str, ...] = ()
    """Unreadable parts and other notes, one line each."""
    commit: str = ""
    """The commit that was made, abbreviated; empty: none was."""
    commit_warning: str = ""
    kept_in: str = ""
    """Where the old files are kept."""
    is_done: bool = True
    """False: a dry run."""
    was_done: bool = False
    """It was imported before: nothing changed."""

    def to_dict(self) -> dict[str, Any]:
        shown = {key: value for key, value in asdict(self).items() if key not in ("commit_warning", "is_done", "was_done")}
        shown["told"] = shown.pop("notes")
        warnings = [self.commit_warning] if self.commit_warning else []
        return {**shown, "warnings": warnings, "imported": self.is_done and not self.was_done, "was_imported": self.was_done}


def import_board(board: Board, folder: Path | None = None, *, dry_run: bool = False) -> ImportResult:
    """Raises `Misused` if there is nothing to read, `Refused` if the project already has a board."""
    source = _source(board, folder)
    found = {name: read_or_none(source / name) for name in _FILES}
    files = {name: data for name, data in found.items() if data is not None}
    sha256 = hashlib.sha256(b"\0".join(name.encode() + b"\0" + data for name, data in sorted(files.items()))).hexdigest()
    name = _shown(board, source)
    if _is_done(board, source, sha256):
        return ImportResult(folder=name, was_done=True, notes=(f"{name} was imported before: nothing was changed.",))
    old = _OldState(board.root, source)
    old.read("state.json", files.get("state.json"))
    old.read("archive/state.json", files.get("archive/state.json"))
    text = text_of(files.get("TODO.md", b""))
    # A link to a file that exists elsewhere is not an edit.
    text = _LINK_LINE.sub(lambda line: _LINK.sub(lambda link: link_to(old.placed(unquote(link[1]))), line[0]), text)
    drawn = old.tasks_in(text)
    if not (old.tasks or old.ended or text.strip()):
        raise Misused(f"{name} has no readable task.", advice="; ".join(old.notes) or "Check its files.")
    state, shelf, seeded = old.boards(drawn)
    before = {task.number for task in state.tasks} - seeded.keys()
    taken = [task.number for task in shelf.tasks]
    merged = merge(state, text, at=board.now(), taken_numbers=taken) if text.strip() else MergeResult(state=state)
    state = _with_replaced(state, merged.state)
    result = ImportResult(
        folder=name,
        tasks=len(state.tasks),
        archived=len(shelf.tasks) + len(shelf.completed),
        only_in_state=tuple(task.number for task in state.tasks if task.number not in drawn) if text.strip() else (),
        only_in_todo=tuple(task.number for task in state.tasks if task.number not in before),
        merged=merged.taken,
        notes=(*old.notes, *(line for line in merged.kept if "drawn again" not in line), *_missing_artifacts(board.root, state.tasks)),
    )
    return replace(result, is_done=False) if dry_run else _write(board, result, state, shelf, files, sha256)


class _OldState:
    """state.json and its archive, read as far as possible."""

    def __init__(self, root: Path, source: Path) -> None:
        self.root = root
        self.source = source
        self.tasks: dict[int, Task] = {}
        self.ended: dict[int, Task] = {}
        """Tasks of `completed_projects` and of the archive."""
        self.unnumbered: list[Task] = []
        """Tasks whose number is missing or taken."""
        self.doubles: list[Mapping[str, Any]] = []
        """Ended tasks with a taken number: kept as data in the archive."""
        self.rest: dict[str, Any] = {}
        """The other keys of state.json."""
        self.extra: dict[str, Any] = {}
        self.notes: list[str] = []

    def has(self, number: int) -> bool:
        return number in self.tasks or number in self.ended

    def read(self, name: str, data: bytes | None) -> None:
        try:
            value: Any = {} if data is None else from_json(data.removeprefix(b"\xef\xbb\xbf"), allow_inf_nan=False)
        except ValueError as error:
            value = error
        if not isinstance(value, Mapping):
            self.notes.append(f"{name} could not be read ({value!s:.80}): a copy is kept, and TODO.md alone counts.")
            return
        is_archive = name != "state.json"
        for key, is_ended in (("active_projects", is_archive), ("completed_projects", True)):
            entries = value.get(key) or []
            for raw in entries if isinstance(entries, list) else [entries]:
                self._add(name, raw, is_ended=is_ended)
        if not is_archive:
            self._take_rest({key: one for key, one in value.items() if key not in ("active_projects", "completed_projects", DRAWN)})

    def _take_rest(self, rest: Mapping[str, Any]) -> None:
        for key, value in rest.items():
            try:
                data_to_state({key: value})
            except Misused:
                self.extra[f"imported_{key.lstrip('_')}"] = value
            else:
                self.rest[key] = value
        version = self.rest.pop("_schema_version", SCHEMA_VERSION)
        self.extra |= {"imported_schema_version": version} if version != SCHEMA_VERSION else {}

    def _add(self, name: str, raw: Any, *, is_ended: bool) -> None:
        if not isinstance(raw, Mapping):
            self.extra.setdefault("imported_entries", []).append(raw)
            self.notes.append(f"{name}: {raw!r:.60} is not a task; it is kept under `imported_entries`.")
            return
        entry, unread = _readable(raw)
        number = _number(raw.get("project_number"))
        if number is not None and is_ended and self.has(number):
            self.doubles.append(dict(raw))
            return
        for key in unread:
            self.notes.append(
                f"{name}, task {raw.get('project_number')!r:.20}: {key} {raw[key]!r:.60} cannot be read; it is kept under `imported`."
            )
        default = Status.COMPLETED if is_ended else Status.NOT_STARTED
        entry = {"title": "Untitled", "status": default.value, **entry, "project_number": number or 1}
        if unread:
            entry["imported"] = {**unread, **({"before": entry["imported"]} if "imported" in entry else {})}
        task = self._placed_paths(entry_to_task(entry))
        if task.status in NEED_REASON and not task.blocking_reason:
            task = replace(task, blocking_reason=NO_REASON)
        if number is None or self.has(number):
            self.unnumbered.append(task)
        else:
            (self.ended if is_ended else self.tasks)[number] = task

    def boards(self, drawn: Mapping[int, Task]) -> tuple[State, State, Mapping[int, Task]]:
        """The board of state.json plus the tasks that only TODO.md has; its archive; and those tasks."""
        state = data_to_state(self.rest)
        ended = {number: task for number, task in self.ended.items() if number not in drawn}
        seeded = {number: task for number, task in drawn.items() if not self.has(number)}
        tasks = [*self.tasks.values(), *(task for number, task in self.ended.items() if number in drawn), *seeded.values()]
        number = max([state.next_number, *(1 + number for number in (*self.tasks, *self.ended, *drawn))])
        for task in self.unnumbered:
            self.notes.append(f"{task.title[:60]!r} had no number of its own: it is Task {number} now.")
            tasks.append(replace(task, number=number))
            number += 1
        board = replace(state, tasks=tuple(tasks), next_number=number, extra={**state.extra, **self.extra})
        return board, State(tasks=tuple(ended.values()), completed=tuple(self.doubles), next_number=number), seeded

    def tasks_in(self, text: str) -> dict[int, Task]:
        """The numbered tasks of TODO.md: number, title, section, status and links. The rest is merged."""
        found: dict[int, Task] = {}
        for block in read_sheet(text, {number: one_line(task.title) for number, task in self.tasks.items()}, 1).blocks:
            if not block.number or not block.title or block.number in found:
                continue
            fields = read_block(block.lines).fields
            status = _status(fields.get("Status")) or Status.NOT_STARTED
            links = {name: [_path_of(link) for link in _LINK.findall(fields.get(name, ""))] for name in _LINKED}
            found[block.number] = Task(
                number=block.number,
                title=one_line(block.title),
                slug=slug_of(block.title),
                status=status,
                priority=block.section or Priority.MEDIUM,
                blocking_reason=(one_line(fields.get("Blocking Reason", "")) or NO_REASON) if status in NEED_REASON else "",
                artifacts=tuple(TaskArtifact(type=name.lower(), path=path) for name in _LINKED[:2] for path in links[name]),
                plan_path=links["Plan"][-1] if links["Plan"] else "",
            )
        return found

    def _placed_paths(self, task: Task) -> Task:
        return replace(
            task,
            plan_path=self.placed(task.plan_path),
            artifacts=tuple(replace(one, path=self.placed(one.path)) for one in task.artifacts),
            plan_versions=tuple(replace(one, path=self.placed(one.path)) for one in task.plan_versions),
        )

    def placed(self, path: str) -> str:
        """Old paths are relative to the root, to the folder, or to its parent."""
        if not path or path.startswith("/") or "://" in path or "\0" in path:
            return path
        for base in (self.root, self.source, self.source.parent):
            found, root = base / path, self.root.resolve()
            try:
                if found.exists() and found.resolve().is_relative_to(root):
                    return found.resolve().relative_to(root).as_posix()
            except OSError:  # a path longer than the system allows
                break
        return path


def _readable(raw: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The readable keys, and the unreadable ones."""
    entry: dict[str, Any] = {}
    unread: dict[str, Any] = {}
    for key, value in raw.items():
        if value in _EMPTY or key == "project_number":
            unread |= {key: value} if key == "project_number" and _number(value) is None else {}
            continue
        status = _status(value) if key == "status" else None
        one = value if status is None else status.value
        try:
            entry_to_task({"project_number": 1, "title": "x", "project_name": "x", "status": "planned", key: one})
            entry[key] = one
        except Misused:
            unread[key] = value
    return entry, unread


def _with_replaced(before: State, after: State) -> State:
    """The board with each value that TODO.md replaced kept under `imported`."""
    tasks = []
    for task in after.tasks:
        known = before.find(task.number)
        old, new = ({}, {}) if known is None or known is task else (task_to_entry(known), task_to_entry(task))
        lost = {
            key: value
            for key, value in old.items()
            if value not in _EMPTY and new.get(key) != value and key not in ("todo_lines", "last_updated")
        }
        tasks.append(replace(task, extra={**task.extra, "imported": {**lost, **task.extra.get("imported", {})}}) if lost else task)
    return replace(after, tasks=tuple(tasks))


def _path_of(link: str) -> str:
    """The path relative to the root of a link that `link_to` wrote."""
    return os.path.normpath(unquote(link if link.startswith("/") else f"{SPECS}/{link}"))


def _status(value: Any) -> Status | None:
    if not isinstance(value, str):
        return None
    word = value.strip().strip("[]").strip().lower().replace(" ", "_")
    try:
        return _OTHER_NAMES.get(word) or status_of(word)
    except Misused:
        return None


def _number(value: Any) -> int | None:
    text = str(value).strip()
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text) <= 999_999 else None


def _source(board: Board, folder: Path | None) -> Path:
    if folder is not None and folder.is_file():
        folder = folder.parent
    places = [board.root / place for place in PLACES] if folder is None else [Path.cwd() / folder]
    found = next((place for place in places if any((place / name).is_file() for name in _FILES[:2])), None)
    if found is None:
        where = " or ".join(PLACES) if folder is None else f"{folder}"
        what = f"There is no old board here: no TODO.md or state.json in {where}."
        raise Misused(what, code="FILE_NOT_FOUND", advice="Name its folder: remit board import FOLDER")
    return found


def _is_done(board: Board, source: Path, sha256: str) -> bool:
    """Raises `Refused` if the project has another board."""
    data = read_or_none(board.state_path)
    is_here = source.resolve() == board.specs.resolve()
    if data is None or f'"{DRAWN}"'.encode() not in data:
        if is_here or (data is None and not archive.numbers(board)):
            return False
        raise Refused(f"{SPECS} has another board already.", advice=f"Import that one first: remit board import {SPECS}")
    try:
        state = read_state(data, "specs/state.json").state
    except Unavailable:
        if is_here:
            return False
        raise
    before = state.extra.get(MARK)
    if is_here or (isinstance(before, dict) and before.get("sha256") == sha256):
        return True
    if not state.tasks and not archive.numbers(board):
        return False
    raise Refused(
        f"This project has a board with {len(state.tasks)} tasks ({len(archive.numbers(board))} in the archive): two boards are not mixed.",
        advice='Import into a project without one, or add single tasks with `remit task "TEXT"`.',
    )


def _missing_artifacts(root: Path, tasks: Sequence[Task]) -> Iterator[str]:
    for task in tasks:
        for one in task.artifacts:
            if "\0" in one.path or len(one.path) > 1000 or not (root / one.path).exists():
                yield f"Task {task.number}: the artifact {one.path[:200]!r} is missing."


def _write(board: Board, result: ImportResult, state: State, shelf: State, files: Mapping[str, bytes], sha256: str) -> ImportResult:
    with board.change(f"Imported {result.tasks} tasks from {result.folder}", anew=True) as draft:
        kept_in = f"{SPECS}/imported/{re.sub(r'[-:]', '', draft.at)}"
        mark = {"folder": result.folder, "at": draft.at, "sha256": sha256, "kept_in": kept_in}
        draft.state = replace(state, extra={**state.extra, MARK: mark})
        draft.files |= {f"{kept_in}/{path}": data for path, data in files.items()}
        if shelf.tasks or shelf.completed or board.archive_path.exists():
            draft.read(archive.ARCHIVE)
            draft.files[archive.ARCHIVE] = state_to_bytes(replace(shelf, last_updated=draft.at))
        board.commit_for(draft, f"board: import {count_words(result.tasks, 'task')}", command="board import")
    for path in board.specs.glob("*.kept-*"):  # what the board kept beside its new files is already kept
        if path.is_file() and path.read_bytes() in files.values():
            path.unlink()
    return replace(result, kept_in=kept_in, commit=draft.commit_hash, commit_warning=draft.commit_warning)


def _shown(board: Board, source: Path) -> str:
    resolved, root = source.resolve(), board.root.resolve()
    return resolved.relative_to(root).as_posix() if resolved.is_relative_to(root) else str(source)
