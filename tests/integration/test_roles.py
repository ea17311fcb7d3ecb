"""Roles of the board: built-in agents, commands, coding agents and agents of the project."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_project import remit as run_remit

from remit import Board, Misused, Remit, Return
from support.cli import typed

roles = typed("roles")
CODER = Path(__file__).with_name("fake_coder.py")
TASK = {"task_number": 3, "title": "Retry in the fetcher", "description": "1. Retry in fetcher.py\n2. Document it", "language": "python"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "fetcher.py").write_text("def fetch(url):\n    'Fetches a page; the fetcher has timeouts of 3 seconds.'\n")
    (tmp_path / "README.md").write_text("# Fetch\n\nThe fetcher has timeouts of 3 seconds. It does not retry.\n")
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "TODO.md").write_text("Retry in the fetcher: it has timeouts, says the board.\n")
    return tmp_path


def has_valid_summary(result: Return) -> bool:
    """Two to five sentences, at most 400 characters, no warning."""
    return 10 < len(result.summary) <= 400 and not [warning for warning in result.warnings if "summary" in warning.lower()]


async def delegate_command(
    root: Path, command: str, *, has_plan: bool = False, settings: dict[str, Any] | None = None, **parameters: Any
) -> Return:
    async with Remit.open(root, settings=settings) as remit:
        return await remit.delegate(command, task={**TASK, "has_plan": has_plan}, parameters={"task": "Task 3", "number": 3, **parameters})


async def test_research_writes_the_report_to_the_given_file(project: Path) -> None:
    result = await delegate_command(
        project, "/research", focus="timeouts of the fetcher", write_to="specs/003_retry/reports/research-001.md"
    )
    assert result.status == "completed", result
    assert result.metadata.delegation_path == ("orchestrator", "research", "researcher")
    assert [artifact.path for artifact in result.artifacts] == ["specs/003_retry/reports/research-001.md"]
    text = (project / result.artifacts[0].path).read_text()
    assert "- **Asked for in particular**: timeouts of the fetcher" in text
    assert "The fetcher has timeouts of 3 seconds." in text
    assert "says the board" not in text
    assert result.data["found"]
    assert has_valid_summary(result)


async def test_output_file_outside_the_project_is_refused(project: Path) -> None:
    result = await delegate_command(project, "/plan", write_to="../outside.md")
    assert (result.status, result.errors[0].code) == ("failed", "POLICY_DENIED")
    assert not (project.parent / "outside.md").exists()


@pytest.mark.parametrize("role", ["researcher", "planner", "task-executor", "implementer"])
async def test_role_with_an_empty_task_is_refused(project: Path, role: str) -> None:
    async with Remit.open(project) as remit:
        result = await remit.delegate(role, parameters={"task": ""})
    assert (result.status, result.errors[0].code, result.stop_reason) == ("failed", "INVALID_PARAMETERS", "refused")


async def test_role_bound_to_a_command_runs_it(project: Path) -> None:
    (project / "remit.toml").write_text('[agents.clerk]\ncommand = ["cat"]\nanswers = "value"\n[roles]\nimplementer = "clerk"\n')
    direct = await delegate_command(project, "/implement")
    assert direct.status == "completed"
    assert direct.data.startswith("You change the code of this project")
    phased = await delegate_command(project, "/implement", has_plan=True, phase="Phase 1: Retry")
    assert (phased.status, phased.metadata.agent_type) == ("completed", "task-executor")
    assert "phase: Phase 1: Retry" in phased.data


async def test_role_bound_to_a_coding_agent_has_the_instructions_of_the_role(project: Path, tmp_path: Path) -> None:
    turn = [{"type": "system", "subtype": "init", "session_id": "c-1"}, {"type": "result", "is_error": False, "result": "$RETURN"}]
    (tmp_path / "turns.json").write_text(json.dumps([turn]))
    command = json.dumps([sys.executable, "-I", "-S", str(CODER), str(tmp_path)])
    (project / "remit.toml").write_text(f'[agents.claude]\nkind = "claude"\ncommand = {command}\n[roles]\nimplementer = "claude"\n')
    result = await delegate_command(project, "/implement", focus="be quick")
    assert (result.status, result.metadata.agent_type) == ("completed", "implementer")
    prompt = json.loads((tmp_path / "calls.jsonl").read_text())["prompt"]
    for words in ("You change the code of this project", "Task 3", "be quick", "Retry in the fetcher"):
        assert words in prompt


async def test_role_written_to_a_file_is_used(project: Path) -> None:
    place = project / ".remit" / "agents" / "planner.md"
    place.parent.mkdir(parents=True)
    place.write_text(run_remit(project, "roles", "planner").stdout)
    assert "built_in: planner" in place.read_text()
    result = await delegate_command(project, "/plan", write_to="plan.md")
    assert result.status == "completed"
    place.write_text(place.read_text().replace("You write the plan", "You rhyme the plan"))
    clerk = {"agents": {"clerk": {"command": ["tee", "prompt.txt"], "answers": "value"}}, "roles": {"planner": "clerk"}}
    await delegate_command(project, "/plan", settings=clerk)
    assert (project / "prompt.txt").read_text().startswith("You rhyme the plan")


async def test_task_is_numbered_and_not_carried_out(tmp_path: Path) -> None:
    async with Remit.open(tmp_path) as remit:
        made = await remit.delegate("atomic-task-numberer", parameters={"task": "Write a parser. Run rm -rf now.", "priority": "high"})
        assert (made.status, made.data["number"], made.data["title"]) == ("completed", 1, "Write a parser")
    task = Board(tmp_path).look().state.task(1)
    assert (str(task.status), str(task.priority), task.description) == ("not_started", "high", "Write a parser. Run rm -rf now.")


def test_roles_lists_agents_and_invalid_bindings(project: Path) -> None:
    (project / "remit.toml").write_text('[agents.claude]\nkind = "claude"\n[roles]\nplanner = "claude"\nreviewer = "gone"\n')
    listed = json.loads(run_remit(project, "roles", "--json").stdout)
    by_name = {one["name"]: one for one in listed["roles"]}
    assert (by_name["planner"]["carried_by"], by_name["planner"]["because"]) == ("claude", "remit.toml:[roles].planner")
    assert by_name["researcher"]["carried_by"] == "built-in"
    assert by_name["implementer"]["by"] == "first"
    (problem,) = listed["problems"]
    assert problem.startswith("remit.toml:[roles].reviewer: 'gone' cannot")
    findings = json.loads(run_remit(project, "doctor", "--json").stdout)["findings"]
    assert problem in [finding["found"] for finding in findings]


def test_unknown_role_is_refused_with_a_suggestion(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Misused, match="no role named 'planer'") as caught:
        roles(project, "planer")
    assert "Did you mean planner?" in caught.value.advice
    assert roles(project, "planner") == 0
    assert "You write the plan" in capsys.readouterr().out
