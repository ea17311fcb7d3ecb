"""The calls of a task service, with remit's values and errors, and one task followed to its end across lost connections.

`unix:/path` and loopback are used without TLS; any other host requires TLS, so that no token crosses a network in the clear."""

import asyncio
import contextlib
import os
import random
import time
import weakref
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import grpc
import grpc.aio
from pydantic_core import from_json

from remit.agents.proto.metadata import ADVICE, AUTHORIZATION, CODE, DETAILS
from remit.agents.proto.v1 import tasks_pb2 as pb
from remit.agents.proto.v1 import tasks_pb2_grpc as rpc
from remit.core.delegate_requests import DelegateError
from remit.core.delegate_results import Chunk, DelegateResult, final_chunk, started_chunk
from remit.core.errors import Failed, Misused, Refused, RemitError, Unavailable
from remit.core.redaction import redact_text, register_secrets
from remit.server.grpc.task_messages import chunk_of_message, result_of_task
from remit.system.ip_addresses import is_loopback
from remit.system.unix_sockets import MAX_PATH_BYTES, ShortPath, grpc_target

MOST_BYTES = 64 * 1024 * 1024
"""Maximum size of one received message."""
_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.max_send_message_length", MOST_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),  # a closed channel shares nothing with the next one
    ("grpc.enable_retries", 0),  # retries are decided here, by the request's key
    ("grpc.enable_http_proxy", 0),
)


def channel_to(address: str, ca_file: str | Path | None) -> grpc.aio.Channel:
    """Connected on first use. `address`: `unix:/path` or `host:port`. Raises `Misused`, or `Unavailable` if a file cannot be read."""
    name = address.strip()
    if name.startswith("unix:"):
        path = name.removeprefix("unix:")
        path = path[2:] if path.startswith("///") else path
        if path and "\0" not in path:
            return _socket_channel(path)
    host, _, port = name.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536 or not set(name).isdisjoint("/ "):
        raise Misused(f"{address!r:.200} is not the address of a task service.", advice="Write unix:/path/of/the/socket or host:port.")
    if ca_file is None and is_loopback(host):
        return grpc.aio.insecure_channel(name, options=_OPTIONS)
    try:
        trusted = None if ca_file is None else Path(ca_file).read_bytes()
    except OSError as error:
        fault = f"{ca_file} cannot be read: {error.strerror or error}."
        raise Unavailable(fault, code="TOOL_UNAVAILABLE", advice="It must be a file in PEM form.") from None
    return grpc.aio.secure_channel(name, grpc.ssl_channel_credentials(trusted), options=_OPTIONS)


def _socket_channel(path: str) -> grpc.aio.Channel:
    """The path may be longer than the kernel allows: then it is reached through another name while the channel exists."""
    if len(os.fsencode(path)) <= MAX_PATH_BYTES:
        return grpc.aio.insecure_channel(grpc_target(path), options=_OPTIONS)
    try:
        reached = ShortPath(Path(path))
    except OSError as error:
        raise Unavailable(f"{path} cannot be reached: {error.strerror or error}.", advice=_ADVICE["AGENT_UNAVAILABLE"]) from None
    channel = grpc.aio.insecure_channel(grpc_target(reached.name), options=_OPTIONS)
    weakref.finalize(channel, reached.close)
    return channel


# ---- error answers of a task service as remit errors; retryable ones are `Unavailable`


