"""The first commands that people type: aliases, and commands without arguments."""

from importlib.metadata import version
from pathlib import Path

import pytest

from remit.cli.command_table import ALIASES, COMMANDS
from support import cli

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".remit").mkdir()
    return tmp_path


# ---- aliases


def test_an_alias_does_what_the_command_does(project: Path) -> None:
    for alias, words in (
        (("help",), ["--help"]),
        (("help", "token", "new"), ["token", "new", "--help"]),
        (("help", "list"), ["agents", "-h"]),
    ):
        asked, said = (cli.run(*line, cwd=project) for line in (alias, words))
        assert (asked.code, asked.stdout) == (0, said.stdout), alias
    assert cli.run("version", cwd=project).stdout == f"remit {version('remit')}\n"
    assert cli.run_json("list", cwd=project) == cli.run_json("agents", cwd=project)
    assert cli.run_json("log", "--limit", "3", cwd=project) == {"delegations": []}
    assert "No such command 'nonsense'" in cli.run("help", "nonsense", cwd=project).stderr


def test_aliases_are_documented_and_no_commands_of_their_own(project: Path) -> None:
    line = next(line for line in REFERENCE.read_text().splitlines() if line.startswith("Aliases: "))
    assert not ALIASES.keys() & COMMANDS.keys()
    for alias, meaning in ALIASES.items():
        assert f"`remit {alias}" in line
        assert f"{meaning}`" in line


def test_a_command_file_comes_before_an_alias(project: Path) -> None:
    (project / ".remit" / "commands").mkdir()
    (project / ".remit" / "commands" / "log.md").write_text("---\ndescription: Print the log.\nagent: worker.list_files\n---\nList.\n")
    assert "ARGUMENTS" in cli.run("log", "--help", cwd=project).stdout


# ---- without arguments


def test_show_alone_shows_the_last_delegation(project: Path) -> None:
    assert "nothing has been delegated here yet" in cli.run("show", cwd=project).stderr
    for path in ("one.txt", "two.txt"):
        (project / path).write_text("text")
        cli.run("delegate", "worker.read_file", f"path={path}", cwd=project)
    assert cli.run_json("show", cwd=project)["delegation"]["parameters"] == {"path": "two.txt"}
