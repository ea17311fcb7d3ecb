"""The MCP server: the SDK's, with handlers that call `Delegations`. Speaks revision 2026-07-28 and those before it.

Clients receive `tools/list_changed` when the agents change (`watch`).
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from starlette.routing import BaseRoute

from remit.core.errors import Refused
from remit.server.mcp.delegations import Delegations, Progress, call_of, hold
from remit.server.mcp.resources import Resources
from remit.server.mcp.tools import tools_of
from remit.server.service import Call, Service

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
    def __init__(self, delegations: Delegations, resources: Resources, *, asks_who: bool = False) -> None:
        """`asks_who`: behind authentication: requests without a caller are refused. Otherwise every caller is the owner."""
        self._asks_who = asks_who
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
        found = call_of(ctx.request, ctx.meta, asks_who=self._asks_who)
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
    server = ToolServer(Delegations(service.remit, answer_after_seconds, service), Resources(service.remit, service), asks_who=True)
    checked_before = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = server.streamable_http_app(streamable_http_path=PATH, stateless_http=True, transport_security=checked_before)
    watching = asyncio.ensure_future(server.watch())
    try:
        async with server.session_manager.run():
            yield list(app.routes)
    finally:
        watching.cancel()
