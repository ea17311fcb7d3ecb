"""Command files of a project, `remit errors` and `remit meta`."""

import json
from pathlib import Path

import pytest

from support import cli

AGENT = '''
from remit import agent

@agent("echo")
async def echo(task: str) -> str:
    """Say it again."""
    return task

@agent("broken")
async def broken() -> str:
    """Always fails."""
    raise ValueError("it broke")

@agent("meta-builder")
async def builder(task: str, description: str, **more: object) -> dict:
    done = {"status": "completed", "summary": "Wrote it. It is short.", "artifacts": []}
    return {**done, "data": {"file": f"---\\ndescription: x\\n---\\n{description}"}}

@agent("error-diagnostics-agent")
async def diagnoser(task: str, **more: object) -> dict:
    return {"status": "completed", "summary": "It is broken. By design.", "artifacts": [], "data": {"report": "# Diagnosis"}}
'''


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in (".remit/agents", ".remit/commands"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "remit.toml").touch()
    (tmp_path / ".remit/agents/some.py").write_text(AGENT)
    (tmp_path / ".remit/commands/fix.md").write_text(
        "---\ndescription: Fix [/it] now\nagent: echo\nargument-hint: [what]\n---\nFix $ARGUMENTS!"
    )
    (tmp_path / ".remit/commands/task.md").write_text("Mine.")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def remit(*arguments: str) -> cli.Result:
    return cli.run(*arguments, cwd=Path.cwd())


def test_command_file_is_run_with_its_arguments(project: Path) -> None:
    ran = remit("fix", "the $ARGUMENTS", "--all", "-x")
    assert ran.code == 0, ran.stdout
    assert "Fix the $ARGUMENTS --all -x!" in ran.stdout


def test_command_file_is_in_the_help(project: Path) -> None:
    text = remit("--help").stdout
    assert "Commands of this project" in text
    assert "Fix [/it] now. Arguments: [what]" in text
    assert "Passed on literally" in remit("fix", "--help").stdout


def test_command_file_is_found_by_the_root_option(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert remit("fix", "it").code == 2
    ran = remit("fix", "it", "--root", str(project), "--dry-run", "--json")
    assert ran.code == 0
    assert json.loads(ran.stdout)["text"] == "Fix it!"


def test_command_file_cannot_replace_a_built_in_command(project: Path) -> None:
    ran = remit("commands")
    assert ran.code == 1
    assert ".remit/commands/task.md: `remit task` is a built-in command and cannot be replaced. Rename the file." in ran.stdout
    assert "is a built-in command and cannot be replaced" in remit("doctor").stdout
    assert "Record a task" in remit("task", "--help").stdout
    assert json.loads(remit("commands", "--json").stdout)["commands"][0]["name"] == "fix"


def test_invalid_command_file_is_reported_with_its_line(project: Path) -> None:
    (project / ".remit/commands/bad.md").write_text("---\ntimeout: soon\n---\nx")
    assert "Cannot be used: .remit/commands/bad.md: line 2: timeout" in remit("--help").stdout
    ran = remit("bad")
    assert (ran.code, "line 2: timeout must be a positive number" in ran.stderr) == (2, True)


def test_command_written_by_meta_can_be_run(project: Path) -> None:
    ran = remit("meta", "--command", "--name", "news", "Tell the news of $1", "--json")
    assert ran.code == 0, ran.stdout
    assert json.loads(ran.stdout)["path"] == ".remit/commands/news.md"
    assert remit("news", "today", "--dry-run").code == 4  # no agent is configured for it
    assert remit("meta", "--agent", "--command", "x").code == 2
    assert remit("meta", "--name", "echo", "x").code == 5


def test_errors_creates_a_task(project: Path) -> None:
    assert "There is nothing to do." in remit("errors").stdout
    assert remit("delegate", "broken").code == 1
    rehearsed = remit("errors", "--dry-run").stdout
    assert "Routing /errors to error-diagnostics-agent → planner" in rehearsed
    assert "AGENT_RAISED of broken" in rehearsed
    made = json.loads(remit("errors", "--json").stdout)
    assert (made["status"], made["task_number"], made["task_status"]) == ("completed", 1, "PLANNED")
    assert "task 1 fixes those in the ledger" in remit("errors").stdout
