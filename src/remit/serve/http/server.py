"""The server under every HTTP door: uvicorn, with connections of ours (`wire`), on sockets that somebody else bound.

    server = HttpServer(app)
    await server.start([listening])
    …
    await server.stop(grace_seconds=2)

It takes no signals, makes no sockets and knows no route. TLS is of TCP alone: a Unix socket needs none. Used by `remit serve` and by tests.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from remit.core.errors import Misused, Unavailable
from remit.serve.http.limits import HttpLimits
from remit.serve.http.wire import Connection, HalfOpen, Resting

CLOSING = "remit.closing"
"""Where `scope["state"]` has the `Closing`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """PEM files."""

    certificate: Path
    key: Path | None = None
    """None: it stands with the certificate."""
    client_ca: Path | None = None
    """Certificates that it signed are asked for, and tell who calls; whoever shows none may still have a token."""

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.set_alpn_protocols(["http/1.1"])
        self.load(context)
        return context

    def load(self, context: ssl.SSLContext) -> None:
        """Also of one that is in use: connections made from then on are shown the new certificate."""
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
                context.verify_mode = ssl.CERT_OPTIONAL
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            files = ", ".join(str(path) for path in (self.certificate, self.key, self.client_ca) if path is not None)
            raise Misused(
                f"TLS cannot be had with {files}: {error}.",
                advice="Look at [serve] tls_certificate, tls_key and client_ca: PEM files, the key without a password.",
            ) from None


class Closing:
    """Told to streams that would go on for ever: the server ends, and whoever listens takes them up again elsewhere."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()
        self.is_closed = False

    def future(self) -> "asyncio.Future[None]":
        """Done when the server closes; to be given back with `forget`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.is_closed:
            future.set_result(None)
        else:
            self._waiting.add(future)
        return future

    def forget(self, future: "asyncio.Future[None]") -> None:
        self._waiting.discard(future)
        future.cancel()

    def close(self) -> None:
        self.is_closed = True
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()


class HttpServer:
    def __init__(self, app: Any, *, limits: HttpLimits | None = None, tls: Tls | None = None) -> None:
        self.limits = limits or HttpLimits()
        self._tls = tls
        self._context = tls.context() if tls is not None else None
        self._closing = Closing()
        config = uvicorn.Config(
            app,
            interface="asgi3",
            http="h11",
            ws="none",
            lifespan="auto",
            log_config=None,
            log_level="error",  # a line for each malformed request would be anybody's to write
            access_log=False,
            proxy_headers=False,  # whoever calls would say itself where it calls from
            server_header=False,
            timeout_keep_alive=self.limits.idle_seconds,
            h11_max_incomplete_event_size=self.limits.header_bytes,
            backlog=self.limits.backlog,
            reset_contextvars=True,
        )
        self._web = _Web(config, self)
        self._ticking: asyncio.Task[None] | None = None
        self.sockets: list[socket.socket] = []

    @property
    def connections(self) -> int:
        return len(self._web.server_state.connections)

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """On sockets that are bound; they are this server's from here on, and closed with it."""
        self.sockets = list(sockets)
        self._web.config.load()
        self._web.lifespan = self._web.config.lifespan_class(self._web.config)
        await self._web.startup(sockets=self.sockets)
        self._ticking = asyncio.create_task(self._web.main_loop())

    async def stop(self, grace_seconds: float = 2.0) -> None:
        """Nothing new; streams end at once, other requests within `grace_seconds`; then whoever is left is cut off."""
        if self._ticking is None:
            return
        web, self._web.should_exit = self._web, True
        self._closing.close()
        await self._ticking
        self._ticking = None
        web.config.timeout_graceful_shutdown = grace_seconds  # type: ignore[assignment]  # uvicorn waits for it as for any number
        with _quiet():  # what is cut off now is cut off on purpose: nobody needs a traceback of it
            await web.shutdown(sockets=self.sockets)
            for connection in list(web.server_state.connections):
                connection.transport.abort()
            if left := list(web.server_state.tasks):
                await asyncio.wait(left, timeout=1.0)

    def reload_certificate(self) -> None:
        if self._tls is not None and self._context is not None:
            self._tls.load(self._context)


class _Web(uvicorn.Server):
    """uvicorn's, with our connections: it would make those of its own, without limits on handshakes."""

    def __init__(self, config: uvicorn.Config, owner: HttpServer) -> None:
        super().__init__(config)
        self._owner = owner
        self._half_open = HalfOpen(owner.limits.half_open)
        self._resting = Resting()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise Unavailable("The HTTP server could not be started.", code="TOOL_UNAVAILABLE", advice="The log says what went wrong.")
        self.servers = []
        loop, limits = asyncio.get_running_loop(), self._owner.limits
        for bound in sockets or ():
            context = None if bound.family == socket.AF_UNIX else self._owner._context
            handshake, farewell = (limits.handshake_seconds, 1.0) if context else (None, None)
            server = await loop.create_server(
                self._connection,
                sock=bound,
                ssl=context,
                backlog=limits.backlog,
                ssl_handshake_timeout=handshake,
                ssl_shutdown_timeout=farewell,
            )
            self.servers.append(server)
        self.started = True

    def _connection(self) -> Connection:
        state = {**self.lifespan.state, CLOSING: self._owner._closing}
        return Connection(self.config, self.server_state, state, self._owner.limits, self._half_open, self._resting)


@contextlib.contextmanager
def _quiet() -> Any:
    log = logging.getLogger("uvicorn.error")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def _no_password() -> str:
    """Asked for a key that has one: OpenSSL would ask at the terminal."""
    raise ValueError("the key has a password")
