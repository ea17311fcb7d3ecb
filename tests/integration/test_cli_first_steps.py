"""What a newcomer types first, and what `remit` answers: sentences that lead on, at the terminal and in its own words (issue 3)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_project import make_project, remit, remit_json

from support.cli import run_process

SETTINGS = """
[agents.words]
command = ["wc", "-w"]
answers = "value"
instructions = '''
First line.

Second line.
3
4
5
6
seventh line'''

[agents.faulty]
command = ["cat"]
tmeout = 20
"""

TOLD = """
from remit import Context, agent

@agent("teller")
async def teller(ctx: Context) -> str:
    ctx.spend(tokens=1234, cost=0.000612345)
    ctx.progress("Bash: ls")
    ctx.emit({"tool": {"id": "1", "kind": "Bash", "title": "ls", "status": "completed"}})
    ctx.emit({"tool": {"id": "2", "kind": "Read", "title": "a.py", "status": "completed"}})
    ctx.emit({"rows": [1, None]})
    return "Done."
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_project(tmp_path_factory.mktemp("project"))
    (folder / "remit.toml").write_text(SETTINGS)
    (folder / ".remit" / "agents" / "told.py").write_text(TOLD)
    return folder


def without(package: str, folder: Path) -> dict[str, str]:
    """An environment in which Python does not find a package that is installed."""
    hiding = folder / f"without_{package}"
    hiding.mkdir(exist_ok=True)
    (hiding / "sitecustomize.py").write_text(f"import sys\nsys.modules[{package!r}] = None\n")
    return {**os.environ, "PYTHONPATH": str(hiding)}


# ---- delegating


def test_a_text_alone_is_the_task(project: Path) -> None:
    result = remit_json(project, "delegate", "words", "Fix it")
    assert result["status"] == "completed"
    assert remit_json(project, "show", "last")["delegation"]["parameters"] == {"task": "Fix it"}
    assert "A text alone is the task" in " ".join(remit(project, "delegate", "--help").stdout.replace("│", "").split())


def test_a_text_for_an_agent_that_takes_no_task_is_answered_with_what_it_takes(project: Path) -> None:
    done = remit(project, "delegate", "echo", "Fix it")
    assert done.returncode == 2
    assert "Write text='Fix it'" in done.stderr


def test_an_option_given_as_a_parameter_is_not_swallowed(project: Path) -> None:
    before = len(remit_json(project, "history", "--all")["delegations"])
    done = remit(project, "delegate", "words", "task=Count", "resume=sess_1700000000_abcdef")
    assert done.returncode == 2
    assert "Write --resume sess_1700000000_abcdef" in done.stderr
    assert len(remit_json(project, "history", "--all")["delegations"]) == before


def test_the_advice_to_resume_can_be_followed_as_it_is_printed(project: Path) -> None:
    """S2.6: what a stopped delegation kept is gone on with."""
    done = remit(project, "delegate", "again", "--timeout", "1")
    assert done.returncode == 3
    words = done.stdout.split()
    session = words[words.index("--resume") + 1]
    assert "resume=" not in done.stdout
    assert f"resume={session}" in remit_json(project, "show", "last")["delegation"]["return"]["next_steps"]
    again = remit(project, "delegate", "again", "--resume", session)
    assert again.returncode == 0
    assert "Done in run 2." in again.stdout


@pytest.mark.parametrize(
    ("command", "code"), [(("agents", "faulty"), 2), (("delegate", "faulty", "task=x"), 5), (("delegate", "faulty", "x"), 5)]
)
def test_an_agent_that_is_declared_but_faulty_is_named_with_its_fault(project: Path, command: tuple[str, ...], code: int) -> None:
    done = remit(project, *command)
    assert done.returncode == code
    assert "faulty is declared in remit.toml but was not loaded: tmeout: there is no such key (did you mean timeout?)." in done.stderr
    assert "no agent named" not in done.stderr + done.stdout


def test_the_same_holds_for_a_faulty_file(tmp_path: Path) -> None:
    folder = tmp_path / ".remit" / "agents"
    folder.mkdir(parents=True)
    (folder / "half.md").write_text("---\nname: half\nremit:\n  tmeout: 3\n---\nYou are half.\n")
    done = remit(tmp_path, "agents", "half")
    assert done.returncode == 2
    assert "half is declared in .remit/agents/half.md but was not loaded: " in done.stderr
    assert "tmeout" in done.stderr


# ---- looking


def test_an_empty_project_shows_each_way_to_an_agent(tmp_path: Path) -> None:
    said = remit(tmp_path, "agents").stdout
    for words in ("@agent(", "[agents.claude]", 'kind = "claude"', "remit agents --detect"):
        assert words in said


def test_one_agent_is_shown_with_its_place_in_the_project_and_how_its_instructions_begin(project: Path) -> None:
    assert "  from       .remit/agents/mine.py:echo\n" in remit(project, "agents", "echo").stdout
    said = remit(project, "agents", "words").stdout
    assert "First line." in said
    assert "seventh" not in said
    assert "… and 1 line more" in said


def test_chunks_spending_and_tool_calls_are_told_readably_and_once(project: Path) -> None:
    done = remit(project, "delegate", "teller")
    listed = remit(project, "show", "last", "--events").stdout
    for said in (done.stderr, listed, remit(project, "follow", "last").stdout):
        assert said.count("Bash: ls") == 1
        assert "Read: a.py (completed)" in said
        assert '{"rows":[1,null]}' in said
        assert "1,234 tokens, 0.0006 spent so far" in said
        assert "{'" not in said
    assert "spent     1,234 tokens, 0.0006\n" in listed


# ---- what is not installed


def test_installing_and_detecting_say_what_delegating_needs(tmp_path: Path) -> None:
    bare = without("mcp", tmp_path)
    assert "pip install 'remit[mcp]'" in run_process("install", "claude", "--yes", cwd=tmp_path, env=bare).stderr
    assert "pip install 'remit[mcp]'" in run_process("install", "claude", "--yes", cwd=tmp_path, env=bare).stderr, (
        "also when there is nothing to do"
    )
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 2.1.0\n")
    program.chmod(0o755)
    found = run_process("agents", "--detect", cwd=tmp_path, env={**bare, "PATH": f"{program.parent}:/bin:/usr/bin"})
    assert "pip install 'remit[mcp]'" in found.stdout
    assert "#" not in found.stdout, "nothing but lines to paste"
    assert "remit[mcp]" not in remit(tmp_path, "agents", "--detect", env={**os.environ, "PATH": f"{program.parent}:/bin:/usr/bin"}).stdout


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="needs a virtual environment")
def test_a_name_that_only_an_active_environment_finds_is_noted(tmp_path: Path) -> None:
    def notes(tool: str, path: str) -> list[str]:
        done = remit(tmp_path, "install", tool, "--yes", "--json", env={**os.environ, "PATH": path})
        found: list[str] = json.loads(done.stdout)["notes"]
        return found

    said = "another terminal may not find it"
    assert any(said in note for note in notes("claude", f"{Path(sys.executable).parent}:/bin:/usr/bin"))
    assert not any(said in note for note in notes("codex", "/bin:/usr/bin"))


@pytest.mark.parametrize(("loaded", "command"), [("typer", "status"), ("json", "task")])
def test_ctrl_c_while_it_is_still_being_loaded_is_no_traceback(tmp_path: Path, loaded: str, command: str) -> None:
    (tmp_path / f"{loaded}.py").write_text("raise KeyboardInterrupt\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-m", "remit", command], env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")
