"""Calls between two processes of a delegation tree: a worker and its Remit process, an attached process and the owner of its tree.

Messages are frames of JSON (`system.framing`), the same in both directions:
  call    id, name, body    answered by a `reply` with the same id and a `value` or an `error`
  notify  name, body        not answered, but `refused` (error) when it fails
  cancel  id                withdraws a call
The other side is not trusted: a malformed message ends the connection, and no message raises here.
"""

import asyncio
import itertools
import socket
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any

from remit.core.errors import Failed, InvalidReturn, Misused, Refused, RemitError, Stopped, Unavailable
from remit.runtime.reply import format_traceback, line_of
from remit.system.frames import MAX_FRAME_BYTES, FrameTooLarge, FramingError, encode_frame, take_frames

# ---- errors

_MESSAGE_CHARACTERS = 20_000
_BRANCHES: dict[str, type[RemitError]] = {kind.__name__: kind for kind in (Refused, Failed, Stopped, Unavailable, Misused, RemitError)}


class AgentRaised(Failed):
    """The agent's function raised an exception in its process."""

    default_code = "AGENT_RAISED"


class ConnectionLost(Unavailable):
    """The other process is gone, or has closed the connection."""


class AgentNotLoaded(AgentRaised):
    """The module of the agent could not be imported in its process."""


def error_to_wire(error: BaseException, *, with_traceback: bool = False, while_loading: bool = False) -> dict[str, Any]:
    wire: dict[str, Any] = {"type": type(error).__name__, "message": _text(error)[:_MESSAGE_CHARACTERS]}
    if isinstance(error, RemitError):
        branch = next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _BRANCHES), "Failed")
        wire |= {"message": error.message, "code": error.code, "advice": error.advice, "branch": branch}
    if isinstance(error, InvalidReturn):
        wire |= {"faults": list(error.faults), "original": error.original}
    if with_traceback:
        wire |= {"traceback": format_traceback(error), "line": line_of(error)}
    if while_loading:
        wire["loading"] = True
    return wire


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - `__str__` of an agent's exception is the agent's code and may raise anything
        return "(its message could not be read)"


def error_from_wire(wire: object) -> RemitError:
    """Parse the output of `error_to_wire`. Anything else also becomes an error; never raises."""
    fields: Mapping[str, Any] = wire if isinstance(wire, Mapping) else {}
    message, advice, trace = (str(fields.get(name) or "") for name in ("message", "advice", "traceback"))
    type_name = str(fields.get("type") or "Exception")
    described = (f"{type_name}: {message}" if message else type_name) + str(fields.get("line") or "")
    branch = _BRANCHES.get(str(fields.get("branch")))
    error: RemitError
    if fields.get("loading"):
        error = AgentNotLoaded(message if branch else described, advice=advice)
    elif isinstance(fields.get("faults"), list):
        error = InvalidReturn([str(fault) for fault in fields["faults"]], advice=advice, original=str(fields.get("original") or ""))
    elif branch is not None:
        error = branch(message, code=str(fields["code"]) if fields.get("code") else None, advice=advice)
    else:
        error = AgentRaised(described)
    error.traceback_text = trace
    return error


# ---- calling


class Calls:
    """Calls to the other side that wait for a reply. Usable from any thread; `send` does the I/O."""

    def __init__(self, send: Callable[[dict[str, Any]], None], gone: Callable[[], RemitError]) -> None:
        """`gone`: the error of calls that cannot be answered any more."""
        self._send = send
        self._gone = gone
        self._numbers = itertools.count(1)
        self._pending: dict[int, Future[Any]] = {}
        self.is_lost = False

    def begin(self, name: str, body: dict[str, Any]) -> tuple[int, "Future[Any]"]:
        """The number of the call, to cancel it, and its reply."""
        number = next(self._numbers)
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()  # cancelling a waiter does not cancel the call: `cancel` does
        self._pending[number] = future
        try:
            self._send({"k": "call", "id": number, "name": name, "body": body})
        except FrameTooLarge as error:
            del self._pending[number]
            raise Misused(f"The message is too large: {error}") from None
        if self.is_lost:
            self.lose()
        return number, future

    async def call(self, name: str, body: dict[str, Any]) -> Any:
        number, future = self.begin(name, body)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self.cancel(number)
            raise

    def call_blocking(self, name: str, body: dict[str, Any]) -> Any:
        return self.begin(name, body)[1].result()

    def notify(self, name: str, body: dict[str, Any]) -> None:
        self._send({"k": "notify", "name": name, "body": body})

    def cancel(self, number: int) -> None:
        """Ask the other side to stop; a reply sent anyway is still delivered."""
        self._send({"k": "cancel", "id": number})

    def take_reply(self, message: Mapping[str, Any]) -> None:
        future = self._pending.pop(message.get("id", 0), None)
        if future is None or future.done():
            return
        if "error" in message:
            future.set_exception(error_from_wire(message["error"]))
        else:
            future.set_result(message.get("value"))

    def lose(self) -> None:
        """The connection is lost."""
        self.is_lost = True
        while self._pending:
            _, future = self._pending.popitem()
            if not future.done():
                future.set_exception(self._gone())


# ---- answering

CALLS_AT_ONCE = 256
"""Open calls of the other side beyond which it is not read until some are answered."""
UNREAD_FRAMES = 4
"""Maximum unread large frames of the other side before it is disconnected."""

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class Handler:
    """Handles calls of the other side. A raised error is sent back."""

    async def answer(self, name: str, body: dict[str, Any]) -> Any:
        raise Misused(f"This process has no {name!r:.60}.")

    def take(self, name: str, body: dict[str, Any]) -> None:
        """Handle a message without a reply."""

    def lost(self, fault: str) -> None:
        """The connection is lost; `fault`: the fault in the data, if that is the reason."""


