"""Load for tests that kill a server: agents of several kinds, and clients of several APIs that reconnect.

A client starts its task under a key, follows it, and reconnects when the connection breaks: by the key until it knows the id, then by
the id, from the last received chunk. Received events are kept and compared with the records.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.apis.client import ApiClient, ApiFault, Said, Seen

AGENTS = '''
import asyncio, os, subprocess, sys, time
from pathlib import Path
from remit import BlockingContext, Context, agent

def note(ctx, word):
    folder = ctx.root / ".remit" / "marks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ctx.session_id).open("a") as file:
        file.write(f"{word}\\n")

@agent("quick")
async def quick(ctx: Context, n: int) -> int:
    note(ctx, "run")
    return n

@agent("talker", timeout=60)
async def talker(ctx: Context, n: int) -> int:
    """Says much; is lost with its server."""
    note(ctx, "run")
    for number in range(n):
        ctx.emit(number)
        await asyncio.sleep(0.05)
    return n

@agent("stepper", resumable=True, timeout=60)
async def stepper(ctx: Context, n: int) -> dict:
    """Goes on where it was, whichever server has it."""
    note(ctx, "run")
    done = ctx.saved or 0
    for number in range(done, n):
        ctx.emit(number)
        await ctx.checkpoint(number + 1)
        await asyncio.sleep(0.05)
    return {"n": n, "from": done}

@agent("parent", timeout=60)
async def parent(ctx: Context, n: int) -> str:
    note(ctx, "run")
    child = await ctx.delegate("talker", n=n)
    return f"The child is {child.status}."

@agent("family", isolation="process", timeout=60)
def family(ctx: BlockingContext, n: int) -> int:
    """A process with a process of its own."""
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"])
    note(ctx, f"pid:{os.getpid()}")
    note(ctx, f"pid:{child.pid}")
    time.sleep(n * 0.05)
    child.kill()
    child.wait()
    return n
'''
KINDS = ("quick", "talker", "stepper", "parent", "family")
APIS = ("grpc", "http", "a2a", "mcp")
GIVES_UP = 90.0
"""How long a client keeps reconnecting, in seconds."""


def project(root: Path) -> Path:
    (root / ".remit" / "agents").mkdir(parents=True, exist_ok=True)
    (root / ".remit" / "agents" / "load.py").write_text(AGENTS)
    (root / "remit.toml").write_text("describe_seconds = 60\n")  # all agents are described before it serves, even on a busy machine
    return root


@dataclass
class Place:
    """Addresses of the server. They stay the same over restarts."""

    root: Path
    port: int

    @property
    def token(self) -> str:
        return (self.root / ".remit" / "run" / "serve.token").read_text().strip()

    @contextlib.asynccontextmanager
    async def client(self, api: str) -> AsyncIterator[ApiClient]:
        """Open a new connection."""
        url = f"http://127.0.0.1:{self.port}"
        async with contextlib.AsyncExitStack() as closing:
            if api == "grpc":
                import grpc.aio

                from support.apis.over_grpc import GrpcClient

                options = [("grpc.use_local_subchannel_pool", 1)]
                channel = grpc.aio.insecure_channel(f"unix:{self.root}/.remit/run/grpc.sock", options=options)
                yield GrpcClient(await closing.enter_async_context(channel), "")
            elif api == "http":
                import httpx

                from support.apis.over_http import HttpClient

                yield HttpClient(await closing.enter_async_context(httpx.AsyncClient(base_url=url, timeout=30, verify=False)), self.token)
            elif api == "a2a":
                from support.apis.over_a2a import a2a_client

                yield await a2a_client(closing, url, self.token, "JSONRPC")
            else:
                from support.apis.over_mcp import mcp_client

                yield await mcp_client(closing, f"{url}/mcp", self.token)


@dataclass
class LoadTask:
    """Client with one task."""

    api: str
    kind: str
    key: str
    number: int
    """Amount of work: twenty units take a second."""
    begins_in: int = 0
    """Index of the server run in which the task starts."""
    task_ids: list[str] = field(default_factory=list)
    heard: list[Said] = field(default_factory=list)
    seen: Seen | None = None
    breaks: int = 0
    """Number of reconnections."""

    async def run(self, place: Place) -> None:
        ends = asyncio.get_running_loop().time() + GIVES_UP
        while self.seen is None:
            try:
                async with place.client(self.api) as api:
                    await self._follow(api)
            except Exception as error:  # a dying server causes different errors in each client
                if isinstance(error, ApiFault) and error.code not in (None, "STOPPING"):
                    raise
                if is_cancelled() or asyncio.get_running_loop().time() > ends:
                    raise  # some clients turn a cancellation into their own error
                self.breaks += 1
                await asyncio.sleep(0.2)

    async def _follow(self, api: ApiClient) -> None:
        if not self.task_ids or self.breaks:  # the key identifies the same task on every request
            arguments: dict[str, Any] = {"target": self.kind, "parameters": {"n": self.number}, "key": self.key}
            self.task_ids.append(await api.execute(arguments))
        last = max((said.number or 0 for said in self.heard), default=0)
        async for said in api.stream(self.task_ids[0], last):
            if said.kind == "end":
                self.seen = said.seen if said.seen is not None and said.seen.has_ended else None
            elif api.traits.numbers_chunks:
                self.heard.append(said)


def is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def pids_noted(root: Path) -> list[int]:
    folder = root / ".remit" / "marks"
    files = folder.iterdir() if folder.is_dir() else ()
    return [int(word[4:]) for file in files for word in file.read_text().split() if word.startswith("pid:")]


def runs_noted(root: Path, session_id: str) -> int:
    file = root / ".remit" / "marks" / session_id
    return file.read_text().split().count("run") if file.exists() else 0
