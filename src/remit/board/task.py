"""A task and the whole board as immutable values. Unknown keys of state.json are kept in `extra`."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from remit.core.errors import Misused, Refused

# ---- The statuses of tasks and phases, and the legal moves between them.


class Status(StrEnum):
    """As in state.json; `marker` is the form in TODO.md."""

    NOT_STARTED = "not_started"
    RESEARCHING = "researching"
    RESEARCHED = "researched"
    PLANNING = "planning"
    PLANNED = "planned"
    REVISING = "revising"
    REVISED = "revised"
    IMPLEMENTING = "implementing"
    COMPLETED = "completed"
    PARTIAL = "partial"
    BLOCKED = "blocked"
    ABANDONED = "abandoned"
    EXPANDED = "expanded"

    @property
    def marker(self) -> str:
        return self.upper().replace("_", " ")


S = Status
MOVES: Mapping[Status, tuple[Status, ...]] = {
    S.NOT_STARTED: (S.RESEARCHING, S.PLANNING, S.IMPLEMENTING, S.BLOCKED, S.ABANDONED, S.EXPANDED),
    S.RESEARCHING: (S.RESEARCHED, S.BLOCKED, S.ABANDONED),
    S.RESEARCHED: (S.RESEARCHING, S.PLANNING, S.IMPLEMENTING, S.BLOCKED, S.ABANDONED),
    S.PLANNING: (S.PLANNED, S.BLOCKED, S.ABANDONED),
    S.PLANNED: (S.REVISING, S.IMPLEMENTING, S.BLOCKED, S.ABANDONED),
    S.REVISING: (S.REVISED, S.BLOCKED, S.ABANDONED),
    S.REVISED: (S.IMPLEMENTING, S.REVISING, S.BLOCKED, S.ABANDONED),
    S.IMPLEMENTING: (S.COMPLETED, S.PARTIAL, S.BLOCKED, S.ABANDONED),
    S.PARTIAL: (S.IMPLEMENTING, S.COMPLETED, S.REVISING, S.PLANNING, S.ABANDONED),
    S.BLOCKED: (S.RESEARCHING, S.PLANNING, S.REVISING, S.IMPLEMENTING, S.ABANDONED),
    S.ABANDONED: (S.NOT_STARTED,),
    S.EXPANDED: (),
    S.COMPLETED: (),
}
"""ABANDONED → NOT STARTED only through `task --recover`. COMPLETED and EXPANDED are final."""

BEGINS: Mapping[str, Status] = {
    "research": S.RESEARCHING,
    "plan": S.PLANNING,
    "revise": S.REVISING,
    "implement": S.IMPLEMENTING,
}
"""The marker that a command sets while it works."""
DONE: Mapping[Status, Status] = {
    S.RESEARCHING: S.RESEARCHED,
    S.PLANNING: S.PLANNED,
    S.REVISING: S.REVISED,
    S.IMPLEMENTING: S.COMPLETED,
}
IN_PROGRESS = frozenset(DONE)
NEED_REASON = frozenset({S.BLOCKED, S.ABANDONED})
ENDED = frozenset({S.COMPLETED, S.ABANDONED, S.EXPANDED})
"""Nothing more to do; `todo` archives the first two."""


class PhaseStatus(StrEnum):
    """Status of a phase of a plan, as written in brackets."""

    NOT_STARTED = "NOT STARTED"
    IN_PROGRESS = "IN PROGRESS"
    COMPLETED = "COMPLETED"
    PARTIAL = "PARTIAL"
    BLOCKED = "BLOCKED"
    ABANDONED = "ABANDONED"


def status_of(text: str) -> Status:
    """Parse any spelling: `[NOT STARTED]`, `not_started`, `Not Started`. Raises `Misused`."""
    word = text.strip().strip("[]").strip().lower().replace(" ", "_").replace("-", "_")
    try:
        return Status(word)
    except ValueError:
        known = ", ".join(status.marker for status in Status)
        raise Misused(f"Unknown status {text.strip()!r}.", advice=f"Use one of {known}.") from None


def is_legal(old: Status, new: Status) -> bool:
    return new in MOVES[old]


def check_move(number: int, old: Status, new: Status, *, reason: str = "") -> None:
    """Raise `Refused` with the allowed moves; BLOCKED and ABANDONED need a reason."""
    if not is_legal(old, new):
        allowed = ", ".join(f"[{move.marker}]" for move in MOVES[old]) or "none: it is final"
        raise Refused(
            f"Task {number} is [{old.marker}] and cannot become [{new.marker}]. Allowed: {allowed}.",
            code="INVALID_STATUS_TRANSITION",
            advice="Use --force to skip this check." if new in IN_PROGRESS else "",
        )
    if new in NEED_REASON and not reason.strip():
        raise Misused(f"[{new.marker}] needs a reason.", advice="Give one with --reason.")


# ---- A task and the whole board as immutable values. Unknown keys of state.json are kept in `extra`.


SCHEMA_VERSION = "1.1.0"
SLUG_LENGTH = 50
ACTIVITIES_KEPT = 100


class Priority(StrEnum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"

    @classmethod
    def parse(cls, text: str) -> "Priority | None":
        """The priority that a person wrote; None: unknown."""
        word = text.strip().strip("[]`*").strip().lower()
        return cls(word) if word in tuple(cls) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskArtifact:
    type: str
    """research (report), plan, implementation, summary, …"""
    path: str
    """Relative to the project's root."""
    summary: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanVersion:
    version: int
    path: str
    created: str = ""
    reason: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


