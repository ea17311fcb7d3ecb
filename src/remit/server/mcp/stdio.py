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

from mcp_types import INVALID_REQUEST, PARSE_ERROR, jsonrpc_message_adapter
from pydantic_core import ValidationError

from remit.core.errors import Misused

LONGEST_LINE = 4 * 1024 * 1024
"""As over HTTP."""
LAST_WORDS_SECONDS = 3.0
"""Writing continues this long after the client has closed its side: it may have stopped reading too."""
TOO_LONG = f"The message is larger than {LONGEST_LINE} bytes. Pass large inputs as files of the project, by their path."
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
    """The client's descriptors as the SDK wants them: an asynchronous iterator of lines, `write` and `flush`.

    A message that is too long or invalid is answered with an error: the SDK would drop it without a word."""

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
        while line := await self._line():
            if not line.strip():
                continue
            text = line.decode("utf-8-sig", "replace")
            fault = (INVALID_REQUEST, TOO_LONG) if len(line) > LONGEST_LINE else _fault(text)
            if fault is not None and "\\u" in text:  # a lone surrogate, as at the end of a cut text
                with contextlib.suppress(ValueError, RecursionError):
                    text = json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8", "replace").decode()
                    fault = _fault(text)
            if fault is None:
                return text
            if self._writer.transport.get_write_buffer_size() > LONGEST_LINE:
                continue  # it does not read: waiting for that here would miss its end
            error = {"code": fault[0], "message": fault[1]}
            await self.write(json.dumps({"jsonrpc": "2.0", "id": None, "error": error}) + "\n")
        asyncio.get_running_loop().call_later(LAST_WORDS_SECONDS, self._writer.transport.abort)
        raise StopAsyncIteration

    async def _line(self) -> bytes:
        """Empty at the end. Of a line that is too long, more than the limit but not all."""
        start = b""
        while True:
            try:
                return start + await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as error:
                start = (await self._reader.readexactly(error.consumed))[: LONGEST_LINE + 1]
            except asyncio.IncompleteReadError as error:
                return start + error.partial
            except OSError:  # a client that dies with answers unread resets its socket
                return b""

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


def _fault(text: str) -> tuple[int, str] | None:
    """Why a line is not a protocol message: a code of JSON-RPC and a message."""
    try:
        jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            return PARSE_ERROR, f"{first['msg'][:200]}. A message is one line of JSON."
        return INVALID_REQUEST, "Not a message of JSON-RPC 2.0: a request has jsonrpc, id, method and params."
    return None
