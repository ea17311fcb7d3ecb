"""Metrics of an open `Remit` on the OpenTelemetry SDK: for a collector (OTLP) and for Prometheus (`/metrics`).

Counts the work of this process; rates and percentiles are computed from the counts, as the alert rules do. The number of series is bounded:
unregistered agents, and names beyond a limit, count as `(others)`; sessions and users are never labels."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import Resource

from remit.core.lifecycle import LifecycleEvent, LifecycleKind
from remit.core.model_messages import ModelCall
from remit.core.result import StopReason
from remit.core.states import State
from remit.runtime.engine import Engine
from remit.runtime.telemetry import names
from remit.runtime.telemetry.names import Find, Instrument, Kind, Live

OTHERS = "(others)"
"""Collects all further names, which callers may invent, in one count."""
MAX_SERIES = 200
"""Maximum combinations of target, operation and kind of principal; later ones count as `(others)`. With all outcomes this is below the
SDK's limit of 2,000 series."""
PRINCIPALS = ("orchestrator", "token", "delegation")
"""Kinds of principals; all others count as `other`."""
_NOT_TIMED = (State.REFUSED, State.CANCELLED)


class EngineMetrics:
    """The instruments of one engine, read by one reader of the SDK."""

    def __init__(self, find: Find, live: Live, reader: MetricReader, resource: Resource | None = None) -> None:
        self._find = find
        self._live = live
        self._labels: set[tuple[str, str, str]] = set()
        self._provider = MeterProvider([reader], resource or Resource.get_empty(), shutdown_on_exit=False)
        meter = self._provider.get_meter(names.SCOPE)
        self._instruments: dict[Instrument, Any] = {}
        self._totals: dict[Instrument, dict[tuple[str, ...], float]] = {}
        """Counter values by labels."""
        for one in names.INSTRUMENTS:
            if one.kind is Kind.COUNTER:  # observed: adding to an SDK counter costs more than the rest of an event
                self._totals[one] = {}
                meter.create_observable_counter(one.name, [self._observer(one)], one.unit, one.words)
            elif one.kind is Kind.HISTOGRAM:
                self._instruments[one] = meter.create_histogram(
                    one.name, one.unit, one.words, explicit_bucket_boundaries_advisory=list(one.buckets)
                )
            else:
                meter.create_observable_gauge(one.name, [self._observer(one)], one.unit, one.words)

    def close(self, timeout_seconds: float) -> None:
        self._provider.shutdown(timeout_millis=1000 * timeout_seconds)

    def model_called(self, call: ModelCall) -> None:
        """Count a call of a language model."""
        labels = (str(names.Span.CHAT), call.provider, call.model)
        self._instruments[names.MODEL_DURATION].record(call.seconds, _labelled(names.MODEL_DURATION, (*labels, call.error)))
        for kind, tokens in zip(("input", "output"), call.used or (), strict=False):
            self._instruments[names.MODEL_USAGE].record(tokens, _labelled(names.MODEL_USAGE, (*labels, kind)))

    def on_event(self, event: LifecycleEvent) -> None:
        if event.kind is LifecycleKind.STARTED:
            target, operation, _ = self._names(event)
            self._count(names.STARTED, (target, operation), 1.0)
        elif event.success is not None and event.session_id:
            self._ended(event)
        elif event.door:
            self._count(names.VISITS, (event.door, "" if event.error is None else event.error.code), 1.0)

    def _ended(self, event: LifecycleEvent) -> None:
        target, operation, principal = self._names(event)
        state, seconds = State(event.state), event.duration_seconds or 0.0
        self._count(names.ENDED, (target, operation, str(state), principal), 1.0)
        if state not in _NOT_TIMED:
            self._instruments[names.LATENCY].record(seconds, _labelled(names.LATENCY, (target, operation)))
        if event.tokens:
            self._count(names.TOKENS, (target, operation), event.tokens)
        if event.cost:
            self._count(names.COST, (target, operation), event.cost)
        is_unavailable = event.result is not None and event.result.stop_reason is StopReason.UNAVAILABLE
        self._count(names.FAILED_START, (target, operation), float(is_unavailable))

    def _names(self, event: LifecycleEvent) -> tuple[str, str, str]:
        principal = (event.principal or PRINCIPALS[0]).partition(":")[0]
        labels = (event.target, event.operation or "", principal if principal in PRINCIPALS else "other")
        if labels in self._labels:
            return labels
        if len(self._labels) >= MAX_SERIES or self._find(event.agent) is None:
            return (OTHERS, "", labels[2])
        self._labels.add(labels)
        for state in names.ENDINGS:  # all outcomes start at zero: Prometheus only sees increases of known values
            self._count(names.ENDED, (labels[0], labels[1], state, labels[2]), 0.0)
        return labels

    def _count(self, instrument: Instrument, labels: Sequence[str], amount: float) -> None:
        totals, key = self._totals[instrument], tuple(labels)
        totals[key] = totals.get(key, 0.0) + amount

    def _observer(self, instrument: Instrument) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(options: CallbackOptions) -> Iterable[Observation]:
            found = self._totals[instrument] if instrument in self._totals else self._gauge(instrument)
            return [Observation(value, _labelled(instrument, labels)) for labels, value in list(found.items())]

        return observe

    def _gauge(self, instrument: Instrument) -> Mapping[tuple[str, ...], float]:
        live = [one for one in list(self._live().values()) if (one.state is State.QUEUED) == (instrument is names.QUEUED)]
        return Counter((one.delegation.agent.partition(".")[0],) for one in live)


def _labelled(instrument: Instrument, values: Sequence[str]) -> dict[str, str]:
    return dict(zip(instrument.labels, values, strict=True))


def prometheus_page(engine: Engine, find: Find) -> Callable[[str], tuple[bytes, str]]:
    """Creates the page and its content type from the Accept header: Prometheus text format, or OpenMetrics on request."""
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry()
    reader = PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=registry)
    engine.bus.listen(EngineMetrics(find, engine.live, reader).on_event, names.METRIC_EVENTS)
    open_metrics = "application/openmetrics-text"

    def page(accept: str = "") -> tuple[bytes, str]:
        encode, content_type = choose_encoder(open_metrics if open_metrics in accept else "")
        return encode(registry), content_type

    return page
