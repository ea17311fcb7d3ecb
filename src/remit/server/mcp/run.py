"""`remit mcp`: opens the project, serves MCP on stdin and stdout or over HTTP, and waits for the delegations at the end.

Over HTTP on loopback every caller is the owner, and checks of Host and Origin keep browser pages out (DNS rebinding). Where other machines
reach it, callers authenticate as for `remit serve`, under TLS or behind a proxy that ends TLS.
"""

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings

from remit.app import Remit
from remit.core.errors import Misused
from remit.core.settings import ServeSettings
from remit.server.addresses import Place, certificates_of, must_be_safe, url_of
from remit.server.http.api import http_app
from remit.server.http.auth_middleware import LOOPBACK
from remit.server.http.server import HttpServer, Tls
from remit.server.mcp.delegations import Delegations
from remit.server.mcp.resources import Resources
from remit.server.mcp.server import PATH, ToolServer, mcp_routes
from remit.server.mcp.stdio import Leash, Lines, Wire, release_streams
from remit.server.service import Service

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
SETTLE_SECONDS = 0.2
"""For the last answer to reach the client's pipe."""
STOP_SECONDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """The client's descriptors, and the leash to the process in front of us."""

    incoming: int
    outgoing: int
    leash: Leash


async def serve_stdio(root: Path, streams: Streams, *, answer_after_seconds: float) -> None:
    """Until the client leaves; then until its delegations have ended. A signal ends both."""
    with _on_signals() as stopped:
        async with _opened(root, answer_after_seconds) as (delegations, server):
            await _first_of(asyncio.ensure_future(_speak(server, streams)), stopped)
            if stopped.done():
                return
            await asyncio.sleep(SETTLE_SECONDS if delegations.is_busy else 0)
            release_streams(streams.incoming, streams.outgoing)
            streams.leash.let_go()
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
    from remit.server.apis import entrance_of

    if getattr(remit, "engine", None) is None:
        raise Misused("An agent cannot serve its project to other machines.", advice="Listen on loopback: --host 127.0.0.1")
    own = remit.settings.serve
    settings = replace(own, allow_hosts=(*own.allow_hosts, *allowed_hosts))
    must_be_safe(place_at(listening), settings)
    files = certificates_of(settings, remit.root)
    tls = None if files is None else Tls(certificate=files.certificate, key=files.key, client_ca=files.client_ca)
    async with contextlib.AsyncExitStack() as stack:
        entrance = entrance_of(remit)
        entrance.open()
        stack.callback(entrance.close)
        routes = await stack.enter_async_context(mcp_routes(Service(remit), answer_after_seconds))
        app = http_app(routes, entrance, settings, hosts=[host, place_at(listening).host], open_paths=())
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
        loop.remove_reader(streams.leash.descriptor)
        lines.end()

    loop.add_reader(streams.leash.descriptor, front_is_gone)
    incoming: Any = lines
    outgoing: Any = wire
    try:
        async with stdio_server(incoming, outgoing) as (read, write):
            await server.run(read, write, server.create_initialization_options())
    finally:
        loop.remove_reader(streams.leash.descriptor)
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
