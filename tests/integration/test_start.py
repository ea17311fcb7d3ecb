"""The first commands that people type: `remit init`, aliases, and commands without arguments."""

import os
import pty
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from support import cli
from support.cli import ALIASES, COMMANDS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".remit").mkdir()
    return tmp_path


@pytest.fixture
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Two coding agents on PATH, and nothing approved."""
    home = tmp_path_factory.mktemp("home")
    for name in ("claude", "codex"):
        (home / name).write_text("#!/bin/sh\necho 2.1.0\n")
        (home / name).chmod(0o755)
    return {"PATH": f"{home}:/bin:/usr/bin", "HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "OPENAI_API_KEY": "x"}


def test_alias_runs_its_command(project: Path) -> None:
    for alias, words in (
        (("help",), ["--help"]),
        (("help", "token", "new"), ["token", "new", "--help"]),
        (("help", "list"), ["agents", "-h"]),
    ):
        actual, expected = (cli.run(*line, cwd=project) for line in (alias, words))
        assert (actual.code, actual.stdout) == (0, expected.stdout), alias
    assert cli.run("version", cwd=project).stdout == f"remit {version('remit')}\n"
    assert cli.run_json("list", cwd=project) == cli.run_json("agents", cwd=project)
    assert cli.run_json("log", "--limit", "3", cwd=project) == {"delegations": []}
    assert "No such command 'nonsense'" in cli.run("help", "nonsense", cwd=project).stderr


def test_aliases_are_documented_and_are_not_commands() -> None:
    line = next(line for line in REFERENCE.read_text().splitlines() if line.startswith("Aliases: "))
    assert not ALIASES.keys() & COMMANDS.keys()
    assert [alias for alias, meaning in ALIASES.items() if f"`remit {alias}" not in line or f"{meaning}`" not in line] == []


def commands_shown(folder: Path, variables: dict[str, str]) -> list[str]:
    """The commands of the start screen, which must be short."""
    done = cli.run(cwd=folder, env=variables | {"COLUMNS": "80"})
    assert (done.code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "All commands: remit --help. One command: remit help COMMAND."
    return [line.strip().partition("   ")[0] for line in lines if line.startswith("  ")]


def test_start_screen_has_the_next_commands_for_the_project(project: Path, variables: dict[str, str]) -> None:
    new = commands_shown(project, variables)
    assert new[:3] == ["remit init", "remit demo", "remit delegate worker.list_files"]
    for words in ([*new[0].split()[1:], "--yes"], new[2].split()[1:]):
        assert cli.run(*words, cwd=project, env=variables).code == 0
    used = ['remit delegate codex "…"', 'remit ask "…"', "remit status", "remit show", "remit agents", "remit doctor"]
    assert commands_shown(project, variables) == used
    shown = cli.run("show", "--json", cwd=project, env=variables).json()
    assert shown["delegation"]["agent"] == "worker.list_files", "without an argument it is the last delegation"
    (project / "remit.toml").write_text('[agents.hostile]\nkind = "claude"\n')
    changed = commands_shown(project, variables)
    assert changed[:2] == ["remit trust", "remit delegate worker.list_files"], "an agent that is not approved is not listed"
    (project / "remit.toml").write_text("[x")
    assert "remit.toml is not valid TOML" in cli.run(cwd=project, env=variables).stdout


def test_init_shows_the_change_and_writes_it_only_after_a_yes(project: Path, variables: dict[str, str]) -> None:
    done = cli.run("init", cwd=project, env=variables)
    assert (done.code, (project / "remit.toml").exists()) == (4, False)
    assert "+[agents.claude]" in done.stdout
    assert "--yes" in done.stderr
    for answer, code in (("n", 6), ("y", 0)):
        ours, theirs = pty.openpty()
        os.write(ours, f"{answer}\n".encode())
        process = cli.start("init", cwd=project, env=variables, stdin=theirs)
        output, error = process.communicate(timeout=60)
        for end in (ours, theirs):
            os.close(end)
        assert "Make this change?" in output + error
        assert (process.returncode, (project / "remit.toml").exists()) == (code, answer == "y"), error


def test_init_writes_and_approves_the_agents_it_found(project: Path, variables: dict[str, str]) -> None:
    document = cli.run("init", "--yes", "--json", cwd=project, env=variables).json()
    assert (document["is_made"], document["is_approved"], document["agents"]) == (True, True, ["codex", "claude"])
    written = tomllib.loads((project / "remit.toml").read_text())
    assert written["model"] == "openai:gpt-5"
    assert {table["contain"] for table in written["agents"].values()} == {"auto"}
    trust = cli.run("trust", cwd=project, env=variables)
    assert (trust.code, trust.stdout) == (0, "Everything is approved (3 items).\n")
    again = cli.run("init", "--yes", cwd=project, env=variables)
    assert again.stdout.endswith("Nothing to add to remit.toml.\n")


@pytest.mark.parametrize("words", [("init",), ("agents", "--detect", "--write")])
def test_init_adds_only_missing_agents(project: Path, variables: dict[str, str], words: tuple[str, ...]) -> None:
    mine = '# Mine\n\n# The agent\n[agents.claude]\nkind = "claude"  # as it is\n\n[roles]\nplanner = "claude"\n'
    (project / "remit.toml").write_text(mine)
    (project / "pyproject.toml").write_text('[tool.remit]\nmodel = "anthropic:mine"\n')
    assert cli.run("trust", "--yes", cwd=project, env=variables).code == 0
    assert cli.run(*words, "--yes", cwd=project, env=variables).code == 0
    text = (project / "remit.toml").read_text()
    assert [line for line in mine.splitlines() if line not in text.splitlines()] == []
    assert "\n[agents.codex]\n" in text
    assert tomllib.loads(text).keys() == {"agents", "roles"}, "a model is already configured"
    assert cli.run("trust", cwd=project, env=variables).code == 0


def test_init_does_not_approve_agents_of_a_clone_or_change_a_file_that_it_cannot_extend(project: Path, variables: dict[str, str]) -> None:
    (project / "remit.toml").write_text('[agents.hostile]\nkind = "command"\ncommand = ["sh", "-c", "touch pwned"]\n')
    done = cli.run("init", "--yes", cwd=project, env=variables)
    assert done.stdout.endswith("It has lines that are not approved yet.\nNext: remit trust\n")
    assert "hostile" in cli.run("trust", cwd=project, env=variables).stdout
    assert cli.run("delegate", "hostile", cwd=project, env=variables).code == 5
    assert not (project / "pwned").exists()
    inline = 'agents = {claude = {kind = "claude"}}\n'
    (project / "remit.toml").write_text(inline)
    done = cli.run("init", "--yes", cwd=project, env=variables)
    assert (done.code, "Declare its agents as tables" in done.stderr, (project / "remit.toml").read_text()) == (2, True, inline)


def test_init_without_agents_writes_valid_examples_as_comments(project: Path, variables: dict[str, str]) -> None:
    nothing = {name: value for name, value in variables.items() if name != "OPENAI_API_KEY"} | {"PATH": "/nowhere"}
    assert cli.run("init", "--yes", cwd=project, env=nothing).code == 0
    assert tomllib.loads((project / "remit.toml").read_text()) == {}
    lines = [line.removeprefix("# ") for line in (project / "remit.toml").read_text().splitlines()[1:] if not line.endswith(":")]
    (project / "remit.toml").write_text("\n".join(lines))
    assert tomllib.loads("\n".join(lines))["model"]
    listed = cli.run_json("agents", cwd=project)
    assert (listed["problems"], {"claude", "tests"} <= {one["name"] for one in listed["agents"]}) == ([], True)


def completions(words: str, cwd: Path, variables: dict[str, str]) -> list[str]:
    """The completions of bash for the last word."""
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1), "_REMIT_COMPLETE": "complete_bash"}
    done = cli.run_process(cwd=cwd, env=variables | asked)
    assert done.stderr == ""
    return done.stdout.split()


def test_shell_completes_agents_parameters_sessions_and_tasks(project: Path, variables: dict[str, str]) -> None:
    cli.run("task", "Read unknown ages", cwd=project)
    cli.run("delegate", "worker.list_files", cwd=project)
    (session,) = [one["session_id"] for one in cli.run_json("history", cwd=project)["delegations"]]
    assert completions("remit delegate worker.re", project, variables) == ["worker.read_file"]
    assert completions("remit delegate worker.read_file path=a o", project, variables) == ["offset="]
    assert completions("remit show sess", project, variables) == [session]
    assert completions("remit plan ", project, variables) == ["1"]


def test_completion_runs_no_code_of_a_project_and_shows_no_error(project: Path, variables: dict[str, str]) -> None:
    (project / ".remit" / "agents").mkdir()
    (project / ".remit" / "agents" / "x.py").write_text(f"open({str(project / 'ran')!r}, 'w')\n")
    (project / "remit.toml").write_text("this is not TOML")
    assert completions("remit delegate wor", project, variables) == []
    (project / "remit.toml").unlink()
    assert "worker.read_file" in completions("remit delegate wor", project, variables)
    assert not (project / "ran").exists()
