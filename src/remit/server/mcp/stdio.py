"""Standard input and output as a line transport, and the process that outlives its client. The SDK implements the protocol.

A thread each reads and writes, because any descriptor must work (pipes, files, terminals) and a blocked one must delay neither the event
loop nor the exit of the process. A line that is too long or unreadable is answered with an error: the SDK would drop it, and the client
would wait.

Clients close the input of the process they started, wait a moment, then kill its whole group; delegations must continue. So the process
forks first: the *front* stays where the client started it and only waits; the *keeper* has its own session, speaks on the inherited
descriptors, and stays until its delegations have ended."""

import asyncio
import contextlib
import json
import os
import queue
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from mcp_types import INVALID_REQUEST, PARSE_ERROR, jsonrpc_message_adapter
from pydantic_core import ValidationError

LONGEST_LINE = 4 * 1024 * 1024
"""As over HTTP."""
AHEAD = 1000
"""Lines read before they are handled."""
LAST_WORDS_SECONDS = 3.0
"""Writing continues this long after the client has closed its side: it may have stopped reading too."""
TOO_LONG = f"The message is larger than {LONGEST_LINE} bytes. Pass large inputs as files of the project, by their path."
_PIECE = 256 * 1024
_ENDS = 512
"""Bytes at each end of a refused line in which its id is searched. Some clients write it first, some last."""
_FIRST_ID = re.compile(rb'"id"\s*:\s*(\d{1,18}|"[^"\\]{1,64}")')
_LAST_ID = re.compile(_FIRST_ID.pattern + rb"\s*\}\s*$")
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


def release_streams(*more: int) -> None:
    """Close the client's descriptors: later output is discarded without errors."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2, *more):
        with contextlib.suppress(OSError):
            os.dup2(nowhere, number)
    os.close(nowhere)


# ---- lines


class Lines:
    """The lines of a descriptor as the SDK wants them: an asynchronous iterator of text, until the other side closes it."""

    def __init__(self, descriptor: int, wire: "Wire") -> None:
        self._descriptor = descriptor
        self._wire = wire
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._room = threading.Semaphore(AHEAD)
        self._is_over = False
        threading.Thread(target=self._read, name="remit-mcp-in", daemon=True).start()

    def __aiter__(self) -> "Lines":
        return self

    async def __anext__(self) -> str:
        line = None if self._is_over else await self._queue.get()
        if line is None:
            self._is_over = True
            raise StopAsyncIteration
        self._room.release()
        return line

    def end(self) -> None:
        """The other side has closed it, or is gone."""
        self._queue.put_nowait(None)
        self._loop.call_later(LAST_WORDS_SECONDS, self._wire.give_up)

    def _read(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            pieces: list[bytes] = []
            size = 0
            while piece := self._piece():
                *lines, rest = piece.split(b"\n")
                for line in lines:
                    self._take(b"".join((*pieces, line)), size + len(line))
                    pieces, size = [], 0
                size += len(rest)
                pieces.append(rest)
                if size > LONGEST_LINE:
                    pieces = _ends(b"".join(pieces))
            self._loop.call_soon_threadsafe(self.end)

    def _piece(self) -> bytes:
        try:
            return os.read(self._descriptor, _PIECE)
        except OSError:
            return b""

    def _take(self, line: bytes, size: int) -> None:
        if not line.strip():
            return
        read = Fault(code=INVALID_REQUEST, message=TOO_LONG) if size > LONGEST_LINE else read_line(line)
        if not isinstance(read, Fault):
            self._room.acquire()
            self._loop.call_soon_threadsafe(self._queue.put_nowait, read)
        elif (answer := refusal(line, read)) is not None:
            self._loop.call_soon_threadsafe(self._wire.post, answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why a line is not a protocol message."""

    code: int
    message: str


def read_line(line: bytes) -> str | Fault:
    """The line as the SDK can read it. A lone surrogate, as at the end of a cut text, is replaced."""
    text = line.decode("utf-8-sig", "replace")
    fault = _fault(text)
    if fault is None or "\\u" not in text:
        return fault or text
    try:
        repaired = json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8", "replace").decode()
    except (ValueError, RecursionError):
        return fault
    return repaired if _fault(repaired) is None else fault


def _fault(text: str) -> Fault | None:
    try:
        jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            return Fault(code=PARSE_ERROR, message=f"{first['msg'][:200]}. A message is one line of JSON.")
        return Fault(code=INVALID_REQUEST, message="Not a message of JSON-RPC 2.0: a request has jsonrpc, id, method and params.")
    return None


def refusal(line: bytes, fault: Fault) -> str | None:
    """The error response to the request in the line; None if it has no id: no client waits for it."""
    first, last = _ends(line)
    found = _LAST_ID.search(last) or _FIRST_ID.search(first.partition(b'"params"')[0])
    if found is None:
        return None
    error = {"code": fault.code, "message": fault.message}
    return json.dumps({"jsonrpc": "2.0", "id": json.loads(found[1]), "error": error}) + "\n"


def _ends(line: bytes) -> list[bytes]:
    return [line[:_ENDS], line[-_ENDS:]]


class Wire:
    """Writes in order, as the SDK wants it: `write` and `flush`. A broken descriptor accepts everything silently."""

    def __init__(self, descriptor: int, broken: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._broken = broken
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[tuple[bytes, asyncio.Future[None] | None] | None] = queue.SimpleQueue()
        self._waiting: set[asyncio.Future[None]] = set()
        self._is_given_up = False
        threading.Thread(target=self._write, name="remit-mcp-out", daemon=True).start()

    async def write(self, text: str) -> None:
        if self._is_given_up:
            return
        written = self._loop.create_future()
        self._waiting.add(written)
        written.add_done_callback(self._waiting.discard)
        self._queue.put((text.encode("utf-8", "replace"), written))
        await written

    async def flush(self) -> None:
        return None

    def post(self, text: str) -> None:
        """Without waiting."""
        self._queue.put((text.encode("utf-8", "replace"), None))

    def close(self) -> None:
        """Close after everything queued before."""
        self._queue.put(None)

    def give_up(self) -> None:
        """Nothing is read any more: writers do not wait."""
        self._is_given_up = True
        for written in tuple(self._waiting):
            _resolve(written)

    def _write(self) -> None:
        is_broken = False
        with contextlib.suppress(RuntimeError):  # the loop is closed
            while (item := self._queue.get()) is not None:
                data, written = memoryview(item[0]), item[1]
                try:
                    while data and not is_broken:
                        data = data[os.write(self._descriptor, data) :]
                except OSError:
                    is_broken = True
                    self._loop.call_soon_threadsafe(self._broken)
                if written is not None:
                    self._loop.call_soon_threadsafe(_resolve, written)


def _resolve(written: "asyncio.Future[None]") -> None:
    if not written.done():
        written.set_result(None)
