"""`remit serve` from start to end: opens the project, starts the APIs, and at the end finishes or hands over everything.

On a signal it accepts no new work; running work may finish for a while; resumable work is left to the next server, and the rest is stopped
with its results so far."""

import asyncio
import contextlib
import importlib.util
import signal
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from remit.app import Remit
from remit.core.errors import Misused
from remit.core.settings import ServeSettings
from remit.runtime.telemetry.logs import log_lifecycle, set_up_logs
from remit.server.addresses import GRPC_SOCKET, Place, announce, bound, must_be_safe, place_of, url_of, withdraw
from remit.server.authenticator import authenticator_for
from remit.server.service import Service
from remit.server.stop_signals import STOP_SECONDS, Signals, first_of, on_signals

if TYPE_CHECKING:
    from remit.server.grpc.server import GrpcApi
    from remit.system.trust import ProjectTrust


PATHS = {"http": "/v1", "a2a": "/a2a", "mcp": "/mcp", "metrics": "/metrics"}
"""Paths of the APIs at the HTTP port."""
NEEDED = {
    "grpc": ("grpc", "grpc_health", "grpc_reflection", "google"),
    "http": ("starlette", "uvicorn", "sse_starlette"),
    "a2a": ("starlette", "uvicorn", "sse_starlette", "a2a"),
    "mcp": ("starlette", "uvicorn", "mcp"),
    "metrics": ("starlette", "uvicorn", "prometheus_client"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundApis:
    """Checked addresses, and the bound HTTP port."""

    names: tuple[str, ...]
    grpc: Place | None
    http: socket.socket | None
    is_local: bool
    """Only this machine reaches any of them."""


@contextlib.contextmanager
def bound_apis(settings: ServeSettings, root: Path) -> Iterator[BoundApis]:
    """Raises `Misused` or `Unavailable`, before anything else is started."""
    names = tuple(settings.apis)
    if not names:
        raise Misused("No API is selected.", advice="Name one: remit serve --api grpc")
    for name in names:
        missing = [package for package in NEEDED[name] if importlib.util.find_spec(package) is None]
        if missing:
            raise Misused(
                f"The API {name} needs packages that are not installed: {', '.join(missing)}.",
                advice="Install them: pip install 'remit[serve]'. Or leave it out: remit serve --api NAME serves only that one.",
            )
    grpc = place_of(settings.grpc, root / ".remit" / "run" / GRPC_SOCKET) if "grpc" in names else None
    http = place_of(settings.http) if PATHS.keys() & set(names) else None
    places = [place for place in (grpc, http) if place is not None]
    for place in places:
        must_be_safe(place, settings)
    is_local = all(place.is_local for place in places) and not settings.behind_proxy
    with contextlib.ExitStack() as stack:
        listening = None if http is None else stack.enter_context(bound(http))
        yield BoundApis(names=names, grpc=grpc, http=listening, is_local=is_local)


class Apis:
    """A context manager: the APIs of one server, with one service, one authenticator and one HTTP port."""

    def __init__(self, remit: "Remit", bound: BoundApis) -> None:
        self._remit = remit
        self._bound = bound
        self.settings = remit.settings.serve
        self._stack = contextlib.AsyncExitStack()
        self._grpc: GrpcApi | None = None
        self.token_file = Path()
        self.authenticator = authenticator_for(remit)
        self.service = Service(remit)

    async def __aenter__(self) -> "Apis":
        try:
            if self._bound.http is not None:
                await self._start_http(self._bound.http)
            if self._bound.grpc is not None:
                await self._start_grpc(self._bound.grpc)
            self.token_file = self.authenticator.open()  # once it listens: a server that cannot start leaves the token of another one
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stack.aclose()

    async def _start_http(self, listening: socket.socket) -> None:
        from remit.server.http.api import health_routes, http_app, metrics_routes, routes
        from remit.server.http.http_server import HttpServer
        from remit.server.http.middleware import OPEN_PATHS

        names, open_paths = self._bound.names, set(OPEN_PATHS)
        found = routes(self.service) if "http" in names else health_routes(self.service)
        if "a2a" in names:
            from remit.server.a2a.api import OPEN_PATHS as CARD
            from remit.server.a2a.api import A2aApi

            base_url = self.settings.public_url or url_of(listening)
            found += A2aApi(self.service, base_url, is_public=not self._bound.is_local).routes
            open_paths |= CARD
        if "mcp" in names:
            from remit.server.mcp.server import ToolServer

            found += await self._stack.enter_async_context(ToolServer(self.service).routes())
        if "metrics" in names:
            from remit.runtime.telemetry.metrics import prometheus_page

            found += metrics_routes(prometheus_page(self._remit.engine, self._remit.directory.find))
        hosts = [place_of(self.settings.http).host, str(listening.getsockname()[0])]
        app = http_app(found, self.authenticator, self.settings, hosts=hosts, open_paths=open_paths)
        web = HttpServer(app)
        await web.start([listening])
        self._stack.push_async_callback(web.stop, STOP_SECONDS)

    async def _start_grpc(self, place: Place) -> None:
        from remit.server.grpc.registry import Registry
        from remit.server.grpc.server import GrpcApi

        registry = Registry(self.service, self.authenticator, self.settings)
        self._grpc = GrpcApi(self.service, self.authenticator, self.settings, registry)
        await self._grpc.start(place)
        self._stack.push_async_callback(self._grpc.stop, STOP_SECONDS)

    def addresses(self) -> dict[str, str]:
        """By API."""
        found = {} if self.grpc_address is None else {"grpc": self.grpc_address}
        return found | {name: f"{self.http_address}{PATHS[name]}" for name in self._bound.names if name in PATHS}

    @property
    def grpc_address(self) -> str | None:
        return None if self._grpc is None else self._grpc.address

    @property
    def http_address(self) -> str | None:
        return None if self._bound.http is None else url_of(self._bound.http)

    def stop_taking(self) -> None:
        """Refuse new work and report that the server is not ready. Running work can still be followed and cancelled."""
        self.service.is_stopping = True
        if self._grpc is not None:
            self._grpc.stop_taking()


# ---- `remit serve`


class Listener(Protocol):
    def opened(self, root: Path, apis: Mapping[str, str], token_file: Path) -> None: ...
    def stopping(self, running: int, seconds: float) -> None: ...
    def stopped(self, *, handed_over: int, ended: int) -> None: ...


async def serve(root: Path, settings: Mapping[str, Any], listener: Listener, trust: "ProjectTrust | None" = None) -> None:
    """Until a signal."""
    remit = Remit.open(root, settings=settings, trust=trust)
    with contextlib.ExitStack() as stack:
        bound = stack.enter_context(bound_apis(remit.settings.serve, remit.root))
        signals = stack.enter_context(on_signals(signal.SIGHUP))
        stack.callback(set_up_logs(remit.settings.signals.logs))
        async with _opened(remit, signals) as is_open:
            if not is_open:
                listener.stopped(handed_over=0, ended=0)
                return
            log_lifecycle(remit.engine)
            async with Apis(remit, bound) as apis:
                run_folder = remit.folder / "run"
                announce(run_folder, grpc=apis.grpc_address, http=apis.http_address, token_file=str(apis.token_file))
                stack.callback(withdraw, run_folder)
                listener.opened(remit.root, apis.addresses(), apis.token_file)
                await signals.stop.wait()
                apis.stop_taking()
                seconds = remit.settings.serve.stop_seconds
                listener.stopping(len(remit.engine.live()), seconds)
                await first_of(apis.service.finish(), signals.at_once.wait(), timeout=seconds)
                withdraw(run_folder)
            left = len([one for one in remit.engine.live().values() if one.parent is None])
            handed_over = len(await remit.close(hand_over=True))
            listener.stopped(handed_over=handed_over, ended=max(0, left - handed_over))


@contextlib.asynccontextmanager
async def _opened(remit: Remit, signals: Signals) -> AsyncIterator[bool]:
    """False: stopped before it was open. Recovery after a crash may take a while; then it is left to the next server."""
    opening = asyncio.ensure_future(remit.__aenter__())
    await first_of(asyncio.wait([opening]), signals.stop.wait())
    if not opening.done():
        opening.cancel()
        await asyncio.wait([opening])
    if opening.cancelled():
        yield False
        return
    await opening
    try:
        yield True
    finally:
        await remit.close(hand_over=True)  # also if an API cannot start: it does not end resumed work
