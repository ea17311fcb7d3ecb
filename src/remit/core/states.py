"""The states of a delegation in the registry, and its priority."""

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
        return self not in LIVE


LIVE = frozenset({State.QUEUED, State.RUNNING})


class Priority(IntEnum):
    """Order of execution when all slots are busy."""

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
    """Parse a name or a number; None or 0 is normal."""
    key = value.lower() if isinstance(value, str) else value
    try:
        if isinstance(value, bool):
            raise KeyError(value)
        return _PRIORITIES[key]
    except (KeyError, TypeError):
        raise Misused(f"Unknown priority {value!r}.", code="INVALID_PARAMETERS", advice="Use low, normal, high or critical.") from None
