"""Reading a unified diff, in git's form or plain: files, hunks, lines. Says what is wrong with a hunk instead of giving up on the rest.

Written by hand, because a review must go on where a library stops: one hunk with a wrong count (models write them all the time), names
with spaces or quotes, headers with Windows line ends. Linear in the text. Knows no file system; whether it applies is `applying`'s matter.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from remit.agents.builtin.coder.review.names import names_of_header, plain_names, without_prefix
from remit.core.errors import Misused

LIMIT_CHARACTERS = 20_000_000
NOT_A_DIFF = "Give a unified diff (git diff, diff -u), @FILE for a patch file, or staged, working, REV or REV..REV for what git knows."
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")

_BINARY = re.compile(r"Binary files (\S{1,4096}) and (\S{1,4096}) differ\r?$")


@dataclass(frozen=True, slots=True)
class Line:
    kind: str
    """A blank (context), `+` or `-`."""
    text: str
    """With its line end; without one where the file ends so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    at: int
    """The line of the diff it begins on."""
    old_start: int
    new_start: int
    lines: tuple[Line, ...]
    fault: str = ""
    """What is wrong with its form."""

    def side(self, kind: str) -> list[str]:
        """Its lines before (`-`) or after (`+`)."""
        return [line.text for line in self.lines if line.kind in (" ", kind)]

    def count(self, kind: str) -> int:
        return sum(line.kind == kind for line in self.lines)


@dataclass(slots=True, kw_only=True)
class Change:
    """What the diff does to one file."""

    at: int
    old_path: str | None = None
    """None: it makes the file."""
    new_path: str | None = None
    """None: it removes the file."""
    is_git: bool = False
    old_mode: str = ""
    new_mode: str = ""
    is_binary: bool = False
    moved: str = ""
    """renamed or copied, where git says so."""
    hunks: list[Hunk] = field(default_factory=list)

    @property
    def path(self) -> str:
        return self.new_path or self.old_path or ""

    def count(self, kind: str) -> int:
        return sum(hunk.count(kind) for hunk in self.hunks)

    @property
    def is_link(self) -> bool:
        return "120000" in (self.old_mode, self.new_mode)

    @property
    def is_submodule(self) -> bool:
        return "160000" in (self.old_mode, self.new_mode)


def read_diff(text: str) -> list[Change]:
    """Raises `Misused` (INVALID_PARAMETERS) where there is no diff in it, or one of a kind that cannot be applied."""
    if len(text) > LIMIT_CHARACTERS:
        raise _no_diff(f"The diff has {len(text):,} characters; at most {LIMIT_CHARACTERS:,} are reviewed.", "Split it.")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    changes = _Reader(lines).changes()
    if not changes:
        raise _no_diff("There is no unified diff in what was given.", NOT_A_DIFF)
    return changes


def _no_diff(message: str, advice: str) -> Misused:
    return Misused(message, code="INVALID_PARAMETERS", advice=advice)


