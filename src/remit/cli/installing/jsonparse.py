"""JSON read with the place of everything in it, so that it can be changed as text. Comments and commas at the end are borne.

Gives values and places, changes nothing (see `jsontext`). Strictness is the caller's: `json.loads` is asked first where it matters.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

DEEPEST = 200
_SPACE = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")


class NotJson(Exception):
    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"line {line}: {message}")


@dataclass(slots=True, kw_only=True)
class Node:
    start: int
    end: int
    value: Any
    members: "list[Member]" = field(default_factory=list)
    """Of an object, in order."""
    last_comma: int | None = None
    """Of an object: where a comma after its last member stands."""

    @property
    def is_object(self) -> bool:
        return isinstance(self.value, dict)

    def member(self, key: str) -> "Member | None":
        """The last of that name: that is the one that counts."""
        return next((one for one in reversed(self.members) if one.key == key), None)


@dataclass(slots=True, kw_only=True)
class Member:
    key: str
    start: int
    node: Node
    comma_before: int | None
    """Where the comma stands that parts it from the member before."""


def parse(text: str) -> Node:
    """The whole document. Raises `NotJson` with the line."""
    reader = _Reader(text)
    node = reader.value(reader.space(0), 0)
    end = reader.space(node.end)
    if end != len(text):
        raise reader.fault("something stands after the end of the document", end)
    return node


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text

    def fault(self, message: str, at: int) -> NotJson:
        return NotJson(message, self._text.count("\n", 0, at) + 1)

    def space(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        assert found is not None
        return found.end()

    def value(self, at: int, depth: int) -> Node:
        if depth > DEEPEST:
            raise self.fault("it is nested too deeply", at)
        match self._text[at : at + 1]:
            case "{":
                return self._object(at, depth)
            case "[":
                return self._array(at, depth)
            case '"':
                text, end = self._string(at)
                return Node(start=at, end=end, value=text)
        found = _SCALAR.match(self._text, at)
        if found is None:
            raise self.fault("a value is missing here" if at < len(self._text) else "the document ends too early", at)
        return Node(start=at, end=found.end(), value=json.loads(found[0]))

    def _string(self, at: int) -> tuple[str, int]:
        found = _STRING.match(self._text, at)
        if found is None:
            raise self.fault("a text in quotes is expected here, and ended on its line", at)
        try:
            return json.loads(found[0]), found.end()
        except ValueError:
            raise self.fault("a text holds a \\ that means nothing", at) from None

    def _object(self, start: int, depth: int) -> Node:
        node = Node(start=start, end=start, value={})
        at, comma = self.space(start + 1), None
        while self._text[at : at + 1] != "}":
            if node.members and comma is None:
                raise self.fault("a comma or } is missing", at)
            key, end = self._string(at)
            colon = self.space(end)
            if self._text[colon : colon + 1] != ":":
                raise self.fault(f"a colon is missing after {key!r:.40}", colon)
            inner = self.value(self.space(colon + 1), depth + 1)
            node.members.append(Member(key=key, start=at, node=inner, comma_before=comma))
            node.value[key] = inner.value
            at, comma = self._after(inner.end)
        node.end, node.last_comma = at + 1, comma
        return node

    def _array(self, start: int, depth: int) -> Node:
        node = Node(start=start, end=start, value=[])
        at, comma = self.space(start + 1), None
        while self._text[at : at + 1] != "]":
            if node.value and comma is None:
                raise self.fault("a comma or ] is missing", at)
            inner = self.value(at, depth + 1)
            node.value.append(inner.value)
            at, comma = self._after(inner.end)
        node.end = at + 1
        return node

    def _after(self, end: int) -> tuple[int, int | None]:
        at = self.space(end)
        if self._text[at : at + 1] == ",":
            return self.space(at + 1), at
        return at, None