class Connection(asyncio.Protocol):
    """One end of a connection, on an event loop."""

    def __init__(
        self, handler: Handler, spawn: Spawn, *, max_frame_bytes: int = MAX_FRAME_BYTES, lasting: frozenset[str] = frozenset()
    ) -> None:
        """`spawn` owns the answering tasks; those of `lasting` calls continue when the connection is lost."""
        self._handler = handler
        self._spawn = spawn
        self._lasting = lasting
        self._max_frame_bytes = max_frame_bytes
        self._accepted_bytes = max_frame_bytes
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._answering: dict[int, tuple[str, asyncio.Task[None]]] = {}
        self._still_answered: frozenset[str] | None = None
        self._is_deaf = False
        self._fault = ""
        self.calls = Calls(self._send, _owner_gone)
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def peer_socket(self) -> socket.socket | None:
        sock: socket.socket | None = None if self._transport is None else self._transport.get_extra_info("socket")
        return sock

    @property
    def is_answering(self) -> bool:
        return bool(self._answering)

    async def connect(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=sock)

    def limit_frames(self, max_bytes: int) -> None:
        """Limit the size of accepted frames, e.g. before authentication."""
        self._accepted_bytes = max_bytes

    def stop_answering(self, except_for: frozenset[str]) -> None:
        """Abandon the calls of the other side and refuse new ones, except for these."""
        self._still_answered = except_for
        for name, task in list(self._answering.values()):
            if name not in except_for:
                task.cancel()

    def ignore(self) -> None:
        """Read and drop everything."""
        self._is_deaf = True

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def close(self, limit: float = 1.0) -> None:
        """Send pending data, then close."""
        if self._transport is not None and not self.calls.is_lost:
            self._transport.close()
            await asyncio.wait([self.lost], timeout=limit)
        self.cut()

    async def abandon(self, limit: float) -> None:
        """Close at once and cancel all answering tasks."""
        self.cut()
        tasks = [task for _, task in self._answering.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=limit)

    async def read_to_end(self, limit: float) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        await asyncio.wait([self.lost], timeout=limit)

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            for message in take_frames(self._buffer, self._accepted_bytes):
                if not self._is_deaf:
                    self._receive(message)
        except FramingError as error:
            self._fault = str(error)
            self.cut()

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.lose()
        for name, task in list(self._answering.values()):
            if name not in self._lasting:
                task.cancel()
        if not self.lost.done():
            self.lost.set_result(None)
        self._handler.lost(self._fault)

    # ---- messages

    def _receive(self, message: dict[str, Any]) -> None:
        number, name, body = message.get("id", 0), message.get("name", ""), message.get("body")
        if not (isinstance(number, int) and isinstance(name, str)):
            raise FramingError("a message whose id or name is invalid")
        match message.get("k"):
            case "call":
                if "id" not in message or number in self._answering:
                    raise FramingError("a call without an id of its own")
                self._take_call(number, name, body)
            case "notify":
                try:
                    self._handler.take(name, _arguments(body))
                except RemitError as error:
                    self._send({"k": "refused", "error": error_to_wire(error)})
            case "reply":
                self.calls.take_reply(message)
            case "cancel":
                if number in self._answering:
                    self._answering[number][1].cancel()
            case kind:
                raise FramingError(f"a message of unknown kind {kind!r:.100}")

    def _take_call(self, number: int, name: str, body: object) -> None:
        if self._still_answered is not None and name not in self._still_answered:
            self._send({"k": "reply", "id": number, "error": error_to_wire(Stopped("The delegation is being stopped."))})
            return
        self._answering[number] = (name, self._spawn(self._answer(number, name, body)))
        if len(self._answering) >= CALLS_AT_ONCE and self._transport is not None:
            self._transport.pause_reading()

    async def _answer(self, number: int, name: str, body: object) -> None:
        outcome: dict[str, Any] | None = None
        try:
            outcome = {"value": await self._handler.answer(name, _arguments(body))}
        except asyncio.CancelledError:
            if self._still_answered is None:  # a stopped caller must not mistake the end of its calls for an answer
                outcome = {"error": error_to_wire(Stopped("The call was withdrawn."))}
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any exception while answering is for the other side
            outcome = {"error": error_to_wire(error, with_traceback=not isinstance(error, RemitError))}
        finally:
            self._answering.pop(number, None)
            if outcome is not None:
                self._reply({"k": "reply", "id": number, **outcome})
            transport = self._transport
            if transport is not None and not transport.is_closing() and not transport.is_reading():
                transport.resume_reading()

    def _reply(self, reply: dict[str, Any]) -> None:
        try:
            self._send(reply)
        except ValueError as error:  # too large, or not JSON
            words = f"The answer cannot be sent: {error} See it with `remit show`."
            self._send({"k": "reply", "id": reply["id"], "error": error_to_wire(Failed(words))})

    def _send(self, message: dict[str, Any]) -> None:
        data = encode_frame(message, self._max_frame_bytes)
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        if transport.get_write_buffer_size() > UNREAD_FRAMES * self._max_frame_bytes:
            self.cut()


def _arguments(body: object) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise Misused("The arguments of a call are given by name.")
    return body


def _owner_gone() -> ConnectionLost:
    return ConnectionLost(
        "The process that runs this tree is gone, or has closed the connection.",
        advice="Its delegations are recorded: `remit history`; `remit recover` settles the work of a dead process.",
    )
