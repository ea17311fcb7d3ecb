"""The scheduler: total slots and slots per agent, the queue for them, and slots that waiting callers lend to their children."""

import heapq
from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol

from remit.core.delegation import Delegation

CROWDED_SECONDS = 0.01
"""After several ran at once, more are expected for this long."""


class Schedulable(Protocol):
    @property
    def delegation(self) -> Delegation: ...


class Scheduler:
    def __init__(
        self,
        total: int,
        *,
        queue_limit: int,
        ageing_seconds: float,
        start: Callable[[Any], None] = lambda _item: None,
        on_free: Callable[[], None] | None = None,
    ) -> None:
        """`start`: called with a queued item that got a slot; `on_free`: called when a slot became free."""
        self.total = total
        self._on_free = on_free
        self.waiting = 0
        """Queued items, including those being recorded."""
        self._queue_limit = queue_limit
        self._ageing_seconds = ageing_seconds
        self._start = start
        self._used = 0
        self._crowded_at = 0.0
        """When several last ran at once."""
        self._limits: dict[str, int] = {}
        self._used_by_agent: dict[str, int] = {}
        self._lent: dict[Schedulable, int] = {}
        """Items with a slot and the number of children they wait for; while there are any, the slot is lent."""
        self._places: dict[Schedulable, list[Any] | None] = {}
        """Queued items with their entry in its lane; None: not recorded yet."""
        self._lanes: dict[str, list[list[Any]]] = {}
        self._count = 0
        self._is_shut = False

    def limit(self, agent: str, slots: int | None) -> None:
        self._limits.pop(agent, None)
        if slots is not None:
            self._limits[agent] = slots
        self.fill()

    @property
    def is_full(self) -> bool:
        """Whether the queue is full."""
        return self.waiting >= self._queue_limit

    @property
    def is_alone(self) -> bool:
        """Whether one item runs and no other ran recently: then nothing would join its group of writes."""
        return self._used == 1 and monotonic() - self._crowded_at > CROWDED_SECONDS

    def has_slot(self, item: Schedulable) -> bool:
        return item in self._lent

    def is_waiting(self, item: Schedulable) -> bool:
        return item in self._places

    def room(self, agent: str) -> int:
        """How many more of `agent` would get a slot at once."""
        free, limit = self.total - self._used, self._limits.get(agent)
        if limit is not None:
            free = min(free, limit - self._used_by_agent.get(agent, 0))
        return free - sum(item.delegation.agent == agent for item in self._places)

    def acquire(self, item: Schedulable) -> bool:
        """Take a slot if one is free."""
        agent = item.delegation.agent
        if self._used >= self.total or (self._limits and not self._is_free(agent)):
            return False
        self._take(agent)
        self._lent[item] = 0
        return True

    def reserve(self, item: Schedulable) -> None:
        """Reserve a place in the queue while the item is being recorded."""
        self.waiting += 1
        self._places[item] = None

    def enqueue(self, item: Schedulable, since: float) -> None:
        """Queue an item with a reserved place. Waiting raises its priority, so that no item starves."""
        self._count += 1
        delegation = item.delegation
        entry = [since - delegation.priority * self._ageing_seconds, self._count, item]
        lane = self._lanes.setdefault(delegation.agent, [])
        heapq.heappush(lane, entry)
        self._places[item] = entry
        self.fill()

    def leave(self, item: Schedulable) -> None:
        """Release the slot or the place in the queue."""
        if item in self._places:
            entry = self._places.pop(item)
            self.waiting -= 1
            if entry is not None:
                entry[2] = None
        children = self._lent.pop(item, None)
        if children == 0:
            self._give(item.delegation.agent)
        if self.waiting:
            self.fill()

    def lend(self, item: Schedulable) -> None:
        """Lend the slot of a caller that waits for a child, so that callers cannot starve their own children."""
        children = self._lent.get(item)
        if children is not None:
            self._lent[item] = children + 1
            if children == 0:
                self._give(item.delegation.agent)
                if self.waiting:
                    self.fill()

    def take_back(self, item: Schedulable) -> None:
        children = self._lent.get(item)
        if children is not None:
            self._lent[item] = children - 1
            if children == 1:
                self._take(item.delegation.agent)

    def shut(self) -> None:
        """Stop giving slots to queued items."""
        self._is_shut = True

    def fill(self) -> None:
        """Give free slots to queued items."""
        while self.waiting and (item := self._next()) is not None:
            del self._places[item]
            self.waiting -= 1
            self._take(item.delegation.agent)
            self._lent[item] = 0
            self._start(item)

    def _next(self) -> Any | None:
        if not self._lanes or self._used >= self.total or self._is_shut:
            return None
        best: str | None = None
        for agent, lane in list(self._lanes.items()):
            while lane and lane[0][2] is None:
                heapq.heappop(lane)
            if not lane:
                del self._lanes[agent]
            elif self._is_free(agent) and (best is None or lane[0] < self._lanes[best][0]):
                best = agent
        return None if best is None else heapq.heappop(self._lanes[best])[2]

    def _is_free(self, agent: str) -> bool:
        if self._used >= self.total:
            return False
        limit = self._limits.get(agent)
        return limit is None or self._used_by_agent.get(agent, 0) < limit

    def _take(self, agent: str) -> None:
        self._used += 1
        if agent in self._limits or agent in self._used_by_agent:
            self._used_by_agent[agent] = self._used_by_agent.get(agent, 0) + 1

    def _give(self, agent: str) -> None:
        self._used -= 1
        if self._used == 1:
            self._crowded_at = monotonic()
        if agent in self._used_by_agent:
            self._used_by_agent[agent] -= 1
        if self._on_free is not None:
            self._on_free()
