"""The deadline heap: when to look at whom. One timer of the loop for the earliest of them all.

An entry is a moment and a running delegation; when the moment comes, the delegation says when it wants to be looked at next.
Entries of delegations that have settled are emptied at once, so that nothing holds on to them, and swept out when they are the greater
part.
"""

import asyncio
import heapq
import logging
from contextvars import Context
from typing import Any, Protocol


class Timed(Protocol):
    @property
    def ends_at(self) -> float:
        """Its hard deadline."""
        ...

    def look(self, now: float) -> None:
        """Do what is due, and push the next moment to be looked at."""
        ...


log = logging.getLogger("remit.engine")

Entry = list[Any]
"""[moment, number, Timed or None]: a list, so that it can be emptied where it stands."""


class Deadlines:
    def __init__(self, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        self._loop = loop
        self._context = context
        self._heap: list[Entry] = []
        self._count = 0
        self._settled = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")

    def push(self, at: float, timed: Timed) -> Entry:
        self._count += 1
        entry: Entry = [at, self._count, timed]
        heapq.heappush(self._heap, entry)
        if at < self._timer_at:
            self._arm(at)
        return entry

    def forget(self, entry: Entry) -> None:
        """Nobody is to be looked at for this entry any more."""
        entry[2] = None
        self._settled += 1
        if self._settled > 256 and self._settled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2] is not None]
            heapq.heapify(self._heap)
            self._settled = 0

    def earliest_end(self) -> float | None:
        """The first hard deadline that must be kept; asked by the watchdog, from its own thread, while the loop stands still."""
        # Each entry is read once: the loop may empty it between two looks.
        return min((timed.ends_at for entry in list(self._heap) if (timed := entry[2]) is not None), default=None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._heap.clear()

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._fire, context=self._context)

    def _fire(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        now = self._loop.time() + 0.0005  # the loop's timers may fire a clock tick early
        while self._heap and self._heap[0][0] <= now:
            timed: Timed | None = heapq.heappop(self._heap)[2]
            if timed is None:
                self._settled -= 1
                continue
            try:
                timed.look(now)
            except Exception:  # one that goes wrong must not keep the others from their deadlines
                log.exception("A deadline could not be kept")
        if self._heap and self._heap[0][0] < self._timer_at:
            self._arm(self._heap[0][0])
