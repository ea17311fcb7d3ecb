"""processes: an agent in a separate process, first start and later starts; and W1 with `durability="power"`.

The floor of "power" is that of W1 with an fsync in each commit.
"""

import tempfile
import time
from pathlib import Path

from bench.agents import noop, noop_in_process
from bench.figures import Figure, median, microseconds, milliseconds, percentile
from bench.floors import CommittedByThread, CommittedInLoop, Floor
from bench.sizes import Sizes
from bench.speed import timed_sequence
from remit import Remit

FIRST_SECONDS = 0.250
LATER_SECONDS = 0.010
POWER_TARGET = 1.7
_WARM = 5
_SEQUENTIAL = 100


async def measure_processes(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    first: list[float] = []
    later: list[float] = []
    for _ in range(max(1, sizes.rounds // 2)):
        with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
            async with Remit.open(folder, agents=[noop_in_process]) as remit:

                async def delegated(remit: Remit = remit) -> None:
                    done = await remit.delegate("noop_in_process")
                    assert done.ok, done

                began = time.perf_counter()
                await delegated()
                first.append(time.perf_counter() - began)
                await timed_sequence(delegated, _WARM)
                later.append(percentile(await timed_sequence(delegated, sizes.commands), 0.5))
    return [
        _figure("processes", "an agent in a process of its own, the first after opening", median(first), FIRST_SECONDS),
        _figure("processes", "later ones, one by one, p50", median(later), LATER_SECONDS),
    ]


async def measure_power(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    ours: list[float] = []
    floors: list[float] = []
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        async with Remit.open(folder, agents=[noop], durability="power") as remit:
            await timed_sequence(lambda: remit.delegate("noop"), _WARM)
            for number in range(sizes.rounds):
                contenders: list[Floor] = [
                    kind(Path(folder) / f"{kind.__name__}{number}.db", synchronous="FULL") for kind in (CommittedByThread, CommittedInLoop)
                ]
                ours.append(percentile(await timed_sequence(lambda: remit.delegate("noop"), _SEQUENTIAL), 0.5))
                floors.append(min([percentile(await timed_sequence(floor.delegate, _SEQUENTIAL), 0.5) for floor in contenders]))
                for floor in contenders:
                    floor.close()
    ratio = median([one / floor for one, floor in zip(ours, floors, strict=True)])
    return [
        Figure(
            section="power",
            what="the better durable floor with an fsync per commit, one by one, p50",
            measured=microseconds(median(floors)),
        ),
        Figure(section="power", what='remit with durability="power", one by one, p50', measured=microseconds(median(ours))),
        Figure(
            section="power",
            what="remit against that floor",
            measured=f"{ratio:.2f} times",
            target=f"≤ {POWER_TARGET:g} times",
            is_met=ratio <= POWER_TARGET,
        ),
    ]


def _figure(section: str, what: str, seconds: float, target: float) -> Figure:
    return Figure(section=section, what=what, measured=milliseconds(seconds), target=f"≤ {milliseconds(target)}", is_met=seconds <= target)
