"""Begin to send traces and metrics of an open `Remit`, where somebody said where to: `signals.otlp_url`, or OpenTelemetry's own variables.

Light to import: nothing of OpenTelemetry is loaded before it is known to be wanted. What cannot be reached, or is not installed, slows
and stops nothing. Used by `app`.
"""

import importlib
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from remit.core.errors import Misused, Unavailable
from remit.core.happening import HappeningKind
from remit.core.origin import Origin
from remit.settings.values import Settings
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.engine.embedded import EmbeddedEngine
    from remit.models.client import Models
    from remit.models.messages import Call
    from remit.signals.sending import Sender

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
EXTRA = 'pip install "remit[telemetry]"'
_LOG = logging.getLogger("remit.signals")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    traces: bool
    metrics: bool
    url: str | None
    """Of the settings; None: the environment says where."""
    over_grpc: bool = False

    @property
    def where(self) -> str:
        return self.url or os.environ.get(ENDPOINT) or "the collector"


class Signals:
    """What was begun; `close` ends it in a second or two, whatever the collector does."""

    def __init__(self, sender: "Sender", origin: Callable[[], Origin | None], stops: tuple[Callable[[], None], ...]) -> None:
        self.sender = sender
        self.origin = origin
        """Where whoever delegates stands in a trace of its own; None: nowhere."""
        self._stops = stops

    async def close(self) -> None:
        for stop in self._stops:
            stop()
        await off_loop(self.sender.close)


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
    importlib.import_module("remit.signals.exporting")
    importlib.import_module("remit.signals.traces")


def _begin(asked_for: Wanted, engine: "EmbeddedEngine", models: "Models", settings: Settings) -> Signals:
    from remit.signals.counting import counts_of
    from remit.signals.exporting import Destination, MetricRoute, SpanRoute
    from remit.signals.sending import Sender
    from remit.signals.traces import Traces, origin_here, set_current

    url, resource = asked_for.url, _resource(engine, settings)
    destination = Destination(
        traces=None if url is None else f"{url}/v1/traces",
        metrics=None if url is None else f"{url}/v1/metrics",
        over_grpc=asked_for.over_grpc,
    )
    counts = counts_of(engine) if asked_for.metrics else None
    numbers = None if counts is None else MetricRoute(destination, counts, resource)
    sender = Sender(
        SpanRoute(destination),
        asked_for.where,
        beat=None if numbers is None else numbers.send,
        beat_seconds=settings.signals.metric_seconds,
    )
    stops: list[Callable[[], None]] = [] if numbers is None else [numbers.give_up]
    traces: Traces | None = None
    if asked_for.traces:
        agents = engine.house.agents
        traces = Traces(sender.put, resource, lambda name: _spec(agents, name), content=settings.signals.content)
        stops.append(engine.listeners.hear(traces.ended, (HappeningKind.COMPLETED, HappeningKind.FAILED)))
        engine.dress = lambda running, context: set_current(running.delegation, context)
    models.hear = _hearing(engine, counts, traces)
    return Signals(sender, origin_here if asked_for.traces else _nowhere, tuple(stops))


def _hearing(engine: "EmbeddedEngine", counts: Any, traces: Any) -> "Callable[[Any, Call], None]":
    from remit.engine.embedded import CURRENT

    def hear(purse: Any, call: "Call") -> None:
        if counts is not None:
            counts.asked(*call)
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
