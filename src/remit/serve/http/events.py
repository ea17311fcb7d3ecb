"""Server-sent events: the chunks of a task as they come (S5.7), each under its number, by which a stream is taken up again.

A stream that is silent says so every quarter of a minute, so that nobody in between takes it for dead. A client that reads slowly slows
its own stream and nothing else: the next chunk is asked for when the one before has gone. Leaving ends nothing but the stream.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse

from remit.core.errors import RemitError
from remit.serve.http.problems import document_of
from remit.serve.http.server import CLOSING, Closing
from remit.tool.chunks import Chunk
from remit.tool.speaking import json_text

MEDIA_TYPE = "text/event-stream"
KEEP_ALIVE_SECONDS = 15.0
_STILL_HERE = b": still here\n\n"
_GO_ON = b": the server ends; go on from the last id\n\n"


class EventStream(StreamingResponse):
    """The answer that is such a stream."""

    media_type = MEDIA_TYPE

    def __init__(self, request: Request, chunks: AsyncIterator[Chunk], headers: Mapping[str, str] | None = None, status: int = 200) -> None:
        closing = getattr(request.state, CLOSING, None) or Closing()
        super().__init__(told(chunks, closing), status, {"x-accel-buffering": "no", **(headers or {})})


async def told(chunks: AsyncIterator[Chunk], closing: Closing, keep_alive_seconds: float = KEEP_ALIVE_SECONDS) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    ending = closing.future()
    coming: asyncio.Future[Chunk | None] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(_following(chunks))
            either: set[asyncio.Future[Any]] = {coming, ending}
            await asyncio.wait(either, timeout=keep_alive_seconds, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                yield _GO_ON if ending.done() else _STILL_HERE
                if ending.done():
                    return
                continue
            came, coming = coming, None
            try:
                chunk = came.result()
            except RemitError as error:
                yield event("error", 0, {"type": "error", "taskId": None, "data": {"error": document_of(error)}})
                return
            if chunk is None:
                return
            yield event(str(chunk.type), chunk.number, chunk.to_dict())
    finally:
        closing.forget(ending)
        await _left(chunks, coming)


def event(name: str, number: int, document: Mapping[str, Any]) -> bytes:
    """JSON has no line ends of its own, so it is one line. What has no number is not to be gone on from."""
    numbered = f"id: {number}\n" if number else ""
    return f"event: {name}\n{numbered}data: {json_text(document)}\n\n".encode()


async def _following(chunks: AsyncIterator[Chunk]) -> Chunk | None:
    return await anext(chunks, None)


async def _left(chunks: AsyncIterator[Chunk], coming: "asyncio.Future[Chunk | None] | None") -> None:
    if coming is not None:
        coming.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({coming})
    closes: Any = getattr(chunks, "aclose", None)
    if closes is not None:
        await closes()
