"""The HTTP server of every HTTP API: uvicorn on sockets that the caller bound. It handles no signals.

server = HttpServer(app)
await server.start([listening])
…
await server.stop(grace_seconds=2)
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import uvicorn

CLOSING = "remit.closing"
"""Key of the ASGI scope: an event, set when the server stops. Endless streams end then, and clients continue from the last event."""
HEADER_BYTES = 32 * 1024
IDLE_SECONDS = 30
"""A connection without a request is closed after this time."""
MOST_CONNECTIONS = 4096
"""With more, requests are answered 503."""


class _Uvicorn(uvicorn.Server):
    """The caller handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    def __init__(self, app: Any) -> None:
        self._app = app
        self._closing = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._web = _Uvicorn(
            uvicorn.Config(
                self._answer,
                interface="asgi3",
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",  # otherwise anyone could fill the log; application errors are logged by the middleware
                access_log=False,
                proxy_headers=False,  # the caller could choose its own address
                server_header=False,
                timeout_keep_alive=IDLE_SECONDS,
                limit_concurrency=MOST_CONNECTIONS,
                h11_max_incomplete_event_size=HEADER_BYTES,
                reset_contextvars=True,
            )
        )

    @property
    def connections(self) -> int:
        return len(self._web.server_state.connections)

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Serve on bound sockets. They belong to this server from now on and are closed with it."""
        for bound in sockets:
            # several small writes per answer must not wait for an acknowledgement each
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._serving = asyncio.create_task(self._web.serve(sockets=list(sockets)))
        while not self._web.started and not self._serving.done():  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.002)
        if self._serving.done():
            self._serving.result()

    async def stop(self, grace_seconds: float = 2.0) -> None:
        """Accept nothing new; end streams at once and other requests within `grace_seconds`."""
        if self._serving is None:
            return
        serving, self._serving = self._serving, None
        self._web.config.timeout_graceful_shutdown = grace_seconds  # type: ignore[assignment]  # a float will do
        self._web.should_exit = True
        self._closing.set()
        await serving

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app({**scope, CLOSING: self._closing}, receive, send)
