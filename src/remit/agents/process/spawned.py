"""A command that runs, as its adapter sees it: its streams, its end, and signals to it. Made by `ProcessPool.spawn` alone.

`link`, `open`, `begun`, `order_stop` and `close` are the pool's. It knows no prompt and no answer: see `agents.command`.
"""

import asyncio
import contextlib
import os
import socket
from typing import Any

from remit.agents.process import frames
from remit.agents.process.link import Link
from remit.agents.process.program import Program, start_error
from remit.core.errors import AgentCrashed, Unavailable
from remit.system.processes import look, send_signal

LINE_BYTES = 8 * 1024 * 1024
"""The longest line that `stdout.readline` gives; beyond it `ValueError` and `LimitOverrunError`, as ever with asyncio."""
STDERR_TAIL_CHARACTERS = 2000
_HANG_UP_SECONDS = 0.5
"""After it and all below it are dead, for whoever else may hold its output open (a server it was passed to)."""


class Spawned:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._transports: list[asyncio.BaseTransport] = []
        self._unread: asyncio.StreamReader | None = None
        self.link = Link()
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout = asyncio.StreamReader(limit=LINE_BYTES)
        self.pid = 0
        """Of the command itself."""
        self._started: str | None = None

    # ---- for the adapter

    async def wait(self) -> int:
        """Its exit code (negative: the signal that ended it), once it and everything it left behind are dead."""
        await self.link.wait_lost()
        code = (self.link.report or {}).get("exit")
        if not isinstance(code, int):
            raise self._unsupervised()
        return code

    def signal(self, number: int) -> bool:
        """To the command alone, not to what it has started. False: it is gone."""
        process = look(self.pid)
        return process is not None and process.started == self._started and send_signal(process, number)

    def catches(self, number: int) -> bool:
        """Whether it has a handler of its own for this signal: to one that has none, the signal would be the end."""
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{self.pid}/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
        return False

    def stderr_tail(self) -> str:
        """The end of what it wrote to its standard error; after `wait`."""
        return str((self.link.report or {}).get("stderr_tail", ""))[-STDERR_TAIL_CHARACTERS:]

    # ---- for the pool

    async def open(self, theirs: contextlib.ExitStack) -> tuple[int, list[int]]:
        """Our ends of its pipes; the descriptors of the others: its supervisor's link, then its output and input."""
        try:
            link, link_end = socket.socketpair()
            theirs.callback(link_end.close)
            await self.link.connect(link)
            self.link.when_lost(lambda: self._hang_up(0.0 if self.link.report is None else _HANG_UP_SECONDS))
            streams = [await self._open_output(theirs)]
            if self._program.takes_input:
                streams.append(await self._open_input(theirs))
        except OSError as error:
            raise Unavailable(f"No process could be started: {error}.", advice="Raise the limit of open files.") from None
        return link_end.fileno(), streams

    def send(self, wire: dict[str, Any]) -> None:
        self.link.send(frames.pack(wire))

    async def wait_begun(self) -> None:
        """Until it runs. Raises why it does not."""
        await self.link.wait_begun()
        begun = self.link.begun
        if begun is None:
            raise self._unsupervised()
        if "pid" not in begun:
            raise start_error(self._program, begun)
        self.pid, self._started = int(begun["pid"]), begun["started"]

    def order_stop(self, grace_seconds: float) -> None:
        self.link.order_stop(grace_seconds)

    async def close(self, limit: float) -> None:
        self.link.close()
        for transport in self._transports:
            if isinstance(transport, asyncio.WriteTransport):
                transport.abort()
            else:
                transport.close()

    def _unsupervised(self) -> AgentCrashed:
        return AgentCrashed(
            f"{self._program.argv[0]} killed its supervisor or was killed with it.",
            advice="A command must not signal processes that are not its own.",
        )

    def _hang_up(self, seconds: float) -> None:
        """Its supervisor is gone: whoever reads its output must not wait for ever for an end that others keep from coming."""
        asyncio.get_running_loop().call_later(seconds, self._end_output)

    def _end_output(self) -> None:
        for transport in self._transports:
            if isinstance(transport, asyncio.ReadTransport) and not transport.is_closing():
                if _is_paused(transport):  # it is read more slowly than it printed: what is left comes first
                    self._hang_up(_HANG_UP_SECONDS)
                else:
                    transport.close()

    async def _open_output(self, theirs: contextlib.ExitStack) -> int:
        ours, end = os.pipe2(os.O_CLOEXEC)
        theirs.callback(os.close, end)
        protocol = asyncio.StreamReaderProtocol(self.stdout)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, _file(ours, "rb"))
        self._transports.append(transport)
        return end

    async def _open_input(self, theirs: contextlib.ExitStack) -> int:
        end, ours = os.pipe2(os.O_CLOEXEC)
        theirs.callback(os.close, end)
        self._unread = asyncio.StreamReader()  # the stream's protocol wants one, and to be kept alive
        protocol = asyncio.StreamReaderProtocol(self._unread)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_write_pipe(lambda: protocol, _file(ours, "wb"))
        self._transports.append(transport)
        self.stdin = asyncio.StreamWriter(transport, protocol, None, loop)
        return end


def _is_paused(transport: asyncio.ReadTransport) -> bool:
    try:
        return not transport.is_reading()
    except NotImplementedError:  # of a pipe, in older versions of Python
        return bool(getattr(transport, "_paused", False))


def _file(fd: int, mode: str) -> Any:
    return open(fd, mode, buffering=0)  # the transport that is given it closes it
