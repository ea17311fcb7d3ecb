"""What a person changed in the block of one task, taken over by the rules of the board (S6.1, S6.4). Pure; used by `todo_merging`.

What cannot be taken is told in a sentence and kept in the block as a comment, `<!-- remit kept: … -->`: said once, lost never.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

from remit.board.statuses import IN_PROGRESS, MOVES, NEED_REASON, Status, is_legal, status_of
from remit.board.task import Priority, Task
from remit.board.todo_reading import Written
from remit.core.errors import Misused

KEPT = "<!-- remit kept: "
_RANGE = re.compile(r"#?(\d{1,6})\s*(?:-|–|to|\.\.)\s*#?(\d{1,6})")
_NUMBER = re.compile(r"#?\b(\d{1,6})\b")
_FILLING = re.compile(r"\b(?:tasks?|and|none|no|nothing)\b|[\s,;&.\-–()\[\]]+", re.IGNORECASE)
_MARKER = re.compile(r"(\[[^\]]*\])\s*(\S.*)$")
_RANGE_LIMIT = 100
_SHOWN = 120


class Edit:
    """The edits of one task while they are taken over."""

    def __init__(self, task: Task, *, at: str, base: Written | None) -> None:
        """`base`: what its block said before; None: the task is new."""
        self.task = task
        self.at = at
        self.before = base if base is not None else Written(fields={})
        self.is_new = base is None
        self.taken: list[str] = []
        self.kept: list[str] = []

    def take(self, what: str, name: str = "", /, **fields: object) -> None:
        """Set fields; an older comment about the same line has had its answer."""
        lines = tuple(line for line in self.task.lines if not name or not line.startswith(f"{KEPT}{name}: "))
        self.task = replace(self.task, **{"lines": lines, "last_updated": self.at, **fields})  # type: ignore[arg-type]
        if not self.is_new:
            self.taken.append(f"Task {self.task.number}: {what}")

    def keep(self, name: str, value: str, why: str) -> None:
        """Tell, and leave the words in the block."""
        words = f"{name}: {value or '(nothing)'}: {why}".replace("-->", "-- >").replace("\n", " ")
        comment = f"{KEPT}{words} -->"
        if comment not in self.task.lines:
            self.task = replace(self.task, lines=(*self.task.lines, comment))
        self.kept.append(f"Task {self.task.number}: {name} {_short(value)!r} was not taken over: {why}")

    def value(self, written: Written, name: str) -> str | None:
        """What the person made of a line; None: they left it alone."""
        value = written.fields.get(name)
        if value == self.before.fields.get(name):
            return None
        return value if value is not None else ""


def apply_title(edit: Edit, title: str, before: str) -> None:
    if title and title != before and title != edit.task.title:
        edit.take(f"title {_short(title)!r}", title=title)


def apply_lines(edit: Edit, written: Written) -> None:
    """Lines nobody knows. Those that came to the task meanwhile stay."""
    if written.lines == edit.before.lines:
        return
    more = tuple(line for line in edit.task.lines if line.strip() and line not in edit.before.lines and line not in written.lines)
    edit.take("lines of its own", lines=(*written.lines, *more))


def apply_description(edit: Edit, written: Written) -> None:
    if bare(written.description) != bare(edit.before.description) and written.description != edit.task.description:
        edit.take("description", description=written.description)


def apply_plain(edit: Edit, written: Written) -> None:
    effort = edit.value(written, "Effort")
    if effort is not None and effort != edit.task.effort:
        edit.take(f"effort {_short(effort)!r}", "Effort", effort=effort)
    language = edit.value(written, "Language")
    if language is not None and (language or None) != edit.task.language:
        edit.take(f"language {_short(language)!r}", "Language", language=language or None)
    for name, attribute in (("Started", "started"), ("Completed", "completed")):
        day = edit.value(written, name)
        if day is None or day == getattr(edit.task, attribute):
            continue
        if _is_day(day):
            edit.take(f"{attribute} {day}", name, **{attribute: day})
        elif day:
            edit.keep(name, day, "it is no date. Write it as 2026-01-31.")
        else:
            edit.kept.append(f"Task {edit.task.number}: the line {name} is drawn again.")
    for name in ("Research", "Plan", "Implementation"):
        links = edit.value(written, name)
        if links:
            edit.keep(name, links, "links are drawn from the artifacts in state.json.")
        elif links is not None:
            edit.kept.append(f"Task {edit.task.number}: the line {name} is drawn again from its artifacts.")
    for name, value in written.again:
        if (name, value) not in edit.before.again:
            edit.keep(name, value, f"the block has another line {name}, which counts.")


def apply_priority(edit: Edit, written: Written, section: Priority | None) -> None:
    """`section`: the one it was moved to; None: it was not. Where both say something else, the section counts."""
    line = edit.value(written, "Priority")
    said = _priority_of(line) if line else None
    if line and said is None and section is None:
        edit.keep("Priority", line, "use High, Medium or Low.")
    wanted = section or said
    if section and line and said is not section and not (edit.is_new and said is None and not line):
        edit.keep("Priority", line, f"it stands under {section.capitalize()} Priority, and the section counts.")
    if wanted and wanted is not edit.task.priority:
        edit.take(f"priority {wanted.capitalize()}", "" if section and line else "Priority", priority=wanted)


def apply_status(edit: Edit, written: Written) -> None:
    reason = written.fields.get("Blocking Reason", "").strip()
    line = edit.value(written, "Status")
    marker, more = _split_marker(line or "")
    new = _status_of(marker) if line else None
    old = edit.task.status
    if line and new is None:
        known = ", ".join(status.marker for status in Status)
        edit.keep("Status", line, f"unknown. Use one of {known}.")
    elif line and new is not None and new is not old:
        _move(edit, marker, old, new, reason)
    elif line == "" and not edit.is_new:
        edit.kept.append(f"Task {edit.task.number}: the line Status is drawn again: [{old.marker}].")
    if new is not None and more:
        edit.keep("Status", more, "only the marker in brackets counts. Put other words into the description.")
    _apply_reason(edit, written)


def _move(edit: Edit, line: str, old: Status, new: Status, reason: str) -> None:
    number = edit.task.number
    if old is Status.ABANDONED and new is Status.NOT_STARTED:
        edit.keep("Status", line, f"Task {number} is [{old.marker}]. Use `remit task --recover {number}`.")
    elif not may_become(old, new):
        allowed = ", ".join(f"[{move.marker}]" for move in MOVES[old]) or "none: it is final"
        edit.keep("Status", line, f"Task {number} is [{old.marker}] and cannot become [{new.marker}]. Allowed: {allowed}.")
    elif new in NEED_REASON and not reason:
        edit.keep("Status", line, f"[{new.marker}] needs a reason. Set it again together with a line `- **Blocking Reason**: …`.")
    else:
        moved = edit.task.moved(new, at=edit.at, reason=reason)
        edit.take(
            f"[{old.marker}] → [{new.marker}]", "Status",
            status=new, started=moved.started, completed=moved.completed, blocking_reason=moved.blocking_reason,
        )  # fmt: skip


def may_become(old: Status, new: Status) -> bool:
    """Legal at once, or through the marker a person has no reason to write: PLANNED → (IMPLEMENTING) → COMPLETED."""
    if old is Status.ABANDONED:
        return False
    return is_legal(old, new) or any(between in IN_PROGRESS and is_legal(between, new) for between in MOVES[old])


def _apply_reason(edit: Edit, written: Written) -> None:
    reason = edit.value(written, "Blocking Reason")
    if reason is None or reason == edit.task.blocking_reason:
        return
    status = edit.task.status
    if status in NEED_REASON and reason:
        edit.take("blocking reason", "Blocking Reason", blocking_reason=reason)
    elif status in NEED_REASON:
        edit.kept.append(f"Task {edit.task.number}: [{status.marker}] needs a reason; the line Blocking Reason is drawn again.")
    elif reason:
        edit.keep("Blocking Reason", reason, f"Task {edit.task.number} is [{status.marker}]. Set its status with the reason.")


def apply_dependencies(edit: Edit, written: Written, needs: Mapping[int, Collection[int]], taken_numbers: Collection[int]) -> None:
    """`needs`: what each task of the board depends on; `taken_numbers`: of the archive."""
    line = edit.value(written, "Dependencies")
    if line is None:
        return
    numbers, words = dependencies_of(line)
    number = edit.task.number
    circular = [one for one in numbers if one == number or _leads_to(one, number, needs)]
    if circular:
        told = ", ".join(map(str, circular))
        edit.keep("Dependencies", line, f"Task {number} would depend on itself through {told}. Leave out one of them.")
        return
    if words:
        edit.keep("Dependencies", line, "only task numbers count. Write them as `3, 7`.")
    if numbers != edit.task.dependencies:
        edit.take(f"dependencies {', '.join(map(str, numbers)) or 'none'}", "" if words else "Dependencies", dependencies=numbers)
    missing = [one for one in numbers if one not in needs and one not in taken_numbers]
    if missing:
        edit.kept.append(
            f"Task {number} depends on {', '.join(map(str, missing))}, which the board does not have. It is kept; correct it in TODO.md."
        )


def dependencies_of(line: str) -> tuple[tuple[int, ...], str]:
    """Numbers, and the words that are none."""
    found: list[int] = []

    def spread(match: re.Match[str]) -> str:
        first, last = int(match[1]), int(match[2])
        if not 0 <= last - first <= _RANGE_LIMIT:
            return match[0]
        found.extend(range(first, last + 1))
        return " "

    rest = _RANGE.sub(spread, line)
    found += [int(number) for number in _NUMBER.findall(rest)]
    return tuple(dict.fromkeys(number for number in found if number)), _FILLING.sub("", _NUMBER.sub("", rest))


def _leads_to(start: int, goal: int, needs: Mapping[int, Collection[int]]) -> bool:
    seen: set[int] = set()
    todo = [start]
    while todo:
        one = todo.pop()
        if one == goal:
            return True
        if one not in seen:
            seen.add(one)
            todo += needs.get(one, ())
    return False


def _split_marker(line: str) -> tuple[str, str]:
    """`[PLANNED] waits for Bob` → the marker, and the words behind it."""
    found = _MARKER.match(line)
    return (found[1], found[2]) if found else (line, "")


def _status_of(line: str) -> Status | None:
    try:
        return status_of(line.strip().strip("`*"))
    except Misused:
        return None


def _priority_of(line: str) -> Priority | None:
    word = line.strip().strip("[]`*").strip().lower()
    return Priority(word) if word in tuple(Priority) else None


def _is_day(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return len(text) >= len("2026-01-31")


def bare(text: str) -> list[str]:
    """Without what an editor may take from the ends of lines: that is no edit."""
    return [line.rstrip() for line in text.split("\n")]


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
