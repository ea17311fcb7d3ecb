"""The guards: a pure ladder that a delegation must climb before anything runs. The first rejection wins (S1.3-S1.5, S8).

expired, too deep, cycle, budget, unknown agent, bad parameters: each rung is a function of a `Case` and gives the error or None. Then
comes the policy, which is asked by `accept`.
"""

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from remit.core.agents import COME_WITH_REMIT, ROLES, ROLES_GROUP
from remit.core.budget import Budget
from remit.core.errors import ErrorInfo, Refused, RemitError


@dataclass(slots=True, kw_only=True)
class Case:
    """Everything the guards look at; plain facts, gathered by `accept` for one look and not kept (so not frozen: it is made often)."""

    target: str
    now: float
    caller_path: tuple[str, ...]
    caller_depth: int
    """0 for a root caller."""
    caller_hard_at: float | None
    """The caller's hard deadline (monotonic); None for a root caller."""
    max_depth: int
    budget: Budget
    closing: str | None = None
    """Why the caller's tree takes no new delegations (it is being cancelled), or None."""
    ancestor_tasks: Sequence[tuple[str, str]] | None = None
    """With cycles = "task": (agent, normalised task) of each ancestor; None: cycles by agent."""
    task: str = ""
    """The normalised task of this delegation, with cycles = "task"."""
    known: bool = True
    """Whether the directory has the target."""
    directory: Callable[[], Sequence[str]] = tuple
    """The names that exist: only asked for when the target is unknown."""
    fault: RemitError | None = None
    """What was wrong with the parameters or options."""


def first_refusal(case: Case) -> ErrorInfo | None:
    """The reason why this delegation may not run, or None. Total: never raises, never waits."""
    for rung in LADDER:
        error = rung(case)
        if error is not None:
            return error
    return None


def _final(type_: str, message: str, code: str, recommendation: str) -> ErrorInfo:
    return ErrorInfo(type=type_, message=message, code=code, recoverable=False, recommendation=recommendation)


def _walk(case: Case) -> str:
    return f"{' → '.join(case.caller_path)} → {case.target}"


def expired(case: Case) -> ErrorInfo | None:
    if case.closing is not None:
        return _final(
            "cancelled",
            f"Its caller's tree takes no new work: {case.closing}.",
            "CANCELLED",
            "Stop delegating and hand in what there is.",
        )
    if case.caller_hard_at is None or case.now < case.caller_hard_at:
        return None
    return _final(
        "expired",
        f"The caller's own deadline has passed ({_walk(case)}).",
        "TIMEOUT",
        "Delegate earlier, or give the root more time.",
    )


def too_deep(case: Case) -> ErrorInfo | None:
    depth = case.caller_depth + 1
    if depth <= case.max_depth:
        return None
    return _final(
        "max_depth_exceeded",
        f"Depth {depth} is beyond the maximum of {case.max_depth} ({_walk(case)}).",
        "MAX_DEPTH_EXCEEDED",
        "Do this part yourself instead of delegating it, or raise max_depth in remit.toml.",
    )


def cycle(case: Case) -> ErrorInfo | None:
    by_agent = case.ancestor_tasks is None
    met = case.target in case.caller_path if by_agent else (case.target, case.task) in (case.ancestor_tasks or ())
    if not met:
        return None
    return _final(
        "delegation_cycle",
        f"{case.target} is already at work in this path: {_walk(case)}.",
        "CYCLE_DETECTED",
        f"Hand the work to another agent than {', '.join(case.caller_path)}, or do it yourself.",
    )


def budget(case: Case) -> ErrorInfo | None:
    lack = case.budget.lacks(case.now)
    if lack is None:
        return None
    return _final(
        "budget",
        f"The budget of this tree is used up: {lack} ({_walk(case)}).",
        "BUDGET_EXCEEDED",
        "Go on without this delegation, or start the root again with a larger budget.",
    )


def unknown_agent(case: Case) -> ErrorInfo | None:
    if case.known:
        return None
    names = sorted(case.directory(), key=lambda name: (name in ROLES, name))  # those that anybody delegates to by name go first
    close = difflib.get_close_matches(case.target, names, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(close)}?" if close else f"Known: {', '.join(names[:12])}."
    advice = f"{hint} `remit agents` lists all." if names else "Put one into .remit/agents/: `remit agents` shows how."
    advice = switched_off(case.target, names) or advice
    return _final("invalid_target", f"There is no agent named {case.target!r}.", "INVALID_TARGET", advice)


def switched_off(target: str, names: Iterable[str]) -> str:
    """What to do where it would come with remit, had the project not left it out; empty where that is not so."""
    first = target.partition(".")[0]
    is_role = target in ROLES
    known = {name if is_role else name.partition(".")[0] for name in names}
    if first in known or not (is_role or first in COME_WITH_REMIT):
        return ""
    missing = ROLES_GROUP if is_role else first
    return (
        f"{first} comes with remit, but the setting builtin_agents leaves it out: add {missing!r} there. `remit config` shows the settings."
    )


def bad_parameters(case: Case) -> ErrorInfo | None:
    fault = case.fault
    if fault is None:
        return None
    return _final("invalid_parameters", fault.message, fault.code, fault.advice or f"`remit agents {case.target}` shows what it takes.")


def not_permitted(case: Case, no: Refused) -> ErrorInfo:
    """The last rung: `accept` asks the policy when nothing else is in the way, so that its log holds what it was asked in earnest."""
    return _final("permission", f"{no.message} ({_walk(case)})", "POLICY_DENIED", no.advice)


LADDER: tuple[Callable[[Case], ErrorInfo | None], ...] = (expired, too_deep, cycle, budget, unknown_agent, bad_parameters)
