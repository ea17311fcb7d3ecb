"""TODO.md parsed and drawn: its tasks as blocks, a person's own text by position, and the same text for the same board.

A person's text may contain `---`, `### 9. Something`, a fence or a comment. Inside a closed fence or comment, such lines have no meaning.
Elsewhere `draw` puts a backslash before such a line of a description (Markdown shows it as written) and parsing removes it. The original
drawing and the edited text are parsed alike, so that oddities in both are not edits. `todo_merge` merges them."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from remit.board.task import Priority, State, Task

# ---- parsing


KNOWN_FIELDS = {
    "status": "Status", "effort": "Effort", "priority": "Priority", "language": "Language", "dependencies": "Dependencies",
    "started": "Started", "completed": "Completed", "blocking reason": "Blocking Reason", "research": "Research", "plan": "Plan",
    "implementation": "Implementation",
}  # fmt: skip
"""Names of a task's lines, as compared and as drawn."""
NUMBER_LIMIT = 999_999
"""A larger number before the dot is part of a title, not a task number."""

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
_LOOKS_BUILT = re.compile(r"\\*(?:---\s*$|##\s|###\s+\d{1,15}[.)])")
_LOOKS_OPEN = re.compile(r"\\+\s*(?:```|~~~|<!--)")
_HEADING = re.compile(r"\\*###\s")
MAY_MEAN_MORE = re.compile(r"---|##|```|~~~|<!--|\r|\\")
"""A text without any of these needs no escaping."""


def heading_of(priority: str) -> str:
    """Of a section, as it is drawn."""
    return f"## {priority.capitalize()} Priority"


def is_followed_by_field(lines: Sequence[str], index: int) -> bool:
    """Whether the next non-blank line is a field of a task."""
    for line in lines[index + 1 : index + 5]:
        if line.strip():
            return _NEXT_FIELD.match(line) is not None
    return False


class Zones:
    """Fences and comments among some lines."""

    def __init__(self, lines: Sequence[str], *, is_barrier: Callable[[int], bool] | None = None) -> None:
        """`is_barrier`: a line that no zone crosses: the heading of a known task."""
        self._lines = lines
        self._is_barrier = is_barrier
        self._unclosed: dict[str, tuple[int, int]] = {}
        """By kind: a length, and the line up to which nothing closes it. Thousands of unclosed ones are searched once."""

    def end(self, index: int) -> int | None:
        """The line that closes the zone opened at `index`; None: nothing opens there, or it never closes."""
        line = self._lines[index]
        if "```" not in line and "~~~" not in line and "<!--" not in line:
            return None
        if line.lstrip().startswith("<!--"):
            return index if _COMMENT_END in line else self._closing(_COMMENT_END, 1, index)
        opened = _FENCE.match(line)
        return None if opened is None else self._closing(opened[1][:3], len(opened[1]), index)

    def _closing(self, kind: str, length: int, index: int) -> int | None:
        tried, until = self._unclosed.get(kind, (0, 0))
        if length >= tried and index < until:
            return None
        at = index
        for at in range(index + 1, len(self._lines)):
            line = self._lines[at]
            closes = _closed_length(line, kind) if kind in line else 0
            if closes >= length:
                return at
            if not closes and line.startswith("### ") and self._is_barrier is not None and self._is_barrier(at):
                break
        self._unclosed[kind] = (length, at)
        return None


def _closed_length(line: str, kind: str) -> int:
    """Length of the fence that the line closes; 1 for a comment; 0: none."""
    if kind == _COMMENT_END:
        return 1
    bare = line.strip()
    return 0 if bare.strip(kind[0]) else len(bare)


def escape_lines(lines: Sequence[str], *, before_description: bool = False) -> list[str]:
    """The lines with a backslash before each that would be read as structure. `before_description`: the description follows these lines."""
    return _marked(lines, _guard, before_description)


def unescape_lines(lines: Sequence[str], *, before_description: bool = False) -> list[str]:
    """The reverse of `escape_lines`."""
    return _marked(lines, _unguard, before_description)


