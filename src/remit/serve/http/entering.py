"""Who comes in by HTTP: the one middleware before every HTTP door (REST, A2A, MCP, metrics). Any ASGI application can stand behind it.

First what is ambiguous or aimed at somebody else is refused (framing, Host, Origin), then the caller is found out, by token, certificate or
socket, then its limits are asked, and only then is the body read. The application finds who asks in `scope["remit.visitor"]`; of paths
that need nobody there is none. It answers no preflight: pages of other sites are not let in.
"""

from collections.abc import Iterable
from typing import Any

from remit.access.certificates import of_peer
from remit.access.entrance import DELEGATION_HEADER, HEADER, Entrance
from remit.access.visitor import Visitor
from remit.core.errors import Refused, RemitError
from remit.serve.http.exchange import HOLD, REQUEST_ID, Bodies, Exchange, Receive, Scope, Send, log, too_large
from remit.serve.http.hosts import AllowedHosts
from remit.serve.http.limits import HttpLimits
from remit.serve.http.problems import REALM, HttpRefused
from remit.serve.http.wire import PEER, Peer, is_ours
from remit.settings.values import ServeSettings

VISITOR = "remit.visitor"
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Answered to anybody: whether it lives is no secret to whoever could connect."""
_NOBODY = Peer()


class Entering:
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
        """Whoever opens our Unix socket owns the project. Not behind a proxy, which anybody may come through."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, Exchange(scope, receive, send, self._limits, self._bodies))

    async def _answer(self, scope: Scope, exchange: Exchange) -> None:
        try:
            visitor = self._admitted(scope, exchange)
        except RemitError as error:
            await exchange.refuse(error)
            return
        known = {**scope, REQUEST_ID: exchange.request_id, HOLD: exchange.hold}
        if visitor is not None:
            known[VISITOR] = visitor
        try:
            with exchange.places:
                await self._app(known, exchange.receive, exchange.send)
        except Exception as error:  # noqa: BLE001 - applications of other people's making: clients are told an error, never a traceback
            await self._failed(scope, exchange, error)

    async def _failed(self, scope: Scope, exchange: Exchange, error: Exception) -> None:
        if exchange.is_over:  # the client has left, or was answered by us
            return
        if isinstance(error, RemitError):
            await exchange.refuse(error)
        else:
            log.error("%s %s (request %s)", scope["method"], scope["path"], exchange.request_id, exc_info=error)
            await exchange.refuse(_fault_of_ours())

    def _admitted(self, scope: Scope, exchange: Exchange) -> Visitor | None:
        """First rejection wins. None: the path needs nobody."""
        peer: Peer = scope.get("state", {}).get(PEER, _NOBODY)
        _check_framing(scope, exchange, self._limits)
        self._check_names(exchange, peer)
        if scope["path"] in self._open:
            exchange.most_bytes = 0
            return None
        visitor = self._who(scope, exchange, peer)
        most = self._entrance.largest(visitor)
        if exchange.length > most:
            raise too_large(most)
        self._entrance.admit(visitor, size=exchange.length)
        exchange.most_bytes = most
        exchange.place = lambda: self._entrance.stream(visitor)
        return visitor

    def _check_names(self, exchange: Exchange, peer: Peer) -> None:
        """No page of a browser reaches a Unix socket, and those who do call it what they like."""
        if peer.is_local_socket and self._trusts_socket:
            return
        host = exchange.one(b"host")
        if host is None or not self._hosts.has(host.decode("latin-1")):
            raise HttpRefused(
                "This server is not called by that name.", code="WRONG_HOST", advice="Names it may be called by are [serve] allow_hosts."
            )
        origins = exchange.headers.get(b"origin", ())
        if any(not self._hosts.has_origin(origin.decode("latin-1")) for origin in origins):
            raise HttpRefused("Pages of that origin may not call this server.", code="WRONG_ORIGIN", advice="Call it from a program.")

    def _who(self, scope: Scope, exchange: Exchange, peer: Peer) -> Visitor:
        """What is shown twice is refused: two servers in a row might look at one each."""
        shown = exchange.headers.get(HEADER.encode(), ())
        if len(shown) > 1 or len(exchange.headers.get(DELEGATION_HEADER.encode(), ())) > 1:
            headers = {"www-authenticate": f'{REALM}, error="invalid_request"'}
            raise HttpRefused("Credentials are there twice.", code="MALFORMED_REQUEST", headers=headers)
        try:
            return self._entrance.enter(
                authorization=_text(exchange.one(HEADER.encode())),
                delegation=_text(exchange.one(DELEGATION_HEADER.encode())),
                certificate=of_peer(peer.certificate, peer.der),
                is_socket=self._trusts_socket and is_ours(peer),
                door="http",
                peer=(scope.get("client") or ("",))[0],
            )
        except Refused as error:
            if error.code != "UNAUTHENTICATED" or not shown:
                raise
            headers = {"www-authenticate": f'{REALM}, error="invalid_token"'}
            raise HttpRefused(error.message, code=error.code, status=401, advice=error.advice, headers=headers) from None


def _check_framing(scope: Scope, exchange: Exchange, limits: HttpLimits) -> None:
    """What h11 would read in one way and a server before us might read in another. Nothing more is read on such a connection."""
    has_chunks = b"transfer-encoding" in exchange.headers
    if scope["http_version"] not in ("1.0", "1.1"):
        raise _malformed("Only HTTP/1.1 is spoken here.", 505)
    if has_chunks and (b"content-length" in exchange.headers or scope["http_version"] == "1.0"):
        raise _malformed("Content-Length and Transfer-Encoding contradict each other.")
    if not scope["path"].startswith("/"):
        raise _malformed("The request names no path, as in GET /v1/tasks.")
    if len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"]) > limits.target_bytes:
        raise _malformed(f"The address is longer than {limits.target_bytes} bytes.", 414)


def _malformed(words: str, status: int = 400) -> HttpRefused:
    return HttpRefused(words, code="MALFORMED_REQUEST", status=status, headers={"connection": "close"})


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def _fault_of_ours() -> RemitError:
    return HttpRefused("Something went wrong here.", code="UNKNOWN_ERROR", advice="The server's log has it, by this request's id.")
