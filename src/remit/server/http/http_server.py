"""The HTTP server of every HTTP API: uvicorn on sockets that the caller bound, with limits per connection.

    server = HttpServer(app)
    await server.start([listening])
    …
    await server.stop(grace_seconds=2)

uvicorn has no timeout for headers and does not tell an application who is connected. Its option `http=` takes the protocol of a connection:
`Connection` is an `asyncio.Protocol` that passes everything to uvicorn's HTTP/1.1 protocol and enforces timeouts. It parses nothing. The
server handles no signals and creates no sockets."""

import asyncio
import contextlib
import functools
import logging
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import uvicorn

from remit.server.addresses import Certificates
from remit.server.authenticator import Certificate, of_peer
from remit.server.http.rest_messages import HttpRefused, problem_bytes
from remit.system.unix_sockets import peer_of as process_of

log = logging.getLogger("remit.server.http")
CONNECTION = "remit.connection"
"""Key of `scope["state"]`: the `Connection` of a request."""
BACKLOG = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Limits of one connection, before its principal is known. Limits of a principal are in the settings and with its token (`access`)."""

    header_bytes: int = 32 * 1024
    """Request line and header fields together."""
    header_fields: int = 100
    target_bytes: int = 8 * 1024
    """Path and query."""
    header_seconds: float = 10.0
    """From the first byte of a request, or the opening of the connection, to the end of its header."""
    body_seconds: float = 30.0
    all_bodies_bytes: int = 256 * 1024 * 1024
    """Bodies of all requests in progress together."""
    idle_seconds: float = 30.0
    """A connection without a request is closed after this time."""
    stall_seconds: float = 60.0
    """A client that reads nothing of its answer for this long is disconnected."""
    linger_seconds: float = 1.0
    """The rest of a refused request is read and dropped for this long, so that the client receives the refusal."""
    linger_bytes: int = 1024 * 1024
    connections: int = 4096
    """With more, the connection that has been without a request for longest is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The other end of a connection."""

    is_local_socket: bool = False
    uid: int | None = None
    """User of the process at the other end of a Unix socket."""
    certificate: Certificate | None = None
    """Verified against `client_ca`."""

    @property
    def is_owner(self) -> bool:
        """The user who runs this server, or root, over the Unix socket."""
        return self.is_local_socket and self.uid in (os.geteuid(), 0)


@functools.cache
def _http_protocol() -> Callable[..., asyncio.Protocol]:
    """The protocol class that uvicorn chooses for `http="h11"`."""

    async def no_app(scope: Any, receive: Any, send: Any) -> None: ...

    config = uvicorn.Config(no_app, interface="asgi3", http="h11", ws="none", lifespan="off", log_config=None)
    config.load()
    return config.http_protocol_class


class Connection(asyncio.Protocol):
    """One connection: uvicorn's protocol within the limits of the server."""

    def __init__(self, server: "HttpServer", options: Mapping[str, Any]) -> None:
        self._server = server
        state = {**options["app_state"], CONNECTION: self}
        self._http: Any = _http_protocol()(**{**options, "app_state": state})
        self._loop = asyncio.get_running_loop()
        self._request_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._requests = 0
        self._has_data = False
        self.transport: asyncio.Transport
        self.peer = Peer()
        self.closing = server.closing

    # ---- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.peer = peer_of(transport)
        self._server.open.add(self)
        self._http.connection_made(transport)
        self._expect_request(self._server.limits.header_seconds)
        if len(self._server.open) > self._server.limits.connections:
            next(iter(self._server.waiting)).evict()

    def data_received(self, data: bytes) -> None:
        if not self._requests and not self._has_data:
            self._has_data = True
            self._expect_request(self._server.limits.header_seconds)
        self._http.data_received(data)

    def eof_received(self) -> None:
        self._http.eof_received()

    def pause_writing(self) -> None:
        self._http.pause_writing()
        self._abort_later()

    def resume_writing(self) -> None:
        self._http.resume_writing()
        self._cancel_abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_expecting()
        self._cancel_abort()
        self._server.open.discard(self)
        self._http.connection_lost(exc)

    # ---- limits

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """Around the answer to one request."""
        self._requests += 1
        self._has_data = False
        self._stop_expecting()
        try:
            yield
        finally:
            self._requests -= 1
            if self.transport.is_closing():
                self._abort_later()  # the client may never read what was written
            elif not self._requests:
                self._expect_request(self._server.limits.idle_seconds)

    def evict(self) -> None:
        """At once, not when asyncio reports its end: if many connections arrive together, each must evict another one."""
        self._stop_expecting()
        self._server.open.discard(self)
        self.transport.abort()

    def _expect_request(self, seconds: float) -> None:
        self._stop_expecting()
        self._server.waiting[self] = None
        self._request_timer = self._loop.call_later(seconds, self._request_is_late)

    def _stop_expecting(self) -> None:
        self._server.waiting.pop(self, None)
        if self._request_timer is not None:
            self._request_timer.cancel()

    def _request_is_late(self) -> None:
        if self._has_data and not self.transport.is_closing():
            words = f"The header did not arrive within {self._server.limits.header_seconds:g} s."
            self.transport.write(problem_bytes(HttpRefused(words, code="REQUEST_TIMEOUT")))
            self.transport.close()
            self._abort_later()
        else:
            self.transport.abort()

    def _abort_later(self) -> None:
        self._cancel_abort()
        self._write_timer = self._loop.call_later(self._server.limits.stall_seconds, self.transport.abort)

    def _cancel_abort(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()


def peer_of(transport: asyncio.BaseTransport) -> Peer:
    connected: socket.socket | None = transport.get_extra_info("socket")
    if connected is not None and connected.family == socket.AF_UNIX:
        with contextlib.suppress(OSError):
            return Peer(is_local_socket=True, uid=process_of(connected).uid)
        return Peer(is_local_socket=True)
    secured: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    return Peer() if secured is None else Peer(certificate=of_peer(secured.getpeercert(), secured.getpeercert(binary_form=True)))


class _Uvicorn(uvicorn.Server):
    """The caller handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    def __init__(self, app: Any, *, limits: HttpLimits | None = None, tls: Certificates | None = None) -> None:
        self.limits = limits or HttpLimits()
        self.closing = asyncio.Event()
        """Set when the server stops: endless streams end then, and clients continue from the last event."""
        self.open: set[Connection] = set()
        self.waiting: dict[Connection, None] = {}
        """Connections without a request in progress, the oldest first."""
        self.sockets: list[socket.socket] = []
        self._app = app
        self._tls = tls
        self._context = tls.context() if tls is not None else None
        self._serving: asyncio.Task[None] | None = None
        context = self._context
        options: dict[str, Any] = {"ssl_context_factory": lambda _config, _default: context} if context is not None else {}
        self._web = _Uvicorn(
            uvicorn.Config(
                self._answer,
                interface="asgi3",
                http=lambda **options: Connection(self, options),  # type: ignore[arg-type]  # called as the class would be
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",  # otherwise anyone could fill the log; application errors are logged here
                access_log=False,
                proxy_headers=False,  # the caller could choose its own address
                server_header=False,
                timeout_keep_alive=int(self.limits.idle_seconds) + 1,
                h11_max_incomplete_event_size=self.limits.header_bytes,
                backlog=BACKLOG,
                reset_contextvars=True,
                **options,
            )
        )

    @property
    def connections(self) -> int:
        return len(self.open)

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Serve on bound sockets. They belong to this server from now on and are closed with it."""
        self.sockets = list(sockets)
        for bound in self.sockets:
            if bound.family != socket.AF_UNIX:  # several small writes per answer must not wait for an acknowledgement each
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
        self.closing.set()
        await serving
        for connection in list(self.open):
            connection.transport.abort()
        if left := list(self._web.server_state.tasks):
            await asyncio.wait(left, timeout=1.0)

    def reload_certificate(self) -> None:
        if self._tls is not None and self._context is not None:
            self._tls.load(self._context)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        """`/v1/tasks/` is `/v1/tasks`."""
        connection: Connection = scope["state"][CONNECTION]
        if scope["path"].endswith("/") and scope["path"] != "/":
            scope = {**scope, "path": scope["path"][:-1], "raw_path": scope["raw_path"][:-1]}
        with connection.request():
            try:
                await self._app(scope, receive, send)
            except Exception as error:
                log.error("%s %s", scope["method"], scope["path"], exc_info=error)
                raise