LANDING = "landing"
"""Key of a task in state.json."""
LANDING_LINES = 10
LANDING_CHARACTERS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    number: int
    title: str
    slug: str
    type: str = "feature"
    status: Status = Status.NOT_STARTED
    priority: Priority = Priority.MEDIUM
    language: str | None = None
    """None: unspecified; treated as `general`, with a warning."""
    description: str = ""
    effort: str = ""
    dependencies: tuple[int, ...] = ()
    created: str = ""
    started: str = ""
    completed: str = ""
    """Times in UTC, ISO 8601, seconds."""
    last_updated: str = ""
    blocking_reason: str = ""
    """Also why it was abandoned."""
    artifacts: tuple[TaskArtifact, ...] = ()
    plan_path: str = ""
    plan_versions: tuple[PlanVersion, ...] = ()
    session_id: str = ""
    """Session of the delegation that works or last worked on it."""
    completion_summary: str = ""
    accept: tuple[str, ...] = ()
    """Commands that must exit 0 for its work to count as done."""
    complexity: str = ""
    """simple, moderate, complex; empty: derived from the task."""
    parent: int | None = None
    """The task it was divided from."""
    source: str = ""
    """Its origin: a review report, an error of the ledger."""
    lines: tuple[str, ...] = ()
    """Unknown lines of its block in TODO.md: kept and drawn again."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Unknown keys of its entry in state.json."""

    @property
    def folder(self) -> str:
        """Relative to the project's root."""
        return f"specs/{self.number:03d}_{self.slug}"

    @property
    def has_plan(self) -> bool:
        return bool(self.plan_path)

    @property
    def reports(self) -> tuple[str, ...]:
        """Paths of its studies, the oldest first."""
        return tuple(dict.fromkeys(one.path for one in self.artifacts if one.type in ("research", "report")))

    @property
    def landing(self) -> tuple[str, ...]:
        """How its work landed, was handed back, or why it did not land: a sentence each, the oldest first."""
        return texts_of(self, LANDING)

    def with_landing(self, lines: Iterable[str]) -> "Task":
        kept = dict.fromkeys((*self.landing, *(" ".join(line.split())[:LANDING_CHARACTERS] for line in lines)))
        return replace(self, extra={**self.extra, LANDING: list(kept)[-LANDING_LINES:]}) if kept else self

    def moved(self, status: Status, *, at: str, reason: str = "") -> "Task":
        """The task with the times and the reason of a status; `statuses.check_move` checks whether the move is legal."""
        is_first = not self.started and status is not Status.NOT_STARTED and status not in NEED_REASON
        return replace(
            self,
            status=status,
            started=at if is_first else self.started,
            completed=at if status is Status.COMPLETED else self.completed,
            blocking_reason=reason if status in NEED_REASON else "",
            last_updated=at,
        )


def texts_of(task: Task, key: str) -> tuple[str, ...]:
    """A list of texts among its unknown keys; empty if it is something else."""
    kept = task.extra.get(key)
    return tuple(map(str, kept)) if isinstance(kept, list | tuple) else ()


def linked_files(task: Task) -> tuple[str, ...]:
    """Paths of its artifacts and its plan."""
    return tuple(dict.fromkeys([*(one.path for one in task.artifacts), *([task.plan_path] if task.plan_path else [])]))


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The board. Tasks are in the order in which TODO.md draws them within their priority."""

    tasks: tuple[Task, ...] = ()
    next_number: int = 1
    completed: tuple[Mapping[str, Any], ...] = ()
    """`completed_projects`, unchanged."""
    activities: tuple[Mapping[str, Any], ...] = ()
    """`recent_activities`, the newest first."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """A person's own text between tasks, by position (`todo` names them)."""
    last_updated: str = ""
    schema_version: str = SCHEMA_VERSION
    extra: Mapping[str, Any] = field(default_factory=dict)

    def find(self, number: int) -> Task | None:
        return next((task for task in self.tasks if task.number == number), None)

    def task(self, number: int) -> Task:
        """Raises `Misused`: "Task N not found"."""
        found = self.find(number)
        if found is None:
            raise Misused(f"Task {number} not found", advice="`remit board` lists the tasks, `remit board --all` the archive too.")
        return found

    def with_task(self, task: Task) -> "State":
        """In its place, or at the end if it is new."""
        return self.with_tasks((task,))

    def with_tasks(self, tasks: Iterable[Task]) -> "State":
        """Each in its place, or at the end if new: for commands that change many."""
        merged = {task.number: task for task in (*self.tasks, *tasks)}
        return replace(self, tasks=tuple(merged.values()), next_number=max(self.next_number, *(number + 1 for number in merged), 1))

    def without(self, numbers: Iterable[int]) -> "State":
        gone = set(numbers)
        return replace(self, tasks=tuple(task for task in self.tasks if task.number not in gone))

    def noting(self, at: str, text: str, **more: Any) -> "State":
        """The board with one more recent activity."""
        return replace(self, activities=({"timestamp": at, "activity": text, **more}, *self.activities)[:ACTIVITIES_KEPT])


def slug_of(title: str) -> str:
    """`Fix the parser's café bug` → `fix_the_parsers_cafe_bug`: lower-case words of ASCII, at most 50 characters, cut between words."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower().replace("'", "")
    slug = "_".join(re.findall(r"[a-z0-9]+", plain))
    if len(slug) > SLUG_LENGTH:
        slug = slug[: SLUG_LENGTH + 1].rpartition("_")[0] or slug[:SLUG_LENGTH]
    return slug or "task"
