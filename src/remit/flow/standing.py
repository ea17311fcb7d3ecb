"""Where whoever delegates stands: its place in a tree, what is left of its time and budget, and in whose name it asks. Used by `accept`.

Three kinds of callers: nobody (a person or a program of this project: a new root), a running delegation (its child), and somebody who came
in by a door (`core.origin`): a new root that counts on from where that one stands, or a child, with the token of a delegation.
"""

from remit.core.budget import Budget, Limits
from remit.core.lineage import ROOT_CALLER, Lineage
from remit.core.origin import Came, Origin
from remit.flow.house import ROOT_LINEAGE, Caller, House, Tree

Standing = tuple[Lineage, Tree, Budget, float | None, int, str, Came | None]
"""The caller's lineage; the tree; the budget; when the caller itself ends (monotonic; None: it does not); the depth that is allowed; the
principal of the policy; who came in from outside. Taken apart at once, and made for every delegation: hence a plain one."""


def standing(caller: Caller | None, origin: Origin | None, limits: Limits | None, house: House, now: float) -> Standing:
    """`limits`: what the request asks for itself."""
    if caller is not None:
        return _of_child(caller, origin, limits, house, now)
    if origin is not None:
        return _of_visitor(origin, limits, house, now)
    budget = Budget(house.rules.budget, opened_at=now)
    if limits is not None:
        budget = budget.narrowed(limits, now)
    return ROOT_LINEAGE, Tree(budget), budget, None, house.rules.max_depth, ROOT_CALLER, None


def _of_child(caller: Caller, origin: Origin | None, limits: Limits | None, house: House, now: float) -> Standing:
    delegation = caller.delegation
    budget, came, max_depth = caller.budget, delegation.came, house.rules.max_depth
    if came is not None and came.max_depth is not None:  # whoever began the tree may go no deeper, and nobody below
        max_depth = min(max_depth, came.max_depth)
    hard_at: float | None = delegation.deadline.hard_at
    if origin is not None:  # a token of this delegation, which may have been narrowed on its way
        if origin.budget is not None and any(scope is budget for scope in origin.budget.scopes()):  # a scope inside of its own
            budget = origin.budget
        budget, hard_at, max_depth = _narrowed(origin, budget, hard_at, max_depth, house, now)
        if origin.max_depth is not None or origin.limits is not None:
            came = _kept(came or Came(ROOT_CALLER), origin, max_depth)
    if limits is not None:
        budget = budget.narrowed(limits, now)
    return delegation.lineage, caller.tree, budget, hard_at, max_depth, delegation.agent, came


def _of_visitor(origin: Origin, limits: Limits | None, house: House, now: float) -> Standing:
    budget = Budget(house.rules.budget, opened_at=now, outer=origin.budget)
    narrowed, hard_at, max_depth = _narrowed(origin, budget, None, house.rules.max_depth, house, now)
    if limits is not None:
        narrowed = narrowed.narrowed(limits, now)
    above = Lineage("", "", None, origin.depth, origin.path)
    return above, Tree(narrowed), narrowed, hard_at, max_depth, origin.came.principal, _kept(origin.came, origin, max_depth)


def _kept(came: Came, origin: Origin, max_depth: int) -> Came:
    """With what holds for everything below, also after a crash."""
    if origin.max_depth is not None:
        came = came._replace(max_depth=max_depth)
    return came if origin.limits is None else came._replace(limits=origin.limits)


def _narrowed(
    origin: Origin, budget: Budget, hard_at: float | None, max_depth: int, house: House, now: float
) -> tuple[Budget, float | None, int]:
    if origin.limits is not None:
        budget = budget.narrowed(origin.limits, now)
    if origin.deadline_at is not None:
        theirs = now + origin.deadline_at - house.clock.wall()
        hard_at = theirs if hard_at is None else min(hard_at, theirs)
    return budget, hard_at, max_depth if origin.max_depth is None else min(max_depth, origin.max_depth)
