"""Agents that name the commands and languages they take are routed to."""

from pathlib import Path

import pytest

from remit.agents.directory import Directory
from remit.agents.function import agent
from remit.agents.routing import Routes, with_agents
from remit.core.agents import AgentSpec
from remit.core.errors import Misused
from remit.core.routing import DEFAULT_TABLE, Rule, route
from remit.system.settings_files import load_settings

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
def test_it_takes_its_commands_of_tasks_in_its_languages_and_no_others(
    command: str, language: str, has_plan: bool, agent: str, mode: str
) -> None:
    chosen = route(command, language, has_plan, with_agents(DEFAULT_TABLE, [RUST]), task_number=7)
    assert (chosen.agent, chosen.mode) == (agent, mode)


def test_what_the_settings_say_goes_before_it() -> None:
    table = DEFAULT_TABLE.extended({"plan": (Rule(agent="mine", language="rust"),)})
    assert route("plan", "rust", False, with_agents(table, [RUST])).agent == "mine"
    assert route("plan", "c", False, with_agents(table, [RUST])).agent == "rust-coder"


def test_who_follows_stays_as_the_table_says_and_lean_has_its_own_modes() -> None:
    table = with_agents(DEFAULT_TABLE, [AgentSpec(name="doctor", operations=("errors",))])
    assert (route("errors", "general", False, table).agent, route("errors", "general", False, table).then) == ("doctor", ("planner",))
    prover = with_agents(DEFAULT_TABLE, [AgentSpec(name="prover", operations=("implement",), languages=("lean",))])
    assert route("implement", "lean", False, prover).mode == "simple"


def test_the_table_of_an_open_project_follows_agents_that_come_and_go() -> None:
    routes = Routes(DEFAULT_TABLE)
    table = routes.table
    routes.follow([RUST])
    assert route("plan", "rust", False, table).agent == "rust-coder"
    routes.follow([])
    assert route("plan", "rust", False, table).agent == "planner"
    assert table == DEFAULT_TABLE


def test_operations_that_lead_nowhere_are_told_with_their_line(tmp_path: Path) -> None:
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


def test_whoever_names_the_language_goes_before_whoever_takes_all_in_whichever_order_they_came() -> None:
    everybody = AgentSpec(name="everybody", operations=("plan",))
    for specs in ([everybody, RUST], [RUST, everybody]):
        table = with_agents(DEFAULT_TABLE, specs)
        assert route("plan", "rust", False, table).agent == "rust-coder"
        assert route("plan", "python", False, table).agent == "everybody"


def test_a_function_takes_commands_of_the_board_too() -> None:
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
