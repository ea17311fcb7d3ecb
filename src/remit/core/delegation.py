"""A delegation: one piece of work handed by a caller to an agent, and the task it belongs to. Immutable once made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from remit.core.budget import Limits
from remit.core.deadline import Deadline
from remit.core.lineage import Lineage
from remit.core.origin import Came
from remit.core.states import Priority


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """The task of the board, or of whoever asks, that a delegation works on."""

    task_number: int | None = None
    title: str = ""
    description: str = ""
    language: str | None = None
    """Exactly the task's own field; absent means `general`, with a warning."""
    complexity: str = "simple"
    """simple, moderate or complex: how much context is loaded."""
    has_plan: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "task_number": self.task_number,
            "title": self.title,
            "description": self.description,
            "language": self.language,
            "complexity": self.complexity,
            "has_plan": self.has_plan,
            **self.extra,
        }


class Delegation(NamedTuple):
    """Made for every call, hence a named tuple: as immutable as a frozen dataclass, made in a fifth of the time."""

    lineage: Lineage
    agent: str
    """The name in the directory, operation included (`worker.read_file`)."""
    parameters: Mapping[str, Any]
    """As they were given; what JSON can hold."""
    caller: str
    priority: Priority
    deadline: Deadline
    created_at: float
    """Wall clock, seconds."""
    idle_seconds: float | None = None
    """Stopped when nothing was heard for that long; None: never."""
    key: str | None = None
    """Idempotency key: a live one returns the running delegation, a finished one its result."""
    accept: tuple[str, ...] = ()
    """Acceptance commands, run here after the agent says done."""
    limits: Limits | None = None
    """The budget this delegation asked for itself and its children, inside its caller's."""
    command: str | None = None
    """The board command this came from, if any."""
    task: TaskContext | None = None
    resumes: str | None = None
    """The session of an earlier delegation to the same agent that this one goes on from."""
    came: Came | None = None
    """Who asked from outside, of the whole tree; None: a person or a program of this project."""

    @property
    def session_id(self) -> str:
        return self.lineage.session_id

    @property
    def deadline_wall(self) -> float:
        return self.created_at + self.deadline.timeout_seconds


def context_of(delegation: Delegation, budget_left: Limits) -> dict[str, Any]:
    """The context handed to the agent, as data."""
    lineage = delegation.lineage
    return {
        "session_id": lineage.session_id,
        "root_id": lineage.root_id,
        "parent_id": lineage.parent_id,
        "delegation_depth": lineage.depth,
        "delegation_path": list(lineage.path),
        "timeout": delegation.deadline.timeout_seconds,
        "deadline": delegation.deadline_wall,
        "caller": delegation.caller,
        "priority": delegation.priority.name.lower(),
        "task_context": delegation.task.to_dict() if delegation.task else {},
        "budget": budget_left.to_dict(),
    }
