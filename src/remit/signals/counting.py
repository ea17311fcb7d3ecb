"""What is counted while a `Remit` is open, for whoever asks: Prometheus (`prometheus`) and a collector of OpenTelemetry (`exporting`).

One set of sums behind both, so that they never differ. Of this process, since it was opened: what ended, how long it took, what it drew,
who came to the doors; the shares and the p99 of S5.9 over the last five minutes. Its size is bounded whatever is asked for: an agent
nobody has registered, and every name beyond a limit, counts as `(others)`; sessions and users are never labels. Filled on the event loop,
read from any thread.
"""

import threading
import weakref
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from remit.core.happening import Happening, HappeningKind
from remit.core.metrics import OTHERS, Metrics, Tally, metrics_of
from remit.core.states import State
from remit.signals import names
from remit.signals.names import Instrument

if TYPE_CHECKING:
    from remit.engine.embedded import EmbeddedEngine

MOST_SERIES = 500
"""Of targets with their operations and kinds of principals; what comes after counts as `(others)`."""
KINDS = ("orchestrator", "token", "cert", "delegation")
"""Of principals; others count as `other`."""
PARTS = 10
"""The window moves on by this part of itself."""
HEARD = (
    HappeningKind.STARTED,
    HappeningKind.COMPLETED,
    HappeningKind.FAILED,
    HappeningKind.ADMITTED,
    HappeningKind.TURNED_AWAY,
)
_NOT_TIMED = (State.REFUSED, State.CANCELLED)

Labels = tuple[str, ...]


