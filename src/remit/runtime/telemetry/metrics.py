"""Metrics of an open `Remit` on the OpenTelemetry SDK: for a collector (OTLP) and for Prometheus (`/metrics`).

Counts the work of this process; rates and percentiles are computed from the counts, as the alert rules do. The number of series is bounded:
unregistered agents, and names beyond a limit, count as `(others)`; sessions and users are never labels."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import Resource

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


Find = Callable[[str], AgentPort | None]
"""An agent by its name."""
Live = Callable[[], Mapping[str, LocalRun]]
"""Live delegations of this process, by session."""


class Instrument(NamedTuple):
    name: str
    kind: str
    words: str
    labels: tuple[str, ...]


_AGENT = ("target", "operation")
ENDED = Instrument("delegation.total", "counter", "Delegations that ended, by state", (*_AGENT, "state", "principal"))
STARTED = Instrument("delegation.started", "counter", "Delegations whose agent was started", _AGENT)
RUNNING = Instrument("delegation.running", "gauge", "Delegations running now", ("target",))
QUEUED = Instrument("delegation.queued", "gauge", "Delegations waiting for a slot now", ("target",))
LATENCY = Instrument("delegation.latency", "histogram", "From the request to the outcome, without refused and cancelled ones", _AGENT)
TOKENS = Instrument("delegation.tokens", "counter", "Tokens drawn from budgets", _AGENT)
COST = Instrument("delegation.cost", "counter", "Money drawn from budgets", _AGENT)
FAILED_START = Instrument("delegation.failed_starts", "counter", "Delegations whose agent could not be started or reached", _AGENT)
VISITS = Instrument("door.requests", "counter", "Requests at the APIs; code: why refused", ("door", "code"))
INSTRUMENTS = (ENDED, STARTED, RUNNING, QUEUED, LATENCY, TOKENS, COST, FAILED_START, VISITS)
METRIC_EVENTS = (
    LifecycleKind.STARTED, LifecycleKind.COMPLETED, LifecycleKind.FAILED, LifecycleKind.ADMITTED, LifecycleKind.TURNED_AWAY,
)  # fmt: skip


class EngineMetrics:
    """The instruments of one engine, read by one reader of the SDK."""

    def __init__(self, find: Find, live: Live, reader: MetricReader, resource: Resource | None = None) -> None:
        self._find = find
        self._live = live
        self._names: set[tuple[str, str, str]] = set()
        self._counts: dict[Instrument, Counter[tuple[str, ...]]] = {one: Counter() for one in INSTRUMENTS if one.kind == "counter"}
        """Observed: adding to an SDK counter costs more than the rest of an event."""
        self._provider = MeterProvider([reader], resource or Resource.get_empty(), shutdown_on_exit=False)
        meter = self._provider.get_meter("remit")
        self._latency = meter.create_histogram(LATENCY.name, "s", LATENCY.words, explicit_bucket_boundaries_advisory=list(SECONDS))
        for one in INSTRUMENTS:
            if one.kind == "counter":
                meter.create_observable_counter(one.name, [self._observer(one)], "", one.words)
            elif one.kind == "gauge":
                meter.create_observable_gauge(one.name, [self._observer(one)], "", one.words)

    def close(self, timeout_seconds: float) -> None:
        self._provider.shutdown(timeout_millis=1000 * timeout_seconds)

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
            self._latency.record(seconds, dict(zip(LATENCY.labels, agent, strict=True)))
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

    def _observer(self, instrument: Instrument) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(options: CallbackOptions) -> Iterable[Observation]:
            found: Mapping[tuple[str, ...], float] | None = self._counts.get(instrument)
            if found is None:
                live = [one for one in list(self._live().values()) if (one.state is State.QUEUED) == (instrument is QUEUED)]
                found = Counter((one.delegation.agent.partition(".")[0],) for one in live)
            return [Observation(value, dict(zip(instrument.labels, labels, strict=True))) for labels, value in list(found.items())]

        return observe


def prometheus_page(engine: Engine, find: Find) -> Callable[[], tuple[bytes, str]]:
    """Creates the page and its content type."""
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    reader = PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=registry)
    engine.bus.listen(EngineMetrics(find, engine.live, reader).on_event, METRIC_EVENTS)
    return lambda: (generate_latest(registry), CONTENT_TYPE_LATEST)
