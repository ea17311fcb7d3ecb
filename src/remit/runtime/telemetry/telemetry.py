"""Export of traces by OTLP, if `signals.otlp_url` or OpenTelemetry's own variables name a collector.

OpenTelemetry is imported only then. An unreachable collector slows and stops nothing."""

import asyncio
import importlib
import logging
import os
from collections.abc import Callable, Mapping
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
    from remit.runtime.local_context import LocalRun
    from remit.runtime.telemetry.traces import Find, Traces

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
EXTRA = 'pip install "remit[telemetry]"'
EXPORT_SECONDS = 5.0
CLOSE_SECONDS = 1.5
_LOG = logging.getLogger("remit.signals")


class Telemetry:
    """Export of one `Remit`, called by its engine and its models. `close` ends it within two seconds, whatever the collector does."""

    def __init__(self, traces: "Traces", live: Callable[[], Mapping[str, "LocalRun"]], shutdown: Callable[[], None]) -> None:
        self._traces = traces
        self._live = live
        self._shutdown = shutdown
        self.middleware: tuple[Middleware, ...] = (traces.perform,)
        self.listeners: tuple[tuple[Listener, tuple[LifecycleKind, ...]], ...] = (
            (traces.ended, (LifecycleKind.COMPLETED, LifecycleKind.FAILED)),
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
                await off_loop(self._shutdown)
        except Exception as error:  # noqa: BLE001 - an exporter may raise anything
            _LOG.warning("Traces were not all sent: %s", error)


def _is_wanted(settings: Settings) -> bool:
    if _variable("OTEL_SDK_DISABLED") == "true" or _variable("OTEL_TRACES_EXPORTER") == "none":
        return False
    return settings.signals.otlp_url is not None or bool(_variable(ENDPOINT) or _variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))


def _variable(name: str) -> str:
    return os.environ.get(name, "").strip().lower()


async def open_telemetry(
    settings: Settings, owner_id: str, *, find: "Find", live: Callable[[], Mapping[str, "LocalRun"]]
) -> Telemetry | None:
    """None: not configured; or configured only by the environment while OpenTelemetry is not installed, which is logged."""
    if not _is_wanted(settings):
        return None
    try:
        await off_loop(importlib.import_module, "remit.runtime.telemetry.traces")  # slow
        return _begin(settings, owner_id, find, live)
    except (ModuleNotFoundError, Unavailable, ValueError, RuntimeError, OSError) as error:  # also for invalid exporter settings
        advice = error.advice if isinstance(error, Unavailable) else EXTRA if isinstance(error, ModuleNotFoundError) else "Correct it"
        if settings.signals.otlp_url is None:  # a variable of the machine, for programs that support it
            _LOG.warning("Traces are not sent: %s %s", error, advice)
            return None
        raise Misused(f"signals.otlp_url is set, but {error}.", advice=f"{advice}, or leave it out.") from error


def _begin(settings: Settings, owner_id: str, find: "Find", live: Callable[[], Mapping[str, "LocalRun"]]) -> Telemetry:
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from remit.runtime.telemetry.traces import Traces

    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())  # an unreachable collector is not reported on a terminal
    processor = BatchSpanProcessor(_exporter(settings.signals.otlp_url), schedule_delay_millis=1000)
    return Telemetry(Traces(processor.on_end, _resource(owner_id, settings), find), live, processor.shutdown)


def _exporter(url: str | None) -> Any:
    """The exporter reads OpenTelemetry's own variables (headers, certificates, compression, timeouts)."""
    protocol = "grpc" if url is None and _variable("OTEL_EXPORTER_OTLP_PROTOCOL") == "grpc" else "http"
    try:
        found = importlib.import_module(f"opentelemetry.exporter.otlp.proto.{protocol}.trace_exporter")
    except ModuleNotFoundError as error:
        package = f"opentelemetry-exporter-otlp-proto-{protocol}"
        raise Unavailable(f"The exporter of OpenTelemetry is not installed ({error}).", advice=f'pip install "{package}"') from error
    endpoint = None if url is None else f"{url.rstrip('/')}/v1/traces"
    return found.OTLPSpanExporter(endpoint=endpoint, timeout=None if "OTEL_EXPORTER_OTLP_TIMEOUT" in os.environ else EXPORT_SECONDS)


def _resource(owner_id: str, settings: Settings) -> Any:
    """The resource of the environment, with the service name of the settings."""
    from opentelemetry.sdk.resources import Resource

    attributes = {"service.instance.id": owner_id}
    name = settings.signals.service_name
    if name != "remit" or not os.environ.get("OTEL_SERVICE_NAME"):
        attributes["service.name"] = name
    return Resource.create(attributes)
