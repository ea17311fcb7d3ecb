"""A client of `remit mcp`: who there is, one piece of work, several at once, and one that outlives the client."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client

AGENTS = '''
import asyncio

from remit import Context, agent


@agent("text.count")
async def count(ctx: Context, path: str) -> int:
    """Counts the words of a file."""
    return len((ctx.root / path).read_text().split())


@agent("sleeper")
async def sleeper(ctx: Context, seconds: float) -> str:
    """Takes its time."""
    ctx.progress("asleep")
    await asyncio.sleep(seconds)
    return "Awake."
'''


def client() -> Client:
    return Client(stdio_client(StdioServerParameters(command=sys.executable, args=["-m", "remit", "mcp", "--root", ".", "--trust"])))


async def ask(asked: Client, tool: str, **arguments: Any) -> Any:
    return (await asked.call_tool(tool, arguments)).structured_content


async def main() -> None:
    async with client() as first:
        listed = (await ask(first, "list_agents"))["agents"]
        print("with operations:", sorted({one["target"] for one in listed if one.get("operation")}))
        done = await ask(first, "delegate", target="text", operation="count", parameters={"path": "README.md"})
        print("one:", done["status"], done["data"])
        wrong = await ask(first, "delegate", target="text", operation="cuont", parameters={})
        print("wrong:", wrong["errors"][0]["code"], wrong["errors"][0]["recommendation"])
        counting = {"target": "text", "operation": "count", "parameters": {"path": "README.md"}}
        many = await ask(first, "delegate_many", delegations=[counting, {"target": "nobody", "parameters": {}}])
        print("many:", [one["state"] for one in many["results"]])
        begun = await ask(first, "delegate", target="sleeper", parameters={"seconds": 1}, wait_ms=0)
        print("begun:", begun["state"], begun["ask_again"]["tool"])
    async with client() as second:  # the first one has left, and its server with it
        found = await ask(second, "delegation_result", session_id=begun["session_id"])
        print("found again:", found["state"], found["data"])


if __name__ == "__main__":
    folder = Path(".remit", "agents")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mine.py").write_text(AGENTS)
    asyncio.run(main())
