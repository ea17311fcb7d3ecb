"""A project whose agents are called over MCP: real servers in their own processes, and the client of the SDK."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client

from remit import SqliteStore

AGENTS = '''
import asyncio
import os
import subprocess

from remit import Context, agent

@agent("noop")
async def noop() -> None:
    return None

@agent("text.count")
async def count(text: str, min_length: int = 0) -> int:
    """Counts the words of a text."""
    return len([word for word in text.split() if len(word) >= min_length])

@agent("text.write")
async def write(ctx: Context, path: str, content: str) -> str:
    """Writes a file."""
    (ctx.root / path).write_text(content)
    ctx.artifact(path, "documentation", "What was written.")
    return "Written."

@agent("slow", timeout=60)
async def slow(ctx: Context, seconds: float) -> str:
    """Takes its time."""
    steps = max(1, int(seconds * 10))
    for number in range(steps):
        ctx.progress(f"step {number + 1}", number / steps)
        ctx.spend(tokens=1)
        await asyncio.sleep(0.1)
    (ctx.root / "slow.done").write_text("done")
    return "Slept."

@agent("caller", timeout=60)
async def caller(ctx: Context, seconds: float) -> str:
    """Has it done by another."""
    return (await ctx.delegate("slow", seconds=seconds)).summary

@agent("large")
async def large(rows: int) -> dict:
    """A result of many rows."""
    return {"rows": [{"number": number, "words": "word " * 20} for number in range(rows)]}

@agent("fails")
async def fails() -> None:
    raise ValueError("it broke")

@agent("prints")
async def prints() -> str:
    print("a stray word")
    os.write(1, b"another stray word\\n")
    subprocess.run(["echo", "and another"], check=True)
    return "Printed."

@agent("nested", isolation="process", timeout=60)
async def nested(ctx: Context, calls: list) -> list:
    """Calls `delegate` of a server that it started itself."""
    import sys

    from mcp import StdioServerParameters
    from mcp.client.client import Client
    from mcp.client.stdio import stdio_client

    environment = {**os.environ, **ctx.environment()}
    server = StdioServerParameters(command=sys.executable, args=["-m", "remit", "mcp"], env=environment, cwd="/")
    async with Client(stdio_client(server)) as client:
        return [(await client.call_tool("delegate", call)).structured_content for call in calls]

@agent("reads")
async def reads() -> str:
    return repr(os.read(0, 10))
'''


def make_project(folder: Path) -> Path:
    (folder / ".remit" / "agents").mkdir(parents=True)
    (folder / ".remit" / "agents" / "mine.py").write_text(AGENTS)
    return folder


def stdio(project: Path, *options: str, mode: str = "auto") -> Client:
    """A client that starts and ends its own stdio server."""
    command = ["-m", "remit", "mcp", "--root", str(project), *options]
    server = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
    return Client(stdio_client(server), mode=mode)


def owner_pid(project: Path, session_id: str) -> int:
    """The process that runs a delegation."""
    store = SqliteStore(project / ".remit" / "remit.db")
    try:
        record = store.get(session_id)
        assert record is not None
        return next(owner.pid for owner in store.owners() if owner.owner_id == record.owner)
    finally:
        store.close()


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def request(number: int, method: str, **params: Any) -> str:
    return json.dumps({"method": method, "params": params, "jsonrpc": "2.0", "id": number})  # the id last, as many clients write it


GREETING = request(1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "raw", "version": "1"})
READY = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})


class RawClient:
    """A client of `remit mcp` that reads and writes raw lines."""

    def __init__(self, project: Path) -> None:
        command = [sys.executable, "-m", "remit", "mcp", "--root", str(project)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self.send(GREETING)
        assert self.receive()["id"] == 1
        self.send(READY)

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read() if self.process.stderr else ""
        received: dict[str, Any] = json.loads(line)
        return received

    def call(self, number: int, tool: str, **arguments: Any) -> dict[str, Any]:
        self.send(request(number, "tools/call", name=tool, arguments=arguments))
        received = self.receive()
        assert received["id"] == number
        answer: dict[str, Any] = received["result"]["structuredContent"]
        return answer

    def close(self) -> tuple[str, str]:
        return self.process.communicate(timeout=60)

    def child_pid(self) -> int:
        """The child of the started process."""
        return int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0])
