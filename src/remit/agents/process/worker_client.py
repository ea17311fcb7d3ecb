"""A worker as seen by the Remit process: the link to its supervisor, and the connection on which it executes its agent."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from remit.agents.process.supervisor import STOP
from remit.agents.remote_context import ContextService, as_failed
from remit.agents.rpc import AgentNotLoaded, Connection, ConnectionLost, Handler
from remit.core.errors import AgentCrashed, Failed, Misused, RemitError
from remit.system.frames import FramingError, take_frames
from remit.system.processes import look, send_signal

# ---- the link to a supervisor

_DEAD_LIMIT = 0.1
"""Time for a supervisor to exit after its report."""


async def wait_dead(pid: int, limit: float) -> bool:
    """Whether a process has ended within `limit` seconds."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return True
    loop = asyncio.get_running_loop()
    dead: asyncio.Future[None] = loop.create_future()
    loop.add_reader(handle, lambda: None if dead.done() else dead.set_result(None))
    try:
        return bool((await asyncio.wait([dead], timeout=limit))[0])
    finally:
        loop.remove_reader(handle)
        os.close(handle)


class SupervisorLink(asyncio.Protocol):
    """Orders to the supervisor of one worker or command, and its reports."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begun: asyncio.Future[Mapping[str, Any] | None] = asyncio.get_running_loop().create_future()
        """For a command: its pid and start, or why it could not be started; None if its supervisor is gone."""
        self.report: Mapping[str, Any] | None = None
        """How it ended: exit code, and the end of its output."""
        self.pid: int | None = None
        """Pid of the supervisor."""
        self.started: str | None = None

    async def connect(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=sock)

    def set_supervisor(self, forked: Mapping[str, Any]) -> None:
        """Set the process that the fork server forked."""
        self.pid, self.started = forked["pid"], forked["started"]

    def send(self, data: bytes) -> None:
        """If the supervisor has ended, its report is still read: a failed write of the transport would discard it."""
        if self._socket is None or self._transport is None or self._transport.is_closing():
            return
        sent = 0
        if not self._transport.get_write_buffer_size():
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                pass
            except OSError:
                return
        if sent < len(data):
            self._transport.write(data[sent:])

    def order_stop(self, grace_seconds: float) -> None:
        self.send(STOP + f"{int(grace_seconds * 1000)}\n".encode())

    def wake(self) -> None:
        """Continue a supervisor that processes below it have stopped (SIGSTOP)."""
        process = look(self.pid or 0)
        if process is not None and process.started == self.started:
            send_signal(process, signal.SIGCONT)

    @property
    def is_gone(self) -> bool:
        """Whether the supervisor has ended, which it does after everything below it."""
        return self.lost.done() and self.report is not None

    async def wait_gone(self, limit: float) -> bool:
        await asyncio.wait([self.lost], timeout=limit)
        return self.is_gone

    async def wait_dead(self) -> None:
        """A supervisor closes its link a moment before it exits."""
        await wait_dead(self.pid or 0, _DEAD_LIMIT)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            for message in take_frames(self._buffer):
                if "begun" not in message:
                    self.report = message
                elif not self.begun.done():
                    self.begun.set_result(message["begun"])
        except FramingError:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        for future in (self.begun, self.lost):
            if not future.done():
                future.set_result(None)


# ---- a worker

STDERR_TAIL_CHARACTERS = 2000
PRINTED_CHARACTERS = 2000
_ANSWERED_WHILE_STOPPING = frozenset({"checkpoint", "scratch", "budget"})
_SAME_MEANING = frozenset({"POLICY_DENIED", "TOOL_UNAVAILABLE"})
"""Codes of a refusal or unavailability that mean the same in the agent's process and here."""


