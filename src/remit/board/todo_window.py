"""The part of a TODO.md that a person touched, cut out between tasks: a board of thousands is read there alone. Pure.

Only ever a saving of time: what is merged from the window is what would be merged from the whole. Where that is not certain (sections are
touched, a task from outside the window stands in it) there is no window. Used by `todo_merging`.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from remit.board.task import Priority
from remit.board.todo_drawing import Drawn

_CHUNK = 1 << 16
_SECTION = re.compile(r"^##[ \t]", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    base: str
    """Of the drawing."""
    mine: str
    """Of what the person left."""
    section: Priority
    before: Sequence[int]
    """The tasks above it, in the order in which they are drawn."""
    after: Sequence[int]


def window(drawn: Drawn, text: str) -> Window | None:
    """None: read the whole."""
    starts = [one.start for one in drawn.blocks]
    same = _common_start(drawn.text, text)
    # The whole of the first block is untouched: no fence that is open above reaches across its heading.
    first = bisect_right(starts, same) - 2
    tail = _common_end(drawn.text, text, limit=min(len(drawn.text), len(text)) - same)
    last = bisect_left(starts, len(drawn.text) - tail)
    if first < 0 or last >= len(starts) or last <= first:
        return None
    begin, end = starts[first], starts[last]
    base, mine = drawn.text[begin:end], text[begin : len(text) - (len(drawn.text) - end)]
    if _SECTION.search(base) or _SECTION.search(mine):
        return None
    numbers = [one.number for one in drawn.blocks]
    return Window(base=base, mine=mine, section=drawn.blocks[first].section, before=numbers[:first], after=numbers[last:])


def _common_start(one: str, other: str) -> int:
    length = min(len(one), len(other))
    for begin in range(0, length, _CHUNK):
        end = min(begin + _CHUNK, length)
        if one[begin:end] != other[begin:end]:
            return next(at for at in range(begin, end) if one[at] != other[at])
    return length


def _common_end(one: str, other: str, *, limit: int) -> int:
    """How many characters at the end are the same, at most `limit`."""
    for begin in range(0, limit, _CHUNK):
        end = min(begin + _CHUNK, limit)
        if one[len(one) - end : len(one) - begin] != other[len(other) - end : len(other) - begin]:
            return next(at for at in range(begin, end) if one[-1 - at] != other[-1 - at])
    return limit
