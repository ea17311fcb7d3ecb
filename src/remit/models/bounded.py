"""What a provider's server sends, held to a size, so that none fills the memory: neither by an error page without end, nor by an event
without end, nor by a few packed bytes that unpack to gigabytes. A hook of the HTTP client; see `connecting`.
"""

import zlib
from collections.abc import AsyncIterator, Iterator

from httpx2 import AsyncByteStream, Response

PLAIN = {"accept-encoding": "identity"}
"""Asked for: a stream of small events gains little by being packed."""
ERROR_BYTES = 1 << 20
"""Of the page that comes with an error, whose first lines are shown; the rest is not read."""
EVENT_BYTES = 16 << 20
EVENT_LINES = 4096
"""An event has two or three. Their clients copy what they have of one at each line: a million of them would hold the loop for hours."""
STREAM_BYTES = 256 << 20
_PIECE = 1 << 16
_PACKED = frozenset({"gzip", "x-gzip", "deflate"})
_GAPS = (b"\n\n", b"\r\r", b"\r\n\r\n")
"""What ends an event."""
_LONGEST_GAP = 4


class Unfit(Exception):
    """What comes is no answer that could be taken. Says why, in words for a person."""


async def bound(response: Response) -> None:
    """Of a response that has begun: whoever reads it reads no more than there may be."""
    stream = response.stream
    assert isinstance(stream, AsyncByteStream)
    packed = [one.strip().lower() for one in response.headers.get("content-encoding", "").split(",") if one.strip()]
    packed = [one for one in packed if one != "identity"]
    if packed and (len(packed) > 1 or packed[0] not in _PACKED):
        await stream.aclose()
        raise Unfit(f"its answer is packed in a way that was not asked for ({', '.join(packed)[:40]})")
    response.headers.pop("content-encoding", None)
    pieces = _unpacked(stream) if packed else aiter(stream)
    response.stream = _Bounded(stream, _beginning(pieces) if response.is_error else _events(pieces))


class _Bounded(AsyncByteStream):
    def __init__(self, stream: AsyncByteStream, pieces: AsyncIterator[bytes]) -> None:
        self._stream, self._pieces = stream, pieces

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _beginning(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    left = ERROR_BYTES
    async for piece in pieces:
        yield piece[:left]
        left -= len(piece)
        if left <= 0:
            return


async def _events(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    come, begun, lines, before = 0, 0, 0, b""
    async for piece in pieces:
        come += len(piece)
        seen = before + piece
        gap = max(seen.rfind(one) for one in _GAPS)
        begun = begun + len(piece) if gap < 0 else len(seen) - gap
        lines = lines + piece.count(b"\n") + piece.count(b"\r") if gap < 0 else 0
        before = seen[1 - _LONGEST_GAP :]
        if begun > EVENT_BYTES or lines > EVENT_LINES or come > STREAM_BYTES:
            raise Unfit(f"it sent {come / 1e6:.1f} MB without coming to an end")
        yield piece


async def _unpacked(stream: AsyncByteStream) -> AsyncIterator[bytes]:
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 32)
    async for packed in stream:
        for piece in _pieces(unpacking, packed):
            yield piece


def _pieces(unpacking: "zlib._Decompress", packed: bytes) -> Iterator[bytes]:
    try:
        while packed and not unpacking.eof:
            piece = unpacking.decompress(packed, _PIECE)
            packed = unpacking.unconsumed_tail
            if piece:
                yield piece
    except zlib.error:
        raise Unfit("its answer is packed in a way that could not be read") from None
