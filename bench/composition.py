"""composition: cost of `parallel` compared with `ctx.gather`, with the same number of concurrent children in the same round.

Both are one delegation of a caller with 100 children and the same parameters; the composition also receives, checks and records its
calls. Measured with children that do nothing and with children as slow as a quick tool. The order alternates.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.figures import Figure, median
from bench.sizes import Sizes
from remit import Context, Remit, Return, agent, call, parallel

WIDTH = 100
TARGET = 1.05
TOOL_SECONDS = 0.05


@agent("answer")
async def answer(n: int, seconds: float = 0.0) -> int:
    if seconds:
        await asyncio.sleep(seconds)
    return n


@agent("gathering")
async def gathering(ctx: Context, width: int, seconds: float = 0.0) -> list[Any]:
    more = {"seconds": seconds} if seconds else {}
    return [one.data for one in await ctx.gather(*(call("answer", n=n, **more) for n in range(width)), limit=width)]


async def measure(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        async with Remit.open(folder, agents=[answer, gathering], settings={"budget": {"delegations": None}}) as remit:
            for seconds, words in ((0.0, "that do nothing"), (TOOL_SECONDS, f"of {TOOL_SECONDS * 1000:g} ms")):
                figures += await _compared(remit, sizes.rounds * 12 if not seconds else sizes.rounds * 4, seconds, words)
    return figures


async def _compared(remit: Remit, rounds: int, seconds: float, words: str) -> list[Figure]:
    more = {"seconds": seconds} if seconds else {}
    steps = parallel(*(call("answer", n=n, **more) for n in range(WIDTH)), limit=WIDTH)

    async def taken(ask: Callable[[], Awaitable[Return]]) -> float:
        began = time.perf_counter()
        done = await ask()
        assert done.data == list(range(WIDTH)), done
        return time.perf_counter() - began

    gathered, composed, ratios = [], [], []

    def gather() -> Awaitable[Return]:
        return remit.delegate("gathering", width=WIDTH, seconds=seconds)

    def compose() -> Awaitable[Return]:
        return remit.delegate(steps)

    for number in range(rounds + 4):
        if number % 2:
            by_gather, by_parallel = await taken(gather), await taken(compose)
        else:
            by_parallel, by_gather = await taken(compose), await taken(gather)
        if number >= 4:  # warm
            gathered.append(by_gather)
            composed.append(by_parallel)
            ratios.append(by_parallel / by_gather)
    what = f"{WIDTH} children {words} at once"
    return [
        Figure(section="composition", what=f"floor: ctx.gather, {what}, p50", measured=f"{median(gathered) * 1000:.1f} ms"),
        Figure(section="composition", what=f"remit, parallel, {what}, p50", measured=f"{median(composed) * 1000:.1f} ms"),
        Figure(
            section="composition",
            what=f"remit, times the floor, {what}, p50 of the pairs",
            measured=f"{median(ratios):.3f}",
            target=f"≤ {TARGET}",
            is_met=median(ratios) <= TARGET,
        ),
    ]
