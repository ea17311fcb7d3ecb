"""Agents from files and settings: listing and delegation."""

import os
import re
import shlex
from pathlib import Path

import pytest
from cli_project import remit, remit_json

from remit import Remit
from remit.agents.definition import DefinitionTable, Kind

REVIEWER = "---\nname: reviewer\ndescription: Reviews code.\ntools: Read\nmodel: sonnet\n---\nYou review code.\n"
ECHO = """\
[agents.echo]
description = "Says what it was told."
command = ["cat"]
answers = "value"
environment = { KEY = "correct horse" }
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / ".claude" / "agents"
    folder.mkdir(parents=True)
    (folder / "reviewer.md").write_text(REVIEWER)
    (folder / "broken.md").write_text("---\nname: [\n---\n")
    (tmp_path / "remit.toml").write_text(ECHO)
    return tmp_path


def test_agents_are_listed_with_kind_source_and_problems(project: Path) -> None:
    done = remit(project, "agents", env={**os.environ, "COLUMNS": "160"})
    assert done.returncode == 0
    echo, reviewer = (next(line for line in done.stdout.splitlines() if line.startswith(name)) for name in ("echo", "reviewer"))
    assert "command" in echo
    assert "remit.toml:[agents.echo]" in echo
    assert "profile without an agent" in reviewer
    assert ".claude/agents/reviewer.md" in reviewer
    assert "broken.md: line 3: its front matter is not YAML" in done.stderr
    assert not (project / ".remit").exists()


def test_agent_page_shows_what_the_profile_runs_on(project: Path) -> None:
    assert "[agents.claude]" in remit(project, "agents", "reviewer").stdout
    (project / "remit.toml").write_text('[agents.mine]\nkind = "claude"\nallow = ["read", "edit"]\nworkspace = "scratch"\n')
    page = remit(project, "agents", "reviewer").stdout
    assert "profile on mine" in page
    assert "sonnet" in page
    assert re.search(r"workspace +scratch", page)
    document = remit_json(project, "agents", "reviewer")["agents"][0]
    assert (document["kind"], document["runs_on"], document["allow"]) == ("claude", "mine", ["Read"])


def test_environment_values_are_not_shown(project: Path) -> None:
    for arguments in (("agents", "echo"), ("agents", "--json"), ("config", "--json"), ("config",)):
        assert "correct horse" not in remit(project, *arguments).stdout


async def test_profiles_on_names_the_agent_that_runs_a_profile(project: Path) -> None:
    """The instructions of the profile precede the task."""
    (project / "remit.toml").write_text('profiles_on = "echo"\n' + ECHO)
    async with Remit.open(project) as opened:
        result = await opened.delegate("reviewer", parameters={"task": "Look at it."})
    assert result.status == "completed"
    text = str(result.data)
    assert text.index("You review code.") < text.index("Look at it.")


async def test_profile_does_not_replace_a_python_agent(project: Path) -> None:
    folder = project / ".remit" / "agents"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text("from remit import agent\n@agent\nasync def reviewer() -> str: return 'python'\n")
    async with Remit.open(project) as opened:
        assert (await opened.delegate("reviewer")).data == "python"
        assert any("Two agents are named 'reviewer'" in line for line in opened.directory.problems)


# ---- the documents

ROOT = Path(__file__).parents[2]
PROJECT_FILE = re.compile(r"^<!-- project: (\S+) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def copy_project(guide: str, root: Path) -> None:
    for name, text in PROJECT_FILE.findall((ROOT / "docs/how-to" / guide).read_text()):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_commands_guide_shows_the_real_answers(tmp_path: Path) -> None:
    copy_project("commands.md", tmp_path)
    (tmp_path / "a.txt").write_text("the one\nthe other\nnone\n")
    (tmp_path / "b.txt").write_text("\n")
    assert remit_json(tmp_path, "agents")["problems"] == []
    commands = re.findall(r"^remit (delegate .*)$", (ROOT / "docs/how-to/commands.md").read_text(), flags=re.MULTILINE)
    answers = [remit_json(tmp_path, *shlex.split(command))["data"] for command in commands]
    assert [str(answer).split() for answer in answers] == [["HELLO"], ["3", "a.txt", "1", "b.txt", "4", "total"], ["2"]]
    assert remit_json(tmp_path, "delegate", "find", "word=-e", "path=a.txt")["data"] == "0"


def test_agent_files_guide_shows_the_real_answers(tmp_path: Path) -> None:
    copy_project("agent-files.md", tmp_path)
    listed = remit_json(tmp_path, "agents")
    own = {agent["name"]: agent["kind"] for agent in listed["agents"] if not agent["built_in"]}
    assert own == {"shout": "command", "lines": "command", "reviewer": "profile"}
    assert listed["problems"] == []
    answer = remit_json(tmp_path, "delegate", "shout", "task=say it")["data"]
    assert answer.index("YOU ARE LOUD.") < answer.index("SAY IT")
    assert int(remit_json(tmp_path, "delegate", "lines", "task=say it")["data"]) == 1


def test_reference_lists_exactly_the_keys_of_an_agent() -> None:
    text = (ROOT / "docs/reference/agents.md").read_text().partition("\n## Keys\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE) == list(DefinitionTable.model_fields)
    kinds = next(line for line in text.splitlines() if line.startswith("| `kind` |")).partition(" | ")[2].partition(" | ")[2]
    assert set(re.findall(r"`(\w+)`", kinds)) == set(Kind)
