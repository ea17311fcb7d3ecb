"""Agents that declare commands and languages get those tasks."""

from pathlib import Path

import pytest

from remit import AgentSpec, Misused, agent, load_settings
from remit.agents.directory import Directory
from remit.agents.routing import with_agents
from remit.core.routing import DEFAULT_TABLE, Rule, route

RUST = AgentSpec(name="rust-coder", operations=("implement", "plan"), languages=("rust", "c"))


@pytest.mark.parametrize(
    ("command", "language", "has_plan", "agent", "mode"),
    [
        ("implement", "rust", True, "rust-coder", "phased"),
        ("implement", "rust", False, "rust-coder", "direct"),
        ("implement", "c", False, "rust-coder", "direct"),
        ("plan", "rust", False, "rust-coder", ""),
        ("implement", "python", True, "task-executor", "phased"),
        ("implement", "lean", True, "lean-implementation-agent", "phased"),
        ("revise", "rust", True, "planner", "revision"),
        ("research", "rust", False, "researcher", ""),
    ],
)
def test_agent_gets_its_commands_for_its_languages_only(command: str, language: str, has_plan: bool, agent: str, mode: str) -> None:
    chosen = route(command, language, has_plan, with_agents(DEFAULT_TABLE, [RUST]), task_number=7)
    assert (chosen.agent, chosen.mode) == (agent, mode)


def test_settings_take_precedence_over_agents() -> None:
    table = DEFAULT_TABLE.extended({"plan": (Rule(agent="mine", language="rust"),)})
    assert route("plan", "rust", False, with_agents(table, [RUST])).agent == "mine"
    assert route("plan", "c", False, with_agents(table, [RUST])).agent == "rust-coder"


def test_unknown_operations_are_reported_with_their_line(tmp_path: Path) -> None:
    folder = tmp_path / ".remit/agents"
    folder.mkdir(parents=True)
    for name, operations in (("a", "[implment, task]"), ("b", "[/review]"), ("c", "[review]")):
        (folder / f"{name}.md").write_text(f"---\ndescription: x\nremit:\n  kind: model\n  operations: {operations}\n---\nBody.\n")
    directory = Directory(lambda agent: agent)
    directory.load_definitions(tmp_path, load_settings(tmp_path, environ={}))
    first, second, third = directory.problems
    assert first.startswith(
        f"{folder}/a.md: line 5: operations: there is no command 'implment' that agents carry out (did you mean implement?)"
    )
    assert "there is no command 'task'" in second
    assert third == f"{folder}/c.md: line 5: operations: /review goes to b already."


def test_agent_for_a_language_takes_precedence_over_one_for_all() -> None:
    any_language = AgentSpec(name="any_language", operations=("plan",))
    for specs in ([any_language, RUST], [RUST, any_language]):
        table = with_agents(DEFAULT_TABLE, specs)
        assert route("plan", "rust", False, table).agent == "rust-coder"
        assert route("plan", "python", False, table).agent == "any_language"


def test_function_may_take_commands_of_the_board() -> None:
    @agent("rust-fn", operations=["/implement"], languages="rust")
    async def function(task: str) -> str:
        return task

    directory = Directory(lambda one: one)
    directory.register(function)
    table = with_agents(DEFAULT_TABLE, directory.routed_specs())
    assert route("implement", "rust", False, table).agent == "rust-fn"
    assert route("implement", "python", False, table).agent == "implementer"
    with pytest.raises(Misused, match="operations must be names, not 5"):
        agent("x", operations=5)(function.function)  # type: ignore[arg-type]
