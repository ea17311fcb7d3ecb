"""Metrics of delegations: names and alerts in one table, sums and percentiles."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from remit.core.states import LIVE, State


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


@dataclass(slots=True)
class Tally:
    """Sums that a store computes: counts by agent and state."""

    states: Counter[tuple[str, State]] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    """Seconds, without refused and cancelled ones."""
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
            self.latencies.append(max(seconds, 0.0))  # the clock may have been set back
        self.tokens += tokens
        self.cost += cost
        if tokens:
            self.tokens_of[agent] += tokens
        if is_unavailable:
            self.failed_starts[agent] += 1


@dataclass(frozen=True, slots=True)
class Share:
    """A count and its total."""

    count: int
    total: int

    @property
    def rate(self) -> float | None:
        return self.count / self.total if self.total else None


class Alert(NamedTuple):
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
        values: list[tuple[Metric, float | None, str | None]] = [
            (SUCCESS_RATE, self.success.rate, None),
            (LATENCY_P99, self.latency["p99"], None),
            (TIMEOUT_RATE, self.timeout.rate, None),
            *((ERRORS_BY_TARGET, share.rate, name) for name, share in self.errors_by_target.items()),
            *((ERRORS_BY_OPERATION, share.rate, name) for name, share in self.errors_by_operation.items()),
        ]
        return [Alert(metric, value, of) for metric, value, of in values if value is not None and metric.is_alarming(value)]

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
    latencies = sorted(tally.latencies)
    judged = sum(states.values()) - live - cancelled
    return Metrics(
        since=since,
        until=until,
        total=sum(states.values()),
        live=live,
        cancelled=cancelled,
        success=Share(states[State.COMPLETED], judged),
        timeout=Share(states[State.TIMEOUT], judged),
        latency={name: _percentile(latencies, share) for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))},
        errors_by_target=_errors(tally, lambda agent: agent.partition(".")[0]),
        errors_by_operation=_errors(tally, lambda agent: agent),
        states=states,
        tokens=tally.tokens,
        cost=tally.cost,
        tokens_by_operation=dict(sorted(tally.tokens_of.items())),
        failed_starts=dict(sorted(tally.failed_starts.items())),
        availability=_availability(tally),
    )


def _percentile(ordered: Sequence[float], share: float) -> float | None:
    """The nearest-rank percentile; None without values."""
    return ordered[max(1, math.ceil(share * len(ordered))) - 1] if ordered else None


def _errors(tally: Tally, name_of: Callable[[str], str]) -> dict[str, Share]:
    """By name: those that ended without completing, of all that ended and were not cancelled."""
    errors: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for (agent, state), count in tally.states.items():
        if state not in LIVE and state is not State.CANCELLED:
            totals[name_of(agent)] += count
            errors[name_of(agent)] += 0 if state is State.COMPLETED else count
    return {name: Share(errors[name], total) for name, total in sorted(totals.items())}


def _availability(tally: Tally) -> dict[str, Share]:
    totals: Counter[str] = Counter()
    for (agent, state), count in tally.states.items():
        if state not in LIVE and state not in (State.CANCELLED, State.REFUSED):
            totals[agent] += count
    return {agent: Share(total - min(total, tally.failed_starts[agent]), total) for agent, total in sorted(totals.items())}


def _shares(shares: Mapping[str, Share], counted: str = "errors") -> dict[str, Any]:
    return {name: {counted: share.count, "total": share.total, "rate": share.rate} for name, share in shares.items()}
