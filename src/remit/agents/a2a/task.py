"""One delegation executed by an A2A agent: the message, its task on the remote, and the resulting return.

Output is streamed while the task runs; its end is always fetched whole, so nothing is put together here."""

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
    TaskState,
    TaskStatus,
)
from a2a.utils.errors import A2AError, InternalError, TaskNotFoundError, UnsupportedOperationError, VersionNotSupportedError
from google.protobuf.json_format import ParseError
from google.protobuf.message import DecodeError

from remit.agents.a2a.client import RemoteAgent, RemoteConnection
from remit.agents.definition import Definition
from remit.agents.remote import error_entry, errors_of, seconds_for_remote
from remit.core.context import Context
from remit.core.errors import Failed, OutOfTime, RemitError, Unavailable
from remit.core.ids import TRACEPARENT_HEADER as TRACEPARENT
from remit.core.ids import traceparent_of
from remit.core.redaction import redact_text
from remit.core.request_metadata import EXTENSION, HEADER, CallerPosition
from remit.core.result import ARTIFACT_TYPES
from remit.core.text import shorten_with_count
from remit.system.files import private_folder, write_private
from remit.system.http import BodyError
from remit.system.protobuf_values import dict_of, json_of, struct_of, text_of, value_of
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
    if may_pass(error):
        return Unavailable(f"{address} could not be reached: {words}")
    advice = redact_text(str(data.get("recommendation") or "")[:_WORDS])
    return Failed(f"{address} refuses it: {words}", code=code or "UNKNOWN_ERROR", advice=advice)


def may_pass(error: A2AError) -> bool:
    """Whether a retry may help: the connection was lost, or the remote is busy."""
    if isinstance(error, TaskNotFoundError | VersionNotSupportedError):
        return False
    status, code, _ = _facts_of(error)
    if code is not None or status is not None:
        return code in _BUSY if code is not None else status in _PASSING
    return isinstance(error, A2AClientTimeoutError | InternalError) or isinstance(error.__cause__, httpx.RequestError)


def _facts_of(error: A2AError) -> tuple[int | None, str | None, Mapping[str, Any]]:
    """The HTTP status, and of a remote remit the code and all additional data."""
    cause = error.__cause__
    data: Mapping[str, Any] = error.data if isinstance(error.data, dict) else {}
    code = data.get("code")
    status = cause.response.status_code if isinstance(cause, httpx.HTTPStatusError) else None
    return status, code[:100] if isinstance(code, str) else None, data


