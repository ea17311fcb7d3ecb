"""Sources and their passages. A passage is a range of lines quoted as a whole: a paragraph, or a piece of code.

Code is split at definitions. Comments, decorators and docstrings stay with their definition, and every passage knows the enclosing classes
and functions. Prose is split at blank lines, below its headings."""

import re
import textwrap
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePosixPath

MAX_CODE_LINES = 24
MAX_PROSE_LINES = 12
MAX_QUOTE_CHARACTERS = 2_000
_MAX_LINE = 20_000
"""Longer lines are generated and count as blank."""
_MODIFIERS = r"(?:(?:export|default|public|private|protected|internal|static|abstract|final|async|pub(?:\([^)]*\))?|unsafe|override)\s+)*"
_DEFINITION = re.compile(
    rf"^(?P<indent>\s*){_MODIFIERS}(?:def|class|func|fn|function|struct|interface|enum|trait|impl|type|module|message|service)\s*\*?\s+"
    r"(?:\([^)]*\)\s*)?(?P<name>[A-Za-z_$]\w*)"
)
_ASSIGNMENT = re.compile(rf"^(?P<indent>\s*){_MODIFIERS}(?:(?:const|let|var|val)\s+)?(?P<name>[A-Za-z_$][\w.-]*)\s*(?::[^=]*)?=(?!=)")
_ATTACHED = re.compile(r"\s*(?:@\w|#(?!!)|//|/\*|\*|--\s|;;)")
"""Comments and decorators, which belong to the following definition."""
_HEADING = re.compile(r"(?P<marks>#{1,6})\s+(?P<title>.*?)\s*#*$")
_UNDERLINE = re.compile(r"(?:=|-|~|\^){3,}\s*$")
PROSE_SUFFIXES = frozenset({".md", ".markdown", ".mdx", ".rst", ".txt", ".adoc", ".org", ".text", ".tex", ".html", ".htm", ""})
_DATA_SUFFIXES = frozenset({".toml", ".yaml", ".yml", ".ini", ".cfg", ".conf", ".json", ".env", ".xml", ".css"})
_HARMLESS = frozenset("\t\u200b\u200c\u200d\ufeff\u00ad")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs", "Cn"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One source: a file, a page, or a text of the caller, without control characters."""

    kind: str
    """`file`, `page` or `text`."""
    name: str
    """Path, address or title."""
    text: str
    title: str = ""
    date: str = ""
    """When a page was published or a file last changed."""
    fetched: str = ""
    weight: float = 1.0
    links: tuple[tuple[str, str], ...] = ()
    """Of a page: address and text."""
    passages: "tuple[Passage, ...]" = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", printable(self.text))
        object.__setattr__(self, "passages", tuple(_cut(self)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Passage:
    document: Document = field(repr=False)
    line: int
    end_line: int
    text: str
    """Code: the lines without their common indent. Prose: the words, line breaks as spaces."""
    is_code: bool
    headings: tuple[str, ...] = ()
    """Headings of a document, or names of the enclosing classes and functions; the outermost first."""
    names: tuple[str, ...] = ()
    """Names that the passage defines."""

    @property
    def place(self) -> str:
        if self.document.kind == "page":
            return self.document.name
        return f"{self.document.name}:{self.line}" + (f"-{self.end_line}" if self.end_line > self.line else "")


def printable(text: str) -> str:
    """Replaces characters that are invisible or that a terminal obeys. Line numbers stay."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line if line.isprintable() else "".join(map(_printable, line)) for line in lines)


def _printable(character: str) -> str:
    hides = unicodedata.category(character) in _HIDDEN_CATEGORIES and character not in _HARMLESS
    return "\ufffd" if hides else character


def _cut(document: Document) -> Iterator[Passage]:
    lines = [line if len(line) <= _MAX_LINE else "" for line in document.text.split("\n")]
    suffix = PurePosixPath(document.name).suffix.lower() if document.kind == "file" else ".md"
    if suffix in PROSE_SUFFIXES:
        return _cut_prose(document, lines)
    return _cut_code(document, lines, has_definitions=suffix not in _DATA_SUFFIXES)


def _passage(document: Document, lines: list[str], start: int, end: int, **facts: object) -> Passage | None:
    """Lines `start` (from 0) to `end` (exclusive), without blank ones at either side."""
    while start < end and not lines[start].strip():
        start += 1
    while end > start and not lines[end - 1].strip():
        end -= 1
    joined = "\n".join(line.rstrip() for line in lines[start:end])
    text = textwrap.dedent(joined) if facts["is_code"] else " ".join(joined.split())
    text = text[:MAX_QUOTE_CHARACTERS].rstrip()
    if not any(character.isalnum() for character in text):
        return None
    return Passage(document=document, line=start + 1, end_line=end, text=text, **facts)  # type: ignore[arg-type]


def _cut_prose(document: Document, lines: list[str]) -> Iterator[Passage]:
    headings: list[tuple[int, str]] = []
    start, in_block = 0, False
    for at, line in enumerate([*lines, ""]):
        if line.lstrip().startswith(("```", "~~~")):
            in_block = not in_block
        heading = None if in_block else _heading(lines, at)
        is_full = at - start >= MAX_PROSE_LINES and (not in_block or at - start >= MAX_CODE_LINES)
        is_break = not line.strip() and not in_block
        if heading is None and not is_break and not is_full and at < len(lines):
            continue
        if found := _passage(document, lines, start, at, is_code=False, headings=tuple(title for _, title in headings)):
            yield found
        start = at
        if heading is not None:
            headings = [*(one for one in headings if one[0] < heading[0]), heading]
            start = at + 1


def _heading(lines: list[str], at: int) -> tuple[int, str] | None:
    if at >= len(lines) or not lines[at].strip():
        return None
    if found := _HEADING.match(lines[at]):
        return len(found["marks"]), found["title"]
    is_underlined = (
        at + 1 < len(lines) and _UNDERLINE.match(lines[at + 1]) and len(lines[at]) < 100 and (at == 0 or not lines[at - 1].strip())
    )
    return ("=-~^".index(lines[at + 1][0]) + 1, lines[at].strip()) if is_underlined else None


def _cut_code(document: Document, lines: list[str], *, has_definitions: bool) -> Iterator[Passage]:
    for (first, headings, defined), (last, *_) in pairwise([*_pieces(lines, has_definitions=has_definitions), (len(lines), (), [])]):
        for start in range(first, last, MAX_CODE_LINES):
            end = min(last, start + MAX_CODE_LINES)
            names = defined if start == first else [found["name"] for found in map(_ASSIGNMENT.match, lines[start:end]) if found]
            facts = {"is_code": True, "headings": headings, "names": tuple(name.removeprefix("self.") for name in names)}
            if passage := _passage(document, lines, start, end, **facts):
                yield passage


def _pieces(lines: list[str], *, has_definitions: bool) -> list[tuple[int, tuple[str, ...], list[str]]]:
    """Where each definition begins with its comments, the names around it, and the names in it."""
    around: list[tuple[int, str]] = []
    pieces: list[tuple[int, tuple[str, ...], list[str]]] = [(0, (), [])]
    attached: int | None = None
    for at, line in enumerate(lines):
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        found = _DEFINITION.match(line) if has_definitions else None
        given = _ASSIGNMENT.match(line)
        if _ATTACHED.match(line) and found is None:
            attached = at if attached is None else attached
            continue
        start, attached = at if attached is None else attached, None
        if found:
            around = [*(one for one in around if one[0] < indent), (indent, found["name"])]
            pieces.append((start, tuple(name for _, name in around), [found["name"]]))
        elif given and indent == 0 and around:
            around = []
            pieces.append((start, (), []))
        if given and not found:
            pieces[-1][2].append(given["name"])
    return pieces