UNIMPLEMENTED = "UNIMPLEMENTED"
_FAULTY = frozenset({"INVALID_TARGET", "INVALID_OPERATION", "INVALID_PARAMETERS"})
_WORDS = 2000
_BUSY = frozenset({"RATE_LIMITED", "QUEUE_FULL", "STOPPING", "STORE_UNAVAILABLE", "AGENT_UNAVAILABLE", "TOOL_UNAVAILABLE"})
Code = grpc.StatusCode
_CODES: Mapping[Any, str] = {
    **dict.fromkeys((Code.UNAVAILABLE, Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.ABORTED, Code.INTERNAL), "AGENT_UNAVAILABLE"),
    **dict.fromkeys((Code.UNKNOWN, Code.DATA_LOSS), "AGENT_UNAVAILABLE"),
    **dict.fromkeys((Code.INVALID_ARGUMENT, Code.OUT_OF_RANGE), "INVALID_PARAMETERS"),
    Code.UNIMPLEMENTED: UNIMPLEMENTED,
    Code.UNAUTHENTICATED: "UNAUTHENTICATED",
    Code.PERMISSION_DENIED: "FORBIDDEN",
    Code.NOT_FOUND: "TASK_NOT_FOUND",
    Code.RESOURCE_EXHAUSTED: "RATE_LIMITED",
}
"""The code of a service that sends none. A connection that breaks during an answer says nothing about the task."""
_ADVICE = {
    "AGENT_UNAVAILABLE": "Check that it is running: `remit serve` starts one.",
    "UNAUTHENTICATED": "Use a token of that server: `remit token new`.",
    "FORBIDDEN": "The token lacks this permission.",
    "RATE_LIMITED": "Try again later.",
}


class ConnectionLost(Unavailable):
    """Unreachable, disconnected or overloaded: a retry with the request's key is safe."""


def error_of(error: grpc.aio.AioRpcError, address: str) -> RemitError:
    """Trailers are untrusted."""
    trailers = dict(error.trailing_metadata() or ())
    sent_code, sent_advice, details = (trailers.get(name) for name in (CODE, ADVICE, DETAILS))
    own = unquote(sent_code)[:100] if isinstance(sent_code, str) else ""
    words = redact_text((error.details() or error.code().name)[:_WORDS]).strip()
    code = own or _CODES.get(error.code(), "UNKNOWN_ERROR")
    if error.code() is Code.RESOURCE_EXHAUSTED and "larger than max" in words:
        code = "TOO_LARGE"
    if not own:
        words = f"{address}: {words.rstrip('.')}."
    advice = (redact_text(unquote(sent_advice)[:_WORDS]) if isinstance(sent_advice, str) else "") or _ADVICE.get(code, "")
    if code in _FAULTY:
        return DelegateError(words, code=code, advice=advice, details=_details(details))
    if code in _BUSY:
        return ConnectionLost(words, code=code, advice=advice)
    kinds: Mapping[str, type[RemitError]] = {
        "TASK_NOT_FOUND": Misused,
        "TOO_LARGE": Failed,
        "UNKNOWN_ERROR": Failed,
        UNIMPLEMENTED: Unavailable,
    }
    return kinds.get(code, Refused)(words, code=code, advice=advice)


def _details(sent: object) -> Mapping[str, Any]:
    try:
        found = from_json(sent) if isinstance(sent, bytes) else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


# ---- calls


ANSWER_SECONDS = 10.0
"""Time limit of one answer; a slower service counts as lost."""
QUIET_SECONDS = 15.0
"""A stream that is silent for this long is checked with a separate call, which detects a dead connection."""


