"""Adaptive limits: the timeout and idle limit of an agent, learned from its runs. Pure decisions; `LimitLearner` keeps the state.

A run that was cut off does not show how long the work takes; it only shows that the limit was too short, if the agent was still working. So
the timeout is twice the 99th percentile of completed runs, and at least twice any limit at which a working run was cut off."""

from collections.abc import Sequence
from typing import NamedTuple

from remit.core.deadline import TimeLimits

SAMPLES = 20
"""Completed runs required before a limit is learned."""
KEPT = 200
"""Number of newest completed runs that count."""
SHARE = 0.99
SHORTEST_IDLE_SECONDS = 30.0


class RunSample(NamedTuple):
    """A finished run, from the store."""

    seconds: float
    is_completed: bool
    """False: its deadline or idle limit stopped it."""
    timeout_seconds: float
    largest_silence: float | None = None
    """Longest pause between two of its own signs of life; None: it gave none."""
    last_silence: float | None = None
    """Pause before its end."""


class LearnedLimits(NamedTuple):
    timeout_seconds: float | None
    """None: the setting applies."""
    idle_seconds: float | None
    completed: int
    """Completed runs that the limits were learned from."""
    cut_off: int
    """Runs that the deadline stopped while they were working."""

    @property
    def reason(self) -> str:
        cut = f", {self.cut_off} cut off at work" if self.cut_off else ""
        return f"learned from {self.completed} completed runs{cut}"


def learned_limits(samples: Sequence[RunSample], limits: TimeLimits) -> LearnedLimits | None:
    """Limits learned from the newest runs of one agent, newest first. None: too little data."""
    completed = [one for one in samples if one.is_completed][:KEPT]
    idle = _idle(completed)
    cut_off = [one.timeout_seconds for one in samples if _was_at_work(one, limits, idle)]
    wanted = 2 * max(cut_off, default=0.0)
    if len(completed) >= SAMPLES:
        wanted = max(wanted, 2 * percentile([one.seconds for one in completed]))
    timeout = min(wanted, limits.maximum_seconds)
    is_longer = timeout > limits.default_seconds
    if idle is not None and idle >= (timeout if is_longer else limits.default_seconds):
        idle = None
    if not is_longer and idle is None:
        return None
    return LearnedLimits(timeout if is_longer else None, idle, len(completed), len(cut_off))


def _idle(completed: Sequence[RunSample]) -> float | None:
    """The idle limit, for agents that give signs of life."""
    silences = [one.largest_silence for one in completed if one.largest_silence is not None]
    if len(silences) < SAMPLES or len(silences) < 0.9 * len(completed):
        return None
    return max(SHORTEST_IDLE_SECONDS, 3 * percentile(silences))


def _was_at_work(run: RunSample, limits: TimeLimits, idle: float | None) -> bool:
    """Whether a limit that was not shorter than usual cut it off shortly after a sign of life. A silent run may have hung, so it does not
    raise the limit."""
    if run.is_completed or run.timeout_seconds < limits.default_seconds or run.seconds < 0.9 * run.timeout_seconds:
        return False
    if run.last_silence is None:
        return False
    return run.last_silence <= (idle or max(SHORTEST_IDLE_SECONDS, 0.2 * run.seconds))


def percentile(values: Sequence[float], share: float = SHARE) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
