"""Who runs next: slots in all and per agent, and a bounded queue ordered by priority with slow ageing (S5.6).

Waiting raises priority by one each `ageing_seconds`. All who wait age alike, so the order between two of them never changes:
one fixed key, `since - priority * ageing`, is enough, and low is never starved.

A delegation that waits for its children lends its slot to them: callers can never hold all slots while their children queue.
"""

import heapq
from collections.abc import Callable
from typing import Any

from remit.core.states import Priority


class Slots:
    def __init__(self, total: int, *, queue_limit: int, ageing_seconds: float) -> None:
        self.total = total
        self.queue_limit = queue_limit
        self.used = 0
        self.waiting = 0
        self.is_shut = False
        """Who waits is given none any more: it would only be begun to be stopped."""
        self._limits: dict[str, int] = {}
        self._used_by_agent: dict[str, int] = {}
        self._ageing_seconds = ageing_seconds
        self._lanes: dict[str, list[list[Any]]] = {}
        self._count = 0

    def limit(self, agent: str, slots: int | None, *, is_lent: bool = False) -> None:
        """An agent's own declaration, unless the settings say otherwise. One that is lent has no say where there is a limit already."""
        if not is_lent:
            self._limits.pop(agent, None)
        if slots is not None:
            self._limits.setdefault(agent, slots)

    def is_free(self, agent: str) -> bool:
        if self.used >= self.total:
            return False
        limit = self._limits.get(agent)
        return limit is None or self._used_by_agent.get(agent, 0) < limit

    @property
    def is_full(self) -> bool:
        """The queue takes no more."""
        return self.waiting >= self.queue_limit

    def take(self, agent: str) -> None:
        self.used += 1
        if agent in self._limits or agent in self._used_by_agent:
            self._used_by_agent[agent] = self._used_by_agent.get(agent, 0) + 1

    def give(self, agent: str) -> None:
        self.used -= 1
        if agent in self._used_by_agent:
            self._used_by_agent[agent] -= 1

    def reserve(self) -> None:
        """A place in the queue, from the moment it is asked for."""
        self.waiting += 1

    def release(self) -> None:
        """The place is free again: it was given a slot, or ended before it had one."""
        self.waiting -= 1

    def enqueue(self, agent: str, priority: Priority, since: float, item: Any) -> list[Any]:
        """`item` has a place reserved and waits from now on. The entry this gives is emptied when it no longer does."""
        self._count += 1
        entry = [since - priority * self._ageing_seconds, self._count, item]
        lane = self._lanes.setdefault(agent, [])
        if len(lane) > 64 and sum(one[2] is None for one in lane) * 2 > len(lane):
            lane[:] = [one for one in lane if one[2] is not None]
            heapq.heapify(lane)
        heapq.heappush(lane, entry)
        return entry

    def next(self, is_wanted: Callable[[Any], bool]) -> Any | None:
        """The next item that may run; those nobody wants any more are dropped on the way."""
        if self._lanes and self.used < self.total and not self.is_shut:
            best: str | None = None
            for agent, lane in list(self._lanes.items()):
                while lane and (lane[0][2] is None or not is_wanted(lane[0][2])):
                    heapq.heappop(lane)
                if not lane:
                    del self._lanes[agent]
                elif self.is_free(agent) and (best is None or lane[0] < self._lanes[best][0]):
                    best = agent
            if best is None:
                return None
            return heapq.heappop(self._lanes[best])[2]
        return None
