"""An old state.json and its archives, read as far as they can be: entries of tasks as they were written, and everything else.

Raises nothing for damage; tells of it. A file cut short is read to where it was cut.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from remit.board.entries import DRAWN
from remit.board.importing.words import number_in
from remit.board.task import SCHEMA_VERSION
from remit.board.writeset import read_or_none

_ACTIVE = ("active_projects", "tasks", "projects", "active_tasks")
_ENDED = ("completed_projects", "archived_projects", "completed_tasks", "archived_tasks")
_NUMBERS = ("project_number", "task_number", "number", "id")
_NAMES = ("project_name", "slug", "name")
_OURS = ("_schema_version", "schema_version", "_last_updated", "next_project_number", "recent_activities", "_todo_texts", "_todo_sha256")


@dataclass(frozen=True, slots=True, kw_only=True)
class OldEntry:
    """One task as a file has it."""

    number: int | None
    name: str
    raw: Mapping[str, Any]
    is_ended: bool = False
    """It stands among the completed, or in an archive."""
    source: str = ""


@dataclass(slots=True)
class OldState:
    entries: list[OldEntry] = field(default_factory=list)
    strange: list[Any] = field(default_factory=list)
    """What stands among the tasks and is none."""
    extra: dict[str, Any] = field(default_factory=dict)
    activities: list[Any] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    """A person's own text, of a board of ours that was damaged since."""
    next_number: int = 1
    last_updated: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    """What was read, by its path in the old folder."""
    told: list[str] = field(default_factory=list)


def read_old_state(folder: Path) -> OldState:
    old = OldState()
    data = read_or_none(folder / "state.json")
    if data is not None:
        _read(old, "state.json", data, is_archive=False)
    for path in _archives(folder):
        found = read_or_none(path)
        if found is not None:
            _read(old, path.relative_to(folder).as_posix(), found, is_archive=True)
    return old


def _archives(folder: Path) -> list[Path]:
    """Older systems had several, in several places."""
    found = [*folder.glob("archive*/state*.json"), *folder.glob("archive*/*/state*.json"), *folder.glob("*archive*.json")]
    return sorted(path for path in dict.fromkeys(found) if path.is_file())


def _read(old: OldState, name: str, data: bytes, *, is_archive: bool) -> None:
    old.files[name] = data
    value = _value_of(old, name, data)
    if not isinstance(value, Mapping):
        if value is not None:
            old.told.append(f"{name} holds no board; it is kept as it was.")
        return
    rest: dict[str, Any] = {}
    for key, one in value.items():
        if key in _ACTIVE or key in _ENDED:
            for entry in _entries(one, name, is_ended=is_archive or key in _ENDED):
                (old.entries if isinstance(entry, OldEntry) else old.strange).append(entry)
        else:
            rest[key] = one
    old.next_number = max(old.next_number, number_in(rest.get("next_project_number")) or 1)
    if is_archive:
        more = {key: one for key, one in rest.items() if key not in _OURS}
        if more:
            old.extra.setdefault("imported_archives", {})[name] = more
        return
    _take_rest(old, rest)


def _take_rest(old: OldState, rest: dict[str, Any]) -> None:
    """Everything of state.json that is no task."""
    activities = rest.pop("recent_activities", None)
    if isinstance(activities, list):
        old.activities += activities
    elif activities is not None:
        old.extra["imported_recent_activities"] = activities
    texts = rest.get("_todo_texts")
    if isinstance(texts, Mapping):
        old.texts = {key: one for key, one in texts.items() if isinstance(one, str)}
    if isinstance(rest.get("_last_updated"), str):
        old.last_updated = rest["_last_updated"]
    for key, one in rest.items():
        if key not in _OURS:
            old.extra[key] = one
        elif key != DRAWN and one is not None and not _is_read(key, one):
            old.extra[f"imported_{key.removeprefix('_')}"] = one


def _is_read(key: str, value: Any) -> bool:
    """One of our own keys, as we write it: it has its place on the board. A schema version and a next number are made anew."""
    if key == "_todo_texts":
        return isinstance(value, Mapping) and all(isinstance(one, str) for one in value.values())
    if key == "next_project_number":
        return number_in(value) is not None
    return isinstance(value, str) and (key == "_last_updated" or value == SCHEMA_VERSION)


def _value_of(old: OldState, name: str, data: bytes) -> Any:
    text = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return from_json(text)
    except ValueError as error:
        message = str(error)
    try:
        value = from_json(text, allow_partial="trailing-strings")
        old.told.append(f"{name} is cut short ({message}): what is there was read.")
        return value
    except ValueError:
        old.told.append(f"{name} could not be read ({message}): it is kept as it was, and TODO.md alone counts.")
        return None


def _entries(value: Any, source: str, *, is_ended: bool) -> Iterator[Any]:
    """`OldEntry` for a task, anything else as it is. Some kept them by number."""
    pairs = value.items() if isinstance(value, Mapping) else ((None, one) for one in value) if isinstance(value, list) else ((None, value),)
    for key, raw in pairs:
        if not isinstance(raw, Mapping):
            if raw is not None:
                yield {key: raw} if key is not None else raw
            continue
        number = next((found for one in _NUMBERS if (found := number_in(raw.get(one))) is not None), number_in(key) if key else None)
        name = next((raw[one] for one in _NAMES if isinstance(raw.get(one), str) and raw[one].strip()), "")
        yield OldEntry(number=number, name=name, raw=raw, is_ended=is_ended, source=source)
