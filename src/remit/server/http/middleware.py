"""One request and its answer within limits: the size of the body, the time it takes, the headers of every answer.

Sits between the server and the application, and needs nothing of it: a body over a limit is answered here, and the application sees a
client that has left. Made by `auth_middleware`."""

import asyncio
import contextlib
import ipaddress
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from remit.core.errors import Misused, Refused, RemitError
from remit.core.settings import ServeSettings
from remit.server.authenticator import DELEGATION_HEADER, HEADER, Authenticator, Open, of_peer
from remit.server.http.messages import REALM, HttpRefused, answer_of
from remit.server.http.server import CONNECTION, HttpLimits, Peer
from remit.server.service import HOLD, PRINCIPAL
from remit.server.tokens import Principal

# ---- One request and its answer within limits: the size of the body, the time it takes, the headers of every answer.


log = logging.getLogger("remit.server.http")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

REQUEST_ID = "remit.request_id"
_GIVEN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_GONE: dict[str, Any] = {"type": "http.disconnect"}
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Of every answer, unless the application sets them."""
_HSTS = (b"strict-transport-security", b"max-age=31536000")


class Bodies:
    """Bytes of the bodies of all requests in progress: many small ones together must not fill the memory."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.held_bytes = 0

    def take(self, size: int) -> None:
        if self.held_bytes + size > self.most_bytes:
            raise Refused("The server receives too much at the moment.", code="QUEUE_FULL", advice="Try again in a moment.")
        self.held_bytes += size


class Exchange:
    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: HttpLimits, bodies: Bodies) -> None:
        self._scope = scope
        self._from_client = receive
        self._to_client = send
        self._limits = limits
        self._bodies = bodies
        self.headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            self.headers.setdefault(name, []).append(value)
        given = self.one(b"x-request-id")
        self.request_id = given.decode() if given and _GIVEN_ID.fullmatch(given) else secrets.token_hex(8)
        self.most_bytes = 0
        """Of the body; nothing is read before the caller is known."""
        self.place: Callable[[], Open] | None = None
        """Among the caller's open streams."""
        self.places = contextlib.ExitStack()
        """Left in the task of the request: gives back its place and what its body takes."""
        self._task = asyncio.current_task()
        self._has_place = False
        self._read_bytes = 0
        self._body_end_at: float | None = None
        self._is_read = b"transfer-encoding" not in self.headers and self.length == 0
        """The whole body has arrived."""
        self.is_answered = False
        self.is_over = False
        """Answered by us, or the client has left: the application's messages are dropped."""

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

    async def receive(self) -> Message:
        """Answers a body that is too large or too late itself."""
        if self.is_over:
            return _GONE
        if self._is_read:
            return self._noted(await self._from_client())
        if self._body_end_at is None:
            self._body_end_at = asyncio.get_running_loop().time() + self._limits.body_seconds
        try:
            async with asyncio.timeout_at(self._body_end_at):
                message = self._noted(await self._from_client())
            size = len(message.get("body", b""))
            if self._read_bytes + size > self.most_bytes:
                raise too_large(self.most_bytes)
            self._bodies.take(size)
        except TimeoutError:
            words = f"The body did not arrive within {self._limits.body_seconds:g} s."
            await self.refuse(HttpRefused(words, code="REQUEST_TIMEOUT", advice="Send it in one go."))
            return _GONE
        except Refused as error:
            await self.refuse(error)
            return _GONE
        if size and not self._read_bytes:
            self.places.callback(self._give_back)
        self._read_bytes += size
        return message

    def _give_back(self) -> None:
        self._bodies.held_bytes -= self._read_bytes

    def _noted(self, message: Message) -> Message:
        if message["type"] == "http.disconnect":
            self.is_over = True
        elif not message.get("more_body", False):
            self._is_read = True
        return message

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
            self.is_answered = True
        elif message["type"] == "http.response.body" and not message.get("more_body", False):
            await self._send_last(message)
            return
        await self._to_client(message)

    async def refuse(self, error: RemitError) -> None:
        """Answers with the error; an answer in progress is ended instead."""
        if self.is_over:
            return
        body = b""
        if not self.is_answered:
            self.is_answered = True
            status, headers, body = answer_of(error, self.request_id)
            raw = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
            start: Message = {"type": "http.response.start", "status": status, "headers": raw}
            await self._to_client({**start, "headers": self._headers(start)})
        await self._send_last({"type": "http.response.body", "body": body})
        self.is_over = True

    async def _send_last(self, message: Message) -> None:
        """Reads the rest of the request for a moment: closing the connection over it could destroy the answer."""
        if not self._is_read:
            await self._to_client({**message, "more_body": True})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.linger_seconds):
                    await self._drop_rest()
            message = {"type": "http.response.body", "body": b""}
        await self._to_client(message)

    async def _drop_rest(self) -> None:
        if b"expect" in self.headers and self._body_end_at is None:
            return  # the client waits for 100 Continue, and sends nothing
        left = self._limits.linger_bytes
        while left > 0 and not self._is_read:
            message = await self._from_client()
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                return
            left -= len(message.get("body", b""))

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
        if self.place is None or self._has_place:
            return
        place = self.places.enter_context(self.place())
        place.task = self._task  # applications send from other tasks
        self._has_place = True


def too_large(most_bytes: int) -> Refused:
    advice = "Pass large inputs as files, by their paths."
    return Refused(f"The request is larger than {most_bytes} bytes.", code="TOO_LARGE", advice=advice)