@contextlib.contextmanager
def _convert_sdk_errors() -> Iterator[None]:
    """Convert SDK errors for invalid answers: the SDK uses them before it validates them."""
    try:
        yield
    except BodyError as error:
        raise Failed(f"{error}: refused.".capitalize(), code="TOO_LARGE", advice="Ask it for less.") from None
    except (ParseError, DecodeError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise A2AClientError(f"Its answer is invalid: {type(error).__name__}: {error}"[:400]) from None


# ---- the message

MODES = ("text/plain", "application/json")
ASKS = frozenset({TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED})
FAILED = frozenset({TaskState.TASK_STATE_FAILED, TaskState.TASK_STATE_CANCELED, TaskState.TASK_STATE_REJECTED})
OVER = ASKS | FAILED | {TaskState.TASK_STATE_COMPLETED}


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
STREAM, RESULT = "stream", "result"
"""The artifacts with the streamed output and the returned data of a remit."""
_UNFIT = re.compile(r"[^\w.-]+")


def words_of(message: Message) -> str:
    return "\n".join(part.text for part in message.parts if part.WhichOneof("content") == "text").strip()


async def answer_of(task: Task, definition: Definition, ctx: Context) -> dict[str, Any]:
    """The ended task as a return document; `runtime.validate` checks it."""
    said, state = dict_of(task.metadata), TaskState.Name(task.status.state)
    extension = said.get(EXTENSION)
    own = extension if isinstance(extension, dict) else {}
    words, stated, reason = words_of(task.status.message), own.get("summary"), said.get("stopReason")
    status = "blocked" if task.status.state in ASKS else "failed"
    if task.status.state == TaskState.TASK_STATE_COMPLETED:  # a remit says whether its work is complete
        status = "completed" if EXTENSION not in said or said.get("status") in (None, "completed") else "partial"
    answer: dict[str, Any] = {
        "status": status,
        "summary": shorten_with_count(stated if isinstance(stated, str) and stated.strip() else words) or f"{definition.name} has ended.",
        "data": data_of(task.artifacts),
        "remote": {"task_id": task.id, "context_id": task.context_id, "state": state, "stop_reason": str(reason or "")[:100]},
    }
    answer["errors"] = [] if status == "completed" else errors_of(own.get("errors")) or [_error(task, words or f"{state}.", ctx)]
    if notes := await _save_files(task.artifacts, ctx):
        answer["warnings"] = notes
    if status == "partial" and reason == "deadline":
        raise OutOfTime(answer["summary"], answer=answer)  # its timeout was ours, slightly reduced
    return answer


def _error(task: Task, words: str, ctx: Context) -> dict[str, Any]:
    state = TaskState.Name(task.status.state).removeprefix("TASK_STATE_")
    code = {"FAILED": "UNKNOWN_ERROR", "COMPLETED": "UNKNOWN_ERROR", "CANCELED": "CANCELLED"}.get(state, state)
    advice = "Delegate it again."
    if task.status.state in ASKS:
        advice = f"Delegate it again with resume={ctx.session_id}, and what it asks for as its task."
    kind = "execution" if code == "UNKNOWN_ERROR" else code.lower()
    return error_entry(words, type=kind, code=code, recommendation=advice, recoverable=code != "REJECTED")


def data_of(artifacts: Sequence[Artifact]) -> Any:
    """The returned value of a remit; otherwise all text, or the values. Files are not data."""
    chosen = [one for one in artifacts if one.artifact_id == RESULT] or [one for one in artifacts if one.artifact_id != STREAM] or artifacts
    values = [value for one in chosen for part in one.parts if (value := _value(part)) is not None]
    if values and all(isinstance(value, str) for value in values):
        return "".join(values)
    return values[0] if len(values) == 1 else values or None


def _value(part: Part) -> Any:
    match part.WhichOneof("content"):
        case "text":
            return part.text
        case "data":
            return json_of(part.data)
        case "url":
            return {"url": part.url, "filename": part.filename}
    return None


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
        self._task: Task | None = None
        self._is_whole = False
        """Whether the task is as the remote has it, not only its last event."""
        self._message: Message | None = None
        """The whole answer of a remote that creates no task."""
        self._was_sent = False
        self._last_words = ""
        self._lost_at: float | None = None
        self._pause = POLL_SECONDS[0]
        self._saved: Mapping[str, Any] = ctx.saved if isinstance(ctx.saved, Mapping) and ctx.saved.get("kind") == KIND else {}
        self._is_same = self._saved.get("session_id") == ctx.session_id
        # A second attempt of a delegation is a new message: the first was answered with its failure.
        self._turn = int(self._saved.get("turn", 0)) + 1 if self._is_same else 0
        self._parameters = {TRACEPARENT: traceparent_of(ctx.backend.delegation), **({HEADER: EXTENSION} if line.is_remit else {})}
        if line.token is not None:
            self._parameters["authorization"] = f"Bearer {line.token}"

    @property
    def is_left(self) -> bool:
        """Whether a part of it may still run on the remote."""
        return (self._was_sent or self._task is not None) and not self._has_ended

    @property
    def _has_ended(self) -> bool:
        return self._message is not None or (self._task is not None and self._task.status.state in OVER)

    async def run(self) -> Any:
        """Its answer, as a return."""
        try:
            before = await self._find_earlier()
            if self._task is None:
                await self._send(before)
            await self._follow()
        except A2AError as error:
            raise error_of(error, self._connection.address) from None
        if self._message is not None:
            data = data_of([Artifact(parts=self._message.parts)])
            summary = shorten_with_count(words_of(self._message)) or f"{self._definition.name} answered."
            return {"status": "completed", "summary": summary, "data": data, "artifacts": [], "errors": []}
        assert self._task is not None
        return await answer_of(self._task, self._definition, self._ctx)

    async def _find_earlier(self) -> Task | None:
        """The task to continue: of the same delegation run again, or of the one it resumes. It may still be running."""
        if self._saved.get("address") != self._connection.address:
            return None
        try:
            task = await self._get(str(self._saved.get("task_id")))
        except (TaskNotFoundError, UnsupportedOperationError):
            return None
        if task.status.state not in OVER or (self._is_same and task.status.state not in FAILED | ASKS):
            await self._replace(task)  # it still runs there, or ended while this process was down
        return task

    async def _send(self, before: Task | None) -> None:
        """Send until a task or an answer is received."""
        message = message_of(self._connection, self._definition, self._ctx, self._arguments, before, turn=self._turn)
        configuration = SendMessageConfiguration(accepted_output_modes=MODES, return_immediately=not self._connection.streams)
        request = SendMessageRequest(message=message, configuration=configuration)
        self._was_sent = True
        while self._task is None and self._message is None:
            error: A2AError = A2AClientError("it sent no answer")
            try:
                await self._read_events(self._connection.client.send_message(request, context=self._call(stream=self._connection.streams)))
            except A2AError as lost:
                never_arrived = isinstance(lost.__cause__, httpx.ConnectError | httpx.ConnectTimeout)
                if not may_pass(lost) or not (self._connection.is_remit or never_arrived or self._task is not None):
                    raise
                error = lost
            if self._task is None and self._message is None:
                await self._wait(error)

    async def _follow(self) -> None:
        """Follow it to its end, which is fetched whole. Output during a lost connection may be missing."""
        while self._message is None and not (self._is_whole and self._has_ended):
            assert self._task is not None
            try:
                if self._connection.streams and not self._has_ended:
                    with contextlib.suppress(UnsupportedOperationError):  # it has ended, or cannot be subscribed to: it is polled
                        request = SubscribeToTaskRequest(id=self._task.id)
                        await self._read_events(self._connection.client.subscribe(request, context=self._call(stream=True)))
                await self._replace(await self._get(self._task.id))
                self._lost_at = None
                if not self._has_ended:
                    await self._sleep()
            except A2AError as error:
                if not may_pass(error):
                    raise
                await self._wait(error)

    # ---- events

    async def _read_events(self, events: AsyncIterator[StreamResponse]) -> None:
        """Ends with the task or the connection."""
        try:
            while not self._has_ended:
                with _convert_sdk_errors():
                    event = await anext(events, None)
                if event is None:
                    return
                self._lost_at, self._pause = None, POLL_SECONDS[0]
                await self._take(event)
        finally:
            if (close := getattr(events, "aclose", None)) is not None:
                await close()

    async def _take(self, event: StreamResponse) -> None:
        match event.WhichOneof("payload"):
            case "task":
                await self._replace(event.task)
            case "message":
                self._message = event.message
            case "status_update":
                update = event.status_update
                await self._replace(Task(id=update.task_id, context_id=update.context_id, status=update.status), is_whole=False)
                self._report_progress(update.status, dict_of(update.metadata))
            case "artifact_update":
                artifact = event.artifact_update.artifact
                if not self._connection.is_remit or artifact.artifact_id == STREAM:
                    for value in filter(None, map(_value, artifact.parts)):
                        self._ctx.emit(value)

    async def _replace(self, task: Task, *, is_whole: bool = True) -> None:
        is_first, self._task, self._is_whole = self._task is None, task, is_whole
        if is_first:
            place = {"kind": KIND, "address": self._connection.address, "task_id": task.id, "context_id": task.context_id}
            await self._ctx.checkpoint({**place, "session_id": self._ctx.session_id, "turn": self._turn})
        if is_whole:
            self._report_progress(task.status, dict_of(task.metadata))

    def _report_progress(self, status: TaskStatus, metadata: dict[str, Any]) -> None:
        """Report its intermediate output; its final output is its answer."""
        words = words_of(status.message)
        if status.state not in OVER and words and words != self._last_words:
            self._last_words = words
            about = metadata.get(EXTENSION)
            fraction = about.get("fraction") if isinstance(about, dict) else None
            self._ctx.progress(words, fraction if isinstance(fraction, int | float) and 0 <= fraction <= 1 else None)

    # ---- requests

    async def _get(self, task_id: str) -> Task:
        with _convert_sdk_errors():
            task: Task = await self._connection.client.get_task(GetTaskRequest(id=task_id), context=self._call())
        return task

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

    async def cancel(self, remote: RemoteAgent, token: str | None) -> None:
        """Stop it on the remote too, over its own connection: this one is closing. Nothing waits for it."""
        try:
            async with asyncio.timeout(CANCEL_SECONDS), remote.open(token) as line:
                if self._task is not None:
                    await line.client.cancel_task(CancelTaskRequest(id=self._task.id), context=self._call())
        except (A2AError, RemitError, TimeoutError, httpx.HTTPError):
            return  # it has ended, or the remote is unreachable: its own deadline ends it
