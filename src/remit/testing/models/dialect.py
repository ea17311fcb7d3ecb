"""What the four APIs have in common: reading content made of parts, writing events, cutting text into pieces. Used by dialects."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from remit.testing.models.request import ModelRequest
from remit.testing.models.turns import Answer

_MOST_PIECES = 24
"""Of one text: enough to see that it streams, and few enough for a long one."""


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event."""

    data: Mapping[str, Any] | str
    name: str | None = None
    is_piece: bool = False
    """Whether it carries a piece of the answer: what a drip waits between, and a cut cuts after."""

    def encode(self) -> bytes:
        data = self.data if isinstance(self.data, str) else json.dumps(self.data, ensure_ascii=False, separators=(",", ":"))
        head = f"event: {self.name}\n" if self.name else ""
        return f"{head}data: {data}\n\n".encode()


class Dialect(Protocol):
    """One API: how its requests are read and its answers written."""

    def read(self, body: Mapping[str, Any]) -> ModelRequest: ...
    def events(self, request: ModelRequest, answer: Answer) -> Iterator[Event]: ...
    def document(self, request: ModelRequest, answer: Answer) -> dict[str, Any]: ...
    def error(self, status: int, message: str) -> dict[str, Any]: ...


def pieces(text: str) -> list[str]:
    """The text, cut as a model streams it."""
    size = max(8, -(-len(text) // _MOST_PIECES))
    return [text[start : start + size] for start in range(0, len(text), size)]


def text_of(content: Any) -> str:
    """The words in a content that is a text or a list of parts, whatever the parts are called."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return text_of(content.get("text") or content.get("content") or content.get("output") or "")
    if isinstance(content, Sequence):
        return "\n".join(filter(None, (text_of(part) for part in content)))
    return ""


def tables(value: Any) -> list[Mapping[str, Any]]:
    """Those entries of a list that are objects; a request may hold anything."""
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, Sequence) and not isinstance(value, str) else []


def table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def parsed(arguments: Any) -> Any:
    """Arguments that came as JSON text."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def dumped(arguments: Mapping[str, Any] | str) -> str:
    """As JSON text; what is to be none stays as it is."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(dict(arguments), ensure_ascii=False)
