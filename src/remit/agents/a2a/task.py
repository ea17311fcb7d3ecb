"""One delegation executed by an A2A agent: the message, the growing task, its errors, and the resulting return."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
from a2a.client import A2AClientError, A2AClientTimeoutError, ClientCallContext
from a2a.types import (
    Artifact,
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import A2AError, InternalError, TaskNotFoundError, UnsupportedOperationError, VersionNotSupportedError
from google.protobuf.json_format import ParseError
from google.protobuf.message import DecodeError

from remit.agents.a2a.client import RemoteAgent, RemoteConnection, too_large
from remit.agents.definition import Definition
from remit.agents.proto.metadata import EXTENSION, HEADER, CallerPosition
from remit.agents.proto.values import dict_of, json_of, struct_of, text_of, value_of
from remit.agents.remote import error_entry, errors_of, seconds_for_remote
from remit.core.context import Context
from remit.core.errors import Failed, OutOfTime, RemitError, Unavailable
from remit.core.ids import TRACEPARENT_HEADER as TRACEPARENT
from remit.core.ids import traceparent_of
from remit.core.redaction import redact_text
from remit.core.result import ARTIFACT_TYPES
from remit.core.text import shorten_with_count
from remit.system.files import private_folder, write_private
from remit.system.http import BodyError
from remit.system.threads import off_loop

# ---- errors

_WORDS = 800
_BUSY = frozenset({"RATE_LIMITED", "QUEUE_FULL", "STOPPING", "STORE_UNAVAILABLE", "AGENT_UNAVAILABLE"})
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


def error_of(error: A2AError, address: str) -> RemitError:
    words = redact_text(error.message[:_WORDS])
    status, code, data = _facts_of(error)
    if status in (401, 403) or code in ("UNAUTHENTICATED", "FORBIDDEN"):
        advice = "Set the variable that token_variable names to a token that it accepts."
        return Unavailable(f"{address} refuses our token: {words}", code="TOOL_UNAVAILABLE", advice=advice)
    if isinstance(error, VersionNotSupportedError):
        return Failed(f"{address} speaks another version of A2A: {words}", code="AGENT_UNAVAILABLE")
    if may_pass(error):
        return Unavailable(f"{address} could not be reached: {words}")
    own = data.get("recommendation")
    advice = redact_text(own[:_WORDS]) if isinstance(own, str) else ""
    return Failed(f"{address} refuses it: {words}", code=code or "UNKNOWN_ERROR", advice=advice)


def may_pass(error: A2AError) -> bool:
    """Whether a retry may help: the connection was lost, or the remote is busy."""
    if isinstance(error, TaskNotFoundError | VersionNotSupportedError):
        return False
    status, code, _ = _facts_of(error)
    if code is not None:
        return code in _BUSY
    if status is not None:
        return status in _PASSING
    return isinstance(error, A2AClientTimeoutError | InternalError) or isinstance(error.__cause__, httpx.RequestError)


def _facts_of(error: A2AError) -> tuple[int | None, str | None, Mapping[str, Any]]:
    """The HTTP status, and of a remote remit the code and all additional data."""
    cause = error.__cause__
    data: Mapping[str, Any] = error.data if isinstance(error.data, dict) else {}
    code = data.get("code")
    status = cause.response.status_code if isinstance(cause, httpx.HTTPStatusError) else None
    return status, code[:100] if isinstance(code, str) else None, data


# ---- the task as it grows

MOST_BYTES = 32 * 1024 * 1024
MOST_ARTIFACTS = 200
STREAM = "stream"
"""The artifact in which a remit streams its output."""
FAILED = frozenset({TaskState.TASK_STATE_FAILED, TaskState.TASK_STATE_CANCELED, TaskState.TASK_STATE_REJECTED})
ENDED = FAILED | {TaskState.TASK_STATE_COMPLETED}
ASKS = frozenset({TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED})


class TaskSnapshot:
    def __init__(self, ctx: Context, *, is_remit: bool) -> None:
        self._ctx = ctx
        self._is_remit = is_remit
        self._bytes = 0
        self._last_words = ""
        self.task: Task | None = None
        self.message: Message | None = None
        """The whole answer of a remote that creates no task."""
        self.was_lost = False
        """Output during a lost connection may be missing."""

    @property
    def is_over(self) -> bool:
        return self.message is not None or (self.task is not None and self.task.status.state in ENDED | ASKS)

    def take(self, event: StreamResponse) -> None:
        """Raises `Failed` beyond the size limit."""
        match event.WhichOneof("payload"):
            case "task":
                self.replace(event.task)
            case "message":
                self.message = event.message
            case "status_update":
                self._update_status(self._task_of(event.status_update), event.status_update)
            case "artifact_update":
                update = event.artifact_update
                self._update_artifact(self._task_of(update), update.artifact, is_more=update.append)

    def replace(self, task: Task) -> None:
        """Replace it with the state on the remote."""
        self._bytes = 0
        self._count(task.ByteSize())
        if len(task.artifacts) > MOST_ARTIFACTS:
            raise too_large("artifacts", MOST_BYTES)
        is_first, self.task = self.task is None, task
        for artifact in task.artifacts if is_first else ():
            self._emit_artifact(artifact)
        self._report_progress(task.status, dict_of(task.metadata))

    def _task_of(self, update: TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> Task:
        if self.task is None:
            self.task = Task(id=update.task_id, context_id=update.context_id)
        return self.task

    def _update_status(self, task: Task, update: TaskStatusUpdateEvent) -> None:
        task.status.CopyFrom(update.status)
        if update.status.state in ENDED | ASKS:
            task.metadata.MergeFrom(update.metadata)
        self._report_progress(update.status, dict_of(update.metadata))

    def _update_artifact(self, task: Task, artifact: Artifact, *, is_more: bool) -> None:
        self._count(artifact.ByteSize())
        known = next((one for one in task.artifacts if one.artifact_id == artifact.artifact_id), None)
        if known is None:
            if len(task.artifacts) >= MOST_ARTIFACTS:
                raise too_large("artifacts", MOST_BYTES)
            task.artifacts.append(artifact)
        elif is_more:
            known.parts.extend(artifact.parts)
        else:
            known.CopyFrom(artifact)
        self._emit_artifact(artifact)

    def _emit_artifact(self, artifact: Artifact) -> None:
        if not self._is_remit or artifact.artifact_id == STREAM:
            for part in artifact.parts:
                self._emit(part)

    def _emit(self, part: Part) -> None:
        kind = part.WhichOneof("content")
        if kind == "text" and part.text:
            self._ctx.emit(part.text)
        elif kind == "data":
            self._ctx.emit(json_of(part.data))

    def _report_progress(self, status: TaskStatus, metadata: dict[str, Any]) -> None:
        """Report its intermediate output; its final output is its answer."""
        if status.state in ENDED | ASKS:
            return
        words = words_of(status.message)
        if words and words != self._last_words:
            self._last_words = words
            about = metadata.get(EXTENSION)
            fraction = about.get("fraction") if isinstance(about, dict) else None
            self._ctx.progress(words, fraction if isinstance(fraction, int | float) and 0 <= fraction <= 1 else None)

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > MOST_BYTES:
            raise too_large("all", MOST_BYTES)


def words_of(message: Message) -> str:
    return "\n".join(part.text for part in message.parts if part.WhichOneof("content") == "text").strip()


# ---- the message

MODES = ("text/plain", "application/json")


def message_of(
    line: RemoteConnection, definition: Definition, ctx: Context, arguments: Mapping[str, Any], before: Task | None, *, turn: int
) -> Message:
    """`before`: the task to continue. One that waits for input is answered; one that has ended shares its context."""
    metadata: dict[str, Any] = {}
    skill = definition.remote or (definition.name if line.is_remit else None)
    if skill is not None:
        metadata["skill"] = skill
    if line.is_remit:
        metadata[EXTENSION] = CallerPosition(depth=ctx.depth, path=ctx.path, seconds_left=seconds_for_remote(ctx)).to_dict()
    return Message(
        # The same id for the same attempt of the same delegation, in any process: a remit then does not run it twice.
        message_id=f"{ctx.session_id}-{turn}",
        context_id=before.context_id if before is not None else "",
        task_id=before.id if before is not None and before.status.state in ASKS else "",
        role=Role.ROLE_USER,
        parts=_parts(arguments, is_remit=line.is_remit),
        metadata=struct_of(metadata),
        extensions=[EXTENSION] if line.is_remit else [],
    )


def _parts(arguments: Mapping[str, Any], *, is_remit: bool) -> list[Part]:
    task = arguments.get("task")
    if is_remit:
        return [Part(data=value_of({"parameters": dict(arguments)}), media_type="application/json")]
    parts = [Part(text=text_of(task), media_type="text/plain")] if isinstance(task, str) and task else []
    more = {name: value for name, value in arguments.items() if name != "task" or not parts}
    if more or not parts:
        parts.append(Part(data=value_of(more), media_type="application/json"))
    return parts


# ---- the return

MOST_FILES = 100
RESULT = "result"
"""The artifact with the data that a remit returned."""
_UNFIT = re.compile(r"[^\w.-]+")


async def answer_of(gathered: TaskSnapshot, definition: Definition, ctx: Context) -> dict[str, Any]:
    """The answer as a return document; `runtime.validate` checks it."""
    name = definition.name
    if gathered.message is not None:
        words = words_of(gathered.message)
        parts = [_value(part) for part in gathered.message.parts]
        data = parts[0] if len(parts) == 1 else parts
        summary = shorten_with_count(words) or f"{name} answered."
        return {"status": "completed", "summary": summary, "data": data, "artifacts": [], "errors": []}
    task = gathered.task
    assert task is not None
    said = dict_of(task.metadata)
    extension = said.get(EXTENSION)
    own = extension if isinstance(extension, dict) else {}
    words = words_of(task.status.message)
    stated = own.get("summary")
    answer: dict[str, Any] = {
        "status": _answer_status(task, said),
        "summary": shorten_with_count(stated if isinstance(stated, str) and stated.strip() else words) or f"{name} has ended.",
        "data": data_of(task.artifacts),
        "remote": {"task_id": task.id, "context_id": task.context_id, "state": TaskState.Name(task.status.state)},
    }
    reason = said.get("stopReason")
    if isinstance(reason, str):
        answer["remote"]["stop_reason"] = reason[:100]
    answer["errors"] = [] if answer["status"] == "completed" else errors_of(own.get("errors")) or [_error(task, words, ctx)]
    if notes := await _save_files(task.artifacts, ctx):
        answer["warnings"] = notes
    if answer["status"] == "partial" and reason == "deadline":
        raise OutOfTime(answer["summary"], answer=answer)  # its timeout was ours, slightly reduced
    return answer


def _answer_status(task: Task, said: dict[str, Any]) -> str:
    if task.status.state != TaskState.TASK_STATE_COMPLETED:
        return "blocked" if task.status.state in ASKS else "failed"
    # A remit reports if its work is incomplete; whatever its state, it is not completed then.
    return "completed" if said.get("status") in (None, "completed") or EXTENSION not in said else "partial"


_STATE_ERRORS = {
    TaskState.TASK_STATE_INPUT_REQUIRED: ("input_required", "INPUT_REQUIRED", "It asks for input, without saying what."),
    TaskState.TASK_STATE_AUTH_REQUIRED: ("auth_required", "AUTH_REQUIRED", "It asks to be authenticated."),
    TaskState.TASK_STATE_REJECTED: ("rejected", "REJECTED", "It refused the task."),
    TaskState.TASK_STATE_CANCELED: ("cancelled", "CANCELLED", "It was cancelled on the remote."),
}


def _error(task: Task, words: str, ctx: Context) -> dict[str, Any]:
    kind, code, default = _STATE_ERRORS.get(task.status.state, ("execution", "UNKNOWN_ERROR", "It failed, without saying why."))
    advice = "Delegate it again."
    if task.status.state in ASKS:
        advice = f"Delegate it again with resume={ctx.session_id}, and what it asks for as its task."
    is_final = task.status.state == TaskState.TASK_STATE_REJECTED
    return error_entry(words or default, type=kind, code=code, recommendation=advice, recoverable=not is_final)


# ---- data


def data_of(artifacts: Sequence[Artifact]) -> Any:
    """The one returned value, or all by name. Files are not data."""
    ours = next((one for one in artifacts if one.artifact_id == RESULT), None)
    if ours is not None and len(ours.parts) == 1:
        return _value(ours.parts[0])
    shown = [one for one in artifacts if one.artifact_id != STREAM or len(artifacts) == 1]
    values = [[_value(part) for part in one.parts if part.WhichOneof("content") in ("text", "data", "url")] for one in shown]
    found = [(one.name or one.artifact_id, given) for one, given in zip(shown, values, strict=True) if given]
    if not found:
        return None
    if len(found) == 1:
        return _joined(found[0][1])
    return [{"name": name, "data": _joined(values)} for name, values in found]


def _joined(values: list[Any]) -> Any:
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    return values[0] if len(values) == 1 else values


def _value(part: Part) -> Any:
    match part.WhichOneof("content"):
        case "text":
            return part.text
        case "data":
            return json_of(part.data)
        case "url":
            return {"url": part.url, "filename": part.filename}
    return None


# ---- files


async def _save_files(artifacts: Sequence[Artifact], ctx: Context) -> list[str]:
    """Save files and return messages about those that were not kept."""
    files = [(one, part) for one in artifacts for part in one.parts if part.WhichOneof("content") == "raw"]
    for count, (artifact, part) in enumerate(files[:MOST_FILES], start=1):
        kept = await off_loop(_write_file, ctx.scratch / "remote", safe_name(part.filename or artifact.name, count), part.raw)
        kind = dict_of(part.metadata).get("type")
        ctx.artifact(kept, kind if kind in ARTIFACT_TYPES else "data", artifact.description or f"From {artifact.name or 'there'}"[:200])
    return [f"Only {MOST_FILES} of {len(files)} files from the remote were kept."] if len(files) > MOST_FILES else []


def safe_name(given: str, number: int) -> str:
    """A safe, unique file name: letters, digits, dots and hyphens, no folder, not hidden."""
    name = _UNFIT.sub("_", given.replace("\\", "/").rpartition("/")[2]).strip("._")[-80:].lstrip("._-")
    return f"{number:03d}-{name or 'file'}"


def _write_file(folder: Path, name: str, content: bytes) -> Path:
    path = private_folder(folder) / name
    write_private(path, content, fsync=False)
    return path


# ---- the delegation

KIND = "a2a"
POLL_SECONDS = (0.5, 5.0)
"""Polling interval: initial and maximum."""
LOST_SECONDS = 60.0
"""Time without a connection after which the remote is given up."""
CALL_SECONDS = 30.0
CANCEL_SECONDS = 10.0


class RemoteTask:
    def __init__(self, line: RemoteConnection, definition: Definition, ctx: Context, arguments: Mapping[str, Any]) -> None:
        self._connection = line
        self._definition = definition
        self._ctx = ctx
        self._arguments = arguments
        self._snapshot = TaskSnapshot(ctx, is_remit=line.is_remit)
        self._sent: Message | None = None
        self._lost_at: float | None = None
        self._pause = POLL_SECONDS[0]
        saved = ctx.saved if isinstance(ctx.saved, Mapping) and ctx.saved.get("kind") == KIND else {}
        self._saved: Mapping[str, Any] = saved
        self._is_same = saved.get("session_id") == ctx.session_id
        # A second attempt of a delegation is a new message: the first was answered with its failure.
        self._turn = int(saved.get("turn", 0)) + 1 if self._is_same else 0
        self._parameters = {HEADER: EXTENSION} if line.is_remit else {}
        self._parameters[TRACEPARENT] = traceparent_of(ctx.backend.delegation)
        if line.token is not None:
            self._parameters["authorization"] = f"Bearer {line.token}"

    @property
    def is_left(self) -> bool:
        """Whether a part of it may still run on the remote."""
        return (self._sent is not None or self._snapshot.task is not None) and not self._snapshot.is_over

    async def run(self) -> Any:
        """Its answer, as a return."""
        try:
            before = await self._find_earlier()
            if not self._snapshot.is_over:
                if before is None or self._snapshot.task is None:
                    await self._send(before)
                await self._follow()
        except A2AError as error:
            raise error_of(error, self._connection.address) from None
        return await answer_of(self._snapshot, self._definition, self._ctx)

    # ---- where it was before

    async def _find_earlier(self) -> Task | None:
        """The task to continue: of the same delegation run again, or of the one it resumes. It may still be running."""
        if self._saved.get("address") != self._connection.address:
            return None
        try:
            task = await self._get(str(self._saved.get("task_id")))
        except (TaskNotFoundError, UnsupportedOperationError):
            return None
        if task.status.state not in ENDED | ASKS or (self._is_same and task.status.state not in FAILED):
            self._snapshot.replace(task)  # it still runs there, or ended while this process was down
            await self._save_checkpoint(task)
        return task

    # ---- sending

    async def _send(self, before: Task | None) -> None:
        """Send until a task or an answer is received."""
        message = message_of(self._connection, self._definition, self._ctx, self._arguments, before, turn=self._turn)
        configuration = SendMessageConfiguration(accepted_output_modes=MODES, return_immediately=not self._connection.streams)
        request = SendMessageRequest(message=message, configuration=configuration)
        self._sent = message
        while True:
            try:
                await self._read_events(self._connection.client.send_message(request, context=self._call(stream=self._connection.streams)))
            except A2AError as error:
                if self._snapshot.task is not None:
                    self._note_loss(error)
                    return
                never_arrived = isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout)
                if not (self._connection.is_remit or never_arrived) or not may_pass(error):
                    raise
                await self._wait(error)
            else:
                if self._snapshot.task is not None or self._snapshot.message is not None:
                    return
                await self._wait(A2AClientError("it sent no answer"))

    async def _read_events(self, events: AsyncIterator[StreamResponse]) -> None:
        try:
            async for event in _converted_events(events):
                self._lost_at, self._pause = None, POLL_SECONDS[0]
                is_first = self._snapshot.task is None
                self._snapshot.take(event)
                if is_first and self._snapshot.task is not None:
                    await self._save_checkpoint(self._snapshot.task)
                if self._snapshot.is_over:
                    return
        finally:
            if (close := getattr(events, "aclose", None)) is not None:
                await close()

    async def _save_checkpoint(self, task: Task) -> None:
        place = {"kind": KIND, "address": self._connection.address, "task_id": task.id, "context_id": task.context_id}
        await self._ctx.checkpoint({**place, "session_id": self._ctx.session_id, "turn": self._turn})

    # ---- following

    async def _follow(self) -> None:
        """Follow it to its end. Output during a lost connection may be missing, but never the end, which is fetched whole."""
        while not self._snapshot.is_over:
            task = self._snapshot.task
            assert task is not None
            try:
                if self._connection.streams:
                    await self._subscribe(task.id)
                if not self._snapshot.is_over:
                    self._snapshot.replace(await self._get(task.id))
                    self._snapshot.was_lost = False
                self._lost_at = None
                if not self._snapshot.is_over:
                    await self._sleep()
            except A2AError as error:
                self._note_loss(error)
                await self._wait(error)
        if self._snapshot.was_lost and self._snapshot.task is not None:
            with contextlib.suppress(A2AError):  # output received so far is kept
                self._snapshot.replace(await self._get(self._snapshot.task.id))

    async def _subscribe(self, task_id: str) -> None:
        """Ends with the task or the connection."""
        self._snapshot.was_lost = True
        try:
            await self._read_events(self._connection.client.subscribe(SubscribeToTaskRequest(id=task_id), context=self._call(stream=True)))
        except UnsupportedOperationError:
            return  # it has ended, or does not support streaming: poll it instead

    async def _get(self, task_id: str) -> Task:
        with _convert_sdk_errors():
            task: Task = await self._connection.client.get_task(GetTaskRequest(id=task_id), context=self._call())
        return task

    # ---- losing it

    def _note_loss(self, error: A2AError) -> None:
        """Raise the error if waiting does not help."""
        self._snapshot.was_lost = True
        if not may_pass(error):
            raise error

    async def _wait(self, error: A2AError) -> None:
        now = asyncio.get_running_loop().time()
        if self._lost_at is None:
            self._lost_at = now
            self._ctx.progress(f"The connection to {self._connection.address} was lost; trying again.")
        if now - self._lost_at > LOST_SECONDS:
            raise Unavailable(f"{self._connection.address} could not be reached for {LOST_SECONDS:g} s: {error.message}"[:500])
        await self._sleep()

    async def _sleep(self) -> None:
        await asyncio.sleep(self._pause)
        self._pause = min(POLL_SECONDS[1], 1.5 * self._pause)

    def _call(self, *, stream: bool = False) -> ClientCallContext:
        return ClientCallContext(service_parameters=dict(self._parameters), timeout=None if stream else CALL_SECONDS)

    # ---- ending it

    async def cancel(self, remote: RemoteAgent, token: str | None) -> None:
        """Stop it on the remote too, over its own connection: this one is closing. Nothing waits for it."""
        try:
            async with asyncio.timeout(CANCEL_SECONDS), remote.open(token) as line:
                if self._snapshot.task is not None:
                    await line.client.cancel_task(CancelTaskRequest(id=self._snapshot.task.id), context=self._call())
        except (A2AError, RemitError, TimeoutError, httpx.HTTPError):
            return  # it has ended, or the remote is unreachable: its own deadline ends it


async def _converted_events(events: AsyncIterator[StreamResponse]) -> AsyncIterator[StreamResponse]:
    while True:
        with _convert_sdk_errors():
            event = await anext(events, None)
        if event is None:
            return
        yield event


@contextlib.contextmanager
def _convert_sdk_errors() -> Iterator[None]:
    """Convert SDK errors for invalid answers: the SDK uses them before it validates them."""
    try:
        yield
    except BodyError as error:
        raise Failed(f"{error}: refused.".capitalize(), code="TOO_LARGE", advice="Ask it for less.") from None
    except (ParseError, DecodeError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise A2AClientError(f"Its answer is invalid: {type(error).__name__}: {error}"[:400]) from None
