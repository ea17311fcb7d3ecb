"""The MCP server: the SDK's, with handlers that call `Delegations`, over stdin and stdout (`remit mcp`) or HTTP
(`remit serve`).

Speaks revision 2026-07-28 and earlier ones."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from starlette.routing import BaseRoute

from remit.app import Remit
from remit.server.mcp.delegations import Delegations, Progress, call_of
from remit.server.mcp.stdio import ClientStreams, FrontLink, release_streams
from remit.server.mcp.tools import tools_of
from remit.server.service import HOLD, Call, Service
from remit.server.stop_signals import first_of, on_signals
from remit.stores import MemoryStore
from remit.system.trust import ProjectTrust, load_trust

INSTRUCTIONS = (
    "remit hands work to other agents and always brings back an answer: in time, checked, with whatever was done. Use `delegate` for one "
    "piece of work and `delegate_many` for several at once; `list_agents` says who there is. An answer with state `running` is a handle: "
    "ask again with `delegation_result`. A delegation goes on when you stop waiting; only `delegation_cancel` ends it."
)
PATH = "/mcp"
ANSWER_AFTER_SECONDS = 45.0

Ctx = ServerRequestContext[Any, Any]


class ToolServer(Server[Any]):
    def __init__(self, service: Service, answer_after_seconds: float = ANSWER_AFTER_SECONDS) -> None:
        self.delegations = Delegations(service, answer_after_seconds)
        super().__init__(
            "remit",
            version=version("remit"),
            title="remit",
            description="Delegate work to the agents of this project.",
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        self.middleware.clear()  # spans of the SDK, which nothing here exports

    async def _list_tools(self, ctx: Ctx, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools_of(self.delegations.catalogue_for(_call(ctx))))

    async def _call_tool(self, ctx: Ctx, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in self.delegations.tools:
            raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown tool: {params.name[:80]}")
        call = _call(ctx)
        if ctx.request is not None:
            ctx.request.scope[HOLD]()
        return await self.delegations.call(params.name, params.arguments, Progress(ctx.session, ctx.meta), call)

    @contextlib.asynccontextmanager
    async def routes(self) -> AsyncIterator[list[BaseRoute]]:
        """Routes to put behind `http.middleware`, which also checks Host and Origin.

        Without sessions: each request has its own caller, so that no caller can use the session of another."""
        checked_before = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        app = self.streamable_http_app(streamable_http_path=PATH, stateless_http=True, transport_security=checked_before)
        async with self.session_manager.run():
            yield list(app.routes)


def _call(ctx: Ctx) -> Call:
    found = call_of(ctx.request, ctx.meta)
    if found is None:
        raise MCPError(code=types.INVALID_REQUEST, message="The request is not authenticated.")
    return found


# ---- stdin and stdout


async def serve_stdio(
    root: Path, incoming: int, outgoing: int, front: FrontLink, *, answer_after_seconds: float, trust: ProjectTrust | None = None
) -> None:
    """Over the client's descriptors, until it leaves, and then until its delegations have ended. A signal ends both.

    Delegations of dead processes are recovered here only when a client asks for one by its id."""
    with on_signals() as signals:
        async with _open(root, trust) as remit:
            service = Service(remit)
            server = ToolServer(service, answer_after_seconds)
            await first_of(_speak(server, incoming, outgoing, front), signals.stop.wait())
            if signals.stop.is_set():
                return
            release_streams()
            front.let_go()
            await first_of(service.finish(), signals.stop.wait())


def _open(root: Path, trust: ProjectTrust | None) -> Remit:
    """With a database that was not created here nothing can be recorded, so nothing runs: callers get the command to type."""
    store = None if (trust or load_trust(root)).foreign_database is None else MemoryStore()
    return Remit.open(root, recover=False, trust=trust, store=store)


async def _speak(server: ToolServer, incoming: int, outgoing: int, front: FrontLink) -> None:
    """The protocol over the client's descriptors, until the client closes them or the front process is gone."""
    loop = asyncio.get_running_loop()
    streams: Any = await ClientStreams.open(incoming, outgoing)

    def front_is_gone() -> None:
        loop.remove_reader(front.descriptor)
        streams.end()

    loop.add_reader(front.descriptor, front_is_gone)
    try:
        async with stdio_server(streams, streams) as (read, write):
            await server.run(read, write, server.create_initialization_options())
    finally:
        loop.remove_reader(front.descriptor)
        await streams.close()
