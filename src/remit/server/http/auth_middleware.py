"""Authentication of HTTP requests: the one ASGI middleware before every HTTP API (REST, A2A, MCP, metrics).

Checks, in this order: framing, Host and Origin; the caller (token, certificate or socket); its limits. Only then is the body read. The
application finds the caller in `scope["remit.visitor"]`; requests to open paths have none. Preflight requests are not answered: pages of
other sites may not call this server."""

import ipaddress
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from remit.core.errors import Misused, Refused, RemitError
from remit.core.settings import ServeSettings
from remit.server.access.certificates import of_peer
from remit.server.access.entrance import DELEGATION_HEADER, HEADER, Entrance
from remit.server.access.visitor import Visitor
from remit.server.http.exchange import HOLD, REQUEST_ID, Bodies, Exchange, Receive, Scope, Send, log, too_large
from remit.server.http.problems import REALM, HttpRefused
from remit.server.http.server import CONNECTION, HttpLimits, Peer

VISITOR = "remit.visitor"
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
        entrance: Entrance,
        settings: ServeSettings,
        *,
        hosts: Iterable[str] = (),
        open_paths: Iterable[str] = OPEN_PATHS,
        limits: HttpLimits | None = None,
    ) -> None:
        """`hosts`: names and addresses it listens at; `open_paths`: those that need no credentials."""
        self._app = app
        self._entrance = entrance
        self._hosts = AllowedHosts((*hosts, *settings.allow_hosts), settings.public_url)
        self._open = frozenset(open_paths)
        self._limits = limits or HttpLimits()
        self._bodies = Bodies(self._limits.all_bodies_bytes)
        self._trusts_socket = not settings.behind_proxy
        """Who opens our Unix socket owns the project; behind a proxy that is anybody."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, self._limits, self._bodies)
        try:
            visitor = self._authenticate(scope, exchange)
        except RemitError as error:
            await exchange.refuse(error)
            return
        known = {**scope, REQUEST_ID: exchange.request_id, HOLD: exchange.hold}
        if visitor is not None:
            known[VISITOR] = visitor
        try:
            with exchange.places:
                await self._app(known, exchange.receive, exchange.send)
        except Exception as error:  # noqa: BLE001 - the boundary to clients: they get an error, never a traceback
            if exchange.is_over:  # the client has left, or has its answer
                return
            if not isinstance(error, RemitError):
                log.error("%s %s (request %s)", scope["method"], scope["path"], exchange.request_id, exc_info=error)
                advice = "The server's log has the details under this request id."
                error = HttpRefused("Internal server error.", code="UNKNOWN_ERROR", advice=advice)
            await exchange.refuse(error)

    def _authenticate(self, scope: Scope, exchange: Exchange) -> Visitor | None:
        """The first refusal wins. None: the path is open."""
        connection = scope.get("state", {}).get(CONNECTION)
        peer: Peer = connection.peer if connection is not None else Peer()
        _check_framing(scope, exchange, self._limits)
        self._check_names(exchange, peer)
        if scope["path"] in self._open:
            exchange.most_bytes = 0
            return None
        visitor = self._visitor(scope, exchange, peer)
        most = self._entrance.largest(visitor)
        if exchange.length > most:
            raise too_large(most)
        self._entrance.admit(visitor, size=exchange.length)
        exchange.most_bytes = most
        exchange.place = lambda: self._entrance.stream(visitor)
        return visitor

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

    def _visitor(self, scope: Scope, exchange: Exchange, peer: Peer) -> Visitor:
        """Repeated credentials are refused: two servers in a row might each read another one."""
        shown = exchange.headers.get(HEADER.encode(), ())
        if len(shown) > 1 or len(exchange.headers.get(DELEGATION_HEADER.encode(), ())) > 1:
            headers = {"www-authenticate": f'{REALM}, error="invalid_request"'}
            raise HttpRefused("The request has credentials twice.", code="MALFORMED_REQUEST", headers=headers)
        try:
            return self._entrance.enter(
                authorization=_text(exchange.one(HEADER.encode())),
                delegation=_text(exchange.one(DELEGATION_HEADER.encode())),
                certificate=of_peer(peer.certificate, peer.der),
                is_socket=self._trusts_socket and peer.is_owner,
                door="http",
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
