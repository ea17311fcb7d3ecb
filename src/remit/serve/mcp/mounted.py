"""MCP as one of the HTTP doors of `remit serve`: the same tools, for whoever the entrance let in, at `/mcp`.

Without sessions: each request stands for itself and its caller, so nobody can use another's; revision 2026-07-28 has none anyway.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from mcp.server.transport_security import TransportSecuritySettings
from starlette.routing import BaseRoute

from remit.serve.mcp.delegating import Delegations
from remit.serve.mcp.http import PATH
from remit.serve.mcp.resources import Resources
from remit.serve.mcp.server import ToolServer
from remit.serve.service import Service

ANSWER_AFTER_SECONDS = 45.0


@contextlib.asynccontextmanager
async def mcp_routes(service: Service, answer_after_seconds: float = ANSWER_AFTER_SECONDS) -> AsyncIterator[list[BaseRoute]]:
    """To be put behind `serve.http.entering`, which also looks at Host and Origin."""
    server = ToolServer(Delegations(service.remit, answer_after_seconds, service), Resources(service.remit, service), asks_who=True)
    checked_before = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = server.streamable_http_app(streamable_http_path=PATH, stateless_http=True, transport_security=checked_before)
    watching = asyncio.ensure_future(server.watch())
    try:
        async with server.session_manager.run():
            yield list(app.routes)
    finally:
        watching.cancel()
