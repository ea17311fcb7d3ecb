"""The MCP server: the SDK's, with handlers that call `Delegations`. Speaks revision 2026-07-28 and those before it.

Clients receive `tools/list_changed` when the agents change (`watch`).
"""

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from starlette.routing import BaseRoute

from remit.app import Remit
from remit.core.errors import Misused, Refused
from remit.core.settings import ServeSettings
from remit.server.addresses import Place, certificates_of, must_be_safe, url_of
from remit.server.http.api import http_app
from remit.server.http.middleware import LOOPBACK
from remit.server.http.server import HttpServer, Tls
from remit.server.mcp.delegations import Delegations, Progress, call_of, hold
from remit.server.mcp.resources import Resources
from remit.server.mcp.stdio import FrontLink, Lines, Wire, release_streams
from remit.server.mcp.tools import tools_of
from remit.server.service import Call, Service

# ---- The MCP server: the SDK's, with handlers that call `Delegations`. Speaks revision 2026-07-28 and those before it.


INSTRUCTIONS = (
    "remit hands work to other agents and always brings back an answer: in time, checked, with whatever was done. Use `delegate` for one "
    "piece of work and `delegate_many` for several at once; `list_agents` says who there is. An answer with state `running` is a handle: "
    "ask again with `delegation_result`. A delegation goes on when you stop waiting; only `delegation_cancel` ends it."
)
PATH = "/mcp"
ANSWER_AFTER_SECONDS = 45.0
LOOK_SECONDS = 2.0
LISTENERS = 64
"""So many clients that listed the tools, the newest, are told when these change."""

Ctx = ServerRequestContext[Any, Any]


