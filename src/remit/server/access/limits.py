"""How much one may ask for: requests by time, bytes, open streams; and how often one may be wrong. Memory is bounded whoever comes.

A bucket for each that was seen lately: it holds `burst` requests and is filled again at its rate. One that is full again says nothing and
is forgotten; so those kept are those that were busy within the time a bucket takes to fill, and no more than `MOST` of them.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from types import TracebackType

from remit.core.errors import Refused
from remit.server.access.visitor import Visitor

MOST = 10_000


class RateLimited(Refused):
    """With when to come again: `retry-after` of HTTP, `RetryInfo` of gRPC."""

    default_code = "RATE_LIMITED"

    def __init__(self, message: str, *, retry_after_seconds: float, advice: str = "") -> None:
        super().__init__(message, advice=advice or f"Try again in {max(retry_after_seconds, 0.1):.1f} s.")
        self.retry_after_seconds = retry_after_seconds


class Buckets:
    def __init__(self, clock: Callable[[], float], most: int = MOST) -> None:
        self._clock = clock
        self._most = most
        self._held: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What is left in each, and when that was so; the one that was asked for longest ago first."""

    def __len__(self) -> int:
        return len(self._held)

    def take(self, name: str, rate: float, burst: float) -> float:
        """0: one was taken; else in how many seconds there is one."""
        now = self._clock()
        burst = max(burst, 1.0)
        held = self._held.get(name)
        left = burst if held is None else min(burst, held[0] + max(0.0, now - held[1]) * rate)
        is_there = left >= 1.0
        self._held[name] = (left - 1.0 if is_there else left, now)
        self._held.move_to_end(name)
        if len(self._held) > self._most:
            self._held.popitem(last=False)
        return 0.0 if is_there else (1.0 - left) / rate if rate > 0 else 3600.0


class Counts:
    """Of what is open at once."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def enter(self, name: str, most: int) -> None:
        count = self._open.get(name, 0)
        if count >= most:
            raise RateLimited(
                f"{name} has {count} streams open, which is as many as it may.",
                retry_after_seconds=1.0,
                advice="Close one first; several tasks can be looked at without a stream each.",
            )
        self._open[name] = count + 1

    def leave(self, name: str) -> None:
        left = self._open.get(name, 0) - 1
        if left > 0:
            self._open[name] = left
        else:
            self._open.pop(name, None)

    def of(self, name: str) -> int:
        return self._open.get(name, 0)


# ---- open streams: one check a second for all; a stream whose token was revoked ends with `Refused`


LOOK_SECONDS = 1.0


class Streams:
    def __init__(self, is_welcome: Callable[[Visitor], bool], ended: Callable[[Visitor], Refused]) -> None:
        self._is_welcome = is_welcome
        self._ended = ended
        self._counts = Counts()
        self._watched: set[Open] = set()
        self._timer: asyncio.TimerHandle | None = None

    def open(self, visitor: Visitor, most: int) -> "Open":
        return Open(self, visitor, most)

    def count(self, principal: str) -> int:
        return self._counts.of(principal)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        welcome: dict[object, bool] = {}
        for one in list(self._watched):
            shown = (one.visitor.credentials, one.visitor.grants.expires_at)
            if shown not in welcome:
                welcome[shown] = self._is_welcome(one.visitor)
            if not welcome[shown]:
                self._watched.discard(one)
                one.end(self._ended(one.visitor))
        self._look_again()

    def _look_again(self) -> None:
        if self._watched and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _enter(self, one: "Open", most: int) -> None:
        self._counts.enter(one.visitor.principal, most)
        if one.task is not None and one.visitor.credentials:
            self._watched.add(one)
            self._look_again()

    def _leave(self, one: "Open") -> None:
        self._counts.leave(one.visitor.principal)
        self._watched.discard(one)
        if not self._watched:
            self.close()


class Open:
    """`with entrance.stream(visitor): …` in the task that sends. Raises `RateLimited` at once, `Refused` when its caller is sent away."""

    def __init__(self, streams: Streams, visitor: Visitor, most: int) -> None:
        self._streams = streams
        self.visitor = visitor
        self._most = most
        self.task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._refusal: Refused | None = None

    def __enter__(self) -> "Open":
        try:
            self.task = asyncio.current_task()
        except RuntimeError:  # no loop runs here: only counted
            self.task = None
        if self.task is not None:
            self._cancelling = self.task.cancelling()
        self._streams._enter(self, self._most)
        return self

    def end(self, refusal: Refused) -> None:
        self._refusal = refusal
        if self.task is not None:
            self.task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._streams._leave(self)
        if self._refusal is None or self.task is None:
            return
        if self.task.uncancel() <= self._cancelling and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise self._refusal from error
