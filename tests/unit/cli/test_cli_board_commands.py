"""`remit research`, `plan` and `revise`: error messages, output, exit codes."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from remit import Board, Misused, Refused, Task
from remit import TaskStatus as Status
from remit.board import claims
from remit.cli.board_commands import implement, plan, research, revise
from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.cli.sessions import show
from support.boards import board_with
from support.cli import start

AGENT = """
import asyncio
from typing import Any
from remit import Context, agent

@agent("researcher")
async def researcher(ctx: Context, write_to: str, focus: str = "") -> dict[str, Any]:
    if focus == "for long":
        (ctx.root / "begun").touch()
        await asyncio.sleep(60)
    (ctx.root / write_to).write_text("# Report")
    return {"status": "completed", "summary": "Looked. Done.", "artifacts": [{"type": "report", "path": write_to, "summary": "All of it."}]}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / ".remit"
    (folder / "agents").mkdir(parents=True)
    (folder / "agents" / "own.py").write_text(AGENT)
    (folder / "context" / "common").mkdir(parents=True)
    (folder / "context" / "common" / "style.md").write_text("Be brief.")
    board_with(tmp_path, Task(number=12, title="Dig", slug="dig", language="python"))
    return tmp_path


def test_invalid_call_is_refused_and_changes_nothing(project: Path) -> None:
    before = (project / "specs" / "state.json").read_bytes()
    calls: list[tuple[Callable[..., Exit], dict[str, str], str]] = [
        (research, {}, "Task number required. Usage: remit research N [focus]"),
        (plan, {"number": "twelve"}, "Task number must be an integer. Got: twelve"),
        (research, {"number": "99"}, "Task 99 not found"),
        (revise, {"number": "12"}, "Task 12 has no plan. Use plan instead."),
    ]
    for command, given, message in calls:
        with pytest.raises(Misused) as error:
            command(Project(project), **given)
        assert error.value.message.rstrip(".") == message.rstrip(".")
    assert (project / "specs" / "state.json").read_bytes() == before


@pytest.mark.parametrize("roles", ['[roles]\nimplementer = "hand"\n', ""])
def test_implement_names_the_fault_of_a_declaration(project: Path, roles: str) -> None:
    (project / "remit.toml").write_text(f'[agents.hand]\ncommand = ["true"]\ntimout = 60\n{roles}')
    with pytest.raises(Refused, match=r"remit\.toml:\[agents\.hand\]: timout: there is no such key \(did you mean timeout\?\)"):
        implement(Project(project, trust=True), numbers=["12"])


def test_outcome_is_printed_and_shown_with_its_thirteen_steps(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert research(Project(project), number="12") is Exit.OK
    said = capsys.readouterr().out
    assert "completed  research  task 12 [RESEARCHED]  sess_" in said
    assert "specs/012_dig/reports/research-001.md (report)  All of it." in said
    assert "`remit plan 12` plans it." in said
    assert show(Project(project), session="last") is Exit.OK
    shown = capsys.readouterr().out
    assert "Routing /research (task 12, Language: python) to researcher" in shown
    assert "common/style.md" in shown
    steps = shown.partition("\nsteps\n")[2].strip().split("\n")
    assert [line.split()[-1] for line in (steps[0], steps[-1])] == ["AnalyzeRequest", "ReturnToUser"]
    assert len(steps) == 13


def test_ctrl_c_cancels_keeps_the_status_and_says_how_to_resume(project: Path) -> None:
    running = start("research", "12", "for", "long", cwd=project)
    while not (project / "begun").exists() and running.poll() is None:
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    said, _ = running.communicate(timeout=30)
    assert running.returncode == Exit.INTERRUPTED
    assert "The task stays [RESEARCHING]: `remit research 12` resumes it" in said
    board = Board(project)
    task = board.look().state.task(12)
    assert (task.status, task.artifacts) == (Status.RESEARCHING, ())
    assert claims.holder_of(board, 12) is None
    assert research(Project(project), number="12") is Exit.OK
