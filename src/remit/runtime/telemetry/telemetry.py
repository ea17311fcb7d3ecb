"""Export of traces and metrics by OTLP, if `signals.otlp_url` or OpenTelemetry's own variables name a collector.

OpenTelemetry is imported only then. An unreachable collector slows and stops nothing."""

import asyncio
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
    from remit.runtime.telemetry.metrics import EngineMetrics, Find, Live
    from remit.runtime.telemetry.traces import Traces

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
EXTRA = 'pip install "remit[telemetry]"'
EXPORT_SECONDS = 5.0
CLOSE_SECONDS = 1.5
_LOG = logging.getLogger("remit.signals")


class Telemetry:
    """Export of one `Remit`, called by its engine and its models. `close` ends it within two seconds, whatever the collector does."""

    def __init__(self, traces: "Traces", metrics: "EngineMetrics", live: "Live", shutdowns: Sequence[Callable[[], None]]) -> None:
        from remit.runtime.telemetry.metrics import METRIC_EVENTS

        self._traces = traces
        self._live = live
        self._shutdowns = shutdowns
        self.middleware: tuple[Middleware, ...] = (traces.perform,)
        self.listeners: tuple[tuple[Listener, tuple[LifecycleKind, ...]], ...] = (
            (traces.ended, (LifecycleKind.COMPLETED, LifecycleKind.FAILED)),
            (metrics.on_event, METRIC_EVENTS),
        )

    def origin(self) -> Origin | None:
        """The caller's span in its own trace; None without one."""
        return self._traces.origin()

    def model_called(self, spender: Any, call: "ModelCall") -> None:
        """Export a call of a language model on behalf of `spender`, a context."""
        live = CURRENT.get() or self._live().get(getattr(spender, "session_id", ""))
        if live is not None:
            self._traces.model_called(live.delegation, call)

    async def close(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.gather(*map(off_loop, self._shutdowns))
        except Exception as error:  # noqa: BLE001 - an exporter may raise anything
            _LOG.warning("Traces and metrics were not all sent: %s", error)


def _is_wanted(settings: Settings) -> bool:
    return _variable("OTEL_SDK_DISABLED") != "true" and (settings.signals.otlp_url is not None or bool(_variable(ENDPOINT)))


def _variable(name: str) -> str:
    return os.environ.get(name, "").strip().lower()


async def open_telemetry(settings: Settings, owner_id: str, *, find: "Find", live: "Live") -> Telemetry | None:
    """None: not configured; or configured only by the environment while OpenTelemetry is not installed, which is logged."""
    if not _is_wanted(settings):
        return None
    try:
        for module in ("traces", "metrics"):
            await off_loop(importlib.import_module, f"remit.runtime.telemetry.{module}")  # slow
        return _begin(settings, owner_id, find, live)
    except (ModuleNotFoundError, Unavailable, ValueError, RuntimeError, OSError) as error:  # also for invalid exporter settings
        advice = error.advice if isinstance(error, Unavailable) else EXTRA if isinstance(error, ModuleNotFoundError) else "Correct it"
        if settings.signals.otlp_url is None:  # a variable of the machine, for programs that support it
            _LOG.warning("Traces and metrics are not sent: %s %s", error, advice)
            return None
        raise Misused(f"signals.otlp_url is set, but {error}.", advice=f"{advice}, or leave it out.") from error


def _begin(settings: Settings, owner_id: str, find: "Find", live: "Live") -> Telemetry:
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from remit.runtime.telemetry.metrics import EngineMetrics
    from remit.runtime.telemetry.traces import Traces

    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())  # an unreachable collector is not reported on a terminal
    url, resource = settings.signals.otlp_url, _resource(owner_id, settings)
    processor = BatchSpanProcessor(_exporter(url, "trace_exporter", "OTLPSpanExporter", "traces"), schedule_delay_millis=1000)
    reader = PeriodicExportingMetricReader(_exporter(url, "metric_exporter", "OTLPMetricExporter", "metrics"))
    metrics = EngineMetrics(find, live, reader, resource)
    return Telemetry(Traces(processor.on_end, resource, find), metrics, live, (processor.shutdown, lambda: metrics.close(CLOSE_SECONDS)))


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
