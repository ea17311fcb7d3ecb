"""Standard input and output as the streams of a client, and the process that outlives it. The SDK implements the protocol.

Clients close the input of the process they started, wait a moment, then kill its whole group; delegations must continue. So the process
forks first: the *front* stays where the client started it and only waits; the *keeper* has its own session, speaks on the inherited
descriptors, and stays until its delegations have ended."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import stat
from dataclasses import dataclass
from typing import NoReturn

from remit.core.errors import Misused

LONGEST_LINE = 64 * 1024 * 1024
"""A client that sends a longer one is taken to have left."""
LAST_WORDS_SECONDS = 3.0
"""Writing continues this long after the client has closed its side: it may have stopped reading too."""
_GONE = b"!"


# ---- two processes


@dataclass(slots=True)
class FrontLink:
    """The keeper's link to the front."""

    descriptor: int
    """Reports end of file when the front has gone."""
    _front: int

    def let_go(self) -> None:
        """The client has left: the front may exit."""
        with contextlib.suppress(OSError):
            os.write(self._front, _GONE)
            os.close(self._front)


def split() -> FrontLink:
    """Forks; returns in the keeper only. Call it before any thread is started and anything is opened."""
    link, held = os.pipe()
    hears, front = os.pipe()
    keeper = os.fork()
    if keeper:
        os.close(link)
        os.close(front)
        _wait_in_front(keeper, hears)
    os.close(held)
    os.close(hears)
    os.setsid()
    return FrontLink(link, front)


def _wait_in_front(keeper: int, hears: int) -> NoReturn:
    """Until the keeper ends or releases it, or a signal arrives: that means the client has gone, and cancels nothing."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: os._exit(0))
    if os.read(hears, 1) == _GONE:
        os._exit(0)
    _, status = os.waitpid(keeper, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def release_streams() -> None:
    """Close the client's descriptors: later output is discarded without errors."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    os.close(nowhere)


# ---- lines


class ClientStreams:
    """The client's descriptors as the SDK wants them: an asynchronous iterator of lines, `write` and `flush`."""

    def __init__(self, reader: asyncio.StreamReader, incoming: asyncio.BaseTransport, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._incoming = incoming
        self._writer = writer

    @classmethod
    async def open(cls, incoming: int, outgoing: int) -> "ClientStreams":
        if _is_one_socket(incoming, outgoing):
            os.close(outgoing)
            reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=incoming), limit=LONGEST_LINE)
            return cls(reader, writer.transport, writer)
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=LONGEST_LINE)
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        try:
            reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(incoming, "rb", 0))
            writing, _ = await loop.connect_write_pipe(lambda: protocol, os.fdopen(outgoing, "wb", 0))
        except ValueError:
            raise Misused("`remit mcp` speaks over pipes, not over files.", advice="Let a client start it.") from None
        return cls(reader, reading, asyncio.StreamWriter(writing, protocol, None, loop))

    def end(self) -> None:
        """The client is gone."""
        self._incoming.close()

    async def close(self) -> None:
        """After everything written before."""
        self._incoming.close()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def __aiter__(self) -> "ClientStreams":
        return self

    async def __anext__(self) -> str:
        line = b""
        with contextlib.suppress(OSError, ValueError):  # a client that dies with answers unread resets its socket
            line = await self._reader.readline()
        if not line:
            asyncio.get_running_loop().call_later(LAST_WORDS_SECONDS, self._writer.transport.abort)
            raise StopAsyncIteration
        text = line.decode("utf-8-sig", "replace")
        if "\\ud" in text.lower():  # a lone surrogate, as JavaScript writes at the end of a cut text: the SDK would drop the message
            with contextlib.suppress(ValueError, RecursionError):
                text = json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8", "replace").decode()
        return text

    async def write(self, text: str) -> None:
        if self._writer.is_closing():
            self._incoming.close()
        else:
            self._writer.write(text.encode("utf-8", "replace"))

    async def flush(self) -> None:
        with contextlib.suppress(OSError):
            await self._writer.drain()


def _is_one_socket(incoming: int, outgoing: int) -> bool:
    """As sshd starts programs."""
    return stat.S_ISSOCK(os.fstat(incoming).st_mode) and os.path.sameopenfile(incoming, outgoing)