class TaskService:
    def __init__(self, channel: grpc.aio.Channel, address: str = "the task service", token: str | None = None) -> None:
        if token and (not token.isascii() or not token.isprintable() or " " in token):
            raise Misused("Invalid token: it contains characters that tokens never use.", advice="Copy it again, without line breaks.")
        self._stub: Any = rpc.TaskServiceStub(channel)  # type: ignore[no-untyped-call]
        shown = f"Bearer {token}"
        self._metadata = ((AUTHORIZATION, shown),) if token else ()
        self._held = register_secrets({"authorization": shown}) if token else None
        """Keeps the token redacted while it is in use."""
        self.address = address

    async def execute(self, request: pb.ExecuteTaskRequest) -> DelegateResult:
        answer: pb.ExecuteTaskResponse = await self._call("ExecuteTask", request)
        return result_of_task(answer.task)

    async def look(self, task_id: str) -> DelegateResult:
        answer: pb.GetTaskStatusResponse = await self._call("GetTaskStatus", pb.GetTaskStatusRequest(task_id=task_id))
        return result_of_task(answer.task)

    async def cancel(self, task_id: str, reason: str = "", *, force: bool = False) -> DelegateResult:
        """Returns when it has stopped."""
        request = pb.CancelTaskRequest(task_id=task_id, reason=reason[:1000], force=force)
        answer: pb.CancelTaskResponse = await self._call("CancelTask", request, 2 * ANSWER_SECONDS)
        return result_of_task(answer.task)

    async def _call(self, method: str, request: Any, seconds: float = ANSWER_SECONDS) -> Any:
        try:
            with self._converted_errors():
                async with asyncio.timeout(seconds):
                    return await getattr(self._stub, method)(request, metadata=self._metadata)
        except TimeoutError:
            raise ConnectionLost(f"{self.address} did not answer within {seconds:g} s.", advice="Try again later.") from None

    @contextlib.contextmanager
    def _converted_errors(self) -> Iterator[None]:
        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise error_of(error, self.address) from None
        except grpc.aio.UsageError as error:
            raise Unavailable(f"The channel to {self.address} is closed: {error}.", advice="Open another one.") from None

    async def read_stream(self, method: str, request: Any) -> AsyncGenerator[Chunk]:
        """Of `RunTask` or `StreamTask`. Raises `ConnectionLost` if the connection breaks or the service is gone."""
        call: Any = None
        reading: asyncio.Task[Any] | None = None
        task_id = getattr(request, "task_id", "")
        try:
            with self._converted_errors():
                call = getattr(self._stub, method)(request, metadata=self._metadata)
                while True:
                    reading = asyncio.ensure_future(call.read())
                    while not (await asyncio.wait((reading,), timeout=QUIET_SECONDS))[0]:
                        await self._check_alive(task_id)
                    message, reading = await reading, None
                    if message is grpc.aio.EOF:
                        if await call.code() != grpc.StatusCode.OK:
                            await call  # raises its final error
                        return
                    task_id = message.task_id or task_id
                    if (chunk := chunk_of_message(message)) is not None:
                        yield chunk
        finally:
            if call is not None:
                call.cancel()
            if reading is not None:
                reading.cancel()
                with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError, grpc.aio.UsageError):
                    await reading

    async def _check_alive(self, task_id: str) -> None:
        """Raises `ConnectionLost`. If the task has ended anyway, its stream was lost and is started again."""
        if not task_id:
            raise ConnectionLost(f"{self.address} did not answer within {QUIET_SECONDS:g} s.", advice="Try again later.")
        if (await self.look(task_id)).task_state.is_terminal:
            raise ConnectionLost(f"{self.address} has not reported the outcome of {task_id}.")


# ---- one remote task, started once and followed to its end across lost connections


