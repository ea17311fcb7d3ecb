"""The APIs of one server, started and stopped together. They share one service, one authenticator and one HTTP port.

A missing package of an API is reported with the command that installs it.
"""

import contextlib
import importlib.util
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from remit.access.entrance import Entrance
from remit.access.visitor import Visitor
from remit.core.errors import ErrorInfo, Misused, Refused, RemitError
from remit.serve.addresses import GRPC_SOCKET, Certificates, Place, bound, certificates_of, must_be_safe, place_of, url_of
from remit.serve.service import Service
from remit.settings.values import ServeSettings

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from remit.app import Remit
    from remit.serve.a2a.api import A2aApi
    from remit.serve.grpc.server import GrpcApi
    from remit.serve.http.server import HttpServer


class AuditedEntrance(Entrance):
    def __init__(self, remit: "Remit", **given: Any) -> None:
        super().__init__(remit.folder, remit.settings.serve, living=remit.engine.running.get, clock=remit.clock, **given)
        self._remit = remit

    def enter(self, *, door: str = "", **shown: Any) -> Visitor:
        try:
            visitor = super().enter(door=door, **shown)
        except RemitError as error:
            self._remit.note_visit(door, None, _told(error))
            raise
        self._remit.note_visit(door, visitor.principal)
        return visitor

    def admit(self, visitor: Visitor, size: int = 0) -> None:
        try:
            super().admit(visitor, size)
        except RemitError as error:
            self._remit.note_visit("any", visitor.principal, _told(error))
            raise


def _told(error: RemitError) -> ErrorInfo:
    kind = "permission" if isinstance(error, Refused) else "execution"
    return ErrorInfo(type=kind, message=error.message, code=error.code, recoverable=False, recommendation=error.advice)


