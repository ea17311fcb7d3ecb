"""The HTTP server of every HTTP API: uvicorn on sockets that the caller bound.

    server = HttpServer(app)
    await server.start([listening])
    …
    await server.stop(grace_seconds=2)

uvicorn has no timeout for headers. Its option `http=` takes the protocol of a connection: `Connection` is an `asyncio.Protocol` that passes
everything to uvicorn's HTTP/1.1 protocol and adds that timeout. It parses nothing. The server handles no signals and creates no sockets."""

import asyncio
import contextlib
import functools
import logging
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import uvicorn

from remit.server.addresses import Certificates

log = logging.getLogger("remit.server.http")
CONNECTION = "remit.connection"
"""Key of `scope["state"]`: the `Connection` of a request."""
CLOSING = "remit.closing"
"""Key of the ASGI scope: an event, set when the server stops. Endless streams end then, and clients continue from the last event."""
BACKLOG = 512
HEADER_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Limits of one connection, before its principal is known. Limits of a principal are in the settings and with its token."""

    header_seconds: float = 10.0
    """From the first byte of a request, or the opening of the connection, to the end of its header."""
    body_seconds: float = 30.0
    idle_seconds: float = 30.0
    """A connection without a request is closed after this time."""
    linger_seconds: float = 1.0
    """The rest of a refused request is read and dropped for this long, so that the client receives the refusal."""
    connections: int = 4096
    """With more, requests are answered 503."""


@functools.cache
def _http_protocol() -> Callable[..., asyncio.Protocol]:
    """The protocol class that uvicorn chooses for `http="h11"`."""

    async def no_app(scope: Any, receive: Any, send: Any) -> None: ...

    config = uvicorn.Config(no_app, interface="asgi3", http="h11", ws="none", lifespan="off", log_config=None)
    config.load()
    return config.http_protocol_class


class Connection(asyncio.Protocol):
    """One connection: uvicorn's protocol with a time limit for the header of each request."""

    def __init__(self, header_seconds: float, options: Mapping[str, Any]) -> None:
        self._http: Any = _http_protocol()(**{**options, "app_state": {**options["app_state"], CONNECTION: self}})
        self._seconds = header_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._requests = 0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._http.connection_made(transport)
        self._expect_header()

    def data_received(self, data: bytes) -> None:
        if not self._requests and self._timer is None:
            self._expect_header()
        self._http.data_received(data)

    def eof_received(self) -> None:
        self._http.eof_received()

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_timer()
        self._http.connection_lost(exc)

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """Around the answer to one request."""
        self._requests += 1
        self._end_timer()
        try:
            yield
        finally:
            self._requests -= 1

    def _expect_header(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self.transport.abort)

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Uvicorn(uvicorn.Server):
    """The caller handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    def __init__(self, app: Any, *, limits: HttpLimits | None = None, tls: Certificates | None = None) -> None:
        limits = limits or HttpLimits()
        self.sockets: list[socket.socket] = []
        self._app = app
        self._closing = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        context = tls.context() if tls is not None else None
        options: dict[str, Any] = {"ssl_context_factory": lambda _config, _default: context} if context is not None else {}
        self._web = _Uvicorn(
            uvicorn.Config(
                self._answer,
                interface="asgi3",
                http=lambda **options: Connection(limits.header_seconds, options),  # type: ignore[arg-type]  # called as the class would be
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",  # otherwise anyone could fill the log; application errors are logged here
                access_log=False,
                proxy_headers=False,  # the caller could choose its own address
                server_header=False,
                timeout_keep_alive=int(limits.idle_seconds),
                limit_concurrency=limits.connections,
                h11_max_incomplete_event_size=HEADER_BYTES,
                backlog=BACKLOG,
                reset_contextvars=True,
                **options,
            )
        )

    @property
    def connections(self) -> int:
        return len(self._web.server_state.connections)

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Serve on bound sockets. They belong to this server from now on and are closed with it."""
        self.sockets = list(sockets)
        for bound in self.sockets:
            # several small writes per answer must not wait for an acknowledgement each
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._serving = asyncio.create_task(self._web.serve(sockets=self.sockets))
        while not self._web.started and not self._serving.done():  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.002)
        if self._serving.done():
            self._serving.result()

    async def stop(self, grace_seconds: float = 2.0) -> None:
        """Accept nothing new; end streams at once and other requests within `grace_seconds`; then disconnect everybody."""
        if self._serving is None:
            return
        serving, self._serving = self._serving, None
        self._web.config.timeout_graceful_shutdown = grace_seconds  # type: ignore[assignment]  # a float will do
        self._web.should_exit = True
        self._closing.set()
        await serving
        for connection in list(self._web.server_state.connections):
            connection.transport.abort()
        if left := list(self._web.server_state.tasks):
            await asyncio.wait(left, timeout=1.0)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        """`/v1/tasks/` is `/v1/tasks`."""
        connection: Connection = scope["state"][CONNECTION]
        scope = {**scope, CLOSING: self._closing}
        if scope["path"].endswith("/") and scope["path"] != "/":
            scope |= {"path": scope["path"][:-1], "raw_path": scope["raw_path"][:-1]}
        with connection.request():
            try:
                await self._app(scope, receive, send)
            except Exception as error:
                log.error("%s %s", scope["method"], scope["path"], exc_info=error)
                raise