# ---- Authentication of HTTP requests: the one ASGI middleware before every HTTP API (REST, A2A, MCP, metrics).


OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Answered without authentication."""
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_AUTHORITY = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252}))(?::(?P<port>[0-9]{1,5}))?")


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
    try:
        if ipaddress.ip_address(name).version == 6:
            name = f"[{name.partition('%')[0]}]"
    except ValueError:
        pass
    found = host_name(name)
    if found is None or found != name.lower():  # ports are not compared, so a name with one would never match
        raise Misused(f"{name!r:.80} is not a host name.", advice='Write names alone: allow_hosts = ["build.example.org"].')
    return found


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
        self._open = frozenset(open_paths)
        self._limits = limits or HttpLimits()
        self._bodies = Bodies(self._limits.all_bodies_bytes)
        self._trusts_socket = not settings.behind_proxy
        """Who opens our Unix socket owns the project; behind a proxy that is anybody."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, self._limits, self._bodies)
        try:
            principal = self._authenticate(scope, exchange)
        except RemitError as error:
            await exchange.refuse(error)
            return
        known = {**scope, REQUEST_ID: exchange.request_id, HOLD: exchange.hold}
        if principal is not None:
            known[PRINCIPAL] = principal
        try:
            with exchange.places:
                await self._app(known, exchange.receive, exchange.send)
        except Exception as error:
            if exchange.is_over:  # the client has left, or has its answer
                return
            if not isinstance(error, RemitError):
                log.error("%s %s (request %s)", scope["method"], scope["path"], exchange.request_id, exc_info=error)
                advice = "The server's log has the details under this request id."
                error = HttpRefused("Internal server error.", code="UNKNOWN_ERROR", advice=advice)
            await exchange.refuse(error)

    def _authenticate(self, scope: Scope, exchange: Exchange) -> Principal | None:
        """The first refusal wins. None: the path is open."""
        connection = scope.get("state", {}).get(CONNECTION)
        peer: Peer = connection.peer if connection is not None else Peer()
        _check_framing(scope, exchange, self._limits)
        self._check_names(exchange, peer)
        if scope["path"] in self._open:
            exchange.most_bytes = 0
            return None
        principal = self._principal(scope, exchange, peer)
        most = self._authenticator.largest(principal)
        if exchange.length > most:
            raise too_large(most)
        self._authenticator.admit(principal, size=exchange.length)
        exchange.most_bytes = most
        exchange.place = lambda: self._authenticator.stream(principal)
        return principal

    def _check_names(self, exchange: Exchange, peer: Peer) -> None:
        """Not for the Unix socket: browsers cannot reach it."""
        if peer.is_local_socket and self._trusts_socket:
            return
        host = exchange.one(b"host")
        if host is None or not self._hosts.has(host.decode("latin-1")):
            advice = "Add the name to [serve] allow_hosts."
            raise HttpRefused("This server does not answer to that host name.", code="WRONG_HOST", advice=advice)
        origins = exchange.headers.get(b"origin", ())
        if any(not self._hosts.has_origin(origin.decode("latin-1")) for origin in origins):
            raise HttpRefused("Pages of that origin may not call this server.", code="WRONG_ORIGIN", advice="Call it from a program.")

    def _principal(self, scope: Scope, exchange: Exchange, peer: Peer) -> Principal:
        """Repeated credentials are refused: two servers in a row might each read another one."""
        shown = exchange.headers.get(HEADER.encode(), ())
        if len(shown) > 1 or len(exchange.headers.get(DELEGATION_HEADER.encode(), ())) > 1:
            headers = {"www-authenticate": f'{REALM}, error="invalid_request"'}
            raise HttpRefused("The request has credentials twice.", code="MALFORMED_REQUEST", headers=headers)
        try:
            return self._authenticator.enter(
                authorization=_text(exchange.one(HEADER.encode())),
                delegation=_text(exchange.one(DELEGATION_HEADER.encode())),
                certificate=of_peer(peer.certificate, peer.der),
                is_socket=self._trusts_socket and peer.is_owner,
                api="http",
                peer=(scope.get("client") or ("",))[0],
            )
        except Refused as error:
            if error.code != "UNAUTHENTICATED" or not shown:
                raise
            headers = {"www-authenticate": f'{REALM}, error="invalid_token"'}
            raise HttpRefused(error.message, code=error.code, status=401, advice=error.advice, headers=headers) from None


def _check_framing(scope: Scope, exchange: Exchange, limits: HttpLimits) -> None:
    """What another server in front of this one might read differently, or is too large. The connection is closed after it."""
    if scope["http_version"] not in ("1.0", "1.1"):
        raise _malformed("This server speaks HTTP/1.1 only.", 505)
    if b"transfer-encoding" in exchange.headers and (b"content-length" in exchange.headers or scope["http_version"] == "1.0"):
        raise _malformed("Content-Length and Transfer-Encoding contradict each other.")
    if not scope["path"].startswith("/"):
        raise _malformed("The request names no path, as in GET /v1/tasks.")
    if len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"]) > limits.target_bytes:
        raise _malformed(f"The address is longer than {limits.target_bytes} bytes.", 414)
    fields = scope["headers"]
    if len(fields) > limits.header_fields or sum(len(name) + len(value) for name, value in fields) > limits.header_bytes:
        raise _malformed("The header is too large.", 431)


def _malformed(words: str, status: int = 400) -> HttpRefused:
    return HttpRefused(words, code="MALFORMED_REQUEST", status=status, headers={"connection": "close"})


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")
