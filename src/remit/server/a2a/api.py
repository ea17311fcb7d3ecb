"""The A2A API: one handler behind the SDK's JSON-RPC, REST and gRPC bindings. Started by `remit serve`.

api = A2aApi(service, settings, base_url=lambda: "http://127.0.0.1:7411")
app = Starlette(routes=api.routes)        # behind serve.http.auth_middleware
api.add_to(grpc_server)                   # behind serve.grpc.auth_interceptor
await api.start(); …; await api.close()
"""

import logging
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

import grpc.aio
from a2a.server.request_handlers.grpc_handler import GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.types import AgentCard
from a2a.types.a2a_pb2 import DESCRIPTOR
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
from a2a.utils.errors import A2AError
from starlette.routing import BaseRoute, Route

from remit.agents.proto.metadata import ADVICE, CODE, PUSHBACK
from remit.core.settings import ServeSettings
from remit.server.a2a.card import GRPC, JSON_RPC, REST, Facts, GrpcCalls, HttpCalls, public_card
from remit.server.a2a.handler import A2aHandler
from remit.server.a2a.push import Post, Pushing
from remit.server.a2a.threads import Notes, Threads
from remit.server.grpc.errors import printable, short
from remit.server.service import Service

JSON_RPC_PATH = "/a2a"
REST_PATH = "/a2a/v1"
OPEN_PATHS = frozenset({AGENT_CARD_WELL_KNOWN_PATH})
"""Answered without authentication."""
CARD_SECONDS = 60
"""Clients may cache the card for this time."""
SERVICE = DESCRIPTOR.services_by_name["A2AService"].full_name


class A2aApi:
    def __init__(
        self,
        service: Service,
        settings: ServeSettings,
        *,
        base_url: Callable[[], str],
        grpc_url: Callable[[], str | None] = lambda: None,
        is_beyond: bool = False,
    ) -> None:
        """`base_url` and `grpc_url`: addresses for clients, known once the server listens (None: no gRPC); `is_beyond`: other machines
        reach it, so anonymous callers do not see the agents."""
        self._service = service
        self._settings = settings
        self._base_url = base_url
        self._grpc_url = grpc_url
        self._is_beyond = is_beyond
        remit = service.remit
        ca_file = remit.settings.web.ca_file
        threads = Threads(service, Notes(remit.folder))
        post = Post(inside=settings.push_inside, ca_file=None if ca_file is None else remit.root / ca_file)
        self.pushing = Pushing(service, threads, post)
        self.handler = A2aHandler(service, threads, self.pushing, self._facts)
        sdk = logging.getLogger("a2a")  # it writes a traceback for every unreadable request: anybody could fill the log
        if sdk.level == logging.NOTSET:
            sdk.setLevel(logging.CRITICAL)

    @property
    def routes(self) -> list[BaseRoute]:
        calls = HttpCalls()
        # Without the SDK's mount for tenants, which would answer for all other APIs of this application.
        rest = [route for route in create_rest_routes(self.handler, calls, path_prefix=REST_PATH) if isinstance(route, Route)]
        blank = public_card(Facts(interfaces=[(JSON_RPC, JSON_RPC_PATH)]), ())
        card = create_agent_card_routes(blank, card_modifier=self._card, cache_control=f"max-age={CARD_SECONDS}")
        return [*card, *create_jsonrpc_routes(self.handler, JSON_RPC_PATH, calls), *rest]

    def add_to(self, server: "grpc.aio.Server") -> str:
        """The gRPC binding; the name of its service."""
        add_A2AServiceServicer_to_server(_GrpcBinding(self.handler, GrpcCalls()), server)  # type: ignore[arg-type, no-untyped-call]
        return SERVICE

    async def start(self) -> None:
        await self.pushing.start()

    async def close(self) -> None:
        await self.pushing.close()

    async def _card(self, _blank: AgentCard) -> AgentCard:
        return public_card(self._facts(), self._service.tool.catalogue.specs)

    def _facts(self) -> Facts:
        base = (self._settings.public_url or self._base_url()).rstrip("/")
        interfaces = [(JSON_RPC, f"{base}{JSON_RPC_PATH}"), (REST, f"{base}{REST_PATH}")]
        if (grpc_url := _reachable(self._grpc_url(), base)) is not None:
            interfaces.append((GRPC, grpc_url))
        return Facts(interfaces=interfaces, takes_certificates=self._settings.client_ca is not None, shows_skills=not self._is_beyond)


class _GrpcBinding(GrpcHandler):
    """The SDK's, with our own code and advice in the trailers, as in the gRPC API."""

    async def abort_context(self, error: A2AError, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        data = error.data if isinstance(error.data, dict) else {}
        trailers: list[tuple[str, str]] = []
        if isinstance(code := data.get("code"), str):
            trailers.append((CODE, quote(code, safe=" ")))
        if isinstance(advice := data.get("recommendation"), str):
            trailers.append((ADVICE, printable(advice)))
        if isinstance(wait := data.get("retryAfterSeconds"), int | float):
            trailers.append((PUSHBACK, str(int(1000 * wait) + 1)))
        context.set_trailing_metadata((*(context.trailing_metadata() or ()), *trailers))
        error.message = short(error.message)  # metadata too, which clients limit to 8 KiB
        await super().abort_context(error, context)


def _reachable(grpc_url: str | None, base: str) -> str | None:
    """Sockets are not announced; a wildcard address is announced by the name of the HTTP address."""
    if grpc_url is None or grpc_url.startswith("unix:"):
        return None
    host, _, port = grpc_url.rpartition(":")
    return f"{urlsplit(base).hostname}:{port}" if host in ("0.0.0.0", "[::]", "") else grpc_url
