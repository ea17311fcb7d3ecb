"""Budgets that outlive a delegation tree or a process: of principals, and of trees that are recovered."""

import asyncio

from remit.core.budget import Budget, Limits
from remit.core.deadline import Clock
from remit.core.events import EventKind
from remit.core.ports import Store
from remit.core.record import Record
from remit.core.states import State
from remit.runtime.deps import Caller
from remit.system.liveness import below
from remit.system.threads import off_loop


class PrincipalBudgets:
    """One budget per authenticated principal, shared by all of its trees.

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


def recovered_budget(
    store: Store, record: Record, tree: list[Record], caller: Caller | None, limits: Limits, outer: Budget | None, opened_at: float
) -> Budget:
    """The budget of a recovered delegation. Nothing is refilled: spending before the crash counts. Blocking.

    `limits`: of a tree; `outer`: of its principal."""
    if caller is None:
        budget = Budget(limits, opened_at=opened_at, outer=outer)
        _draw(store, budget, tree)
    else:
        budget = caller.budget
        for scope in budget.scopes():
            scope.delegations -= 1  # it was counted with its tree, and enters once more now
    for narrower in (_callers_limits(record, caller), record.limits):
        if narrower is not None:
            budget = budget.narrowed(narrower, opened_at)
            _draw(store, budget, below(tree, record.session_id))
    return budget


def spent_of(store: Store, record: Record) -> tuple[int, float]:
    """Tokens and cost: on its record once it is settled, in its events before."""
    if record.result is not None:
        return record.tokens, record.cost
    spent = [event.body for event in store.events(record.session_id) if event.kind is EventKind.SPENT]
    return (int(spent[-1]["tokens"]), float(spent[-1]["cost"])) if spent else (record.tokens, record.cost)


def _callers_limits(record: Record, caller: Caller | None) -> Limits | None:
    """The limits of an outside caller, where they begin to apply: below, they are inherited."""
    above = None if caller is None or caller.delegation.caller_info is None else caller.delegation.caller_info.limits
    return None if record.caller_info is None or record.caller_info.limits == above else record.caller_info.limits


def _draw(store: Store, budget: Budget, records: list[Record]) -> None:
    """What these drew; the first enters again by itself, and refused ones have drawn nothing."""
    budget.delegations = sum(record.state is not State.REFUSED for record in records) - 1
    spent = [spent_of(store, record) for record in records]
    budget.tokens = sum(tokens for tokens, _ in spent)
    budget.cost = sum(cost for _, cost in spent)
