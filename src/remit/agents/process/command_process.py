"""A command to start, and a running command: its streams, signals and exit code."""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from remit.agents.process.worker_client import SupervisorLink
from remit.core.errors import AgentCrashed, Misused, RemitError, Unavailable
from remit.system.processes import Process, children, look, send_signal

# ---- a command to start


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    """The whole environment: only the mark that identifies its processes is added."""
    folder: Path
    takes_input: bool = False
    """Whether its standard input is written; otherwise it is empty."""
    seccomp: bytes | None = None
    """For bubblewrap with another program inside: the filter that it reads from `FILTER_FD`; may be empty. None: any other program."""
    pins: tuple[str, ...] = ()
    """Paths that bubblewrap finds open after `FILTER_FD`."""


def program_to_wire(program: Program, mark: Mapping[str, str]) -> dict[str, Any]:
    """Bytes as one character each: names and values need not be UTF-8. Raises `Misused`."""
    if not program.argv or not program.argv[0]:
        raise Misused("There is no command to start.", advice='Name the program: command = ["program", "argument"].')
    environment = {**program.environment, **mark}
    try:
        return {
            "argv": [_to_wire(word) for word in program.argv],
            "environment": {_to_wire(name): _to_wire(value) for name, value in environment.items()},
            "folder": _to_wire(str(program.folder)),
            "seccomp": None if program.seccomp is None else program.seccomp.decode("latin-1"),
            "pins": [_to_wire(path) for path in program.pins],
        }
    except ValueError as error:
        raise Misused(
            f"{program.argv[0]} cannot be started: {error}.",
            advice='Pass the prompt by standard input or file (prompt = "stdin" or "file"), which accept any text.',
        ) from None


def _to_wire(text: str) -> str:
    encoded = os.fsencode(text)
    if b"\0" in encoded:
        raise ValueError("an argument or variable contains a NUL character")
    return encoded.decode("latin-1")


def start_error(program: Program, fault: Mapping[str, Any]) -> RemitError:
    """Why it could not be started, for its caller."""
    name, number = program.argv[0], int(fault.get("errno", 0))
    if number == errno.E2BIG:
        advice = 'Pass the prompt by standard input or file: prompt = "stdin" or "file".'
        return Misused(f"{name} cannot be started: its arguments and environment are too long.", advice=advice)
    if fault.get("step") == "folder":
        advice = "Name an existing folder inside the workspace."
        return Unavailable(f"{name} cannot be started in {program.folder}: {os.strerror(number)}.", advice=advice)
    place = f"as {program.folder / name}" if os.sep in name else f"in PATH: {program.environment.get('PATH', os.defpath)}"
    advice = f"Install it, or write its whole path. It must be executable; a script needs its interpreter. Looked for {place}."
    return Unavailable(f"The command {name} cannot be started: {os.strerror(number)}.", advice=advice)


# ---- a command that runs

LINE_BYTES = 8 * 1024 * 1024
"""The longest line that `stdout.readline` returns; beyond it, `ValueError` and `LimitOverrunError` as usual in asyncio."""
STDERR_TAIL_CHARACTERS = 2000
_HANG_UP_SECONDS = 0.5
"""Time after its whole tree is dead for other holders of its output (a server it was passed to)."""


