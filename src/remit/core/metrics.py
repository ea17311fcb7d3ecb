"""Metrics of delegations: names and alerts in one table, sums and percentiles."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from remit.core.states import LIVE, State

_GROWTH = 1.02
_SHORTEST_SECONDS = 1e-4
_BUCKETS = 1150
"""Up to 8 days; longer values count as 8 days."""
_LOG_GROWTH = math.log(_GROWTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    name: str
    words: str
    unit: str
    """`1` for a share or a count, `s` for seconds, as in OpenTelemetry."""
    below: float | None = None
    """Alert if the value is lower."""
    above: float | None = None
    """Alert if the value is higher."""

    def is_alarming(self, value: float | None) -> bool:
        if value is None:
            return False
        return (self.below is not None and value < self.below) or (self.above is not None and value > self.above)


TOTAL = Metric(name="delegation.total", words="delegations requested", unit="1")
SUCCESS_RATE = Metric(name="delegation.success_rate", words="completed, of those that ended and were not cancelled", unit="1", below=0.95)
LATENCY_P99 = Metric(name="delegation.latency.p99", words="from the request to the outcome", unit="s", above=30.0)
TIMEOUT_RATE = Metric(name="delegation.timeout_rate", words="stopped at their deadline, of those not cancelled", unit="1", above=0.05)
ERRORS_BY_TARGET = Metric(name="delegation.errors.by_target", words="not completed, of the target's", unit="1", above=0.10)
ERRORS_BY_OPERATION = Metric(name="delegation.errors.by_operation", words="not completed, of the operation's", unit="1", above=0.10)
AVAILABILITY = Metric(name="agent.availability", words="of the operation's, those whose agent could be started", unit="1")
FAILED_STARTS = Metric(name="delegation.failed_starts", words="agent or what it requires not available, by operation", unit="1")
METRICS = (TOTAL, SUCCESS_RATE, LATENCY_P99, TIMEOUT_RATE, ERRORS_BY_TARGET, ERRORS_BY_OPERATION)


class Histogram:
    """A histogram of seconds."""

    __slots__ = ("_buckets", "count", "longest", "shortest")

    def __init__(self) -> None:
        self._buckets = [0] * _BUCKETS
        self.count = 0
        self.shortest = math.inf
        self.longest = 0.0

    def add(self, seconds: float) -> None:
        seconds = max(seconds, 0.0)  # the clock was set back
        place = 0 if seconds <= _SHORTEST_SECONDS else int(math.log(seconds / _SHORTEST_SECONDS) / _LOG_GROWTH) + 1
        self._buckets[min(place, _BUCKETS - 1)] += 1
        self.count += 1
        self.shortest = min(self.shortest, seconds)
        self.longest = max(self.longest, seconds)

    def percentile(self, share: float) -> float | None:
        """The nearest-rank percentile in seconds; None without values."""
        if not self.count:
            return None
        rank, seen = max(1, math.ceil(share * self.count)), 0
        for place, count in enumerate(self._buckets):
            seen += count
            if seen >= rank:
                middle = _SHORTEST_SECONDS * _GROWTH ** (place - 0.5) if place else 0.0
                return min(max(middle, self.shortest), self.longest)
        return self.longest


@dataclass(slots=True)
class Tally:
    """Sums that a store computes: counts by agent and state."""

    states: Counter[tuple[str, State]] = field(default_factory=Counter)
    latencies: Histogram = field(default_factory=Histogram)
    tokens: int = 0
    cost: float = 0.0
    tokens_of: Counter[str] = field(default_factory=Counter)
    """Tokens by agent."""
    failed_starts: Counter[str] = field(default_factory=Counter)
    """By agent: delegations that ended because it could not be started or reached."""

    def add(self, agent: str, state: State, seconds: float | None, tokens: int, cost: float, *, is_unavailable: bool = False) -> None:
        """Add a delegation. `seconds`: from the request to the outcome; None while it runs."""
        self.states[agent, state] += 1
        if seconds is not None and state not in (State.REFUSED, State.CANCELLED):
            self.latencies.add(seconds)
        self.tokens += tokens
        self.cost += cost
        if tokens:
            self.tokens_of[agent] += tokens
        if is_unavailable:
            self.failed_starts[agent] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A count and its total."""

    count: int
    total: int

    @property
    def rate(self) -> float | None:
        return self.count / self.total if self.total else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    metric: Metric
    value: float
    of: str | None = None
    """The target or operation, for a metric with a value for each."""

    def to_dict(self) -> dict[str, Any]:
        return {"metric": self.metric.name, "of": self.of, "value": self.value, "below": self.metric.below, "above": self.metric.above}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    since: float | None
    """Start of the period (wall clock); None: all on record."""
    until: float
    total: int
    live: int
    """Queued or running ones among them."""
    cancelled: int
    """Counted neither as success nor as error."""
    success: Share
    timeout: Share
    latency: Mapping[str, float | None]
    """Seconds by `p50`, `p95`, `p99`, `max`; without refused and cancelled ones."""
    errors_by_target: Mapping[str, Share]
    errors_by_operation: Mapping[str, Share]
    """By `target.operation`; an agent without operations by its name."""
    states: Mapping[str, int]
    tokens: int
    cost: float
    tokens_by_operation: Mapping[str, int]
    failed_starts: Mapping[str, int]
    """By operation."""
    availability: Mapping[str, Share]
    """By operation: those whose agent could be started, of all that ended and were neither refused nor cancelled."""

    def alerts(self) -> list[Alert]:
        single = ((SUCCESS_RATE, self.success.rate), (LATENCY_P99, self.latency["p99"]), (TIMEOUT_RATE, self.timeout.rate))
        several = ((ERRORS_BY_TARGET, self.errors_by_target), (ERRORS_BY_OPERATION, self.errors_by_operation))
        found = [Alert(metric=metric, value=value) for metric, value in single if value is not None and metric.is_alarming(value)]
        for metric, shares in several:
            for name, share in shares.items():
                if share.rate is not None and metric.is_alarming(share.rate):
                    found.append(Alert(metric=metric, value=share.rate, of=name))
        return found

    def to_dict(self) -> dict[str, Any]:
        """By the names in the table above."""
        return {
            "since": self.since,
            "until": self.until,
            TOTAL.name: self.total,
            "delegation.live": self.live,
            "delegation.cancelled": self.cancelled,
            SUCCESS_RATE.name: self.success.rate,
            **{f"delegation.latency.{name}": value for name, value in self.latency.items()},
            TIMEOUT_RATE.name: self.timeout.rate,
            ERRORS_BY_TARGET.name: _shares(self.errors_by_target),
            ERRORS_BY_OPERATION.name: _shares(self.errors_by_operation),
            "delegation.states": dict(self.states),
            "delegation.tokens": self.tokens,
            "delegation.tokens.by_operation": dict(self.tokens_by_operation),
            FAILED_STARTS.name: dict(self.failed_starts),
            AVAILABILITY.name: _shares(self.availability, "available"),
            "delegation.cost": self.cost,
            "alerts": [alert.to_dict() for alert in self.alerts()],
        }


