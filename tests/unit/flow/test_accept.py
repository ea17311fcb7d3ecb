"""From a request to an order: what is read, what is recorded, and that everything wrong becomes a refusal."""

from pathlib import Path
from typing import Any

import pytest

from remit.core.budget import Limits
from remit.core.deadline import TimeLimits
from remit.core.ports import AgentPort
from remit.core.record import SettleDelegation
from remit.core.request import Request, call
from remit.core.routing import DEFAULT_TABLE
from remit.core.states import Priority
from remit.runtime.accept import accept, normalised_call, normalised_task, redraw_session_id
from remit.runtime.authorize import effects_of
from remit.runtime.deps import Rules, RuntimeDeps, Submission
from remit.runtime.perform import completed_return
from remit.testing import ManualClock, Scripted


class Known:
    def __init__(self, *agents: Scripted) -> None:
        self._agents = {agent.spec.name: agent for agent in agents}

    def find(self, name: str) -> AgentPort | None:
        return self._agents.get(name)

    def names(self) -> list[str]:
        return list(self._agents)


CLOCK = ManualClock()
HOUSE = RuntimeDeps(
    root=Path(),
    agents=Known(
        Scripted("worker"),
        Scripted("slow", timeout_seconds=200.0, idle_seconds=3.0),
        Scripted("too-slow", timeout_seconds=500.0),
        Scripted("researcher"),
        Scripted("lean-research-agent"),
    ),
    rules=Rules(limits_for=lambda _: TimeLimits(default_seconds=60, maximum_seconds=300), routing=DEFAULT_TABLE),
    clock=CLOCK.as_clock(),
)


def order_for(agent: str, /, **asked: Any) -> Submission:
    return accept(call(agent, **asked), None, HOUSE)


def test_effects_may_be_declared_as_a_list_by_whoever_carries_agents_in_its_own_way() -> None:
    lists = Scripted("lists", effects=["read"])
    assert effects_of(lists.spec) == ("read",)


def test_named_tuples_made_without_their_constructor_have_all_of_their_fields() -> None:
    order = order_for("worker")
    made = (order.delegation.lineage, order.delegation.deadline, completed_return(order.delegation, 1, 0.1).metadata)
    assert [len(one) for one in made] == [len(type(one)._fields) for one in made]
    assert len(SettleDelegation._fields) == 8, "`DelegationRun._settle` makes one of as many values"


def test_what_was_asked_is_made_precise() -> None:
    order = order_for(
        "worker",
        n=1,
        timeout=30,
        priority="high",
        key="k",
        accept=["true"],
        idle=2,
        budget={"tokens": 5},
        task={"task_number": 7, "effort": "2 h"},
    )
    delegation = order.delegation
    assert order.refusal is None
    assert (delegation.agent, dict(delegation.parameters), delegation.caller) == ("worker", {"n": 1}, "orchestrator")
    assert delegation.deadline.hard_at == CLOCK.monotonic_seconds + 30
    assert (delegation.priority, delegation.key, delegation.accept, delegation.idle_seconds) == (Priority.HIGH, "k", ("true",), 2.0)
    assert delegation.limits == Limits(tokens=5)
    assert delegation.task is not None
    assert (delegation.task.task_number, dict(delegation.task.extra)) == (7, {"effort": "2 h"})
    assert order.budget.left(CLOCK.monotonic_seconds).tokens == 5
    assert order.budget.left(CLOCK.monotonic_seconds).delegations == 1000, "inside what the settings allow every tree"


def test_an_agents_own_declaration_stands_where_nothing_was_asked() -> None:
    delegation = order_for("slow").delegation
    assert (delegation.deadline.timeout_seconds, delegation.idle_seconds) == (200.0, 3.0)
    assert order_for("too-slow").delegation.deadline.timeout_seconds == 300, "never beyond the maximum"
    assert order_for("worker").delegation.deadline.timeout_seconds == 60


def test_a_command_is_routed_by_the_tasks_language() -> None:
    """And the command stands in the path."""
    order = order_for("/research", task={"task_number": 195, "language": "lean"})
    assert (order.delegation.agent, order.delegation.command, order.delegation.caller) == ("lean-research-agent", "research", "research")
    assert order.delegation.lineage.path == ("orchestrator", "research", "lean-research-agent")
    assert order.delegation.lineage.depth == 1
    assert order_for("/research", task={}).delegation.agent == "researcher"
    assert any("anguage" in warning for warning in order_for("/research", task={}).warnings)


@pytest.mark.parametrize(
    ("agent", "asked", "code"),
    [
        ("nobody", {}, "INVALID_TARGET"),
        ("/nonsense", {}, "INVALID_TARGET"),
        ("/todo", {}, "INVALID_TARGET"),
        ("worker", {"timeout": 301}, "INVALID_PARAMETERS"),
        ("worker", {"key": ""}, "INVALID_PARAMETERS"),
        ("worker", {"accept": [""]}, "INVALID_PARAMETERS"),
        ("worker", {"task": 7}, "INVALID_PARAMETERS"),
        ("worker", {"budget": {"tokens": -1}}, "INVALID_PARAMETERS"),
        ("worker", {"budget": {"delegations": 0}}, "BUDGET_EXCEEDED"),
        ("worker", {"file": open}, "INVALID_PARAMETERS"),
        ("worker", {"endless": iter(int, 1)}, "INVALID_PARAMETERS"),
    ],
)
def test_what_is_wrong_becomes_a_refusal(agent: str, asked: dict[str, Any], code: str) -> None:
    order = order_for(agent, **asked)
    assert order.refusal is not None
    assert order.refusal.errors[0].code == code
    assert order.refusal.errors[0].recommendation


def test_parameters_are_recorded_as_json_holds_them() -> None:
    order = order_for("worker", path=Path("a/b"), many=(1, 2), big=2**70, bad=float("nan"))
    assert order.delegation.parameters["path"] == "a/b"
    assert order.delegation.parameters["many"] == [1, 2]
    assert order.delegation.parameters["big"] == 2**70


def test_a_task_is_the_same_however_it_is_spelt_and_a_call_only_to_the_letter() -> None:
    assert normalised_task({"a": " Fix  THE bug ", "b": [1]}) == normalised_task({"b": [1], "a": "fix the bug"})
    assert normalised_call("w", {"a": 1, "b": 2}) == normalised_call("w", {"b": 2, "a": 1})
    assert normalised_call("w", {"a": "X"}) != normalised_call("w", {"a": "x"})


def test_a_redrawn_order_keeps_all_but_its_id() -> None:
    order = order_for("worker", n=1)
    before = order.delegation
    redraw_session_id(order)
    after = order.delegation
    assert after.session_id != before.session_id
    assert (after.lineage.root_id, after.parameters, after.deadline) == (after.session_id, before.parameters, before.deadline)


def test_a_parameter_may_have_the_name_of_an_option() -> None:
    request = call("worker", timeout=5, parameters={"timeout": "theirs"})
    assert (request.timeout, request.parameters) == (5, {"timeout": "theirs"})
    assert Request(**call("worker", n=1, budget=Limits(tokens=1)).to_dict()).budget["tokens"] == 1  # type: ignore[index]


def test_a_task_in_words_is_a_parameter_and_a_task_of_the_project_an_option() -> None:
    assert call("worker", task="Do it.").parameters == {"task": "Do it."}
    asked = call("worker", task={"task_number": 3}, parameters={"task": "Do it."})
    assert (asked.task, asked.parameters) == ({"task_number": 3}, {"task": "Do it."})
