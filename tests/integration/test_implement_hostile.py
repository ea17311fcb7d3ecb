"""`implement` beside agents that do what they like to the board, the plan, other tasks' files and the person's."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from implement_stage import PLAN_PATH, Worker, entry, files_of, git, made_project, returned, subjects, writes

from remit import Context
from remit.board.board import Board
from remit.board.claims import claim
from remit.core.clock import Clock
from remit.core.errors import Refused, Unavailable


def with_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def with_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def with_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


def with_too_much(path: Path) -> None:
    with path.open("ab") as opened:
        opened.truncate(3 << 30)


@pytest.mark.parametrize("replaced", [with_pipe, with_folder, with_link, with_too_much])
async def test_whatever_an_agent_puts_in_the_place_of_its_plan_the_phase_is_filed_and_the_run_stops(
    tmp_path: Path, replaced: Callable[[Path], None]
) -> None:
    def ruins(ctx: Context, phase: int) -> Any:
        replaced(ctx.root / PLAN_PATH)
        return writes(ctx, phase)

    board = made_project(tmp_path)
    outcome = await Worker(p1=ruins).implement(board)
    assert outcome.status == "failed"
    assert "cannot be read" in outcome.summary
    assert PLAN_PATH not in files_of(tmp_path, "task 1 phase 1")
    (shutil.rmtree if (tmp_path / PLAN_PATH).is_dir() else os.unlink)(tmp_path / PLAN_PATH)
    git(tmp_path, "checkout", "--", PLAN_PATH)
    assert (await Worker().implement(board)).status == "completed"


async def test_a_plan_that_an_agent_removes_is_put_back_and_gone_on_with(tmp_path: Path) -> None:
    def moves(ctx: Context, phase: int) -> Any:
        os.rename(ctx.root / "specs/001_csv", ctx.root / "specs/elsewhere")
        return writes(ctx, phase)

    worker = Worker(p1=moves)
    outcome = await worker.implement(made_project(tmp_path))
    assert (outcome.status, worker.phases) == ("completed", [1, 2, 3])
    assert any("put back" in warning for warning in outcome.warnings)


async def test_phases_that_an_agent_takes_out_of_the_plan_are_not_taken_for_done(tmp_path: Path) -> None:
    def empties(ctx: Context, phase: int) -> Any:
        (ctx.root / PLAN_PATH).write_text("# Nothing left to do\n")
        return writes(ctx, phase)

    worker = Worker(p1=empties)
    outcome = await worker.implement(made_project(tmp_path))
    assert (outcome.status, outcome.task_status, worker.phases) == ("failed", "IMPLEMENTING", [1])
    assert "phase 1, 2, 3" in outcome.summary
    assert PLAN_PATH not in files_of(tmp_path, "task 1 phase 1"), "so that git still has it"


@pytest.mark.parametrize("name", ["state.json", "TODO.md"])
async def test_a_pipe_in_the_place_of_the_board_hangs_nobody(tmp_path: Path, name: str) -> None:
    def ruins(ctx: Context, phase: int) -> Any:
        with_pipe(ctx.root / "specs" / name)
        return writes(ctx, phase)

    with pytest.raises(Unavailable, match="not a file"):
        await Worker(p1=ruins).implement(made_project(tmp_path, in_git=False))


async def test_files_of_another_task_and_of_a_person_are_not_in_its_commit(tmp_path: Path) -> None:
    """Also when the agent names them as its own."""
    report = "specs/002_other/reports/research-001.md"

    def takes(ctx: Context, phase: int) -> Any:
        (ctx.root / "specs/002_other/reports").mkdir(parents=True)
        (ctx.root / report).write_text("Half a report.")
        (ctx.root / "also").symlink_to("specs/002_other")
        writes(ctx, phase)
        return returned("rows.txt", "README", report, "also/reports/research-001.md", "specs/TODO.md")

    board = made_project(tmp_path)
    (tmp_path / "README").write_text("A person is at it.\n")
    outcome = await Worker(p1=takes, p2=lambda _ctx, _phase: returned(status="failed")).implement(board)
    assert files_of(tmp_path, "task 1 phase 1") == {"rows.txt", PLAN_PATH, "specs/state.json", "specs/TODO.md"}
    told = " ".join(outcome.warnings)
    assert "not its own to commit: " in told
    assert report in told
    assert "changed before it began and not by it, so left uncommitted: README" in told
    assert " M README" in git(tmp_path, "status", "--short")


async def test_no_summary_is_written_through_a_link_that_leads_out(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "project"
    root.mkdir()

    def links(ctx: Context, phase: int) -> Any:
        (ctx.root / "specs/001_csv/summaries").symlink_to(outside)
        return writes(ctx, phase)

    outcome = await Worker(p1=links).implement(made_project(root, in_git=False))
    assert outcome.status == "completed"
    assert list(outside.iterdir()) == []
    assert (root / outcome.data["summary_path"]).is_file()


async def test_who_was_overtaken_after_their_time_leaves_the_board_to_the_other(tmp_path: Path) -> None:
    """The clock was set, or the machine slept; another has taken the task since."""
    board = made_project(tmp_path)
    late = Board(tmp_path, clock=Clock(wall=lambda: time.time() + 100_000))
    other = claim(late, 1, "implement", seconds=60)

    def is_overtaken(ctx: Context, phase: int) -> Any:
        other.__enter__()
        return writes(ctx, phase)

    try:
        with pytest.raises(Refused, match="another took it over"):
            await Worker(p1=is_overtaken).implement(board)
        assert entry(board)["status"] == "implementing"
        assert subjects(tmp_path) == ["begin"]
    finally:
        other.__exit__(None, None, None)
    assert (await Worker().implement(board)).status == "completed"
