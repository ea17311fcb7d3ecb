"""The supervisor of one delegation's process as the Remit process sees it: orders go down, its report comes up.

The same for a worker (`child`) and for a command (`spawned`). When the link is lost and there is a report, everything below the
supervisor is dead; when it is lost without one, the supervisor was killed. Nothing that comes over a pipe can raise in the event loop.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Any

from remit.agents.process import frames
from remit.agents.process.supervisor import STOP
from remit.system.processes import is_alive, look, process_start, send_signal

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
