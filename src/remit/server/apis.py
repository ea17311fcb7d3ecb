"""The APIs of one server, started and stopped together. They share one service, one authenticator and one HTTP port.

A missing package of an API is reported with the command that installs it.
"""

import contextlib
import importlib.util
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from remit.core.errors import ErrorInfo, Misused, Refused, RemitError
from remit.core.settings import ServeSettings
from remit.server.access.entrance import Entrance
from remit.server.access.visitor import Visitor
from remit.server.addresses import GRPC_SOCKET, Certificates, Place, bound, certificates_of, must_be_safe, place_of, url_of
from remit.server.service import Service

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from remit.app import Remit
    from remit.server.a2a.api import A2aApi
    from remit.server.grpc.server import GrpcApi
    from remit.server.http.server import HttpServer

PATHS = {"http": "/v1", "a2a": "/a2a", "mcp": "/mcp", "metrics": "/metrics"}
"""Of the APIs at the HTTP port."""
NEEDED = {
    "grpc": ("grpc", "grpc_health", "grpc_reflection", "google"),
    "http": ("starlette", "uvicorn"),
    "a2a": ("starlette", "uvicorn", "sse_starlette", "a2a"),
    "mcp": ("starlette", "uvicorn", "mcp"),
    "metrics": ("starlette", "uvicorn", "prometheus_client"),
}
STOP_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundApis:
    """Checked addresses, and the HTTP port, bound."""

    names: tuple[str, ...]
    grpc: Place | None
    http: socket.socket | None
    http_place: Place | None
    certificates: Certificates | None
    is_local: bool
    """Only this machine reaches any of them."""


@contextlib.contextmanager
def bound_apis(settings: ServeSettings, root: Path) -> Iterator[BoundApis]:
    """Raises `Misused` or `Unavailable`, before anything else is started."""
    names = tuple(settings.doors)
    if not names:
        raise Misused("No API is to be served.", advice="Name one: remit serve --door grpc")
    for name in names:
        missing = [package for package in NEEDED[name] if importlib.util.find_spec(package) is None]
        if missing:
            raise Misused(
                f"The API {name} needs packages that are not installed: {', '.join(missing)}.",
                advice="Install them: pip install 'remit[serve]'. Or leave it out: remit serve --door NAME serves only that one.",
            )
    certificates = certificates_of(settings, root)
    run_folder = root / ".remit" / "run"
    grpc = place_of(settings.grpc, run_folder / GRPC_SOCKET, root) if "grpc" in names else None
    http = place_of(settings.http, run_folder / "http.sock", root) if PATHS.keys() & set(names) else None
    places = [place for place in (grpc, http) if place is not None]
    for place in places:
        must_be_safe(place, settings)
    is_local = all(place.is_local for place in places) and not settings.behind_proxy
    with contextlib.ExitStack() as stack:
        listening = None if http is None else stack.enter_context(bound(http))
        yield BoundApis(names=names, grpc=grpc, http=listening, http_place=http, certificates=certificates, is_local=is_local)


