"""Plans written by agents are checked before they are saved, and returned to the same agent once."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from remit import Board, Context, Remit, Task, agent, plan_task
from remit.board.plans import plan_faults
from support.boards import board_with

PHASE = "### Phase 1: Fix it [NOT STARTED]\n- **Goal**: fixed\n- **Tasks**:\n  - [ ] fix\n"
RIGHT = f"# Plan\n\n{PHASE}- **Files**: `src/app.py`, `src/new.py` (new)\n- **Accept**: `test -s src/new.py`\n"
WRONG = RIGHT.replace("src/app.py", "src/ap.py").replace("`test -s src/new.py`", "`no-such-program --all`")
FAULTS = (
    "Phase 1 names the file `src/ap.py`, which does not exist: correct it, or mark it with (new) behind it.",
    "Phase 1: the program `no-such-program` of the acceptance command `no-such-program --all` is neither on PATH nor in the project.",
)
PLAN_PATH = "specs/001_fix/plans/implementation-001.md"


def make_board(root: Path, **more: Any) -> Board:
    (root / "src").mkdir()
    (root / "src/app.py").write_text("x = 1\n")
    return board_with(root, Task(number=1, title="Fix", slug="fix", language="python", **more))


def planner_writing(texts: Sequence[str], asked: list[str], *, in_data: bool = False) -> Any:
    """A planner that writes these plans, one per request."""

    @agent("planner")
    async def planner(ctx: Context, task: str, write_to: str) -> dict[str, Any]:
        text = texts[len(asked)]
        asked.append(task)
        if in_data:
            return {"status": "completed", "summary": "Planned it. One phase.", "data": {"plan": text}}
        (ctx.root / write_to).write_text(text)
        return {"status": "completed", "summary": "Planned it. One phase.", "artifacts": [{"type": "plan", "path": write_to}]}

    return planner


@pytest.mark.parametrize("in_data", [False, True], ids=["written", "in the data"])
async def test_faulty_plan_is_returned_with_its_faults_and_the_repair_is_saved(tmp_path: Path, in_data: bool) -> None:
    board, asked = make_board(tmp_path), list[str]()
    async with Remit.open(tmp_path, agents=[planner_writing([WRONG, RIGHT], asked, in_data=in_data)]) as remit:
        outcome = await plan_task(remit, board, 1)
    assert (outcome.status, outcome.task_status, len(asked)) == ("completed", "PLANNED", 2), outcome
    assert all(f"- {fault}\n" in asked[1] for fault in FAULTS)
    assert (tmp_path / PLAN_PATH).read_text() == RIGHT
    assert "The first plan had faults and was handed back." in outcome.warnings


@pytest.mark.parametrize("second", [WRONG, f"{WRONG}\nThe same in other words.\n"], ids=["unchanged", "changed"])
@pytest.mark.parametrize("in_data", [False, True], ids=["written", "in the data"])
async def test_plan_that_is_faulty_twice_fails_with_its_faults_and_is_kept(tmp_path: Path, second: str, in_data: bool) -> None:
    board, asked = make_board(tmp_path), list[str]()
    async with Remit.open(tmp_path, agents=[planner_writing([WRONG, second], asked, in_data=in_data)]) as remit:
        outcome = await plan_task(remit, board, 1)
    assert (outcome.status, outcome.task_status, len(asked)) == ("failed", "PLANNING", 2)
    assert tuple(error.message for error in outcome.errors) == FAULTS
    assert {error.code for error in outcome.errors} == {"VALIDATION_FAILED"}
    assert PLAN_PATH in outcome.summary
    assert [one.path for one in outcome.artifacts] == [PLAN_PATH]
    assert (tmp_path / PLAN_PATH).read_text() == second
    assert not board.look().state.task(1).has_plan


async def test_blocked_repair_blocks_the_task(tmp_path: Path) -> None:
    board, asked = make_board(tmp_path), list[str]()

    @agent("planner")
    async def asking(task: str) -> dict[str, Any]:
        asked.append(task)
        if len(asked) == 1:
            return {"status": "completed", "summary": "Planned it. One phase.", "data": {"plan": WRONG}}
        error = {"type": "execution", "message": "Which program?", "code": "BLOCKED", "recoverable": True, "recommendation": "Say."}
        return {"status": "blocked", "summary": "A question is open. It is below.", "artifacts": [], "errors": [error]}

    async with Remit.open(tmp_path, agents=[asking]) as remit:
        outcome = await plan_task(remit, board, 1)
    assert (outcome.status, outcome.task_status, len(asked)) == ("blocked", "BLOCKED", 2)
    assert board.look().state.task(1).blocking_reason == "Which program?"
    assert all(any(fault in words for words in outcome.warnings) for fault in FAULTS)


async def test_interrupted_repair_is_requested_again_without_planning_again(tmp_path: Path) -> None:
    board, asked, later = make_board(tmp_path), list[str](), list[str]()
    is_asked_again = asyncio.Event()

    @agent("planner")
    async def hanging(ctx: Context, task: str, write_to: str) -> dict[str, Any]:
        asked.append(task)
        if len(asked) == 2:
            is_asked_again.set()
            await asyncio.Event().wait()
        return {"status": "completed", "summary": "Planned it. One phase.", "data": {"plan": WRONG}}

    async with Remit.open(tmp_path, agents=[hanging]) as remit:
        planning = asyncio.create_task(plan_task(remit, board, 1))
        await asyncio.wait_for(is_asked_again.wait(), 30)
        planning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await planning
    async with Remit.open(tmp_path, agents=[planner_writing([RIGHT], later)]) as remit:
        outcome = await plan_task(remit, board, 1)
    assert (outcome.status, outcome.task_status, len(later)) == ("completed", "PLANNED", 1), outcome
    assert FAULTS[0] in later[0]
    assert (tmp_path / PLAN_PATH).read_text() == RIGHT


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("Accept: `test -s src/app.py`", ""),
        ("Accept: `X=1 ! cd src && nothing`", ""),
        ("Accept: `(true; false)`", ""),
        ("Accept: `./check.sh`", ""),
        ("Accept: `tools/made.sh -v`\n- Files: `tools/made.sh (new)`", ""),
        ("Accept: none", ""),
        ("Accept:", "names no command"),
        ("Accept: ` `", "is not a command"),
        ("Accept: it works", "is not a command"),
        ("Accept: `echo \"x`", "cannot be parsed"),
        ("Accept: `X=1`", "runs no program"),
        ("Accept: `# later`", "runs no program"),
        ("Accept: `tools/none.sh`", "neither on PATH nor in the project"),
        ("Accept: `src/app.py`", "neither on PATH nor in the project"),
        ("Files: `src/app.py`, `src/*.py`, `src`", ""),
        ("Files: src/app.py, src/b.py (new)", ""),
        ("Files:\n  - `src/b.py` — new: the rows\n  - **`src/c.py`** (New)", ""),
        ("Files: none", ""),
        ("Files: `gone/*.py`", "`gone/*.py`, which does not exist"),
        ("Files: a" + " " * 200_000 + "b", "does not exist"),
        ("Files: " + "`src/app.py`, " * 50_000, ""),
        ("Accept: `src`", "neither on PATH"),
        ("Accept: `src/`", "neither on PATH"),
        ("Files: `src/b.py`, new `src/c.py`", "`src/b.py`, which does not exist"),
        ("Files: `../out.py` (new)", "not a path inside the project"),
        ("Files: `/etc/passwd`", "not a path inside the project"),
        (f"Files: `{'x' * 5000}`", "does not exist"),
    ],
)  # fmt: skip
def test_files_exist_or_are_new_and_acceptance_is_a_command(tmp_path: Path, line: str, fault: str) -> None:
    make_board(tmp_path)
    (tmp_path / "check.sh").write_text("#!/bin/sh\n")
    (tmp_path / "check.sh").chmod(0o755)
    found = plan_faults(tmp_path, f"{PHASE}- {line}\n")
    assert bool(found) is bool(fault), found
    assert not fault or fault in found[0]
    assert all(len(one) < 600 for one in found)
