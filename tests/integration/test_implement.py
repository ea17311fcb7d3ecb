"""`implement`: phases carried out in turn, judged, marked and committed by program code, whatever the agents do."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from implement_harness import PLAN, PLAN_PATH, Worker, entry, files_of, git, made_project, returned, subjects, writes

from board_reader import disagreements
from remit import Board, Clock, Context, Misused, ParallelOptions, Refused, Remit, Task
from remit import TaskStatus as Status
from remit import implement_task as implement
from support.boards import claim, implement_each, read_plan

BOARD_FILES = {"specs/state.json", "specs/TODO.md"}


def markers(board: Board) -> list[str]:
    return [str(phase.status) for phase in read_plan((board.root / PLAN_PATH).read_text()).phases]


async def test_phases_are_run_and_committed_in_order(tmp_path: Path) -> None:
    board, worker, messages = made_project(tmp_path), Worker(), list[str]()
    outcome = await worker.implement(board, show=messages.append)
    assert outcome.status == "completed"
    assert worker.phases == [1, 2, 3]
    assert messages == ["phase 1 of 3: Read rows", "phase 2 of 3: Write CSV", "phase 3 of 3: Document it"]
    commits = ["task 1 phase 1: Read rows", "task 1 phase 2: Write CSV", "task 1 phase 3: Document it"]
    assert subjects(tmp_path) == ["begin", *commits, "task 1: complete implementation"]
    assert files_of(tmp_path, commits[1]) - BOARD_FILES == {"part2.txt", PLAN_PATH}
    assert markers(board) == ["COMPLETED"] * 3
    kept = entry(board)
    assert kept["status"] == "completed"
    assert kept["completion_summary"].startswith("Phases carried out: 3 of 3.")
    assert [one["type"] for one in kept["artifacts"]] == ["summary"]
    assert "phases" not in kept
    assert "run" not in kept
    summary = (tmp_path / outcome.data["summary_path"]).read_text()
    for words in ("## Phase 2: Write CSV [COMPLETED]", "`part2.txt`", "`test -s rows.txt` (exit 0)", outcome.data["commits"]["1"]):
        assert words in summary
    assert git(tmp_path, "status", "--short", "--", ".", ":!.remit") == ""
    trailers = git(tmp_path, "log", "-1", "--format=%(trailers:key=Session,valueonly)", "--grep=phase 2").strip()
    assert trailers.startswith("sess_")
    assert disagreements(tmp_path) == [], "state.json, TODO.md, artifacts and git agree"


async def test_prompt_has_task_phase_and_earlier_phases(tmp_path: Path) -> None:
    worker = Worker()
    await worker.implement(made_project(tmp_path, in_git=False, accept=("true",)), focus="use sqlite")
    asked = worker.requests[1]
    assert "Asked for in particular: use sqlite" in asked["task"]
    assert asked["number"] == 1
    assert (asked["phase"], asked["phase_name"], asked["plan"]) == (2, "Write CSV", PLAN_PATH)
    assert asked["done"] == ["Phase 1, Read rows: Wrote rows.txt."]
    for words in ("task 1: CSV", "Rows as CSV", "### Phase 2: Write CSV", "Phase 1, Read rows: Wrote rows.txt.", "Phase 3: Document it"):
        assert words in asked["task"]
    assert "exits 0" not in asked["task"]
    assert "- `true`" in worker.requests[2]["task"]


async def test_failed_phase_stops_the_run_and_the_next_run_resumes_there(tmp_path: Path) -> None:
    """Failed keeps IMPLEMENTING, later phases are untouched."""
    board = made_project(tmp_path, in_git=False)
    first = Worker(p2=lambda _ctx, _phase: returned(status="failed"))
    outcome = await first.implement(board)
    assert (outcome.status, outcome.data["resume_from_phase"]) == ("failed", 2)
    assert "remit implement 1" in outcome.next_steps
    assert first.phases == [1, 2]
    assert entry(board)["status"] == "implementing"
    assert markers(board) == ["COMPLETED", "PARTIAL", "NOT STARTED"]
    second, messages = Worker(), list[str]()
    assert (await second.implement(board, show=messages.append)).status == "completed"
    assert second.phases == [2, 3]
    assert messages[0] == "Task 1 resumes from phase 2 (1 of 3 done)."
    assert "An earlier run began this phase" in second.requests[0]["task"]
    assert second.requests[0]["done"] == ["Phase 1, Read rows: Wrote rows.txt."]


async def test_blocked_phase_blocks_the_task_with_its_reason(tmp_path: Path) -> None:
    board = made_project(tmp_path)
    outcome = await Worker(p2=lambda _ctx, _phase: returned(status="blocked")).implement(board)
    assert outcome.status == "blocked"
    assert (entry(board)["status"], entry(board)["blocking_reason"]) == ("blocked", "It is blocked.")
    assert markers(board) == ["COMPLETED", "BLOCKED", "NOT STARTED"]
    assert subjects(tmp_path)[-1] == "task 1: block at phase 2"
    assert (await Worker().implement(board)).status == "completed"


async def test_timeout_makes_the_task_partial_and_names_the_phase_to_resume(tmp_path: Path) -> None:
    async def sleeps(ctx: Context, _phase: int) -> Any:
        (ctx.root / "half.txt").write_text("half")
        await asyncio.sleep(30)

    board = made_project(tmp_path)
    async with Remit.open(tmp_path, agents=Worker(p2=sleeps).agents(), recover=False) as remit:
        outcome = await implement(remit, board, 1, timeout=2.0)
        harvested = (await remit.describe(outcome.session_id)).result
    assert not BOARD_FILES & {one.path for one in harvested.artifacts}, "what remit wrote is not its work"
    assert not any("not its work" in words for words in outcome.warnings)
    assert (outcome.status, outcome.stop_reason) == ("partial", "deadline")
    assert outcome.data["resume_from_phase"] == 2
    assert any(error.code == "TIMEOUT" and error.recommendation == "remit implement 1" for error in outcome.errors)
    assert entry(board)["status"] == "partial"
    assert markers(board) == ["COMPLETED", "PARTIAL", "NOT STARTED"]
    assert "half.txt" not in git(tmp_path, "ls-files")
    (summary,) = (one["path"] for one in entry(board)["artifacts"] if one["type"] == "summary")
    text = (tmp_path / summary).read_text()
    assert "- **Not completed**: " in text
    assert "## Phase 2" in text.partition("[PARTIAL]")[0]
    assert text.count("Not done.") == 2
    assert summary in git(tmp_path, "ls-files"), "it is committed with the marker"
    assert (await Worker().implement(board)).status == "completed"


async def test_no_phase_is_started_after_the_deadline(tmp_path: Path) -> None:
    board, worker = made_project(tmp_path, in_git=False), Worker()
    outcome = await worker.implement(board, timeout=0.5)
    assert (outcome.status, outcome.stop_reason, outcome.data["resume_from_phase"]) == ("partial", "deadline", 1)
    assert worker.phases == []
    assert entry(board)["status"] == "partial"
    with pytest.raises(Misused, match="above the maximum"):
        await worker.implement(board, timeout=20_000)


async def test_acceptance_decides_whether_a_phase_is_completed(tmp_path: Path) -> None:
    """The phase's commands and the plan's for each phase, the task's for the last."""
    plan = PLAN.replace("# Plan\n", "# Plan\n\n- **Accept**: `test ! -e broken`\n")

    def breaks(ctx: Context, phase: int) -> Any:
        (ctx.root / "broken").write_text("x")
        return writes(ctx, phase)

    board = made_project(tmp_path, in_git=False, plan=plan, accept=("test -e part3.txt",))
    outcome = await Worker(p2=breaks).implement(board)
    assert outcome.status == "partial"
    assert "`test ! -e broken` exited 1" in outcome.summary
    assert entry(board)["status"] == "partial"
    assert markers(board) == ["COMPLETED", "PARTIAL", "NOT STARTED"]
    (tmp_path / "broken").unlink()
    outcome = await Worker(p3=lambda ctx, phase: returned("README")).implement(board)
    assert (outcome.status, markers(board)) == ("partial", ["COMPLETED", "COMPLETED", "PARTIAL"])
    assert "test -e part3.txt" in outcome.summary
    outcome = await Worker().implement(board)
    assert outcome.status == "completed"


