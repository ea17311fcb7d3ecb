"""Where a task service listens, what is shown there, and the channel to it. Nothing is sent here.

`unix:/path` and loopback are spoken to in the clear; any other host by TLS, so that no token ever crosses a network for others to read.
"""

import asyncio
import contextlib
import ipaddress
import os
import random
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from remit.agents.grpc.messages import chunk_of_message, result_of_task
from remit.agents.proto.metadata import ADVICE, AUTHORIZATION, CODE, DETAILS, PUSHBACK
from remit.agents.proto.v1 import tasks_pb2 as pb
from remit.agents.proto.v1 import tasks_pb2_grpc as rpc
from remit.agents.proto.values import dict_of
from remit.core.delegate_requests import DelegateError
from remit.core.delegate_results import Chunk, DelegateResult, final_chunk, started_chunk
from remit.core.errors import Failed, Misused, Refused, RemitError, Unavailable
from remit.core.redaction import SecretValues, redact_text, register_secrets
from remit.system.unix_sockets import MAX_PATH_BYTES, ShortPath, grpc_target

# ---- Where a task service listens, what is shown there, and the channel to it. Nothing is sent here.


MOST_BYTES = 64 * 1024 * 1024
"""Of one message from there."""
_PLAIN, _TLS = "plain:", "tls:"
_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.max_send_message_length", MOST_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),  # a channel that is closed shares nothing with the next one
    ("grpc.enable_retries", 0),  # what may be sent again is decided here, by its key
    ("grpc.enable_http_proxy", 0),
)


class Target(NamedTuple):
    target: str
    """As gRPC takes it."""
    is_tls: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAddress:
    """How a service is reached."""

    address: str
    """`unix:/path`, `host:port`, `tls:host:port`, or `plain:host:port` for a host whose network is trusted."""
    token: Callable[[], str | None] = field(default=lambda: None, repr=False)
    """What is shown; asked for at each call, since it may be renewed."""
    ca_file: str | Path | None = None
    certificate_file: str | Path | None = None
    """Of ours, for mutual TLS."""
    key_file: str | Path | None = None

    def where(self) -> Target:
        """Raises `Misused` for what is no address."""
        address = self.address.strip()
        if address.startswith("unix:"):
            path = address.removeprefix("unix:")
            path = path[2:] if path.startswith("///") else path
            if not path or "\0" in path:
                raise _no_address(self.address)
            return Target(f"unix:{path}", self.ca_file is not None)
        is_tls, is_plain = address.startswith(_TLS), address.startswith(_PLAIN)
        bare = address.removeprefix(_TLS).removeprefix(_PLAIN)
        host, colon, port = bare.rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536 or "/" in bare or " " in bare:
            raise _no_address(self.address)
        if is_plain and self.ca_file is not None:
            raise Misused(
                f"{self.address}: a ca_file needs TLS, and the address says plain:, without TLS.", advice="Leave one of them out."
            )
        return Target(bare, is_tls or self.ca_file is not None or not (is_plain or is_loopback(host)))

    def metadata(self) -> list[tuple[str, str]]:
        token = self.token()
        if not token:
            return []
        if not token.isascii() or not token.isprintable() or " " in token:
            raise Misused("Invalid token: it contains characters that tokens never use.", advice="Copy it again, without line breaks.")
        return [(AUTHORIZATION, f"Bearer {token}")]

    def open(self) -> grpc.aio.Channel:
        """A channel; connected when it is first used. Raises `Misused`, or `Unavailable` where a file cannot be read."""
        target, is_tls = self.where()
        if not is_tls:
            if self.address.startswith(_PLAIN) and self.token() and not is_loopback(target.rpartition(":")[0]):
                raise Misused(
                    f"No token is sent to {self.address} in the clear.", advice=f"Write {_TLS}{target}, with TLS on the other side."
                )
            return _opened(target)
        own = (_read(self.key_file), _read(self.certificate_file))
        if (own[0] is None) != (own[1] is None):
            raise Misused("A certificate and its key are given together.", advice="Name both files.")
        credentials = grpc.ssl_channel_credentials(_read(self.ca_file), *own)
        return grpc.aio.secure_channel(target, credentials, options=_OPTIONS)