class ToolServer(Server[Any]):
    def __init__(self, delegations: Delegations, resources: Resources, *, requires_auth: bool = False) -> None:
        """`requires_auth`: behind authentication: requests without a caller are refused. Otherwise every caller is the owner."""
        self._asks_who = requires_auth
        self._delegations = delegations
        self._resources = resources
        self._bus = InMemorySubscriptionBus()
        self._listing: deque[ServerSession] = deque(maxlen=LISTENERS)
        super().__init__(
            "remit",
            version=version("remit"),
            title="remit",
            description="Delegate work to the agents of this project.",
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscriptions_listen=ListenHandler(self._bus),
            get_tool_input_schema=self._input_schema,
        )
        self.middleware.clear()  # spans of the SDK's own: nothing here exports them

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        told = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(told, experimental_capabilities, extensions)

    async def _list_tools(self, ctx: Ctx, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        if not any(known.client_params is ctx.session.client_params for known in self._listing):
            self._listing.append(ctx.session)
        return types.ListToolsResult(tools=tools_of(self._delegations.catalogue_for(self._call(ctx))))

    async def _call_tool(self, ctx: Ctx, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in self._delegations.tools:
            raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown tool: {params.name[:80]}")
        call = self._call(ctx)
        try:
            hold(ctx.request)  # it may wait for long, also without a stream
        except Refused as error:
            raise MCPError(code=types.INVALID_REQUEST, message=str(error)) from None
        return await self._delegations.call(params.name, params.arguments, Progress(ctx.session, ctx.meta), call)

    async def _list_resources(self, ctx: Ctx, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        return await self._resources.listed(self._call(ctx))

    async def _list_templates(self, ctx: Ctx, params: types.PaginatedRequestParams | None) -> types.ListResourceTemplatesResult:
        return await self._resources.templates()

    async def _read_resource(self, ctx: Ctx, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        return await self._resources.read(params.uri, self._call(ctx))

    def _call(self, ctx: Ctx) -> Call:
        found = call_of(ctx.request, ctx.meta, requires_auth=self._asks_who)
        if found is None:
            raise MCPError(code=types.INVALID_REQUEST, message="The request is not authenticated.")
        return found

    def _input_schema(self, name: str) -> dict[str, Any] | None:
        return next((tool.input_schema for tool in tools_of(self._delegations.catalogue) if tool.name == name), None)

    async def watch(self) -> None:
        """Tell clients when the agents have changed. Runs as long as the server does."""
        catalogue = self._delegations.catalogue
        known = catalogue.specs
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if catalogue.specs is not known:
                known = catalogue.specs
                await self._bus.publish(ToolsListChanged())
                for session in list(self._listing):
                    await session.send_tool_list_changed()


@contextlib.asynccontextmanager
async def mcp_routes(service: Service, answer_after_seconds: float = ANSWER_AFTER_SECONDS) -> AsyncIterator[list[BaseRoute]]:
    """Routes to put behind `serve.http.auth_middleware`, which also checks Host and Origin.

    Without sessions: each request has its own caller, so nobody can use the session of another."""
    server = ToolServer(Delegations(service.remit, answer_after_seconds, service), Resources(service.remit, service), requires_auth=True)
    checked_before = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = server.streamable_http_app(streamable_http_path=PATH, stateless_http=True, transport_security=checked_before)
    watching = asyncio.ensure_future(server.watch())
    try:
        async with server.session_manager.run():
            yield list(app.routes)
    finally:
        watching.cancel()


# ---- `remit mcp`: opens the project, serves MCP on stdin and stdout or over HTTP, and waits for the delegations at the end.


_SIGNALS = (signal.SIGINT, signal.SIGTERM)
SETTLE_SECONDS = 0.2
"""For the last answer to reach the client's pipe."""
STOP_SECONDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """The client's descriptors, and the front to the process in front of us."""

    incoming: int
    outgoing: int
    front: FrontLink


async def serve_stdio(root: Path, streams: Streams, *, answer_after_seconds: float) -> None:
    """Until the client leaves; then until its delegations have ended. A signal ends both."""
    with _on_signals() as stopped:
        async with _opened(root, answer_after_seconds) as (delegations, server):
            await _first_of(asyncio.ensure_future(_speak(server, streams)), stopped)
            if stopped.done():
                return
            await asyncio.sleep(SETTLE_SECONDS if delegations.is_busy else 0)
            release_streams(streams.incoming, streams.outgoing)
            streams.front.let_go()
            await _first_of(asyncio.ensure_future(delegations.finish()), stopped)


async def serve_http(
    root: Path, listening: socket.socket, host: str, allowed_hosts: Sequence[str], *, answer_after_seconds: float, ready: Callable[[], None]
) -> None:
    """Until a signal. Running delegations are stopped then."""
    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # the SDK writes a traceback for every connection that is cut off
    with _on_signals() as stopped:
        if is_remote(listening):
            async with (
                Remit.open(root, recover=False) as remit,
                served_to_others(remit, listening, host, allowed_hosts, answer_after_seconds),
            ):
                ready()
                await stopped
            return
        async with _opened(root, answer_after_seconds) as (_, server), served_locally(server, listening, host, allowed_hosts):
            ready()
            await stopped


@contextlib.asynccontextmanager
async def served_locally(server: ToolServer, listening: socket.socket, host: str, allowed_hosts: Sequence[str] = ()) -> AsyncIterator[None]:
    names = list(dict.fromkeys([*LOOPBACK, _bracketed(host), *allowed_hosts]))
    hosts = [form for name in names for form in (name, f"{name}:*")]
    origins = [f"{scheme}://{form}" for form in hosts for scheme in ("http", "https")]
    security = TransportSecuritySettings(enable_dns_rebinding_protection=True, allowed_hosts=hosts, allowed_origins=origins)
    web = HttpServer(server.streamable_http_app(streamable_http_path=PATH, transport_security=security))
    async with server.session_manager.run():
        await web.start([listening])
        try:
            yield
        finally:
            await web.stop(STOP_SECONDS)


@contextlib.asynccontextmanager
async def served_to_others(
    remit: Remit, listening: socket.socket, host: str, allowed_hosts: Sequence[str], answer_after_seconds: float
) -> AsyncIterator[None]:
    from remit.server.run import authenticator_for

    if remit.is_attached:
        raise Misused("An agent cannot serve its project to other machines.", advice="Listen on loopback: --host 127.0.0.1")
    own = remit.settings.serve
    settings = replace(own, allow_hosts=(*own.allow_hosts, *allowed_hosts))
    must_be_safe(place_at(listening), settings)
    files = certificates_of(settings, remit.root)
    tls = None if files is None else Tls(certificate=files.certificate, key=files.key, client_ca=files.client_ca)
    async with contextlib.AsyncExitStack() as stack:
        authenticator = authenticator_for(remit)
        authenticator.open()
        stack.callback(authenticator.close)
        routes = await stack.enter_async_context(mcp_routes(Service(remit), answer_after_seconds))
        app = http_app(routes, authenticator, settings, hosts=[host, place_at(listening).host], open_paths=())
        server = HttpServer(app, tls=tls)
        await server.start([listening])
        stack.push_async_callback(server.stop, STOP_SECONDS)
        yield


# ---- addresses


def place_at(listening: socket.socket) -> Place:
    host, port = listening.getsockname()[:2]
    return Place(host=host, port=port)


def is_remote(listening: socket.socket) -> bool:
    """Whether other machines reach it."""
    return not place_at(listening).is_local


def http_address(listening: socket.socket, settings: ServeSettings, root: Path) -> str:
    """Raises `Misused` where other machines reach it and nothing protects the traffic."""
    place = place_at(listening)
    if place.is_local:
        return f"{url_of(listening, place, is_tls=False)}{PATH}"
    must_be_safe(place, settings)
    return f"{url_of(listening, place, is_tls=certificates_of(settings, root) is not None)}{PATH}"


def check_names(names: Sequence[str]) -> None:
    for name in names:
        if not name or set(name) & set("/@ "):
            raise Misused(f"--allow-host takes a host name, not {name!r:.80}.", advice="E.g. --allow-host build.example.org")


def _bracketed(host: str) -> str:
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).version == 6:
            return f"[{host}]"
    return host


# ---- from start to end


@contextlib.asynccontextmanager
async def _opened(root: Path, answer_after_seconds: float) -> AsyncIterator[tuple[Delegations, ToolServer]]:
    """Delegations of dead processes are not recovered here, only when somebody asks for one by its id."""
    async with Remit.open(root, recover=False) as remit:
        delegations = Delegations(remit, answer_after_seconds)
        server = ToolServer(delegations, Resources(remit))
        watching = asyncio.ensure_future(server.watch())
        try:
            yield delegations, server
        finally:
            watching.cancel()


async def _speak(server: ToolServer, streams: Streams) -> None:
    """The protocol over the client's descriptors, until the client closes them or the process in front is gone."""
    loop = asyncio.get_running_loop()
    wire = Wire(streams.outgoing, lambda: lines.end())
    lines = Lines(streams.incoming, wire)

    def front_is_gone() -> None:
        loop.remove_reader(streams.front.descriptor)
        lines.end()

    loop.add_reader(streams.front.descriptor, front_is_gone)
    incoming: Any = lines
    outgoing: Any = wire
    try:
        async with stdio_server(incoming, outgoing) as (read, write):
            await server.run(read, write, server.create_initialization_options())
    finally:
        loop.remove_reader(streams.front.descriptor)
        wire.close()


async def _first_of(work: "asyncio.Future[None]", stopped: "asyncio.Future[None]") -> None:
    """Until `work` is done, or a signal stops it."""
    await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if not work.done():
        work.cancel()
        await asyncio.wait({work}, timeout=2.0)
    elif (error := work.exception()) is not None:
        raise error


@contextlib.contextmanager
def _on_signals() -> Iterator["asyncio.Future[None]"]:
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()

    def stop() -> None:
        if not stopped.done():
            stopped.set_result(None)

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        yield stopped
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
