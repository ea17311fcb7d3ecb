"""Command files of a project at the command line."""

from pathlib import Path

import pytest

from support import cli

AGENT = '''
from remit import agent

@agent("echo")
async def echo(task: str) -> str:
    """Say it again."""
    return task
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
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def test_command_file_is_run_with_its_arguments_and_listed_in_the_help(project: Path) -> None:
    ran = cli.run("fix", "the $ARGUMENTS", "--all", "-x", cwd=project)
    assert ran.code == 0, ran.stdout
    assert "Fix the $ARGUMENTS --all -x!" in ran.stdout
    assert "fix" in cli.run("--help", cwd=project).stdout
    assert "Fix [/it] now" in cli.run("commands", cwd=project).stdout
    assert "Passed on literally" in cli.run("fix", "--help", cwd=project).stdout
