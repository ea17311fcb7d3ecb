"""Authentication of HTTP requests: the ASGI middleware before every HTTP API (REST, A2A, MCP, metrics).

Checks in this order: framing, Host and Origin; the caller (token or socket); its limits. Then the body is read, limited in
size and time, and passed to the application whole. The caller is in `scope["remit.principal"]`; requests to open paths have none. Preflight
requests are not answered: pages of other sites may not call this server."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect

from remit.core.errors import Misused, Refused, RemitError
from remit.core.settings import ServeSettings
from remit.server.authenticator import HEADER, Authenticator, Credentials
from remit.server.http.http_server import HttpLimits
from remit.server.http.rest_messages import REALM, HttpRefused, answer_of
from remit.server.service import HOLD, PRINCIPAL
from remit.server.tokens import Principal

log = logging.getLogger("remit.server.http")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Answered without authentication."""
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"strict-transport-security", b"max-age=31536000"),
)
"""Of every answer, unless the application sets them."""


class Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: HttpLimits) -> None:
        self._from_client = receive
        self._to_client = send
        self._limits = limits
        self.headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            self.headers.setdefault(name, []).append(value)
        self.cleanup = contextlib.ExitStack()
        """Closed in the task of the request: its place among the caller's streams."""
        self.open_stream: Callable[[], contextlib.AbstractContextManager[object]] | None = None
        """Takes a place among the caller's open streams."""
        announced = self.one(b"content-length")
        self.length = int(announced) if announced and announced.isdigit() else 0
        """Of the body, as announced; 0 if there is none, or it comes in chunks."""
        self._body: bytes | None = b""
        self._is_read = b"transfer-encoding" not in self.headers and self.length == 0
        self._is_answered = False
        self.is_over = False
        """Answered by the middleware, or the client has left: further messages of the application are dropped."""

    def one(self, name: bytes) -> bytes | None:
        """The value of a header that is present exactly once."""
        values = self.headers.get(name, ())
        return values[0] if len(values) == 1 else None

    # ---- from the client

    async def read_body(self, most_bytes: int) -> None:
        """Raises `Refused` for a body that is too large or too late. Also ends when the client leaves."""
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while not self._is_read and not self.is_over:
                    body += (await self._next()).get("body", b"")
                    if len(body) > most_bytes:
                        raise too_large(most_bytes)
        except TimeoutError:
            words = f"The body did not arrive within {self._limits.body_seconds:g} s."
            raise HttpRefused(words, code="REQUEST_TIMEOUT", advice="Send it in one go.") from None
        if self.is_over:
            raise ClientDisconnect
        self._body = bytes(body)

    async def _next(self) -> Message:
        message = await self._from_client()
        if message["type"] == "http.disconnect":
            self.is_over = True
        elif not message.get("more_body", False):
            self._is_read = True
        return message

    async def receive(self) -> Message:
        """For the application: the whole body at once."""
        if self._body is None:
            return await self._next()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    # ---- to the client

    async def send(self, message: Message) -> None:
        if self.is_over:
            return
        if message["type"] == "http.response.start":
            given = [(name.lower(), value) for name, value in message.get("headers", ())]
            names = {name for name, _ in given}
            added = (*HEADERS, (b"connection", b"close")) if not self._is_read else HEADERS
            message = {**message, "headers": [*given, *((name, value) for name, value in added if name not in names)]}
            try:
                if any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in given):
                    self.hold()
            except Refused as error:
                await self.refuse(error)
                raise  # ends the application's stream
            self._is_answered = True
        await self._to_client(message)

    async def refuse(self, error: RemitError) -> None:
        """Answers with the error; an answer in progress is ended instead.

        Then reads the rest of the request for a moment: closing the connection early could destroy the answer."""
        if self.is_over:
            return
        body = b""
        if not self._is_answered:
            status, headers, body = answer_of(error)
            raw = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
            await self.send({"type": "http.response.start", "status": status, "headers": raw})
        await self._to_client({"type": "http.response.body", "body": body, "more_body": True})
        if b"expect" not in self.headers:  # otherwise it waits for 100 Continue and sends nothing
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.linger_seconds):
                    while not self._is_read and not self.is_over:
                        await self._next()
        await self._to_client({"type": "http.response.body", "body": b""})
        self.is_over = True

    def hold(self) -> None:
        """Takes a place among the caller's open streams. Raises `RateLimited`; the request ends when the caller's token is revoked."""
        if self.open_stream is not None:
            self.cleanup.enter_context(self.open_stream())
            self.open_stream = None


def too_large(most_bytes: int) -> Refused:
    advice = "Pass large inputs as files, by their paths."
    return Refused(f"The request is larger than {most_bytes} bytes.", code="TOO_LARGE", advice=advice)


# ---- host names


def host_name(authority: str) -> str | None:
    """The name in `NAME[:PORT]`, in lower case; None if it is invalid."""
    try:
        found = urlsplit(f"//{authority}")
        port = "" if found.port is None else authority.rpartition(":")[2]
    except ValueError:
        return None
    name = found.hostname or ""
    whole = f"{f'[{name}]' if ':' in name else name}{port and ':'}{port}"
    return name if name and whole == authority.lower() else None


