"""Streams that are open: so many of each caller, and none longer than its caller is welcome. Used by `entrance`.

One look a second for all of them together, only while there are any. A stream whose caller's token was revoked meanwhile ends where it
waits, as by `asyncio.timeout`: its task is cancelled, and what leaves the `with` is `Refused`, not a cancellation.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType

from remit.access.limits import Counts
from remit.access.visitor import Visitor
from remit.core.errors import Refused

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
