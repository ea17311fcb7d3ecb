"""W1 to W3: cost of a delegation, compared with the floors in the same round."""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.agents import level_one, level_two, noop
from bench.figures import Figure, median, microseconds, per_second, percentile
from bench.floors import CommittedByThread, CommittedInLoop, Floor, InMemory
from bench.sizes import Sizes
from remit import Remit

OURS = "remit"
FLOORS = {
    "memory": "floor: bare task, in memory",
    "thread": "floor: durable, committed by a writer thread",
    "loop": "floor: durable, committed in the loop",
}
_DURABLE = ("thread", "loop")
W1_TARGET = 2.2
W2_TARGET = 0.40
W3_TARGET = 3.2
"""Multiple of W1: three delegations plus the cost of being a child."""

One = Callable[[], Awaitable[Any]]


async def timed_sequence(one: One, count: int) -> list[float]:
    """Seconds for each of `count` sequential runs."""
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        await one()
        taken.append(time.perf_counter() - began)
    return taken


async def flood_rate(one: One, count: int, in_flight: int) -> float:
    """Runs per second with `in_flight` at a time."""
    left = count

    async def worker() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await one()

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(worker())
    return count / (time.perf_counter() - began)


@dataclass(slots=True)
class _Rounds:
    """Results of each contender in each round."""

    middle: dict[str, list[float]] = field(default_factory=dict)
    tail: dict[str, list[float]] = field(default_factory=dict)
    rate: dict[str, list[float]] = field(default_factory=dict)
    chain: list[float] = field(default_factory=list)

    def note_sequence(self, name: str, taken: Sequence[float]) -> None:
        self.middle.setdefault(name, []).append(percentile(taken, 0.5))
        self.tail.setdefault(name, []).append(percentile(taken, 0.99))

    def note_rate(self, name: str, rate: float) -> None:
        self.rate.setdefault(name, []).append(rate)


async def measure(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    rounds = _Rounds()
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        async with Remit.open(folder, agents=[noop, level_one, level_two]) as remit:
            await _warm_up(remit)
            for number in range(sizes.rounds):
                await _one_round(remit, Path(folder), number, sizes, wanted, rounds)
    figures: list[Figure] = []
    if "W1" in wanted:
        figures += _w1(rounds)
    if "W2" in wanted:
        figures += _w2(rounds, sizes)
    if "W3" in wanted:
        figures += _w3(rounds)
    return figures


async def _warm_up(remit: Remit) -> None:
    for _ in range(50):
        done = await remit.delegate("level_one")
        assert done.ok, done  # a refusal would be quick, and would look like speed


async def _one_round(remit: Remit, folder: Path, number: int, sizes: Sizes, wanted: frozenset[str], rounds: _Rounds) -> None:
    floors: dict[str, Floor] = {
        "memory": InMemory(),
        "thread": CommittedByThread(folder / f"thread{number}.db"),
        "loop": CommittedInLoop(folder / f"loop{number}.db"),
    }
    contenders: dict[str, One] = {OURS: lambda: remit.delegate("noop")}
    contenders |= {name: floor.delegate for name, floor in floors.items()}
    try:
        for name, one in _rotated(list(contenders.items()), number):
            await timed_sequence(one, min(50, sizes.sequential))
            if "W1" in wanted or ("W3" in wanted and name == OURS):
                rounds.note_sequence(name, await timed_sequence(one, sizes.sequential))
            if "W2" in wanted:
                rounds.note_rate(name, await flood_rate(one, sizes.flood, sizes.in_flight))
        if "W3" in wanted:
            rounds.chain.append(percentile(await timed_sequence(lambda: remit.delegate("level_one"), sizes.chains), 0.5))
    finally:
        for floor in floors.values():
            floor.close()


def _rotated(items: list[tuple[str, One]], by: int) -> list[tuple[str, One]]:
    """Rotate the order, so that after-effects of one contender are spread over the others."""
    by %= len(items)
    return items[by:] + items[:by]


def _w1(rounds: _Rounds) -> list[Figure]:
    def shown(name: str) -> str:
        return f"{microseconds(median(rounds.middle[name]))} (p99 {microseconds(median(rounds.tail[name]))})"

    better = [min(pair) for pair in zip(*(rounds.middle[name] for name in _DURABLE), strict=True)]
    ratio = median([ours / floor for ours, floor in zip(rounds.middle[OURS], better, strict=True)])
    figures = [Figure(section="W1", what=f"{what}, one by one, p50", measured=shown(name)) for name, what in FLOORS.items()]
    figures.append(Figure(section="W1", what="remit, one by one, p50", measured=shown(OURS)))
    figures.append(
        Figure(
            section="W1",
            what="remit against the better durable floor",
            measured=f"{ratio:.2f} times",
            target=f"≤ {W1_TARGET:g} times",
            is_met=ratio <= W1_TARGET,
        )
    )
    return figures


def _w2(rounds: _Rounds, sizes: Sizes) -> list[Figure]:
    load = f"{sizes.flood:,} no-ops, {sizes.in_flight} in flight"
    better = [max(pair) for pair in zip(*(rounds.rate[name] for name in _DURABLE), strict=True)]
    share = median([ours / floor for ours, floor in zip(rounds.rate[OURS], better, strict=True)])
    named = {**FLOORS, OURS: "remit"}
    figures = [Figure(section="W2", what=f"{what}, {load}", measured=per_second(median(rounds.rate[name]))) for name, what in named.items()]
    figures.append(
        Figure(
            section="W2",
            what="remit against the better durable floor",
            measured=f"{share:.1%}",
            target=f"≥ {W2_TARGET:.0%}",
            is_met=share >= W2_TARGET,
        )
    )
    return figures


def _w3(rounds: _Rounds) -> list[Figure]:
    ratio = median([chain / one for chain, one in zip(rounds.chain, rounds.middle[OURS], strict=True)])
    return [
        Figure(section="W3", what="remit, chain of three levels, p50", measured=microseconds(median(rounds.chain))),
        Figure(
            section="W3",
            what="chain of three levels against one delegation",
            measured=f"{ratio:.2f} times W1",
            target=f"≤ {W3_TARGET:g} times",
            is_met=ratio <= W3_TARGET,
        ),
    ]