async def test_undeclared_files_are_not_committed(tmp_path: Path) -> None:
    """Named paths only; what a person has staged stays staged."""
    board = made_project(tmp_path)
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "staged.txt").write_text("staged")
    git(tmp_path, "add", "staged.txt")

    def two(ctx: Context, phase: int) -> Any:
        (ctx.root / "forgotten.txt").write_text("x")
        (ctx.root / "README").unlink()
        (ctx.root / "rows.txt").write_text("rows")
        return returned("rows.txt", data={"deleted": ["README", "../x", "/etc/passwd", "never.txt"]})

    outcome = await Worker(p1=two).implement(board)
    assert outcome.status == "completed"
    assert files_of(tmp_path, "task 1 phase 1") - BOARD_FILES == {"rows.txt", "README", PLAN_PATH}
    left = git(tmp_path, "status", "--short", "--", ".", ":!.remit").splitlines()
    assert left == ["A  staged.txt", "?? forgotten.txt", "?? mine.txt"]


async def test_commands_of_plans_and_tasks_never_run_on_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent may have written them: they see no home, whatever `accept_in` says."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "key").write_text("PRIVATE")
    (tmp_path / "project").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("REMIT_ACCEPT_IN", "host")
    plan = PLAN.replace("`test -s rows.txt`", "`cp ~/key stolen.txt`")
    board = made_project(tmp_path / "project", in_git=False, plan=plan)
    outcome = await Worker().implement(board)
    assert (outcome.status, markers(board)) == ("partial", ["PARTIAL", "NOT STARTED", "NOT STARTED"])
    assert not (tmp_path / "project" / "stolen.txt").exists()
    assert "see accept_read and accept_env" in outcome.errors[0].recommendation
    made_project(tmp_path / "project", in_git=False, plan=plan.replace("NOT STARTED", "COMPLETED"), accept=("cp ~/key stolen.txt",))
    assert (await Worker().implement(board)).status == "partial"
    assert not (tmp_path / "project" / "stolen.txt").exists()


