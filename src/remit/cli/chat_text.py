"""A model's words on their way to a terminal: made harmless, and cut into blocks of Markdown that can be drawn once and for all.

Pure; knows neither terminal nor delegation. Words come in pieces of any size: whatever is done here does not depend on where a piece ends.
"""

import re
import unicodedata

_JOINERS = "\u200c\u200d"
"""Within words of some scripts, and within emoji."""
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""They turn the text around them: a reader would see something else than what is there."""
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HARMLESS = re.compile(r"[\x20-\x7e\n]*")


def harmless(text: str) -> str:
    """Without what a terminal would obey (escape sequences, bells, carriage returns) and without what hides or turns text."""
    return text if _HARMLESS.fullmatch(text) else "".join(map(_sign, text))


def _sign(sign: str) -> str:
    if sign in "\n\t" or sign in _JOINERS:
        return sign
    kind = unicodedata.category(sign)
    if kind == "Zs":
        return " " if sign != "\u3000" else sign
    if sign == "\r" or (kind == "Cf" and sign not in _BIDI):
        return ""
    return "�" if kind[0] == "C" or kind in ("Zl", "Zp") else sign


class Blocks:
    """Markdown as it grows. A block is finished when the next one has begun: nothing that comes later changes how it is drawn."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._open = ""
        """The line that has not ended yet."""
        self._fence = ""
        self._was_blank = False

    @property
    def rest(self) -> str:
        """What is not finished."""
        return "\n".join([*self._lines, self._open])

    def feed(self, text: str) -> list[str]:
        """The blocks that are finished by it."""
        finished: list[str] = []
        *lines, self._open = (self._open + text).split("\n")
        for line in lines:
            if self._begins_a_block(line):
                finished.append(self._taken())
            self._take(line)
        if self._begins_a_block(self._open):
            finished.append(self._taken())
        return finished

    def end(self) -> list[str]:
        """Whatever is left; ready for a new text."""
        last, self._open = self._open, ""
        finished = self.feed(last + "\n") if last else []
        rest = self._taken()
        self._fence = ""
        return [block for block in (*finished, rest) if block.strip()]

    def _begins_a_block(self, line: str) -> bool:
        """Behind an empty line; what is indented may belong to the list above."""
        return self._was_blank and not self._fence and line[:1].strip() != "" and any(map(str.strip, self._lines))

    def _take(self, line: str) -> None:
        self._lines.append(line)
        self._was_blank = not line.strip()
        mark = _FENCE.match(line)
        if mark and not self._fence:
            self._fence = mark[1]
        elif mark and line.strip().startswith(self._fence) and not line.strip().strip(self._fence[0]):
            self._fence = ""

    def _taken(self) -> str:
        block, self._lines, self._was_blank = "\n".join(self._lines), [], False
        return block.strip("\n")