def _opened(target: str) -> grpc.aio.Channel:
    """A socket's path may be longer than the kernel takes: it is then reached by another name, for as long as there is the channel."""
    path = target.removeprefix("unix:")
    if path == target or len(os.fsencode(path)) <= MAX_PATH_BYTES:
        return grpc.aio.insecure_channel(target if path == target else grpc_target(path), options=_OPTIONS)
    try:
        reached = ShortPath(Path(path))
    except OSError as error:
        raise Unavailable(
            f"{path} cannot be reached: {error.strerror or error}.", advice="Is it running? `remit serve` starts one."
        ) from None
    channel = grpc.aio.insecure_channel(grpc_target(reached.name), options=_OPTIONS)
    weakref.finalize(channel, reached.close)
    return channel


def is_loopback(host: str) -> bool:
    name = host.strip("[]")
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def token_from(variable: str | None) -> Callable[[], str | None]:
    """Of the environment as it is when it is needed; it never stands in a file, and is struck out of whatever is kept."""
    return lambda: (os.environ.get(variable) or "").strip() or None if variable else None


def _read(path: str | Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        fault = f"{path} cannot be read: {error.strerror or error}."
        raise Unavailable(fault, code="TOOL_UNAVAILABLE", advice="It must be a file in PEM form.") from None


def _no_address(given: str) -> Misused:
    return Misused(f"{given!r:.200} is no address of a task service.", advice="Write unix:/path/of/the/socket or host:port.")


# ---- What a task service elsewhere answers in place of an answer, as an error of ours. One that may be tried again is `Unavai


UNIMPLEMENTED = "UNIMPLEMENTED"
_FAULTY = frozenset({"INVALID_TARGET", "INVALID_OPERATION", "INVALID_PARAMETERS"})
_WORDS = 2000
_BUSY = frozenset({"RATE_LIMITED", "QUEUE_FULL", "STOPPING", "STORE_UNAVAILABLE", "AGENT_UNAVAILABLE", "TOOL_UNAVAILABLE"})
Code = grpc.StatusCode
_LOST = frozenset({Code.UNAVAILABLE, Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.ABORTED, Code.INTERNAL, Code.UNKNOWN, Code.DATA_LOSS})
"""Also what is told of a connection that breaks in the middle of an answer; it says nothing of the task."""


class ConnectionLost(Unavailable):
    """It could not be reached, or not any more, or has no time now: to ask again is safe, by the key of the request."""

    def __init__(self, message: str, *, code: str | None = None, advice: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, code=code, advice=advice)
        self.retry_after = retry_after
        """Seconds; None: whenever."""


class _Told(NamedTuple):
    code: str = ""
    advice: str = ""
    details: Mapping[str, Any] = {}
    retry_after: float | None = None


def error_of(error: grpc.aio.AioRpcError, address: str) -> RemitError:
    told = _told(error)
    words = redact_text((error.details() or error.code().name)[:_WORDS]).strip()
    if told.code:
        return _of_code(told, words)
    words = words.rstrip(".")
    match error.code():
        case Code.UNIMPLEMENTED:
            return Unavailable(f"{address} does not know this call: {words}.", code=UNIMPLEMENTED)
        case Code.UNAUTHENTICATED:
            advice = "Show a token that it made: `remit token new`."
            return Refused(f"{address} does not let us in: {words}.", code="UNAUTHENTICATED", advice=advice)
        case Code.PERMISSION_DENIED:
            return Refused(f"{address} refuses it: {words}.", code="FORBIDDEN", advice="The token we show was not granted it.")
        case Code.INVALID_ARGUMENT | Code.OUT_OF_RANGE:
            return DelegateError(f"{words}.", code="INVALID_PARAMETERS")
        case Code.NOT_FOUND:
            return Misused(f"{words}.", code="TASK_NOT_FOUND")
        case Code.RESOURCE_EXHAUSTED if "larger than max" in words:
            return Failed(f"The answer of {address} is too large to be taken: {words}.", code="TOO_LARGE")
        case Code.RESOURCE_EXHAUSTED:
            return ConnectionLost(
                f"{address} has no room: {words}.", code="RATE_LIMITED", advice="Try again later.", retry_after=told.retry_after
            )
        case code if code in _LOST:
            return ConnectionLost(f"{address} cannot be reached: {words}.", advice="Is it running? `remit serve` starts one.")
    return Failed(f"{address} answered {error.code().name}: {words}.")


def _of_code(told: _Told, words: str) -> RemitError:
    if told.code in _FAULTY:
        return DelegateError(words, code=told.code, advice=told.advice, details=told.details)
    if told.code == "TASK_NOT_FOUND":
        return Misused(words, code=told.code, advice=told.advice)
    if told.code in _BUSY:
        return ConnectionLost(words, code=told.code, advice=told.advice, retry_after=told.retry_after)
    return Refused(words, code=told.code, advice=told.advice)


def _told(error: grpc.aio.AioRpcError) -> _Told:
    """Whatever of it is there and can be read: trailers are a stranger's."""
    found = dict(error.trailing_metadata() or ())
    code, advice, wait, details = (found.get(name) for name in (CODE, ADVICE, PUSHBACK, DETAILS))
    return _Told(
        unquote(code)[:100] if isinstance(code, str) else "",
        redact_text(unquote(advice)[:_WORDS]) if isinstance(advice, str) else "",
        _details(details) if isinstance(details, bytes) else {},
        min(int(wait) / 1000, 60.0) if isinstance(wait, str) and wait.isascii() and wait.isdigit() else None,
    )


def _details(packed: bytes) -> dict[str, Any]:
    try:
        status = Status.FromString(packed)
        struct = next((one for one in status.details if one.Is(Struct.DESCRIPTOR)), None)
        return {} if struct is None else dict_of(Struct.FromString(struct.value))
    except DecodeError:
        return {}


# ---- `TaskService`: the calls of a task service elsewhere, one method each, in our own values and errors. Knows nothing of tr


ANSWER_SECONDS = 10.0
"""So long one answer is waited for; a service that needs longer counts as lost for now."""
QUIET_SECONDS = 15.0
"""A stream that says nothing for so long is looked into: by a question of its own, on which a dead connection shows."""
Pairs = Sequence[tuple[str, str]]


class TaskService:
    def __init__(self, reach: ServiceAddress | None = None, channel: grpc.aio.Channel | None = None) -> None:
        """By an address, or over a channel of the caller's, which it closes itself."""
        if (reach is None) == (channel is None):
            raise TypeError("either where it is reached, or a channel")
        self._reach = reach
        self._given = channel
        self._channel = channel
        self._stub: Any = None
        self._held: SecretValues | None = None
        """Our token, while it is in use: struck out of whatever is kept."""
        self.address = reach.address if reach is not None else "the task service"

    def _calls(self) -> Any:
        if self._stub is None:
            if self._channel is None:
                assert self._reach is not None
                self._channel = self._reach.open()
            self._stub = rpc.TaskServiceStub(self._channel)  # type: ignore[no-untyped-call]
        return self._stub

    def _metadata(self, more: Pairs) -> Pairs:
        shown = self._reach.metadata() if self._reach is not None else []
        if shown:
            self._held = register_secrets({"authorization": shown[0][1]})
        return [*shown, *more]

    async def close(self) -> None:
        channel, self._stub = self._channel, None
        self._channel = self._given
        if channel is not None and self._given is None:
            await channel.close()

    # ---- calls that are answered once

    async def execute(self, request: pb.ExecuteTaskRequest, more: Pairs = ()) -> DelegateResult:
        answer: pb.ExecuteTaskResponse = await self._asked(lambda calls: calls.ExecuteTask, request, more)
        return result_of_task(answer.task)

    async def look(self, task_id: str, more: Pairs = ()) -> DelegateResult:
        request = pb.GetTaskStatusRequest(task_id=task_id)
        answer: pb.GetTaskStatusResponse = await self._asked(lambda calls: calls.GetTaskStatus, request, more)
        return result_of_task(answer.task)

    async def cancel(self, task_id: str, reason: str = "", *, force: bool = False, more: Pairs = ()) -> DelegateResult:
        """Answers when it has stopped."""
        request = pb.CancelTaskRequest(task_id=task_id, reason=reason[:1000], force=force)
        answer: pb.CancelTaskResponse = await self._asked(lambda calls: calls.CancelTask, request, more, 2 * ANSWER_SECONDS)
        return result_of_task(answer.task)

    async def agents(self, more: Pairs = ()) -> list[pb.AgentInfo]:
        answer: pb.ListAgentsResponse = await self._asked(lambda calls: calls.ListAgents, pb.ListAgentsRequest(), more)
        return list(answer.agents)

    async def _asked(self, method: Callable[[Any], Any], request: Any, more: Pairs, seconds: float = ANSWER_SECONDS) -> Any:
        try:
            async with asyncio.timeout(seconds):
                return await method(self._calls())(request, metadata=self._metadata(more))
        except grpc.aio.AioRpcError as error:
            raise error_of(error, self.address) from None
        except grpc.aio.UsageError as error:
            raise Unavailable(f"The channel to {self.address} is closed: {error}.", advice="Open another one.") from None
        except TimeoutError:
            raise ConnectionLost(f"{self.address} did not answer within {seconds:g} s.", advice="Try again later.") from None

    # ---- streams

    def run(self, request: pb.ExecuteTaskRequest, more: Pairs = ()) -> AsyncGenerator[Chunk]:
        """Begins a task and streams it; the first chunk tells its id."""
        return self._heard(lambda calls: calls.RunTask, request, more)

    def stream(self, task_id: str, after: int = 0, more: Pairs = ()) -> AsyncGenerator[Chunk]:
        return self._heard(lambda calls: calls.StreamTask, pb.StreamTaskRequest(task_id=task_id, after=after), more)

    async def _heard(self, method: Callable[[Any], Any], request: Any, more: Pairs) -> AsyncGenerator[Chunk]:
        """Raises `ConnectionLost` when the connection breaks, or when nobody is there any more."""
        call: Any = None
        reading: asyncio.Task[Any] | None = None
        task_id = getattr(request, "task_id", "")
        try:
            call = method(self._calls())(request, metadata=self._metadata(more))
            while True:
                reading = asyncio.ensure_future(call.read())
                while not (await asyncio.wait((reading,), timeout=QUIET_SECONDS))[0]:
                    await self._still_there(task_id, more)
                message, reading = await reading, None
                if message is grpc.aio.EOF:
                    if await call.code() != grpc.StatusCode.OK:
                        await call  # raises what it ended with
                    return
                task_id = message.task_id or task_id
                if (chunk := chunk_of_message(message)) is not None:
                    yield chunk
        except grpc.aio.AioRpcError as error:
            raise error_of(error, self.address) from None
        except grpc.aio.UsageError as error:
            raise Unavailable(f"The channel to {self.address} is closed: {error}.", advice="Open another one.") from None
        finally:
            if call is not None:
                call.cancel()
            if reading is not None:
                reading.cancel()
                with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError, grpc.aio.UsageError):
                    await reading

    async def _still_there(self, task_id: str, more: Pairs) -> None:
        """Raises `ConnectionLost`. Of one that has ended all the same the stream has been lost on its way, and is begun again."""
        if not task_id:
            raise ConnectionLost(f"{self.address} did not answer within {QUIET_SECONDS:g} s.", advice="Try again later.")
        if (await self.look(task_id, more)).task_state.is_terminal:
            raise ConnectionLost(f"{self.address} has not told the end of {task_id}.")


