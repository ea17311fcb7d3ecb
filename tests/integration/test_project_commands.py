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
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def remit(*arguments: str) -> cli.Result:
    return cli.run(*arguments, cwd=Path.cwd())


def test_command_file_is_run_with_its_arguments_and_listed_in_the_help(project: Path) -> None:
    ran = remit("fix", "the $ARGUMENTS", "--all", "-x")
    assert ran.code == 0, ran.stdout
    assert "Fix the $ARGUMENTS --all -x!" in ran.stdout
    assert "fix" in remit("--help").stdout
    assert "Fix [/it] now" in remit("commands").stdout
    assert "Passed on literally" in remit("fix", "--help").stdout


def test_command_file_is_found_by_the_root_option(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert remit("fix", "it").code == 2
    ran = remit("fix", "it", "--root", str(project))
    assert ran.code == 0
    assert "Fix it!" in ran.stdout
