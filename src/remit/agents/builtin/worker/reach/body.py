"""An answer's bytes: bounded on the wire and unpacked, and taken as they come. Used by `fetch`.

A bomb costs what is allowed and no more: it is unpacked in pieces, and left alone at the limit.
"""

import asyncio
import contextlib
import zlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from remit.agents.builtin.worker.reach.pinned import Unreached

ACCEPTED = "gzip, deflate"
_MOST_MEMBERS = 100
"""Of a gzip stream; thousands of empty ones would cost time and give nothing."""


class Undecodable(Exception):
    """It is packed in a way that is not known here, or broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    content: bytes
    wire_bytes: int
    cut: str = ""
    """Why it is not all there; empty when it is."""


class _AsItIs:
    is_whole = True

    def unpack(self, data: bytes, most: int) -> bytes:
        return data[:most]


class _Inflate:
    """gzip, or deflate in both of its readings: with a zlib head, and without one, as some servers send it."""

    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._stream = zlib.decompressobj(bits)
        self._is_begun = False
        self._members = 1

    @property
    def is_whole(self) -> bool:
        return self._stream.eof or not self._is_begun

    def unpack(self, data: bytes, most: int) -> bytes:
        """At most `most` bytes: what is beyond is never made."""
        out = bytearray()
        data = self._first(data)
        while data and len(out) < most:
            if self._stream.eof and not self._goes_on(data):
                break
            try:
                out += self._stream.decompress(data, most - len(out))
            except zlib.error as error:
                raise Undecodable(f"it is packed wrongly ({error})") from None
            data = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
        return bytes(out)

    def _first(self, data: bytes) -> bytes:
        if data and not self._is_begun:
            self._is_begun = True
            if self._bits == zlib.MAX_WBITS and (data[0] & 0x0F != 8 or (len(data) > 1 and (data[0] * 256 + data[1]) % 31)):
                self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
        return data

    def _goes_on(self, data: bytes) -> bool:
        """Another member of a gzip stream; whatever else follows its end is no part of it."""
        if self._bits == zlib.MAX_WBITS or data[:1] != b"\x1f":
            return False
        self._members += 1
        if self._members > _MOST_MEMBERS:
            raise Undecodable(f"it is packed in more than {_MOST_MEMBERS} parts")
        self._stream = zlib.decompressobj(self._bits)
        return True


def _unpacker(encoding: str) -> "_AsItIs | _Inflate":
    names = [name for part in encoding.lower().split(",") if (name := part.strip()) not in ("", "identity")]
    match names:
        case []:
            return _AsItIs()
        case ["gzip" | "x-gzip"]:
            return _Inflate(16 + zlib.MAX_WBITS)
        case ["deflate"]:
            return _Inflate(zlib.MAX_WBITS)
        case _:
            raise Undecodable(f"it is packed as {', '.join(names)[:60]}, which was not asked for")


async def taken(chunks: AsyncGenerator[bytes, None], encoding: str, most: int, seconds: float) -> Body:
    """What comes within so many bytes and seconds. A server that drips, breaks off or never ends loses only what is beyond."""
    unpacker = _unpacker(encoding)
    content, wire = bytearray(), 0
    cut = ""
    try:
        async with asyncio.timeout(seconds), contextlib.aclosing(chunks):
            async for chunk in chunks:
                wire += len(chunk)
                content += unpacker.unpack(chunk, most + 1 - len(content))
                if len(content) > most or wire > most:
                    cut = f"It is larger than {most} bytes; the rest was left."
                    break
            else:
                cut = "" if unpacker.is_whole else "The answer broke off: its packed part has no end."
    except TimeoutError:
        cut = f"The server was too slow; after {seconds:.0f} s the rest was left."
    except Unreached as error:
        cut = f"The answer broke off: {error}"
    return Body(content=bytes(content[:most]), wire_bytes=wire, cut=cut)
