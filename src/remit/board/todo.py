"""TODO.md parsed and drawn: its tasks as blocks, a person's own text by position, and the same text for the same board.

A description may contain lines such as `---` or `### 9. Something`: `draw` puts a backslash before them (Markdown shows them as written).
Parsing removes it. The original drawing and the edited text are parsed alike: an oddity in both is not an edit."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from remit.board.task import Priority, State, Task

# ---- parsing


KNOWN_FIELDS = {
    "status": "Status", "effort": "Effort", "priority": "Priority", "language": "Language", "dependencies": "Dependencies",
    "started": "Started", "completed": "Completed", "blocking reason": "Blocking Reason", "research": "Research", "plan": "Plan",
    "implementation": "Implementation",
}  # fmt: skip
"""Names of a task's lines, as compared and as drawn."""
SECTION = re.compile(r"##\s+(?:[^\w\s]+\s*)?(high|medium|low)[\s-]+priority\b", re.IGNORECASE)
HEADING = re.compile(r"###\s+(?:0*([1-9]\d{0,5})[.)](?!\d)\s*)?(.*)$")
FIELD = re.compile(r"\s*(?:[-*+]\s+)?\*\*([^*\n]{1,60}?)(?::\*\*|\*\*\s*:)\s*(.*)$")
_STRUCTURE = re.compile(r"\\*(?:---\s*$|##\s|###\s+\d+[.)])")
_ESCAPED_HEADING = re.compile(r"\\*###\s")


def heading_of(priority: str) -> str:
    """Of a section, as it is drawn."""
    return f"## {priority.capitalize()} Priority"


def is_followed_by_field(lines: Sequence[str], index: int) -> bool:
    """Whether the next non-blank line is a field of a task."""
    following = next((line for line in lines[index + 1 : index + 5] if line.strip()), "")
    found = FIELD.match(following)
    return found is not None and found[1].strip().lower() in (*KNOWN_FIELDS, "description")


def escape_lines(lines: Sequence[str], *, are_own: bool = False) -> list[str]:
    """The lines with a backslash before each that would be read as structure. `are_own`: own lines of a task, before its description."""
    return ["\\" + line if _is_structure(lines, at, are_own) else line for at, line in enumerate(lines)]


def unescape_lines(lines: Sequence[str], *, are_own: bool = False) -> list[str]:
    """The reverse of `escape_lines`."""
    return [line[1:] if line.startswith("\\") and _is_structure(lines, at, are_own) else line for at, line in enumerate(lines)]


def _is_structure(lines: Sequence[str], at: int, are_own: bool) -> bool:
    """Also with backslashes before it."""
    if _ESCAPED_HEADING.match(lines[at]) and (are_own or is_followed_by_field(lines, at)):
        return True
    return _STRUCTURE.match(lines[at]) is not None


def first_plain(lines: Sequence[str]) -> int:
    """Where the text of a task with an unnamed description begins: the first line that is neither a field, nor a comment, nor below one."""
    for at, line in enumerate(lines):
        is_below = at > 0 and line[:1] in (" ", "\t")
        if line.strip() and not is_below and not line.startswith("<!--") and not FIELD.match(line):
            return at
    return len(lines)


def strip_blank_lines(lines: Sequence[str]) -> list[str]:
    """Without blank lines at both ends."""
    full = [at for at, line in enumerate(lines) if line.strip()]
    return list(lines[full[0] : full[-1] + 1]) if full else []


