"""A delegation: work that a caller hands to an agent; its place in the tree, its task, and the external caller."""

import contextvars
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from remit.core.budget import Budget, Limits
from remit.core.deadline import Deadline
from remit.core.states import Priority

ROOT_CALLER = "orchestrator"
"""Default name at the start of every path."""


class Lineage(NamedTuple):
    session_id: str
    root_id: str
    parent_id: str | None
    depth: int
    """An agent called by a command or a person has depth 1; a child's depth is its caller's + 1."""
    path: tuple[str, ...]
    """Agent names from the root to this agent, included."""

    @classmethod
    def root(cls, session_id: str, agent: str, callers: tuple[str, ...] = (ROOT_CALLER,), depth: int = 1) -> "Lineage":
        """The lineage of a new tree. If it continues a tree of another machine, it has the depth and path of that tree."""
        return cls(session_id, session_id, None, depth, (*callers, agent))

    def child(self, session_id: str, agent: str) -> "Lineage":
        return Lineage(session_id, self.root_id, self.session_id, self.depth + 1, (*self.path, agent))

    def without_own_place(self) -> "Lineage":
        """The lineage that children of an agent that acts for its caller see: it adds no depth and no name to the path."""
        return self._replace(depth=self.depth - 1, path=self.path[:-1])


# ---- callers from outside


class CallerInfo(NamedTuple):
    """The external caller, recorded with every delegation of the tree."""

    principal: str
    door: str = ""
    """grpc, a2a, http or mcp."""
    session: str | None = None
    """The caller's name for the conversation."""
    traceparent: str | None = None
    """W3C Trace Context: the caller's span, parent of this tree."""
    max_depth: int | None = None
    """Maximum depth of the tree, whatever the settings allow."""
    limits: Limits | None = None
    """Budget limits from this delegation downwards, also after a crash."""

    def to_dict(self) -> dict[str, Any]:
        """Without absent fields."""
        known: dict[str, Any] = {name: value for name, value in zip(self._fields, self, strict=True) if value not in (None, "")}
        if self.limits is not None:
            known["limits"] = self.limits.to_dict()
        return known


def caller_info_from(principal: str | None, kept: Mapping[str, Any] | None) -> CallerInfo | None:
    """Parse the stored form; None: the caller was not external."""
    if principal is None:
        return None
    known = {name: value for name, value in (kept or {}).items() if name in CallerInfo._fields and name != "principal"}
    if known.get("limits") is not None:
        known["limits"] = Limits(**known["limits"])
    return CallerInfo(principal, **known)


def on_behalf_of(caller_info: CallerInfo | None) -> str:
    """The caller of the whole tree."""
    return ROOT_CALLER if caller_info is None else caller_info.principal


class Origin(NamedTuple):
    caller_info: CallerInfo
    depth: int = 0
    """Depth of the caller; its delegations are one deeper."""
    path: tuple[str, ...] = (ROOT_CALLER,)
    """From the root, on any machine, to the caller."""
    max_depth: int | None = None
    """Maximum depth, whatever the settings allow."""
    deadline_at: float | None = None
    """The caller's own deadline (wall clock), which its child does not outlive."""
    limits: Limits | None = None
    """Budget limits of its tree: a scope around the limits of the request."""
    budget: Budget | None = None
    """The scope shared by all trees of this principal or, with a parent, by everything that one token requests;
    None: no limit of its own."""
    parent: str | None = None
    """Session of the live delegation on whose behalf it calls (a delegation token). The new delegation becomes its child; the other fields
    only narrow it further."""


ORIGIN: contextvars.ContextVar[Origin | None] = contextvars.ContextVar("remit_origin", default=None)


# ---- the delegation


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """The task of the board or of the caller that a delegation works on."""

    task_number: int | None = None
    title: str = ""
    description: str = ""
    language: str | None = None
    """The task's own field; absent means `general`, with a warning."""
    complexity: str = "simple"
    """simple, moderate or complex: controls how much context is loaded."""
    has_plan: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "extra"} | dict(self.extra)


class Delegation(NamedTuple):
    """A delegation. Created for every call, hence a named tuple: immutable like a frozen dataclass, created in a fifth of the time."""

    lineage: Lineage
    agent: str
    """The name in the directory, operation included (`worker.read_file`)."""
    parameters: Mapping[str, Any]
    """As given; JSON values."""
    caller: str
    priority: Priority
    deadline: Deadline
    created_at: float
    """Wall clock, seconds."""
    idle_seconds: float | None = None
    """Stopped after this long without a sign of life; None: never."""
    key: str | None = None
    """Idempotency key: a live one gives the running delegation, a finished one its result."""
    accept: tuple[str, ...] = ()
    """Acceptance commands, run here after the agent reports completion."""
    limits: Limits | None = None
    """The budget requested for this delegation and its children, inside its caller's."""
    command: str | None = None
    """The board command this came from, if any."""
    task: TaskContext | None = None
    resumes: str | None = None
    """Session of an earlier delegation to the same agent that this one continues."""
    caller_info: CallerInfo | None = None
    """The external caller of the whole tree; None: a person or a program of this project."""
    limits_reason: str | None = None
    """Why its time limits apply, or which learned ones are not used; None: they were requested, declared or set."""

    @property
    def session_id(self) -> str:
        return self.lineage.session_id

    @property
    def is_asked_here(self) -> bool:
        """Whether a person or a program of this project created it, rather than an agent, a board command or a caller of a server."""
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
        **{name: getattr(lineage, name) for name in ("session_id", "root_id", "parent_id")},
        "delegation_depth": lineage.depth,
        "delegation_path": list(lineage.path),
        "timeout": delegation.deadline.timeout_seconds,
        "deadline": delegation.deadline_wall,
        "caller": delegation.caller,
        "priority": delegation.priority.name.lower(),
        "task_context": delegation.task.to_dict() if delegation.task else {},
        "budget": budget_left.to_dict(),
    }
