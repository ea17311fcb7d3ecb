"""A server from its start to its end: the project opened, a way in served, the delegations seen to their ends. Called by `remit mcp`."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp.server.stdio import stdio_server

from remit.app import Remit
from remit.serve.mcp.delegating import Delegations
from remit.serve.mcp.http import http_server, security, stop
from remit.serve.mcp.outliving import Leash, leave_the_streams
from remit.serve.mcp.resources import Resources
from remit.serve.mcp.server import ToolServer
from remit.serve.mcp.stdio import Lines, Wire

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
SETTLE_SECONDS = 0.2
"""For what was answered last to reach the client's pipe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """The client's descriptors, and the leash to the process in front of us."""

    incoming: int
    outgoing: int
    leash: Leash


async def serve_stdio(root: Path, streams: Streams, *, answer_after_seconds: float) -> None:
    """Until the client leaves; then until what it began has ended. A signal ends both."""
    with _on_signals() as told_to_stop:
        async with _opened(root, answer_after_seconds) as (delegations, server):
            serving = asyncio.ensure_future(_spoken(server, streams))
            await _first_of(serving, told_to_stop)
            if told_to_stop.done():
                return
            await asyncio.sleep(SETTLE_SECONDS if delegations.is_busy else 0)
            leave_the_streams(streams.incoming, streams.outgoing)
            streams.leash.let_go()
            await _first_of(asyncio.ensure_future(delegations.finish()), told_to_stop)


async def serve_http(
    root: Path, listening: socket.socket, host: str, allowed_hosts: Sequence[str], *, answer_after_seconds: float, ready: Callable[[], None]
) -> None:
    """Until a signal. What still runs is stopped then: this process was told to end, not left by a client."""
    from remit.serve.mcp.beyond import is_beyond, served_beyond

    with _on_signals() as told_to_stop:
        if is_beyond(listening):
            async with Remit.open(root, recover=False) as remit, served_beyond(remit, listening, host, allowed_hosts, answer_after_seconds):
                ready()
                await told_to_stop
            return
        async with _opened(root, answer_after_seconds) as (_, server):
            web = http_server(server, security(host, allowed_hosts))
            serving = asyncio.ensure_future(web.serve(sockets=[listening]))
            ready()
            await asyncio.wait({serving, told_to_stop}, return_when=asyncio.FIRST_COMPLETED)
            stop(web)
            await serving


@contextlib.asynccontextmanager
async def _opened(root: Path, answer_after_seconds: float) -> AsyncIterator[tuple[Delegations, ToolServer]]:
    """What dead processes left is not taken over by whoever connects: only when somebody asks for it by its id."""
    async with Remit.open(root, recover=False) as remit:
        delegations = Delegations(remit, answer_after_seconds)
        server = ToolServer(delegations, Resources(remit))
        watching = asyncio.ensure_future(server.watch())
        try:
            yield delegations, server
        finally:
            watching.cancel()


async def _spoken(server: ToolServer, streams: Streams) -> None:
    """The protocol over the client's descriptors, until it closes them or the front is gone."""
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


async def _first_of(work: "asyncio.Future[None]", told_to_stop: "asyncio.Future[None]") -> None:
    """Until `work` is done, or a signal makes it stop."""
    await asyncio.wait({work, told_to_stop}, return_when=asyncio.FIRST_COMPLETED)
    if not work.done():
        work.cancel()
        await asyncio.wait({work}, timeout=2.0)
    elif (error := work.exception()) is not None:
        raise error


@contextlib.contextmanager
def _on_signals() -> Iterator["asyncio.Future[None]"]:
    loop = asyncio.get_running_loop()
    told: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not told.done():
            told.set_result(None)

    for number in _SIGNALS:
        loop.add_signal_handler(number, tell)
    try:
        yield told
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
