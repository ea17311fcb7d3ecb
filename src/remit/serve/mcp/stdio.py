"""Standard input and output as the wire: lines in, lines out, nothing else there. Not the protocol, which is the SDK's.

Read and written by a thread each, because descriptors of any kind must do (pipes, files, terminals) and a wire that blocks must hold up
neither the event loop nor the end of the process. A line that is too long is refused without being kept.
"""

import asyncio
import contextlib
import json
import os
import queue
import re
import threading
from collections.abc import Callable

LONGEST_LINE = 4 * 1024 * 1024
"""As over HTTP."""
AHEAD = 1000
"""So many lines are read before they are taken up."""
_PIECE = 256 * 1024
_ID = re.compile(rb'"id"\s*:\s*(\d{1,18}|"[^"\\]{1,64}")')


class Lines:
    """The lines of a descriptor, as the SDK wants them: an asynchronous iterator of text. Ends when the other side has closed it."""

    def __init__(self, descriptor: int, refuse: Callable[[str], None]) -> None:
        self._descriptor = descriptor
        self._refuse = refuse
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
        """As if the other side had closed it."""
        self._queue.put_nowait(None)

    def _read(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            pieces: list[bytes] = []
            size = 0
            while piece := self._piece():
                *lines, rest = piece.split(b"\n")
                for line in lines:
                    self._take(b"".join((*pieces, line)), size + len(line))
                    pieces, size = [], 0
                size += len(rest)
                if size <= LONGEST_LINE or not pieces:
                    pieces.append(rest)
            self._loop.call_soon_threadsafe(self._queue.put_nowait, None)

    def _piece(self) -> bytes:
        try:
            return os.read(self._descriptor, _PIECE)
        except OSError:
            return b""

    def _take(self, line: bytes, size: int) -> None:
        if size > LONGEST_LINE:
            self._loop.call_soon_threadsafe(self._refuse, refusal(line[:512]))
        elif line.strip():
            self._room.acquire()
            self._loop.call_soon_threadsafe(self._queue.put_nowait, line.decode("utf-8", "replace"))


def refusal(beginning: bytes) -> str:
    """The protocol's error for a message that is too long; to the request it belongs to, if that can be seen."""
    found = _ID.search(beginning)
    message = f"The message is larger than {LONGEST_LINE} bytes. Pass large inputs as files of the project, by their path."
    error = {"code": -32600, "message": message}
    return json.dumps({"jsonrpc": "2.0", "id": json.loads(found[1]) if found else None, "error": error}) + "\n"


class Wire:
    """What is written, in order, as the SDK wants it: `write` and `flush`. A wire that is broken takes everything and says nothing."""

    def __init__(self, descriptor: int, broken: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._broken = broken
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[tuple[bytes, asyncio.Future[None] | None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._write, name="remit-mcp-out", daemon=True).start()

    async def write(self, text: str) -> None:
        written = self._loop.create_future()
        self._queue.put((text.encode("utf-8", "replace"), written))
        await written

    async def flush(self) -> None:
        return None

    def post(self, text: str) -> None:
        """Without waiting."""
        self._queue.put((text.encode("utf-8", "replace"), None))

    def close(self) -> None:
        """After what was put in before."""
        self._queue.put(None)

    def _write(self) -> None:
        is_broken = False
        with contextlib.suppress(RuntimeError):
            while (item := self._queue.get()) is not None:
                data, written = item
                if not is_broken and not self._wrote(memoryview(data)):
                    is_broken = True
                    self._loop.call_soon_threadsafe(self._broken)
                if written is not None:
                    self._loop.call_soon_threadsafe(_resolve, written)

    def _wrote(self, data: memoryview) -> bool:
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            return False
        return True


def _resolve(written: "asyncio.Future[None]") -> None:
    if not written.done():
        written.set_result(None)
