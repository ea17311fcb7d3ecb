"""`remit board import`: converts an existing `TODO.md` and `state.json` into a board.

state.json is read as far as possible, what cannot be read is listed, and differences in TODO.md are merged like any edit of a person. The
old files are copied to `specs/imported/`."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pydantic_core import from_json

from remit.board import archive
from remit.board.board import SPECS, Board
from remit.board.outcome import Outcome
from remit.board.state_file import DRAWN, data_to_state, entry_to_task, read_state, state_to_bytes
from remit.board.task import NEED_REASON, Priority, State, Status, Task, TaskArtifact, slug_of
from remit.board.todo import one_line, read_block, read_sheet, text_of
from remit.board.todo_merge import MergeResult, merge, parse_status
from remit.board.write_set import read_or_none
from remit.core.errors import Misused, Refused, Unavailable
from remit.core.text import plural

PLACES = (".opencode/specs", ".claude/specs", SPECS, ".opencode")
"""Possible places of a board; the first existing one is read."""
NO_REASON = "not recorded before the import"
_FILES = ("TODO.md", "state.json", "archive/state.json")
_OTHER_NAMES = {"in_progress": Status.IMPLEMENTING, "todo": Status.NOT_STARTED, "pending": Status.NOT_STARTED, "done": Status.COMPLETED}
_LINKED = ("Research", "Implementation", "Plan")
_LINK = re.compile(r"\[[^\[\]]*\]\(<?([^()<>]+)>?\)")
_LINK_LINE = re.compile(rf"^.*\*\*(?:{'|'.join(_LINKED)})\*\*:.*\n?", re.MULTILINE)


def import_board(board: Board, folder: Path | None = None) -> Outcome:
    """Raises `Misused` if there is nothing to read, `Refused` if the project already has a board."""
    source = _source(board, folder)
    _must_have_no_board(board, source)
    files = {name: data for name in _FILES if (data := read_or_none(source / name)) is not None}
    old = _OldState(board.root, source)
    for file in _FILES[1:]:
        old.read(file, files.get(file, b"{}"))
    text = text_of(files.get("TODO.md", b""))
    drawn = old.tasks_in(text)
    text = _LINK_LINE.sub("", text)  # links are drawn from the artifacts
    where = os.path.relpath(source.resolve(), board.root.resolve())
    if not (old.tasks or old.ended or text.strip()):
        raise Misused(f"{where} has no readable task.", advice="; ".join(old.notes) or "Check its files.")
    state, shelf = old.boards(drawn)
    merged = MergeResult(state=state)
    if text.strip():
        merged = merge(state, text, at=board.now(), taken_numbers=[task.number for task in shelf.tasks])
    count = plural(len(merged.state.tasks), "task")
    with board.change(f"Imported {count} from {where}", anew=True) as draft:
        kept_in = f"{SPECS}/imported/{re.sub(r'[-:]', '', draft.at)}"
        draft.state = merged.state
        draft.files |= {f"{kept_in}/{path}": data for path, data in files.items()}
        if shelf.tasks or board.archive_path.exists():
            draft.files[archive.ARCHIVE] = state_to_bytes(replace(shelf, last_updated=draft.at))
        board.commit_for(draft, f"board: import {count}", command="board import")
    for path in board.specs.glob("*.kept-*"):  # what the board kept beside its new files is already kept
        if path.is_file() and path.read_bytes() in files.values():
            path.unlink()
    lines = [f"Imported {count} from {where}, and {len(shelf.tasks)} into the archive.", f"The old files are kept in {kept_in}."]
    lines += ["Merged from TODO.md, which differed:", *(f"  {line}" for line in merged.taken)] if merged.taken else []
    left = (line for line in merged.kept if "drawn again" not in line)
    return Outcome(
        command="board import",
        status="completed",
        summary="\n".join(lines),
        next_steps="remit board",
        warnings=(*old.notes, *left, *filter(None, [draft.commit_warning])),
        commit=draft.commit_hash,
        data={"tasks": len(merged.state.tasks), "archived": len(shelf.tasks), "kept_in": kept_in},
    )


class _OldState:
    """state.json and its archive, read as far as possible."""

    def __init__(self, root: Path, source: Path) -> None:
        self._root = root
        self._source = source
        self.tasks: dict[int, Task] = {}
        self.ended: dict[int, Task] = {}
        """Tasks of `completed_projects` and of the archive."""
        self._unnumbered: list[Task] = []
        """Tasks whose number is missing or taken."""
        self._rest = State()
        """The other keys of state.json."""
        self.notes: list[str] = []

    def read(self, name: str, data: bytes) -> None:
        try:
            value = dict(from_json(data.removeprefix(b"\xef\xbb\xbf"), allow_inf_nan=False))
            tasks = [(entry, name != "state.json") for entry in value.pop("active_projects", None) or ()]
            tasks += [(entry, True) for entry in value.pop("completed_projects", None) or ()]
            if name == "state.json":
                self._rest = data_to_state({key: one for key, one in value.items() if key not in ("_schema_version", DRAWN)})
        except (ValueError, TypeError, Misused) as error:
            self.notes.append(f"{name} could not be read ({error!s:.80}): TODO.md alone counts.")
            return
        for entry, is_ended in tasks:
            self._add(name, entry, is_ended=is_ended)

    def _add(self, name: str, raw: Any, *, is_ended: bool) -> None:
        if not isinstance(raw, Mapping):
            self.notes.append(f"{name}: {raw!r:.60} is not a task.")
            return
        number = _number(raw.get("project_number"))
        default = Status.COMPLETED if is_ended else Status.NOT_STARTED
        entry = {"title": "Untitled", "status": default.value, **self._readable(name, raw), "project_number": number or 1}
        task = entry_to_task(entry)
        task = replace(
            task,
            blocking_reason=task.blocking_reason or (NO_REASON if task.status in NEED_REASON else ""),
            plan_path=self._placed(task.plan_path),
            artifacts=tuple(replace(one, path=self._placed(one.path)) for one in task.artifacts),
            plan_versions=tuple(replace(one, path=self._placed(one.path)) for one in task.plan_versions),
        )
        if number is not None and not (number in self.tasks or number in self.ended):
            (self.ended if is_ended else self.tasks)[number] = task
        elif is_ended:
            self.notes.append(f"{name}: {task.title[:60]!r} is left out: it ended, and another task has its number.")
        else:
            self._unnumbered.append(task)

    def _readable(self, name: str, raw: Mapping[str, Any]) -> dict[str, Any]:
        """The readable keys; the others are noted."""
        entry: dict[str, Any] = {}
        for key, value in raw.items():
            one = (_status(value) or value) if key == "status" else value
            try:
                if value and key != "project_number":
                    entry_to_task({"project_number": 1, "title": "x", "project_name": "x", "status": "planned", key: one})
                    entry[key] = one
            except Misused:
                self.notes.append(f"{name}, task {raw.get('project_number')!r:.20}: {key} {value!r:.60} cannot be read.")
        return entry

    def boards(self, drawn: Mapping[int, Task]) -> tuple[State, State]:
        """The board of state.json plus the tasks that only TODO.md has, and its archive."""
        ended = {number: task for number, task in self.ended.items() if number not in drawn}
        on_board = {**drawn, **{number: task for number, task in self.ended.items() if number in drawn}, **self.tasks}
        first = max([self._rest.next_number, *(1 + number for number in (*on_board, *ended))])
        for number, task in enumerate(self._unnumbered, first):
            self.notes.append(f"{task.title[:60]!r} had no number of its own: it is Task {number} now.")
            on_board[number] = replace(task, number=number)
        return replace(self._rest, next_number=first).with_tasks(on_board.values()), State(next_number=first).with_tasks(ended.values())

    def tasks_in(self, text: str) -> dict[int, Task]:
        """The numbered tasks of TODO.md: number, title, section, status and links. The rest is merged."""
        found: dict[int, Task] = {}
        for block in read_sheet(text, {number: one_line(task.title) for number, task in self.tasks.items()}, 1).blocks:
            if not block.number or not block.title or block.number in found:
                continue
            fields = read_block(block.lines).fields
            status = _status(fields.get("Status")) or Status.NOT_STARTED
            links = {name: [self._placed(unquote(link)) for link in _LINK.findall(fields.get(name, ""))] for name in _LINKED}
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

    def _placed(self, path: str) -> str:
        """Old paths are relative to the root, to the folder, or to its parent."""
        for base in (self._root, self._source, self._source.parent) if path and not path.startswith("/") and "://" not in path else ():
            place = os.path.normpath(base / path)
            if os.path.exists(place) and place.startswith(f"{self._root}{os.sep}"):
                return os.path.relpath(place, self._root)
        return path


def _status(value: Any) -> Status | None:
    if not isinstance(value, str):
        return None
    word = value.strip().strip("[]").strip().lower().replace(" ", "_")
    return _OTHER_NAMES.get(word) or parse_status(word)


def _number(value: Any) -> int | None:
    text = str(value).strip()
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text) <= 999_999 else None


def _source(board: Board, folder: Path | None) -> Path:
    places = [board.root / place for place in PLACES] if folder is None else [Path.cwd() / folder]
    found = next((place for place in places if any((place / name).is_file() for name in _FILES[:2])), None)
    if found is None:
        where = " or ".join(PLACES) if folder is None else f"{folder}"
        what = f"There is no old board here: no TODO.md or state.json in {where}."
        raise Misused(what, code="FILE_NOT_FOUND", advice="Name its folder: remit board import FOLDER")
    return found


def _must_have_no_board(board: Board, source: Path) -> None:
    """Raise `Refused` if the project has a board, unless that one is damaged and is imported itself."""
    data, is_here = read_or_none(board.state_path), source.resolve() == board.specs.resolve()
    count = len(archive.numbers(board))
    if data is not None and f'"{DRAWN}"'.encode() in data:
        try:
            count += len(read_state(data, "specs/state.json").state.tasks)
        except Unavailable:
            if not is_here:
                raise
            return
        is_here = False
    if count and not is_here:
        raise Refused(
            f"This project has a board with {count} tasks: nothing was changed.",
            advice='Import into a project without one, or add single tasks with `remit task "TEXT"`.',
        )
