"""The lines of TODO.md: which of them carry its structure, and how text that only looks like structure is marked (S6.2). Pure.

A person's words may hold `---`, `### 9. Something`, a fence or a comment. Within a fence or a comment that closes they mean nothing
to us. Outside, drawing puts a backslash before such a line of a description (Markdown shows it as written) and reading takes it away.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence

KNOWN_FIELDS = {
    "status": "Status", "effort": "Effort", "priority": "Priority", "language": "Language", "dependencies": "Dependencies",
    "started": "Started", "completed": "Completed", "blocking reason": "Blocking Reason", "research": "Research", "plan": "Plan",
    "implementation": "Implementation",
}  # fmt: skip
"""Names of the lines of a task, as they are compared and as they are drawn."""
NUMBER_LIMIT = 999_999
"""Above it, what a person writes before the dot is part of a title and no task number."""

SECTION = re.compile(r"##\s+(?:[^\w\s]+\s*)?(high|medium|low)[\s-]+priority\b", re.IGNORECASE)
NUMBERED = re.compile(r"###\s+0*(\d{1,15})[.)](?!\d)\s*(.*)$")
UNNUMBERED = re.compile(r"###\s+(\S.*)$")
FIELD = re.compile(r"\s*(?:[-*+]\s+)?\*\*([^*\n]{1,60}?)(?::\*\*|\*\*\s*:)\s*(.*)$")
_NEXT_FIELD = re.compile(
    r"\s*(?:[-*+]\s+)?\*\*(?:" + "|".join(KNOWN_FIELDS) + r"|description)(?::\*\*|\*\*\s*:)", re.IGNORECASE
)  # fmt: skip
_FENCE = re.compile(r"\s*(`{3,}|~{3,})([^`]*)$")
_DESCRIPTION = "**Description**:"
_COMMENT_END = "-->"
_BARRIER = -1
_LOOKS_BUILT = re.compile(r"\\*(?:---\s*$|##\s|###\s+\d{1,15}[.)])")
_LOOKS_OPEN = re.compile(r"\\+\s*(?:```|~~~|<!--)")
_HEADING = re.compile(r"\\*###\s")
MAY_MEAN_MORE = re.compile(r"---|##|```|~~~|<!--|\r|\\")
"""A text without any of it needs no marking."""


def heading_of(priority: str) -> str:
    """Of a section, as it is drawn."""
    return f"## {priority.capitalize()} Priority"


def is_rule(line: str) -> bool:
    return line.startswith("---") and line.rstrip() == "---"


def is_followed_by_field(lines: Sequence[str], index: int) -> bool:
    """Whether the next line that is not blank is one of a task's own."""
    for line in lines[index + 1 : index + 5]:
        if line.strip():
            return _NEXT_FIELD.match(line) is not None
    return False


class Zones:
    """Fences and comments of some lines. Where they could close is gathered once: thousands that are left open cost nothing."""

    def __init__(self, lines: Sequence[str], *, is_barrier: Callable[[int], bool] | None = None) -> None:
        """`is_barrier`: a line that none reaches across, however it looks: the heading of a task the board has."""
        self.lines = lines
        self.is_barrier = is_barrier
        self._closers: dict[str, _Closers] = {}

    def end(self, index: int) -> int | None:
        """Where the one that opens at `index` closes; None: nothing opens there, or it never closes."""
        line = self.lines[index]
        if "```" not in line and "~~~" not in line and "<!--" not in line:
            return None
        if line.lstrip().startswith("<!--"):
            return index if _COMMENT_END in line else self._closed(_COMMENT_END, 1, index + 1)
        opened = _FENCE.match(line)
        return None if opened is None else self._closed(opened[1][:3], len(opened[1]), index + 1)

    def _closed(self, kind: str, length: int, start: int) -> int | None:
        if kind not in self._closers:
            self._closers[kind] = self._gathered(kind)
        return self._closers[kind].first(start, length)

    def _gathered(self, kind: str) -> "_Closers":
        """A barrier is an end that closes nothing."""
        found = [(at, _length(line, kind)) for at, line in enumerate(self.lines) if kind in line]
        if found and self.is_barrier is not None:
            known = {at for at, length in found if length}
            headings = (at for at, line in enumerate(self.lines) if line.startswith("### ") and at not in known)
            found = sorted([*found, *((at, _BARRIER) for at in headings if self.is_barrier(at))])
        return _Closers([one for one in found if one[1]])


