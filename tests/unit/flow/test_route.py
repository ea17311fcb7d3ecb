"""Routing of commands to agents, and the context files they get."""

from pathlib import Path

import pytest

from remit import Refused, TaskContext
from remit.core.routing import DEFAULT_TABLE, check_route, language_of, route
from remit.system.context_files import context_files


@pytest.mark.parametrize(
    ("command", "language", "has_plan", "agent", "mode"),
    [
        ("research", "lean", False, "lean-research-agent", ""),
        ("research", "python", False, "researcher", ""),
        ("plan", "lean", False, "planner", ""),
        ("revise", "python", True, "planner", "revision"),
        ("implement", "lean", True, "lean-implementation-agent", "phased"),
        ("implement", "lean", False, "lean-implementation-agent", "simple"),
        ("implement", "general", True, "task-executor", "phased"),
        ("implement", "general", False, "implementer", "direct"),
        ("review", "general", False, "reviewer", ""),
        ("errors", "general", False, "error-diagnostics-agent", ""),
        ("task", "general", False, "atomic-task-numberer", "in_process"),
        ("todo", "general", False, None, ""),
    ],
)
def test_command_is_routed_by_the_table(command: str, language: str, has_plan: bool, agent: str | None, mode: str) -> None:
    chosen = route(command, language, has_plan, DEFAULT_TABLE)
    assert (chosen.agent, chosen.mode) == (agent, mode)
    check_route(chosen, language, has_plan, DEFAULT_TABLE)


@pytest.mark.parametrize(
    ("command", "language", "has_plan", "line"),
    [
        ("/research", "lean", False, "Routing /research (task 195, Language: lean) to lean-research-agent"),
        ("research", "python", False, "Routing /research (task 195, Language: python) to researcher"),
        ("plan", "lean", False, "Routing /plan (task 195) to planner"),
        ("implement", "lean", True, "Routing /implement (task 195, Language: lean, has_plan: true) to lean-implementation-agent (phased)"),
        ("errors", "general", False, "Routing /errors (task 195) to error-diagnostics-agent → planner"),
        ("todo", "general", False, "Routing /todo (task 195) to no agent: nothing is delegated"),
    ],
)
def test_routing_decision_is_logged_with_its_inputs(command: str, language: str, has_plan: bool, line: str) -> None:
    assert route(command, language, has_plan, DEFAULT_TABLE, task_number=195).log_line == line


def test_route_that_contradicts_the_table_is_refused() -> None:
    wrong = route("implement", "lean", True, DEFAULT_TABLE)._replace(agent="implementer")
    with pytest.raises(Refused, match="language=lean, has_plan=true, agent=implementer; the table says lean-implementation-agent"):
        check_route(wrong, "lean", True, DEFAULT_TABLE)


def test_language_is_the_field_of_the_task_and_never_guessed_from_text() -> None:
    assert language_of(TaskContext(language="Lean", title="about python")) == ("Lean", None)
    guess = TaskContext(task_number=7, title="A lean proof", description="Language: lean")
    assert language_of(guess) == ("general", "Task 7 names no language: 'general' is used.")
    assert language_of(None)[0] == "general"


@pytest.fixture
def standards(tmp_path: Path) -> Path:
    for name, text in {
        "common/b.md": "B",
        "common/a.md": "A",
        "lean/tactics.md": "tactics",
        "python/style.md": "style",
        "overview.md": "overview",
        "common/.hidden.md": "no",
        "common/picture.png": "no",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_context_stays_within_its_limit_and_names_omitted_files(standards: Path) -> None:
    (standards / "common/a.md").write_text("x" * 1000)
    loaded = context_files(standards, 1, "lean", limit_bytes=100)
    assert loaded.paths == ("common/b.md",)
    assert loaded.text == "--- common/b.md\nB\n"
    assert loaded.warnings == ("Context file common/a.md was left out: its 1017 bytes do not fit into the limit of 100.",)


def test_language_cannot_leave_the_context_folder(standards: Path) -> None:
    assert context_files(standards / "lean", 2, "../python").paths == ()
    assert context_files(standards / "lean", 2, "..").paths == ()
    assert context_files(standards, 2, "rust").warnings == ("There is no context folder for language 'rust': only common/ was loaded.",)