async def test_task_with_all_phases_completed_is_completed_at_once(tmp_path: Path) -> None:
    """Nothing runs; but the task's own acceptance is asked."""
    board = made_project(tmp_path, in_git=False, plan=PLAN.replace("NOT STARTED", "COMPLETED"), accept=("test -e there",))
    worker = Worker()
    outcome = await worker.implement(board)
    assert (outcome.status, entry(board)["status"]) == ("partial", "partial")
    assert "not accepted" in outcome.summary
    (tmp_path / "there").touch()
    outcome = await worker.implement(board)
    assert (outcome.status, entry(board)["status"], worker.phases) == ("completed", "completed", [])
    assert "marked by hand" in (tmp_path / outcome.data["summary_path"]).read_text()
    with pytest.raises(Refused, match="it is final"):
        await worker.implement(board)


@pytest.mark.parametrize("plan", [None, "# Plan\n\nJust do it.\n"])
async def test_plan_without_phases_is_run_as_one_phase(tmp_path: Path, plan: str | None) -> None:
    """Direct."""
    board, worker = made_project(tmp_path, plan=plan), Worker()
    outcome = await worker.implement(board)
    assert (outcome.status, worker.phases) == ("completed", [0])
    assert subjects(tmp_path) == ["begin", "task 1: complete implementation"]
    assert {"whole.txt", outcome.data["summary_path"]} < files_of(tmp_path, "task 1: complete")
    assert "Wrote whole.txt." in (tmp_path / outcome.data["summary_path"]).read_text()
    assert any("no phases" in warning for warning in outcome.warnings) == (plan is not None)
    assert ("Just do it." in worker.requests[0]["task"]) == (plan is not None)


