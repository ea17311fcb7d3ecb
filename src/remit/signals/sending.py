"""One thread that sends what was gathered, and never holds anybody up: a bounded queue, a bounded end, one line in the log when it fails.

Not OpenTelemetry's own batch processor: that one waits up to half a minute for a dead collector when a program ends, and writes an error
for every batch. Here the oldest are dropped for newer ones, dropping is counted, and closing takes `CLOSING_SECONDS` at most, whatever the
collector does. Knows neither spans nor metrics, only how to be handed them. Used by `opening`.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

QUEUE_ITEMS = 8192
BATCH_ITEMS = 512
DELAY_SECONDS = 1.0
"""So long a span waits for others that go with it."""
PAUSE_SECONDS = 30.0
"""The longest between two tries while the collector does not answer."""
CLOSING_SECONDS = 1.5
HASTY_SECONDS = 0.9
"""What the last batch is given when the program ends. Less than the exporter's first pause: a refused connection is not tried again."""
THREAD = "remit-signals"
_LOG = logging.getLogger("remit.signals")


class Route(Protocol):
    """Where to; what it raises is said once and forgotten."""

    def send(self, items: Sequence[Any]) -> bool:
        """Whether it arrived."""
        ...

    def send_hastily(self, items: Sequence[Any]) -> bool:
        """The same, in `HASTY_SECONDS`."""
        ...

    def give_up(self) -> None:
        """From another thread: a `send` that waits is to return."""
        ...


class Sender:
    """`beat`: called from the same thread each `beat_seconds` and at the end, for what is not queued but read off (metrics)."""

    def __init__(self, route: Route, where: str, *, beat: Callable[[bool], bool] | None = None, beat_seconds: float = 15.0) -> None:
        self.dropped = 0
        self.lost = 0
        """Sent, and never arrived."""
        self._route = route
        self._where = where
        self._beat = beat
        self._beat_seconds = max(0.05, beat_seconds)
        self._queue: deque[Any] = deque()
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._end = threading.Event()
        self._pause_seconds = DELAY_SECONDS
        self._is_closing = False
        self._is_failing = False
        _hush()
        self._thread = threading.Thread(target=self._work, name=THREAD, daemon=True)
        self._thread.start()

    def put(self, item: Any) -> None:
        """Never waits: beyond the limit the oldest one goes."""
        with self._lock:
            if len(self._queue) >= QUEUE_ITEMS:
                self._queue.popleft()
                self.dropped += 1
            self._queue.append(item)
            is_full = len(self._queue) >= BATCH_ITEMS
        if is_full:
            self._news.set()

    def close(self) -> None:
        """What is there is sent, if it can be in time. Blocks so long at most."""
        if self._is_closing:
            return
        self._is_closing = True
        self._route.give_up()
        self._end.set()
        self._news.set()
        self._thread.join(CLOSING_SECONDS)

    def _work(self) -> None:
        next_beat = time.monotonic() + self._beat_seconds
        while self._waited_for_more(min(DELAY_SECONDS, max(0.0, next_beat - time.monotonic()))):
            self._send_all()
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + self._beat_seconds
                self._beats(is_last=False)
        self._send_all()
        self._beats(is_last=True)

    def _waited_for_more(self, seconds: float) -> bool:
        """False: it is the end. While nothing arrives, it is tried ever more seldom: putting spans for the wire takes time too."""
        if self._is_failing:
            self._end.wait(self._pause_seconds)
            self._pause_seconds = min(2 * self._pause_seconds, PAUSE_SECONDS)
        else:
            self._pause_seconds = DELAY_SECONDS
            self._news.wait(seconds)
        self._news.clear()
        return not self._is_closing

    def _send_all(self) -> None:
        while batch := self._taken():
            is_last = self._is_closing
            if not self._tried(lambda batch=batch, is_last=is_last: self._send(batch, is_last)):  # type: ignore[misc]
                self.lost += len(batch)
                return  # the rest waits for better times, or for the end

    def _send(self, batch: Sequence[Any], is_last: bool) -> bool:
        return self._route.send_hastily(batch) if is_last else self._route.send(batch)

    def _beats(self, *, is_last: bool) -> None:
        if self._beat is not None and not (is_last and self._is_failing):
            beat = self._beat
            self._tried(lambda: beat(is_last))

    def _taken(self) -> list[Any]:
        with self._lock:
            return [self._queue.popleft() for _ in range(min(BATCH_ITEMS, len(self._queue)))]

    def _tried(self, send: Callable[[], bool]) -> bool:
        try:
            has_arrived, why = send(), ""
        except Exception as error:  # noqa: BLE001 - whatever a collector or its library does must not end the thread, nor reach a delegation
            has_arrived, why = False, f" ({error!r})"
        if has_arrived == self._is_failing:  # a change, said once
            self._is_failing = not has_arrived
            if has_arrived:
                _LOG.warning("Traces and metrics reach %s again; %d spans were lost meanwhile.", self._where, self.lost + self.dropped)
            else:
                _LOG.warning("Traces and metrics do not reach %s%s; they are dropped until it answers. Nothing else is.", self._where, why)
        return has_arrived


class _Ours(logging.Filter):
    """The exporters' own words on each failure, of our thread only: `Sender` says it once."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.threadName != THREAD


_HUSHED = _Ours()
_TALKERS = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.sdk.metrics._internal.export",
    "urllib3.connectionpool",
)


def _hush() -> None:
    for name in _TALKERS:
        logging.getLogger(name).addFilter(_HUSHED)  # a second time it is not added
