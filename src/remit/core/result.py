"""The return: the shape of every delegation's answer, and its parts. Plain values; the rules are in `runtime`.

Only `runtime.reply` builds returns and only `runtime.validate` checks them. This module defines the shape and its JSON form."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic_core import to_json

from remit.core.errors import ErrorInfo, Failed, Refused
from remit.core.states import State


class Status(StrEnum):
    COMPLETED = "completed"
    PARTIAL = "partial"
    FAILED = "failed"
    BLOCKED = "blocked"


class StopReason(StrEnum):
    FINISHED = "finished"
    DEADLINE = "deadline"
    IDLE = "idle"
    CANCELLED = "cancelled"
    BUDGET = "budget"
    REFUSED = "refused"
    CRASHED = "crashed"
    INVALID_RETURN = "invalid_return"
    UNAVAILABLE = "unavailable"


class Evidence(StrEnum):
    """How far a claim was checked."""

    CLAIMED = "claimed"
    """The agent claims it."""
    CHECKED = "checked"
    """Remit saw the file, its hash and its time."""
    VERIFIED = "verified"
    """An acceptance command of the caller ran here and exited 0."""


ARTIFACT_TYPES = ("report", "plan", "implementation", "summary", "documentation", "data")
ARTIFACT_ALIASES = {"research": "report"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file that the work produced. Remit measures `size`, `sha256` and `mtime`; the agent's values are ignored."""

    type: str
    path: str
    """Relative to the project root, inside it."""
    summary: str = ""
    evidence: Evidence = Evidence.CLAIMED
    size: int | None = None
    sha256: str | None = None
    mtime: float | None = None

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"type": self.type, "path": self.path}
        if self.summary:
            fields["summary"] = self.summary
        fields["evidence"] = self.evidence
        if self.sha256 is not None:
            fields |= {"size": self.size, "sha256": self.sha256, "mtime": self.mtime}
        return fields


NOTHING: Mapping[str, Any] = MappingProxyType({})


class Metadata(NamedTuple):
    session_id: str
    agent_type: str
    delegation_depth: int
    delegation_path: tuple[str, ...]
    duration_seconds: float
    """Measured by remit."""
    extra: Mapping[str, Any] = NOTHING
    """Optional fields such as phase_count and findings_count, unchanged."""

    def to_dict(self) -> dict[str, Any]:
        return {**self.extra, **dict(zip(self._fields[:-1], self, strict=False))}


@dataclass(frozen=True, kw_only=True)
class Return:
    """The validated answer of a delegation."""

    status: Status
    summary: str
    artifacts: tuple[Artifact, ...] = ()
    metadata: Metadata
    errors: tuple[ErrorInfo, ...] = ()
    next_steps: str = ""
    data: Any = None
    """The structured result: any JSON."""
    stop_reason: StopReason = StopReason.FINISHED
    evidence: Evidence = Evidence.CLAIMED
    """Evidence level of the whole return: verified when every acceptance command passed."""
    warnings: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Unknown fields (`task_number`, `phase_statuses`, …), unchanged."""
    traceback: str = ""
    """Traceback of the agent's exception: the lines of its own code. Recorded; not part of `to_dict`, which external callers get."""

    @classmethod
    def completed(
        cls, summary: str, metadata: Metadata, data: Any, artifacts: tuple[Artifact, ...] = (), warnings: tuple[str, ...] = ()
    ) -> "Return":
        """The frequent case. Sets all fields at once: a frozen dataclass constructor sets each with its own call."""
        new = object.__new__(cls)
        evidence = Evidence.CHECKED if artifacts else Evidence.CLAIMED
        vars(new).update(
            status=Status.COMPLETED,
            summary=summary,
            artifacts=artifacts,
            metadata=metadata,
            data=data,
            evidence=evidence,
            warnings=warnings,
            extra={},
        )
        return new

    @property
    def ok(self) -> bool:
        return self.status is Status.COMPLETED

    @property
    def session_id(self) -> str:
        return self.metadata.session_id

    def unwrap(self) -> Any:
        """The `data` of a completed return. Otherwise raises, with the first error's advice."""
        if self.ok:
            return self.data
        first = self.errors[0] if self.errors else None
        branch = Refused if self.stop_reason is StopReason.REFUSED else Failed
        raise branch(
            f"{self.metadata.agent_type} ({self.session_id}) {self.status}: {first.message if first else self.summary}",
            code=first.code if first else "UNKNOWN_ERROR",
            advice=first.recommendation if first else "",
        )

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            **self.extra,
            "status": self.status,
            "summary": self.summary,
            "artifacts": [a.to_dict() for a in self.artifacts],
            "metadata": self.metadata.to_dict(),
            "errors": [e.to_dict() for e in self.errors],
            **{name: getattr(self, name) for name in ("next_steps", "data", "stop_reason", "evidence")},
        }
        if self.warnings:
            fields["warnings"] = self.warnings
        return fields

    def forwarded(self) -> dict[str, Any]:
        """A child's return as an agent's own answer, without the child's metadata."""
        return {
            **self.extra,
            "status": str(self.status),
            "summary": self.summary,
            "artifacts": [{"type": one.type, "path": one.path, "summary": one.summary} for one in self.artifacts],
            "errors": [error.to_dict() for error in self.errors],
            "next_steps": self.next_steps,
            "data": self.data,
        }

    def to_json(self, *, indent: int | None = None) -> str:
        return to_json(self.to_dict(), indent=indent, inf_nan_mode="null").decode()

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Return":
        """Parse the output of `to_dict`, which is trusted. An agent's return goes through `runtime.validate` instead."""
        known = dict(fields)
        metadata = dict(known.pop("metadata"))
        own = {name: metadata.pop(name) for name in Metadata._fields[:-1]}
        return cls(
            status=Status(known.pop("status")),
            summary=known.pop("summary"),
            artifacts=tuple(Artifact(**{**a, "evidence": Evidence(a.get("evidence", "claimed"))}) for a in known.pop("artifacts")),
            metadata=Metadata(**own, extra=metadata)._replace(delegation_path=tuple(own["delegation_path"])),
            errors=tuple(ErrorInfo(**e) for e in known.pop("errors", ())),
            next_steps=known.pop("next_steps", ""),
            data=known.pop("data", None),
            stop_reason=StopReason(known.pop("stop_reason", "finished")),
            evidence=Evidence(known.pop("evidence", "claimed")),
            warnings=tuple(known.pop("warnings", ())),
            extra=known,
        )


_STATE_OF_STOP = {
    StopReason.DEADLINE: State.TIMEOUT,
    StopReason.IDLE: State.TIMEOUT,
    StopReason.CANCELLED: State.CANCELLED,
    StopReason.REFUSED: State.REFUSED,
}


def state_of(result: Return) -> State:
    """The registry's state for a return."""
    return _STATE_OF_STOP.get(result.stop_reason) or State(result.status)
