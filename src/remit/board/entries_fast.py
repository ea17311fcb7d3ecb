"""A state.json that is as we write it, read at once by pydantic's validator: a board of thousands is read by every command.

Whatever is written otherwise, or wrong, is not for here: `board.entries`, which uses this, reads it patiently or tells what is wrong.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from functools import cache
from typing import Any

from pydantic_core import SchemaValidator, ValidationError, to_json

from remit.board.statuses import Status
from remit.board.task import PlanVersion, Priority, Task, TaskArtifact

_TEXT = {"type": "str", "strict": True}
_WORD = _TEXT | {"min_length": 1}
NO_NAME = frozenset("/\\\0\n")
"""What a slug cannot have: a folder is named after it, and stands in specs/."""
_SLUG = _WORD | {"pattern": r"^[^/\\\x00\n]+$"}
_NUMBER = {"type": "int", "strict": True, "ge": 1}
_KEYS = {"number": "project_number", "slug": "project_name", "lines": "todo_lines"}
"""Of fields that are named otherwise than their keys."""
_NO_NUMBERS = (b"NaN", b"Infinity")
"""No JSON, which this validator lets pass; mostly it is just somebody's word."""
_NO_KEY = "\0"
_NEVER = _WORD | {"max_length": 0}
"""What nobody knows is kept by the patient reader: an entry that has such keys, even this one, is not for here."""


def task_of(entry: Mapping[str, Any]) -> Task | None:
    """None: it is not quite as we write it."""
    try:
        found: Task = _validator().validate_python(entry)
    except ValidationError:
        return None
    return found


def whole_of(data: bytes) -> dict[str, Any] | None:
    """A whole state.json, with tasks in `active_projects` and all else as it stands. None: there is something that is not quite so."""
    try:
        found: dict[str, Any] = _whole_validator().validate_json(data)
    except ValidationError:
        return None
    others = to_json({key: value for key, value in found.items() if key != "active_projects"}, inf_nan_mode="constants")
    return None if any(word in others for word in _NO_NUMBERS) else found


@cache
def _whole_validator() -> SchemaValidator:
    tasks = {"type": "typed-dict-field", "schema": {"type": "list", "items_schema": _task_schema(), "fail_fast": True}, "required": True}
    return SchemaValidator({"type": "typed-dict", "fields": {"active_projects": tasks}, "extra_behavior": "allow"})


@cache
def _validator() -> SchemaValidator:
    return SchemaValidator(_task_schema())  # written out: its own words for it take longer to import than a board to read


def _task_schema() -> dict[str, Any]:
    artifact = _value(TaskArtifact, {"type": _WORD, "path": _TEXT})
    version = _value(PlanVersion, {"version": _NUMBER, "path": _TEXT})
    return _value(
        Task,
        {
            "number": _NUMBER,
            "title": _WORD,
            "slug": _SLUG,
            "type": _WORD,
            "status": _one_of(Status),
            "priority": _one_of(Priority),
            "language": {"type": "nullable", "schema": _WORD},
            "dependencies": _several(_NUMBER),
            "artifacts": _several(artifact),
            "plan_versions": _several(version),
            "accept": _several(_TEXT),
            "parent": {"type": "nullable", "schema": _NUMBER},
            "lines": _several(_TEXT),
        },
    )


def _value(kind: type, schemas: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A dataclass of ours; fields that are not in `schemas` are texts."""
    members: list[dict[str, Any]] = []
    for one in fields(kind):
        schema: Mapping[str, Any] = schemas.get(one.name, _TEXT)
        if one.name == "extra":
            schema = {"type": "default", "schema": _NEVER, "default_factory": dict}
        elif one.default is not MISSING and one.name != "status":
            schema = {"type": "default", "schema": schema, "default": one.default}
        key = _NO_KEY if one.name == "extra" else _KEYS.get(one.name, one.name)
        members.append({"type": "dataclass-field", "name": one.name, "schema": schema, "kw_only": True, "validation_alias": key})
    inner = {"type": "dataclass-args", "dataclass_name": kind.__name__, "fields": members, "extra_behavior": "forbid"}
    return {"type": "dataclass", "cls": kind, "fields": [one.name for one in fields(kind)], "slots": True, "schema": inner}


def _one_of(kind: type[StrEnum]) -> dict[str, Any]:
    return {"type": "enum", "cls": kind, "members": list(kind), "sub_type": "str"}


def _several(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "tuple", "items_schema": [item], "variadic_item_index": 0}