async def test_agent_cannot_mark_other_phases_completed(tmp_path: Path) -> None:
    """That is program code's to say."""

    def eager(ctx: Context, phase: int) -> Any:
        path = ctx.root / PLAN_PATH
        path.write_text(path.read_text().replace("NOT STARTED", "COMPLETED") + "\nA note of the agent.\n")
        return writes(ctx, phase)

    board, worker = made_project(tmp_path, in_git=False), Worker(p1=eager)
    outcome = await worker.implement(board)
    assert (outcome.status, worker.phases) == ("completed", [1, 2, 3])
    assert any("Phase 3 was marked [COMPLETED] while phase 1" in warning for warning in outcome.warnings)
    assert "A note of the agent." in (tmp_path / PLAN_PATH).read_text()


async def test_refused_implement_leaves_the_task_unchanged(tmp_path: Path) -> None:
    board = made_project(tmp_path, in_git=False)
    async with Remit.open(tmp_path, agents=Worker().agents(), recover=False, policy="forbid(principal, action, resource);") as remit:
        outcome = await implement(remit, board, 1)
    assert outcome.stop_reason == "refused"
    assert (entry(board)["status"], markers(board)[0]) == ("planned", "NOT STARTED")


def with_tasks(board: Board, *tasks: Task) -> None:
    with board.change() as draft:
        draft.state = draft.state.with_tasks(tasks)


def task(number: int, *dependencies: int, status: Status = Status.PLANNED) -> Task:
    return Task(number=number, title=f"T{number}", slug=f"t{number}", language="python", status=status, dependencies=dependencies)


async def test_incomplete_dependencies_are_named(tmp_path: Path) -> None:
    board, worker = made_project(tmp_path, in_git=False), Worker()
    with_tasks(board, task(2, 1, 9))
    with pytest.raises(Refused, match=r"task 1 \[PLANNED\], task 9 \(not on the board\)"):
        await worker.implement(board, 2)
    assert entry(board, 2)["status"] == "planned"
    outcome = await worker.implement(board, 2, force=True)
    assert outcome.status == "completed"
    assert any("--force" in warning and "task 1 [PLANNED]" in warning for warning in outcome.warnings)


async def test_tasks_run_in_dependency_order_until_one_fails(tmp_path: Path) -> None:
    board = made_project(tmp_path, in_git=False, plan=None)
    with_tasks(board, task(2, 4), task(3, status=Status.COMPLETED), task(4), task(5, 2), task(6))
    worker = Worker()

    def fails(ctx: Context, phase: int) -> Any:
        return returned(status="failed") if worker.requests[-1]["number"] == 2 else writes(ctx, phase)

    worker.scripts = {"p0": fails}
    async with Remit.open(tmp_path, agents=worker.agents(), recover=False) as remit:
        outcome = await implement_each(remit, board, [1, 2, 3, 4, 5, 6], ParallelOptions())
        with pytest.raises(Misused, match="Task 9 not found"):
            await implement_each(remit, board, [6, 9], ParallelOptions())
        with pytest.raises(Refused, match="depends on incomplete tasks: task 2"):
            await implement_each(remit, board, [5, 6], ParallelOptions())
    assert [asked["number"] for asked in worker.requests] == [1, 4, 2]
    assert outcome.status == "failed"
    assert outcome.data["completed"] == [1, 4]
    assert outcome.data["already_completed"] == [3]
    assert outcome.data["not_begun"] == [5, 6]
    assert "Task 2 is failed: " in outcome.summary
    assert "Not begun: tasks 5, 6." in outcome.summary