def _marked(lines: Sequence[str], mark: "Callable[[str, bool, bool], str]", before_description: bool) -> list[str]:
    given = [*lines, _DESCRIPTION] if before_description else lines
    result: list[str] = []
    zones = Zones(given)
    while (index := len(result)) < len(given):
        end = zones.end(index)
        for at in range(index, (index if end is None else end) + 1):
            # Inside a fence only a complete task would be parsed as one.
            is_task = _HEADING.match(given[at]) is not None and is_followed_by_field(given, at)
            result.append(mark(given[at], is_task or (end is None and _LOOKS_BUILT.match(given[at]) is not None), end is None))
    return result[: len(lines)]


def _guard(line: str, is_structure: bool, is_outside: bool) -> str:
    """An unclosed fence or comment (or a line that looks like an escaped one) is escaped too."""
    opens = is_outside and (line.lstrip().startswith("<!--") or _FENCE.match(line) is not None or _LOOKS_OPEN.match(line) is not None)
    return "\\" + line if is_structure or opens else line


def _unguard(line: str, is_structure: bool, is_outside: bool) -> str:
    is_marked = line.startswith("\\") and (is_structure or (is_outside and _LOOKS_OPEN.match(line) is not None))
    return line[1:] if is_marked else line


def first_plain(lines: Sequence[str]) -> int:
    """Where the text of a task with an unnamed description begins: the first line that is neither a field nor a comment."""
    zones = Zones(lines)
    index = 0
    while index < len(lines):
        line = lines[index]
        is_comment = line.lstrip().startswith("<!--")
        end = zones.end(index) if is_comment else None
        is_below = line[:1] in (" ", "\t") and index > 0  # its own list below a field
        if not line.strip() or end is not None or is_below or FIELD.match(line):
            index = index + 1 if end is None else end + 1
            continue
        return index
    return len(lines)


def strip_blank_lines(lines: Sequence[str]) -> list[str]:
    """Without blank lines at both ends."""
    first, last = 0, len(lines)
    while first < last and not lines[first].strip():
        first += 1
    while last > first and not lines[last - 1].strip():
        last -= 1
    return list(lines[first:last])


