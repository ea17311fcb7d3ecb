"""Time: absolute deadlines that only shrink on the way down, and the two clocks."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from remit.core.errors import Misused

SOFT_SHARE = 0.10
LONGEST_SECONDS = 1e9
"""Beyond it is no time to wait: infinity, and numbers no clock can hold."""
SOFT_GRACE_MAX_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """The default and the maximum timeout of an agent or command."""

    default_seconds: float
    maximum_seconds: float


class Deadline(NamedTuple):
    """Moments on the monotonic clock."""

    hard_at: float
    """Stopped then, whatever it does."""
    soft_at: float
    """Told then to hand in what it has."""
    timeout_seconds: float
    """The time between the start and `hard_at`."""

    def remaining(self, now: float) -> float:
        return max(0.0, self.hard_at - now)


def grace_seconds(timeout_seconds: float) -> float:
    share = timeout_seconds * SOFT_SHARE
    return share if share < SOFT_GRACE_MAX_SECONDS else SOFT_GRACE_MAX_SECONDS


def allowed_timeout(requested: float | None, limits: TimeLimits) -> float:
    """The timeout to use, before the caller's own deadline shrinks it; above the maximum is the caller's mistake."""
    if requested is None:
        return min(limits.default_seconds, limits.maximum_seconds)
    if isinstance(requested, bool) or not isinstance(requested, int | float):
        raise Misused(
            f"timeout must be a number of seconds, not {requested!r}.",
            code="INVALID_PARAMETERS",
            advice="Pass e.g. timeout=30.",
        )
    if not 0 < requested < LONGEST_SECONDS:
        raise Misused(
            f"timeout must be a positive number of seconds, not {requested!r}.",
            code="INVALID_PARAMETERS",
            advice="Pass e.g. timeout=30.",
        )
    if requested > limits.maximum_seconds:
        raise Misused(
            f"timeout {requested:g} s is above the maximum of {limits.maximum_seconds:g} s.",
            code="INVALID_PARAMETERS",
            advice=f"Ask for at most {limits.maximum_seconds:g} s, or raise the maximum in remit.toml ([timeouts]).",
        )
    return float(requested)


def effective_deadline(timeout_seconds: float, now: float, caller_hard_at: float | None = None) -> Deadline:
    """`min(requested, maximum, what the caller has left)`, made absolute."""
    hard_at = now + timeout_seconds
    if caller_hard_at is not None and hard_at > caller_hard_at:
        hard_at, timeout_seconds = caller_hard_at, max(0.0, caller_hard_at - now)
    return Deadline(hard_at, hard_at - grace_seconds(timeout_seconds), timeout_seconds)


# ---- clocks


@dataclass(frozen=True, slots=True)
class Clock:
    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time


SYSTEM_CLOCK = Clock()


def iso(wall_seconds: float) -> str:
    """The moment as people and JSON files read it: UTC, to the millisecond."""
    return datetime.fromtimestamp(wall_seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
