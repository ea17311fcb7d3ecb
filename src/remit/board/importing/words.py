"""Values as older boards and people write them, read patiently: markers, numbers, dates, priorities. Pure; None: it says nothing to us."""

import re
from datetime import date, datetime
from typing import Any

from remit.board.statuses import Status
from remit.board.task import Priority
from remit.board.todo_lines import NUMBER_LIMIT

S = Status
_WORDS: dict[Status, str] = {
    S.NOT_STARTED: "not_started, notstarted, todo, to_do, open, new, pending, backlog, ready, created, queued, not_yet_started",
    S.RESEARCHING: "researching, research_in_progress, in_research, research_started, research",
    S.RESEARCHED: "researched, research_completed, research_complete, completed_research, research_done",
    S.PLANNING: "planning, planning_in_progress, plan_in_progress, in_planning, plan_started",
    S.PLANNED: "planned, plan_completed, plan_complete, completed_plan, completed_planning, planning_completed, plan_ready, plan_created",
    S.REVISING: "revising, revision_in_progress, plan_revision_in_progress",
    S.REVISED: "revised, revision_completed, completed_revision, plan_revised",
    S.IMPLEMENTING: "implementing, in_progress, inprogress, implementation_in_progress, in_implementation, started, active, wip, "
    "doing, ongoing",
    S.PARTIAL: "partial, partially_completed, partially_complete, partially_done, implementation_partial",
    S.BLOCKED: "blocked, on_hold, onhold, waiting, paused, stuck",
    S.EXPANDED: "expanded, divided, split",
    S.ABANDONED: "abandoned, cancelled, canceled, dropped, wontfix, wont_fix, wont_do, rejected, obsolete",
    S.COMPLETED: "completed, complete, done, finished, closed, resolved, implemented, implementation_completed, completed_implementation, "
    "x, merged",
}  # fmt: skip
FURTHER = tuple(_WORDS)
"""From the beginning to the end: of two statuses the later counts."""
_STATUSES = {word: status for status, words in _WORDS.items() for word in words.split(", ")}
_SIGNS = {
    "✅": S.COMPLETED, "✔": S.COMPLETED, "☑": S.COMPLETED, "❌": S.ABANDONED, "🚫": S.BLOCKED, "⛔": S.BLOCKED, "🚧": S.IMPLEMENTING,
    "🔄": S.IMPLEMENTING, "⏳": S.IMPLEMENTING, "⏸": S.BLOCKED, "🔬": S.RESEARCHING, "📋": S.PLANNED, "☐": S.NOT_STARTED,
    "⬜": S.NOT_STARTED,
}  # fmt: skip
_PRIORITIES = {
    **dict.fromkeys(("high", "critical", "urgent", "highest", "p0", "p1", "1"), Priority.HIGH),
    **dict.fromkeys(("medium", "normal", "moderate", "med", "p2", "2"), Priority.MEDIUM),
    **dict.fromkeys(("low", "lowest", "minor", "p3", "p4", "3"), Priority.LOW),
}
_MARKER = re.compile(r"\[([^\[\]]*)\]")
_NUMBER = re.compile(r"(?:task\s*)?#?0*(\d{1,6})(?:\.0)?", re.IGNORECASE)


def status_in(text: Any) -> tuple[Status | None, str]:
    """A status however it is written, and the words around it: `[COMPLETED] (at last)`, `in_progress`, `✅ done`, `[x]`."""
    if not isinstance(text, str):
        return None, "" if text is None else str(text)
    rest = text.replace("\ufe0f", "")
    sign = next((sign for sign in _SIGNS if sign in rest), "")
    rest = rest.replace(sign, " ") if sign else rest
    found = _MARKER.search(rest)
    if found:
        status = S.NOT_STARTED if not found[1].strip() else _STATUSES.get(_key(found[1]))
        if status is not None:
            return status, f"{rest[: found.start()]} {rest[found.end() :]}".strip(" -:")
    status = _STATUSES.get(_key(rest))
    if status is not None:
        return status, ""
    return (_SIGNS[sign], rest.strip()) if sign else (None, rest.strip())


def _key(text: str) -> str:
    return re.sub(r"[\s\-/]+", "_", text.strip().strip("[]*`_.!").strip().lower())


def further(one: Status, other: Status) -> Status:
    return max(one, other, key=FURTHER.index)


def number_in(value: Any) -> int | None:
    """12, "12", "012", "#12", "Task 12", 12.0."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and not value.is_integer():
        return None
    found = _NUMBER.fullmatch(str(value).strip())
    number = int(found[1]) if found else 0
    return number if 0 < number <= NUMBER_LIMIT else None


def priority_in(value: Any) -> Priority | None:
    return _PRIORITIES.get(str(value).strip().strip("[]*`").removesuffix("priority").strip().lower()) if value is not None else None


def time_in(value: Any) -> str | None:
    """A time or day that exists, as it is written."""
    if not isinstance(value, str):
        return None
    text = value.strip()
    try:
        if len(text) == len("2026-01-31"):
            date.fromisoformat(text)
        else:
            datetime.fromisoformat(text)
    except ValueError:
        return None
    return text
