"""By OTLP: where spans and counts go, and how they are put for it. Over HTTP, or gRPC where `OTEL_EXPORTER_OTLP_PROTOCOL` says so.

What the environment says by OpenTelemetry's own variables (headers, certificates, compression, timeouts) holds, as the exporters read it.
Used by `opening` alone; needs the SDK and an exporter of OpenTelemetry.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from remit.core.errors import Unavailable
from remit.signals.counting import Counts, Reading, Spread
from remit.signals.names import SCOPE, Kind
from remit.signals.sending import HASTY_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """What is None, the environment says."""

    traces: str | None
    metrics: str | None
    over_grpc: bool = False


class SpanRoute:
    """A `sending.Route`."""

    def __init__(self, destination: Destination) -> None:
        self._exporter = _span_exporter(destination, None)
        self._destination = destination
        self._has_given_up = False

    def send(self, items: Sequence[ReadableSpan]) -> bool:
        return bool(self._exporter.export(items) is SpanExportResult.SUCCESS)

    def send_hastily(self, items: Sequence[ReadableSpan]) -> bool:
        return bool(_span_exporter(self._destination, HASTY_SECONDS).export(items) is SpanExportResult.SUCCESS)

    def give_up(self) -> None:
        if not self._has_given_up:
            self._has_given_up = True
            self._exporter.shutdown()


class MetricRoute:
    def __init__(self, destination: Destination, counts: Counts, resource: Resource) -> None:
        self._destination = destination
        self._counts = counts
        self._resource = resource
        self._exporter = _metric_exporter(destination, None)

    def send(self, is_last: bool) -> bool:
        exporter = _metric_exporter(self._destination, HASTY_SECONDS) if is_last else self._exporter
        data = metrics_data(self._counts, self._resource)
        return bool(exporter.export(data) is MetricExportResult.SUCCESS)

    def give_up(self) -> None:
        self._exporter.shutdown()


def metrics_data(counts: Counts, resource: Resource) -> MetricsData:
    """As it stands, summed up since `counts` began."""
    now, began = time.time_ns(), int(counts.began_at * 1e9)
    metrics = [_metric(reading, began, now) for reading in counts.read() if reading.values]
    scoped = ScopeMetrics(scope=InstrumentationScope(SCOPE), metrics=metrics, schema_url="")
    return MetricsData(resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scoped], schema_url="")])


def _metric(reading: Reading, began: int, now: int) -> Metric:
    one, always = reading.instrument, AggregationTemporality.CUMULATIVE
    data: Any
    if one.kind is Kind.HISTOGRAM:
        points = [_histogram_point(_labelled(reading, values), spread, began, now) for values, spread in reading.values.items()]
        data = Histogram(data_points=points, aggregation_temporality=always)
    else:
        numbers = [
            NumberDataPoint(attributes=_labelled(reading, values), start_time_unix_nano=began, time_unix_nano=now, value=float(value))  # type: ignore[arg-type]
            for values, value in reading.values.items()
        ]
        is_sum = one.kind is Kind.COUNTER
        data = Sum(data_points=numbers, aggregation_temporality=always, is_monotonic=True) if is_sum else Gauge(data_points=numbers)
    return Metric(name=one.name, description=one.words, unit=one.unit, data=data)


def _histogram_point(labels: Mapping[str, str], spread: "float | Spread", began: int, now: int) -> HistogramDataPoint:
    assert isinstance(spread, Spread)
    return HistogramDataPoint(
        attributes=labels,
        start_time_unix_nano=began,
        time_unix_nano=now,
        count=spread.count,
        sum=spread.total,
        bucket_counts=spread.counts,
        explicit_bounds=spread.bounds,
        min=None,  # type: ignore[arg-type] # not known, and not needed: absent on the wire
        max=None,  # type: ignore[arg-type]
    )


def _labelled(reading: Reading, values: Sequence[str]) -> dict[str, str]:
    """Without those that are empty: for Prometheus that is the same."""
    return {name: value for name, value in zip(reading.instrument.labels, values, strict=True) if value}


def _span_exporter(destination: Destination, seconds: float | None) -> Any:
    module = _module(destination, "trace_exporter")
    return module.OTLPSpanExporter(endpoint=destination.traces, timeout=seconds, **_by(destination))


def _metric_exporter(destination: Destination, seconds: float | None) -> Any:
    module = _module(destination, "metric_exporter")
    return module.OTLPMetricExporter(endpoint=destination.metrics, timeout=seconds, **_by(destination))


def _by(destination: Destination) -> dict[str, Any]:
    is_given = any(name.startswith("OTEL_PYTHON_EXPORTER_OTLP_") and name.endswith("_CREDENTIAL_PROVIDER") for name in os.environ)
    if destination.over_grpc or is_given:  # a session that a plug-in of OpenTelemetry makes
        return {}
    from remit.signals.wary import wary_session

    return {"session": wary_session()}


def _module(destination: Destination, name: str) -> Any:
    import importlib

    protocol = "grpc" if destination.over_grpc else "http"
    try:
        return importlib.import_module(f"opentelemetry.exporter.otlp.proto.{protocol}.{name}")
    except ModuleNotFoundError as error:
        package = f"opentelemetry-exporter-otlp-proto-{protocol}"
        raise Unavailable(f"The exporter of OpenTelemetry is not installed ({error}).", advice=f'pip install "{package}"') from error
