"""mcp: cost of `delegate` over MCP stdio to an agent that does nothing, compared with a tool of the same SDK that returns at once.

The same client calls all servers, alternating in the same run; each server is a separate process. There are two floors, because remit
reads and writes the pipes faster than the SDK: the faster one counts. Run as a module, this is the server of a floor.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

from bench.figures import Figure, median, milliseconds, percentile
from bench.sizes import Sizes
from bench.speed import One, timed_sequence
from remit.server.mcp.stdio import ClientStreams

TARGET_SECONDS = 0.005
AGENT = """
from remit import agent

@agent("noop")
async def noop() -> None:
    return None
"""
_ROOT = Path(__file__).parents[1]
_WARM = 20


async def measure(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    taken: dict[str, list[float]] = {"sdk": [], "pipes": [], "remit": []}
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        _make_project(Path(folder))
        async with (
            _client("-m", "bench.tools", "sdk") as sdk,
            _client("-m", "bench.tools", "pipes") as pipes,
            _client("-m", "remit", "mcp", "--root", folder) as remit,
        ):
            calls = {"sdk": _call(sdk, "nothing"), "pipes": _call(pipes, "nothing"), "remit": _call(remit, "delegate")}
            for call in calls.values():
                await timed_sequence(call, _WARM)
            for _ in range(sizes.rounds):
                for name, call in calls.items():
                    taken[name].append(percentile(await timed_sequence(call, sizes.tool_calls), 0.5))
    added = median([one - min(floors) for one, *floors in zip(taken["remit"], taken["sdk"], taken["pipes"], strict=True)])
    return [
        Figure(section="mcp", what="floor: a tool that returns at once, the SDK's stdio, p50", measured=milliseconds(median(taken["sdk"]))),
        Figure(section="mcp", what="floor: a tool that returns at once, our stdio, p50", measured=milliseconds(median(taken["pipes"]))),
        Figure(section="mcp", what="remit, delegate to an agent that does nothing, p50", measured=milliseconds(median(taken["remit"]))),
        Figure(
            section="mcp",
            what="added by remit to the better floor, p50",
            measured=milliseconds(added),
            target=f"≤ {TARGET_SECONDS * 1e3:g} ms",
            is_met=added <= TARGET_SECONDS,
        ),
    ]


def _make_project(folder: Path) -> None:
    agents = folder / ".remit" / "agents"
    agents.mkdir(parents=True)
    (agents / "noop.py").write_text(AGENT)


def _call(client: Client, tool: str) -> One:
    async def call() -> None:
        done: Any = await client.call_tool(tool, {"target": "noop", "parameters": {}})
        assert done.structured_content["status"] == "completed", done  # a refusal would be quick, and would look like speed

    return call


def _client(*command: str) -> Client:
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return Client(stdio_client(StdioServerParameters(command=sys.executable, args=list(command), env={**os.environ, "PYTHONPATH": path})))


async def _serve_floor(stdio: str) -> None:
    """The minimal MCP tool: the SDK's own server with a constant answer."""
    schema = {"type": "object", "properties": {"parameters": {"type": "object"}}}
    tool = Tool(name="nothing", description="Returns at once.", input_schema=schema, output_schema={"type": "object"})
    document = {"status": "completed"}
    answer = CallToolResult(content=[TextContent(text=json.dumps(document))], structured_content=document)

    async def list_tools(ctx: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[tool])

    async def call_tool(ctx: Any, params: Any) -> CallToolResult:
        return answer

    server: Server[Any] = Server("floor", on_list_tools=list_tools, on_call_tool=call_tool)
    streams: tuple[Any, ...] = ()
    if stdio == "pipes":
        streams = (await ClientStreams.open(0, 1),) * 2
    async with stdio_server(*streams) as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(_serve_floor(sys.argv[1]))
