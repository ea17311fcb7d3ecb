"""Export of traces and metrics by OTLP, if `signals.otlp_url` or OpenTelemetry's own variables name a collector.

OpenTelemetry is loaded only then. A collector that cannot be reached slows and stops nothing.
"""

import asyncio
import contextlib
import functools
import importlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from remit.core.delegation import Origin
from remit.core.errors import Misused, Unavailable
from remit.core.lifecycle import LifecycleKind
from remit.core.settings import Settings
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.engines.embedded.embedded import EmbeddedEngine
    from remit.models.client import Models
    from remit.models.messages import ModelCall

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
EXTRA = 'pip install "remit[telemetry]"'
EXPORT_SECONDS = 5.0
CLOSE_SECONDS = 1.5
_LOG = logging.getLogger("remit.signals")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    traces: bool
    metrics: bool
    url: str | None
    """Of the settings; None: the environment says where."""
    over_grpc: bool = False


class Signals:
    """Running export; `close` ends it within two seconds, whatever the collector does."""

    def __init__(
        self, origin: Callable[[], Origin | None], stops: Sequence[Callable[[], None]], shutdowns: Sequence[Callable[[], None]]
    ) -> None:
        self.origin = origin
        """Where the caller of a delegation stands in a trace of its own; None: nowhere."""
        self._stops = stops
        self._shutdowns = shutdowns

    async def close(self) -> None:
        for stop in self._stops:
            stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.gather(*(off_loop(shutdown) for shutdown in self._shutdowns))


def wanted(settings: Settings, environment: Mapping[str, str]) -> Wanted | None:
    """What is to be sent, if anything."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    url = settings.signals.otlp_url
    is_general = url is not None or bool(environment.get(ENDPOINT, "").strip())
    traces = _is_wanted("TRACES", is_general, environment)
    metrics = _is_wanted("METRICS", is_general, environment)
    if not (traces or metrics):
        return None
    over_grpc = url is None and environment.get("OTEL_EXPORTER_OTLP_PROTOCOL", "").strip().lower() == "grpc"
    return Wanted(traces=traces, metrics=metrics, url=None if url is None else _checked(url), over_grpc=over_grpc)


def _is_wanted(signal: str, is_general: bool, environment: Mapping[str, str]) -> bool:
    if environment.get(f"OTEL_{signal}_EXPORTER", "otlp").strip().lower() == "none":
        return False
    return is_general or bool(environment.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "").strip())


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Misused(f"signals.otlp_url is no address: {url!r}.", advice="Write one like http://127.0.0.1:4318.")
    return url.rstrip("/")


async def open_signals(engine: "EmbeddedEngine", models: "Models", settings: Settings) -> Signals | None:
    """None: nothing is wanted; or it is by the environment alone, and not installed, which is said in the log."""
    asked_for = wanted(settings, os.environ)
    if asked_for is None:
        return None
    try:
        await off_loop(_load)
        return _begin(asked_for, engine, models, settings)
    except (ModuleNotFoundError, Unavailable, ValueError, RuntimeError, OSError) as error:  # also for what exporters are told wrongly
        advice = error.advice if isinstance(error, Unavailable) else EXTRA if isinstance(error, ModuleNotFoundError) else "Correct it"
        if asked_for.url is None:  # a variable of the machine's, meant for whoever can
            _LOG.warning("Traces and metrics are not sent: %s %s", error, advice)
            return None
        raise Misused(f"signals.otlp_url is set, but {error}.", advice=f"{advice}, or leave it out.") from error


def _load() -> None:
    """Off the loop: it takes a while."""
    importlib.import_module("remit.runtime.telemetry.metrics")
    importlib.import_module("remit.runtime.telemetry.traces")


def _begin(asked_for: Wanted, engine: "EmbeddedEngine", models: "Models", settings: Settings) -> Signals:
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from remit.runtime.telemetry.metrics import EngineMetrics
    from remit.runtime.telemetry.traces import Traces, origin_here, set_current

    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())  # an unreachable collector is no news on a terminal
    resource = _resource(engine, settings)
    stops: list[Callable[[], None]] = []
    shutdowns: list[Callable[[], None]] = []
    metrics: EngineMetrics | None = None
    traces: Traces | None = None
    if asked_for.metrics:
        exporter = _exporter(asked_for, "metric_exporter", "OTLPMetricExporter", "metrics")
        reader = PeriodicExportingMetricReader(
            exporter, export_interval_millis=1000 * settings.signals.metric_seconds, export_timeout_millis=1000 * EXPORT_SECONDS
        )
        metrics = EngineMetrics(engine, reader, resource)
        shutdowns.append(functools.partial(metrics.close, CLOSE_SECONDS))
    if asked_for.traces:
        processor = BatchSpanProcessor(_exporter(asked_for, "trace_exporter", "OTLPSpanExporter", "traces"), schedule_delay_millis=1000)
        agents = engine.deps.agents
        traces = Traces(processor.on_end, resource, lambda name: _spec(agents, name), content=settings.signals.content)
        stops.append(engine.listeners.hear(traces.ended, (LifecycleKind.COMPLETED, LifecycleKind.FAILED)))
        engine.dress = lambda running, context: set_current(running.delegation, context)
        shutdowns.append(processor.shutdown)
    models.hear = _hearing(engine, metrics, traces)
    return Signals(origin_here if asked_for.traces else _nowhere, stops, shutdowns)


def _exporter(asked_for: Wanted, module: str, name: str, signal: str) -> Any:
    """OpenTelemetry's own variables (headers, certificates, compression, timeouts) apply, as the exporter reads them."""
    protocol = "grpc" if asked_for.over_grpc else "http"
    try:
        found = importlib.import_module(f"opentelemetry.exporter.otlp.proto.{protocol}.{module}")
    except ModuleNotFoundError as error:
        package = f"opentelemetry-exporter-otlp-proto-{protocol}"
        raise Unavailable(f"The exporter of OpenTelemetry is not installed ({error}).", advice=f'pip install "{package}"') from error
    endpoint = None if asked_for.url is None else f"{asked_for.url}/v1/{signal}"
    return getattr(found, name)(endpoint=endpoint, timeout=None if "OTEL_EXPORTER_OTLP_TIMEOUT" in os.environ else EXPORT_SECONDS)


def _hearing(engine: "EmbeddedEngine", metrics: Any, traces: Any) -> "Callable[[Any, ModelCall], None]":
    from remit.engines.embedded.embedded import CURRENT

    def hear(purse: Any, call: "ModelCall") -> None:
        if metrics is not None:
            metrics.model_called(*call)
        running = CURRENT.get() or engine.running.get(getattr(purse, "session_id", ""))
        if traces is not None and running is not None:
            traces.asked(running.delegation, *call)

    return hear


def _resource(engine: "EmbeddedEngine", settings: Settings) -> Any:
    """What the environment says of this program holds, but for the name that the settings give it."""
    from opentelemetry.sdk.resources import Resource

    attributes = {"service.instance.id": engine.owner.owner_id}
    name = settings.signals.service_name
    if name != "remit" or not os.environ.get("OTEL_SERVICE_NAME"):
        attributes["service.name"] = name
    return Resource.create(attributes)


def _spec(agents: Any, name: str) -> Any:
    agent = agents.find(name)
    return None if agent is None else agent.spec


def _nowhere() -> None:
    return None
