"""An old TODO.md: its tasks however their headings are written, and the text around them. Pure.

The reader is `todo_reading`'s, less strict: a task may stand in any section, with its status in the heading, with or without a number.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from remit.board.importing.words import status_in
from remit.board.statuses import Status
from remit.board.task import Priority, slug_of
from remit.board.todo_lines import NUMBERED, is_followed_by_field, plain
from remit.board.todo_reading import Reader, Sheet, Written, read_block

_SIGN = r"[✅✔☑❌🚫⛔🚧🔄⏳☐⬜]\ufe0f?"
_HEAD = re.compile(
    rf"#{{2,4}}\s+(?P<before>(?:\[[^\]]*\]\s*|~~|\*\*|{_SIGN}\s*)*)"
    r"(?:task\s+)?#?0*(?P<number>\d{1,6})\s*[.):]\s+(?P<title>\S.*)$",
    re.IGNORECASE,
)
_LAST = re.compile(rf"\[[^\[\]]*\]|{_SIGN}")
_MARKS_LENGTH = 200
"""So much of a title's end may be marks."""


@dataclass(slots=True)
class OldBlock:
    number: int | None
    title: str
    section: Priority | None
    written: Written
    heading_status: Status | None = None
    index: int = 0
    """Which of the sheet's blocks."""


@dataclass(slots=True)
class OldTodo:
    sheet: Sheet = field(default_factory=Sheet)
    blocks: list[OldBlock] = field(default_factory=list)


def read_old_todo(text: str, names: Collection[str] = ()) -> OldTodo:
    """`names`: slugs of the tasks that state.json has; a heading that is one of them is a task wherever it stands."""
    lines = plain(text).split("\n")
    sheet = _PatientReader(lines, names).read()
    found = OldTodo(sheet=sheet)
    for index, block in enumerate(sheet.blocks):
        title, status = _without_marks(block.title)
        found.blocks.append(OldBlock(block.number, title, block.section, read_block(block.lines), status, index))
    return found


class _PatientReader(Reader):
    def __init__(self, lines: list[str], names: Collection[str]) -> None:
        self.names = names
        self.certain = _numbers_with_fields(lines)
        super().__init__(list(map(self._plainer, lines)), {}, 1)

    def _plainer(self, line: str) -> str:
        """`## ✅ Task 12: Title` → `### 12. Title ✅`: one way of writing it, nothing left out."""
        found = _HEAD.match(line)
        if found is None or NUMBERED.match(line):
            return line
        before = found["before"].replace("~~", "").replace("**", "").strip()
        title = found["title"].removesuffix("~~").removesuffix("**")
        return f"### {found['number']}. {title} {before}".rstrip()

    def _is_known(self, index: int) -> bool:
        """A task that state.json has: a comment left open above does not hide it, here as little as when it is read again."""
        found = NUMBERED.match(self.lines[index])
        return found is not None and self._is_named(found[2]) and is_followed_by_field(self.lines, index)

    def _is_named(self, title: str) -> bool:
        return slug_of(_without_marks(title)[0]) in self.names

    def _stands_alone(self, number: int | None, title: str) -> bool:
        """A numbered heading is a task anywhere, unless the number has its task elsewhere: then it is a step of a description."""
        if self._is_named(title):
            return True
        if number is None:
            return super()._stands_alone(number, title)
        return number not in self.certain if self.block is not None or self.is_own or self.section is None else True


def _numbers_with_fields(lines: list[str]) -> set[int]:
    found = set()
    for index, line in enumerate(lines):
        match = _HEAD.match(line) if line.startswith("##") else None
        if match and is_followed_by_field(lines, index):
            found.add(int(match["number"]))
    return found


def _without_marks(whole: str) -> tuple[str, Status | None]:
    """A title often ended in the status: `Fix it [COMPLETED]`, `Fix it ✅`."""
    title, status = whole, None
    for found in reversed(list(_LAST.finditer(whole, max(len(whole) - _MARKS_LENGTH, 0)))):
        read, rest = status_in(found[0])
        if read is None or rest or whole[found.end() : len(title)].strip():
            break
        title, status = whole[: found.start()], read
    return title.rstrip() or whole, status
