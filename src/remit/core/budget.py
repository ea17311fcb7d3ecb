"""One budget per tree: total delegations, delegations alive at once, tokens, money, wall clock.

Limits are nested scopes. A child without its own limits draws from its caller's scope; one with limits gets a narrower scope inside it.
Every draw goes up the chain, so no scope can be refilled, and a refusal names the limit that was reached."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from remit.core.deadline import Deadline
from remit.core.errors import Misused

SOFT_SHARE = 0.10
SOFT_GRACE_MAX_SECONDS = 30.0
MOST = 1e15
"""Largest accepted limit. To remove a limit, leave it out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a budget. None: no limit of this kind."""

    delegations: int | None = None
    alive: int | None = None
    tokens: int | None = None
    cost: float | None = None
    """Money, in the currency the agents report."""
    seconds: float | None = None
    """Wall clock for the whole scope."""

    def __post_init__(self) -> None:
        for name in KINDS:
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MOST):
                raise Misused(f"budget: {name} must be a number of at least 0, not {value!r}.", code="INVALID_PARAMETERS")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


KINDS = tuple(one.name for one in fields(Limits))


class TreeLimits(NamedTuple):
    """The scopes of a tree that a delegation draws from, innermost first."""

    root_id: str
    scopes: tuple[tuple[str, Limits], ...]
    """Limits of a delegation with everything below it."""
    principal: str | None = None
    """Whose limits, which the store has, are compared with spending, too."""


class Budget:
    """A scope of limits and its spending. Shared by all delegations inside it; used on one thread."""

    __slots__ = ("alive", "cost", "delegations", "ends_at", "is_shared", "limits", "opened_at", "outer", "session_id", "tokens")

    def __init__(self, limits: Limits, opened_at: float, outer: "Budget | None" = None, session_id: str | None = None) -> None:
        self.limits = limits
        self.outer = outer
        self.session_id = session_id
        """The delegation that it is for, with everything below it; None: it is for more than one tree."""
        self.is_shared = False
        """Whether other processes draw from it, too: then the store compares each draw."""
        self.opened_at = opened_at
        self.ends_at: float | None = None if limits.seconds is None else opened_at + limits.seconds
        """When the wall clock of the tightest scope ends (monotonic)."""
        if outer is not None and outer.ends_at is not None and (self.ends_at is None or outer.ends_at < self.ends_at):
            self.ends_at = outer.ends_at
        self.delegations = 0
        self.alive = 0
        self.tokens = 0
        self.cost = 0.0

    def narrowed(self, limits: Limits, now: float, session_id: str | None = None) -> "Budget":
        return Budget(limits, opened_at=now, outer=self, session_id=session_id)

    def rename_scopes(self, session_id: str, before: str) -> None:
        """The delegation `before` has another id now."""
        scope: Budget | None = self
        while scope is not None and scope.session_id == before:
            scope.session_id = session_id
            scope = scope.outer

    def scopes(self) -> Iterator["Budget"]:
        scope: Budget | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def share(self) -> None:
        """Other processes draw from it from now on."""
        for scope in self.scopes():
            scope.is_shared = True

    def tree_limits(self, root_id: str) -> TreeLimits | None:
        """What the store compares, if other processes draw from it, too."""
        scope: Budget | None = self
        while scope is not None and not scope.is_shared:
            scope = scope.outer
        if scope is None:
            return None
        return TreeLimits(root_id, tuple((one.session_id, one.limits) for one in self.scopes() if one.session_id is not None))

    def lacks(self, now: float) -> str | None:
        """Why the budget does not allow another delegation, or None."""
        scope: Budget | None = self
        while scope is not None:
            limits = scope.limits
            if limits.delegations is not None and scope.delegations >= limits.delegations:
                return f"{limits.delegations} delegations in all"
            if limits.alive is not None and scope.alive >= limits.alive:
                return f"{limits.alive} delegations alive at once"
            if limits.seconds is not None and now - scope.opened_at >= limits.seconds:
                return f"{limits.seconds:g} s of wall clock"
            if (limits.tokens is not None or limits.cost is not None) and (spent := scope.overspent(at_limit_counts=True)) is not None:
                return spent
            scope = scope.outer
        return None

    def overspent(self, *, at_limit_counts: bool = False) -> str | None:
        """The token or money limit that is exceeded (or, for a new delegation, reached)."""
        for used, limit, unit in ((self.tokens, self.limits.tokens, "tokens"), (self.cost, self.limits.cost, "of money")):
            if limit is not None and (used > limit or (at_limit_counts and used == limit)):
                return f"{limit:g} {unit}" if isinstance(limit, float) else f"{limit} {unit}"
        return None

    def enter(self) -> bool:
        """Whether other processes draw from it, too."""
        scope: Budget | None = self
        is_shared = False
        while scope is not None:
            scope.delegations += 1
            scope.alive += 1
            is_shared = is_shared or scope.is_shared
            scope = scope.outer
        return is_shared

    def leave(self) -> None:
        scope: Budget | None = self
        while scope is not None:
            scope.alive -= 1
            scope = scope.outer

    def undo_enter(self) -> None:
        """It was not recorded, so nothing was drawn."""
        for scope in self.scopes():
            scope.delegations -= 1
        self.leave()

    def charge(self, *, tokens: int = 0, cost: float = 0.0) -> str | None:
        """Draw tokens and money. Returns the limit this exceeds, or None."""
        for name, value in (("tokens", tokens), ("cost", cost)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MOST:
                raise Misused(f"{name} must be a number of at least 0, not {value!r}.", advice="Spending cannot be reversed.")
        passed = None
        for scope in self.scopes():
            scope.tokens += tokens
            scope.cost += cost
            passed = passed or scope.overspent()
        return passed

    def left(self, now: float) -> Limits:
        """The remaining budget as shown to an agent: the tightest scope of each kind."""
        left: dict[str, Any] = {}
        for scope in self.scopes():
            drawn = (scope.delegations, scope.alive, scope.tokens, scope.cost, now - scope.opened_at)
            for kind, used in zip(KINDS, drawn, strict=True):
                if (limit := getattr(scope.limits, kind)) is not None:
                    left[kind] = min(left.get(kind, limit), max(0, limit - used))
        return Limits(**left)

    def spendable(self) -> tuple[int | None, float | None]:
        """Remaining tokens and money, the tightest scope of each: facts for policy rules."""
        left = self.left(self.opened_at)
        return left.tokens, left.cost


# ---- the deadline of a delegation within its budget


def grace_seconds(timeout_seconds: float) -> float:
    share = timeout_seconds * SOFT_SHARE
    return share if share < SOFT_GRACE_MAX_SECONDS else SOFT_GRACE_MAX_SECONDS


def effective_deadline(timeout_seconds: float, now: float, caller_hard_at: float | None = None) -> Deadline:
    """The absolute deadline: `min(requested, maximum, remaining time of the caller)`."""
    hard_at = now + timeout_seconds
    if caller_hard_at is not None and hard_at > caller_hard_at:
        hard_at, timeout_seconds = caller_hard_at, max(0.0, caller_hard_at - now)
    # Bypasses its Python constructor: every delegation passes here.
    return tuple.__new__(Deadline, (hard_at, hard_at - grace_seconds(timeout_seconds), timeout_seconds))
