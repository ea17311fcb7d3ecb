"""What a command prints: streamed on in pieces worth reading, and kept for the ladder of S3.7, its end if it is too long.

Bytes of any kind are tolerated. Knows no process and no delegation: it is given a reader and someone to tell.
"""

import asyncio
import codecs
from collections.abc import Callable

KEPT_BYTES = 8 * 1024 * 1024
"""Of longer output the end is kept: a return comes last."""
PIECE_CHARACTERS = 16 * 1024
PAUSE_SECONDS = 0.1
"""Between two pieces, unless there is much: a program that prints a character at a time makes ten events a second, not thousands."""
_READ = 256 * 1024


class Output:
    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = bytearray()
        self._held: list[str] = []
        self._held_characters = 0
        self._timer: asyncio.TimerHandle | None = None
        self._emitted_at = 0.0
        self.count = 0
        """Bytes in all."""

    async def read(self, stdout: asyncio.StreamReader) -> None:
        """To the end of the stream."""
        while data := await stdout.read(_READ):
            self._keep(data)
            self._hold(self._decoder.decode(data))
        self._hold(self._decoder.decode(b"", final=True))
        self.flush()

    def text(self) -> str:
        """What it printed, whole or the end of it."""
        return self._kept[-KEPT_BYTES:].decode("utf-8", "replace")

    @property
    def is_cut(self) -> bool:
        return self.count > KEPT_BYTES

    def flush(self) -> None:
        """Tell what has not been told yet."""
        self.hush()
        if self._held:
            text = "".join(self._held)
            self._held, self._held_characters = [], 0
            self._emitted_at = asyncio.get_running_loop().time()
            for start in range(0, len(text), PIECE_CHARACTERS):
                self._emit(text[start : start + PIECE_CHARACTERS])

    def hush(self) -> None:
        """No timer of ours is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _keep(self, data: bytes) -> None:
        self._kept += data
        self.count += len(data)
        if len(self._kept) > 2 * KEPT_BYTES:  # not at each piece: moving the rest costs
            del self._kept[:-KEPT_BYTES]

    def _hold(self, text: str) -> None:
        if not text:
            return
        self._held.append(text)
        self._held_characters += len(text)
        loop = asyncio.get_running_loop()
        wait = self._emitted_at + PAUSE_SECONDS - loop.time()
        if wait <= 0 or self._held_characters >= PIECE_CHARACTERS:
            self.flush()
        elif self._timer is None:
            self._timer = loop.call_later(wait, self.flush)
