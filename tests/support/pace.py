"""Time limits that hold on a busy machine: scaled by a floor that is measured in the same test.

began = time.monotonic()
…
assert time.monotonic() - began < allowed(2)   # two seconds on a quiet machine
"""

import subprocess
import time

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