@dataclass(slots=True)
class Spread:
    """A histogram with fixed bounds."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    """One more than bounds: the last is of what is beyond."""
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """An instrument as it stands, for each of its label values."""

    instrument: Instrument
    values: Mapping[Labels, "float | Spread"]


class Window:
    """Tallies of the last while, in parts: the oldest is dropped as a new one begins. Constant memory."""

    def __init__(self, seconds: float = names.WINDOW_SECONDS) -> None:
        self._seconds = seconds / PARTS
        self._parts: deque[tuple[int, Tally]] = deque(maxlen=PARTS)

    def add(self, at: float, agent: str, state: State, seconds: float | None) -> None:
        number = int(at // self._seconds)
        if not self._parts or self._parts[-1][0] < number:  # a clock that was set back goes on in the newest part
            self._parts.append((number, Tally()))
        self._parts[-1][1].add(agent, state, seconds, 0, 0.0)

    def read(self, now: float) -> Metrics:
        oldest = int(now // self._seconds) - PARTS + 1
        merged = Tally()
        for number, tally in list(self._parts):
            if number >= oldest:
                merged.merge(tally)
        return metrics_of(merged, since=now - self._seconds * PARTS, until=now)


class Counts:
    def __init__(self, is_known: Callable[[str], bool], wall: Callable[[], float], live: Callable[[], Iterable[Any]]) -> None:
        """`is_known`: whether an agent of that name is registered; `live`: what is queued or runs."""
        self.began_at = wall()
        self._is_known = is_known
        self._wall = wall
        self._live = live
        self._lock = threading.Lock()
        self._sums: dict[Instrument, dict[Labels, float]] = {
            one: {} for one in (names.ENDED, names.STARTED, names.TOKENS, names.COST, names.VISITS)
        }
        self._spreads: dict[Instrument, dict[Labels, Spread]] = {
            one: {} for one in (names.LATENCY, names.MODEL_DURATION, names.MODEL_USAGE)
        }
        self._window = Window()
        self._named: set[Labels] = set()

    # ---- what happens

    def hear(self, happening: Happening) -> None:
        with self._lock:
            if happening.kind is HappeningKind.STARTED:
                target, operation, principal = self._names(happening)
                self._sum(names.STARTED, (target, operation), 1)
                self._ready(target, operation, principal)
            elif happening.success is not None and happening.session_id:
                self._ended(happening)
            elif happening.door:
                code = "" if happening.error is None else happening.error.code
                self._sum(names.VISITS, (happening.door, code), 1)

    def asked(self, provider: str, model: str, seconds: float, used: tuple[int, int] | None, error: str) -> None:
        """A language model was asked; `used`: tokens in and out, None: it did not answer."""
        labels = (str(names.Span.CHAT), provider, model)
        with self._lock:
            self._spread(names.MODEL_DURATION, (*labels, error), seconds)
            for kind, tokens in zip(("input", "output"), used or (), strict=False):
                self._spread(names.MODEL_USAGE, (*labels, kind), tokens)

    def _ended(self, happening: Happening) -> None:
        target, operation, principal = self._names(happening)
        state, seconds = State(happening.state), happening.duration_seconds or 0.0
        self._ready(target, operation, principal)
        self._sum(names.ENDED, (target, operation, str(state), principal), 1)
        if state not in _NOT_TIMED:
            self._spread(names.LATENCY, (target, operation), seconds)
        if happening.tokens:
            self._sum(names.TOKENS, (target,), happening.tokens)
        if happening.cost:
            self._sum(names.COST, (target,), happening.cost)
        self._window.add(happening.at, f"{target}.{operation}" if operation else target, state, seconds)

    def _ready(self, target: str, operation: str, principal: str) -> None:
        """All its endings at nought: Prometheus sees a rise only from a value it has seen."""
        ended = self._sums[names.ENDED]
        if (target, operation, names.ENDINGS[0], principal) not in ended:
            ended.update({(target, operation, state, principal): 0.0 for state in names.ENDINGS})

    def _names(self, happening: Happening) -> Labels:
        principal = (happening.principal or KINDS[0]).partition(":")[0]
        labels = (happening.target, happening.operation or "", principal if principal in KINDS else "other")
        if labels in self._named:
            return labels
        if len(self._named) >= MOST_SERIES or not self._is_known(happening.agent):
            return (OTHERS, "", labels[2])
        self._named.add(labels)
        return labels

    def _sum(self, instrument: Instrument, labels: Labels, more: float) -> None:
        sums = self._sums[instrument]
        if labels not in sums and len(sums) >= MOST_SERIES * len(names.ENDINGS):
            labels = (OTHERS,) * len(labels)
        sums[labels] = sums.get(labels, 0.0) + more

    def _spread(self, instrument: Instrument, labels: Labels, value: float) -> None:
        spreads = self._spreads[instrument]
        if labels not in spreads and len(spreads) >= MOST_SERIES:
            labels = (OTHERS,) * len(labels)
        spread = spreads.get(labels)
        if spread is None:
            spread = spreads[labels] = Spread(instrument.buckets)
        spread.add(value)

    # ---- how it stands

    def read(self) -> list[Reading]:
        """Every instrument, also where nothing was counted yet."""
        with self._lock:
            found: list[Reading] = [Reading(instrument=one, values=dict(sums)) for one, sums in self._sums.items()]
            for one, spreads in self._spreads.items():
                copied = {labels: Spread(spread.bounds, list(spread.counts), spread.total) for labels, spread in spreads.items()}
                found.append(Reading(instrument=one, values=copied))
            recent = self._window.read(self._wall())
        return [*found, *self._gauges(), *_rates(recent)]

    def _gauges(self) -> list[Reading]:
        counted: dict[Instrument, dict[Labels, float]] = {names.RUNNING: {}, names.QUEUED: {}}
        for running in self._live():
            labels = (running.delegation.agent.partition(".")[0],)  # accepted, hence registered
            values = counted[names.QUEUED if running.state is State.QUEUED else names.RUNNING]
            values[labels] = values.get(labels, 0.0) + 1
        return [Reading(instrument=one, values=values) for one, values in counted.items()]


def _rates(recent: Metrics) -> list[Reading]:
    single = (recent.success.rate, recent.timeout.rate, recent.latency["p99"])
    found = [Reading(instrument=one, values={} if value is None else {(): value}) for one, value in zip(names.RATES, single, strict=True)]
    by_target, by_operation = names.ERROR_RATES
    targets: dict[Labels, float | Spread] = {
        (name,): share.rate for name, share in recent.errors_by_target.items() if share.rate is not None
    }
    operations: dict[Labels, float | Spread] = {
        _split(name): share.rate for name, share in recent.errors_by_operation.items() if share.rate is not None
    }
    return [*found, Reading(instrument=by_target, values=targets), Reading(instrument=by_operation, values=operations)]


def _split(agent: str) -> Labels:
    target, _, operation = agent.partition(".")
    return (target, operation)


_OF: "weakref.WeakKeyDictionary[Any, Counts]" = weakref.WeakKeyDictionary()


def counts_of(engine: "EmbeddedEngine") -> Counts:
    """Of what this engine runs, counted from the first time somebody asks."""
    counts = _OF.get(engine)
    if counts is None:
        agents, running = engine.house.agents, engine.running
        counts = _OF[engine] = Counts(lambda name: agents.find(name) is not None, engine.clock.wall, lambda: list(running.values()))
        engine.listeners.hear(counts.hear, HEARD)
    return counts