def plain(text: str) -> str:
    """With uniform line ends, no byte order mark, no zero bytes."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        text = text.replace("\0", "")
    return text.removeprefix("\ufeff")


def one_line(text: str) -> str:
    return " ".join(text.split())


# ---- the file


@dataclass(slots=True)
class Block:
    """One task in the text."""

    number: int | None
    title: str
    section: Priority | None
    """Its section; None: none of the three."""
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
        """The gaps as stored; `numbers`: the task of each block, None: none."""
        found: dict[str, list[str]] = {}
        for key, lines in self.gaps.items():
            if key.startswith("after:#"):
                number = numbers[int(key[7:])]
                key = f"after:{number}" if number is not None else "end:low"
            text = "\n".join(strip_blank_lines(lines))
            if text or key == "top":
                found.setdefault(key, []).append(text)
        for priority, heading in self.headings.items():
            if heading != heading_of(priority):
                found[f"heading:{priority}"] = [heading]
        return {key: "\n\n".join(texts) for key, texts in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFields:
    """The parsed lines of one block."""

    fields: Mapping[str, str]
    """Known fields, by their drawn name."""
    lines: tuple[str, ...] = ()
    """Its other lines, with fields that occur again."""
    description: str = ""


def read_sheet(text: str, titles: Mapping[int, str], next_number: int) -> Sheet:
    """`titles`: of the known tasks. They distinguish a task from a heading within a description."""
    return Reader(plain(text).split("\n"), titles, next_number).read()


class Reader:
    """Reads the lines once."""

    def __init__(self, lines: Sequence[str], titles: Mapping[int, str], next_number: int) -> None:
        self.lines = lines
        self.titles = titles
        self.next_number = next_number
        self.zones = Zones(lines, is_barrier=self._is_known)
        self.sheet = Sheet(gaps={"top": []})
        self.section: Priority | None = None
        self.is_own = False
        """Under a heading of the person's own."""
        self.block: Block | None = None
        self.into = self.sheet.gaps["top"]
        """Where a line without meaning goes."""

    def read(self) -> Sheet:
        index = 0
        while index < len(self.lines):
            line = self.lines[index]
            end = index
            if line.startswith("##") and self._is_heading(index, line):
                pass
            elif self.block is not None and line.rstrip() == "---":
                self.block.is_closed = True
                self._gap(f"after:#{len(self.sheet.blocks) - 1}")
            else:
                closed = self.zones.end(index)
                end = index if closed is None else closed
                self.into += self.lines[index : end + 1]
            index = end + 1
        return self.sheet

    def _is_known(self, index: int) -> bool:
        """The heading of a known task, with its fields: no fence or comment crosses it."""
        found = NUMBERED.match(self.lines[index])
        if found is None or self.titles.get(int(found[1])) != found[2].strip():
            return False
        return is_followed_by_field(self.lines, index)

    def _is_heading(self, index: int, line: str) -> bool:
        """Handle a known heading, or one that starts a section of the person's own; False: an ordinary line."""
        if line.startswith("## ") or line.startswith("##\t"):
            found = SECTION.match(line)
            if found:
                self.section = Priority(found[1].lower())
                self.is_own = False
                self._gap(f"begin:{self.section}")
                self._name_section(self.section, line.rstrip())
            else:
                self.is_own = True
                self._go_on_outside()
                self.into.append(line)
            return True
        return line.startswith("###") and self._is_task(index, line)

    def _name_section(self, section: Priority, line: str) -> None:
        """The person's words may follow a section name; for a repeated section, the second name is kept as a comment."""
        if line not in (self.sheet.headings.setdefault(section, line), heading_of(section)):
            self.into += ["", f"<!-- {line.replace('-->', '-- >')} -->", ""]

    def _go_on_outside(self) -> None:
        """The following text is in none of the three sections, and stays there."""
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
                self._go_on_outside()  # after the task above it would be drawn in a section, and be a task the next time
            return False
        section = None if self.is_own else self.section
        self.block = Block(number, title, section)
        self.sheet.blocks.append(self.block)
        self.into = self.block.lines
        return True

    def _stands_alone(self, number: int | None, title: str) -> bool:
        """A heading without fields is a task between tasks, or if it cannot be anything else."""
        if self.is_own or self.section is None:
            return False
        if self.block is None:
            return True
        return number is not None and (self.titles.get(number) == title or number >= self.next_number)

    def _gap(self, key: str) -> None:
        self.block = None
        self.into = self.sheet.gaps.setdefault(key, [])


def read_block(lines: Sequence[str]) -> BlockFields:
    fields: dict[str, str] = {}
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
            return _written(fields, others, [found[2], *lines[index + 1 :]], is_named=True)
        if found and name in KNOWN_FIELDS and KNOWN_FIELDS[name] not in fields:
            fields[KNOWN_FIELDS[name]] = found[2].strip()
        else:
            others.append(lines[index])
        index += 1
    begin = first_plain(others)
    return _written(fields, others[:begin], others[begin:])


def _written(fields: dict[str, str], others: Sequence[str], description: Sequence[str], *, is_named: bool = False) -> BlockFields:
    """`is_named`: the description begins with its name."""
    return BlockFields(
        fields=fields,
        lines=tuple(line.rstrip() for line in unescape_lines(strip_blank_lines(others), before_description=is_named)),
        description="\n".join(unescape_lines(strip_blank_lines(description))),
    )


# ---- drawing


HEAD = "# TODO"
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
"""What `surrogateescape` makes of such bytes."""
_PLAIN_PATH = re.compile(r"[\w./+@-]+", re.ASCII)
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T")
_STARTS_PLAIN = re.compile(r"[^\s#>|`~<*+\-\\=\d]|\d+[^.)\d]|\*\*?[^\s*]")
"""How a description may begin on the line of its name; a list, quote or table would lose its meaning there."""
_PARAGRAPH = "\n\n"


