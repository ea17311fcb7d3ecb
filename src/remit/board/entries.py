"""state.json as data and back: names as the file has them, unknown keys kept, damage told (S6.3). Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from remit.board.statuses import status_of
from remit.board.task import PlanVersion, Priority, State, Task, TaskArtifact, slug_of

_PLAIN = (
    ("type", "type"), ("effort", "effort"), ("created", "created"), ("started", "started"), ("completed", "completed"),
    ("last_updated", "last_updated"), ("blocking_reason", "blocking_reason"), ("plan_path", "plan_path"), ("session_id", "session_id"),
    ("completion_summary", "completion_summary"), ("complexity", "complexity"), ("source", "source"), ("description", "description"),
)  # fmt: skip
"""Texts, left out when empty: the key, and the name of the field."""
_KEYS = frozenset(
    {
        *(key for key, _ in _PLAIN), "project_number", "project_name", "title", "status", "priority", "language", "dependencies",
        "artifacts", "plan_versions", "accept", "parent", "todo_lines",
    }
)  # fmt: skip
_STATE_KEYS = frozenset(
    {
        "_schema_version", "_last_updated", "next_project_number", "active_projects", "completed_projects", "recent_activities",
        "_todo_texts",
    }
)  # fmt: skip


def task_to_entry(task: Task) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "project_number": task.number,
        "project_name": task.slug,
        "title": task.title,
        "type": task.type,
        "status": str(task.status),
        "priority": str(task.priority),
        "language": task.language,
        "description": task.description,
        "effort": task.effort,
        "dependencies": list(task.dependencies),
        "created": task.created,
        "artifacts": [_artifact_to_entry(artifact) for artifact in task.artifacts],
    }
    entry |= {key: value for key, name in _PLAIN if key not in entry and (value := getattr(task, name))}
    if task.plan_versions:
        entry["plan_versions"] = [_plan_version_to_entry(one) for one in task.plan_versions]
    if task.accept:
        entry["accept"] = list(task.accept)
    if task.parent is not None:
        entry["parent"] = task.parent
    if task.lines:
        entry["todo_lines"] = list(task.lines)
    return {**entry, **task.extra}


def entry_to_task(entry: Mapping[str, Any]) -> Task:
    """Raises `Misused`, `KeyError`, `TypeError` or `ValueError` for what is no task of ours; `board import` is more patient."""
    title = str(entry.get("title") or entry["project_name"])
    return Task(
        number=int(entry["project_number"]),
        title=title,
        slug=str(entry.get("project_name") or slug_of(title)),
        status=status_of(str(entry["status"])),
        priority=Priority(str(entry.get("priority") or "medium").lower()),
        language=str(entry["language"]) if entry.get("language") else None,
        dependencies=tuple(int(number) for number in entry.get("dependencies") or ()),
        artifacts=tuple(_artifact_of(one) for one in entry.get("artifacts") or ()),
        plan_versions=tuple(_plan_version_of(one) for one in entry.get("plan_versions") or ()),
        accept=tuple(map(str, entry.get("accept") or ())),
        parent=int(entry["parent"]) if entry.get("parent") is not None else None,
        lines=tuple(map(str, entry.get("todo_lines") or ())),
        extra={key: value for key, value in entry.items() if key not in _KEYS},
        **{name: str(entry[key]) for key, name in _PLAIN if entry.get(key)},
    )


def state_to_data(state: State) -> dict[str, Any]:
    return {
        "_schema_version": state.schema_version,
        "_last_updated": state.last_updated,
        "next_project_number": state.next_number,
        "active_projects": [task_to_entry(task) for task in state.tasks],
        "completed_projects": list(state.completed),
        "recent_activities": list(state.activities),
        **({"_todo_texts": dict(state.texts)} if state.texts else {}),
        **state.extra,
    }


def data_to_state(data: Mapping[str, Any]) -> State:
    tasks = tuple(map(entry_to_task, data.get("active_projects") or ()))
    state = State(
        tasks=tasks,
        next_number=int(data.get("next_project_number") or 1),
        completed=_mappings(data.get("completed_projects")),
        activities=_mappings(data.get("recent_activities")),
        texts=dict(data.get("_todo_texts") or {}),
        last_updated=str(data.get("_last_updated") or ""),
        extra={key: value for key, value in data.items() if key not in _STATE_KEYS},
    )
    return replace(state, next_number=max(state.next_number, 1 + max((task.number for task in tasks), default=0)))


def _artifact_to_entry(artifact: TaskArtifact) -> dict[str, Any]:
    summary = {"summary": artifact.summary} if artifact.summary else {}
    return {"type": artifact.type, "path": artifact.path, **summary, **artifact.extra}


def _artifact_of(value: Any) -> TaskArtifact:
    if isinstance(value, str):
        return TaskArtifact(type="research" if "/reports/" in value else "implementation", path=value)
    more = {key: one for key, one in value.items() if key not in ("type", "path", "summary")}
    return TaskArtifact(type=str(value.get("type") or "data"), path=str(value["path"]), summary=str(value.get("summary") or ""), extra=more)


def _plan_version_to_entry(one: PlanVersion) -> dict[str, Any]:
    return {"version": one.version, "path": one.path, "created": one.created, "reason": one.reason, **one.extra}


def _plan_version_of(value: Mapping[str, Any]) -> PlanVersion:
    more = {key: one for key, one in value.items() if key not in ("version", "path", "created", "reason")}
    return PlanVersion(
        version=int(value["version"]),
        path=str(value["path"]),
        created=str(value.get("created") or ""),
        reason=str(value.get("reason") or ""),
        extra=more,
    )


def _mappings(value: Sequence[Mapping[str, Any]] | None) -> tuple[Mapping[str, Any], ...]:
    return tuple(value or ())
