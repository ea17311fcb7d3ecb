"""One entry of a JSON document put in, changed or taken out as text: order, indentation and comments of all the rest stay.

The path of an entry is the keys of nested objects. Knows no file and no tool.
"""

import json
import re
from typing import Any

from remit.cli.installing.jsonparse import Member, Node, NotJson, parse

Path = tuple[str, ...]
_INDENT = re.compile(r"[ \t]*")


def value_at(text: str, path: Path) -> Any:
    """What stands there; None when nothing does."""
    member = _member(parse(text), path)
    return None if member is None else member.node.value


def with_entry(text: str, path: Path, value: Any) -> str:
    """The document with `value` at `path`; objects on the way are made. Raises `NotJson` when something else stands in the way."""
    document = parse(text)
    if not document.is_object:
        raise NotJson("the document must be an object { … }", text.count("\n", 0, document.start) + 1)
    held = document
    for depth, key in enumerate(path):
        member = held.member(key)
        if member is None:
            for missing in reversed(path[depth + 1 :]):
                value = {missing: value}
            return _inserted(text, held, key, value, document)
        if depth == len(path) - 1:
            shown = _rendered(value, text, _indent_at(text, member.start), document)
            return text[: member.node.start] + shown + text[member.node.end :]
        if not member.node.is_object:
            raise NotJson(f"{key} must be an object {{ … }}", text.count("\n", 0, member.start) + 1)
        held = member.node
    return text


def without_entry(text: str, path: Path) -> str:
    """The document without what stands at `path`; the same when nothing does. Whatever object is then empty stays."""
    held = _member(parse(text), path[:-1])
    node = parse(text) if len(path) == 1 else held.node if held is not None else None
    member = node.member(path[-1]) if node is not None else None
    if node is None or member is None:
        return text
    position = node.members.index(member)
    is_last = position == len(node.members) - 1
    start = member.start
    if not is_last:
        following = node.members[position + 1]
        assert following.comma_before is not None
        return _cut(text, start, following.comma_before + 1)
    if node.last_comma is not None:
        return _cut(text, start, node.last_comma + 1)
    text = _cut(text, start, member.node.end)
    return text if member.comma_before is None else text[: member.comma_before] + text[member.comma_before + 1 :]


def _cut(text: str, start: int, end: int) -> str:
    """Without that part, and without the line it stood on when nothing else stands there."""
    line = text.rfind("\n", 0, start) + 1
    rest = _INDENT.match(text, end)
    assert rest is not None
    is_alone = not text[line:start].strip()
    if is_alone and text.startswith(("\n", "\r\n"), rest.end()):
        return text[:line] + text[text.index("\n", rest.end()) + 1 :]
    return text[:start].rstrip(" \t") + text[end:] if is_alone else text[:start] + text[rest.end() :]


def _member(document: Node, path: Path) -> Member | None:
    member = None
    for key in path:
        member = document.member(key)
        if member is None:
            return None
        document = member.node
    return member


def _inserted(text: str, held: Node, key: str, value: Any, document: Node) -> str:
    close = held.end - 1
    last_end = held.members[-1].node.end if held.members else held.start + 1
    content_end = len(text[:close].rstrip())  # comments behind the last member stay where they are
    before = text[held.start : held.members[0].start] if held.members else text[document.start : document.end]
    if "\n" not in before and "\n" not in text[content_end:close] and "//" not in text[last_end:close]:
        name = f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"
        comma = "" if not held.members else " " if held.last_comma is not None else ", "
        return f"{text[:content_end]}{comma}{name}{text[content_end:]}"
    end_of_line = "\r\n" if "\r\n" in text else "\n"
    outer = _indent_at(text, held.start)
    indent = _indent_at(text, held.members[0].start) if held.members and "\n" in before else outer + _unit(text, document)
    member = f"{indent}{json.dumps(key, ensure_ascii=False)}: {_rendered(value, text, indent, document)}"
    if held.last_comma is not None:
        member += ","
    elif held.members:
        text = f"{text[:last_end]},{text[last_end:]}"
        content_end, close = content_end + 1, close + 1
    gap = text[content_end:close]
    tail = gap if "\n" in gap else end_of_line + outer
    return f"{text[:content_end]}{end_of_line}{member}{tail}{text[close:]}"


def _rendered(value: Any, text: str, indent: str, document: Node) -> str:
    if "\n" not in text[document.start : document.end]:
        return json.dumps(value, ensure_ascii=False)
    end_of_line = "\r\n" if "\r\n" in text else "\n"
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(text, document)).split("\n")
    return (end_of_line + indent).join(lines)


def _unit(text: str, document: Node) -> str:
    """By how much the document indents."""
    if document.members and "\n" in text[document.start : document.members[0].start]:
        inner, outer = _indent_at(text, document.members[0].start), _indent_at(text, document.start)
        if inner.startswith(outer) and inner != outer:
            return inner[len(outer) :]
    return "  "


def _indent_at(text: str, at: int) -> str:
    found = _INDENT.match(text, text.rfind("\n", 0, at) + 1)
    assert found is not None
    return found[0]
