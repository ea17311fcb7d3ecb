"""A2A messages and tasks: incoming messages as arguments of a delegation, and delegations as A2A tasks.

A message has three forms: a data part `{target, operation, parameters, timeout, priority}`; `skill` in the metadata, with the parameters as
a data part or the task as text; text alone, for the assistant, or for the only prompted agent of a project. A task has the session id of
its first delegation. Fields of our return that A2A lacks are in the metadata: `status` and `stopReason` at the top, the rest
under our extension."""

import hashlib
import mimetypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from a2a.types import (
    Artifact,
    Message,
    Part,
    Role,
    SendMessageRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import ContentTypeNotSupportedError

from remit.core import result as ours
from remit.core.agents import ASSISTANT, AgentSpec, is_built_in
from remit.core.deadline import iso
from remit.core.delegate_requests import ARGUMENTS, DelegateError, parts_of, signature
from remit.core.delegate_results import Chunk, ChunkType, chunk_of
from remit.core.errors import Misused
from remit.core.events import Event, EventKind
from remit.core.record import Record
from remit.core.request_metadata import EXTENSION, CallerPosition, read_position
from remit.core.states import State
from remit.core.text import list_some
from remit.system.protobuf_values import dict_of, json_of, struct_of, text_of, value_of

TAKEN = (*(name for name in ARGUMENTS if name != "resume"), "budget")
"""Keys of a data part. Without `key` and `resume`, which the ids of the message express, and `accept`: callers cannot run commands here."""
MODES = ("text/plain", "application/json")
MOST_NAMES = 30
STATES: Mapping[State, TaskState] = {
    State.QUEUED: TaskState.TASK_STATE_SUBMITTED,
    State.RUNNING: TaskState.TASK_STATE_WORKING,
    State.COMPLETED: TaskState.TASK_STATE_COMPLETED,
    # Partial work is a result; the metadata name what is missing. A timeout is never a failure.
    State.PARTIAL: TaskState.TASK_STATE_COMPLETED,
    State.TIMEOUT: TaskState.TASK_STATE_COMPLETED,
    State.FAILED: TaskState.TASK_STATE_FAILED,
    State.BLOCKED: TaskState.TASK_STATE_INPUT_REQUIRED,
    State.REFUSED: TaskState.TASK_STATE_REJECTED,
    State.CANCELLED: TaskState.TASK_STATE_CANCELED,
}
STREAM, RESULT = "stream", "result"
"""Artifacts: the output while it ran, and the data of the return."""
FILE_BYTES, FILES_BYTES = 256 * 1024, 1024 * 1024
"""Files up to this size, one and all of a task, are sent; of larger ones only the path."""
STREAM_BYTES = 512 * 1024
"""The newest output that is repeated to later readers."""
CONTINUES = "a2a:on:"
"""Prefix of the key of a delegation that continues a task; then that task's id. No caller can choose such a key."""


# ---- incoming messages


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingMessage:
    """A parsed message."""

    text: str
    data: Mapping[str, Any] | None
    skill: str | None
    position: CallerPosition
    """Of its sender, if that is a remit."""


def read_message(request: SendMessageRequest) -> IncomingMessage:
    """Raises `Misused`, or the SDK's error for unsupported content."""
    message = request.message
    metadata = {**dict_of(request.metadata), **dict_of(message.metadata)}
    skill = metadata.get("skill")
    if skill is not None and (not isinstance(skill, str) or not skill):
        raise Misused("skill in the metadata must be the id of a skill.", advice="Take it from the card.")
    text = "\n\n".join(part.text for part in message.parts if part.WhichOneof("content") == "text").strip()
    return IncomingMessage(text=text, data=_data(message), skill=skill, position=read_position(metadata.get(EXTENSION)))


def _data(message: Message) -> Mapping[str, Any] | None:
    found = [json_of(part.data) for part in message.parts if part.WhichOneof("content") == "data"]
    if any(part.WhichOneof("content") not in ("data", "text") for part in message.parts):
        raise ContentTypeNotSupportedError("Files are not supported: name them by their paths in the parameters, or send text.")
    if len(found) > 1:
        raise Misused("The message has more than one data part.", advice="Send one object: {target, operation, parameters, …}.")
    if found and not isinstance(found[0], Mapping):
        raise Misused("The data part must be an object.", advice="Send {target, operation, parameters, …}.")
    return found[0] if found else None


def arguments_of(asked: IncomingMessage, specs: Sequence[AgentSpec], *, has_assistant: bool) -> dict[str, Any]:
    """Arguments of the delegate tool. `specs`: the agents that the caller may use; `has_assistant`: whether it has a model."""
    data = asked.data or {}
    if "target" in data or "operation" in data:
        if unknown := [name for name in data if name not in TAKEN]:
            raise DelegateError(
                f"Unknown argument {unknown[0]!r:.80}.",
                advice=f"Use {', '.join(TAKEN)}; parameters of the agent go into `parameters`.",
                details={"arguments": list(TAKEN), "unknown": unknown},
            )
        return {**({"target": asked.skill} if asked.skill else {}), **data}
    target = asked.skill or _default_target(asked, specs, has_assistant)
    spec = next((spec for spec in specs if spec.name == target), None)
    if spec is None:  # the tool's own error lists the targets
        return {"target": target, "parameters": dict(data)}
    options: dict[str, Any] = {}
    if "parameters" in data and data.keys() <= set(TAKEN):
        options = {name: value for name, value in data.items() if name != "parameters"}
        data = data["parameters"]
    return {**options, "target": target, "parameters": _with_text(asked, spec, data) if isinstance(data, Mapping) else data}


def _with_text(asked: IncomingMessage, spec: AgentSpec, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Text is the task of an agent that takes one; for any other it would be lost."""
    if not asked.text:
        return dict(parameters)
    takes = spec.parameters_schema.get("properties", {})
    place = next((name for name in ("task", "message") if name in takes), None)
    if place is None and spec.parameters_schema.get("additionalProperties") and not takes:
        place = "task"  # a remote agent: its parameters are known there
    if place is None:
        raise DelegateError(
            f"{spec.name} takes parameters, not text.",
            advice=f"Send them as a data part: {signature(spec)}.",
            details={"agent": spec.name, "parameters": dict(spec.parameters_schema)},
        )
    return {place: asked.text, **parameters}


def _default_target(asked: IncomingMessage, specs: Sequence[AgentSpec], has_assistant: bool) -> str:
    names = [spec.name for spec in specs]
    if asked.text and has_assistant and ASSISTANT in names:
        return ASSISTANT
    prompted = [spec.name for spec in specs if not is_built_in(spec) and spec.parameters_schema.get("required") == ["task"]]
    if asked.text and len(prompted) == 1:
        return prompted[0]
    listed = list_some(names, MOST_NAMES)
    raise DelegateError(
        "The message names no agent.",
        code="INVALID_TARGET",
        advice='Name a skill in the metadata of the message, {"skill": "…"}, or send a data part {"target": "…", "parameters": {…}}. '
        f"There are {listed or 'none for you'}.",
        details={"skills": names},
    )


# ---- tasks


Read = Callable[[Record, str, int], bytes | None]
"""`Service.artifact_content`."""


def task_of(record: Record, read: Read, events: Sequence[Event] = ()) -> Task:
    """With its artifacts. Reads files: called off the event loop."""
    task = bare_task(record, events=events)
    if (output := _output(events)) is not None:
        task.artifacts.append(output)
    if record.result is not None:
        task.artifacts.extend(_artifacts(record.result, lambda path: read(record, path, FILE_BYTES)))
    return task


def bare_task(record: Record, *, events: Sequence[Event] = ()) -> Task:
    """Without its artifacts."""
    return Task(
        id=task_id_of(record),
        context_id=context_of(record),
        status=_status_of(record, events),
        history=[_asked_of(record)],
        metadata=struct_of(_metadata(record)),
    )


def task_id_of(record: Record) -> str:
    """The task that a delegation is, or continues."""
    key = record.key or ""
    return key.removeprefix(CONTINUES).partition(":")[0] if key.startswith(CONTINUES) else record.session_id


def context_of(record: Record) -> str:
    return (record.caller_info.session if record.caller_info is not None else None) or record.root_id


def _asked_of(record: Record) -> Message:
    """The message that started it, as recorded, without secrets."""
    target, operation = parts_of(record.agent)
    task = record.parameters.get("task")
    is_text = isinstance(task, str) and len(record.parameters) == 1
    data = {"target": target, "operation": operation, "parameters": dict(record.parameters)}
    return Message(
        message_id=f"{record.session_id}-asked",
        context_id=context_of(record),
        task_id=task_id_of(record),
        role=Role.ROLE_USER,
        parts=[Part(text=text_of(str(task))) if is_text else Part(data=value_of(data), media_type="application/json")],
        metadata=struct_of({"skill": record.agent}),
    )


def _status_of(record: Record, events: Sequence[Event]) -> TaskStatus:
    """Of a running one with its last message."""
    state = STATES[record.state]
    if record.result is not None:
        return _status(state, record.settled_at, _message_of(record, _words(record.result)))
    chunks = [chunk for event in events if (chunk := chunk_of(event)) is not None and chunk.type is ChunkType.PROGRESS]
    message = _message_of(record, chunks[-1].data["message"], chunks[-1].number) if chunks else None
    return _status(state, events[-1].at if events else record.started_at or record.created_at, message)


def _words(returned: ours.Return) -> str:
    """The summary; if it did not succeed, also the errors and what to do next."""
    if returned.ok:
        return returned.summary
    more = [error.message for error in returned.errors if error.message not in returned.summary]
    return "\n".join(dict.fromkeys(text for text in (returned.summary, *more, returned.next_steps) if text))


def _metadata(record: Record) -> dict[str, Any]:
    target, operation = parts_of(record.agent)
    own: dict[str, Any] = {
        "state": str(record.state), "sessionId": record.session_id, "rootId": record.root_id, "target": target, "operation": operation,
        "depth": record.depth, "path": list(record.path), "createdAt": iso(record.created_at), "deadlineAt": iso(record.deadline_at),
    }  # fmt: skip
    returned = record.result
    if returned is None:
        return {EXTENSION: own}
    own |= {
        "summary": returned.summary, "errors": [error.to_dict() for error in returned.errors], "nextSteps": returned.next_steps,
        "durationSeconds": returned.metadata.duration_seconds, "evidence": str(returned.evidence), "warnings": list(returned.warnings),
        "tokens": record.tokens, "cost": record.cost,
    }  # fmt: skip
    return {"status": str(returned.status), "stopReason": str(returned.stop_reason), EXTENSION: own}


# ---- artifacts


def _artifacts(returned: ours.Return, read: Callable[[str], bytes | None]) -> list[Artifact]:
    found: list[Artifact] = []
    if returned.data is not None:
        found.append(Artifact(artifact_id=RESULT, name=RESULT, description=text_of(returned.summary), parts=[_part(returned.data)]))
    room = FILES_BYTES
    for number, artifact in enumerate(returned.artifacts, 1):
        content = _content(artifact, read, room)
        room -= len(content or b"")
        found.append(_file(number, artifact, content))
    return found


def _part(value: Any) -> Part:
    if isinstance(value, str):
        return Part(text=text_of(value), media_type="text/plain")
    return Part(data=value_of(value), media_type="application/json")


def _output(events: Sequence[Event]) -> Artifact | None:
    parts: list[Part] = []
    room = STREAM_BYTES
    for event in reversed(events):
        if event.kind is EventKind.DATA:
            parts.append(_part(event.body.get("chunk")))
            room -= parts[-1].ByteSize()
            if room < 0:
                break
    return Artifact(artifact_id=STREAM, name=STREAM, parts=reversed(parts)) if parts else None


def _content(artifact: ours.Artifact, read: Callable[[str], bytes | None], room: int) -> bytes | None:
    """The unchanged file; None if it is large, gone or changed since."""
    if artifact.sha256 is None or artifact.size is None or artifact.size > min(FILE_BYTES, room):
        return None
    content = read(artifact.path)
    return content if content is not None and hashlib.sha256(content).hexdigest() == artifact.sha256 else None


def _file(number: int, artifact: ours.Artifact, content: bytes | None) -> Artifact:
    name, about = PurePosixPath(artifact.path).name, value_of(artifact.to_dict())
    if content is None:
        part = Part(data=about, media_type="application/json")
    else:
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        part = Part(raw=content, filename=text_of(name), media_type=kind, metadata=about.struct_value)
    return Artifact(
        artifact_id=f"file-{number}",
        name=text_of(artifact.path),
        description=text_of(artifact.summary),
        parts=[part],
        metadata=about.struct_value,
    )


# ---- updates of a stream


def update_of(chunk: Chunk, task: Task, *, appends: bool) -> TaskStatusUpdateEvent | TaskArtifactUpdateEvent:
    """The update for a chunk. `appends`: output was streamed before it."""
    about: dict[str, Any] = {"number": chunk.number}
    if chunk.type is ChunkType.DATA:
        artifact = Artifact(artifact_id=STREAM, name=STREAM, parts=[_part(chunk.data.get("chunk"))])
        metadata = struct_of({EXTENSION: about})
        return TaskArtifactUpdateEvent(task_id=task.id, context_id=task.context_id, artifact=artifact, append=appends, metadata=metadata)
    if (fraction := chunk.data.get("fraction")) is not None:
        about["fraction"] = fraction
    message = _message(task.id, task.context_id, str(chunk.data.get("message", "")), f"{task.id}-{chunk.number}")
    status = _status(TaskState.TASK_STATE_WORKING, None, message)
    return TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=status, metadata=struct_of({EXTENSION: about}))


def last_updates(task: Task) -> list[TaskArtifactUpdateEvent | TaskStatusUpdateEvent]:
    """Of a task that has ended: its artifacts, then its status."""
    artifacts = [artifact for artifact in task.artifacts if artifact.artifact_id != STREAM]
    updates: list[TaskArtifactUpdateEvent | TaskStatusUpdateEvent] = [
        TaskArtifactUpdateEvent(task_id=task.id, context_id=task.context_id, artifact=artifact, last_chunk=True) for artifact in artifacts
    ]
    return [*updates, TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=task.status, metadata=task.metadata)]


def _message_of(record: Record, words: str, number: int | None = None) -> Message:
    name = f"{record.session_id}-{'ended' if number is None else number}"
    return _message(task_id_of(record), context_of(record), words, name)


def _message(task_id: str, context_id: str, words: str, message_id: str) -> Message:
    return Message(message_id=message_id, context_id=context_id, task_id=task_id, role=Role.ROLE_AGENT, parts=[Part(text=text_of(words))])


def _status(state: TaskState, at: float | None, message: Message | None) -> TaskStatus:
    status = TaskStatus(state=state, message=message)
    if at is not None:
        status.timestamp.FromMilliseconds(round(1000 * at))
    else:
        status.timestamp.GetCurrentTime()
    return status
