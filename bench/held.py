"""held: sustained delegations per second of a server over one minute, tail latency, and memory growth.

Several clients send a new request as soon as they have an answer, over gRPC on the Unix socket of a separate server. Memory is the
server's resident set, sampled ten times after warm-up; a server that leaks would grow with every delegation.
"""

import asyncio
import time
from typing import Any

from bench.figures import Figure, median, milliseconds, per_second, percentile
from bench.serving import Served, noop_of, serving, tasks_at
from bench.sizes import Sizes
from bench.speed import One

TARGET_GROWTH = 0.10
_LOOKS = 10


async def measure(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    async with serving("grpc") as served, tasks_at(served.grpc) as tasks:
        one = noop_of(tasks)
        await _kept_busy(one, sizes.held_in_flight, sizes.held_warm_seconds)
        watching = asyncio.create_task(_watched(served, sizes.held_seconds))
        began = time.perf_counter()
        taken = await _kept_busy(one, sizes.held_in_flight, sizes.held_seconds)
        seconds, resident = time.perf_counter() - began, await watching
    return _figures(taken, seconds, resident, sizes)


async def _kept_busy(one: One, clients: int, seconds: float) -> list[float]:
    """Latency of each delegation in seconds."""
    end, taken = time.perf_counter() + seconds, []

    async def client() -> None:
        while (began := time.perf_counter()) < end:
            await one()
            taken.append(time.perf_counter() - began)

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return taken


async def _watched(served: Served, seconds: float) -> list[int]:
    found = [served.resident_bytes()]
    for _ in range(_LOOKS):
        await asyncio.sleep(seconds / _LOOKS)
        found.append(served.resident_bytes())
    return found


def _figures(taken: list[float], seconds: float, resident: list[int], sizes: Sizes) -> list[Figure]:
    load = f"{sizes.held_in_flight} clients for {seconds:.0f} s"
    growth = median(resident[-3:]) / median(resident[:3]) - 1
    shown: Any = f"{milliseconds(percentile(taken, 0.5))} (p99 {milliseconds(percentile(taken, 0.99))}, max {milliseconds(max(taken))})"
    return [
        Figure(section="held", what=f"remit, delegations over gRPC, {load}", measured=per_second(len(taken) / seconds)),
        Figure(section="held", what="each of them, p50", measured=shown),
        Figure(
            section="held",
            what=f"the server's memory after {len(taken):,} of them, against its beginning",
            measured=f"{growth:+.1%} ({resident[0] / 2**20:.0f} to {resident[-1] / 2**20:.0f} MB)",
            target=f"≤ +{TARGET_GROWTH:.0%}",
            is_met=growth <= TARGET_GROWTH,
        ),
    ]