def plain(text: str) -> str:
    """With uniform line ends, no byte order mark, no zero bytes."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "").removeprefix("\ufeff")


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
        own = {f"heading:{one}": [heading] for one, heading in self.headings.items() if heading != heading_of(one)}
        return {key: "\n\n".join(texts) for key, texts in (found | own).items()}


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
    return _Reader(plain(text).split("\n"), titles, next_number).read()


class _Reader:
    """Reads the lines once."""

    def __init__(self, lines: Sequence[str], titles: Mapping[int, str], next_number: int) -> None:
        self._lines = lines
        self._titles = titles
        self._next_number = next_number
        self._sheet = Sheet(gaps={"top": []})
        self._section: Priority | None = None
        self._is_own = False
        """Under a heading of the person's own."""
        self._block: Block | None = None
        self._into = self._sheet.gaps["top"]
        """Where a line without meaning goes."""

    def read(self) -> Sheet:
        for index, line in enumerate(self._lines):
            if line.startswith(("## ", "##\t")):
                self._begin_section(line)
            elif self._block is not None and line.rstrip() == "---":
                self._block.is_closed = True
                self._gap(f"after:#{len(self._sheet.blocks) - 1}")
            elif not self._begin_task(index, line):
                self._into.append(line)
        return self._sheet

    def _begin_section(self, line: str) -> None:
        """A known section, or one of the person's own."""
        found = SECTION.match(line)
        self._is_own = found is None
        if found is None:
            self._go_on_outside()
            self._into.append(line)
            return
        self._section, heading = Priority(found[1].lower()), line.rstrip()
        self._gap(f"begin:{self._section}")
        if heading not in (self._sheet.headings.setdefault(self._section, heading), heading_of(self._section)):
            self._into += ["", f"<!-- {heading.replace('-->', '-- >')} -->", ""]  # the section occurs again under another name

    def _go_on_outside(self) -> None:
        """The following text is in none of the three sections, and stays there."""
        self._gap(f"end:{self._section}" if self._section else "top")
        if self._into and self._into[-1].strip():
            self._into.append("")

    def _begin_task(self, index: int, line: str) -> bool:
        found = HEADING.match(line)
        if found is None or not (found[1] or found[2]):
            return False
        number, title = int(found[1]) if found[1] else None, found[2].strip()
        if not is_followed_by_field(self._lines, index) and not self._stands_alone(number, title):
            if self._block is None and (self._is_own or self._section is None):
                self._go_on_outside()  # after the task above it would be drawn in a section, and be a task the next time
            return False
        self._block = Block(number, title, None if self._is_own else self._section)
        self._sheet.blocks.append(self._block)
        self._into = self._block.lines
        return True

    def _stands_alone(self, number: int | None, title: str) -> bool:
        """A heading without fields is a task between tasks, or if it cannot be anything else."""
        if self._is_own or self._section is None:
            return False
        return self._block is None or (number is not None and (self._titles.get(number) == title or number >= self._next_number))

    def _gap(self, key: str) -> None:
        self._block = None
        self._into = self._sheet.gaps.setdefault(key, [])


def read_block(lines: Sequence[str]) -> BlockFields:
    fields: dict[str, str] = {}
    own: list[str] = []
    for at, line in enumerate(lines):
        found = FIELD.match(line)
        name = found[1].strip().lower() if found else ""
        if found and name == "description":
            return _written(fields, own, [found[2], *lines[at + 1 :]])
        if found and name in KNOWN_FIELDS and KNOWN_FIELDS[name] not in fields:
            fields[KNOWN_FIELDS[name]] = found[2].strip()
        else:
            own.append(line)
    begin = first_plain(own)
    return _written(fields, own[:begin], own[begin:])


def _written(fields: dict[str, str], own: Sequence[str], description: Sequence[str]) -> BlockFields:
    return BlockFields(
        fields=fields,
        lines=tuple(line.rstrip() for line in unescape_lines(strip_blank_lines(own), are_own=True)),
        description="\n".join(unescape_lines(strip_blank_lines(description))),
    )


# ---- drawing


HEAD = "# TODO"
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
"""What `surrogateescape` makes of such bytes."""
_PLAIN_PATH = re.compile(r"[\w./+@-]+", re.ASCII)
_TIME_OF_DAY = re.compile(r"(?<=^\d{4}-\d\d-\d\d)T.*")
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
        "Started": _TIME_OF_DAY.sub("", task.started),
        "Completed": _TIME_OF_DAY.sub("", task.completed),
        "Blocking Reason": task.blocking_reason,
        **(_links(task) if task.artifacts or task.plan_path else {}),
    }
    head = f"### {task.number}. {one_line(task.title)}\n"
    head += "".join(f"- **{name}**: {one_line(value)}\n" for name, value in fields.items() if value)
    if task.lines:
        head += "\n".join(escape_lines("\n".join(task.lines).split("\n"), are_own=True)) + "\n"
    return f"{head}{_description(task)}\n---"


def _description(task: Task) -> str:
    text = task.description
    if not text or text.isspace():
        # Lines that are not fields would be read as the description.
        return "\n**Description**:\n" if task.lines and first_plain(task.lines) < len(task.lines) else ""
    lines = plain(text).split("\n")
    text = "\n".join(strip_blank_lines(escape_lines(lines) if "---" in text or "##" in text else lines))
    return f"\n**Description**:{' ' if _STARTS_PLAIN.match(text) else _PARAGRAPH}{text}\n"


def _links(task: Task) -> dict[str, str]:
    paths: dict[str, list[str]] = {}
    for artifact in task.artifacts:
        paths.setdefault(artifact.type, []).append(artifact.path)
    found = {
        "Research": paths.get("research") or paths.get("report") or [],
        "Plan": [task.plan_path] if task.plan_path else [],
        "Implementation": paths.get("summary") or paths.get("implementation") or [],
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
