"""The two clocks: one that never jumps, by which limits are kept, and the one people read, by which events are dated.

A wall clock that is set back or forward changes what is written, never how long an agent may run.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Clock:
    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time


SYSTEM_CLOCK = Clock()


def iso(wall_seconds: float) -> str:
    """The moment as people and JSON files read it: UTC, to the millisecond."""
    return datetime.fromtimestamp(wall_seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