class WorkerClient(Handler):
    """Has the worker execute its job, and answers the agent's context calls. The worker is untrusted."""

    def __init__(self, make_service: Callable[[], ContextService]) -> None:
        self._make_service = make_service
        self._answer: asyncio.Future[Any] | None = None
        self._fault = ""
        self._stopping: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connection = Connection(self, asyncio.create_task)
        self.link = SupervisorLink()

    @cached_property
    def _service(self) -> ContextService:
        """Made for the first context call: most agents make none."""
        return self._make_service()

    async def start(self, channel: socket.socket, link: socket.socket, job: dict[str, Any]) -> None:
        await self._connection.connect(channel)
        await self.link.connect(link)
        _, answer = self._connection.calls.begin("perform", job)
        self._answer = asyncio.wrap_future(answer)
        self._answer.add_done_callback(self._take_answer)

    def _take_answer(self, answer: "asyncio.Future[Any]") -> None:
        self._connection.ignore()
        if not answer.cancelled():
            answer.exception()  # `outcome` raises it, if it is still awaited

    async def wait_ended(self, limit: float) -> None:
        """Until there is an answer and the worker is gone, no answer can follow, or it must be stopped."""
        assert self._answer is not None
        answer, lost, stopping = self._answer, self.link.lost, self._stopping
        await asyncio.wait((answer, lost, stopping), return_when=asyncio.FIRST_COMPLETED)
        if self._answered() is None and not self._fault:
            await asyncio.wait((lost, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done() and not self._fault and await self.link.wait_gone(limit):
            await self._connection.read_to_end(limit)
            await asyncio.wait([answer], timeout=limit)

    def _answered(self) -> "asyncio.Future[Any] | None":
        """Its answer; None if it has none, or lost its connection."""
        answer = self._answer
        return answer if answer is not None and answer.done() and not isinstance(answer.exception(), ConnectionLost) else None

    def stop(self) -> None:
        """Its result is no longer needed."""
        if not self._stopping.done():
            self._stopping.set_result(None)

    def order_stop(self, grace_seconds: float) -> None:
        """Ask the worker to end; meanwhile it may save its state but make no other calls."""
        self._connection.stop_answering(except_for=_ANSWERED_WHILE_STOPPING)
        self.link.order_stop(grace_seconds)

    async def close(self, limit: float) -> None:
        self.link.close()
        await self._connection.abandon(limit)

    def printed(self) -> str:
        """The end of its standard output and error."""
        report = self.link.report or {}
        parts = []
        for name in ("stdout", "stderr"):
            tail, count = str(report.get(f"{name}_tail", "")).strip(), report.get(f"{name}_bytes", 0)
            if tail:
                cut = f" (the end of {count} bytes)" if isinstance(count, int) and count > PRINTED_CHARACTERS else ""
                parts.append(f"{name}{cut}: {tail[-PRINTED_CHARACTERS:]}")
        return "\n".join(parts)

    def outcome(self) -> Any:
        """Return the answer or raise the failure."""
        report = self.link.report or {}
        tail, code = str(report.get("stderr_tail", ""))[-STDERR_TAIL_CHARACTERS:], report.get("exit")
        answered = self._answered()
        if answered is None:
            raise AgentCrashed(
                f"The agent's process {self._end_in_words(code)}.", exit_code=code, stderr_tail=tail, advice="See the end of its stderr."
            )
        error = answered.exception()
        if error is None:
            return answered.result()
        if isinstance(error, AgentNotLoaded):
            crashed = AgentCrashed(
                f"The agent could not be loaded: {error.message}",
                exit_code=code,
                stderr_tail=tail,
                advice=error.advice or "Check that its module can be imported.",
            )
            crashed.traceback_text = error.traceback_text
            raise crashed
        assert isinstance(error, RemitError)
        raise error if isinstance(error, Failed | Misused) or error.code in _SAME_MEANING else as_failed(error)

    def _end_in_words(self, code: object) -> str:
        if self._fault:
            return f"sent an invalid message ({self._fault})"
        if self.link.report is None:
            return "killed its supervisor or was killed with it"
        how = f"killed by signal {-code}" if isinstance(code, int) and code < 0 else f"exit code {code}"
        return f"ended without an answer, {how}"

    # ---- `rpc.Handler`

    async def answer(self, name: str, body: dict[str, Any]) -> Any:
        return await self._service.answer(name, body)

    def take(self, name: str, body: dict[str, Any]) -> None:
        self._service.take(name, body)

    def lost(self, fault: str) -> None:
        self._fault = fault