class _Reader:
    """One pass over the lines: headers here, the lines of hunks by the counts in their headers."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._next = 0

    def changes(self) -> list[Change]:
        found: list[Change] = []
        while self._next < len(self._lines):
            line, at = self._lines[self._next], self._next + 1
            if line.startswith("diff --git "):
                found.append(self._git_header())
            elif line.startswith("--- ") and self._is_header():
                if not found or found[-1].hunks or not found[-1].is_git or found[-1].is_binary:
                    found.append(Change(at=at))
                self._names(found[-1])
            elif line.startswith("@@ -"):
                if not found:
                    raise _no_diff(f"Line {at} of the diff begins a hunk, but no file was named before it.", NOT_A_DIFF)
                found[-1].hunks.append(self._hunk(line))
            elif line.startswith("@@@ "):
                raise _no_diff(f"Line {at} is of a combined diff, as git shows merges: it cannot be applied.", "Give git diff REV^1 REV.")
            else:
                _note_binary(found, line, at)
                self._next += 1
        return found

    def _is_header(self) -> bool:
        return self._next + 1 < len(self._lines) and self._lines[self._next + 1].startswith("+++ ")

    def _names(self, change: Change) -> None:
        old, new = (self._lines[self._next + step].rstrip("\r")[4:] for step in (0, 1))
        self._next += 2
        if not change.is_git:
            change.old_path, change.new_path = plain_names(old, new)
        elif not change.moved:
            old_path, new_path = without_prefix(old, new)
            change.old_path = None if change.old_path is None else old_path
            change.new_path = None if change.new_path is None else new_path

    def _git_header(self) -> Change:
        change = Change(at=self._next + 1, is_git=True)
        change.old_path, change.new_path = names_of_header(self._lines[self._next].rstrip("\r")[len("diff --git ") :])
        self._next += 1
        while self._next < len(self._lines):
            line = self._lines[self._next].rstrip("\r")
            word, _, value = line.partition(" mode ")
            if word == "new file":
                change.old_path, change.new_mode = None, value
            elif word == "deleted file":
                change.new_path, change.old_mode = None, value
            elif line.startswith("old mode "):
                change.old_mode = line[9:]
            elif line.startswith("new mode "):
                change.new_mode = line[9:]
            elif line.startswith(("rename ", "copy ")):
                _moved(change, line)
            elif line.startswith("index "):
                change.new_mode = change.new_mode or line.partition(" ")[2].partition(" ")[2]
            elif not line.startswith(("similarity index ", "dissimilarity index ")):
                break
            self._next += 1
        return change

    def _hunk(self, header: str) -> Hunk:
        at = self._next + 1
        self._next += 1
        found = _HUNK.match(header)
        if found is None:
            return Hunk(at=at, old_start=0, new_start=0, lines=tuple(self._rest()), fault="its header cannot be read")
        old_start, old, new_start, new = (1 if number is None else int(number) for number in found.groups())
        counts, lines = {"-": old, "+": new}, list[Line]()
        while (counts["-"] > 0 or counts["+"] > 0) and (line := self._line()) is not None:
            if line.kind == "\\":
                _cut_end(lines)
                continue
            for side in "-+" if line.kind == " " else line.kind:
                counts[side] -= 1
            lines.append(line)
        if self._next < len(self._lines) and self._lines[self._next].startswith("\\"):
            _cut_end(lines)
            self._next += 1
        fault = ""
        if any(counts.values()):
            fault = f"its header says {old} lines before and {new} after, but there are {old - counts['-']} and {new - counts['+']}"
        elif extra := list(self._rest()):
            lines += extra
            fault = f"its header says {old} lines before and {new} after, but {len(extra)} more follow"
        return Hunk(at=at, old_start=old_start, new_start=new_start, lines=tuple(lines), fault=fault)

    def _line(self) -> Line | None:
        """The next line of a hunk; None where it cannot be one."""
        if self._next >= len(self._lines):
            return None
        text = self._lines[self._next]
        if text in ("", "\r"):
            self._next += 1
            return Line(" ", text + "\n")
        if text[0] not in " +-\\":
            return None
        self._next += 1
        return Line(text[0], text[1:] + "\n")

    def _rest(self) -> Iterator[Line]:
        """Lines that look as if they belonged to the hunk before, though its header does not count them."""
        while self._next < len(self._lines):
            text = self._lines[self._next]
            if (
                not text
                or text[0] not in " +-"
                or text.rstrip("\r") in ("-- ", "--", "---")
                or (text.startswith("--- ") and self._is_header())
            ):
                return
            self._next += 1
            yield Line(text[0], text[1:] + "\n")


def _note_binary(found: list[Change], line: str, at: int) -> None:
    """Git says it below its headers; plain diff in a line of its own."""
    if found and found[-1].is_git and not found[-1].hunks:
        found[-1].is_binary |= line.startswith(("GIT binary patch", "Binary files "))
    elif named := _BINARY.match(line[:9000]):
        old, new = plain_names(named[1], named[2])
        found.append(Change(at=at, old_path=old, new_path=new, is_binary=True))


def _moved(change: Change, line: str) -> None:
    how, side, name = (*line.split(" ", 2), "", "")[:3]
    path = without_prefix(f"a/{name}" if not name.startswith('"') else f'"a/{name[1:]}', "/dev/null")[0]
    change.moved = "renamed" if how == "rename" else "copied"
    if side == "from":
        change.old_path = path
    elif side == "to":
        change.new_path = path


def _cut_end(lines: list[Line]) -> None:
    """`\\ No newline at end of file` speaks of the line before it."""
    if lines:
        lines[-1] = Line(lines[-1].kind, lines[-1].text.removesuffix("\n"))
