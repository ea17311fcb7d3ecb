"""Authentication of HTTP requests: the ASGI middleware before every HTTP API (REST, A2A, MCP, metrics).

Checks in this order: framing, Host and Origin; the caller (token or socket); its limits. Then the body is read, limited in
size and time, and passed to the application whole. The caller is in `scope["remit.principal"]`; requests to open paths have none. Preflight
requests are not answered: pages of other sites may not call this server."""

import asyncio
import contextlib
import ipaddress
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect

from remit.core.errors import Misused, Refused, RemitError
from remit.core.settings import ServeSettings
from remit.server.authenticator import HEADER, Authenticator, Credentials
from remit.server.http.http_server import IS_UNIX, HttpLimits
from remit.server.http.rest_messages import REALM, HttpRefused, answer_of
from remit.server.service import HOLD, PRINCIPAL
from remit.server.tokens import Principal

log = logging.getLogger("remit.server.http")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

REQUEST_ID = "remit.request_id"
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Answered without authentication."""
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Of every answer, unless the application sets them."""
_HSTS = (b"strict-transport-security", b"max-age=31536000")
_GIVEN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_AUTHORITY = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252}))(?::(?P<port>[0-9]{1,5}))?")


class Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: HttpLimits) -> None:
        self._scope = scope
        self._from_client = receive
        self._to_client = send
        self._limits = limits
        self.headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            self.headers.setdefault(name, []).append(value)
        given = self.one(b"x-request-id")
        self.request_id = given.decode() if given and _GIVEN_ID.fullmatch(given) else secrets.token_hex(8)
        self.cleanup = contextlib.ExitStack()
        """Closed in the task of the request: its place among the caller's streams."""
        self.open_stream: Callable[[], contextlib.AbstractContextManager[object]] | None = None
        """Takes a place among the caller's open streams."""
        self._body: bytes | None = b""
        self._is_reading = False
        self._is_read = b"transfer-encoding" not in self.headers and self.length == 0
        self._is_answered = False
        self.is_over = False
        """Answered by the middleware, or the client has left: further messages of the application are dropped."""

    @property
    def length(self) -> int:
        """Of the body, as announced; 0 if there is none, or it comes in chunks."""
        announced = self.one(b"content-length")
        return int(announced) if announced and announced.isdigit() else 0

    def one(self, name: bytes) -> bytes | None:
        """The value of a header that is present exactly once."""
        values = self.headers.get(name, ())
        return values[0] if len(values) == 1 else None

    # ---- from the client

    async def read_body(self, most_bytes: int) -> None:
        """Raises `Refused` for a body that is too large or too late. Also ends when the client leaves."""
        pieces: list[bytes] = []
        size = 0
        self._is_reading = True
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while not self._is_read and not self.is_over:
                    piece = (await self._next()).get("body", b"")
                    if size + len(piece) > most_bytes:
                        raise too_large(most_bytes)
                    size += len(piece)
                    pieces.append(piece)
        except TimeoutError:
            words = f"The body did not arrive within {self._limits.body_seconds:g} s."
            raise HttpRefused(words, code="REQUEST_TIMEOUT", advice="Send it in one go.") from None
        if self.is_over:
            raise ClientDisconnect
        self._body = b"".join(pieces)

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
            message = {**message, "headers": self._headers(message)}
            try:
                if any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in message["headers"]):
                    self.hold()
            except Refused as error:
                await self.refuse(error)
                raise  # ends the application's stream
            self._is_answered = True
        elif not self._is_read and not message.get("more_body", False):
            await self._send_last(message)
            return
        await self._to_client(message)

    async def refuse(self, error: RemitError) -> None:
        """Answers with the error; an answer in progress is ended instead."""
        if self.is_over:
            return
        body = b""
        if not self._is_answered:
            self._is_answered = True
            status, headers, body = answer_of(error, self.request_id)
            raw = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
            start: Message = {"type": "http.response.start", "status": status, "headers": raw}
            await self._to_client({**start, "headers": self._headers(start)})
        await self._send_last({"type": "http.response.body", "body": body})
        self.is_over = True

    async def _send_last(self, message: Message) -> None:
        """Reads the rest of the request for a moment: closing the connection early could destroy the answer."""
        # otherwise it waits for 100 Continue and sends nothing
        if not self._is_read and (self._is_reading or b"expect" not in self.headers):
            await self._to_client({**message, "more_body": True})
            message = {"type": "http.response.body", "body": b""}
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.linger_seconds):
                    while not self._is_read and not self.is_over:
                        await self._next()
        await self._to_client(message)

    def _headers(self, message: Message) -> list[tuple[bytes, bytes]]:
        given = [(name.lower(), value) for name, value in message.get("headers", ()) if name.lower() != b"server"]
        names = {name for name, _ in given}
        usual = HEADERS if self._scope.get("scheme") != "https" else (*HEADERS, _HSTS)
        given += [(name, value) for name, value in usual if name not in names]
        given.append((b"x-request-id", self.request_id.encode()))
        if not self._is_read and b"connection" not in names:
            given.append((b"connection", b"close"))
        return given

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
    found = _AUTHORITY.fullmatch(authority)
    if found is None or (found["port"] is not None and int(found["port"]) > 65535):
        return None
    return found["name"].lower()


class AllowedHosts:
    """Names this server may be called by: loopback, the addresses it listens at, and configured ones. Protects against DNS rebinding.

    Names are compared whole: `localhost:1.evil.example` is not localhost."""

    def __init__(self, names: Iterable[str] = (), public_url: str | None = None) -> None:
        self._names = {_checked(name) for name in (*LOOPBACK, *names)}
        if public_url and (name := urlsplit(public_url).hostname):
            self._names.add(_checked(name))

    def has(self, authority: str) -> bool:
        return host_name(authority) in self._names

    def has_origin(self, origin: str) -> bool:
        """`http://NAME[:PORT]`; not `null`, a browser extension or a path."""
        scheme, separator, authority = origin.partition("://")
        return bool(separator) and scheme in ("http", "https") and self.has(authority)


def _checked(name: str) -> str:
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(name).version == 6:
            name = f"[{name.partition('%')[0]}]"
    found = host_name(name)
    if found is None or found != name.lower():  # ports are not compared, so a name with one would never match
        raise Misused(f"{name!r:.80} is not a host name.", advice='Write names alone: allow_hosts = ["build.example.org"].')
    return found


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
        self._trusts_socket = not settings.behind_proxy
        """Only the owner opens the Unix socket; behind a proxy every client does."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, self._limits)
        known = {**scope, REQUEST_ID: exchange.request_id, HOLD: exchange.hold}
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
                log.error("%s %s (request %s)", scope["method"], scope["path"], exchange.request_id, exc_info=error)
                advice = "The server's log has the details under this request id."
                error = HttpRefused("Internal server error.", code="UNKNOWN_ERROR", advice=advice)
            await exchange.refuse(error)

    def _check(self, scope: Scope, exchange: Exchange) -> None:
        """Framing, then Host and Origin; not these for the Unix socket, which browsers cannot reach."""
        _check_framing(scope, exchange)
        if scope.get(IS_UNIX) and self._trusts_socket:
            return
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
            is_socket=self._trusts_socket and bool(scope.get(IS_UNIX)),
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
