"""Research, plan and revise: what a return comes to on the board (S6.6), whatever the agent does."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from remit import agent
from remit.app import Remit
from remit.board.book import Board
from remit.board.statuses import Status
from remit.board.task import State, Task, slug_of
from remit.flow.context import Context
from remit.orchestrator.outcome import Outcome
from remit.orchestrator.plan import plan, revise
from remit.orchestrator.research import research

PLAN = "# Plan\n\n### Phase 1: Lay the ground [NOT STARTED]\n- **Goal**: ground\n\n### Phase 2: Build [NOT STARTED]\n- **Goal**: house\n"


def board_with(root: Path, *tasks: Task) -> Board:
    board = Board(root)
    with board.change(make=True) as draft:
        draft.state = State(tasks=tasks, next_number=1 + max(task.number for task in tasks))
    return board


def task(number: int = 12, title: str = "Fix the parser", **more: Any) -> Task:
    return Task(number=number, title=title, slug=slug_of(title), language=more.pop("language", "python"), **more)


@agent("researcher")
async def diligent(ctx: Context, task: str, write_to: str, **_more: Any) -> dict[str, Any]:
    (ctx.root / write_to).write_text(f"# Report\n\n{task}\n")
    return {
        "status": "completed",
        "summary": "Looked. Wrote it down.",
        "artifacts": [{"type": "report", "path": write_to, "summary": "All"}],
    }


@agent("planner")
async def planning(ctx: Context, task: str, write_to: str, **_more: Any) -> dict[str, Any]:
    (ctx.root / write_to).write_text(f"{PLAN}\n<!-- {task} -->\n")
    return {"status": "completed", "summary": "Planned it. Two phases.", "artifacts": [{"type": "plan", "path": write_to}]}


def returning(name: str, **fields: Any) -> Any:
    @agent(name)
    async def fixed(ctx: Context) -> dict[str, Any]:
        return {"summary": "So it went. That is all.", "artifacts": [], **fields}

    return fixed


def failing(status: str) -> dict[str, Any]:
    error = {
        "type": "execution",
        "message": "the library is missing",
        "code": "TOOL_UNAVAILABLE",
        "recoverable": True,
        "recommendation": "Get it.",
    }
    return {"status": status, "errors": [error]}


async def study(root: Path, worker: Any, number: int = 12, **asked: Any) -> Outcome:
    async with Remit.open(root, agents=[worker]) as remit:
        return await research(remit, Board(root), number, **asked)


def state_of(root: Path) -> Task:
    return Board(root).look().state.task(12)


async def test_a_completed_study_is_filed_marked_and_linked(tmp_path: Path) -> None:
    """S6.5, S6.6"""
    board_with(tmp_path, task(description="It fails on tabs.", accept=("true",)))
    outcome = await study(tmp_path, diligent, focus="only tabs")
    found = state_of(tmp_path)
    assert (outcome.status, outcome.task_status, found.status) == ("completed", "RESEARCHED", Status.RESEARCHED)
    assert [(one.type, one.path) for one in found.artifacts] == [("research", "specs/012_fix_the_parser/reports/research-001.md")]
    assert found.session_id == outcome.session_id
    assert "run" not in found.extra
    report = (tmp_path / found.artifacts[0].path).read_text()
    assert all(words in report for words in ("task 12: Fix the parser", "It fails on tabs.", "only tabs")), report
    again = await study(tmp_path, diligent)
    assert again.artifacts[0].path.endswith("research-002.md")
    assert "only tabs" in (tmp_path / again.artifacts[0].path).read_text(), "the earlier report is quoted (S6.11)"