# ---- One task elsewhere, begun once and followed to its end, whatever becomes of the connection meanwhile.


POLL_SECONDS = 0.5
FAILING_STREAMS = 3
"""After so many in a row that told nothing, though the service answers, streams are given up."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class NoAnswer(Unavailable):
    """Not ended, or not heard of, in the time there was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOrder:
    request: pb.ExecuteTaskRequest
    """With a key in its config."""
    until: float
    """Monotonic: then nobody waits any longer."""
    reach_seconds: float = 5.0
    """So long a service that cannot be reached is tried before the task is known to have begun."""
    is_streamed: bool = True
    poll_seconds: float = POLL_SECONDS
    more: Callable[[], Pairs] = tuple
    """Further metadata, as it is when a call is made."""


class RemoteTask:
    """Of one order. `async for chunk in following.chunks()`: the last one has the result."""

    def __init__(self, service: TaskService, order: TaskOrder) -> None:
        self._service = service
        self._order = order
        self.task_id: str | None = None
        """Known from the first answer on."""
        self._after = 0
        self._streams = order.is_streamed
        self._failures = 0
        """In a row, with nothing heard between them."""
        self._failing_since: float | None = None
        self._tried_at = 0.0
        self._has_told = False
        self.is_over = False
        """Its end was told."""

    async def chunks(self) -> AsyncGenerator[Chunk]:
        """Raises `NoAnswer` at the end of the time, `Unavailable` where it could not be begun, and what the service refuses it with."""
        while True:
            self._tried_at = time.monotonic()
            try:
                async with aclosing(self._streamed() if self._streams else self._polled()) as source:
                    while (chunk := await self._next(source)) is not None:
                        if chunk.result is not None and not chunk.result.task_state.is_terminal:
                            self.task_id = chunk.task_id or chunk.result.task_id or self.task_id
                            raise ConnectionLost(
                                f"{self._service.address} ended the task with a state that is not final: {chunk.result.task_state}."
                            )
                        self.is_over = chunk.result is not None
                        if (told := self._heard(chunk)) is not None:
                            yield told
                        if self.is_over:
                            return
                raise ConnectionLost(f"{self._service.address} ended the stream too early.")
            except RemitError as error:
                await self._again_after(error)

    async def _next(self, source: AsyncGenerator[Chunk]) -> Chunk | None:
        """Bounded each by itself: whoever reads the chunks takes its own time between them."""
        left = self._order.until - time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, left)):
                return await anext(source, None)
        except TimeoutError:
            raise self._gave_up() from None

    def _streamed(self) -> AsyncGenerator[Chunk]:
        more = self._order.more()
        if self.task_id is None:
            return self._service.run(self._order.request, more)
        return self._service.stream(self.task_id, self._after, more)

    async def _polled(self) -> AsyncGenerator[Chunk]:
        if self.task_id is None:
            result = await self._service.execute(self._order.request, self._order.more())
            yield _as_it_stands(result)
        else:
            result = await self._service.look(self.task_id, self._order.more())
            yield _as_it_stands(result)
        while not result.task_state.is_terminal:
            await asyncio.sleep(self._order.poll_seconds)
            result = await self._service.look(result.task_id or "", self._order.more())
            yield _as_it_stands(result)

    def _heard(self, chunk: Chunk) -> Chunk | None:
        """What is new of it."""
        self._failures, self._failing_since = 0, None
        self.task_id = chunk.task_id or self.task_id
        if chunk.number:
            if chunk.number <= self._after and chunk.result is None:
                return None
            self._after = max(self._after, chunk.number)
        elif chunk.result is None and self._has_told:  # that it has begun, once more
            return None
        self._has_told = True
        return chunk

    async def _again_after(self, error: RemitError) -> None:
        """Wait a moment before the next try, or raise what there is no trying again for."""
        now = time.monotonic()
        if error.code == UNIMPLEMENTED and self._streams:
            self._streams = False
            return
        if not isinstance(error, ConnectionLost):
            raise error
        self._failures += 1
        # Since it was asked, not since it failed to answer: one that takes connections and says nothing is not there either.
        self._failing_since = self._tried_at if self._failing_since is None else self._failing_since
        if self.task_id is None and now - self._failing_since >= self._order.reach_seconds:
            raise error
        if self._streams and self.task_id is not None and self._failures >= FAILING_STREAMS:
            self._streams = False
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._failures - 1, 10)) * random.uniform(0.7, 1.3)
        pause = max(pause, error.retry_after or 0.0)
        if now + pause >= self._order.until:
            raise self._gave_up(error)
        await asyncio.sleep(pause)

    async def give_back(self, reason: str) -> None:
        """Have it stopped there. Where it was sent and its first answer has not come yet, it is asked for by its key, which begins nothing
        twice; where it was lost on the way it may never have arrived, and is left to its own deadline."""
        if self.is_over:
            return
        if self.task_id is None and self._tried_at and self._failing_since is None:
            self.task_id = (await self._service.execute(self._order.request, self._order.more())).task_id
        if self.task_id:
            await self._service.cancel(self.task_id, reason)

    def _gave_up(self, last: RemitError | None = None) -> NoAnswer:
        why = f" The last that was heard: {last.message}" if last is not None else ""
        if self.task_id is None:
            return NoAnswer(f"{self._service.address} was not reached in time.{why}", advice="Is it running? `remit serve` starts one.")
        advice = f"It may still be running there; ask for task {self.task_id}."
        return NoAnswer(f"{self._service.address} has not told the end of {self.task_id} in time.{why}", code="TIMEOUT", advice=advice)


def _as_it_stands(result: DelegateResult) -> Chunk:
    return final_chunk(result) if result.task_state.is_terminal else started_chunk(result.task_id or "", result.metadata.agent_id)
