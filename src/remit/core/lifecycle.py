"""Lifecycle events for listeners in this process: starts and ends of delegations; requests that an API admitted or refused."""

from enum import StrEnum
from typing import NamedTuple

from remit.core.delegation import Delegation
from remit.core.errors import ErrorInfo
from remit.core.result import Return


class LifecycleKind(StrEnum):
    STARTED = "delegation.started"
    COMPLETED = "delegation.completed"
    FAILED = "delegation.failed"
    """It ended in another state than completed: refused, timed out, cancelled, partial or blocked."""
    ADMITTED = "door.admitted"
    """An API admitted a request; `principal` and `door` name the caller and the API."""
    TURNED_AWAY = "door.refused"
    """An API refused a request; `error` gives the reason."""


OUTCOMES = frozenset({LifecycleKind.STARTED, LifecycleKind.COMPLETED, LifecycleKind.FAILED})
"""Kinds that listeners receive by default."""


class LifecycleEvent(NamedTuple):
    kind: LifecycleKind
    at: float
    """Wall clock, seconds."""
    session_id: str = ""
    """Empty for API requests."""
    root_id: str = ""
    parent_id: str | None = None
    depth: int = 0
    target: str = ""
    operation: str | None = None
    state: str = ""
    """`running`, then the final state."""
    duration_seconds: float | None = None
    """From the request to the outcome; None: not ended."""
    success: bool | None = None
    error: ErrorInfo | None = None
    """The first error of its return."""
    tokens: int = 0
    cost: float = 0.0
    principal: str | None = None
    """The external caller; None: a person or a program of this project."""
    door: str | None = None
    delegation: Delegation | None = None
    result: Return | None = None
    step_times: tuple[float, ...] = ()
    """Times of the thirteen steps, once it has ended; NaN: not reached."""

    @property
    def agent(self) -> str:
        return self.target if self.operation is None else f"{self.target}.{self.operation}"
