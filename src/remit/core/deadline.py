"""Time: absolute deadlines, which only shrink towards children, and the two clocks."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from remit.core.errors import Misused

LONGEST_SECONDS = 1e9
"""Longest accepted timeout. Excludes infinity and numbers that no clock can represent."""


class TimeLimits(NamedTuple):
    """The default and the maximum timeout of an agent or command."""

    default_seconds: float
    maximum_seconds: float


class Deadline(NamedTuple):
    """Moments on the monotonic clock."""

    hard_at: float
    """When it is stopped, whatever it does."""
    soft_at: float
    """When it is asked to return its result so far."""
    timeout_seconds: float
    """The time between the start and `hard_at`."""

    def remaining(self, now: float) -> float:
        return max(0.0, self.hard_at - now)


def allowed_timeout(requested: float | None, limits: TimeLimits) -> float:
    """The timeout to use, before the caller's own deadline shrinks it. Raises `Misused` above the maximum."""
    if requested is None:
        return min(limits.default_seconds, limits.maximum_seconds)
    if isinstance(requested, bool) or not isinstance(requested, int | float) or not 0 < requested < LONGEST_SECONDS:
        raise Misused(f"timeout must be a positive number of seconds, not {requested!r}.", advice="Pass e.g. timeout=30.")
    if requested > limits.maximum_seconds:
        raise Misused(
            f"timeout {requested:g} s is above the maximum of {limits.maximum_seconds:g} s.",
            advice=f"Ask for at most {limits.maximum_seconds:g} s, or raise the maximum in remit.toml ([timeouts]).",
        )
    return float(requested)


# ---- clocks


class Clock(NamedTuple):
    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time


SYSTEM_CLOCK = Clock()


def iso(wall_seconds: float) -> str:
    """UTC time to the millisecond, in ISO format."""
    return datetime.fromtimestamp(wall_seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
