"""One scope of budget for each principal, shared by all trees that it asked for, over the lives of processes (S8). Used by `serve` and
`restoring`.

What it has drawn is read from the store once, when it is first asked for; from then on everything that draws, draws here. What was
restored after a crash draws from it too, also before anybody has said what its limits are.
"""

import asyncio
from typing import TYPE_CHECKING

from remit.core.budget import Budget, Limits
from remit.core.record import Record
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.engine.embedded import EmbeddedEngine


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
        if record.came is None:
            return None
        principal = record.came.principal
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
