"""Responses of model servers, MCP servers and A2A agents, bounded in bytes, events and lines: a hook for HTTP clients."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from remit.system.http import BodyError, Decompressor, limit_chunks, limit_events

PLAIN = {"accept-encoding": "identity"}
"""Requested encoding: small events gain little from compression."""
ERROR_BYTES = 1 << 20
"""Maximum size of an error page, whose first lines are shown."""
EVENT_BYTES = 16 << 20
EVENT_LINES = 4096
"""An event has two or three lines. Clients copy the event at each line: a million of them would block the loop for hours."""
STREAM_BYTES = 256 << 20


def bound_by(stream_class: type, max_event_lines: int | None = EVENT_LINES) -> Callable[[Any], Awaitable[None]]:
    """A hook for responses of the library whose streams are of this class. It limits what can be read from a response."""

    class Bounded(stream_class):  # type: ignore[misc]
        def __init__(self, stream: Any, pieces: AsyncIterator[bytes]) -> None:
            self._stream, self._pieces = stream, pieces

        def __aiter__(self) -> AsyncIterator[bytes]:
            return self._pieces

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def bound(response: Any) -> None:
        stream = response.stream
        try:
            decompressor = Decompressor(response.headers.pop("content-encoding", ""))
        except BodyError:
            await stream.aclose()
            raise
        pieces = decompressor.unpack(aiter(stream))
        if response.is_error:
            bounded = _beginning(pieces)
        elif "json" in response.headers.get("content-type", ""):
            bounded = limit_chunks(pieces, EVENT_BYTES)
        else:
            bounded = limit_events(pieces, max_event_bytes=EVENT_BYTES, max_event_lines=max_event_lines, max_stream_bytes=STREAM_BYTES)
        response.stream = Bounded(stream, bounded)

    return bound


async def _beginning(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    left = ERROR_BYTES
    async for piece in pieces:
        yield piece[:left]
        left -= len(piece)
        if left <= 0:
            return
