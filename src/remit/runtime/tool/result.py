"""What the delegate tool answers: the result of a delegation in one shape, as it grows, and its chunks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from remit.core.errors import ErrorInfo, RemitError, Unavailable
from remit.core.events import Event, EventKind
from remit.core.record import Record
from remit.core.result import Artifact, Return, Status, StopReason
from remit.core.states import State
from remit.runtime.reply import state_of
from remit.runtime.tool.catalogue import json_text, parts_of

_UNAVAILABLE = frozenset({"AGENT_UNAVAILABLE", "TOOL_UNAVAILABLE", "QUEUE_FULL", "STORE_UNAVAILABLE"})
"""Codes of what could not be reached: trying again later, or installing something, may help."""


class TaskState(StrEnum):
    """States of a task. The last four are terminal."""

    PENDING = "PENDING"
    """Asked for, and not yet on record."""
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    """It waits for a person's approval."""
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"

    @property
    def is_terminal(self) -> bool:
        return self in (TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED, TaskState.TIMEOUT)


_STATES = {
    State.QUEUED: TaskState.QUEUED,
    State.RUNNING: TaskState.RUNNING,
    State.COMPLETED: TaskState.COMPLETED,
    State.PARTIAL: TaskState.FAILED,
    State.FAILED: TaskState.FAILED,
    State.BLOCKED: TaskState.FAILED,
    State.REFUSED: TaskState.FAILED,
    State.TIMEOUT: TaskState.TIMEOUT,
    State.CANCELLED: TaskState.CANCELLED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskError:
    code: str
    """TASK_TIMEOUT, TASK_FAILED or AGENT_UNAVAILABLE; the delegation's own code stands in the details."""
    message: str
    recommendation: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"code": self.code, "message": self.message, "recommendation": self.recommendation}
        return {**fields, "details": dict(self.details)} if self.details else fields


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMetadata:
    target: str
    operation: str | None
    created_at: float
    """Wall clock, seconds; ISO 8601 in UTC as JSON."""
    completed_at: float | None = None
    duration_ms: float | None = None
    agent_id: str = ""
    """The agent that did it, by its name in the directory."""
    status: str | None = None
    """Of the return: completed, partial, failed or blocked."""
    stop_reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "operation": self.operation,
            "createdAt": _moment(self.created_at),
            "completedAt": None if self.completed_at is None else _moment(self.completed_at),
            "duration": self.duration_ms,
            "agentId": self.agent_id,
            "status": self.status,
            "stopReason": self.stop_reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegateResult:
    success: bool
    task_id: str | None
    """The session id of the delegation; None where it could not even be begun."""
    task_state: TaskState
    data: Any = None
    """The structured result: any JSON."""
    output: str = ""
    """The summary, in words."""
    artifacts: tuple[Artifact, ...] = ()
    error: TaskError | None = None
    metadata: TaskMetadata

    def to_dict(self) -> dict[str, Any]:
        return {
            "success": self.success,
            "taskId": self.task_id,
            "taskState": str(self.task_state),
            "data": self.data,
            "output": self.output,
            "artifacts": [artifact.to_dict() for artifact in self.artifacts],
            "error": None if self.error is None else self.error.to_dict(),
            "metadata": self.metadata.to_dict(),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        return json_text(self.to_dict(), indent=indent)


def result_of(returned: Return, created_at: float) -> DelegateResult:
    """Of a delegation that has ended; `created_at`: when it was asked for."""
    name, seconds = returned.metadata.agent_type, returned.metadata.duration_seconds
    target, operation = parts_of(name)
    return DelegateResult(
        success=returned.ok,
        task_id=returned.session_id,
        task_state=_STATES[state_of(returned)],
        data=returned.data,
        output=returned.summary,
        artifacts=returned.artifacts,
        error=None if returned.ok else _error_of(returned),
        metadata=TaskMetadata(
            target=target,
            operation=operation,
            created_at=created_at,
            completed_at=created_at + seconds,
            duration_ms=round(1000 * seconds, 3),
            agent_id=name,
            status=str(returned.status),
            stop_reason=str(returned.stop_reason),
        ),
    )


def result_of_record(record: Record, *, is_paused: bool = False) -> DelegateResult:
    """Of a delegation as it is known now, ended or not; `is_paused`: it runs, and waits for a person."""
    if record.result is not None:
        return result_of(record.result, record.created_at)
    target, operation = parts_of(record.agent)
    state = TaskState.PAUSED if is_paused and record.state is State.RUNNING else _STATES[record.state]
    return DelegateResult(
        success=False,
        task_id=record.session_id,
        task_state=state,
        metadata=TaskMetadata(target=target, operation=operation, created_at=record.created_at, agent_id=record.agent),
    )


def result_of_error(error: RemitError, agent: str, created_at: float, now: float, task_id: str | None = None) -> DelegateResult:
    """Where no return could be had: it could not be begun, or not be waited for."""
    target, operation = parts_of(agent)
    code = "AGENT_UNAVAILABLE" if isinstance(error, Unavailable) else "TASK_FAILED"
    return DelegateResult(
        success=False,
        task_id=task_id,
        task_state=TaskState.FAILED,
        output=error.message,
        error=TaskError(code=code, message=error.message, recommendation=error.advice, details={"code": error.code}),
        metadata=TaskMetadata(
            target=target,
            operation=operation,
            created_at=created_at,
            completed_at=now,
            duration_ms=round(1000 * max(0.0, now - created_at), 3),
            agent_id=agent,
        ),
    )


def _error_of(returned: Return) -> TaskError:
    first = returned.errors[0] if returned.errors else None
    details: dict[str, Any] = {"code": first.code, "type": first.type, "recoverable": first.recoverable} if first else {}
    if len(returned.errors) > 1:
        details["errors"] = [error.to_dict() for error in returned.errors]
    return TaskError(
        code=_code_of(returned, first),
        message=first.message if first else returned.summary,
        recommendation=first.recommendation if first else returned.next_steps,
        details=details,
    )


def _code_of(returned: Return, first: ErrorInfo | None) -> str:
    if returned.stop_reason in (StopReason.DEADLINE, StopReason.IDLE):
        return "TASK_TIMEOUT"
    is_unreachable = first is not None and first.code in _UNAVAILABLE and returned.status in (Status.BLOCKED, Status.FAILED)
    return "AGENT_UNAVAILABLE" if is_unreachable or returned.stop_reason is StopReason.UNAVAILABLE else "TASK_FAILED"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


WAITING = "Waiting for a person's approval"
"""How the notice begins by which an approval is asked for."""
ANSWERED = ("Approved: ", "Not approved: ")
"""And the one by which it is over."""


class ChunkType(StrEnum):
    PROGRESS = "progress"
    """`{message, fraction?}`"""
    DATA = "data"
    """`{chunk}`"""
    STATUS = "status"
    """`{state, message}`: it is QUEUED, RUNNING or PAUSED from here on; told to those who follow through a door"""
    COMPLETE = "complete"
    """`{result}`"""
    ERROR = "error"
    """`{error, result}`: the result too, since what was done is in it"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    type: ChunkType
    task_id: str | None
    data: Mapping[str, Any]
    result: DelegateResult | None = None
    """With the last one."""
    number: int = 0
    """Of the event it was made of, by which a stream is taken up again; 0: of none."""

    def to_dict(self) -> dict[str, Any]:
        return {"type": str(self.type), "taskId": self.task_id, "data": dict(self.data)}


def begun(task_id: str, agent: str) -> Chunk:
    """The first one: by its task id a caller can cancel it, or ask for it later."""
    return Chunk(type=ChunkType.PROGRESS, task_id=task_id, data={"message": f"{agent} has been started."})


def ended(result: DelegateResult, number: int = 0) -> Chunk:
    document = result.to_dict()
    if result.success:
        return Chunk(type=ChunkType.COMPLETE, task_id=result.task_id, data={"result": document}, result=result, number=number)
    data = {"error": document["error"], "result": document}
    return Chunk(type=ChunkType.ERROR, task_id=result.task_id, data=data, result=result, number=number)


def chunk_of(event: Event) -> Chunk | None:
    """What an event says on the way; None for those that say nothing to a caller."""
    body, kind = event.body, event.kind
    if kind is EventKind.DATA:
        return Chunk(type=ChunkType.DATA, task_id=event.session_id, data={"chunk": body.get("chunk")}, number=event.number)
    data: dict[str, Any] = {"message": _words(kind, body)}
    if kind is EventKind.PROGRESS and body.get("fraction") is not None:
        data["fraction"] = body["fraction"]
    return Chunk(type=ChunkType.PROGRESS, task_id=event.session_id, data=data, number=event.number) if data["message"] else None


def is_paused(events: Iterable[Event]) -> bool:
    """Whether the last thing that remit itself said is that it waits for a person (`flow.approve`)."""
    notices = [str(event.body.get("message", "")) for event in events if event.kind is EventKind.NOTICE]
    return bool(notices) and notices[-1].startswith(WAITING)


def _words(kind: EventKind, body: Mapping[str, Any]) -> str:
    match kind:
        case EventKind.PROGRESS | EventKind.NOTICE:
            return str(body.get("message", ""))
        case EventKind.ARTIFACT:
            return f"Wrote {body.get('path')}."
        case EventKind.CANCEL:
            return f"Cancel {body.get('state', 'requested')}: {body.get('reason') or 'no reason given'}."
    return ""
