"""What limits how much runs at once: slots by agent and priority, options of the engine, and one budget for each principal."""

import asyncio
import heapq
from collections.abc import Callable
from typing import Any

from remit.core.budget import Budget, Limits
from remit.core.deadline import Clock
from remit.core.ports import Store
from remit.core.record import Record
from remit.core.states import Priority
from remit.system.threads import off_loop


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

    def limit(self, agent: str, slots: int | None, *, is_default: bool = False) -> None:
        """`is_default`: only where there is no limit yet."""
        if not is_default:
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


class PrincipalBudgets:
    """Budgets that outlive a delegation tree: one per authenticated principal, shared by all of its trees.

    Spending before this process started is read from the store once per principal; later spending is counted in memory."""

    def __init__(self, store: Store, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._clock = clock
        self._loop = loop
        self._budgets: dict[str, Budget] = {}
        self._read_at: dict[str, float] = {}
        """Wall clock: delegations created before it are counted."""
        self._reading = asyncio.Lock()

    async def get(self, principal: str, limits: Limits | None = None) -> Budget:
        """`limits`: those it has now; None: the latest."""
        budget = self._budgets.get(principal)
        if budget is None:
            async with self._reading:  # two at once would have a budget each
                budget = self._budgets.get(principal)
                if budget is None:
                    budget = Budget(Limits(), opened_at=self._loop.time())
                    await self._read(principal, budget)
                    self._budgets[principal] = budget
        if limits is not None:
            budget.limits = limits
        return budget

    async def restore(self, record: Record) -> Budget | None:
        """The budget that a recovered delegation draws from; the delegation is already counted in it."""
        if record.caller_info is None:
            return None
        principal = record.caller_info.principal
        budget = await self.get(principal)
        if record.created_at >= self._read_at[principal]:  # created by another process since then: its spending is not counted yet
            async with self._reading:
                await self._read(principal, budget)
        budget.delegations -= 1
        return budget

    async def _read(self, principal: str, budget: Budget) -> None:
        """Never less than is known here: spending that is not written yet counts all the same."""
        self._read_at[principal] = self._clock.wall()
        drawn = await off_loop(self._store.drawn, principal)
        budget.delegations = max(budget.delegations, drawn.delegations)
        budget.tokens = max(budget.tokens, drawn.tokens)
        budget.cost = max(budget.cost, drawn.cost)
        if drawn.since is not None:
            age = max(0.0, self._clock.wall() - drawn.since)
            budget.opened_at = min(budget.opened_at, self._loop.time() - age)
