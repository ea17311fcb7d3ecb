"""Code cut into passages: docstrings and comments as prose, definitions and statements as they stand, each below what it belongs to.

By shape, for any language, without a parser (see `statements`): it serves quotations. The coder analyses code.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from remit.agents.builtin.researcher.passages import Kind, Passage
from remit.agents.builtin.researcher.prose import DOCSTRING, prose_passages
from remit.agents.builtin.researcher.sentences import units_of
from remit.agents.builtin.researcher.statements import (
    DEFINITION,
    FARTHEST,
    MOST_LINES,
    end_of_block,
    end_of_definition,
    end_of_statement,
    indent_of,
    is_taking,
    name_given,
    quoted_lines,
)

_NAMED = re.compile(r"^(?P<indent>\s*)(?P<name>[A-Za-z_]\w*)\s*(?::[^=\n]+)?(?:=(?!=)|$)")
_TABLE = re.compile(r"^\s*\[+(?P<name>[\w.\"' -]+)\]+\s*(?:#.*)?$")
_DOCSTRING = re.compile(r"^\s*(?:[rRuUbB]{0,2})(\"\"\"|''')")
_HASH = frozenset(
    [".py", ".pyi", ".sh", ".bash", ".rb", ".pl", ".r", ".jl", ".ex", ".exs", ".tf", ".nim", ".ps1", ".toml", ".yaml", ".yml", ".cfg",
     ".ini", ".conf", ".mk", ".cmake", ".nix", ".env"]
)  # fmt: skip
_DASH = frozenset({".sql", ".lua", ".hs", ".lean", ".el", ".clj"})
_COMMENT_LINES = 3
_TELLING = re.compile(
    r"^[\s}]*(?:async\s+)?(?:if|elif|else|for|while|except|catch|with|match|switch|case|return|raise|throw|yield|assert|@\w)"
)
_DRAWN = re.compile(r"^[\s=\-*#/~_+.]*$")


@dataclass
class _Reader:
    lines: list[str]
    suffix: str
    around: list[tuple[int, str]] = field(default_factory=list)
    """Indent and name of the definitions that are open."""
    named: tuple[int, str] = (-1, "")
    """Indent and name of the constant or field that was given last."""
    comment: tuple[int, int] = (-1, -1)
    """Lines of the comment that was read last."""
    unclosed: int = 0
    """Up to this line a bracket is open that is not closed near by."""

    @property
    def headings(self) -> tuple[str, ...]:
        return tuple(name for _, name in self.around)

    def enter(self, indent: int, name: str) -> None:
        while self.around and self.around[-1][0] >= indent:
            self.around.pop()
        self.around.append((indent, name))

    def leave(self, indent: int) -> None:
        while self.around and self.around[-1][0] >= indent:
            self.around.pop()


def code_passages(text: str, suffix: str) -> Iterator[Passage]:
    reader = _Reader([line.rstrip("\r") for line in text.split("\n")], suffix)
    mark = "#" if suffix in _HASH else "--" if suffix in _DASH else "//"
    at = 0
    while at < len(reader.lines):
        line = reader.lines[at]
        bare = line.strip()
        if suffix in (".py", ".pyi") and (opened := _DOCSTRING.match(line)):
            end, passages = _docstring(reader, at, opened[1])
            yield from passages
        elif suffix in (".py", ".pyi") and (quotes := _opens_string(line)):
            end = at + 1
            while end < len(reader.lines) and quotes not in reader.lines[end]:
                end += 1
            end += 1  # the text of a program, such as a template: neither prose nor code of its own
            yield from _statement(reader, at, at + 1)
        elif bare.startswith("/*") and mark == "//":
            end, passages = _block_comment(reader, at)
            yield from passages
        elif bare.startswith(mark) and not bare.startswith("#!"):
            end = at
            while end < len(reader.lines) and reader.lines[end].strip().startswith(mark):
                end += 1
            yield from _comment(reader, at, end)
            reader.comment = (at, end)
        else:
            end = end_of_statement(reader.lines, at) if at >= reader.unclosed else at + 1
            if end == at:  # not looked for again in each of the lines below
                reader.unclosed, end = at + FARTHEST, at + 1
            yield from _statement(reader, at, end)
        at = max(end, at + 1)


def _opens_string(line: str) -> str:
    """The quotes of a long string that begins on this line and does not end on it."""
    return next((quotes for quotes in ('"""', "'''") if line.count(quotes) % 2), "") if "#" not in line else ""


