"""The A2A API: one handler behind the SDK's JSON-RPC, REST and gRPC bindings. Started by `remit serve`.

api = A2aApi(service, settings, base_url=lambda: "http://127.0.0.1:7411")
app = Starlette(routes=api.routes)        # behind serve.http.auth_middleware
api.add_to(grpc_server)                   # behind serve.grpc.auth_interceptor
await api.start(); …; await api.close()
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.types import AgentCard
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
from starlette.routing import BaseRoute, Route

from remit.serve.a2a.calls import GrpcCalls, HttpCalls
from remit.serve.a2a.card import GRPC, JSON_RPC, REST, Facts, public_card
from remit.serve.a2a.handler import A2aHandler
from remit.serve.a2a.push import Post, Pushing
from remit.serve.a2a.threads import Notes, Threads
from remit.serve.service import Service
from remit.settings.values import ServeSettings

if TYPE_CHECKING:
    import grpc.aio

JSON_RPC_PATH = "/a2a"
REST_PATH = "/a2a/v1"
OPEN_PATHS = frozenset({AGENT_CARD_WELL_KNOWN_PATH})
"""Answered to anybody: the card says how to come in."""
EVERYWHERE = ("0.0.0.0", "[::]", "")
CARD_SECONDS = 60
"""For so long a client may keep the card without asking again."""

_UNOPENED = Facts(interfaces=[(JSON_RPC, JSON_RPC_PATH)])
"""Where it will listen is known when it listens: the card is drawn anew for whoever asks for it."""


class A2aApi:
    def __init__(
        self,
        service: Service,
        settings: ServeSettings,
        *,
        base_url: Callable[[], str],
        grpc_url: Callable[[], str | None] = lambda: None,
        is_beyond: bool = False,
        post: Post | None = None,
    ) -> None:
        """`base_url`: how clients reach it by HTTP, `grpc_url` by gRPC (None: not at all), known when it is open; `is_beyond`: whether it
        listens beyond this machine: then strangers are not told which agents there are."""
        self._service = service
        self._settings = settings
        self._base_url = base_url
        self._grpc_url = grpc_url
        self._is_beyond = is_beyond
        remit = service.remit
        ca_file = remit.settings.web.ca_file
        threads = Threads(service, Notes(remit.folder))
        own_post = Post(inside=settings.push_inside, ca_file=None if ca_file is None else remit.root / ca_file)
        self.pushing = Pushing(service, threads, post or own_post)
        self.handler = A2aHandler(service, threads, self.pushing, self._facts)
        _quieten()

    @property
    def routes(self) -> list[BaseRoute]:
        calls = HttpCalls()
        # Without the SDK's mount for tenants: at the root of an application that has other doors it would answer for all of them.
        rest = [route for route in create_rest_routes(self.handler, calls, path_prefix=REST_PATH) if isinstance(route, Route)]
        card = create_agent_card_routes(public_card(_UNOPENED, ()), card_modifier=self._card, cache_control=f"max-age={CARD_SECONDS}")
        return [*card, *create_jsonrpc_routes(self.handler, JSON_RPC_PATH, calls), *rest]

    def add_to(self, server: "grpc.aio.Server") -> None:
        """The gRPC binding, on the server of the gRPC door, whose interceptor finds out who calls."""
        from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server

        from remit.serve.a2a.grpc_binding import GrpcBinding

        add_A2AServiceServicer_to_server(GrpcBinding(self.handler, GrpcCalls()), server)  # type: ignore[arg-type, no-untyped-call]

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


def _reachable(grpc_url: str | None, base: str) -> str | None:
    """A socket of this machine is nobody's to know; what listens at every address is found by the name that HTTP is found by."""
    if grpc_url is None or grpc_url.startswith("unix:"):
        return None
    host, _, port = grpc_url.rpartition(":")
    return f"{urlsplit(base).hostname}:{port}" if host in EVERYWHERE else grpc_url


def _quieten() -> None:
    """The SDK writes a traceback for every request that it cannot read: whoever sends them would fill the log. Faults of ours we tell."""
    theirs = logging.getLogger("a2a")
    if theirs.level == logging.NOTSET:
        theirs.setLevel(logging.CRITICAL)