class AllowedHosts:
    """Names this server may be called by: loopback, the addresses it listens at, and configured ones. Protects against DNS rebinding.

    Names are compared whole: `localhost:1.evil.example` is not localhost."""

    def __init__(self, names: Iterable[str] = (), public_url: str | None = None) -> None:
        self._names = {"127.0.0.1", "localhost", "::1"}
        for name in names:
            plain = name.lower().strip("[]").partition("%")[0]
            if host_name(f"[{plain}]" if ":" in plain else plain) != plain:  # ports are not compared: a name with one would never match
                raise Misused(f"{name!r:.80} is not a host name.", advice='Write names alone: allow_hosts = ["build.example.org"].')
            self._names.add(plain)
        if public_url and (public := urlsplit(public_url).hostname):
            self._names.add(public)

    def has(self, authority: str) -> bool:
        return host_name(authority) in self._names

    def has_origin(self, origin: str) -> bool:
        """`http://NAME[:PORT]`; not `null`, a browser extension or a path."""
        scheme, separator, authority = origin.partition("://")
        return bool(separator) and scheme in ("http", "https") and self.has(authority)


# ---- the middleware


class AuthMiddleware:
    def __init__(
        self,
        app: Any,
        authenticator: Authenticator,
        settings: ServeSettings,
        *,
        hosts: Iterable[str] = (),
        open_paths: Iterable[str] = OPEN_PATHS,
        limits: HttpLimits | None = None,
    ) -> None:
        """`hosts`: names and addresses it listens at; `open_paths`: those that need no credentials."""
        self._app = app
        self._authenticator = authenticator
        self._hosts = AllowedHosts((*hosts, *settings.allow_hosts), settings.public_url)
        self._open_paths = frozenset(open_paths)
        self._limits = limits or HttpLimits()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, self._limits)
        known = {**scope, HOLD: exchange.hold}
        try:
            with exchange.cleanup:
                self._check(scope, exchange)
                if scope["path"] not in self._open_paths:
                    principal = known[PRINCIPAL] = self._principal(scope, exchange)
                    await self._admit(exchange, principal)
                await self._app(known, exchange.receive, exchange.send)
        except Exception as error:
            if exchange.is_over:  # the client has left, or has its answer
                return
            if not isinstance(error, RemitError):
                log.error("%s %s", scope["method"], scope["path"], exc_info=error)
                error = HttpRefused("Internal server error.", code="UNKNOWN_ERROR", advice="The server's log has the details.")
            await exchange.refuse(error)

    def _check(self, scope: Scope, exchange: Exchange) -> None:
        """Framing, then Host and Origin."""
        _check_framing(scope, exchange)
        host = exchange.one(b"host")
        if host is None or not self._hosts.has(host.decode("latin-1")):
            advice = "Add the name to [serve] allow_hosts."
            raise HttpRefused("This server does not answer to that host name.", code="WRONG_HOST", advice=advice)
        origins = exchange.headers.get(b"origin", ())
        if any(not self._hosts.has_origin(origin.decode("latin-1")) for origin in origins):
            raise HttpRefused("Pages of that origin may not call this server.", code="WRONG_ORIGIN", advice="Call it from a program.")

    async def _admit(self, exchange: Exchange, principal: Principal) -> None:
        most, task = self._authenticator.settings.request_bytes, asyncio.current_task()
        if exchange.length > most:
            raise too_large(most)
        self._authenticator.admit(principal)
        exchange.open_stream = lambda: self._authenticator.stream(principal, task)  # applications send from other tasks
        await exchange.read_body(most)

    def _principal(self, scope: Scope, exchange: Exchange) -> Principal:
        """Repeated credentials are refused: two servers in a row might each read a different one."""
        tokens = exchange.headers.get(HEADER.encode(), [])
        if len(tokens) > 1:
            headers = {"www-authenticate": f'{REALM}, error="invalid_request"'}
            raise HttpRefused("The request has credentials twice.", code="MALFORMED_REQUEST", headers=headers)
        shown = Credentials(
            authorization=tokens[0].decode("latin-1") if tokens else None,
            api="http",
            peer=(scope.get("client") or ("",))[0],
        )
        try:
            return self._authenticator.authenticate(shown)
        except Refused as error:
            if error.code != "UNAUTHENTICATED" or not tokens:
                raise
            headers = {"www-authenticate": f'{REALM}, error="invalid_token"'}
            raise HttpRefused(error.message, code=error.code, status=401, advice=error.advice, headers=headers) from None


def _check_framing(scope: Scope, exchange: Exchange) -> None:
    """Refuse framing that another server in front might read differently. Closes the connection."""
    if scope["http_version"] not in ("1.0", "1.1"):
        raise _malformed("This server speaks HTTP/1.1 only.", 505)
    if b"transfer-encoding" in exchange.headers and (b"content-length" in exchange.headers or scope["http_version"] == "1.0"):
        raise _malformed("Content-Length and Transfer-Encoding contradict each other.")
    if not scope["path"].startswith("/"):
        raise _malformed("The request names no path, as in GET /v1/tasks.")


def _malformed(words: str, status: int = 400) -> HttpRefused:
    return HttpRefused(words, code="MALFORMED_REQUEST", status=status, headers={"connection": "close"})
