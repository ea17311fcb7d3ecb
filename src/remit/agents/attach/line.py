"""A line: one connection between an attached process and the owner of its tree. The same class at both ends.

Either side asks, the other answers; a question can be withdrawn. Frames as in `agents.process.frames`. What comes over a line is not
trusted: whatever is no message ends the line, whatever is too much is not taken, and nothing of it raises in the event loop.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from remit.agents.process import frames
from remit.agents.process.wire import error_from_wire, error_to_wire
from remit.core.errors import Failed, Misused, RemitError, Unavailable

FRAME_BYTES = 16 * 1024 * 1024
"""The largest message of one who is known. A result that is larger stands in the record."""
CALLS_AT_ONCE = 256
"""Open questions of the other side, after which it is not read any more until some are answered."""
UNREAD_BYTES = 64 * 1024 * 1024
"""So much lies unread by the other side: it is not listening, and the line is cut."""

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class Answers(Protocol):
    async def call(self, name: object, body: object) -> Any:
        """The answer to a question of the other side, or what it raises."""
        ...

    def lost(self) -> None:
        """The line is gone."""
        ...


class Line(asyncio.Protocol):
    def __init__(self, answers: Answers, spawn: Spawn, *, limit: int = FRAME_BYTES, lasting: frozenset[str] = frozenset()) -> None:
        """`spawn` owns the tasks that answer; those of `lasting` questions go on when the line is lost."""
        self._answers = answers
        self._spawn = spawn
        self._lasting = lasting
        self._unpacker = frames.Unpacker(limit)
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, tuple[str, asyncio.Task[None]]] = {}
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._loop = asyncio.get_running_loop()
        self.is_lost = False
        self.gone: asyncio.Future[None] = self._loop.create_future()

    # ---- asking

    def question(self, name: str, body: dict[str, Any]) -> tuple[int, "asyncio.Future[Any]"]:
        """Its number, and the answer to come."""
        if self.is_lost:
            raise _gone()
        self._number += 1
        number = self._number
        try:
            self._send({"k": "call", "id": number, "name": name, "body": body})
        except frames.TooLarge as error:
            raise Misused(f"That is too much for one message: {error}") from None
        future = self._waiting[number] = self._loop.create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen, also where nobody waits any more
        return number, future

    async def ask(self, name: str, **body: Any) -> Any:
        number, future = self.question(name, body)
        try:
            return await future
        except asyncio.CancelledError:
            self._waiting.pop(number, None)
            self.withdraw(number)
            raise

    def withdraw(self, number: int) -> None:
        """The other side is to stop answering; what it answers all the same is still heard by whoever waits for it."""
        self._send({"k": "cancel", "id": number})

    # ---- the connection

    @property
    def socket(self) -> socket.socket | None:
        sock: socket.socket | None = None if self._transport is None else self._transport.get_extra_info("socket")
        return sock

    @property
    def is_answering(self) -> bool:
        return bool(self._calls)

    def trust(self) -> None:
        """The other side has said who it is: from now on it may say more."""
        self._unpacker.limit = FRAME_BYTES

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._unpacker.feed(data):
                self._take(message)
        except frames.Garbled:
            self.cut()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(_gone())
        self._waiting.clear()
        for name, task in list(self._calls.values()):
            if name not in self._lasting:
                task.cancel()
        if not self.gone.done():
            self.gone.set_result(None)
        self._answers.lost()

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def close(self, limit: float = 1.0) -> None:
        """What was said is still sent."""
        if self._transport is not None and not self.is_lost:
            self._transport.close()
            await asyncio.wait([self.gone], timeout=limit)
        self.cut()

    # ---- what comes

    def _take(self, message: dict[str, Any]) -> None:
        number = message.get("id")
        if not isinstance(number, int):
            raise frames.Garbled("a message without a number")
        match message.get("k"):
            case "call":
                self._take_call(number, message)
            case "reply":
                future = self._waiting.pop(number, None)
                if future is None or future.done():
                    return
                if "error" in message:
                    future.set_exception(error_from_wire(message["error"]))
                else:
                    future.set_result(message.get("value"))
            case "cancel":
                if number in self._calls:
                    self._calls[number][1].cancel()
            case _:
                raise frames.Garbled("a message of unknown kind")

    def _take_call(self, number: int, message: dict[str, Any]) -> None:
        name = message.get("name")
        if number in self._calls or not isinstance(name, str):
            raise frames.Garbled("a question without a name or a number of its own")
        self._calls[number] = (name, self._spawn(self._answer(number, name, message.get("body"))))
        if len(self._calls) >= CALLS_AT_ONCE and self._transport is not None:
            self._transport.pause_reading()

    async def _answer(self, number: int, name: str, body: object) -> None:
        reply: dict[str, Any] = {"k": "reply", "id": number}
        try:
            reply["value"] = await self._answers.call(name, body)
        except asyncio.CancelledError:
            reply["error"] = {"branch": "Stopped", "message": "It was withdrawn."}
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever answering raises is the other side's to hear
            reply["error"] = error_to_wire(error, with_traceback=not isinstance(error, RemitError))
        finally:
            self._calls.pop(number, None)
            self._reply(reply)
            if self._transport is not None and not self._transport.is_closing() and not self._transport.is_reading():
                self._transport.resume_reading()

    def _reply(self, reply: dict[str, Any]) -> None:
        try:
            self._send(reply)
        except ValueError as error:  # too large, or nothing that JSON holds
            words = f"The answer cannot be sent: {error} See it with `remit show`."
            self._send({"k": "reply", "id": reply["id"], "error": error_to_wire(Failed(words))})

    def _send(self, message: dict[str, Any]) -> None:
        data = frames.pack(message)
        if len(data) > FRAME_BYTES:
            raise frames.TooLarge(f"{len(data)} bytes of JSON; at most {FRAME_BYTES} fit.")
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        if transport.get_write_buffer_size() > UNREAD_BYTES:
            self.cut()


def _gone() -> Unavailable:
    return Unavailable(
        "The process that runs this tree is gone, or has closed the line.",
        advice="What was delegated is on record: `remit history`; `remit recover` settles what a dead process left.",
    )