class _Closers:
    """The lines that close one kind of fence, or comments."""

    def __init__(self, found: Sequence[tuple[int, int]]) -> None:
        """Where each is, and how long a fence it closes."""
        self.found = found
        self.places = [at for at, _ in found]
        self.longest = [0] * (len(found) + 1)
        """From this one on, before the next barrier."""
        for index in range(len(found) - 1, -1, -1):
            self.longest[index] = 0 if found[index][1] == _BARRIER else max(found[index][1], self.longest[index + 1])

    def first(self, start: int, length: int) -> int | None:
        index = bisect_left(self.places, start)
        if self.longest[index] < length:
            return None
        # There is one, and the reader goes on behind it: no line is looked at twice.
        while self.found[index][1] < length:
            index += 1
        return self.places[index]


def _length(line: str, kind: str) -> int:
    """How long a fence it closes; of a comment, 1; 0: none."""
    if kind == _COMMENT_END:
        return 1
    bare = line.strip()
    return 0 if bare.strip(kind[0]) else len(bare)


def guarded(lines: Sequence[str], *, before_description: bool = False) -> list[str]:
    """With a backslash before each line that would be read as structure. `before_description`: one with its name follows them."""
    if before_description:
        return guarded([*lines, _DESCRIPTION])[:-1]
    result: list[str] = []
    zones = Zones(lines)
    index = 0
    while index < len(lines):
        line = lines[index]
        end = zones.end(index)
        if end is not None:
            result += [_guard_quoted(lines, at) for at in range(index, end + 1)]
            index = end + 1
            continue
        result.append("\\" + line if _needs_mark(lines, index) or _opens(line) else line)
        index += 1
    return result


def unguarded(lines: Sequence[str], *, before_description: bool = False) -> list[str]:
    """`guarded` taken back."""
    if before_description:
        return unguarded([*lines, _DESCRIPTION])[:-1]
    result: list[str] = []
    zones = Zones(lines)
    index = 0
    while index < len(lines):
        end = zones.end(index)
        if end is not None:
            result += [_unguard_quoted(lines, at) for at in range(index, end + 1)]
            index = end + 1
            continue
        line = lines[index]
        is_marked = line.startswith("\\") and (_needs_mark(lines, index) or _LOOKS_OPEN.match(line) is not None)
        result.append(line[1:] if is_marked else line)
        index += 1
    return result


def _opens(line: str) -> bool:
    """A fence or comment that does not close (or its like, marked already)."""
    bare = line.lstrip()
    return bare.startswith("<!--") or _FENCE.match(line) is not None or _LOOKS_OPEN.match(line) is not None


def _needs_mark(lines: Sequence[str], index: int) -> bool:
    line = lines[index]
    if _LOOKS_BUILT.match(line):
        return True
    return _HEADING.match(line) is not None and is_followed_by_field(lines, index)


def _guard_quoted(lines: Sequence[str], index: int) -> str:
    """Within a fence only a whole task would be taken for one."""
    line = lines[index]
    return "\\" + line if _HEADING.match(line) and is_followed_by_field(lines, index) else line


def _unguard_quoted(lines: Sequence[str], index: int) -> str:
    line = lines[index]
    return line[1:] if line.startswith("\\") and _HEADING.match(line) and is_followed_by_field(lines, index) else line


def first_plain(lines: Sequence[str]) -> int:
    """Where a task whose description has no name begins to say what it is: the first line that is no field and no comment."""
    zones = Zones(lines)
    index = 0
    while index < len(lines):
        line = lines[index]
        is_comment = line.lstrip().startswith("<!--")
        end = zones.end(index) if is_comment else None
        is_below = line[:1] in (" ", "\t") and index > 0  # a list of its own below a field
        if not line.strip() or end is not None or is_below or FIELD.match(line):
            index = index + 1 if end is None else end + 1
            continue
        return index
    return len(lines)


def stripped(lines: Sequence[str]) -> list[str]:
    """Without the blank lines at both ends."""
    first, last = 0, len(lines)
    while first < last and not lines[first].strip():
        first += 1
    while last > first and not lines[last - 1].strip():
        last -= 1
    return list(lines[first:last])


def plain(text: str) -> str:
    """Line ends as one sort, no byte order mark, no zero bytes."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        text = text.replace("\0", "")
    return text.removeprefix("\ufeff")


def one_line(text: str) -> str:
    return " ".join(text.split())
