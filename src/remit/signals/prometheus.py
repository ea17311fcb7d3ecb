"""`/metrics`: the counts of a served project as Prometheus reads them. A route for `remit serve`; needs the grant `metrics`, or the owner.

Shows what `counting` counts, under the names of `names`. Who asks is known already: the door's middleware puts the visitor into the scope.
Imported only when a door is opened.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from remit.access.visitor import Doing, Visitor
from remit.core.errors import Misused
from remit.signals.counting import Counts, Reading, Spread, counts_of
from remit.signals.names import Kind, label

try:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.metrics_core import Metric
except ModuleNotFoundError as error:
    raise Misused("The Prometheus endpoint is not installed.", advice='pip install "remit[telemetry]"') from error

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from remit.engine.embedded import EmbeddedEngine

PATH = "/metrics"
OPEN_METRICS = "application/openmetrics-text"
VISITOR = "remit.visitor"
"""Where the middleware of the HTTP doors puts who asks."""


class Collector:
    """What prometheus_client reads."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def collect(self) -> Iterable[Metric]:
        return [family_of(reading) for reading in self._counts.read()]


def family_of(reading: Reading) -> Metric:
    one = reading.instrument
    name, words, labels = one.prometheus, f"{one.words}.", [label(name) for name in one.labels]
    if one.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(name, words, labels=labels)
        for values, spread in reading.values.items():
            assert isinstance(spread, Spread)
            histogram.add_metric(values, _cumulative(spread), sum_value=spread.total)
        return histogram
    family: Any = (CounterMetricFamily if one.kind is Kind.COUNTER else GaugeMetricFamily)(name, words, labels=labels)
    for values, value in reading.values.items():
        family.add_metric(values, value)
    return family  # type: ignore[no-any-return]


def _cumulative(spread: Spread) -> list[tuple[str, float]]:
    found, seen = [], 0
    for bound, count in zip((*map(str, spread.bounds), "+Inf"), spread.counts, strict=True):
        seen += count
        found.append((bound, float(seen)))
    return found


def text_of(counts: Counts, accept: str = "") -> tuple[bytes, str]:
    """The page and its type: Prometheus' own form, or OpenMetrics where that is asked for."""
    registry = CollectorRegistry()
    registry.register(Collector(counts))
    # Of what is accepted only this counts: a version that is no number would be an error of the library's.
    encode, content_type = choose_encoder(OPEN_METRICS if OPEN_METRICS in accept else "")
    return encode(registry), content_type


def routes(engine: "EmbeddedEngine") -> "Sequence[BaseRoute]":
    """Counts from now on."""
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    counts = counts_of(engine)

    async def metrics(request: "Request") -> "Response":
        visitor = request.scope.get(VISITOR)
        if not isinstance(visitor, Visitor):  # nobody looked who it is: a door put together wrongly must not stand open
            return PlainTextResponse("Say who you are: Authorization: Bearer …\n", 401, {"WWW-Authenticate": "Bearer"})
        if not visitor.may(Doing.METRICS):
            advice = "`remit token new --may metrics` makes a token that may."
            return PlainTextResponse(f"{visitor.principal} may not see metrics. {advice}\n", 403)
        page, content_type = text_of(counts, request.headers.get("accept", ""))
        return Response(page, headers={"Content-Type": content_type, "Cache-Control": "no-store"})

    return [Route(PATH, metrics, methods=["GET"])]
