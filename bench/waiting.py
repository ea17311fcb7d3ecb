"""W4: memory per delegation in flight, by the growth of a new process (`python -m bench.waiting COUNT`).

A separate process, because memory freed by an earlier measurement would be reused and make the figure look better.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from typing import Any

from bench.figures import Figure
from bench.floors import TIMEOUT_SECONDS
from bench.sizes import Sizes
from remit import Remit, agent

TARGET_BYTES = 12 * 1024
_START_LIMIT_SECONDS = 60.0
_released: asyncio.Event
_arrived = 0


async def wait_for_release() -> None:
    global _arrived
    _arrived += 1
    await _released.wait()


waiter = agent("waiter")(wait_for_release)


async def measure(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    ours = await memory_each("remit", sizes.waiting)
    bare = await memory_each("bare", sizes.waiting)
    load = f"{sizes.waiting:,} in flight, resident memory each"
    return [
        Figure(section="W4", what=f"floor: bare task with timeout, {load}", measured=f"{bare / 1024:.1f} KB"),
        Figure(
            section="W4",
            what=f"remit with its caller's task, {load}",
            measured=f"{ours / 1024:.1f} KB",
            target=f"≤ {TARGET_BYTES // 1024} KB",
            is_met=ours <= TARGET_BYTES,
        ),
    ]


async def memory_each(whose: str, count: int, **settings: str) -> float:
    """Resident bytes for each of `count` delegations in flight, in a fresh process with these settings."""
    command = (sys.executable, "-m", "bench.waiting", whose, str(count))
    environment = os.environ | {f"REMIT_{name.upper()}": value for name, value in settings.items()}
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=environment)
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise RuntimeError(f"the measuring process ended with {process.returncode}")
    return float(said)


async def _held_by_ours(count: int) -> float:
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        async with Remit.open(folder, agents=[waiter], slots=2 * count) as remit:
            return await _held_by_each(lambda: remit.delegate("waiter"), count)


async def _held_by_bare(count: int) -> float:
    async def one() -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await asyncio.get_running_loop().create_task(wait_for_release())

    return await _held_by_each(one, count)


async def _held_by_each(one: Callable[[], Awaitable[Any]], count: int) -> float:
    await _all_waiting(one, count // 20 + 1)  # first use loads modules and fills caches, which is not the cost of one more delegation
    before = _resident_bytes()
    return (await _all_waiting(one, count) - before) / count


async def _all_waiting(one: Callable[[], Awaitable[Any]], count: int) -> int:
    """Resident bytes while `count` delegations are in flight and have reached their agent."""
    global _released, _arrived
    _released, _arrived = asyncio.Event(), 0

    async def caller() -> None:
        await one()

    tasks = [asyncio.create_task(caller()) for _ in range(count)]
    async with asyncio.timeout(_START_LIMIT_SECONDS):
        while _arrived < count:  # noqa: ASYNC110 - an event for each arrival would be part of the measurement
            await asyncio.sleep(0.01)
    held = _resident_bytes()
    _released.set()
    await asyncio.gather(*tasks)
    return held


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    print(asyncio.run({"remit": _held_by_ours, "bare": _held_by_bare}[sys.argv[1]](int(sys.argv[2]))))