def metrics_of(tally: Tally, *, since: float | None, until: float) -> Metrics:
    states: Counter[str] = Counter()
    for (_, state), count in sorted(tally.states.items()):
        states[str(state)] += count
    live = sum(count for state, count in states.items() if state in LIVE)
    cancelled = states[State.CANCELLED]
    judged = sum(states.values()) - live - cancelled
    return Metrics(
        since=since,
        until=until,
        total=sum(states.values()),
        live=live,
        cancelled=cancelled,
        success=Share(count=states[State.COMPLETED], total=judged),
        timeout=Share(count=states[State.TIMEOUT], total=judged),
        latency={
            **{f"p{share}": tally.latencies.percentile(share / 100) for share in (50, 95, 99)},
            "max": tally.latencies.longest if tally.latencies.count else None,
        },
        errors_by_target=_errors(tally, lambda agent: agent.partition(".")[0]),
        errors_by_operation=_errors(tally, lambda agent: agent),
        states=states,
        tokens=tally.tokens,
        cost=tally.cost,
        tokens_by_operation=dict(sorted(tally.tokens_of.items())),
        failed_starts=dict(sorted(tally.failed_starts.items())),
        availability=_availability(tally),
    )


def _errors(tally: Tally, name_of: Callable[[str], str]) -> dict[str, Share]:
    """By name: those that ended without completing, of all that ended and were not cancelled."""
    counts: dict[str, list[int]] = {}
    for (agent, state), count in tally.states.items():
        if state in LIVE or state is State.CANCELLED:
            continue
        of = counts.setdefault(name_of(agent), [0, 0])
        of[0] += 0 if state is State.COMPLETED else count
        of[1] += count
    return {name: Share(count=errors, total=total) for name, (errors, total) in sorted(counts.items())}


def _availability(tally: Tally) -> dict[str, Share]:
    totals: Counter[str] = Counter()
    for (agent, state), count in tally.states.items():
        if state not in LIVE and state not in (State.CANCELLED, State.REFUSED):
            totals[agent] += count
    return {agent: Share(count=total - min(total, tally.failed_starts[agent]), total=total) for agent, total in sorted(totals.items())}


def _shares(shares: Mapping[str, Share], counted: str = "errors") -> dict[str, Any]:
    return {name: {counted: share.count, "total": share.total, "rate": share.rate} for name, share in shares.items()}
