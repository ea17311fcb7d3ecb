"""The bytes of a state.json read as a board, or told what is wrong with them, where, and what to do: never guessed at, never overwritten.

Knows the file's text and its lines; `board.entries` knows what is in it. Used by `board.book` and `board.archive`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic_core import from_json, to_json

from remit.board.entries import DRAWN, BadEntry, data_to_state, sole, state_to_data
from remit.board.entries_fast import whole_of
from remit.board.task import SCHEMA_VERSION, State, Task
from remit.core.errors import Misused, Unavailable

_CONFLICT = re.compile(rb"^(?:<{7}|>{7}|={7}|\|{7})(?: |\r?$)", re.MULTILINE)
_BLANK = b"\0 \t\r\n"
_PLACE = re.compile(r" at line (\d+) column \d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    state: State
    drawn: str
    """Hash of TODO.md as it was drawn from it."""
    entries: "Entries" = field(default_factory=lambda: Entries())


class Entries:
    """Each task with the entry it was read from, by number: taken from the file when it is asked for, which most commands do not."""

    def __init__(self, data: bytes = b"", tasks: Sequence[Task] = ()) -> None:
        self._data = data
        self._tasks = tasks

    @cached_property
    def known(self) -> Mapping[int, tuple[Task, Mapping[str, Any]]]:
        found = from_json(self._data)["active_projects"] if self._tasks else ()
        return {task.number: (task, entry) for task, entry in zip(self._tasks, found, strict=True)}


def read_state(data: bytes, name: str) -> Read:
    """`name` is the file's, relative to the root. Raises `Unavailable`."""
    if not data[:1].strip(_BLANK) and not data.strip(_BLANK):
        raise _damaged(name, None, "it is empty")
    text = data.removeprefix(b"\xef\xbb\xbf")
    value: Any = whole_of(text)
    tasks = None if value is None else sole(value["active_projects"])
    try:
        value = from_json(text, allow_inf_nan=False) if tasks is None else value
    except ValueError as error:
        raise _not_json(data, name, str(error)) from None
    try:
        _check_version(value, name)
        state = data_to_state(value, tasks)
    except BadEntry as error:
        raise _bad(data, name, error) from None
    drawn = value.get(DRAWN)
    return Read(state=state, drawn=drawn if isinstance(drawn, str) else "", entries=Entries(text, state.tasks))


def state_to_bytes(state: State, drawn: str = "", known: Mapping[int, tuple[Task, Mapping[str, Any]]] | None = None) -> bytes:
    """As the file has it: indented, so that git shows what changed line by line. `known`: see `entries.state_to_data`."""
    data = state_to_data(state, known)
    if drawn:
        data[DRAWN] = drawn
    return json_bytes(data)


def json_bytes(data: Mapping[str, Any]) -> bytes:
    try:
        return to_json(data, indent=2, inf_nan_mode="null") + b"\n"
    except ValueError as error:
        raise _half_a_character(error) from None


def to_bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise _half_a_character(error) from None


def _half_a_character(error: ValueError) -> Misused:
    """From a terminal that does not speak UTF-8, or a program that cut a text in the middle."""
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


def _not_json(data: bytes, name: str, error: str) -> Unavailable:
    if conflict := _CONFLICT.search(data):
        return Unavailable(
            f"{name}, line {_line_at(data, conflict.start())}: git left a conflict there.",
            code="STATUS_SYNC_FAILED",
            advice=f"Settle it in an editor, or take one side: `git checkout --ours {name}` (or --theirs). Nothing was changed.",
        )
    found = _PLACE.search(error)
    return _damaged(name, int(found[1]) if found else None, f"it is not JSON ({_PLACE.sub('', error)})")


def _bad(data: bytes, name: str, error: BadEntry) -> Unavailable:
    line = None
    which = ""
    if error.index >= 0:
        which = f"task {error.number}" if error.number is not None else f"entry {error.index + 1} of active_projects"
        line = _line_of_entry(data, error)
    return _damaged(name, line, f"{which}: {error.message}" if which else error.message, error.advice)


def _line_of_entry(data: bytes, error: BadEntry) -> int | None:
    """Of its number; of two tasks with one number, of the second."""
    start = max(data.find(b'"active_projects"'), 0)
    if error.number is None:
        return None
    found = [one.start() for one in re.finditer(rb'"project_number"\s*:\s*%d\b' % error.number, data[start:])]
    if not found:
        return None
    is_double = error.message.startswith("there are two") and len(found) > 1
    return _line_at(data, start + found[1 if is_double else 0])


def _line_at(data: bytes, place: int) -> int:
    return data.count(b"\n", 0, place) + 1


def _damaged(name: str, line: int | None, what: str, advice: str = "") -> Unavailable:
    where = f"{name}, line {line}" if line else name
    git = f"get it back from git (`git checkout -- {name}`)"
    ways = f"Mend it in an editor, or {git}."
    if "archive" not in name:
        ways = f"Mend it in an editor, {git}, or make it anew from TODO.md (`remit board import`)."
    return Unavailable(
        f"{where}: {what}.",
        code="STATUS_SYNC_FAILED",
        advice=f"{advice} {ways} Nothing was changed.".strip(),
    )
