"""Learned limits on simulated, seeded environments: wasted seconds and premature stops with adaptive limits, compared with fixed settings.

The decisions are those of the product (`core.adaptive`); only the runs are simulated. Environments: long-tailed work with a generous
default, the same with a default that cuts off 39 %, work of two kinds, and recorded runs (`recorded_runs.json`).
"""

import json
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Figure
from bench.sizes import Sizes
from remit.core.adaptive import RunSample, learned_limits
from remit.core.deadline import TimeLimits

RECORDED = Path(__file__).with_name("recorded_runs.json")
"""Duration and longest silence of 120 runs of an agent that hashes remit's sources and reports each file, scaled by 1,000."""
RUNS = 1_500
WINDOW = 400
HANGING = 0.04
AT_ONCE = 10
"""Runs between two reads of the history, unless one was stopped."""

Work = tuple[float, float]
"""Seconds of work and the longest silence during it."""


@dataclass(frozen=True, slots=True)
class Environment:
    name: str
    limits: TimeLimits
    draw: Callable[[random.Random], Work]


def _long_tailed(chance: random.Random) -> Work:
    return _spoken(chance, chance.lognormvariate(4.787, 0.9), 6.0)  # a median of 120 s


def _of_two_kinds(chance: random.Random) -> Work:
    is_long = chance.random() < 0.2
    return _spoken(chance, chance.lognormvariate(6.8 if is_long else 3.4, 0.4), 6.0)


def _spoken(chance: random.Random, seconds: float, every: float) -> Work:
    """Run with a heartbeat about every so many seconds."""
    at = largest = 0.0
    while at < seconds:
        gap = chance.lognormvariate(0.0, 1.0) * every
        largest = max(largest, min(gap, seconds - at))
        at += gap
    return seconds, largest


@dataclass(slots=True)
class Outcome:
    wasted: float = 0.0
    """Seconds of runs without a result."""
    premature: int = 0
    """Runs that would have completed and were stopped."""


def simulate(environment: Environment, runs: Sequence[Work], seed: int, *, learns: bool) -> Outcome:
    chance, outcome = random.Random(seed), Outcome()
    history: deque[RunSample] = deque(maxlen=WINDOW)
    limits, learned = environment.limits, None
    for number, (seconds, silence) in enumerate(runs):
        if learns and (number % AT_ONCE == 0 or not history[0].is_completed):
            learned = learned_limits(history, limits)
        timeout = (learned and learned.timeout_seconds) or limits.default_seconds
        idle = (learned and learned.idle_seconds) or float("inf")
        if chance.random() < HANGING:  # it falls silent at a random moment
            spoke = chance.random() * min(seconds, timeout)
            ended = min(timeout, spoke + idle)
            outcome.wasted += ended
            history.appendleft(RunSample(ended, False, timeout, silence, ended - spoke))
        elif seconds > timeout or silence > idle:
            outcome.premature += 1
            ended = min(timeout, seconds)
            outcome.wasted += ended
            last = silence if silence > idle else chance.random() * silence
            history.appendleft(RunSample(ended, False, timeout, silence, last))
        else:
            history.appendleft(RunSample(seconds, True, timeout, silence, 0.0))
    return outcome


async def measure(sizes: Sizes, _wanted: frozenset[str]) -> list[Figure]:
    environments = [
        Environment("long-tailed work, 1,800 s", TimeLimits(default_seconds=1800, maximum_seconds=3600), _long_tailed),
        Environment("the same, cut off at 154 s", TimeLimits(default_seconds=154, maximum_seconds=3600), _long_tailed),
        Environment("work of two kinds", TimeLimits(default_seconds=3600, maximum_seconds=7200), _of_two_kinds),
        Environment("recorded runs", TimeLimits(default_seconds=300, maximum_seconds=600), _replayed(json.loads(RECORDED.read_text()))),
    ]
    return [figure for environment in environments for figure in _figures(environment, sizes.seeds)]


def _figures(environment: Environment, seeds: int) -> list[Figure]:
    plain, learned = [], []
    for seed in range(seeds):
        chance = random.Random(1000 + seed)
        runs = [environment.draw(chance) for _ in range(RUNS)]
        plain.append(simulate(environment, runs, seed, learns=False))
        learned.append(simulate(environment, runs, seed, learns=True))
    share = sum(one.wasted for one in learned) / sum(one.wasted for one in plain)
    premature = sum(one.premature for one in learned) / (RUNS * seeds)
    before = sum(one.premature for one in plain) / (RUNS * seeds)
    worst = max(one.wasted / usual.wasted for one, usual in zip(learned, plain, strict=True))
    return [
        Figure(
            section="limits",
            what=f"{environment.name}: wasted seconds against the settings, mean of {seeds} seeds",
            measured=f"{1 - share:.1%} fewer",
            target="≥ 60% fewer",
            is_met=share <= 0.4,
        ),
        Figure(
            section="limits",
            what=f"{environment.name}: wasted seconds of the worst of {seeds} seeds, against the settings",
            measured=f"{worst:.2f} times",
            target="≤ 1.01 times",
            is_met=worst <= 1.01,
        ),
        Figure(
            section="limits",
            what=f"{environment.name}: premature stops, mean of {seeds} seeds (settings: {before:.1%})",
            measured=f"{premature:.2%}",
            target="≤ 0.5%",
            is_met=premature <= 0.005,
        ),
    ]


def _replayed(recorded: Sequence[Work]) -> Callable[[random.Random], Work]:
    return lambda chance: chance.choice(recorded)
