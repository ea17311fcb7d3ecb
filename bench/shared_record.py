"""postgres: a record in PostgreSQL on loopback. A child in its caller's process, and a chunk to a follower in another process."""

import asyncio
import importlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.figures import Figure, median, milliseconds, percentile
from bench.sizes import Sizes
from remit import Context, Remit, agent

SECTION = "postgres"
CHILD_SECONDS = 0.002
CHUNK_SECONDS = 0.020
CHUNKS = 100
TALKER = """
import asyncio, sys, time
from remit import Context, Remit, agent

@agent("talks", timeout=60)
async def talks(ctx: Context, count: int) -> None:
    await asyncio.sleep(1)
    for _ in range(count):
        ctx.emit(time.time())
        await asyncio.sleep(0.02)

async def main() -> None:
    async with Remit.open(sys.argv[1], agents=[talks], settings={"store": {"url": sys.argv[2]}}) as remit:
        handle = await remit.start("talks", count=int(sys.argv[3]))
        print(handle.session_id, flush=True)
        await handle.result()

asyncio.run(main())
"""


@agent("child")
async def child() -> int:
    return 1


@agent("caller", timeout=100)
async def caller(ctx: Context, count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        await ctx.delegate("child")
        seconds.append(time.perf_counter() - began)
    return seconds


async def measure(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    servers = importlib.import_module("support.postgres")  # the server of the tests
    with servers.postgres_server() as server, tempfile.TemporaryDirectory() as root:
        async with Remit.open(root, agents=[child, caller], settings={"store": {"url": server.url}}) as remit:
            await remit.delegate("caller", count=20)
            children = (await remit.delegate("caller", count=20 * sizes.rounds)).data
            chunks = await _follow(remit, root, server.url)
    return [
        _figure("a child in the process of its caller, p50", children, CHILD_SECONDS),
        _figure("a chunk to a follower in another process, p50", chunks, CHUNK_SECONDS),
    ]


async def _follow(remit: Remit, root: str, url: str) -> list[float]:
    words = [sys.executable, "-c", TALKER, root, url, str(CHUNKS)]
    talker = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
    assert talker.stdout is not None
    session = (await talker.stdout.readline()).decode().strip()
    late = [time.time() - event.body["chunk"] async for event in remit.follow(session) if event.kind == "data"]
    await talker.wait()
    return late


def _figure(what: str, seconds: list[float], target: float) -> Figure:
    middle = median(seconds)
    measured = f"{milliseconds(middle)} (p95 {milliseconds(percentile(seconds, 0.95))})"
    return Figure(section=SECTION, what=what, measured=measured, target=f"≤ {milliseconds(target)}", is_met=middle <= target)
