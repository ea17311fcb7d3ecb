"""TODO.md read: its tasks as blocks, a person's own text by where it stands, and the lines of one block (S6.2). Pure.

Knows what stands where, never what it means for the board: that is `todo_merging`'s. Used for the text a person left and for the
drawing they began from alike, so that whatever is odd in both is no edit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from remit.board.task import Priority
from remit.board.todo_lines import (
    FIELD,
    KNOWN_FIELDS,
    NUMBER_LIMIT,
    NUMBERED,
    SECTION,
    UNNUMBERED,
    Zones,
    first_plain,
    heading_of,
    is_followed_by_field,
    is_rule,
    plain,
    stripped,
    unguarded,
)


@dataclass(slots=True)
class Block:
    """One task as it stands in the text."""

    number: int | None
    title: str
    section: Priority | None
    """The section it stands in; None: in none of the three."""
    lines: list[str] = field(default_factory=list)
    """Below its heading, without the closing `---`."""
    is_closed: bool = False

    def looks_like(self, other: "Block") -> bool:
        return self.number == other.number and self.title == other.title and self.lines == other.lines


@dataclass(slots=True)
class Sheet:
    """A whole TODO.md."""

    blocks: list[Block] = field(default_factory=list)
    gaps: dict[str, list[str]] = field(default_factory=dict)
    """A person's own lines: `top`, `begin:high`, `end:high`, `after:#3` (behind the fourth block)."""
    headings: dict[Priority, str] = field(default_factory=dict)

    def texts(self, numbers: Sequence[int | None]) -> dict[str, str]:
        """The gaps as the board keeps them; `numbers`: which task each block came to be, None: none."""
        found: dict[str, list[str]] = {}
        for key, lines in self.gaps.items():
            if key.startswith("after:#"):
                number = numbers[int(key[7:])]
                key = f"after:{number}" if number is not None else "end:low"
            text = "\n".join(stripped(lines))
            if text or key == "top":
                found.setdefault(key, []).append(text)
        for priority, heading in self.headings.items():
            if heading != heading_of(priority):
                found[f"heading:{priority}"] = [heading]
        return {key: "\n\n".join(texts) for key, texts in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What the lines of one block say."""

    fields: Mapping[str, str]
    """The known ones, by the name they are drawn with."""
    again: tuple[tuple[str, str], ...] = ()
    """Known ones that stand a second time."""
    lines: tuple[str, ...] = ()
    description: str = ""


def read_sheet(text: str, titles: Mapping[int, str], next_number: int, *, section: Priority | None = None) -> Sheet:
    """`titles`: of the tasks the board has. They tell a task from a heading within a description.

    `section`: the text is a part of a whole, cut out there between tasks.
    """
    reader = Reader(plain(text).split("\n"), titles, next_number)
    if section is not None:
        reader.section = section
        reader.sheet.gaps.clear()
    return reader.read()


def _striking(lines: Sequence[str]) -> list[int]:
    """Where lines stand that may carry structure, or open something."""
    return [
        index
        for index, line in enumerate(lines)
        if line[:3] in ("## ", "###", "##\t", "---") or "```" in line or "~~~" in line or "<!--" in line
    ]


class Reader:
    """Goes through the lines once. `board import` reads less strictly with one of its own."""

    def __init__(self, lines: Sequence[str], titles: Mapping[int, str], next_number: int) -> None:
        self.lines = lines
        self.titles = titles
        self.next_number = next_number
        self.zones = Zones(lines, is_barrier=self._is_known)
        self.sheet = Sheet(gaps={"top": []})
        self.section: Priority | None = None
        self.is_own = False
        """Under a heading of the person's own, which is none of the three."""
        self.block: Block | None = None
        self.into = self.sheet.gaps["top"]
        """Where a line without meaning goes."""

    def read(self) -> Sheet:
        """Line by line, but the many that can mean nothing are passed over in one go."""
        done = 0
        for index in _striking(self.lines):
            if index < done:
                continue
            line = self.lines[index]
            self.into += self.lines[done:index]
            done = index + 1
            if line.startswith("##") and self._is_heading(index, line):
                continue
            if self.block is not None and is_rule(line):
                self.block.is_closed = True
                self._gap(f"after:#{len(self.sheet.blocks) - 1}")
                continue
            end = self.zones.end(index)
            done = index + 1 if end is None else end + 1
            self.into += self.lines[index:done]
        self.into += self.lines[done:]
        return self.sheet

    def _is_known(self, index: int) -> bool:
        """The heading of a task the board has, with its lines: no fence or comment reaches across it."""
        found = NUMBERED.match(self.lines[index])
        if found is None or self.titles.get(int(found[1])) != found[2].strip():
            return False
        return is_followed_by_field(self.lines, index)

    def _is_heading(self, index: int, line: str) -> bool:
        """Take a heading that is one of ours, or begins a section of the person's own; False: it is just a line."""
        if line.startswith("## ") or line.startswith("##\t"):
            found = SECTION.match(line)
            if found:
                self.section = Priority(found[1].lower())
                self.is_own = False
                self._gap(f"begin:{self.section}")
                self._name_section(self.section, line.rstrip())
            else:
                self._own_section(line)
            return True
        return line.startswith("###") and self._is_task(index, line)

    def _name_section(self, section: Priority, line: str) -> None:
        """The section may have words of the person's behind its name; where it begins twice, the second name is kept as a comment."""
        usual = heading_of(section)
        known = self.sheet.headings.setdefault(section, line)
        if line in (usual, known):
            return
        if known == usual:
            self.sheet.headings[section] = line
        else:
            self.into += ["", f"<!-- {line.replace('-->', '-- >')} -->", ""]

    def _own_section(self, line: str) -> None:
        self.is_own = True
        self._go_on_outside()
        self.into.append(line)

    def _go_on_outside(self) -> None:
        """What follows stands in none of the three sections, and stays there."""
        self._gap(f"end:{self.section}" if self.section else "top")
        if self.into and self.into[-1].strip():
            self.into.append("")

    def _is_task(self, index: int, line: str) -> bool:
        found = NUMBERED.match(line)
        number = int(found[1]) if found else None
        if number is not None and number not in self.titles and not 0 < number <= NUMBER_LIMIT:
            number = None
        title = found[2].strip() if found and number is not None else ""
        if number is None:
            unnumbered = UNNUMBERED.match(line)
            if unnumbered is None:
                return False
            title = unnumbered[1].strip()
        if not is_followed_by_field(self.lines, index) and not self._stands_alone(number, title):
            if self.block is None and (self.is_own or self.section is None):
                self._go_on_outside()  # behind the task above it, it would be drawn in a section, and be a task the next time
            return False
        section = None if self.is_own else self.section
        self.block = Block(number, title, section)
        self.sheet.blocks.append(self.block)
        self.into = self.block.lines
        return True

    def _stands_alone(self, number: int | None, title: str) -> bool:
        """A heading without a task's lines is one all the same between tasks, or where it can be nothing else."""
        if self.is_own or self.section is None:
            return False
        if self.block is None:
            return True
        return number is not None and (self.titles.get(number) == title or number >= self.next_number)

    def _gap(self, key: str) -> None:
        self.block = None
        self.into = self.sheet.gaps.setdefault(key, [])


def read_block(lines: Sequence[str]) -> Written:
    fields: dict[str, str] = {}
    again: list[tuple[str, str]] = []
    others: list[str] = []
    zones = Zones(lines)
    index = 0
    while index < len(lines):
        end = zones.end(index)
        if end is not None:
            others += lines[index : end + 1]
            index = end + 1
            continue
        found = FIELD.match(lines[index])
        name = found[1].strip().lower() if found else ""
        if found and name == "description":
            return _written(fields, again, others, [found[2], *lines[index + 1 :]], is_named=True)
        if found and name in KNOWN_FIELDS:
            value = found[2].strip()
            if KNOWN_FIELDS[name] in fields:
                again.append((KNOWN_FIELDS[name], value))
            fields.setdefault(KNOWN_FIELDS[name], value)
        else:
            others.append(lines[index])
        index += 1
    begin = first_plain(others)
    return _written(fields, again, others[:begin], others[begin:])


def _written(
    fields: dict[str, str], again: list[tuple[str, str]], others: Sequence[str], description: Sequence[str], *, is_named: bool = False
) -> Written:
    """`is_named`: the description begins with its name."""
    return Written(
        fields=fields,
        again=tuple(again),
        lines=tuple(line.rstrip() for line in unguarded(stripped(others), before_description=is_named)),
        description="\n".join(unguarded(stripped(description))),
    )
