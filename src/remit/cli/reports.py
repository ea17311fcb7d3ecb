"""The beginning of a report that an agent wrote in markdown, as plain lines: what a person wants to read first.

It ends where the report says `<!-- more -->`, else with the last part that fits. Reads only files of the project, and little of them;
whatever cannot be read is no reason to fail. Used by `answer`.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from remit.core.result import Artifact

MOST_LINES = 30
MORE = "<!-- more -->"
_MOST_BYTES = 256 * 1024
_MOST_CHARACTERS = 1_000
_FENCE = re.compile(r"^\s*(`{3,}|~{3,})")
_KEPT = re.compile(r"\\(?P<sign>[\\`*_<>\[\](){}!|#+.~&$-])|(?<!`)(?P<fence>`++)(?P<code>.+?)(?<!`)(?P=fence)(?!`)")
_ASIDE = re.compile(r"\0(\d+)\0")
_EMPHASIS = re.compile(r"(?<![\w*])(\*\*|\*)(?=\S)(.+?)(?<=\S)\1(?![\w*])")
_LINK = re.compile(r"(?<!!)\[([^\[\]]*+)\]\([^()]*+\)")
_ADDRESS = re.compile(r"<(https?://[^<>\s]+)>")
_RULE = re.compile(r"^[\s|:+=-]+$")
_NUMBERED = re.compile(r"^(\s*)1[.)]\s")


@dataclass(frozen=True, slots=True)
class Beginning:
    lines: tuple[str, ...]
    left: int
    """Lines of the report that are not shown."""


def beginning_of(artifacts: Sequence[Artifact], root: Path) -> Beginning | None:
    """Of the first report among these; None where there is none that can be read."""
    for artifact in artifacts:
        if artifact.type == "report" and artifact.path.lower().endswith((".md", ".markdown")) and (text := _text(root, artifact.path)):
            return beginning(text)
    return None


def _text(root: Path, path: str) -> str:
    try:
        file = (root / path).resolve()
        if not file.is_relative_to(root.resolve()) or not file.is_file():
            return ""
        with open(file, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_NOFOLLOW)) as opened:
            return opened.read(_MOST_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return ""


def beginning(text: str, most: int = MOST_LINES) -> Beginning:
    before, mark, _ = text.partition(MORE)
    shown = list(_spaced(_plain(before.splitlines())))
    while shown and not shown[-1]:
        shown.pop()
    cut = shown if len(shown) <= most else shown[: _last_break(shown, most)]
    whole = len(list(_spaced(_plain(text.splitlines())))) if mark else len(shown)
    return Beginning(tuple(cut), max(0, whole - len(cut)))


def _last_break(lines: Sequence[str], most: int) -> int:
    """Where a part ends that still fits; in the middle only where the first part is too long itself."""
    breaks = [place for place in range(most // 2, most + 1) if not lines[place]]
    return breaks[-1] if breaks else most


def _spaced(lines: Iterator[str]) -> Iterator[str]:
    """Never two empty lines in a row, which what was left out may leave."""
    was_empty = False
    for line in lines:
        if line or not was_empty:
            yield line
        was_empty = not line


def _plain(lines: Sequence[str]) -> Iterator[str]:
    """Markdown without its marks; the title is left out, for the summary stands above it."""
    at, numbers = 0, 0
    while at < len(lines):
        line = lines[at].rstrip()
        if fence := _FENCE.match(line):
            end = next((i for i in range(at + 1, len(lines)) if lines[i].strip() == fence[1]), len(lines))
            yield from (f"    {inner}".rstrip() for inner in lines[at + 1 : end])
            at = end + 1
            continue
        if line.startswith("|"):
            end = next((i for i in range(at, len(lines)) if not lines[i].startswith("|")), len(lines))
            yield from _table(lines[at:end])
            at = end
            continue
        numbers = numbers + 1 if _NUMBERED.match(line) else 0
        at += 1
        if not _is_left_out(line, at):
            yield _words(_NUMBERED.sub(rf"\g<1>{numbers}. ", line) if numbers else line)


def _is_left_out(line: str, number: int) -> bool:
    return (number <= 2 and (line.startswith("# ") or not line)) or line.startswith(("<!--", "!["))


def _table(rows: Sequence[str]) -> Iterator[str]:
    cells = [
        [_words(cell.strip().replace("\\|", "|")) for cell in re.split(r"(?<!\\)\|", row.strip().strip("|"))]
        for row in rows
        if not _RULE.match(row)
    ]
    columns = max((len(row) for row in cells), default=0)
    widths = [min(60, max(len(row[place]) if place < len(row) else 0 for row in cells)) for place in range(columns)]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()


def _shortened(line: str) -> str:
    """To find pairs of marks takes long where there are very many, and nobody reads so long a line at a prompt."""
    return line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}…"


def _words(line: str) -> str:
    """What must stay as it is (code, escaped signs) is put aside first: marks around it are still a pair."""
    aside: list[str] = []

    def put_aside(found: re.Match[str]) -> str:
        inner = found["code"]
        if inner is None:
            aside.append(found["sign"])
        else:
            aside.append(inner[1:-1] if inner.startswith(" `") or inner.endswith("` ") else inner)
        return f"\0{len(aside) - 1}\0"

    text = _KEPT.sub(put_aside, re.sub(r"^#{1,6} ", "", _shortened(line).replace("\0", "\ufffd")))
    text = _ADDRESS.sub(r"\1", _LINK.sub(r"\1", text))
    text = _EMPHASIS.sub(r"\2", _EMPHASIS.sub(r"\2", text)).replace("**", "")  # one may stand within another
    text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return _ASIDE.sub(lambda found: aside[int(found[1])], text)
