"""Prose cut into passages: markdown, reStructuredText and plain text by one reader, since people mix them.

Line by line, linear, never fails whatever the text. Used by `passages.cut`, and by `code` for what stands in docstrings.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from remit.agents.builtin.researcher.passages import Kind, Passage
from remit.agents.builtin.researcher.quoting import squeezed
from remit.agents.builtin.researcher.sentences import Unit, units_of, whole

_FENCE = re.compile(r"^\s*(`{3,}|~{3,})")
_HASHES = re.compile(r"^ {0,3}(#{1,6})\s")
_UNDERLINE = re.compile(r"^([=\-~^\"'+#*:.])\1{2,}\s*$")
_ITEM = re.compile(r"^(\s*)(?:[-*+•–]|\(?(?:\d{1,3}|[a-z])[.)])\s+(?=\S)")
_FIELD = re.compile(r"^(\s*):[\w *.,-]+:(?=\s|$)")
_RULE = re.compile(r"^[\s|:+=-]+$")
_LINK = re.compile(r"!?\[(?:!\[[^\[\]]*+\]\([^()]*+\)|[^\[\]]*+)\](?:\([^()]*+\)|\[[^\[\]]*+\])?[\s|·•]*+")
_REFERENCE = re.compile(
    r"^\s{0,3}\[[^\]]+\]:\s|^\s*\.\.\s+(?:\[?[\w-]+\]?::|_[^:]+:)|^\s*<!--|^\s*</?\w+[^>]*>\s*$|^\s*<(?:img|a|p|div|br|picture|source)\b"
)
PAGE = ".page"
"""Text taken from a page, where each line is a paragraph of its own."""
DOCSTRING = ".docstring"
"""Text of a docstring, where a name with a colon begins what is said of a parameter."""
_PARAMETER = re.compile(r"^(\s+)\*{0,2}[a-z_]\w*(?: ?\([^()\n]{1,80}\))?\s?:(?=\s+\S)")
_LEVELS = "=-~^\"'+#*:."


@dataclass
class _Reader:
    suffix: str
    headings: list[tuple[int, str]] = field(default_factory=list)
    block: list[str] = field(default_factory=list)
    block_line: int = 0
    kind: Kind = Kind.PROSE
    was_literal: bool = False

    def heading(self, level: int, text: str) -> None:
        while self.headings and self.headings[-1][0] >= level:
            self.headings.pop()
        self.headings.append((level, squeezed(text).strip("*`_ ")[:120]))

    def passage(self, units: list[Unit], kind: Kind) -> Passage:
        return Passage(kind=kind, headings=tuple(text for _, text in self.headings), units=tuple(units))

    def add(self, line: str, number: int) -> None:
        if not self.block:
            self.block_line = number
        self.block.append(line)

    def flush(self) -> Iterator[Passage]:
        if self.block:
            text = "\n".join(self.block)
            self.was_literal = text.rstrip().endswith("::")
            kind = Kind.CODE if self.kind is Kind.CODE else self.kind
            units = _lines(self.block, self.block_line) if kind is Kind.CODE else units_of(text, self.block_line)
            if units:
                yield self.passage(units, kind)
        self.block, self.kind = [], Kind.PROSE


def prose_passages(text: str, suffix: str = ".md", first_line: int = 1, headings: tuple[str, ...] = ()) -> Iterator[Passage]:
    reader = _Reader(suffix)
    reader.headings = [(-len(headings) + i, heading) for i, heading in enumerate(headings)]
    lines = text.split("\n")
    at = _after_front_matter(lines) if suffix in (".md", ".mdx", ".markdown") and first_line == 1 else 0
    while at < len(lines):
        line, number = lines[at].rstrip("\r"), first_line + at
        if fence := _FENCE.match(line):
            yield from reader.flush()
            end = _end_of_fence(lines, at, fence[1])
            if units := _lines(lines[at + 1 : end], number + 1):
                yield reader.passage(units, Kind.CODE)
            at = end + 1
            continue
        if (level := _underlined(lines, at)) is not None and not reader.block:
            reader.heading(level, line)
            at += 2
            continue
        yield from _take(reader, line, number)
        at += 1
    yield from reader.flush()


def _take(reader: _Reader, line: str, number: int) -> Iterator[Passage]:
    """One line that is neither in a fence nor an underlined heading."""
    bare = line.strip()
    if not bare or _UNDERLINE.match(bare) or _REFERENCE.match(line) or _is_only_links(bare):
        yield from reader.flush()
    elif (hashes := _HASHES.match(line)) and bare.strip("# "):
        yield from reader.flush()
        reader.heading(len(hashes[1]), bare.strip("# "))
    elif len(bare) > 1 and bare[0] == bare[-1] == "|":
        yield from reader.flush()
        unit = None if _RULE.match(bare) else whole(bare.strip("|"), number)
        if unit is not None:
            yield reader.passage([unit], Kind.ROW)
    elif item := _ITEM.match(line) or _FIELD.match(line) or (_PARAMETER.match(line) if reader.suffix == DOCSTRING else None):
        yield from reader.flush()
        if _is_only_links(line[item.end() :].strip() or "-"):
            return
        reader.kind = Kind.ITEM
        reader.add(" " * item.end() + line[item.end() :] if item.re is _ITEM else line, number)
    else:
        if not reader.block and _is_indented_code(reader, line):
            reader.kind = Kind.CODE
        reader.add(line, number)
        if reader.suffix == PAGE:
            yield from reader.flush()


def _is_only_links(bare: str) -> bool:
    """A row of badges or a table of contents: nothing to quote."""
    return bare[0] in "[!" and not _LINK.sub("", bare).strip(" ()")


def _is_indented_code(reader: _Reader, line: str) -> bool:
    if line.lstrip().startswith(">>>"):
        return True
    deep = line.startswith(("    ", "\t"))
    return deep and (reader.was_literal or (reader.suffix in (".md", ".markdown", ".mdx") and reader.kind is Kind.PROSE))


def _lines(lines: list[str], first_line: int) -> list[Unit]:
    units = (whole(line, first_line + i) for i, line in enumerate(lines))
    return [unit for unit in units if unit is not None and any(c.isalnum() for c in unit.text)]


def _end_of_fence(lines: list[str], at: int, fence: str) -> int:
    for end in range(at + 1, len(lines)):
        if lines[end].strip().startswith(fence[:3]) and not lines[end].strip().strip(fence[0]):
            return end
    return len(lines)


def _underlined(lines: list[str], at: int) -> int | None:
    """The level of a heading that is underlined on the line below it."""
    if at + 1 >= len(lines):
        return None
    text, below = lines[at].rstrip(), lines[at + 1].rstrip()
    if not text.strip() or text.startswith((" ", "\t", "|", ">")) or not _UNDERLINE.match(below) or _UNDERLINE.match(text):
        return None
    enough = len(below) >= min(len(text), 4) and len(text) <= 120
    return 1 + _LEVELS.index(below[0]) if enough and not _ITEM.match(text) else None


def _after_front_matter(lines: list[str]) -> int:
    if lines and lines[0].strip() == "---":
        for i in range(1, min(len(lines), 60)):
            if lines[i].strip() in ("---", "..."):
                return i + 1
    return 0
