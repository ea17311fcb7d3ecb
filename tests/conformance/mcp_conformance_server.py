"""MCP server with the tool names of the conformance suite: each tool delegates to an agent for that scenario.

The suite calls tools of a reference server by name. Where a scenario checks a promise of `delegate` (content, an error, progress), this
server maps the name to it. The rest is the server of `remit mcp`, over HTTP. Started by `test_mcp.py`; prints its address.
"""

import asyncio
import socket
import sys
from typing import Any

from mcp_types import CallToolRequestParams, CallToolResult

from remit import Context, Remit, agent
from remit.server.authenticator import Authenticator
from remit.server.http.api import http_app
from remit.server.http.http_server import HttpServer
from remit.server.mcp.server import ToolServer
from support.server import OWNER, Credentials, Principal, Service


@agent("says")
async def says() -> str:
    return "This is a simple text response for testing."


@agent("fails")
async def fails() -> None:
    raise ValueError("This tool intentionally returns an error for testing")


@agent("reports")
async def reports(ctx: Context) -> str:
    for share in (0.0, 0.5, 1.0):
        ctx.progress("on the way", share)
        await asyncio.sleep(0.05)
    return "Done."


AGENT_OF_TOOL = {"test_simple_text": "says", "test_error_handling": "fails", "test_tool_with_progress": "reports"}


class ConformanceServer(ToolServer):
    async def _call_tool(self, ctx: Any, params: CallToolRequestParams) -> CallToolResult:
        if params.name in AGENT_OF_TOOL:
            asked = {"target": AGENT_OF_TOOL[params.name], "parameters": params.arguments or {}}
            params = params.model_copy(update={"name": "delegate", "arguments": asked})
        return await super()._call_tool(ctx, params)


class OwnerAuthenticator(Authenticator):
    """The suite sends no token."""

    def authenticate(self, shown: Credentials) -> Principal:
        return OWNER


async def main(root: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with Remit.open(root, agents=[says, fails, reports]) as remit:
            server = ConformanceServer(Service(remit))
            app = server.streamable_http_app(streamable_http_path="/mcp")
            async with server.session_manager.run():
                web = HttpServer(http_app(app.routes, OwnerAuthenticator(remit.folder), remit.settings.serve, open_paths=()))
                await web.start([listening])
                print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
                await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
