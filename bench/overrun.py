"""W5: time from the hard deadline of many sleeping children until their returns reach the caller."""

import asyncio
import tempfile

from bench.agents import sleeper
from bench.figures import Figure, milliseconds, percentile
from bench.sizes import Sizes
from remit import Context, Remit, agent
from remit.core.result import StopReason

TARGET_SECONDS = 0.030
_TIMEOUT_SECONDS = 0.8


async def _overruns(ctx: Context, count: int) -> list[float]:
    """Seconds between each child's deadline and the arrival of its return at the caller."""
    loop = asyncio.get_running_loop()

    async def one() -> float:
        due = loop.time() + _TIMEOUT_SECONDS
        done = await ctx.delegate("sleeper", timeout=_TIMEOUT_SECONDS)
        late = loop.time() - due
        assert done.stop_reason is StopReason.DEADLINE, done
        return late

    return await asyncio.gather(*(one() for _ in range(count)))


caller = agent("caller")(_overruns)


async def measure(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    settings = {"slots_total": 2 * sizes.sleepers, "budget": {"delegations": 2 * sizes.sleepers, "alive": 2 * sizes.sleepers}}
    late: list[float] = []
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        async with Remit.open(folder, agents=[caller, sleeper], settings=settings) as remit:
            await remit.delegate("caller", count=sizes.sleepers)  # warm up, like W1 and W2: threads started, ledger written once
            for _ in range(sizes.overruns):
                late += (await remit.delegate("caller", count=sizes.sleepers)).unwrap()
    tail = percentile(late, 0.99)
    return [
        Figure(
            section="W5",
            what=f"{sizes.sleepers} sleeping children over their deadline, return late by, p99",
            measured=f"{milliseconds(tail)} (p50 {milliseconds(percentile(late, 0.5))})",
            target=f"≤ {milliseconds(TARGET_SECONDS)}",
            is_met=tail <= TARGET_SECONDS,
        )
    ]
