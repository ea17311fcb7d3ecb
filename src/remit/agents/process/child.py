"""One worker or command as the Remit process sees it: the pipe to its supervisor, and the calls of the worker on it."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Any

from remit.agents.process import frames
from remit.agents.process.service import Service
from remit.agents.process.supervisor import STOP
from remit.agents.process.wire import error_from_wire, error_to_wire
from remit.core.errors import AgentCrashed, Failed, Misused, RemitError
from remit.system.processes import is_alive, look, process_start, send_signal

# ---- the pipe to the supervisor

_DEAD_LIMIT = 0.1
"""For a supervisor that has reported to be gone; it has nothing left to do."""


class Pipe(asyncio.Protocol):
    """Frames off one socket, and its end."""

    def __init__(self, take: Callable[[dict[str, Any]], None], garbled: Callable[[str], None]) -> None:
        self._take = take
        self._garbled = garbled
        self._unpacker = frames.Unpacker()
        self.transport: asyncio.Transport | None = None
        self.lost = asyncio.get_running_loop().create_future()

    async def connect(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=sock)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._unpacker.feed(data):
                self._take(message)
        except frames.Garbled as error:
            self._garbled(str(error))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class Link:
    def __init__(self, garbled: Callable[[str], None] = lambda _: None) -> None:
        self._pipe = Pipe(self._take, garbled)
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begun: Mapping[str, Any] | None = None
        """For a command: its pid and start, or why it could not be started."""
        self.report: Mapping[str, Any] | None = None
        """How it ended: exit code, and the end of what it printed."""
        self.pid: int | None = None
        """Of the supervisor."""
        self.started: str | None = None

    async def connect(self, sock: socket.socket) -> None:
        await self._pipe.connect(sock)
        self._pipe.lost.add_done_callback(lambda _: self._begin())

    def know(self, pid: int) -> None:
        """The supervisor was forked."""
        self.pid = pid
        self.started = process_start(pid)

    def send(self, data: bytes) -> None:
        self._pipe.write(data)

    def order_stop(self, grace_seconds: float) -> None:
        self._pipe.write(STOP + f"{int(grace_seconds * 1000)}\n".encode())

    def when_lost(self, tell: Callable[[], None]) -> None:
        self._pipe.lost.add_done_callback(lambda _: tell())

    async def wait_begun(self) -> None:
        """Until the command runs, cannot be started, or its supervisor is gone."""
        await asyncio.shield(self._begun)

    async def wait_lost(self) -> None:
        await asyncio.wait([self._pipe.lost])

    async def wait_gone(self, limit: float) -> bool:
        """Until the supervisor has ended: it does so after everything below it."""
        await asyncio.wait([self._pipe.lost], timeout=limit)
        return self._pipe.lost.done() and self.report is not None

    async def wait_dead(self) -> None:
        """A supervisor closes its pipe a moment before it is dead."""
        if self.pid is None or not is_alive(self.pid, self.started):
            return
        try:
            handle = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # gone meanwhile, or a kernel that has no such handle
            return
        loop = asyncio.get_running_loop()
        dead = loop.create_future()
        loop.add_reader(handle, lambda: None if dead.done() else dead.set_result(None))
        try:
            await asyncio.wait([dead], timeout=_DEAD_LIMIT)
        finally:
            loop.remove_reader(handle)
            os.close(handle)

    def wake(self) -> None:
        """What runs below may have stopped its supervisor (SIGSTOP)."""
        process = look(self.pid or 0)
        if process is not None and process.started == self.started:
            send_signal(process, signal.SIGCONT)

    def close(self) -> None:
        self._pipe.close()

    def _take(self, message: dict[str, Any]) -> None:
        if "begun" in message:
            self.begun = message["begun"]
            self._begin()
        else:
            self.report = message

    def _begin(self) -> None:
        if not self._begun.done():
            self._begun.set_result(None)


# ---- workers

CALLS_AT_ONCE = 1024
"""Open questions of one worker, after which it is not read any more until some are answered."""
STDERR_TAIL_CHARACTERS = 2000
PRINTED_CHARACTERS = 2000
_OUTCOMES = frozenset({"answer", "raised", "broken"})
_MEANT = frozenset({"POLICY_DENIED", "TOOL_UNAVAILABLE"})
"""Of a refusal or unavailability that the agent itself speaks of: they mean the same in its process as in ours."""


class Child:
    def __init__(self, service: Service) -> None:
        loop = asyncio.get_running_loop()
        self._service = service
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._keepsakes: set[int] = set()
        self._outcome: dict[str, Any] | None = None
        self._garble: str | None = None
        self._spoken = loop.create_future()
        self._stopping = False
        self._channel = Pipe(self._take, self._take_garble)
        self.link = Link(self._take_garble)

    async def connect(self, channel: socket.socket, link: socket.socket) -> None:
        await self._channel.connect(channel)
        await self.link.connect(link)
        self.link.when_lost(self._speak)

    def send(self, message: dict[str, Any]) -> None:
        self._channel.write(frames.pack(message))

    async def wait_spoken(self) -> None:
        """Until there is an outcome, or there will be none."""
        await asyncio.shield(self._spoken)

    async def wait_ended(self, limit: float) -> None:
        """After the outcome: until the worker is gone and all it sent is read. At once where that cannot be expected."""
        is_well = self._outcome is not None or self.link.report is not None
        if not is_well or self._garble is not None or not await self.link.wait_gone(limit):
            return
        if self._channel.transport is not None and not self._channel.transport.is_closing():
            self._channel.transport.resume_reading()
        await asyncio.wait([self._channel.lost], timeout=limit)

    def order_stop(self, grace_seconds: float) -> None:
        """The worker is asked to end; meanwhile it may save what it has, and ask for nothing more."""
        self._stopping = True
        for number, task in self._calls.items():
            if number not in self._keepsakes:
                task.cancel()
        self.link.order_stop(grace_seconds)

    async def close(self, limit: float) -> None:
        self._channel.close()
        self.link.close()
        tasks = list(self._calls.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=limit)

    def printed(self) -> str:
        """The end of what it wrote to its standard output and error."""
        report = self.link.report or {}
        parts = []
        for name in ("stdout", "stderr"):
            tail, count = str(report.get(f"{name}_tail", "")).strip(), report.get(f"{name}_bytes", 0)
            if tail:
                cut = f" (the end of {count} bytes)" if isinstance(count, int) and count > PRINTED_CHARACTERS else ""
                parts.append(f"{name}{cut}: {tail[-PRINTED_CHARACTERS:]}")
        return "\n".join(parts)

    def outcome(self) -> Any:
        """The answer, or how it failed, raised."""
        outcome, report = self._outcome or {}, self.link.report or {}
        tail = str(report.get("stderr_tail", ""))[-STDERR_TAIL_CHARACTERS:]
        code = report.get("exit")
        match outcome:
            case {"k": "answer"}:
                return outcome.get("value")
            case {"k": "raised"}:
                error = error_from_wire(outcome.get("error"))
                raise error if isinstance(error, Failed | Misused) or error.code in _MEANT else _as_failed(error)
            case {"k": "broken"}:
                error = error_from_wire(outcome.get("error"))
                fields = outcome.get("error")
                trace = str(fields.get("traceback", "")) if isinstance(fields, dict) else ""
                raise AgentCrashed(
                    f"The agent could not be loaded: {error.message}",
                    exit_code=code,
                    stderr_tail=(tail + trace)[-STDERR_TAIL_CHARACTERS:],
                    advice="See that its module can be imported.",
                )
        if self._garble is not None:
            what = f"sent what is no message ({self._garble})"
        elif self.link.report is None:
            what = "killed its supervisor or was killed with it"
        else:
            what = f"ended without an answer, {_exit_words(code)}"
        raise AgentCrashed(f"The agent's process {what}.", exit_code=code, stderr_tail=tail, advice="See the end of its stderr.")

    # ---- what comes over the pipes

    def _take(self, message: dict[str, Any]) -> None:
        if self._outcome is not None:
            return
        kind = message.get("k")
        if not isinstance(kind, str) or not isinstance(message.get("id", 0), int):
            raise frames.Garbled("a message without a kind, or with a number that is none")
        if kind in _OUTCOMES:
            self._outcome = message
            self._speak()
        elif kind == "call":
            self._take_call(message)
        elif kind == "tell":
            self._take_tell(message)
        elif kind == "cancel":
            task = self._calls.get(message.get("id", 0))
            if task is not None:
                task.cancel()
        else:
            raise frames.Garbled(f"a message of unknown kind {kind!r}"[:200])

    def _take_tell(self, message: dict[str, Any]) -> None:
        try:
            self._service.tell(message.get("name"), message.get("body"))
        except Exception as error:  # noqa: BLE001 - what a worker says is not trusted; whatever it breaks is its own to hear
            self._reply({"k": "refused", "error": error_to_wire(_ours(error))})

    def _take_call(self, message: dict[str, Any]) -> None:
        number = message.get("id")
        if not isinstance(number, int) or number in self._calls:
            raise frames.Garbled("a question without a number of its own")
        is_keepsake = message.get("name") in ("checkpoint", "scratch", "budget")
        if self._stopping and not is_keepsake:
            self._reply({"k": "reply", "id": number, "error": {"branch": "Stopped", "message": "The delegation is being stopped."}})
            return
        if is_keepsake:
            self._keepsakes.add(number)
        self._calls[number] = asyncio.create_task(self._answer(number, message))
        if len(self._calls) >= CALLS_AT_ONCE and self._channel.transport is not None:
            self._channel.transport.pause_reading()

    async def _answer(self, number: int, message: dict[str, Any]) -> None:
        try:
            value = await self._service.call(message.get("name"), message.get("body"))
            self._reply({"k": "reply", "id": number, "value": value})
        except Exception as error:  # noqa: BLE001 - as for `tell`
            self._reply({"k": "reply", "id": number, "error": error_to_wire(_ours(error))})
        finally:
            del self._calls[number]
            self._keepsakes.discard(number)
            transport = self._channel.transport
            if transport is not None and not transport.is_closing() and not transport.is_reading():
                transport.resume_reading()

    def _reply(self, message: dict[str, Any]) -> None:
        try:
            self.send(message)
        except ValueError as error:  # a return that does not fit into a frame
            with contextlib.suppress(ValueError):
                self.send({"k": "reply", "id": message.get("id"), "error": error_to_wire(Failed(str(error)))})

    def _take_garble(self, why: str) -> None:
        self._garble = why
        self._speak()

    def _speak(self) -> None:
        if not self._spoken.done():
            self._spoken.set_result(None)


def _ours(error: Exception) -> RemitError:
    if isinstance(error, RemitError):
        return error
    if isinstance(error, TypeError):  # arguments that the question does not have
        return Misused(f"The context was misused: {error}")
    return Failed(f"{type(error).__name__}: {error}")


def _as_failed(error: RemitError) -> Failed:
    """A refusal or unavailability the agent met and let through is how the *agent* failed."""
    return Failed(error.message, code=error.code, advice=error.advice)


def _exit_words(code: object) -> str:
    if isinstance(code, int) and code < 0:
        return f"killed by signal {-code}"
    return f"exit code {code}"