def _docstring(reader: _Reader, at: int, quotes: str) -> tuple[int, list[Passage]]:
    first = reader.lines[at]
    start = first.index(quotes) + 3
    body = [" " * start + first[start:]]
    end = at + 1
    if quotes not in first[start:]:
        while end < len(reader.lines) and quotes not in reader.lines[end]:
            body.append(reader.lines[end])
            end += 1
        if end < len(reader.lines):
            body.append(reader.lines[end].partition(quotes)[0])
            end += 1
    else:
        body = [" " * start + first[start:].partition(quotes)[0]]
    indent = len(first) - len(first.lstrip())
    headings = tuple(name for depth, name in reader.around if depth < indent)
    if reader.named[0] == indent:
        headings = (*headings, reader.named[1])  # a constant's or a field's own words
    passages = list(prose_passages("\n".join(body), DOCSTRING, at + 1, headings))
    return end, [replace(passage, kind=Kind.DOCSTRING) if passage.kind is Kind.PROSE else passage for passage in passages]


def _block_comment(reader: _Reader, at: int) -> tuple[int, list[Passage]]:
    end = at
    while end < len(reader.lines) and "*/" not in reader.lines[end][2 if end == at else 0 :]:
        end += 1
    body = reader.lines[at : end + 1]
    body[-1] = body[-1].partition("*/")[0] if len(body) > 1 else body[-1].strip().removeprefix("/*").partition("*/")[0]
    kind = Kind.DOCSTRING if body[0].lstrip().startswith("/**") else Kind.COMMENT
    below = next((m["name"] for line in reader.lines[end + 1 : end + 4] if (m := DEFINITION.match(line))), "")
    headings = (*reader.headings, below) if below else reader.headings
    return end + 1, _paragraphs(body, at + 1, headings, kind)


def _comment(reader: _Reader, at: int, end: int) -> list[Passage]:
    return _paragraphs(reader.lines[at:end], at + 1, reader.headings, Kind.COMMENT)


def _paragraphs(body: list[str], first_line: int, headings: tuple[str, ...], kind: Kind) -> list[Passage]:
    """A comment is split where one of its lines is empty or merely drawn."""
    passages, start = [], 0
    for i in range(len(body) + 1):
        if i == len(body) or _DRAWN.match(body[i]):
            if units := units_of("\n".join(body[start:i]), first_line + start):
                passages.append(Passage(kind=kind, headings=headings, units=tuple(units)))
            start = i + 1
    return passages


def _statement(reader: _Reader, at: int, end: int) -> Iterator[Passage]:
    """The lines from `at` to `end`: whole where they are few, else each for itself, below the name that the first one gives."""
    line = reader.lines[at]
    if not _says_something(line):
        return
    kind, outer = _placed(reader, line)
    if kind is None:
        return
    if end - at <= MOST_LINES:
        unit = quoted_lines(reader.lines, _from_comment(reader, at, kind), _till(reader, at, end, kind), name_given(line))
        if unit is not None:
            yield Passage(kind=kind, headings=outer, units=(unit,))
        return
    given = name_given(line)
    inner = (*outer, given) if given else outer
    for i in range(at, end):
        unit = quoted_lines(reader.lines, i, i + 1, name_given(reader.lines[i])) if _says_something(reader.lines[i]) else None
        if unit is not None:
            yield Passage(kind=kind if i == at or not unit.name else Kind.STATEMENT, headings=outer if i == at else inner, units=(unit,))


def _placed(reader: _Reader, line: str) -> tuple[Kind | None, tuple[str, ...]]:
    """What a line is, and the names around it; None where it is but a heading of what follows."""
    bare = line.strip()
    indent = indent_of(line)
    if (indent <= reader.named[0] and bare[0] not in ")]}") or (bare[0] in ")]}" and bare.endswith((":", "{"))):
        reader.named = (-1, "")
    if found := DEFINITION.match(line):
        reader.enter(indent, found["name"])
        reader.named = (-1, "")
        return Kind.DEFINITION, reader.headings[:-1]
    if table := _TABLE.match(line):
        reader.around = [(0, table["name"])]
        return None, ()
    if reader.suffix not in (".toml", ".ini", ".cfg", ".yaml", ".yml", ".json") and bare[0] not in ")]}":
        reader.leave(indent)
    if reader.named[0] < 0 and (named := _NAMED.match(line)):
        reader.named = (indent, named["name"])
    is_plain = is_taking(line) or not (name_given(line) or _TELLING.match(line))
    return (Kind.CODE if is_plain else Kind.STATEMENT), reader.headings


def _from_comment(reader: _Reader, at: int, kind: Kind) -> int:
    """A short comment directly above belongs to the statement."""
    start, end = reader.comment
    fits = end == at and end - start <= _COMMENT_LINES and indent_of(reader.lines[start]) == indent_of(reader.lines[at])
    return start if fits and kind is not Kind.CODE else at


def _till(reader: _Reader, at: int, end: int, kind: Kind) -> int:
    return end_of_definition(reader.lines, at, end) if kind is Kind.DEFINITION else end_of_block(reader.lines, at, end)


def _says_something(line: str) -> bool:
    return any(character.isalnum() for character in line)
