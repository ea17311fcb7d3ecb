"""Frames: how messages stand on a byte stream between two processes. Four bytes of length, then JSON.

Never pickle: the other side is an agent, and an agent is not trusted. Whatever cannot be read as a frame is `Garbled`, which says
that the other side is broken; it is never an error of ours. Used on both sides of every pipe of this package.
"""

import json
import socket
from typing import Any

try:
    from pydantic_core import from_json, to_json
except ImportError:  # in a `forker`, which has the standard library alone: it is quick to start and small to fork

    def from_json(data: bytes) -> Any:  # type: ignore[misc]
        return json.loads(data)

    def to_json(value: Any, *, inf_nan_mode: str) -> bytes:  # type: ignore[misc]
        return json.dumps(value).encode()


FRAME_LIMIT = 64 * 1024 * 1024
_CHUNK = 256 * 1024


class Garbled(Exception):
    """What came is not a frame."""


class TooLarge(ValueError):
    """What is to be sent does not fit into a frame."""


def pack(message: Any) -> bytes:
    body = to_json(message, inf_nan_mode="null")
    if len(body) > FRAME_LIMIT:
        raise TooLarge(f"{len(body)} bytes of JSON; at most {FRAME_LIMIT} fit. Write a file and declare it as an artifact.")
    return len(body).to_bytes(4, "big") + body


class Unpacker:
    """Takes bytes as they come, gives whole messages."""

    __slots__ = ("_bytes", "limit")

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self._bytes = bytearray()
        self.limit = limit
        """The largest frame that is taken; less for one who has not said yet who it is."""

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        self._bytes += data
        messages = []
        start = 0
        while len(self._bytes) - start >= 4:
            size = int.from_bytes(self._bytes[start : start + 4], "big")
            if size > self.limit:
                raise Garbled(f"a frame of {size} bytes was announced")
            if len(self._bytes) - start - 4 < size:
                break
            messages.append(_read(bytes(self._bytes[start + 4 : start + 4 + size])))
            start += 4 + size
        if start:
            del self._bytes[:start]
        return messages


def _read(body: bytes) -> dict[str, Any]:
    try:
        message = from_json(body)
    except ValueError as error:
        raise Garbled(f"not JSON: {error}") from None
    if not isinstance(message, dict):
        raise Garbled("not a JSON object")
    return message


def send(sock: socket.socket, message: Any) -> None:
    """Blocking. The caller keeps two threads from sending at once."""
    sock.sendall(pack(message))


def receive(sock: socket.socket) -> dict[str, Any] | None:
    """Blocking; None at the end of the stream."""
    head = _exactly(sock, 4)
    if head is None:
        return None
    size = int.from_bytes(head, "big")
    if size > FRAME_LIMIT:
        raise Garbled(f"a frame of {size} bytes was announced")
    body = _exactly(sock, size)
    return None if body is None else _read(body)


def _exactly(sock: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        data = sock.recv(min(_CHUNK, size - len(parts)))
        if not data:
            return None
        parts += data
    return bytes(parts)
