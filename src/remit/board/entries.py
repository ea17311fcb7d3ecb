"""state.json as data and back: names as the file has them, unknown keys kept, damage told (S6.3). Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from remit.board.entries_fast import NO_NAME, task_of
from remit.board.statuses import Status, status_of
from remit.board.task import PlanVersion, Priority, State, Task, TaskArtifact, slug_of
from remit.core.errors import Misused

_FIRST = ("type", "description", "effort", "created")
_LATER = (
    "started", "completed", "last_updated", "blocking_reason", "plan_path", "session_id", "completion_summary", "complexity", "source",
)  # fmt: skip
"""Texts that are left out when empty."""
_TEXTS = frozenset({*_FIRST, *_LATER})
"""Keys of texts: named like the fields they become."""
_OTHERS = frozenset(
    {
        "project_number", "project_name", "title", "status", "priority", "language", "dependencies", "artifacts", "plan_versions", "accept",
        "parent", "todo_lines",
    }
)  # fmt: skip
DRAWN = "_todo_sha256"
"""Hash of TODO.md as it was drawn last; `board.book` keeps it beside the state."""
_STATE_KEYS = frozenset(
    {
        "_schema_version", "_last_updated", "next_project_number", "active_projects", "completed_projects", "recent_activities",
        "_todo_texts", DRAWN,
    }
)  # fmt: skip
_ARTIFACT_KEYS = frozenset({"type", "path", "summary"})
_STATUSES = {str(status): status for status in Status}
_PRIORITIES = {str(priority): priority for priority in Priority}


class BadEntry(Misused):
    """An entry that is no task of ours. `index` counts in `active_projects`; `number` is its number where that much can be read."""

    index: int = -1
    number: int | None = None


def task_to_entry(task: Task) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "project_number": task.number,
        "project_name": task.slug,
        "title": task.title,
        "type": task.type,
        "status": task.status.value,
        "priority": task.priority.value,
        "language": task.language,
        "description": task.description,
        "effort": task.effort,
        "dependencies": list(task.dependencies),
        "created": task.created,
        "artifacts": [_artifact_to_entry(artifact) for artifact in task.artifacts],
    }
    for key in _LATER:
        if value := getattr(task, key):
            entry[key] = value
    if task.plan_versions:
        entry["plan_versions"] = [_plan_version_to_entry(one) for one in task.plan_versions]
    if task.accept:
        entry["accept"] = list(task.accept)
    if task.parent is not None:
        entry["parent"] = task.parent
    if task.lines:
        entry["todo_lines"] = list(task.lines)
    if task.extra:
        entry |= task.extra
    return entry


def entry_to_task(entry: Mapping[str, Any]) -> Task:
    """Raises `Misused` that says what is wrong with it; `board import` is more patient."""
    if type(entry) is not dict and not isinstance(entry, Mapping):
        raise BadEntry(f"a task is an object, not {_kind(entry)}")
    texts: dict[str, str] = {}
    extra: dict[str, Any] = {}
    for key, value in entry.items():
        if key in _TEXTS:
            if value:
                texts[key] = value if type(value) is str else _text(entry, key)
        elif key not in _OTHERS:
            extra[key] = value
    get = entry.get
    name, title = _text(entry, "project_name"), _text(entry, "title")
    if not (name or title):
        raise BadEntry("it has neither title nor project_name")
    if not NO_NAME.isdisjoint(name):
        raise BadEntry(f"project_name is {name[:40]!r}, which is no name of a folder")
    parent = get("parent")
    return Task(
        number=_number(get("project_number"), "project_number"),
        title=title or name,
        slug=name or slug_of(title),
        status=_status(get("status")),
        priority=_priority(get("priority") or "medium"),
        language=_text(entry, "language") or None,
        dependencies=tuple([_number(one, "dependencies") for one in _list(entry, "dependencies")]) if get("dependencies") else (),
        artifacts=tuple([_artifact_of(one) for one in _list(entry, "artifacts")]) if get("artifacts") else (),
        plan_versions=tuple([_plan_version_of(one) for one in _list(entry, "plan_versions")]) if get("plan_versions") else (),
        accept=tuple([_line(one, "accept") for one in _list(entry, "accept")]) if get("accept") else (),
        parent=None if parent is None else _number(parent, "parent"),
        lines=tuple([_line(one, "todo_lines") for one in _list(entry, "todo_lines")]) if get("todo_lines") else (),
        extra=extra,
        **texts,
    )


def state_to_data(state: State, known: Mapping[int, tuple[Task, Mapping[str, Any]]] | None = None) -> dict[str, Any]:
    """`known`: tasks by number with the entries they were read from; of those that are still the same, the entry is the same."""
    known = known or {}
    return {
        "_schema_version": state.schema_version,
        "_last_updated": state.last_updated,
        "next_project_number": state.next_number,
        "active_projects": [
            found[1] if (found := known.get(task.number)) is not None and found[0] is task else task_to_entry(task) for task in state.tasks
        ],
        "completed_projects": list(state.completed),
        "recent_activities": list(state.activities),
        **({"_todo_texts": dict(state.texts)} if state.texts else {}),
        **state.extra,
    }


def data_to_state(data: Any, tasks: tuple[Task, ...] | None = None) -> State:
    """`tasks`: its own, where they are read already. Raises `BadEntry` (a `Misused`) for what is no board of ours."""
    if not isinstance(data, Mapping):
        raise BadEntry(f"the whole is {_kind(data)}, not an object")
    texts = data.get("_todo_texts") or {}
    if not isinstance(texts, Mapping):
        raise BadEntry(f"_todo_texts is {_kind(texts)}, not an object")
    for key, text in texts.items():
        if not isinstance(text, str):
            raise BadEntry(f"_todo_texts has {_kind(text)} under {key!r}, where a text belongs")
    tasks = _tasks_of(_list(data, "active_projects")) if tasks is None else tasks
    state = State(
        tasks=tasks,
        next_number=_number(data.get("next_project_number") or 1, "next_project_number"),
        completed=tuple(_list(data, "completed_projects")),
        activities=tuple(_list(data, "recent_activities")),
        texts=dict(texts),
        last_updated=_text(data, "_last_updated"),
        extra={key: value for key, value in data.items() if key not in _STATE_KEYS},
    )
    return replace(state, next_number=max(state.next_number, 1 + max((task.number for task in tasks), default=0)))


def sole(tasks: list[Task]) -> tuple[Task, ...] | None:
    """None: two of them have one number, and it is to be told which."""
    return tuple(tasks) if len({task.number for task in tasks}) == len(tasks) else None


def _tasks_of(entries: list[Any]) -> tuple[Task, ...]:
    tasks: list[Task] = []
    seen: dict[int, int] = {}
    for index, entry in enumerate(entries):
        try:
            task = task_of(entry) or entry_to_task(entry)
            if seen.setdefault(task.number, index) != index:
                raise BadEntry(f"there are two tasks {task.number}: {tasks[seen[task.number]].title!r} and {task.title!r}")
        except Misused as error:
            bad = error if isinstance(error, BadEntry) else BadEntry(error.message.rstrip("."), advice=error.advice)
            number = entry.get("project_number") if isinstance(entry, Mapping) else None
            bad.index, bad.number = index, number if isinstance(number, int) else None
            raise bad from None
        tasks.append(task)
    return tuple(tasks)


def _artifact_to_entry(artifact: TaskArtifact) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": artifact.type, "path": artifact.path}
    if artifact.summary:
        entry["summary"] = artifact.summary
    return {**entry, **artifact.extra} if artifact.extra else entry


def _artifact_of(value: Any) -> TaskArtifact:
    if isinstance(value, str):
        return TaskArtifact(type="research" if "/reports/" in value else "implementation", path=value)
    if (type(value) is not dict and not isinstance(value, Mapping)) or not isinstance(value.get("path"), str):
        raise BadEntry("an artifact is an object with a path, or a path alone")
    more = {} if value.keys() <= _ARTIFACT_KEYS else {key: one for key, one in value.items() if key not in _ARTIFACT_KEYS}
    return TaskArtifact(type=_text(value, "type") or "data", path=value["path"], summary=_text(value, "summary"), extra=more)


def _plan_version_to_entry(one: PlanVersion) -> dict[str, Any]:
    return {"version": one.version, "path": one.path, "created": one.created, "reason": one.reason, **one.extra}


def _plan_version_of(value: Any) -> PlanVersion:
    if not isinstance(value, Mapping) or not isinstance(value.get("path"), str):
        raise BadEntry("a plan version is an object with a version and a path")
    more = {key: one for key, one in value.items() if key not in ("version", "path", "created", "reason")}
    return PlanVersion(
        version=_number(value.get("version"), "version"),
        path=value["path"],
        created=_text(value, "created"),
        reason=_text(value, "reason"),
        extra=more,
    )


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    if type(value) is str:
        return value
    if value is None:
        return ""
    raise BadEntry(f"{key} is {_kind(value)}, not a text")


def _line(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise BadEntry(f"{key} holds {_kind(value)}, where texts belong")
    return value


def _list(entry: Mapping[str, Any], key: str) -> list[Any]:
    value = entry.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadEntry(f"{key} is {_kind(value)}, not a list")
    return value


def _number(value: Any, key: str) -> int:
    if type(value) is int and value >= 1:
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit() and int(value) >= 1:
        return int(value)
    raise BadEntry(f"{key} is {'missing' if value is None else repr(value)[:40]}, not a number from 1 on")


def _status(value: Any) -> Status:
    if type(value) is str and value in _STATUSES:
        return _STATUSES[value]
    if not isinstance(value, str):
        raise BadEntry("it has no status" if value is None else f"status is {_kind(value)}, not a text")
    return status_of(value)


def _priority(value: Any) -> Priority:
    if type(value) is str and value in _PRIORITIES:
        return _PRIORITIES[value]
    found = _PRIORITIES.get(value.strip().lower()) if isinstance(value, str) else None
    if found is None:
        raise BadEntry(f"priority is {value!r}", advice="Use high, medium or low.")
    return found


def _kind(value: Any) -> str:
    if value is None:
        return "missing"
    return {dict: "an object", list: "a list", str: "a text", bool: "true or false"}.get(type(value), "a number")