KILLED = """
import asyncio, os, sys
from pathlib import Path
from implement_harness import Worker, writes
from remit.board.board import Board

def dies(ctx, phase):
    (ctx.root / "half.txt").write_text("half")
    os.kill(os.getpid(), 9)

async def returned_then_dies(remit, handle):
    await handle.result()
    if {dies_in} == "filing" and (await remit.describe(handle.session_id)).parameters["phase"] == 2:
        os.kill(os.getpid(), 9)
    return await handle.result()

scripts = {{"p2": dies}} if {dies_in} == "working" else {{}}
asyncio.run(Worker(**scripts).implement(Board(Path(sys.argv[1])), waiting=returned_then_dies))
"""


@pytest.mark.parametrize("dies_in", ["working", "filing"])
def test_killed_run_is_resumed_in_its_phase(tmp_path: Path, dies_in: str) -> None:
    """What was finished when the process was killed is filed, what was not is run again."""
    board = made_project(tmp_path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (Path(__file__).parent, Path(__file__).parents[1])))}
    script = KILLED.format(dies_in=repr(dies_in))
    died = subprocess.run([sys.executable, "-c", script, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=60)
    assert died.returncode == -9, died.stderr
    assert markers(board) == ["COMPLETED", "IN PROGRESS", "NOT STARTED"]
    assert entry(board)["status"] == "implementing"
    worker, messages = Worker(), list[str]()
    outcome = asyncio.run(worker.implement(board, show=messages.append))
    assert outcome.status == "completed", outcome
    assert messages[0 if dies_in == "working" else 1] == "Task 1 resumes from phase 2 (1 of 3 done)."
    assert worker.phases == ([2, 3] if dies_in == "working" else [3])
    assert (tmp_path / "half.txt").exists() == (dies_in == "working")
    wanted = ["task 1 phase 1: Read rows", "task 1 phase 2: Write CSV", "task 1 phase 3: Document it", "task 1: complete implementation"]
    assert subjects(tmp_path) == ["begin", *wanted]
    assert files_of(tmp_path, "task 1 phase 2") - BOARD_FILES == {"part2.txt", PLAN_PATH}
    assert disagreements(tmp_path) == []


async def test_commit_has_no_files_of_other_tasks_or_of_the_user(tmp_path: Path) -> None:
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
    (warning,) = (words for words in outcome.warnings if "not its work" in words)
    assert report in warning
    assert "README" in warning
    assert " M README" in git(tmp_path, "status", "--short")


async def test_run_that_lost_its_claim_does_not_write_the_board(tmp_path: Path) -> None:
    """The clock was set, or the machine slept; another has taken the task since."""
    board = made_project(tmp_path)
    late = Board(tmp_path, clock=Clock(wall=lambda: time.time() + 100_000))
    other = claim(late, 1, "implement", seconds=60)

    def is_overtaken(ctx: Context, phase: int) -> Any:
        other.__enter__()
        return writes(ctx, phase)

    try:
        with pytest.raises(Refused, match="another process took it over"):
            await Worker(p1=is_overtaken).implement(board)
        assert entry(board)["status"] == "implementing"
        assert subjects(tmp_path) == ["begin"]
    finally:
        other.__exit__(None, None, None)
    assert (await Worker().implement(board)).status == "completed"


async def test_plan_emptied_by_an_agent_is_restored(tmp_path: Path) -> None:
    def empties(ctx: Context, phase: int) -> Any:
        (ctx.root / PLAN_PATH).write_text("# Nothing left to do\n")
        return writes(ctx, phase)

    board, worker = made_project(tmp_path), Worker(p1=empties)
    outcome = await worker.implement(board)
    assert (outcome.status, worker.phases, markers(board)) == ("completed", [1, 2, 3], ["COMPLETED"] * 3)
    assert any("it was restored" in warning for warning in outcome.warnings)
