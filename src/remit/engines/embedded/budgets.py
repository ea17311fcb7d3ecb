"""Budgets that outlive a delegation tree or a process: those of principals and of recovered trees."""

import asyncio
from typing import TYPE_CHECKING

from remit.core.budget import Budget, Limits
from remit.core.deadline import Clock
from remit.core.delegation import CallerInfo
from remit.core.events import EventKind
from remit.core.ports import Store
from remit.core.record import Record
from remit.engines.embedded.journal import Journal
from remit.system.liveness import below
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.runtime.local_context import LocalRun


class PrincipalBudgets:
    """One budget per authenticated principal, shared by all of its trees in all processes.

    The store counts spending in the transaction that records a delegation or its outcome, and records none beyond the limits. The budgets
    here are what this process knows: they refuse early, and tell agents what is left."""

    def __init__(self, journal: Journal, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._journal = journal
        self._clock = clock
        self._loop = loop
        self._budgets: dict[str, Budget] = {}
        self._read_at: dict[str, float] = {}
        """Wall clock; delegations created before are counted."""
        self._reading = asyncio.Lock()

    async def get(self, principal: str, limits: Limits | None = None, *, is_shared: bool = False) -> Budget:
        """`limits`: its current limits, which the store keeps for all processes; None: those that the store has. `is_shared`: other
        processes spend too, so their recorded spending is read again."""
        budget = self._budgets.get(principal)
        if budget is None or is_shared:
            async with self._reading:  # concurrent calls would create two budgets
                budget = self._budgets.get(principal)
                if budget is None:
                    budget = Budget(await off_loop(self._journal.store.limits, principal), opened_at=self._loop.time())
                    await self._read(principal, budget)
                    self._budgets[principal] = budget
                elif is_shared:
                    await self._read(principal, budget)
        if limits is not None and limits != budget.limits:
            budget.limits = limits
            await self._journal.call(lambda store: store.set_limits(principal, limits))
        return budget

    def includes(self, principal: str, budget: Budget) -> bool:
        """Whether this one is within the budget of the principal."""
        return any(scope is self._budgets.get(principal) for scope in budget.scopes())

    def limits_spending(self, principal: str) -> bool:
        budget = self._budgets.get(principal)
        return budget is not None and (budget.limits.tokens is not None or budget.limits.cost is not None)

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
        """Update from the store. Never decreases: spending that is not written yet still counts."""
        self._read_at[principal] = self._clock.wall()
        spent = await off_loop(self._journal.store.spent, principal)
        budget.delegations = max(budget.delegations, spent.delegations)
        budget.tokens = max(budget.tokens, spent.tokens)
        budget.cost = max(budget.cost, spent.cost)
        if spent.since is not None:
            age = max(0.0, self._clock.wall() - spent.since)
            budget.opened_at = min(budget.opened_at, self._loop.time() - age)


def recovered_budget(
    store: Store, record: Record, tree: list[Record], caller: "LocalRun | None", limits: Limits, outer: Budget | None, opened_at: float
) -> Budget:
    """The budget of a recovered delegation. Nothing is refilled: spending before the crash counts. Blocking.

    `limits`: of the tree; `outer`: of its principal."""
    if caller is None:
        budget = Budget(limits, opened_at=opened_at, outer=outer, session_id=record.root_id)
        _draw(store, budget, tree)
        nodes = lineage_of(record, tree)
    else:
        budget = caller.budget
        for scope in budget.scopes():
            scope.delegations -= 1  # already counted with its tree; it enters once more now
        nodes = [record]
    above = None if caller is None else caller.delegation.caller_info
    for node in nodes:
        for narrower in (_callers_limits(node, above), node.limits):
            if narrower is not None:
                # Its deadline has the wall clock of its callers: clocks of several machines are not compared.
                budget = budget.narrowed(narrower, opened_at, node.session_id)
                _draw(store, budget, below(tree, node.session_id))
        above = node.caller_info
    return budget


def lineage_of(record: Record, tree: list[Record]) -> list[Record]:
    """Its callers from the root on, and itself."""
    by_session = {one.session_id: one for one in tree}
    nodes = [record]
    while (parent := by_session.get(nodes[0].parent_id or "")) is not None:
        nodes.insert(0, parent)
    return nodes


def spent_of(store: Store, record: Record) -> tuple[int, float]:
    """Tokens and cost: from its record once settled, else from its events."""
    if record.result is not None:
        return record.tokens, record.cost
    spent = [event.body for event in store.events(record.session_id) if event.kind is EventKind.SPENT]
    return (int(spent[-1]["tokens"]), float(spent[-1]["cost"])) if spent else (record.tokens, record.cost)


def _callers_limits(record: Record, above: CallerInfo | None) -> Limits | None:
    """The limits of an external caller, where they first apply; children inherit them."""
    inherited = None if above is None else above.limits
    return None if record.caller_info is None or record.caller_info.limits == inherited else record.caller_info.limits


def _draw(store: Store, budget: Budget, records: list[Record]) -> None:
    """Count what is on record. The first enters again by itself."""
    spent = store.spent_below(records[0].root_id, records[0].session_id)
    budget.delegations, budget.tokens, budget.cost = spent.delegations - 1, spent.tokens, spent.cost
    budget.alive = sum(record.queue is not None and not record.state.is_settled for record in records[1:])
