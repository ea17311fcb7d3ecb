"""What is told of every delegation to whoever listens (S5.9): that it started, and how it ended. A value; `engine.happenings` tells it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from remit.core.errors import ErrorInfo


class HappeningKind(StrEnum):
    STARTED = "delegation.started"
    COMPLETED = "delegation.completed"
    FAILED = "delegation.failed"
    """It ended otherwise than completed: also refused, timed out, cancelled, partial, blocked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    kind: HappeningKind
    at: float
    """Wall clock, seconds."""
    session_id: str
    root_id: str
    parent_id: str | None
    depth: int
    target: str
    operation: str | None
    state: str
    """`running`, then the state it ended in."""
    duration_seconds: float | None = None
    """From being asked for to the outcome; None: it has only started."""
    success: bool | None = None
    error: ErrorInfo | None = None
    """The first of its return."""
    tokens: int = 0
    cost: float = 0.0

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
        }
