"""defaults: what the default settings (learned limits observed) cost against everything that learns switched off, in the same round."""

import tempfile
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from bench.agents import noop
from bench.figures import Figure, median, percentile
from bench.sizes import Sizes
from bench.speed import One, flood_rate, timed_sequence
from bench.waiting import memory_each
from remit import Remit

TARGET = 1.03
MODES = ("off", "observe")
ROUNDS = 3
"""Times the rounds of the other sections: a difference of a few percent needs more of them."""


async def measure(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    cost: dict[str, dict[str, list[float]]] = {mode: {"W1": [], "W2": []} for mode in MODES}
    async with AsyncExitStack() as stack:
        calls: dict[str, One] = {}
        for mode in MODES:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="remit-bench-")))
            remit = await stack.enter_async_context(Remit.open(folder, agents=[noop], settings={"adaptive_limits": mode}))
            calls[mode] = partial(remit.delegate, "noop")
            await timed_sequence(calls[mode], 50)
        for number in range(sizes.rounds * ROUNDS):
            for mode in MODES if number % 2 else reversed(MODES):
                taken = await timed_sequence(calls[mode], sizes.sequential // ROUNDS)
                rate = await flood_rate(calls[mode], sizes.flood // ROUNDS, sizes.in_flight)
                cost[mode]["W1"].append(percentile(taken, 0.5))
                cost[mode]["W2"].append(1 / rate)
    figures = []
    for name in ("W1", "W2"):
        ratio = median([on / off for on, off in zip(cost["observe"][name], cost["off"][name], strict=True)])
        figures.append(_figure(name, ratio))
    memory = {mode: await memory_each("remit", sizes.waiting, adaptive_limits=mode) for mode in MODES}
    return [*figures, _figure("W4", memory["observe"] / memory["off"])]


def _figure(name: str, ratio: float) -> Figure:
    what = f"{name} with learned limits observed, against all of it off"
    return Figure(section="defaults", what=what, measured=f"{ratio:.3f} times", target=f"≤ {TARGET} times", is_met=ratio <= TARGET)
