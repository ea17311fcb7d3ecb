"""The table of context operations: what a contributor declares there works in every process, or is refused when remit is imported."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from remit import Limits, Misused, Priority, State
from remit.agents.remote_context import Operation


class Place(NamedTuple):
    path: Path
    line: int


@dataclass(frozen=True)
class Note:
    state: State
    places: list[Place]
    about: str | None = None


async def notes(newest: Note, limit: int | None, priority: Priority) -> list[Note]: ...
async def plain(names: list[str], options: dict[str, Any]) -> dict[str, str]: ...
def left() -> Limits: ...
def find(name: str) -> str: ...


NOTE = Note(State.RUNNING, [Place(Path("a.py"), 3)], "here")


def sent(value: Any) -> Any:
    return json.loads(json.dumps(value))


def test_values_of_any_declared_type_arrive_as_they_were_sent() -> None:
    operation = Operation.of("notes", notes)
    arguments = [NOTE, None, Priority.HIGH]
    assert operation.decode(sent(operation.encode(arguments))) == arguments
    assert operation.reply.decode(sent(operation.reply.encode([NOTE]))) == [NOTE]
    simple = Operation.of("plain", plain)
    assert simple.decode(sent(simple.encode([["a"], {"b": [1]}]))) == [["a"], {"b": [1]}]


def test_invalid_value_from_the_other_process_is_refused() -> None:
    with pytest.raises(Misused, match="is invalid"):
        Operation.of("notes", notes).decode({"newest": {"state": "asleep", "places": []}, "limit": 1, "priority": 2})
    with pytest.raises(Misused, match="takes newest, limit, priority, not limit"):
        Operation.of("notes", notes).decode({"limit": 1})


def test_blocking_operation_takes_no_arguments() -> None:
    assert Operation.of("left", left).is_blocking
    with pytest.raises(TypeError, match=r"find has arguments and a result: declare it `async`"):
        Operation.of("find", find)