HTTP_DOORS = ("http", "a2a", "mcp", "metrics")
NEEDED = {
    "grpc": ("grpc", "grpc_health", "grpc_reflection", "google"),
    "http": ("starlette", "uvicorn"),
    "a2a": ("starlette", "uvicorn", "sse_starlette", "a2a"),
    "mcp": ("starlette", "uvicorn", "mcp"),
    "metrics": ("starlette", "uvicorn", "prometheus_client"),
}
CLOSING_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What was found to be possible before anything was opened."""

    doors: tuple[str, ...]
    grpc: Place | None
    http: socket.socket | None
    http_place: Place | None
    certificates: Certificates | None
    is_local: bool
    """Whether only this machine reaches any of them."""


@contextlib.contextmanager
def bound_apis(settings: ServeSettings, root: Path) -> Iterator[Bound]:
    """Raises `Misused` or `Unavailable` with what to do. The HTTP port is ours from here on."""
    for door in settings.doors:
        _must_have(door)
    if not settings.doors:
        raise Misused("No door is to be opened.", advice="Name one: remit serve --door grpc")
    certificates = certificates_of(settings, root)
    run_folder = root / ".remit" / "run"
    grpc = place_of(settings.grpc, run_folder / GRPC_SOCKET, root) if "grpc" in settings.doors else None
    http = place_of(settings.http, run_folder / "http.sock", root) if set(HTTP_DOORS) & set(settings.doors) else None
    for place in (grpc, http):
        if place is not None:
            must_be_safe(place, settings)
    with contextlib.ExitStack() as held:
        listening = None if http is None else held.enter_context(bound(http))
        is_local = all(place is None or place.is_local for place in (grpc, http)) and not settings.behind_proxy
        yield Bound(doors=tuple(settings.doors), grpc=grpc, http=listening, http_place=http, certificates=certificates, is_local=is_local)


class Apis:
    def __init__(self, remit: "Remit", bound: Bound) -> None:
        self._remit = remit
        self._bound = bound
        self.settings = remit.settings.serve
        self._stack = contextlib.AsyncExitStack()
        self._http: HttpServer | None = None
        self._grpc: GrpcApi | None = None
        self._a2a: A2aApi | None = None
        self._reloading: list[Callable[[], None]] = []
        self.token_file = Path()
        self.entrance: Entrance
        self.service: Service

    async def __aenter__(self) -> "Apis":
        self.entrance = entrance_of(self._remit)
        self.token_file = self.entrance.open()
        self._stack.callback(self.entrance.close)
        self.service = Service(self._remit)
        try:
            await self._open()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stack.aclose()

    async def _open(self) -> None:
        """HTTP goes first: the card of A2A names both."""
        routes = await self._http_routes()
        if self._bound.http is not None:
            await self._open_http(routes, self._bound.http)
        if self._bound.grpc is not None:
            await self._open_grpc(self._bound.grpc)
        if self._a2a is not None:
            await self._a2a.start()
            self._stack.push_async_callback(self._a2a.close)

    async def _http_routes(self) -> "list[BaseRoute]":
        """Whether it lives and is ready is told at every HTTP port; the rest as the doors are open."""
        routes: list[BaseRoute] = []
        doors = self._bound.doors
        if self._bound.http is None:
            return routes
        from remit.serve.http.api import health_routes
        from remit.serve.http.api import routes as rest_routes

        routes += rest_routes(self.service) if "http" in doors else health_routes(self.service)
        if "a2a" in doors:
            from remit.serve.a2a.api import A2aApi

            self._a2a = A2aApi(
                self.service,
                self.settings,
                base_url=lambda: self.http_address or "",
                grpc_url=lambda: self.grpc_address,
                is_beyond=not self._bound.is_local,
            )
            routes += self._a2a.routes
        if "mcp" in doors:
            from remit.serve.mcp.server import mcp_routes

            routes += await self._stack.enter_async_context(mcp_routes(self.service))
        if "metrics" in doors:
            from remit.signals.metrics import routes as metric_routes

            routes += metric_routes(self._remit.engine)
        return routes

    async def _open_http(self, routes: "list[BaseRoute]", listening: socket.socket) -> None:
        from remit.serve.http.api import http_app
        from remit.serve.http.auth_middleware import OPEN_PATHS
        from remit.serve.http.server import HttpServer, Tls

        files = self._bound.certificates
        is_tls = files is not None and listening.family != socket.AF_UNIX
        tls = Tls(certificate=files.certificate, key=files.key, client_ca=files.client_ca) if files is not None and is_tls else None
        open_paths = set(OPEN_PATHS)
        if self._a2a is not None:
            from remit.serve.a2a.api import OPEN_PATHS as CARD

            open_paths |= CARD
        app = http_app(routes, self.entrance, self.settings, hosts=self._hosts(listening), open_paths=open_paths)
        self._http = HttpServer(app, tls=tls)
        await self._http.start([listening])
        self._stack.push_async_callback(self._http.stop, CLOSING_SECONDS)
        self._reloading.append(self._http.reload_certificate)

    def _hosts(self, listening: socket.socket) -> list[str]:
        place = self._bound.http_place
        if place is None or place.path is not None:
            return []
        return list(dict.fromkeys([place.host, str(listening.getsockname()[0])]))

    async def _open_grpc(self, place: Place) -> None:
        from remit.serve.grpc.registry import Registry
        from remit.serve.grpc.server import grpc_server

        registry = Registry(self.service, self.entrance, self.settings)
        extra = [self._a2a.add_to] if self._a2a is not None else []
        self._grpc = await grpc_server(self.service, self.entrance, self.settings, registry, extra)
        await self._grpc.start([self.settings.grpc])
        self._stack.push_async_callback(self._grpc.stop, CLOSING_SECONDS)

    # ---- while it serves

    def addresses(self) -> dict[str, str]:
        """By door, where it is found."""
        found: dict[str, str] = {}
        if self.grpc_address is not None:
            found["grpc"] = self.grpc_address
        paths = {"http": "/v1", "a2a": "/a2a", "mcp": "/mcp", "metrics": "/metrics"}
        for door in self._bound.doors:
            if door in paths and self.http_address is not None:
                found[door] = f"{self.http_address}{paths[door]}"
        return found

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
        """Nothing new: whoever asks whether we are ready hears no. What runs can still be looked at, followed and cancelled."""
        self.service.is_stopping = True
        if self._grpc is not None:
            self._grpc.stop_taking()

    def reload(self) -> list[str]:
        """Certificates that were replaced; what is wrong with them."""
        problems = []
        for again in self._reloading:
            try:
                again()
            except RemitError as error:
                problems.append(str(error))
        return problems


def entrance_of(remit: "Remit") -> Entrance:
    """Who is turned away stands in the audit log of the policy, beside what was decided."""
    return AuditedEntrance(remit, note=remit.note_access)


def _must_have(door: str) -> None:
    missing = [package for package in NEEDED[door] if importlib.util.find_spec(package) is None]
    if missing:
        raise Misused(
            f"The door {door} needs packages that are not installed: {', '.join(missing)}.",
            advice="Install them: pip install 'remit[serve]'. Or leave it closed: remit serve --door NAME opens only that one.",
        )
