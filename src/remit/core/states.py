"""The states of a delegation in the registry, and the one table of moves between them."""

from enum import IntEnum, StrEnum

from remit.core.errors import Misused


class State(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    PARTIAL = "partial"
    FAILED = "failed"
    BLOCKED = "blocked"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    REFUSED = "refused"

    @property
    def is_settled(self) -> bool:
        return not MOVES[self]


_ENDS = frozenset({State.COMPLETED, State.PARTIAL, State.FAILED, State.BLOCKED, State.TIMEOUT, State.CANCELLED})

MOVES: dict[State, frozenset[State]] = {
    State.QUEUED: _ENDS - {State.COMPLETED} | {State.RUNNING, State.REFUSED},
    # Back to the queue only when a crashed caller's delegation is resumed; refused when the person who was asked said no.
    State.RUNNING: _ENDS | {State.QUEUED, State.REFUSED},
    **{state: frozenset() for state in (*_ENDS, State.REFUSED)},
}

LIVE = frozenset({State.QUEUED, State.RUNNING})


def move(before: State, after: State) -> State:
    """`after`, if the table allows the move."""
    if after not in MOVES[before]:
        allowed = ", ".join(sorted(MOVES[before])) or "nothing: it is settled"
        raise Misused(f"A delegation cannot go from {before} to {after}.", advice=f"Allowed: {allowed}.")
    return after


class Priority(IntEnum):
    """Who runs next when slots are full."""

    LOW = 1
    NORMAL = 2
    HIGH = 3
    CRITICAL = 4


_PRIORITIES: dict[object, Priority] = {
    **{p.name.lower(): p for p in Priority},
    **{int(p): p for p in Priority},
    0: Priority.NORMAL,
    None: Priority.NORMAL,
}


def priority_of(value: object) -> Priority:
    """From a name or a number; nothing, or 0, is normal."""
    key = value.lower() if isinstance(value, str) else value
    try:
        if isinstance(value, bool):
            raise KeyError(value)
        return _PRIORITIES[key]
    except (KeyError, TypeError):
        raise Misused(f"Unknown priority {value!r}.", code="INVALID_PARAMETERS", advice="Use low, normal, high or critical.") from None