FAILING_STREAMS = 3
"""After this many empty streams in a row, although the service answers, streams are given up."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class NoAnswer(Unavailable):
    """Not ended, or not reached, in the available time."""


@dataclass(slots=True, kw_only=True)
class RemoteTask:
    """`async for chunk in following.chunks()`: the last one has the result."""

    service: TaskService
    request: pb.ExecuteTaskRequest
    """With a key in its config."""
    until: float
    """Monotonic end of the wait."""
    reach_seconds: float
    """How long an unreachable service is retried before the task is known to have started."""
    is_streamed: bool
    poll_seconds: float
    task_id: str | None = None
    """Known from the first answer on."""
    _after: int = 0
    _failures: int = 0
    """Consecutive failures."""
    _failing_since: float | None = None
    _tried_at: float = 0.0
    _has_started: bool = False
    is_over: bool = False
    """Its end was received."""

    async def chunks(self) -> AsyncGenerator[Chunk]:
        """Raises `NoAnswer` at the end of the time, `Unavailable` if it could not start, and the service's refusal."""
        while True:
            self._tried_at = time.monotonic()
            try:
                async with aclosing(self._streamed() if self.is_streamed else self._polled()) as source:
                    while not self.is_over:
                        # Each wait is bounded separately: the reader may take any time between chunks.
                        async with asyncio.timeout(max(0.0, self.until - time.monotonic())):
                            chunk = await anext(source, None)
                        if chunk is None:
                            raise ConnectionLost(f"{self.service.address} ended the stream too early.")
                        if self._is_new(chunk):
                            yield chunk
                return
            except TimeoutError:
                raise self._give_up() from None
            except RemitError as error:
                await self._retry_after(error)

    def _streamed(self) -> AsyncGenerator[Chunk]:
        if self.task_id is None:
            return self.service.read_stream("RunTask", self.request)
        return self.service.read_stream("StreamTask", pb.StreamTaskRequest(task_id=self.task_id, after=self._after))

    async def _polled(self) -> AsyncGenerator[Chunk]:
        task_id = self.task_id
        while True:
            result = await (self.service.execute(self.request) if task_id is None else self.service.look(task_id))
            yield final_chunk(result) if result.task_state.is_terminal else started_chunk(result.task_id or "", result.metadata.agent_id)
            if result.task_state.is_terminal:
                return
            task_id = result.task_id or ""
            await asyncio.sleep(self.poll_seconds)

    def _is_new(self, chunk: Chunk) -> bool:
        result = chunk.result
        self.task_id = chunk.task_id or (result.task_id if result is not None else None) or self.task_id
        if result is not None and not result.task_state.is_terminal:
            raise ConnectionLost(f"{self.service.address} ended the task with a state that is not final: {result.task_state}.")
        self._failures, self._failing_since, self.is_over = 0, None, result is not None
        is_repeated = chunk.number <= self._after if chunk.number else self._has_started
        self._after, self._has_started = max(self._after, chunk.number), True
        return self.is_over or not is_repeated

    async def _retry_after(self, error: RemitError) -> None:
        """Wait before the next attempt, or raise if a retry is useless."""
        now = time.monotonic()
        if error.code == UNIMPLEMENTED and self.is_streamed:
            self.is_streamed = False
            return
        if not isinstance(error, ConnectionLost):
            raise error
        self._failures += 1
        # Since the call, not since the failure: a service that accepts connections without answering is not available either.
        self._failing_since = self._tried_at if self._failing_since is None else self._failing_since
        if self.task_id is None and now - self._failing_since >= self.reach_seconds:
            raise error
        if self.task_id is not None and self._failures >= FAILING_STREAMS:
            self.is_streamed = False
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._failures - 1, 10)) * random.uniform(0.7, 1.3)
        if now + pause >= self.until:
            raise self._give_up(error)
        await asyncio.sleep(pause)

    async def give_back(self, reason: str) -> None:
        """Stop it on the remote. If its first answer is missing, it is looked up by its key, which starts nothing twice; if the request was
        lost it may never have arrived, and its own deadline applies."""
        if self.is_over:
            return
        if self.task_id is None and self._tried_at and self._failing_since is None:
            self.task_id = (await self.service.execute(self.request)).task_id
        if self.task_id:
            await self.service.cancel(self.task_id, reason)

    def _give_up(self, last: RemitError | None = None) -> NoAnswer:
        why = f" Its last message: {last.message}" if last is not None else ""
        if self.task_id is None:
            return NoAnswer(f"{self.service.address} was not reached in time.{why}", advice=_ADVICE["AGENT_UNAVAILABLE"])
        return NoAnswer(
            f"{self.service.address} has not reported the outcome of {self.task_id} in time.{why}",
            code="TIMEOUT",
            advice=f"It may still be running there; ask for task {self.task_id}.",
        )
