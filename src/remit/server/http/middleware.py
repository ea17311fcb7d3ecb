"""Authentication of HTTP requests: the ASGI middleware before every HTTP API (REST, A2A, MCP, metrics).

Checks in this order: framing, Host and Origin, the caller. Then the body is read, limited in size, and passed to the application whole. The
caller is in `scope["remit.principal"]`; requests to open paths have none. Preflight requests are not answered: pages of other sites may not
call this server."""

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
DRAIN_SECONDS = 1.0
"""The rest of a body that is too large is read and dropped for this long, so that the client receives the refusal."""
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"strict-transport-security", b"max-age=31536000"),
)
"""Of every answer, unless the application sets them."""


class Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._from_client = receive
        self._to_client = send
        self.headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            self.headers.setdefault(name, []).append(value)
        self.cleanup = contextlib.ExitStack()
        """Closed in the task of the request: ends the watch over its credentials."""
        self.open_stream: Callable[[], contextlib.AbstractContextManager[object]] | None = None
        """Watches the credentials of a long answer."""
        self._body: bytes | None = None
        self._is_answered = False
        self.is_over = False
        """Answered by the middleware, or the client has left: further messages of the application are dropped."""

    # ---- from the client

    async def read_body(self, most_bytes: int) -> None:
        """Raises `Refused` for a body that is too large."""
        body, has_more = bytearray(), True
        is_too_large = int(self.headers.get(b"content-length", [b"0"])[0]) > most_bytes
        while has_more and not is_too_large:
            message = await self._from_client()
            if message["type"] == "http.disconnect":
                self.is_over = True
                raise ClientDisconnect
            body += message.get("body", b"")
            has_more = message.get("more_body", False)
            is_too_large = len(body) > most_bytes
        self._body = bytes(body)
        if is_too_large:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_SECONDS):
                    while has_more:
                        has_more = (await self._from_client()).get("more_body", False)
            raise HttpRefused(
                f"The request is larger than {most_bytes} bytes.",
                code="TOO_LARGE",
                status=413,
                advice="Pass large inputs as files, by their paths.",
                headers={"connection": "close"},
            )

    async def receive(self) -> Message:
        """For the application: the whole body at once."""
        if self._body is None:
            return await self._from_client()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    # ---- to the client

    async def send(self, message: Message) -> None:
        if self.is_over:
            return
        if message["type"] == "http.response.start":
            given = [(name.lower(), value) for name, value in message.get("headers", ())]
            names = {name for name, _ in given}
            message = {**message, "headers": [*given, *((name, value) for name, value in HEADERS if name not in names)]}
            if any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in given):
                self.hold()
            self._is_answered = True
        await self._to_client(message)

    async def refuse(self, error: RemitError) -> None:
        """Answers with the error; an answer in progress is ended instead."""
        body = b""
        if not self._is_answered:
            status, headers, body = answer_of(error)
            raw = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
            await self.send({"type": "http.response.start", "status": status, "headers": raw})
        await self._to_client({"type": "http.response.body", "body": body})
        self.is_over = True

    def hold(self) -> None:
        """The request ends when the caller's token is revoked."""
        if self.open_stream is not None:
            self.cleanup.enter_context(self.open_stream())
            self.open_stream = None


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
    ) -> None:
        """`hosts`: names and addresses it listens at; `open_paths`: those that need no credentials."""
        self._app = app
        self._authenticator = authenticator
        self._request_bytes = settings.request_bytes
        self._hosts = AllowedHosts((*hosts, *settings.allow_hosts), settings.public_url)
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`/v1/tasks/` is `/v1/tasks`."""
        exchange = Exchange(scope, receive, send)
        known = {**scope, HOLD: exchange.hold}
        if scope["path"].endswith("/") and scope["path"] != "/":
            known |= {"path": scope["path"][:-1], "raw_path": scope["raw_path"][:-1]}
        try:
            with exchange.cleanup:
                self._check(scope, exchange)
                if known["path"] not in self._open_paths:
                    principal, task = self._principal(scope, exchange), asyncio.current_task()
                    known[PRINCIPAL] = principal
                    exchange.open_stream = lambda: self._authenticator.stream(principal, task)  # applications send from other tasks
                    await exchange.read_body(self._request_bytes)
                await self._app(known, exchange.receive, exchange.send)
        except Exception as error:
            if exchange.is_over:  # the client has left, or has its answer
                return
            if not isinstance(error, RemitError):
                log.error("%s %s", scope["method"], scope["path"], exc_info=error)
                error = HttpRefused("Internal server error.", code="UNKNOWN_ERROR", advice="The server's log has the details.")
            await exchange.refuse(error)

    def _check(self, scope: Scope, exchange: Exchange) -> None:
        """Framing that another server in front might read differently, then Host and Origin."""
        is_ambiguous = b"transfer-encoding" in exchange.headers and b"content-length" in exchange.headers
        if is_ambiguous or not scope["path"].startswith("/"):
            words = "Its path must begin with a slash, and its body has a length or chunks, not both."
            raise HttpRefused(words, code="MALFORMED_REQUEST", headers={"connection": "close"})
        hosts = exchange.headers.get(b"host", ())
        if len(hosts) != 1 or not self._hosts.has(hosts[0].decode("latin-1")):
            advice = "Add the name to [serve] allow_hosts."
            raise HttpRefused("This server does not answer to that host name.", code="WRONG_HOST", advice=advice)
        origins = exchange.headers.get(b"origin", ())
        if any(not self._hosts.has_origin(origin.decode("latin-1")) for origin in origins):
            raise HttpRefused("Pages of that origin may not call this server.", code="WRONG_ORIGIN", advice="Call it from a program.")

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
