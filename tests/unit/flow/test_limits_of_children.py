"""Guards accept any input, and limits of a child never exceed those of its caller."""

import math
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from remit import AgentPort, Budget, Delegation, Limits, Request, Settings, TimeLimits
from remit.core.budget import effective_deadline
from remit.core.routing import DEFAULT_TABLE
from remit.runtime.accept import accept
from remit.runtime.deps import Rules, RuntimeDeps, Submission, TreeFacts
from remit.testing import Scripted
from support.clocks import ManualClock
from support.error_codes import CODES

amounts = st.none() | st.integers(0, 50)
moments = st.floats(0, 1e6)
limits = st.builds(Limits, delegations=amounts, alive=amounts, tokens=amounts, cost=st.none() | st.floats(0, 50), seconds=amounts)


@given(st.floats(0.001, 1e5), moments, st.none() | moments)
def test_deadline_of_a_child_never_exceeds_its_caller(timeout: float, now: float, caller_hard_at: float | None) -> None:
    deadline = effective_deadline(timeout, now, caller_hard_at)
    assert deadline.soft_at <= deadline.hard_at
    assert deadline.timeout_seconds <= timeout
    assert caller_hard_at is None or deadline.hard_at <= caller_hard_at or math.isclose(deadline.hard_at, caller_hard_at)


class _Directory:
    def find(self, name: str) -> AgentPort | None:
        return Scripted(name) if name in ("a", "b", "c", "d", "e") else None

    def names(self) -> list[str]:
        return ["a", "b", "c", "d", "e"]


class _Calling:
    """An accepted delegation that now delegates."""

    def __init__(self, order: Submission, above: "_Calling | None") -> None:
        assert order.agent is not None
        self.delegation: Delegation = order.delegation
        self.agent: AgentPort = order.agent
        self.tree: TreeFacts = order.tree
        self.budget: Budget = order.budget
        self.closing: str | None = None
        self.above = above

    def ancestors(self) -> list[Delegation]:
        return [self.delegation, *(self.above.ancestors() if self.above else [])]


anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
requests = st.builds(
    Request,
    agent=st.sampled_from(["a", "b", "c", "d", "e", "nobody", "/research", "/nonsense"]),
    parameters=st.dictionaries(st.text(max_size=4), anything, max_size=2),
    timeout=st.none() | st.floats(0.01, 100) | anything,
    priority=st.sampled_from([None, "low", "critical", 3, "utmost"]) | anything,
    key=st.none() | st.text(max_size=3),
    idle=st.none() | st.floats(0.1, 10) | anything,
    budget=st.none() | limits | st.dictionaries(st.sampled_from(["tokens", "alive", "sweets"]), st.integers(-1, 9), max_size=2),
    task=st.none() | st.just({"language": "lean", "task_number": 3}) | anything,
)


def _deps(clock: ManualClock, max_depth: int) -> RuntimeDeps:
    rules = Rules(limits_for=lambda _: TimeLimits(default_seconds=50, maximum_seconds=90), routing=DEFAULT_TABLE, max_depth=max_depth)
    return RuntimeDeps(root=Path(), agents=_Directory(), rules=rules, settings=Settings(), clock=clock.as_clock())


@settings(max_examples=100)
@given(st.lists(requests, min_size=1, max_size=5), st.lists(st.floats(0, 20), min_size=5, max_size=5), st.integers(1, 4))
def test_limits_of_a_child_never_exceed_its_caller(chain: list[Any], pauses: list[float], max_depth: int) -> None:
    clock = ManualClock()
    deps = _deps(clock, max_depth)
    caller: _Calling | None = None
    for request, pause in zip(chain, pauses, strict=False):
        order = accept(request, caller, deps)
        delegation = order.delegation
        if caller is not None:
            _assert_within(order, caller, clock.monotonic_seconds)
        if order.refusal is not None:
            assert order.refusal.errors[0].code in CODES
            continue
        assert delegation.lineage.depth <= max_depth
        assert delegation.deadline.timeout_seconds <= 90
        order.budget.enter()
        caller = _Calling(order, caller)
        clock.advance(pause)


def _assert_within(order: Submission, caller: _Calling, now: float) -> None:
    child, above = order.delegation, caller.delegation
    assert child.lineage.depth == above.lineage.depth + 1
    assert child.lineage.path[:-1] == above.lineage.path
    assert (child.lineage.root_id, child.lineage.parent_id) == (above.lineage.root_id, above.lineage.session_id)
    assert child.deadline.hard_at <= above.deadline.hard_at + 1e-6
    if order.refusal is None:
        theirs, ours = caller.budget.left(now), order.budget.left(now)
        for kind in ("delegations", "alive", "tokens", "cost", "seconds"):
            limit, given_to_child = getattr(theirs, kind), getattr(ours, kind)
            assert limit is None or (given_to_child is not None and given_to_child <= limit), kind
