"""MCP server for the conformance suite, over HTTP and without authentication: the suite sends no token. Prints its address.

The suite calls tools of a reference server by name. Where a scenario checks a promise of `delegate` (content, an error, progress), this
server maps the name to an agent; with `--plain` it maps nothing. Started by `test_mcp.py`.
"""

import asyncio
import sys
from typing import Any

from mcp_types import CallToolRequestParams, CallToolResult

from remit import Context, Remit, agent
from remit.server.mcp.server import ToolServer
from support.server import OWNER, Apis, bound_apis


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


def map_tools() -> None:
    call_tool = ToolServer._call_tool

    async def mapped(self: ToolServer, ctx: Any, params: CallToolRequestParams) -> CallToolResult:
        if params.name in AGENT_OF_TOOL:
            asked = {"target": AGENT_OF_TOOL[params.name], "parameters": params.arguments or {}}
            params = params.model_copy(update={"name": "delegate", "arguments": asked})
        return await call_tool(self, ctx, params)

    ToolServer._call_tool = mapped  # type: ignore[method-assign]


async def main(root: str) -> None:
    remit = Remit.open(root, agents=[says, fails, reports], settings={"serve": {"apis": ["mcp"], "http": "127.0.0.1:0"}})
    with bound_apis(remit.settings.serve, remit.root) as bound:
        async with remit:
            apis = Apis(remit, bound)
            apis.authenticator.authenticate = lambda shown: OWNER  # type: ignore[method-assign]
            async with apis:
                print(apis.addresses()["mcp"], flush=True)
                await asyncio.Event().wait()


if __name__ == "__main__":
    if "--plain" not in sys.argv:
        map_tools()
    asyncio.run(main(sys.argv[1]))
