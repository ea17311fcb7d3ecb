"""Time limits that hold on a busy machine: scaled by a floor that is measured in the same test.

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
"""What the floor takes on a quiet machine: one process started and waited for, and one millisecond slept."""
ROUNDS = 5


def floor() -> float:
    """Seconds that one process and one short sleep take right now; the worst of a few rounds."""
    worst = 0.0
    for _ in range(ROUNDS):
        began = time.perf_counter()
        subprocess.run(["true"], check=True)
        time.sleep(0.001)
        worst = max(worst, time.perf_counter() - began)
    return worst


def allowed(seconds: float) -> float:
    """`seconds` of a quiet machine in seconds of this machine now; at least twice as many."""
    return seconds * max(2.0, floor() / QUIET_SECONDS)


ENOUGH_SECONDS = 60.0
"""For what happens soon: only a fault takes longer, on whatever machine."""


async def until(holds: Callable[[], Any], seconds: float = ENOUGH_SECONDS) -> Any:
    """What `holds()` gives, once that is true."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.01)
    return found


def wait_until(holds: Callable[[], Any], seconds: float = ENOUGH_SECONDS) -> Any:
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
    return found
