"""Export of traces and metrics by OTLP, if `signals.otlp_url` or OpenTelemetry's own variables name a collector.

OpenTelemetry is imported only then. An unreachable collector slows and stops nothing."""

import asyncio
import contextlib
import functools
import importlib
import logging
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from remit.core.delegation import Origin
from remit.core.errors import Misused, Unavailable
from remit.core.lifecycle import LifecycleKind
from remit.core.settings import Settings
from remit.runtime.deps import CURRENT
from remit.runtime.engine import Middleware
from remit.runtime.lifecycle import Listener
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.core.model_messages import ModelCall
    from remit.runtime.telemetry.metrics import EngineMetrics
    from remit.runtime.telemetry.names import Find, Live
    from remit.runtime.telemetry.traces import Traces

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
EXTRA = 'pip install "remit[telemetry]"'
EXPORT_SECONDS = 5.0
CLOSE_SECONDS = 1.5
_LOG = logging.getLogger("remit.signals")


class Telemetry:
    """Export of one `Remit`, called by its engine and its models. `close` ends it within two seconds, whatever the collector does."""

    def __init__(
        self, metrics: "EngineMetrics | None", traces: "Traces | None", live: "Live", shutdowns: Sequence[Callable[[], None]]
    ) -> None:
        self._metrics = metrics
        self._traces = traces
        self._live = live
        self._shutdowns = shutdowns

    @property
    def middleware(self) -> tuple[Middleware, ...]:
        return () if self._traces is None else (self._traces.perform,)

    @property
    def listeners(self) -> tuple[tuple[Listener, tuple[LifecycleKind, ...]], ...]:
        from remit.runtime.telemetry.names import METRIC_EVENTS

        found: list[tuple[Listener, tuple[LifecycleKind, ...]]] = []
        if self._metrics is not None:
            found.append((self._metrics.on_event, METRIC_EVENTS))
        if self._traces is not None:
            found.append((self._traces.ended, (LifecycleKind.COMPLETED, LifecycleKind.FAILED)))
        return tuple(found)

    def origin(self) -> Origin | None:
        """The caller's span in its own trace; None without one."""
        return None if self._traces is None else self._traces.origin()

    def model_called(self, spender: Any, call: "ModelCall") -> None:
        """Export a call of a language model on behalf of `spender`, a context."""
        if self._metrics is not None:
            self._metrics.model_called(call)
        live = CURRENT.get() or self._live().get(getattr(spender, "session_id", ""))
        if self._traces is not None and live is not None:
            self._traces.model_called(live.delegation, call)

    async def close(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                ended = await asyncio.gather(*(off_loop(shutdown) for shutdown in self._shutdowns), return_exceptions=True)
                for error in ended:
                    if error is not None:
                        _LOG.warning("Traces and metrics were not all sent: %s", error)


def _signals(settings: Settings) -> list[str]:
    """What to export, if anything."""
    if _variable("OTEL_SDK_DISABLED") == "true":
        return []
    has_address = settings.signals.otlp_url is not None or bool(_variable(ENDPOINT))
    return [
        one
        for one in ("traces", "metrics")
        if _variable(f"OTEL_{one.upper()}_EXPORTER") != "none" and (has_address or _variable(f"OTEL_EXPORTER_OTLP_{one.upper()}_ENDPOINT"))
    ]


def _variable(name: str) -> str:
    return os.environ.get(name, "").strip().lower()


async def open_telemetry(settings: Settings, owner_id: str, *, find: "Find", live: "Live") -> Telemetry | None:
    """None: not configured; or configured only by the environment while OpenTelemetry is not installed, which is logged."""
    signals = _signals(settings)
    if not signals:
        return None
    try:
        await off_loop(_load)
        return _begin(signals, settings, owner_id, find, live)
    except (ModuleNotFoundError, Unavailable, ValueError, RuntimeError, OSError) as error:  # also for invalid exporter settings
        advice = error.advice if isinstance(error, Unavailable) else EXTRA if isinstance(error, ModuleNotFoundError) else "Correct it"
        if settings.signals.otlp_url is None:  # a variable of the machine, for programs that support it
            _LOG.warning("Traces and metrics are not sent: %s %s", error, advice)
            return None
        raise Misused(f"signals.otlp_url is set, but {error}.", advice=f"{advice}, or leave it out.") from error


def _load() -> None:
    """Import off the loop: it is slow."""
    importlib.import_module("remit.runtime.telemetry.metrics")
    importlib.import_module("remit.runtime.telemetry.traces")


def _begin(signals: Sequence[str], settings: Settings, owner_id: str, find: "Find", live: "Live") -> Telemetry:
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from remit.runtime.telemetry.metrics import EngineMetrics
    from remit.runtime.telemetry.traces import Traces

    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())  # an unreachable collector is not reported on a terminal
    resource = _resource(owner_id, settings)
    shutdowns: list[Callable[[], None]] = []
    metrics: EngineMetrics | None = None
    traces: Traces | None = None
    if "metrics" in signals:
        exporter = _exporter(settings.signals.otlp_url, "metric_exporter", "OTLPMetricExporter", "metrics")
        reader = PeriodicExportingMetricReader(
            exporter, export_interval_millis=1000 * settings.signals.metric_seconds, export_timeout_millis=1000 * EXPORT_SECONDS
        )
        metrics = EngineMetrics(find, live, reader, resource)
        shutdowns.append(functools.partial(metrics.close, CLOSE_SECONDS))
    if "traces" in signals:
        exporter = _exporter(settings.signals.otlp_url, "trace_exporter", "OTLPSpanExporter", "traces")
        processor = BatchSpanProcessor(exporter, schedule_delay_millis=1000)
        traces = Traces(processor.on_end, resource, find, content=settings.signals.content)
        shutdowns.append(processor.shutdown)
    return Telemetry(metrics, traces, live, shutdowns)


def _exporter(url: str | None, module: str, name: str, signal: str) -> Any:
    """The exporter reads OpenTelemetry's own variables (headers, certificates, compression, timeouts)."""
    protocol = "grpc" if url is None and _variable("OTEL_EXPORTER_OTLP_PROTOCOL") == "grpc" else "http"
    try:
        found = importlib.import_module(f"opentelemetry.exporter.otlp.proto.{protocol}.{module}")
    except ModuleNotFoundError as error:
        package = f"opentelemetry-exporter-otlp-proto-{protocol}"
        raise Unavailable(f"The exporter of OpenTelemetry is not installed ({error}).", advice=f'pip install "{package}"') from error
    endpoint = None if url is None else f"{url.rstrip('/')}/v1/{signal}"
    return getattr(found, name)(endpoint=endpoint, timeout=None if "OTEL_EXPORTER_OTLP_TIMEOUT" in os.environ else EXPORT_SECONDS)


def _resource(owner_id: str, settings: Settings) -> Any:
    """The resource of the environment, with the service name of the settings."""
    from opentelemetry.sdk.resources import Resource

    attributes = {"service.instance.id": owner_id}
    name = settings.signals.service_name
    if name != "remit" or not os.environ.get("OTEL_SERVICE_NAME"):
        attributes["service.name"] = name
    return Resource.create(attributes)
