"""Lifecycle events for listeners in this process: starts, ends, steps and output of delegations; requests an API admitted or refused."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from remit.core.delegation import Delegation
from remit.core.errors import ErrorInfo
from remit.core.result import Return


class LifecycleKind(StrEnum):
    STARTED = "delegation.started"
    COMPLETED = "delegation.completed"
    FAILED = "delegation.failed"
    """It ended otherwise than completed: also refused, timed out, cancelled, partial, blocked."""
    STEP = "delegation.step"
    """`{step}`: it reached one of the thirteen steps (`core.events.STEPS`)."""
    PROGRESS = "delegation.progress"
    DATA = "delegation.data"
    ARTIFACT = "delegation.artifact"
    NOTICE = "delegation.notice"
    SPENT = "delegation.spent"
    CANCEL = "delegation.cancel"
    """These with the body that `core.events` says."""
    ADMITTED = "door.admitted"
    """A request reached an API: `principal` and `door` say whose and which."""
    TURNED_AWAY = "door.refused"
    """It was not let in; `error` says why."""


OUTCOMES = frozenset({LifecycleKind.STARTED, LifecycleKind.COMPLETED, LifecycleKind.FAILED})
"""What is told unless somebody asks for more."""
API_ACCESS = frozenset({LifecycleKind.ADMITTED, LifecycleKind.TURNED_AWAY})
EVERYTHING = frozenset(LifecycleKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleEvent:
    kind: LifecycleKind
    at: float
    """Wall clock, seconds."""
    session_id: str = ""
    """Empty at a door: nothing was begun yet."""
    root_id: str = ""
    parent_id: str | None = None
    depth: int = 0
    target: str = ""
    operation: str | None = None
    state: str = ""
    """`queued`, `running`, then the state it ended in."""
    duration_seconds: float | None = None
    """From being asked for to the outcome; None: it has not ended."""
    success: bool | None = None
    error: ErrorInfo | None = None
    """The first of its return."""
    tokens: int = 0
    cost: float = 0.0
    principal: str | None = None
    """Who asked from outside; None: a person or a program of this project."""
    door: str | None = None
    body: Mapping[str, Any] = field(default_factory=dict)
    """Of a step, and of what it said."""
    delegation: Delegation | None = field(default=None, repr=False, compare=False)
    """The whole of it, for whoever listens in this process; not part of `to_dict`. So are the two below."""
    result: Return | None = field(default=None, repr=False, compare=False)
    step_times: tuple[float, ...] = field(default=(), repr=False, compare=False)
    """Of one that ended: when it reached each of the thirteen steps; not a number: never."""

    @property
    def agent(self) -> str:
        return self.target if self.operation is None else f"{self.target}.{self.operation}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "event": str(self.kind),
            "at": self.at,
            "session_id": self.session_id,
            "root_id": self.root_id,
            "parent_id": self.parent_id,
            "depth": self.depth,
            "target": self.target,
            "operation": self.operation,
            "state": self.state,
            "duration": self.duration_seconds,
            "success": self.success,
            "error": None if self.error is None else self.error.to_dict(),
            "tokens": self.tokens,
            "cost": self.cost,
            **({} if self.principal is None else {"principal": self.principal}),
            **({} if self.door is None else {"door": self.door}),
            **({"body": dict(self.body)} if self.body else {}),
        }
