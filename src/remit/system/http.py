"""Bodies of HTTP messages from servers that are not trusted: bounded in bytes and time, on the wire and unpacked.

The one implementation for all clients: `worker.web_fetch`, search providers, models, A2A. It takes chunks from any HTTP library. A body
that is packed to explode costs the limit and no more: it is unpacked in pieces, and left alone at the limit.
"""

import asyncio
import contextlib
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass

ACCEPT_ENCODING = "gzip, deflate"
MAX_GZIP_MEMBERS = 100
"""Thousands of empty members would cost time and give nothing."""
_PIECE_BYTES = 1 << 16
_EVENT_ENDS = (b"\n\n", b"\r\r", b"\r\n\r\n")
_LONGEST_END = 4


class BodyError(Exception):
    """The body cannot be taken: too large, broken, or packed in an unknown way. The message says why, without quoting it."""


class BodyTooLarge(BodyError):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    content: bytes
    wire_bytes: int
    cut: str = ""
    """Why the rest is missing; empty when it is complete."""


class Decompressor:
    """gzip, deflate (with and without a zlib header, as servers send both), or no encoding at all. Raises `BodyError` for any other."""

    def __init__(self, content_encoding: str) -> None:
        names = [name for part in content_encoding.lower().split(",") if (name := part.strip()) not in ("", "identity")]
        if names not in ([], ["gzip"], ["x-gzip"], ["deflate"]):
            raise BodyError(f"it is packed in a way that was not asked for ({', '.join(names)[:60]})")
        self._bits = 0 if not names else zlib.MAX_WBITS if names == ["deflate"] else 16 + zlib.MAX_WBITS
        self._stream = zlib.decompressobj(self._bits or zlib.MAX_WBITS)
        self._is_begun = False
        self._members = 1

    @property
    def is_complete(self) -> bool:
        return not self._bits or self._stream.eof or not self._is_begun

    def unpack(self, data: bytes, max_bytes: int) -> bytes:
        """At most `max_bytes`; more is never made."""
        out = bytearray()
        for piece in self.pieces(data, max_bytes):
            out += piece
            if len(out) >= max_bytes:
                break
        return bytes(out[:max_bytes])

    def pieces(self, data: bytes, max_piece: int = _PIECE_BYTES) -> Iterator[bytes]:
        if not self._bits:
            yield data
            return
        if data and not self._is_begun:
            self._is_begun = True
            if self._bits == zlib.MAX_WBITS and (data[0] & 0x0F != 8 or (len(data) > 1 and (data[0] * 256 + data[1]) % 31)):
                self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
        while data and not (self._stream.eof and not self._next_member(data)):
            try:
                piece = self._stream.decompress(data, max(1, max_piece))
            except zlib.error as error:
                raise BodyError(f"it is packed in a way that could not be read ({error})") from None
            data = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            if piece:
                yield piece

    def _next_member(self, data: bytes) -> bool:
        """Whether another gzip member follows; anything else after the end is not part of the body."""
        if self._bits == zlib.MAX_WBITS or data[:1] != b"\x1f":
            return False
        self._members += 1
        if self._members > MAX_GZIP_MEMBERS:
            raise BodyError(f"it is packed in more than {MAX_GZIP_MEMBERS} parts")
        self._stream = zlib.decompressobj(self._bits)
        return True


async def read_body(
    chunks: AsyncGenerator[bytes, None], *, max_bytes: int, seconds: float | None = None, content_encoding: str = ""
) -> Body:
    """What arrives within the limits. A server that drips, breaks off or never ends loses only what is beyond: see `Body.cut`."""
    decompressor = Decompressor(content_encoding)
    content, wire, cut = bytearray(), 0, ""
    try:
        async with asyncio.timeout(seconds), contextlib.aclosing(chunks):
            async for chunk in chunks:
                wire += len(chunk)
                content += decompressor.unpack(chunk, max_bytes + 1 - len(content))
                if len(content) > max_bytes or wire > max_bytes:
                    cut = f"It is larger than {max_bytes} bytes; the rest was left."
                    break
            else:
                cut = "" if decompressor.is_complete else "The answer broke off: its packed part has no end."
    except TimeoutError:
        cut = f"The server was too slow; after {seconds:.0f} s the rest was left."
    except ConnectionError as error:
        cut = f"The answer broke off: {error}"
    return Body(content=bytes(content[:max_bytes]), wire_bytes=wire, cut=cut)


async def unpack_chunks(chunks: AsyncIterator[bytes], content_encoding: str) -> AsyncIterator[bytes]:
    """The same bytes unpacked, in small pieces."""
    decompressor = Decompressor(content_encoding)
    async for chunk in chunks:
        for piece in decompressor.pieces(chunk):
            yield piece


async def limit_chunks(chunks: AsyncIterator[bytes], max_bytes: int, what: str = "one answer") -> AsyncIterator[bytes]:
    """The same chunks. Raises `BodyTooLarge`."""
    seen = 0
    async for chunk in chunks:
        seen += len(chunk)
        if seen > max_bytes:
            raise BodyTooLarge(f"it sent more than {max_bytes // 1024} KiB in {what} without coming to an end")
        yield chunk


async def limit_events(
    chunks: AsyncIterator[bytes], *, max_event_bytes: int, max_stream_bytes: int, max_event_lines: int | None = None
) -> AsyncIterator[bytes]:
    """The chunks of a stream of server-sent events, which are divided by empty lines. Raises `BodyTooLarge`."""
    event = lines = 0
    tail = b""
    async for chunk in limit_chunks(chunks, max_stream_bytes, "one stream"):
        seen = tail + chunk
        end = max(seen.rfind(mark) for mark in _EVENT_ENDS)
        event = event + len(chunk) if end < 0 else len(seen) - end
        lines = lines + chunk.count(b"\n") + chunk.count(b"\r") if end < 0 else 0
        tail = seen[1 - _LONGEST_END :]
        if event > max_event_bytes or (max_event_lines is not None and lines > max_event_lines):
            raise BodyTooLarge(f"it sent {event // 1024} KiB in {lines} lines of one event without coming to an end")
        yield chunk
