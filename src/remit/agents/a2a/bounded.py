"""HTTP to a server that nobody trusts: no redirects, no proxy, no cookies, nothing packed, and never more than a bounded answer.

A transport for the SDK's client. What it refuses is a `Failed` of ours, which the SDK lets through as it is.
"""

import ssl
from collections.abc import AsyncIterator

import httpx

from remit.core.errors import Failed
from remit.system.http import BodyTooLarge, limit_chunks, limit_events

ANSWER_BYTES = 16 * 1024 * 1024
"""Of one answer that is no stream."""
EVENT_BYTES = 8 * 1024 * 1024
"""Of one event of a stream."""
STREAM_BYTES = 512 * 1024 * 1024
CONNECT_SECONDS = 10.0
QUIET_SECONDS = 60.0
"""A stream that says nothing for so long is taken up again: its connection may be dead without anybody having been told."""


def http_client(tls: ssl.SSLContext | bool, headers: dict[str, str]) -> httpx.AsyncClient:
    transport = Bounded(httpx.AsyncHTTPTransport(verify=tls, trust_env=False))
    timeout = httpx.Timeout(QUIET_SECONDS, connect=CONNECT_SECONDS, pool=CONNECT_SECONDS)
    own = {"Accept-Encoding": "identity", "User-Agent": "remit", **headers}
    return httpx.AsyncClient(transport=transport, timeout=timeout, headers=own, follow_redirects=False, trust_env=False)


class Bounded(httpx.AsyncBaseTransport):
    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.headers["Accept-Encoding"] = "identity"
        response = await self._inner.handle_async_request(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        stream = response.stream
        try:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise Failed("It answers with something packed, which was not asked for.", code="TOO_LARGE")
            if response.is_redirect:
                raise Failed(
                    f"It answers {response.status_code}: it wants to send us elsewhere.", advice="Write the address it is found at."
                )
        except Failed:
            await stream.aclose()
            raise
        is_stream = "text/event-stream" in response.headers.get("content-type", "")
        events = limit_events(aiter(stream), max_event_bytes=EVENT_BYTES, max_stream_bytes=STREAM_BYTES)
        response.stream = _Answer(stream, events if is_stream else limit_chunks(aiter(stream), ANSWER_BYTES))
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Answer(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, chunks: AsyncIterator[bytes]) -> None:
        self._inner, self._chunks = inner, chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._chunks:
                yield chunk
        except BodyTooLarge as error:
            raise Failed(f"{error}: that is not taken.".capitalize(), code="TOO_LARGE", advice="Ask it for less.") from None

    async def aclose(self) -> None:
        await self._inner.aclose()


def too_large(what: str, most: int) -> Failed:
    return Failed(f"It sends more than {most // 1024} KiB in {what}: that is not taken.", code="TOO_LARGE", advice="Ask it for less.")
