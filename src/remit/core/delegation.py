"""A delegation: one piece of work handed by a caller to an agent; its place in the tree, its task, and who asked from outside."""

import contextvars
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from remit.core.budget import Budget, Limits
from remit.core.deadline import Deadline
from remit.core.states import Priority

ROOT_CALLER = "orchestrator"
"""The default name at the head of every path."""


class Lineage(NamedTuple):
    session_id: str
    root_id: str
    parent_id: str | None
    depth: int
    """The agent a command or a person calls has depth 1; a child's depth is its caller's + 1."""
    path: tuple[str, ...]
    """The names from the root to this agent, itself included."""

    @classmethod
    def root(cls, session_id: str, agent: str, callers: tuple[str, ...] = (ROOT_CALLER,), depth: int = 1) -> "Lineage":
        """Of a new tree here; one that another machine's goes on in has the depth and path of that."""
        return cls(session_id, session_id, None, depth, (*callers, agent))

    def child(self, session_id: str, agent: str) -> "Lineage":
        return Lineage(session_id, self.root_id, self.session_id, self.depth + 1, (*self.path, agent))


# ---- callers from outside


class CallerInfo(NamedTuple):
    """What is kept of it, with every delegation of the tree."""

    principal: str
    door: str = ""
    """grpc, a2a, http or mcp."""
    session: str | None = None
    """The caller's own word for the conversation this belongs to."""
    traceparent: str | None = None
    """Of W3C Trace Context: the span of the caller's that this tree hangs below."""
    max_depth: int | None = None
    """Nothing of the tree stands deeper, whatever the settings allow."""
    limits: Limits | None = None
    """What it may draw, from where this was first said downwards: also after a crash."""

    def to_dict(self) -> dict[str, Any]:
        """Without what is absent: most of it mostly is."""
        known: dict[str, Any] = {name: value for name, value in zip(self._fields, self, strict=True) if value not in (None, "")}
        if self.limits is not None:
            known["limits"] = self.limits.to_dict()
        return known


def caller_info_from(principal: str | None, kept: Mapping[str, Any] | None) -> CallerInfo | None:
    """From its stored form; None: the caller was not from outside."""
    if principal is None:
        return None
    known = {name: value for name, value in (kept or {}).items() if name in CallerInfo._fields and name != "principal"}
    if known.get("limits") is not None:
        known["limits"] = Limits(**known["limits"])
    return CallerInfo(principal, **known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    caller_info: CallerInfo
    depth: int = 0
    """Of the caller: what it asks for is one deeper."""
    path: tuple[str, ...] = (ROOT_CALLER,)
    """From the root, wherever that is, to the caller."""
    max_depth: int | None = None
    """No deeper than this, whatever the settings allow."""
    deadline_at: float | None = None
    """Wall clock: the caller's own, which its child does not outlive."""
    limits: Limits | None = None
    """What its tree may draw at most: a scope around whatever the request asks for."""
    budget: Budget | None = None
    """The scope that all trees of this principal share, or, with a parent, all that one token asks for; None: no limit of its own."""
    parent: str | None = None
    """The session of the living delegation on whose behalf it asks (a delegation token): then it is that one's child, and the rest of
    this only narrows it further."""


ORIGIN: contextvars.ContextVar[Origin | None] = contextvars.ContextVar("remit_origin", default=None)


# ---- the delegation


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """The task, of the board or of the caller, that a delegation works on."""

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
    caller_info: CallerInfo | None = None
    """Who asked from outside, of the whole tree; None: a person or a program of this project."""

    @property
    def session_id(self) -> str:
        return self.lineage.session_id

    @property
    def is_asked_here(self) -> bool:
        """A person or a program of this project wrote it: not an agent, a command of the board, nor a caller of a server."""
        info = self.caller_info
        is_outside = info is not None and (info.principal != ROOT_CALLER or bool(info.door))
        return self.lineage.parent_id is None and self.command is None and not is_outside

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
