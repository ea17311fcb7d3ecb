"""Results of the delegate tool: one shape for every outcome, chunks during the run, and large results shortened and read by ranges."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from pydantic_core import from_json

from remit.core.deadline import iso
from remit.core.delegate_requests import json_text, parts_of
from remit.core.errors import ErrorInfo, RemitError, Unavailable
from remit.core.events import Event, EventKind
from remit.core.jsonable import clean_text
from remit.core.record import Record
from remit.core.redaction import redact_known_keys
from remit.core.result import Artifact, Return, Status, StopReason, state_of
from remit.core.states import State

_UNAVAILABLE = frozenset({"AGENT_UNAVAILABLE", "TOOL_UNAVAILABLE", "QUEUE_FULL", "STORE_UNAVAILABLE"})
"""Codes of unavailable parts: a retry or an installation may help."""


class TaskState(StrEnum):
    """States of a task. The last four are terminal."""

    PENDING = "PENDING"
    """Requested, not recorded yet."""
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


_STATES = {state: TaskState.__members__.get(state.name, TaskState.FAILED) for state in State}
"""Partial, blocked and refused tasks have failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskError:
    code: str
    """TASK_TIMEOUT, TASK_FAILED or AGENT_UNAVAILABLE; the details contain the delegation's own code."""
    message: str
    recommendation: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"code": self.code, "message": self.message, "recommendation": self.recommendation}
        return {**fields, "details": dict(self.details)} if self.details else fields


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMetadata:
    agent_id: str
    """Name of the executing agent in the directory."""
    created_at: float
    """Wall clock, seconds; ISO 8601 in UTC as JSON."""
    completed_at: float | None = None
    duration_ms: float | None = None
    status: str | None = None
    """Status of the return: completed, partial, failed or blocked."""
    stop_reason: str | None = None

    @property
    def target(self) -> str:
        return parts_of(self.agent_id)[0]

    @property
    def operation(self) -> str | None:
        return parts_of(self.agent_id)[1]

    def to_dict(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "operation": self.operation,
            "createdAt": iso(self.created_at),
            "completedAt": None if self.completed_at is None else iso(self.completed_at),
            "duration": self.duration_ms,
            "agentId": self.agent_id,
            "status": self.status,
            "stopReason": self.stop_reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegateResult:
    success: bool
    task_id: str | None
    """Session id of the delegation; None if it could not start."""
    task_state: TaskState
    data: Any = None
    """The structured result: any JSON."""
    output: str = ""
    """The summary."""
    artifacts: tuple[Artifact, ...] = ()
    error: TaskError | None = None
    continue_with: Mapping[str, Any] | None = None
    """Arguments of the delegate tool that continue it, besides parameters; None if it would start from the beginning."""
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
            **({"continueWith": dict(self.continue_with)} if self.continue_with is not None else {}),
            "metadata": self.metadata.to_dict(),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        return json_text(self.to_dict(), indent=indent)


def result_of(returned: Return, created_at: float) -> DelegateResult:
    """The result of a finished delegation; `created_at`: when it was requested."""
    seconds = returned.metadata.duration_seconds
    return DelegateResult(
        success=returned.ok,
        task_id=returned.session_id,
        task_state=_STATES[state_of(returned)],
        data=returned.data,
        output=returned.summary,
        artifacts=returned.artifacts,
        error=None if returned.ok else _error_of(returned),
        continue_with=continuation_of(returned),
        metadata=TaskMetadata(
            agent_id=returned.metadata.agent_type,
            created_at=created_at,
            completed_at=created_at + seconds,
            duration_ms=round(1000 * seconds, 3),
            status=str(returned.status),
            stop_reason=str(returned.stop_reason),
        ),
    )


def continuation_of(returned: Return) -> dict[str, Any] | None:
    """Arguments of the delegate tool that continue a finished delegation, if its agent keeps a session, or its errors say that it can
    continue from a checkpoint, a workspace or its answer."""
    session_id = returned.session_id
    if "agent_session" not in returned.extra and not any(f"resume={session_id}" in error.recommendation for error in returned.errors):
        return None
    target, operation = parts_of(returned.metadata.agent_type)
    return {"target": target, **({} if operation is None else {"operation": operation}), "resume": session_id}


def result_of_record(record: Record, *, is_paused: bool = False) -> DelegateResult:
    """The current result of a delegation, finished or not; `is_paused`: it waits for a person."""
    if record.result is not None:
        return result_of(record.result, record.created_at)
    state = TaskState.PAUSED if is_paused and record.state is State.RUNNING else _STATES[record.state]
    return DelegateResult(
        success=False,
        task_id=record.session_id,
        task_state=state,
        metadata=TaskMetadata(agent_id=record.agent, created_at=record.created_at),
    )


def result_of_error(error: RemitError, agent: str, created_at: float, now: float, task_id: str | None = None) -> DelegateResult:
    """The result if there is no return: the delegation could not start or could not be awaited."""
    code = "AGENT_UNAVAILABLE" if isinstance(error, Unavailable) else "TASK_FAILED"
    return DelegateResult(
        success=False,
        task_id=task_id,
        task_state=TaskState.FAILED,
        output=error.message,
        error=TaskError(code=code, message=error.message, recommendation=error.advice, details={"code": error.code}),
        metadata=TaskMetadata(
            agent_id=agent, created_at=created_at, completed_at=now, duration_ms=round(1000 * max(0.0, now - created_at), 3)
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


WAITING = "Waiting for a person's approval"
"""First words of the notice that requests an approval."""
ANSWERED = ("Approved: ", "Not approved: ")
"""First words of the notice that ends the wait."""


class ChunkType(StrEnum):
    PROGRESS = "progress"
    """`{message, fraction?}`"""
    DATA = "data"
    """`{chunk}`"""
    STATUS = "status"
    """`{state, message}`: the new state QUEUED, RUNNING or PAUSED; only for readers of an API"""
    COMPLETE = "complete"
    """`{result}`"""
    ERROR = "error"
    """`{error, result}`: with the result, which contains the work so far"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    type: ChunkType
    task_id: str | None
    data: Mapping[str, Any]
    result: DelegateResult | None = None
    """Set in the last chunk."""
    number: int = 0
    """Number of its event, from which a stream can resume; 0: none."""

    def to_dict(self) -> dict[str, Any]:
        return {"type": str(self.type), "taskId": self.task_id, "data": dict(self.data)}


def started_chunk(task_id: str, agent: str) -> Chunk:
    """The first chunk. Its task id is used to cancel or query the delegation."""
    return Chunk(type=ChunkType.PROGRESS, task_id=task_id, data={"message": f"{agent} has been started."})


def final_chunk(result: DelegateResult, number: int = 0) -> Chunk:
    document = result.to_dict()
    if result.success:
        return Chunk(type=ChunkType.COMPLETE, task_id=result.task_id, data={"result": document}, result=result, number=number)
    data = {"error": document["error"], "result": document}
    return Chunk(type=ChunkType.ERROR, task_id=result.task_id, data=data, result=result, number=number)


def chunk_of(event: Event) -> Chunk | None:
    """The chunk of an event; None for events that callers do not see."""
    body, kind = event.body, event.kind
    if kind is EventKind.DATA:
        return Chunk(type=ChunkType.DATA, task_id=event.session_id, data={"chunk": body.get("chunk")}, number=event.number)
    data: dict[str, Any] = {"message": _words(kind, body)}
    if kind is EventKind.PROGRESS and body.get("fraction") is not None:
        data["fraction"] = body["fraction"]
    return Chunk(type=ChunkType.PROGRESS, task_id=event.session_id, data=data, number=event.number) if data["message"] else None


def is_paused(events: Iterable[Event]) -> bool:
    """Whether remit's latest notice says that it waits for a person (`runtime.authorize`)."""
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


# ---- large results: shortened to a limit, and read on by ranges


READ = "results.read"
"""The agent that reads further parts."""
SUMMARISE = "results.summarise"
"""The agent that has a model summarise the whole result."""
SHOWN_CHARACTERS = 16_000
"""Default length of one result as shown to a model."""
LEAST_CHARACTERS = 600
"""Least length of a shortened result."""


def shorten_result(result: DelegateResult, characters: int = SHOWN_CHARACTERS) -> str:
    """`result` as JSON of at most `characters` (at least `LEAST_CHARACTERS`).

    For models: keys in a known format are redacted."""
    result, characters = without_keys(result), max(characters, LEAST_CHARACTERS)
    if result.success and result.metadata.agent_id == READ and isinstance(result.data, Mapping):
        return shorten_range(result.data, characters)
    return _longest(lambda limit: _render(result, limit), characters)


def without_keys(result: DelegateResult) -> DelegateResult:
    data = json_text(result.data)
    redacted, output = redact_known_keys(data), redact_known_keys(result.output)
    return result if redacted is data and output is result.output else replace(result, data=from_json(redacted), output=output)


def shorten_range(data: Mapping[str, Any], characters: int) -> str:
    """A range read by `results.read`: as much as fits, and the next offset."""
    text, offset, total = str(data.get("text", "")), int(data.get("offset", 0)), int(data.get("total", 0))

    def render(limit: int | None) -> str:
        shown = text[:limit]
        end = offset + len(shown)
        part = {"part": data.get("part"), "offset": offset, "total": total, "next": end if end < total else None}
        return json_text({"success": True, "taskId": data.get("taskId"), "data": {**part, "text": shown}})

    return _longest(render, characters)


def text_of(value: Any) -> str:
    """The text that offsets refer to: strings unchanged, anything else as JSON."""
    return clean_text(value) if isinstance(value, str) else json_text(value)


def _longest(render: Callable[[int | None], str], characters: int) -> str:
    """The output of `render` with the largest limit that keeps it within `characters`. A limit of None is unlimited."""
    whole = render(None)
    if len(whole) <= characters:
        return whole
    return render(max(0, bisect_right(range(characters + 1), characters, key=lambda limit: len(render(limit))) - 1))


def _render(result: DelegateResult, limit: int | None) -> str:
    """As JSON; its data has at most `limit` characters, the other parts fewer."""
    document: dict[str, Any] = {"success": result.success, "taskId": result.task_id, "taskState": str(result.task_state)}
    data, output, error = text_of(result.data), clean_text(result.output), result.error
    if error is not None:
        document["error"] = {
            "code": error.code,
            "cause": str(error.details.get("code", error.code))[:60],
            "message": clean_text(error.message)[: None if limit is None else max(40, limit // 4)],
            "recommendation": clean_text(error.recommendation)[: limit and limit // 8],
        }
    if result.continue_with is not None:
        document["continueWith"] = dict(result.continue_with)
    if (error is not None and error.message in output) or (isinstance(result.data, str) and data.startswith(output[:100])):
        output = ""  # the data or the error repeats it
    artifacts = [{"type": one.type, "path": one.path, "summary": one.summary} for one in result.artifacts]
    left_out: dict[str, int] = {}
    for name, whole, most in (
        ("output", output, limit and limit // 2),
        ("artifacts", artifacts, limit and limit // 100),
        ("data", data, limit),
    ):
        if most is not None and len(whole) > most:
            left_out[name] = len(whole) - most
        shown: Any = result.data if name == "data" and name not in left_out else whole[:most]
        if shown or (name == "data" and result.data is not None):
            document[name] = shown
    if left_out:
        document["leftOut"] = left_out
        if result.task_id is not None:
            part = "data" if "data" in left_out else next(iter(left_out))
            offset = len(document.get(part, "")) if part != "artifacts" else 0
            parameters = {"taskId": result.task_id, "part": part, "offset": offset}
            document["readOn"] = {"target": "results", "operation": "read", "parameters": parameters}
    return json_text(document)
