"""What limits how much runs at once: slots by agent and priority, options of the engine, and one budget for each principal."""

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remit.core.budget import Budget, Limits
from remit.core.record import Record
from remit.core.states import Priority
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.engines.embedded.embedded import EmbeddedEngine


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    slots_total: int = 256
    queue_limit: int = 10_000
    ageing_seconds: float = 30.0
    kill_grace_seconds: float = 0.25
    block_limit_seconds: float = 2.0
    chunk_limit_bytes: int = 4 * 1024 * 1024
    project: str = "remit"
    """Names the project in the marks of its processes."""
    accept_env: tuple[str, ...] = ()
    """Variables that acceptance commands get beside the usual ones."""
    commit_in_loop: bool = True
    """False with durability "power": each group costs an fsync, which the loop must not wait for."""


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


class Purses:
    def __init__(self, engine: "EmbeddedEngine") -> None:
        self._engine = engine
        self._open: dict[str, Budget] = {}
        self._read_at: dict[str, float] = {}
        """Wall clock: what was asked for before is counted."""
        self._reading = asyncio.Lock()

    async def of(self, principal: str, limits: Limits | None = None) -> Budget:
        """`limits`: those it has now; None: as they were last said."""
        purse = self._open.get(principal)
        if purse is None:
            async with self._reading:  # two at once would have a scope each
                purse = self._open.get(principal) or await self._opened(principal)
        if limits is not None:
            purse.limits = limits
        return purse

    async def of_restored(self, record: Record) -> Budget | None:
        """The one that a delegation of a dead process draws from again: it is counted there, and enters once more."""
        if record.caller_info is None:
            return None
        principal = record.caller_info.principal
        purse = await self.of(principal)
        if record.created_at >= self._read_at[principal]:  # another process began it since: what that drew is not counted yet
            async with self._reading:
                await self._read(principal, purse)
        purse.delegations -= 1
        return purse

    async def _opened(self, principal: str) -> Budget:
        purse = Budget(Limits(), opened_at=self._engine.loop.time())
        await self._read(principal, purse)
        self._open[principal] = purse
        return purse

    async def _read(self, principal: str, purse: Budget) -> None:
        """Never less than is known here: what is not written yet has been drawn all the same."""
        self._read_at[principal] = self._engine.clock.wall()
        drawn = await off_loop(self._engine.store.drawn, principal)
        purse.delegations = max(purse.delegations, drawn.delegations)
        purse.tokens = max(purse.tokens, drawn.tokens)
        purse.cost = max(purse.cost, drawn.cost)
        if drawn.since is not None:
            age = max(0.0, self._engine.clock.wall() - drawn.since)
            purse.opened_at = min(purse.opened_at, self._engine.loop.time() - age)