def draw(state: State) -> str:
    texts = state.texts
    pieces = [texts.get("top", HEAD)]
    by_priority: dict[Priority, list[Task]] = {priority: [] for priority in Priority}
    for task in state.tasks:
        by_priority[task.priority].append(task)
    for priority, tasks in by_priority.items():
        pieces += (texts.get(f"heading:{priority}") or heading_of(priority), texts.get(f"begin:{priority}", ""))
        for task in tasks:
            pieces += (block(task), texts.get(f"after:{task.number}", ""))
        if priority is Priority.LOW:  # with text after tasks that are archived by now
            numbers = {str(task.number) for task in state.tasks}
            pieces += [text for key, text in texts.items() if key.startswith("after:") and key[6:] not in numbers]
        pieces.append(texts.get(f"end:{priority}", ""))
    return _PARAGRAPH.join(filter(None, pieces)) + "\n"


def block(task: Task) -> str:
    """One task as in TODO.md, with its `---`."""
    fields = {
        "Status": f"[{task.status.marker}]",
        "Effort": task.effort,
        "Priority": task.priority.capitalize(),
        "Language": task.language,
        "Dependencies": ", ".join(map(str, task.dependencies)),
        "Started": _day(task.started),
        "Completed": _day(task.completed),
        "Blocking Reason": task.blocking_reason,
        **(_links(task) if task.artifacts or task.plan_path else {}),
    }
    head = f"### {task.number}. {one_line(task.title)}\n"
    head += "".join(f"- **{name}**: {one_line(value)}\n" for name, value in fields.items() if value)
    description = _description(task)
    if task.lines:
        head += "\n".join(escape_lines("\n".join(task.lines).split("\n"), before_description=bool(description))) + "\n"
    return f"{head}{description}\n---"


def _description(task: Task) -> str:
    text = task.description
    if not text or text.isspace():
        # Lines that are not fields would be read as the description.
        return "\n**Description**:\n" if task.lines and first_plain(task.lines) < len(task.lines) else ""
    if MAY_MEAN_MORE.search(text):
        text = "\n".join(escape_lines(plain(text).split("\n")))
    text = "\n".join(strip_blank_lines(text.split("\n")))
    return f"\n**Description**:{' ' if _STARTS_PLAIN.match(text) else _PARAGRAPH}{text}\n"


def _day(time: str) -> str:
    found = _TIME.match(time)
    return found[1] if found else time


def _links(task: Task) -> dict[str, str]:
    paths: dict[str, list[str]] = {"plan": [task.plan_path] if task.plan_path else []}
    for artifact in task.artifacts:
        paths.setdefault(f"{artifact.type} artifact", []).append(artifact.path)
    found = {
        "Research": paths.get("research artifact") or paths.get("report artifact"),
        "Plan": paths["plan"],
        "Implementation": paths.get("summary artifact") or paths.get("implementation artifact"),
    }
    return {name: ", ".join(map(link_to, dict.fromkeys(some))) for name, some in found.items() if some}


def link_to(path: str) -> str:
    """Relative to the folder of TODO.md."""
    path = one_line(path)
    target = path.removeprefix("specs/") if path.startswith("specs/") else path if path.startswith("/") else f"../{path}"
    if not _PLAIN_PATH.fullmatch(target):
        from urllib.parse import quote  # rarely needed, and every command draws

        target = quote(target, safe="/.-_~+@")
    return f"[{path.rpartition('/')[2].replace('[', '(').replace(']', ')')}]({target})"


def text_of(data: bytes) -> str:
    """Decode a TODO.md from any editor: bytes that are not UTF-8 are read as Latin-1."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="replace")
    return _NOT_UTF8.sub(lambda found: chr(ord(found[0]) - 0xDC00), data.decode(errors="surrogateescape"))
