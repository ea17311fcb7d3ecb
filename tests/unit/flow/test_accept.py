"""Accepting a request: normalization, recording, and a refusal for everything invalid."""

from pathlib import Path
from typing import Any

from remit import AgentPort, Limits, Request, Settings, TimeLimits, call
from remit.core.routing import DEFAULT_TABLE
from remit.runtime.accept import accept, normalised_call, normalised_task
from remit.runtime.deps import Rules, RuntimeDeps, Submission
from remit.testing import ManualClock, Scripted


class Known:
    def __init__(self, *agents: Scripted) -> None:
        self._agents = {agent.spec.name: agent for agent in agents}

    def find(self, name: str) -> AgentPort | None:
        return self._agents.get(name)

    def names(self) -> list[str]:
        return list(self._agents)


CLOCK = ManualClock()
DEPS = RuntimeDeps(
    root=Path(),
    agents=Known(
        Scripted("worker"),
        Scripted("slow", timeout_seconds=200.0, idle_seconds=3.0),
        Scripted("too-slow", timeout_seconds=500.0),
        Scripted("researcher"),
        Scripted("lean-research-agent"),
    ),
    rules=Rules(limits_for=lambda _: TimeLimits(default_seconds=60, maximum_seconds=300), routing=DEFAULT_TABLE),
    settings=Settings(),
    clock=CLOCK.as_clock(),
)


def order_for(agent: str, /, **asked: Any) -> Submission:
    return accept(call(agent, **asked), None, DEPS)


def test_declaration_of_the_agent_is_the_default() -> None:
    delegation = order_for("slow").delegation
    assert (delegation.deadline.timeout_seconds, delegation.idle_seconds) == (200.0, 3.0)
    assert order_for("too-slow").delegation.deadline.timeout_seconds == 300, "never above the maximum"
    assert order_for("worker").delegation.deadline.timeout_seconds == 60


def test_command_is_routed_by_the_language_of_its_task() -> None:
    order = order_for("/research", task={"task_number": 195, "language": "lean"})
    assert (order.delegation.agent, order.delegation.command, order.delegation.caller) == ("lean-research-agent", "research", "research")
    assert order.delegation.lineage.path == ("orchestrator", "research", "lean-research-agent")
    assert order.delegation.lineage.depth == 1
    assert order_for("/research", task={}).delegation.agent == "researcher"
    assert any("anguage" in warning for warning in order_for("/research", task={}).warnings)


def test_tasks_are_compared_loosely_and_calls_exactly() -> None:
    assert normalised_task({"a": " Fix  THE bug ", "b": [1]}) == normalised_task({"b": [1], "a": "fix the bug"})
    assert normalised_call("w", {"a": 1, "b": 2}) == normalised_call("w", {"b": 2, "a": 1})
    assert normalised_call("w", {"a": "X"}) != normalised_call("w", {"a": "x"})


def test_parameter_may_have_the_name_of_an_option() -> None:
    request = call("worker", timeout=5, parameters={"timeout": "theirs"})
    assert (request.timeout, request.parameters) == (5, {"timeout": "theirs"})
    assert Request(**call("worker", n=1, budget=Limits(tokens=1)).to_dict()).budget["tokens"] == 1  # type: ignore[index]


def test_task_text_is_a_parameter_and_a_task_object_an_option() -> None:
    assert call("worker", task="Do it.").parameters == {"task": "Do it."}
    asked = call("worker", task={"task_number": 3}, parameters={"task": "Do it."})
    assert (asked.task, asked.parameters) == ({"task_number": 3}, {"task": "Do it."})
