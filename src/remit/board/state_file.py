"""`state.json`: parsed into a `State` and written back. Unknown keys are kept; damage is reported with its location, never guessed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from pydantic_core import from_json, to_json

from remit.board.task import SCHEMA_VERSION, PlanVersion, Priority, State, Task, TaskArtifact, slug_of, status_of
from remit.core.errors import Misused, Unavailable

DRAWN = "_todo_sha256"
"""Key of the hash of the last drawn TODO.md."""
_STATE_KEYS = frozenset({
    "_schema_version", "_last_updated", "next_project_number", "active_projects", "completed_projects", "recent_activities",
    "_todo_texts", DRAWN,
})  # fmt: skip
_RENAMED = {"number": "project_number", "slug": "project_name", "lines": "todo_lines"}
"""Fields of a task with another key in an entry."""
_ALWAYS = frozenset({
    "number", "slug", "title", "type", "status", "priority", "language", "description", "effort", "dependencies", "created", "artifacts",
})  # fmt: skip
"""Fields that are written even if empty."""
_NO_NAME = frozenset("/\\\0\n")
"""Characters that a slug must not contain, as it names a folder in specs/."""

_Reader = Callable[[Any, str], Any]


class BadEntry(Misused):
    """An invalid entry."""


def task_to_entry(task: Task) -> dict[str, Any]:
    entry = {}
    for name in _FIELDS:
        value = getattr(task, name)
        if value or name in _ALWAYS:
            entry[_RENAMED.get(name, name)] = list(map(_plain, value)) if isinstance(value, tuple) else value
    return entry | dict(task.extra)


def _plain(value: Any) -> Any:
    """An artifact or plan version as an object, with its own keys behind the others."""
    if not isinstance(value, TaskArtifact | PlanVersion):
        return value
    known = {one.name: getattr(value, one.name) for one in fields(value) if one.name != "extra"}
    if isinstance(value, TaskArtifact) and not value.summary:
        del known["summary"]
    return known | dict(value.extra)


def entry_to_task(entry: Any) -> Task:
    """Raises `Misused` with the fault; `board import` is more lenient."""
    if not isinstance(entry, Mapping):
        raise BadEntry(f"a task is an object, not {_kind(entry)}")
    found: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for key, value in entry.items():
        reader = _READERS.get(key)
        if reader is None:
            extra[key] = value
        elif value:
            field_name, read = reader
            found[field_name] = read(value, key)
    name, title = found.get("slug", ""), found.get("title", "")
    if not (name or title):
        raise BadEntry("it has neither title nor project_name")
    if not _NO_NAME.isdisjoint(name):
        raise BadEntry(f"project_name is {name[:40]!r}, which cannot name a folder")
    if "status" not in found:
        raise BadEntry("it has no status")
    number = found["number"] if "number" in found else _number(entry.get("project_number"), "project_number")
    return Task(**{**found, "number": number, "title": title or name, "slug": name or slug_of(title), "extra": extra})


def state_to_data(state: State) -> dict[str, Any]:
    return {
        "_schema_version": state.schema_version,
        "_last_updated": state.last_updated,
        "next_project_number": state.next_number,
        "active_projects": list(map(task_to_entry, state.tasks)),
        "completed_projects": list(state.completed),
        "recent_activities": list(state.activities),
        **({"_todo_texts": dict(state.texts)} if state.texts else {}),
        **state.extra,
    }


def data_to_state(data: Any) -> State:
    """Raises `BadEntry` (a `Misused`)."""
    if not isinstance(data, Mapping):
        raise BadEntry(f"the whole is {_kind(data)}, not an object")
    texts = data.get("_todo_texts") or {}
    if not isinstance(texts, Mapping):
        raise BadEntry(f"_todo_texts is {_kind(texts)}, not an object")
    for key, text in texts.items():
        if not isinstance(text, str):
            raise BadEntry(f"_todo_texts has {_kind(text)} under {key!r}, where a text belongs")
    tasks = _tasks_of(_list(data.get("active_projects"), "active_projects"))
    state = State(
        tasks=tasks,
        next_number=_number(data.get("next_project_number") or 1, "next_project_number"),
        completed=tuple(_list(data.get("completed_projects"), "completed_projects")),
        activities=tuple(_list(data.get("recent_activities"), "recent_activities")),
        texts=dict(texts),
        last_updated=_text(data.get("_last_updated") or "", "_last_updated"),
        extra={key: value for key, value in data.items() if key not in _STATE_KEYS},
    )
    return replace(state, next_number=max(state.next_number, 1 + max((task.number for task in tasks), default=0)))


def _tasks_of(entries: list[Any]) -> tuple[Task, ...]:
    tasks: dict[int, Task] = {}
    for index, entry in enumerate(entries, 1):
        try:
            task = entry_to_task(entry)
        except Misused as error:
            number = entry.get("project_number") if isinstance(entry, Mapping) else None
            which = f"task {number}" if isinstance(number, int) else f"entry {index} of active_projects"
            raise BadEntry(f"{which}: {error.message.rstrip('.')}", advice=error.advice) from None
        if tasks.setdefault(task.number, task) is not task:
            raise BadEntry(f"there are two tasks {task.number}: {tasks[task.number].title!r} and {task.title!r}")
    return tuple(tasks.values())


def _artifact_of(value: Any, _key: str) -> TaskArtifact:
    if isinstance(value, str):
        return TaskArtifact(type="research" if "/reports/" in value else "implementation", path=value)
    known, extra = _with_path(value, "an artifact", "type", "summary")
    return TaskArtifact(**{**known, "type": known["type"] or "data"}, extra=extra)


def _plan_version_of(value: Any, _key: str) -> PlanVersion:
    known, extra = _with_path(value, "a plan version", "created", "reason")
    return PlanVersion(version=_number(extra.pop("version", None), "version"), **known, extra=extra)


def _with_path(value: Any, what: str, *texts: str) -> tuple[dict[str, str], dict[str, Any]]:
    """The path and these texts, and the other keys."""
    if not isinstance(value, Mapping) or not isinstance(value.get("path"), str):
        raise BadEntry(f"{what} is an object with a path")
    known = {key: _text(value.get(key) or "", key) for key in ("path", *texts)}
    return known, {key: one for key, one in value.items() if key not in known}


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise BadEntry(f"{key} is {_kind(value)}, not a text")
    return value


def _list(value: Any, key: str) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise BadEntry(f"{key} is {_kind(value)}, not a list")
    return value or []


def _several(read: _Reader) -> _Reader:
    return lambda value, key: tuple(read(one, key) for one in _list(value, key))


def _number(value: Any, key: str) -> int:
    if type(value) is int and value >= 1:
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit() and int(value) >= 1:
        return int(value)
    raise BadEntry(f"{key} is {'missing' if value is None else repr(value)[:40]}, not a number from 1 on")


def _priority(value: Any, _key: str) -> Priority:
    found = Priority.parse(value) if isinstance(value, str) else None
    if found is None:
        raise BadEntry(f"priority is {value!r}", advice="Use high, medium or low.")
    return found


def _kind(value: Any) -> str:
    if value is None:
        return "missing"
    return {dict: "an object", list: "a list", str: "a text", bool: "true or false"}.get(type(value), "a number")


_FIELDS = [one.name for one in fields(Task) if one.name != "extra"]
_READERS: Mapping[str, tuple[str, _Reader]] = {
    **{_RENAMED.get(name, name): (name, _text) for name in _FIELDS},
    "project_number": ("number", _number),
    "status": ("status", lambda value, key: status_of(_text(value, key))),
    "priority": ("priority", _priority),
    "dependencies": ("dependencies", _several(_number)),
    "artifacts": ("artifacts", _several(_artifact_of)),
    "plan_versions": ("plan_versions", _several(_plan_version_of)),
    "accept": ("accept", _several(_text)),
    "parent": ("parent", _number),
    "todo_lines": ("lines", _several(_text)),
}
"""By key of an entry: the field of a task, and its parser."""


# ---- the file


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFile:
    state: State
    drawn: str
    """Hash of the TODO.md drawn from it."""


def read_state(data: bytes, name: str) -> StateFile:
    """`name`: the file relative to the root. Raises `Unavailable`."""
    try:
        value: Any = from_json(data.removeprefix(b"\xef\xbb\xbf"), allow_inf_nan=False)
        _check_version(value, name)
        state = data_to_state(value)
    except BadEntry as error:
        raise _damaged(name, error.message, error.advice) from None
    except ValueError as error:
        raise _damaged(name, f"it is not JSON ({error})") from None
    drawn = value.get(DRAWN)
    return StateFile(state=state, drawn=drawn if isinstance(drawn, str) else "")


def state_to_bytes(state: State, drawn: str = "") -> bytes:
    """Indented, so that git shows changes line by line."""
    data = state_to_data(state)
    if drawn:
        data[DRAWN] = drawn
    try:
        return to_json(data, indent=2, inf_nan_mode="null") + b"\n"
    except ValueError as error:
        raise _not_encodable(error) from None


def to_bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise _not_encodable(error) from None


def _not_encodable(error: ValueError) -> Misused:
    """From a terminal without UTF-8, or a program that cut a text within a character."""
    return Misused(f"The board cannot be written: {error}.", advice="Use text in UTF-8. Nothing was changed.")


def _check_version(value: Any, name: str) -> None:
    version = value.get("_schema_version") if isinstance(value, dict) else None
    major = str(version or SCHEMA_VERSION).partition(".")[0]
    if major.isdigit() and int(major) > int(SCHEMA_VERSION.partition(".")[0]):
        raise Unavailable(
            f"{name} has schema version {version}; this remit knows {SCHEMA_VERSION}.",
            code="STATUS_SYNC_FAILED",
            advice="Update remit. Nothing was changed.",
        )


def _damaged(name: str, what: str, advice: str = "") -> Unavailable:
    again = "" if "archive" in name else ", or create it again from TODO.md (`remit board import`)"
    return Unavailable(
        f"{name}: {what}.",
        code="STATUS_SYNC_FAILED",
        advice=f"{advice} Fix it in an editor, get it back from git (`git checkout -- {name}`){again}. Nothing was changed.".strip(),
    )
