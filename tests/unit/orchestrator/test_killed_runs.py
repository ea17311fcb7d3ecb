"""Research killed with -9 between any two of its steps: the next one goes on from what is there."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remit import agent
from remit.app import Remit
from remit.board.board import Board
from remit.board.statuses import Status
from remit.board.task import State, Task
from remit.flow.context import Context
from remit.orchestrator.outcome import Outcome
from remit.orchestrator.research_plan import research
from support.repository import begin, git

RUN = Path(__file__).with_name("dying_run.py")


@agent("researcher")
async def second(ctx: Context, write_to: str) -> dict[str, Any]:
    (ctx.root / write_to).write_text("# From the second")
    return {"status": "completed", "summary": "Looked again. Done.", "artifacts": [{"type": "report", "path": write_to}]}


def killed(root: Path, point: str) -> Task:
    board = Board(root)
    with board.change(make=True) as draft:
        draft.state = State(tasks=(Task(number=12, title="Dig", slug="dig", language="python"),), next_number=13)
    ended = subprocess.run([sys.executable, str(RUN), str(root), point], capture_output=True, text=True, timeout=60)
    assert ended.returncode == -9, ended.stderr
    return board.look().state.task(12)


async def again(root: Path) -> Outcome:
    async with Remit.open(root, agents=[second]) as remit:
        return await research(remit, Board(root), 12)


@pytest.mark.parametrize("point", ["after the marker", "while the agent runs"])
async def test_a_study_that_did_not_finish_runs_again(tmp_path: Path, point: str) -> None:
    assert killed(tmp_path, point).status is Status.RESEARCHING
    outcome = await again(tmp_path)
    assert (outcome.status, outcome.task_status) == ("completed", "RESEARCHED")
    assert any("begins again" in words for words in outcome.warnings)
    assert (tmp_path / outcome.artifacts[0].path).read_text() == "# From the second"
    linked = {one.path: dict(one.extra) for one in Board(tmp_path).look().state.task(12).artifacts}
    assert linked[outcome.artifacts[0].path] == {}
    if point == "while the agent runs":
        assert linked["specs/012_dig/reports/research-001.md"] == {"partial": True}, "what it left is kept, as what it is"


async def test_a_study_that_had_finished_is_filed_and_not_run_again(tmp_path: Path) -> None:
    assert killed(tmp_path, "after the return").status is Status.RESEARCHING
    outcome = await again(tmp_path)
    assert (outcome.status, outcome.task_status) == ("completed", "RESEARCHED")
    assert (tmp_path / outcome.artifacts[0].path).read_text() == "# From the one that died"
    assert any("nothing ran again" in words for words in outcome.warnings)
    task = Board(tmp_path).look().state.task(12)
    assert (task.session_id, "run" in task.extra) == (outcome.session_id, False)


async def test_what_was_filed_and_not_committed_is_committed_by_the_next(tmp_path: Path) -> None:
    begin(tmp_path)
    hook = tmp_path / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text('#!/bin/sh\nkill -9 "$REMIT_TEST_VICTIM"\nexit 1\n')
    hook.chmod(0o755)
    assert killed(tmp_path, "before the commit").status is Status.RESEARCHED
    hook.unlink()
    outcome = await again(tmp_path)
    assert outcome.artifacts[0].path.endswith("research-002.md")
    assert any("Committed what an earlier command" in words for words in outcome.warnings)
    assert git(tmp_path, "log", "--format=%s").split("\n")[:2] == ["task 12: complete research"] * 2
    assert git(tmp_path, "status", "--porcelain", "specs").strip() == ""