class Apis:
    def __init__(self, remit: "Remit", bound: BoundApis) -> None:
        self._remit = remit
        self._bound = bound
        self.settings = remit.settings.serve
        self._stack = contextlib.AsyncExitStack()
        self._http: HttpServer | None = None
        self._grpc: GrpcApi | None = None
        self._a2a: A2aApi | None = None
        self.token_file = Path()
        self.entrance = entrance_of(remit)
        self.service = Service(remit)

    async def __aenter__(self) -> "Apis":
        self.token_file = self.entrance.open()
        self._stack.callback(self.entrance.close)
        try:
            if self._bound.http is not None:  # before gRPC: the card of A2A names both
                await self._start_http(self._bound.http)
            if self._bound.grpc is not None:
                await self._start_grpc()
            if self._a2a is not None:
                await self._a2a.start()
                self._stack.push_async_callback(self._a2a.close)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stack.aclose()

    async def _start_http(self, listening: socket.socket) -> None:
        from remit.server.http.api import http_app
        from remit.server.http.auth_middleware import OPEN_PATHS
        from remit.server.http.server import HttpServer, Tls

        routes, open_paths = await self._http_routes(), set(OPEN_PATHS)
        if self._a2a is not None:
            from remit.server.a2a.api import OPEN_PATHS as CARD

            open_paths |= CARD
        files, place = self._bound.certificates, self._bound.http_place
        is_unix = place is None or place.path is not None
        tls = None if files is None or is_unix else Tls(certificate=files.certificate, key=files.key, client_ca=files.client_ca)
        hosts = [] if place is None or is_unix else [place.host, str(listening.getsockname()[0])]
        self._http = HttpServer(http_app(routes, self.entrance, self.settings, hosts=hosts, open_paths=open_paths), tls=tls)
        await self._http.start([listening])
        self._stack.push_async_callback(self._http.stop, STOP_SECONDS)

    async def _http_routes(self) -> "list[BaseRoute]":
        from remit.server.http.api import health_routes, routes

        names = self._bound.names
        found = routes(self.service) if "http" in names else health_routes(self.service)
        if "a2a" in names:
            from remit.server.a2a.api import A2aApi

            self._a2a = A2aApi(
                self.service,
                self.settings,
                base_url=lambda: self.http_address or "",
                grpc_url=lambda: self.grpc_address,
                is_beyond=not self._bound.is_local,
            )
            found += self._a2a.routes
        if "mcp" in names:
            from remit.server.mcp.server import mcp_routes

            found += await self._stack.enter_async_context(mcp_routes(self.service))
        if "metrics" in names:
            from remit.runtime.telemetry.metrics import routes as metric_routes

            found += metric_routes(self._remit.engine)
        return found

    async def _start_grpc(self) -> None:
        from remit.server.grpc.registry import Registry
        from remit.server.grpc.server import grpc_server

        registry = Registry(self.service, self.entrance, self.settings)
        extra = [self._a2a.add_to] if self._a2a is not None else []
        self._grpc = await grpc_server(self.service, self.entrance, self.settings, registry, extra)
        await self._grpc.start([self.settings.grpc])
        self._stack.push_async_callback(self._grpc.stop, STOP_SECONDS)

    # ---- while it serves

    def addresses(self) -> dict[str, str]:
        """By API."""
        found = {} if self.grpc_address is None else {"grpc": self.grpc_address}
        return found | {name: f"{self.http_address}{PATHS[name]}" for name in self._bound.names if name in PATHS}

    @property
    def grpc_address(self) -> str | None:
        return None if self._grpc is None else self._grpc.address

    @property
    def http_address(self) -> str | None:
        listening, place = self._bound.http, self._bound.http_place
        if listening is None or place is None:
            return None
        return url_of(listening, place, is_tls=self._bound.certificates is not None)

    def stop_taking(self) -> None:
        """Refuse new work and report that the server is not ready. Running work can still be followed and cancelled."""
        self.service.is_stopping = True
        if self._grpc is not None:
            self._grpc.stop_taking()

    def reload(self) -> list[str]:
        """Read replaced certificates; the problems with them."""
        try:
            if self._http is not None:
                self._http.reload_certificate()
        except RemitError as error:
            return [str(error)]
        return []


class AuditedEntrance(Entrance):
    """The authenticator, with every decision reported to the project's listeners: events, counts, log lines."""

    def __init__(self, remit: "Remit", **given: Any) -> None:
        super().__init__(remit.folder, remit.settings.serve, living=remit.engine.running.get, clock=remit.clock, **given)
        self._remit = remit

    def enter(self, *, door: str = "", **shown: Any) -> Visitor:
        try:
            visitor = super().enter(door=door, **shown)
        except RemitError as error:
            self._remit.note_visit(door, None, _error_info(error))
            raise
        self._remit.note_visit(door, visitor.principal)
        return visitor

    def admit(self, visitor: Visitor, size: int = 0) -> None:
        try:
            super().admit(visitor, size)
        except RemitError as error:
            self._remit.note_visit("any", visitor.principal, _error_info(error))
            raise


def entrance_of(remit: "Remit") -> Entrance:
    """Refused callers are written to the audit log of the policy."""
    return AuditedEntrance(remit, note=remit.note_access)


def _error_info(error: RemitError) -> ErrorInfo:
    kind = "permission" if isinstance(error, Refused) else "execution"
    return ErrorInfo(type=kind, message=error.message, code=error.code, recoverable=False, recommendation=error.advice)
