"""Clocks for tests: one whose wall time jumps like a badly set machine's, and one that only moves on request.

The engine enforces limits by the loop's own clock, which no test should change: `JumpingClock` changes dates, not durations. `ManualClock`
is for code that receives its time as a value (guards, budgets, the ledger)."""

import time

from remit import Clock


class JumpingClock:
    """The system's clock, with a wall time that can be set forward and back at run time."""

    def __init__(self) -> None:
        self.offset_seconds = 0.0

    def jump(self, seconds: float) -> None:
        self.offset_seconds += seconds

    def wall(self) -> float:
        return time.time() + self.offset_seconds

    def as_clock(self) -> Clock:
        return Clock(wall=self.wall)


class ManualClock:
    """Both clocks only move on request."""

    def __init__(self, wall: float = 1_766_700_000.0, monotonic: float = 1000.0) -> None:
        self.wall_seconds = wall
        self.monotonic_seconds = monotonic

    def advance(self, seconds: float) -> None:
        self.wall_seconds += seconds
        self.monotonic_seconds += seconds

    def as_clock(self) -> Clock:
        return Clock(monotonic=lambda: self.monotonic_seconds, wall=lambda: self.wall_seconds)
