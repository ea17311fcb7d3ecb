"""Time limits for a busy machine, scaled by a floor that is measured in the same test.

began = time.monotonic()
…
assert time.monotonic() - began < allowed(2)   # two seconds on a quiet machine
"""

import asyncio
import subprocess
import time
from collections.abc import Callable
from typing import Any

QUIET_SECONDS = 0.004
"""Duration of the floor on a quiet machine: start one process, wait for it, sleep one millisecond."""
ROUNDS = 5


def floor() -> float:
    """Current duration of one process and one short sleep; the maximum of a few rounds."""
    worst = 0.0
    for _ in range(ROUNDS):
        began = time.perf_counter()
        subprocess.run(["true"], check=True)
        time.sleep(0.001)
        worst = max(worst, time.perf_counter() - began)
    return worst


def allowed(seconds: float) -> float:
    """`seconds` of a quiet machine, scaled to the current load; at least doubled."""
    return seconds * max(2.0, floor() / QUIET_SECONDS)


ENOUGH_SECONDS = 60.0
"""Generous bound for events that happen soon: only a failure takes longer."""


async def until(condition: Callable[[], Any], seconds: float = ENOUGH_SECONDS) -> Any:
    """Wait for the first true value of `condition()`."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "the condition was not met in time"
        await asyncio.sleep(0.01)
    return found


def wait_until(condition: Callable[[], Any], seconds: float = ENOUGH_SECONDS) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "the condition was not met in time"
        time.sleep(0.02)
    return found
