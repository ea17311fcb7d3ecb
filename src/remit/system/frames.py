"""Messages on a byte stream between two processes: four bytes of length, then a JSON object.

Never pickle: the other side may be an agent, which is untrusted. Invalid bytes raise `FramingError`: the other side is broken."""

import json
import socket
from typing import Any

try:
    from pydantic_core import from_json, to_json
except ImportError:  # in the fork server of commands, which uses only the standard library: quick to start and small to fork

    def from_json(data: bytes) -> Any:  # type: ignore[misc]
        return json.loads(data)

    def to_json(value: Any, *, inf_nan_mode: str) -> bytes:  # type: ignore[misc]
        return json.dumps(value).encode()


MAX_FRAME_BYTES = 64 * 1024 * 1024
_HEADER_BYTES = 4


class FramingError(Exception):
    """The bytes received are not a frame."""


class FrameTooLarge(ValueError):
    """The message to send does not fit into a frame."""


def encode_frame(message: Any, max_bytes: int = MAX_FRAME_BYTES) -> bytes:
    body = to_json(message, inf_nan_mode="null")
    if len(body) > max_bytes:
        raise FrameTooLarge(f"{len(body)} bytes of JSON; at most {max_bytes} fit. Write a file and declare it as an artifact.")
    return len(body).to_bytes(_HEADER_BYTES, "big") + body


def take_frames(buffer: bytearray, max_bytes: int = MAX_FRAME_BYTES) -> list[dict[str, Any]]:
    """The complete messages at the start of `buffer`, which are removed from it."""
    messages = []
    start = 0
    while len(buffer) - start >= _HEADER_BYTES:
        end = start + _HEADER_BYTES + _size(buffer[start : start + _HEADER_BYTES], max_bytes)
        if len(buffer) < end:
            break
        messages.append(_decode(bytes(buffer[start + _HEADER_BYTES : end])))
        start = end
    del buffer[:start]
    return messages


def send_frame(sock: socket.socket, message: Any) -> None:
    """Blocking."""
    sock.sendall(encode_frame(message))


def receive_frame(sock: socket.socket) -> dict[str, Any] | None:
    """Blocking; None at the end of the stream."""
    header = _receive_exactly(sock, _HEADER_BYTES)
    body = None if header is None else _receive_exactly(sock, _size(header, MAX_FRAME_BYTES))
    return None if body is None else _decode(body)


def _size(header: bytes | bytearray, max_bytes: int) -> int:
    size = int.from_bytes(header, "big")
    if size > max_bytes:
        raise FramingError(f"a frame of {size} bytes was announced")
    return size


def _decode(body: bytes) -> dict[str, Any]:
    try:
        message = from_json(body)
    except ValueError as error:
        raise FramingError(f"not JSON: {error}") from None
    if not isinstance(message, dict):
        raise FramingError("not a JSON object")
    return message


def _receive_exactly(sock: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        chunk = sock.recv(min(256 * 1024, size - len(data)))
        if not chunk:
            return None
        data += chunk
    return bytes(data)