class CommandProcess:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._transports: list[asyncio.BaseTransport] = []
        self._unread: asyncio.StreamReader | None = None
        self.link = SupervisorLink()
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout = asyncio.StreamReader(limit=LINE_BYTES)
        self.pid = 0
        """Pid of the command itself."""
        self._started: str | None = None

    # ---- for the adapter

    async def wait(self) -> int:
        """Its exit code (negative: the signal that ended it), once it and everything it left behind are dead."""
        await asyncio.wait([self.link.lost])
        code = (self.link.report or {}).get("exit")
        if not isinstance(code, int):
            raise self._unsupervised()
        return code

    def signal(self, number: int) -> bool:
        """Signal the command itself, not its children. False: it is gone."""
        process = look(self.pid)
        if process is None or process.started != self._started:
            return False
        if self._program.seccomp is not None:
            process = _inside(process)
        return process is not None and send_signal(process, number)

    def catches(self, number: int) -> bool:
        """Whether it handles this signal; otherwise the signal would kill it."""
        process = look(self.pid)
        if process is not None and self._program.seccomp is not None:
            process = _inside(process)
        if process is None:
            return False
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{process.pid}/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
        return False

    def stderr_tail(self) -> str:
        """The end of its standard error; after `wait`."""
        return str((self.link.report or {}).get("stderr_tail", ""))[-STDERR_TAIL_CHARACTERS:]

    # ---- for the pool

    async def open(self, theirs: contextlib.ExitStack) -> list[int]:
        """Open its pipes. Returns the descriptors of the other ends: its supervisor's link, then its output and input."""
        try:
            link, link_end = socket.socketpair()
            theirs.callback(link_end.close)
            await self.link.connect(link)
            self.link.lost.add_done_callback(lambda _: self._hang_up(0.0 if self.link.report is None else _HANG_UP_SECONDS))
            streams = [await self._open_output(theirs)]
            if self._program.takes_input:
                streams.append(await self._open_input(theirs))
        except OSError as error:
            raise Unavailable(f"No process could be started: {error}.", advice="Raise the limit of open files.") from None
        return [link_end.fileno(), *streams]

    async def wait_begun(self) -> None:
        """Wait until it runs. Raises the reason if it does not."""
        begun = await asyncio.shield(self.link.begun)
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
        """Its supervisor is gone: readers of its output must not wait for ever because others keep it open."""
        asyncio.get_running_loop().call_later(seconds, self._end_output)

    def _end_output(self) -> None:
        for transport in self._transports:
            if isinstance(transport, asyncio.ReadTransport) and not transport.is_closing():
                try:
                    is_reading = transport.is_reading()
                except NotImplementedError:  # pipes of Python before 3.11.4
                    is_reading = True
                if is_reading:
                    transport.close()
                else:  # it is read more slowly than it printed: the rest comes first
                    self._hang_up(_HANG_UP_SECONDS)

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
        self._unread = asyncio.StreamReader()  # the stream's protocol requires one, kept alive
        protocol = asyncio.StreamReaderProtocol(self._unread)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_write_pipe(lambda: protocol, _file(ours, "wb"))
        self._transports.append(transport)
        self.stdin = asyncio.StreamWriter(transport, protocol, None, loop)
        return end


def _inside(bubblewrap: Process) -> Process | None:
    """The program in a container: the first child of the first process in its namespace."""
    found: Process | None = bubblewrap
    for _ in range(2):
        below = [] if found is None else [process for pid in children(found.pid) or () if (process := look(pid)) is not None]
        found = min(below, key=lambda process: (len(process.started), process.started, process.pid), default=None)
    return found


class AbandonmentNotes(Protocol):
    def abandoned(self, why: str) -> Callable[[], None]:
        """Note that processes are still being killed. Call the result when they are gone."""
        ...


class ProgramContext(Protocol):
    """Owner of a program: the `Context` of a delegation, or that of an MCP server, which outlives delegations."""

    @property
    def session_id(self) -> str: ...
    @property
    def depth(self) -> int: ...
    @property
    def workspace(self) -> Path: ...
    @property
    def scratch(self) -> Path: ...
    @property
    def backend(self) -> AbandonmentNotes: ...
    def progress(self, message: str, fraction: float | None = None) -> None: ...
    def permit(self, action: str = "", /, **facts: Any) -> Awaitable[None]: ...


class ProgramStarter(Protocol):
    async def contains(self) -> bool:
        """Whether its programs are contained."""
        ...

    def spawn(self, program: Program, ctx: ProgramContext) -> "contextlib.AbstractAsyncContextManager[CommandProcess]":
        """A running command. When the block ends, it and all its descendants are dead."""
        ...


def _file(fd: int, mode: str) -> Any:
    return open(fd, mode, buffering=0)  # the transport that receives it closes it
