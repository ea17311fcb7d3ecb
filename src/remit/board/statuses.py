"""The statuses of tasks and phases, and the legal moves between them."""

from collections.abc import Mapping
from enum import StrEnum

from remit.core.errors import Misused, Refused


class Status(StrEnum):
    """As state.json spells it; `marker` is how TODO.md does."""

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
"""ABANDONED → NOT STARTED is `task --recover` alone. COMPLETED and EXPANDED are final."""

BEGINS: Mapping[str, Status] = {
    "research": S.RESEARCHING,
    "plan": S.PLANNING,
    "revise": S.REVISING,
    "implement": S.IMPLEMENTING,
}
"""The marker a command sets while it works."""
DONE: Mapping[Status, Status] = {
    S.RESEARCHING: S.RESEARCHED,
    S.PLANNING: S.PLANNED,
    S.REVISING: S.REVISED,
    S.IMPLEMENTING: S.COMPLETED,
}
IN_PROGRESS = frozenset(DONE)
NEED_REASON = frozenset({S.BLOCKED, S.ABANDONED})
ENDED = frozenset({S.COMPLETED, S.ABANDONED, S.EXPANDED})
"""Nothing more is to be done; `todo` archives the first two."""


class PhaseStatus(StrEnum):
    """Of a phase of a plan, as it stands there in brackets."""

    NOT_STARTED = "NOT STARTED"
    IN_PROGRESS = "IN PROGRESS"
    COMPLETED = "COMPLETED"
    PARTIAL = "PARTIAL"
    BLOCKED = "BLOCKED"
    ABANDONED = "ABANDONED"


def status_of(text: str) -> Status:
    """Read however it is written: `[NOT STARTED]`, `not_started`, `Not Started`. Raises `Misused`."""
    word = text.strip().strip("[]").strip().lower().replace(" ", "_").replace("-", "_")
    try:
        return Status(word)
    except ValueError:
        known = ", ".join(status.marker for status in Status)
        raise Misused(f"Unknown status {text.strip()!r}.", advice=f"Use one of {known}.") from None


def is_legal(old: Status, new: Status) -> bool:
    return new in MOVES[old]


def check_move(number: int, old: Status, new: Status, *, reason: str = "") -> None:
    """Raises `Refused` with the allowed moves; BLOCKED and ABANDONED need a reason."""
    if not is_legal(old, new):
        allowed = ", ".join(f"[{move.marker}]" for move in MOVES[old]) or "none: it is final"
        raise Refused(
            f"Task {number} is [{old.marker}] and cannot become [{new.marker}]. Allowed: {allowed}.",
            code="INVALID_STATUS_TRANSITION",
            advice="Use --force to skip this check." if new in IN_PROGRESS else "",
        )
    if new in NEED_REASON and not reason.strip():
        raise Misused(f"[{new.marker}] needs a reason.", advice="Give one with --reason.")
