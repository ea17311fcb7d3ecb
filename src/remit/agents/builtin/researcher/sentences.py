"""A stretch of text split into sentences, each with the lines it stands on.

Pure; knows neither markdown nor code: `prose` and `code` hand it one paragraph, list item or comment at a time.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

from remit.agents.builtin.researcher.quoting import masked, squeezed

LONGEST = 700
"""Characters; what is longer is split at semicolons, and what is longer even then is not quoted."""
_END = re.compile(r"[.!?…]++[\"'”’»)\]`*_]*+(?=\s+[\"'“‘«(\[`*_]*+[^\W_a-z]|\s*+$)|[。！？]++[」』）]?")
_ABBREVIATED = re.compile(
    r"(?:\b(?:e\.g|i\.e|cf|vs|etc|al|approx|ca|resp|Dr|Mr|Mrs|Ms|Prof|St|No|Nr|Fig|Sec|Eq|Vol|pp|p|Inc|Ltd|Co|Jr|Sr|z\.B|d\.h|bzw|usw)|\b[A-Z])\.$"
)
_SEMICOLON = re.compile(r"[;:](?=\s)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """The least that is quoted: a sentence, a list item, a row of a table, a statement of code."""

    text: str
    line: int
    end_line: int
    is_code: bool = False
    """Whole lines as they stand, line breaks and all; else white space is one blank."""
    name: str = ""
    """Of code: what it defines or gives a value to."""


def units_of(text: str, first_line: int) -> list[Unit]:
    """The sentences of `text`, whose first line has this number in its source."""
    text = masked(text)
    breaks = [i for i, character in enumerate(text) if character == "\n"]
    units = []
    for start, end in _spans(text):
        piece = text[start:end]
        lead = len(piece) - len(piece.lstrip())
        said = squeezed(piece)
        if said:
            line = first_line + bisect_right(breaks, start + lead - 1)
            units.append(Unit(text=said, line=line, end_line=line + piece.strip().count("\n")))
    return units


def whole(text: str, line: int) -> Unit | None:
    """`text` as one unit, however long."""
    said = squeezed(text)
    return Unit(text=said, line=line, end_line=line + text.rstrip().count("\n")) if said else None


def _spans(text: str) -> list[tuple[int, int]]:
    spans, start = [], 0
    for match in _END.finditer(text):
        if match.end() <= start or _ABBREVIATED.search(text[max(start, match.start() - 12) : match.start() + 1]):
            continue
        spans.append((start, match.end()))
        start = match.end()
    if text[start:].strip():
        spans.append((start, len(text)))
    return [part for span in spans for part in _shorter(text, span)]


def _shorter(text: str, span: tuple[int, int]) -> list[tuple[int, int]]:
    start, end = span
    if end - start <= LONGEST:
        return [span]
    cuts = [start, *(start + match.end() for match in _SEMICOLON.finditer(text[start:end])), end]
    return [(one, other) for one, other in pairwise(cuts) if other > one]
