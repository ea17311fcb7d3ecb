"""Metrics of an open `Remit` for Prometheus: the page `/metrics` of `remit serve`.

Counts the work of this process; rates and percentiles are computed from the counts, as the alert rules do. The number of series is bounded:
unregistered agents, and names beyond a limit, count as `(others)`; sessions and users are never labels."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from remit.core.lifecycle import LifecycleEvent, LifecycleKind
from remit.core.metrics import LATENCY_P99
from remit.core.ports import AgentPort
from remit.core.result import StopReason
from remit.core.states import LIVE, State
from remit.runtime.engine import Engine
from remit.runtime.local_context import LocalRun

OTHERS = "(others)"
"""Collects all further names, which callers may invent, in one count."""
MAX_SERIES = 200
"""Maximum combinations of target, operation and kind of principal; later ones count as `(others)`."""
PRINCIPALS = ("orchestrator", "token", "delegation")
"""Kinds of principals; all others count as `other`."""
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, LATENCY_P99.above or 30.0, 60.0, 120.0, 300.0, 600.0,
           1800.0, 3600.0, 7200.0, 14400.0)  # fmt: skip
"""Buckets of the latency; the alert threshold is one, so that it is exact there."""
_NOT_TIMED = (State.REFUSED, State.CANCELLED)


class Instrument(NamedTuple):
    name: str
    kind: str
    words: str
    labels: tuple[str, ...]


_AGENT = ("target", "operation")
ENDED = Instrument("delegation_total", "counter", "Delegations that ended, by state", (*_AGENT, "state", "principal"))
STARTED = Instrument("delegation_started_total", "counter", "Delegations whose agent was started", _AGENT)
RUNNING = Instrument("delegation_running", "gauge", "Delegations running now", ("target",))
QUEUED = Instrument("delegation_queued", "gauge", "Delegations waiting for a slot now", ("target",))
LATENCY = Instrument(
    "delegation_latency_seconds", "histogram", "From the request to the outcome, without refused and cancelled ones", _AGENT
)
TOKENS = Instrument("delegation_tokens_total", "counter", "Tokens drawn from budgets", _AGENT)
COST = Instrument("delegation_cost_total", "counter", "Money drawn from budgets", _AGENT)
FAILED_START = Instrument("delegation_failed_starts_total", "counter", "Delegations whose agent could not be started or reached", _AGENT)
VISITS = Instrument("door_requests_total", "counter", "Requests at the APIs; code: why refused", ("door", "code"))
INSTRUMENTS = (ENDED, STARTED, RUNNING, QUEUED, LATENCY, TOKENS, COST, FAILED_START, VISITS)
METRIC_EVENTS = (
    LifecycleKind.STARTED, LifecycleKind.COMPLETED, LifecycleKind.FAILED, LifecycleKind.ADMITTED, LifecycleKind.TURNED_AWAY,
)  # fmt: skip


class EngineMetrics(Collector):
    """The counts of one engine."""

    def __init__(self, find: Callable[[str], AgentPort | None], live: Callable[[], Mapping[str, LocalRun]]) -> None:
        """`find`: an agent by its name; `live`: delegations of this process."""
        self._find = find
        self._live = live
        self._names: set[tuple[str, str, str]] = set()
        self._counts: dict[Instrument, Counter[tuple[str, ...]]] = {one: Counter() for one in INSTRUMENTS if one.kind == "counter"}
        self._latencies: dict[tuple[str, ...], tuple[list[int], list[float]]] = {}
        """Numbers by bucket, and the sum."""

    def on_event(self, event: LifecycleEvent) -> None:
        if event.kind is LifecycleKind.STARTED:
            self._counts[STARTED][self._labels(event)[:2]] += 1
        elif event.success is not None and event.session_id:
            self._ended(event)
        elif event.door:
            self._counts[VISITS][event.door, "" if event.error is None else event.error.code] += 1

    def _ended(self, event: LifecycleEvent) -> None:
        target, operation, principal = self._labels(event)
        state, seconds, agent = State(event.state), event.duration_seconds or 0.0, (target, operation)
        self._counts[ENDED][target, operation, str(state), principal] += 1
        if state not in _NOT_TIMED:
            numbers, total = self._latencies.setdefault(agent, ([0] * (len(SECONDS) + 1), [0.0]))
            numbers[bisect_left(SECONDS, seconds)] += 1
            total[0] += seconds
        self._counts[TOKENS][agent] += event.tokens
        self._counts[COST][agent] += event.cost  # type: ignore[assignment] # a sum of money
        self._counts[FAILED_START][agent] += event.result is not None and event.result.stop_reason is StopReason.UNAVAILABLE

    def _labels(self, event: LifecycleEvent) -> tuple[str, str, str]:
        principal = (event.principal or PRINCIPALS[0]).partition(":")[0]
        labels = (event.target, event.operation or "", principal if principal in PRINCIPALS else "other")
        if labels in self._names:
            return labels
        if len(self._names) >= MAX_SERIES or self._find(event.agent) is None:
            return (OTHERS, "", labels[2])
        self._names.add(labels)
        for state in State:  # all outcomes start at zero: Prometheus only sees increases of known values
            if state not in LIVE:
                self._counts[ENDED][labels[0], labels[1], str(state), labels[2]] += 0
        return labels

    def collect(self) -> Iterable[Metric]:
        for one, counts in self._counts.items():
            family = CounterMetricFamily(one.name, one.words, labels=one.labels)
            for labels, number in list(counts.items()):
                family.add_metric(labels, number)
            yield family
        latency = HistogramMetricFamily(LATENCY.name, LATENCY.words, labels=LATENCY.labels)
        for labels, (numbers, total) in list(self._latencies.items()):
            ends = (*map(str, SECONDS), "+Inf")
            latency.add_metric(labels, list(zip(ends, accumulate(numbers), strict=True)), total[0])
        yield latency
        live = [(one.delegation.agent.partition(".")[0], one.state is State.QUEUED) for one in list(self._live().values())]
        for gauge in (RUNNING, QUEUED):
            states = GaugeMetricFamily(gauge.name, gauge.words, labels=gauge.labels)
            for target, number in Counter(target for target, is_queued in live if is_queued == (gauge is QUEUED)).items():
                states.add_metric([target], number)
            yield states


def prometheus_page(engine: Engine, find: Callable[[str], AgentPort | None]) -> Callable[[], tuple[bytes, str]]:
    """Creates the page and its content type."""
    metrics, registry = EngineMetrics(find, engine.live), CollectorRegistry()
    registry.register(metrics)
    engine.bus.listen(metrics.on_event, METRIC_EVENTS)
    return lambda: (generate_latest(registry), CONTENT_TYPE_LATEST)
