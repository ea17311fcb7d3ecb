"""Plans as text: parses the phases of the Markdown, and changes one marker without touching anything else.

People and agents write plans, so parsing is lenient (headings of any depth, markers missing or in lower case), and faults are reported
rather than guessed. `implement` runs the phases, planners write them."""

import itertools
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from remit.board.task import PhaseStatus
from remit.core.errors import Misused
from remit.core.text import one_line

SKIPPED = frozenset({PhaseStatus.COMPLETED, PhaseStatus.ABANDONED})
"""Done or abandoned: not run."""

_HEADING = re.compile(r" {0,3}(?P<hashes>#{1,6})[ \t]+(?=\S)")
_PHASE = re.compile(r" {0,3}(?P<hashes>#{2,6})[ \t]+[*_]{0,3}phase[ \t]+(?P<number>\d{1,6})(?!\w|\.\d)(?P<rest>.*)", re.IGNORECASE)
_MARKER = re.compile(r"(?P<marker>\[[ \t]*(?P<word>[A-Za-z]+(?:[ _-][A-Za-z]+)?)[ \t]*\])")
_CLOSING = re.compile(r"[ \t]#+$")
_FIELD = re.compile(
    r"[ \t]*(?:[-*+][ \t]+)?\*{0,2}(?P<name>goals?|tasks?|steps|files|timing|estimated effort|effort|accept|acceptance)"
    r"\*{0,2}[ \t]*:\*{0,2}(?P<value>.*)",
    re.IGNORECASE,
)
_OTHER_FIELD = re.compile(r"[ \t]*(?:[-*+][ \t]+)?\*\*[^*]{1,60}(?:\*\*[ \t]*:|:[ \t]*\*\*)")
_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d+[.)])[ \t]+(?:\[[ xX]\][ \t]+)?(?P<words>\S.*)")
_FENCE = re.compile(r"[ \t]*(?:[-*+][ \t]+)?(?P<fence>`{3,}|~{3,})(?P<after>.*)")
_CODE = re.compile(r"(?<!`)(?P<ticks>`+)(?!`)(?P<code>.+?)(?<!`)(?P=ticks)(?!`)")
_NEW = re.compile(r"[ \t*_:–—-]*\(?new\b", re.IGNORECASE)
_NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1b\x7f\ud800-\udfff]")
"""Characters invalid in JSON or on a command line, and terminal controls."""
_STATUSES = {str(one): one for one in PhaseStatus}
_FIELDS = {"goals": "goal", "task": "tasks", "steps": "tasks", "estimated effort": "timing", "effort": "timing", "acceptance": "accept"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    number: int
    name: str
    status: PhaseStatus
    goal: str = ""
    files: tuple[str, ...] = ()
    """Paths that it changes or creates."""
    new_files: tuple[str, ...] = ()
    """Paths that are marked as new."""
    accept: tuple[str, ...] = ()
    """Commands that must exit 0 for this phase to be done."""
    text: str = ""
    """The whole phase with its heading."""
    line: int = 0
    """Line of its heading, from 1."""
    marker: tuple[int, int] = (0, 0)
    """Range of its marker in the plan's text; an empty range where one would go."""

    @property
    def is_open(self) -> bool:
        return self.status not in SKIPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    phases: tuple[Phase, ...] = ()
    """By number; duplicates in text order."""
    accept: tuple[str, ...] = ()
    """Commands for the whole plan: written outside the phases, run after each of them."""
    faults: tuple[str, ...] = ()
    """Faults, one sentence each."""
    doubled: tuple[int, ...] = ()
    """Duplicate phase numbers: such a plan cannot be executed."""

    @property
    def first_open(self) -> Phase | None:
        """The next phase: the first that is neither done nor abandoned."""
        return next(iter(self.open_phases), None)

    @property
    def open_phases(self) -> tuple[Phase, ...]:
        return tuple(phase for phase in self.phases if phase.is_open)


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    start: int
    number: int
    is_code: bool
    """Within a code block or comment: neither a heading nor a field."""


def read_plan(text: str) -> Plan:
    """The plan with control characters replaced, since its text goes into JSON and terminals."""
    text = _NO_TEXT.sub("\ufffd", text)
    lines, faults = _lines(text)
    phases: list[Phase] = []
    outside: list[_Line] = []
    begun: list[_Line] = []
    depth = 0

    for line in lines:
        heading = None if line.is_code else _HEADING.match(line.text)
        is_phase = heading is not None and _PHASE.match(line.text) is not None
        if heading is not None and (is_phase or (begun and len(heading["hashes"]) <= depth)):
            if begun:
                phases.append(_phase_of(text, begun, faults))
            begun = []
            depth = len(heading["hashes"])
        if is_phase or begun:
            begun.append(line)
        else:
            outside.append(line)
    if begun:
        phases.append(_phase_of(text, begun, faults))
    accept = _commands(outside, faults)
    numbers = [phase.number for phase in phases]
    doubled = tuple(sorted({number for number in numbers if numbers.count(number) > 1}))
    for number in doubled:
        where = ", ".join(str(phase.line) for phase in phases if phase.number == number)
        faults.append(f"Phase {number} occurs more than once (lines {where}).")
    highest = max(numbers, default=0)
    if missing := sorted({*range(1, highest + 1)} - {*numbers} if highest <= len(numbers) + 20 else ()):
        faults.append(f"There is no phase {', '.join(map(str, missing))}: its heading may be invalid.")
    return Plan(phases=tuple(sorted(phases, key=lambda phase: phase.number)), accept=accept, faults=tuple(faults), doubled=doubled)


def with_phase(text: str, number: int, status: PhaseStatus) -> str:
    """The text with that one marker changed or added. Raises `Misused` if the phase does not exist."""
    phases = read_plan(text).phases
    found = next((phase for phase in phases if phase.number == number), None)
    if found is None:
        raise Misused(
            f"The plan has no phase {number}.", advice=f"Its phases: {', '.join(str(phase.number) for phase in phases) or 'none'}."
        )
    start, end = found.marker
    marker = f"[{status}]"
    return text[:start] + (marker if end > start else f" {marker}") + text[end:]


def _lines(text: str) -> tuple[list[_Line], list[str]]:
    """Lines with code blocks and comments recognised."""
    lines: list[_Line] = []
    start, fence, opened, in_comment = 0, "", 0, False
    for number, words in enumerate(text.split("\n"), 1):
        found = None if in_comment else _FENCE.match(words)
        closes = bool(fence) and found is not None and found["fence"].startswith(fence) and not found["after"].strip()
        opens = not fence and found is not None and not ("`" in found["fence"] and "`" in found["after"])
        comments = not fence and not opens and (in_comment or words.lstrip().startswith("<!--"))
        lines.append(_Line(words, start, number, bool(fence) or opens or comments))
        in_comment = comments and "-->" not in words
        if closes:
            fence = ""
        elif opens and found is not None:
            fence, opened = found["fence"], number
        start += len(words) + 1
    return lines, [f"Line {opened}: this code block is never closed, so nothing below it is read."] if fence else []


def _phase_of(text: str, lines: Sequence[_Line], faults: list[str]) -> Phase:
    head = lines[0]
    found = _PHASE.match(head.text)
    assert found is not None, "a phase begins with its heading"
    number, rest, rest_start = int(found["number"]), found["rest"], head.start + found.start("rest")
    status, (marker_start, marker_end) = _marker_in(rest)
    fields = _fields(lines[1:])
    files = list(_files(fields))
    name = _CLOSING.sub("", (rest[:marker_start] + rest[marker_end:]).strip()).strip(" \t:.-–—")
    name = name.removesuffix("**").removesuffix("__").lstrip("*_").strip(" \t:")
    end = lines[-1].start + len(lines[-1].text)
    return Phase(
        number=number,
        name=name or f"Phase {number}",
        status=status or PhaseStatus.NOT_STARTED,
        goal=_prose(fields, "goal"),
        files=tuple(dict.fromkeys(path for path, _ in files)),
        new_files=tuple(dict.fromkeys(path for path, is_new in files if is_new)),
        accept=_commands(lines[1:], faults, of=f"Phase {number}: "),
        text=text[head.start : end].rstrip(),
        line=head.number,
        marker=(rest_start + marker_start, rest_start + marker_end),
    )


def _marker_in(rest: str) -> tuple[PhaseStatus | None, tuple[int, int]]:
    """The last marker of the heading that is a status; else the place for one."""
    for found in reversed(list(_MARKER.finditer(rest))):
        word = " ".join(re.split(r"[ _-]", found["word"].upper()))
        if status := _STATUSES.get(word):
            return status, found.span("marker")
    plain = _CLOSING.sub("", rest.rstrip()).rstrip()
    return None, (len(plain), len(plain))


def _fields(lines: Sequence[_Line]) -> list[tuple[str, list[str]]]:
    """Each named field with its lines, the rest of its own line first. A paragraph's end ends prose."""
    fields: list[tuple[str, list[str]]] = []
    is_in_field = False
    for line in lines:
        if line.is_code:
            continue
        if found := _FIELD.match(line.text):
            name = found["name"].lower()
            fields.append((_FIELDS.get(name, name), [found["value"]]))
            is_in_field = True
        elif _OTHER_FIELD.match(line.text) or _HEADING.match(line.text):
            is_in_field = False
        elif is_in_field:
            fields[-1][1].append(line.text)
    return fields


def _prose(fields: Sequence[tuple[str, list[str]]], name: str) -> str:
    """The first field of that name as one line: its text up to a blank line or a list."""
    words: list[str] = []
    for line in next((body for one, body in fields if one == name), []):
        if words and (not line.strip() or _ITEM.match(line)):
            break
        words += line.split()
    return " ".join(words)


def _items(fields: Sequence[tuple[str, list[str]]], name: str) -> Iterator[str]:
    for one, body in fields:
        if one == name:
            yield from (words for words in (body[0].strip(),) if words)
            yield from (found["words"].strip() for line in body[1:] if (found := _ITEM.match(line)))


def _files(fields: Sequence[tuple[str, list[str]]]) -> Iterator[tuple[str, bool]]:
    """Paths after `Files:`, in backticks or between commas, and whether `(new)` follows."""
    for words in _items(fields, "files"):
        codes = list(_CODE.finditer(words))
        named = [(code["code"], code.end()) for code in codes] or [(one, len(words)) for one in words.split(",")]
        for name, end in named:
            is_new = name.rstrip().lower().endswith("(new)")
            path = name.rstrip()[: -len("(new)")].strip() if is_new else name.strip()
            if path.lower().strip(".") not in ("none", "-", ""):
                yield path, is_new or _NEW.match(words, end) is not None


def _commands(lines: Sequence[_Line], faults: list[str], *, of: str = "") -> tuple[str, ...]:
    """Commands in backticks after `Accept:`, on its line or as a list below. Other text is reported, never run."""
    commands: dict[str, None] = {}
    fields = [field for field in _fields(lines) if field[0] == "accept"]
    empty = sum(not any(_items([field], "accept")) for field in fields)
    faults += [f"{of}`Accept:` names no command: write it in backticks on the same line."] * empty
    for words in _items(fields, "accept"):
        found = [command for code in _CODE.finditer(words) if (command := code["code"].strip())]
        commands |= dict.fromkeys(found)
        if not found and words.lower().strip(".") not in ("none", "-"):
            faults.append(f"{of}`Accept: {words}` is not a command; to run it, write it in backticks.")
    return tuple(commands)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListItem:
    """An item of a Markdown list outside quotations and code."""

    text: str
    parts: tuple[str, ...] = ()
    """The items of a list below it."""
    is_numbered: bool = False


def list_items(text: str) -> list[ListItem]:
    """The items of the top-level lists of a Markdown text, unchanged."""
    from markdown_it import MarkdownIt  # imported here: commands that read no list do not load it

    lines = re.sub(r"\r\n?", "\n", text).split("\n")
    found: list[ListItem] = []
    tokens = MarkdownIt("commonmark").parse(text)
    is_numbered = False
    for at, token in enumerate(tokens):
        if token.level == 0 and token.type.endswith("_list_open"):
            is_numbered = token.type == "ordered_list_open"
        if token.type != "list_item_open" or token.level != 1 or not token.map:
            continue
        own = list(itertools.takewhile(lambda one: one.level > 1, tokens[at + 1 :]))
        below = next((one.map[0] for one in own if one.level == 2 and one.type.endswith("_list_open") and one.map), token.map[1])
        parts = [
            _item_text(lines[one.map[0] : one.map[1]], one.info)
            for one in own
            if one.type == "list_item_open" and one.level == 3 and one.map
        ]
        words = _item_text(lines[token.map[0] : below], token.info)
        if words or parts:
            found.append(ListItem(text=words or parts.pop(0), parts=tuple(parts), is_numbered=is_numbered))
    return found


def _item_text(lines: Sequence[str], number: str) -> str:
    """Without the marker of the item and its checkbox."""
    words = " ".join(line.strip() for line in lines if line.strip())[len(number) + 1 :].strip()
    return re.sub(r"^\[[ xX]\]\s+", "", words)


# ---- the check of a plan that an agent wrote, before it is filed: phases, files, acceptance commands. Reads the project, runs nothing


MAX_FAULTS = 20
SHOWN_CHARACTERS = 200
_SHELL_WORDS = "! . : [ cd command echo eval exec exit export false for if printf set test trap true umask unset until while {"
BUILTINS = frozenset(_SHELL_WORDS.split())
"""Common commands and reserved words of sh, which are no programs."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


def plan_faults(root: Path, text: str, old: str = "") -> tuple[str, ...]:
    """Faults, one sentence each, at most `MAX_FAULTS`. `old`: the revised plan, whose own faults do not count. Blocking."""
    plan, inherited = read_plan(text), frozenset(read_plan(old).faults)
    faults = [fault for fault in plan.faults if fault not in inherited]
    if not plan.phases:
        faults.insert(0, "No phase can be read: write `### Phase 1: Name [NOT STARTED]`.")
    faults += [f"Phase {phase.number} has no goal." for phase in plan.open_phases if not phase.goal]
    new = {os.path.normpath(path) for phase in plan.phases for path in phase.new_files}
    faults += [*_file_faults(root, plan, new), *_command_faults(root, plan, new)]
    return tuple(one_line(fault, 2 * SHOWN_CHARACTERS) for fault in faults[:MAX_FAULTS])


def _file_faults(root: Path, plan: Plan, new: set[str]) -> Iterator[str]:
    for phase in plan.open_phases:
        for path in phase.files:
            where, name = os.path.normpath(path), one_line(path, SHOWN_CHARACTERS)
            if os.path.isabs(where) or where.split(os.sep)[0] == "..":
                yield f"Phase {phase.number} names the file `{name}`, which is not a path inside the project."
            elif where not in new and not _exists(root, where):
                yield f"Phase {phase.number} names the file `{name}`, which does not exist: correct it, or mark it with (new) behind it."


def _exists(root: Path, path: str) -> bool:
    """For a pattern, checks the folder before its first asterisk."""
    try:
        return (root / path.partition("*")[0].rpartition("/")[0] if "*" in path else root / path).exists()
    except OSError:  # too long
        return False


def _command_faults(root: Path, plan: Plan, new: set[str]) -> Iterator[str]:
    commands = [(f"Phase {phase.number}", one) for phase in plan.open_phases for one in phase.accept]
    for where, command in (*commands, *(("The plan", one) for one in plan.accept)):
        shown = one_line(command, SHOWN_CHARACTERS)
        words = shlex.shlex(command, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        try:
            program = next((one for one in list(words) if one != "!" and not _ASSIGNMENT.match(one) and one.strip("();<>|&")), "")
        except ValueError as error:
            yield f"{where}: the acceptance command `{shown}` cannot be parsed: {error}."
            continue
        if not program:
            yield f"{where}: the acceptance command `{shown}` runs no program."
        elif not _is_known(root, program, new):
            name = one_line(program, SHOWN_CHARACTERS)
            yield f"{where}: the program `{name}` of the acceptance command `{shown}` is neither on PATH nor in the project."


def _is_known(root: Path, program: str, new: set[str]) -> bool:
    if program in BUILTINS or program[0] in "$`~":  # only the shell knows
        return True
    if "/" not in program:
        return shutil.which(program) is not None
    return os.path.normpath(program) in new or shutil.which(os.path.join(root, program)) is not None
