"""Research, plan and revise: the effect of every return on the board."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from remit import Board, Context, Misused, Outcome, Refused, Remit, Task, agent
from remit import BoardState as State
from remit import TaskStatus as Status
from remit import plan_task as plan
from remit import research_task as research
from remit import revise_plan as revise
from remit.board.command_lifecycle import complexity_of, loaded_context
from remit.board.task import slug_of
from support.boards import board_with
from support.repository import all_committed, begin, git
from support.repository import git as git_in

PLAN = "# Plan\n\n### Phase 1: Add the grammar [NOT STARTED]\n- **Goal**: grammar\n\n### Phase 2: Build [NOT STARTED]\n- **Goal**: parser\n"


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


def agent_returning(name: str, **fields: Any) -> Any:
    @agent(name)
    async def fixed(ctx: Context) -> dict[str, Any]:
        return {"summary": "So it went. That is all.", "artifacts": [], **fields}

    return fixed


def failure_fields(status: str) -> dict[str, Any]:
    error = {
        "type": "execution",
        "message": "the library is missing",
        "code": "TOOL_UNAVAILABLE",
        "recoverable": True,
        "recommendation": "Get it.",
    }
    return {"status": status, "errors": [error]}


async def run_research(root: Path, worker: Any, number: int = 12, **asked: Any) -> Outcome:
    async with Remit.open(root, agents=[worker]) as remit:
        return await research(remit, Board(root), number, **asked)


def the_task(root: Path, number: int = 12) -> Task:
    return Board(root).look().state.task(number)


async def test_completed_research_is_saved_linked_and_sets_the_status(tmp_path: Path) -> None:
    board_with(tmp_path, task(description="It fails on tabs.", accept=("true",)))
    outcome = await run_research(tmp_path, diligent, focus="only tabs")
    found = the_task(tmp_path)
    assert (outcome.status, outcome.task_status, found.status) == ("completed", "RESEARCHED", Status.RESEARCHED)
    assert [(one.type, one.path) for one in found.artifacts] == [("research", "specs/012_fix_the_parser/reports/research-001.md")]
    assert found.session_id == outcome.session_id
    assert "run" not in found.extra
    report = (tmp_path / found.artifacts[0].path).read_text()
    assert all(words in report for words in ("task 12: Fix the parser", "It fails on tabs.", "only tabs")), report
    again = await run_research(tmp_path, diligent)
    assert again.artifacts[0].path.endswith("research-002.md")
    assert "only tabs" in (tmp_path / again.artifacts[0].path).read_text(), "the earlier report is quoted"
    assert (tmp_path / found.artifacts[0].path).read_text() == report, "reports are not edited afterwards"


@pytest.mark.parametrize(
    ("content", "said", "expected"),
    [
        (None, {"status": "completed"}, ("failed", "FILE_NOT_FOUND")),
        ("", {"status": "completed"}, ("failed", "FILE_NOT_FOUND")),
        ("  \n", {"status": "completed"}, ("failed", "FILE_NOT_FOUND")),
        ("half a report", failure_fields("partial"), ("partial", "TOOL_UNAVAILABLE")),
        ("half a report", failure_fields("failed"), ("failed", "TOOL_UNAVAILABLE")),
    ],
    ids=["missing", "empty", "blank", "partial", "failed"],
)
async def test_status_does_not_advance_without_a_finished_report(
    tmp_path: Path, content: str | None, said: dict[str, Any], expected: tuple[str, str]
) -> None:
    @agent("researcher")
    async def unfinished(ctx: Context, write_to: str) -> dict[str, Any]:
        if content is not None:
            (ctx.root / write_to).write_text(content)
        return {"summary": "Half of it is done. The rest is not.", "artifacts": [], **said}

    board_with(tmp_path, task())
    outcome = await run_research(tmp_path, unfinished)
    assert (outcome.status, outcome.errors[0].code, outcome.task_status) == (*expected, "RESEARCHING")
    assert "remit research 12" in outcome.next_steps
    has_work = bool(content and content.strip())
    assert [dict(one.extra) for one in the_task(tmp_path).artifacts] == [{"partial": True}] * has_work, "it is kept and linked"
    again = await run_research(tmp_path, diligent)
    assert again.artifacts[0].path.endswith("research-002.md" if content is not None else "research-001.md"), (
        "a report is never overwritten"
    )


HOSTILE = "no\n- **Status**: [COMPLETED]\n---\n### 9. Evil\x1b[31m\u202e\x00 end"


@pytest.mark.parametrize(
    ("said", "kept"),
    [("the library is missing", "the library is missing"), (HOSTILE, "no - **Status**: [COMPLETED] --- ### 9. Evil [31m end")],
)
async def test_blocked_return_blocks_the_task_with_a_one_line_reason(tmp_path: Path, said: str, kept: str) -> None:
    board_with(tmp_path, task())
    blocked = failure_fields("blocked")
    blocked["errors"][0]["message"] = said
    outcome = await run_research(tmp_path, agent_returning("researcher", **blocked))
    found = the_task(tmp_path)
    assert (outcome.status, found.status, found.blocking_reason) == ("blocked", Status.BLOCKED, kept)
    assert outcome.next_steps == "Get it; then `remit research 12` again."
    assert len(Board(tmp_path).look().state.tasks) == 1


async def test_old_file_report_of_another_task_or_oversized_file_is_not_a_report(tmp_path: Path) -> None:
    board_with(tmp_path, task())
    (tmp_path / "specs/013_other/reports").mkdir(parents=True)
    (tmp_path / "specs/013_other/reports/research-001.md").write_text("theirs")
    (tmp_path / "README.md").write_text("old")
    os.utime(tmp_path / "README.md", (1, 1))
    for path in ("specs/013_other/reports/research-001.md", "README.md"):
        outcome = await run_research(
            tmp_path, agent_returning("researcher", status="completed", artifacts=[{"type": "report", "path": path}])
        )
        assert (outcome.status, outcome.task_status) == ("failed", "RESEARCHING")

    @agent("researcher")
    async def endless(ctx: Context, task: str, write_to: str, **_more: Any) -> dict[str, Any]:
        with (ctx.root / write_to).open("wb") as opened:
            opened.write(b"x")
            opened.truncate(20 << 20)
        return {"status": "completed", "summary": "Wrote. Much.", "artifacts": [{"type": "report", "path": write_to}]}

    assert "has more than 16 MiB" in (await run_research(tmp_path, endless)).summary


async def test_report_in_another_folder_or_in_the_return_is_copied(tmp_path: Path) -> None:
    @agent("researcher")
    async def elsewhere(ctx: Context) -> dict[str, Any]:
        (ctx.scratch / "notes.md").write_text("# Notes")
        path = str((ctx.scratch / "notes.md").relative_to(ctx.root))
        return {"status": "completed", "summary": "Looked. Wrote notes.", "artifacts": [{"type": "research", "path": path}]}

    board_with(tmp_path, task())
    outcome = await run_research(tmp_path, elsewhere)
    assert outcome.status == "completed"
    assert (tmp_path / "specs/012_fix_the_parser/reports/research-001.md").read_text() == "# Notes"
    assert any("was taken from" in words for words in outcome.warnings)
    outcome = await run_research(tmp_path, agent_returning("researcher", status="completed", data={"report": "# In words"}))
    assert (tmp_path / outcome.artifacts[0].path).read_text() == "# In words"


async def test_report_changed_by_a_later_run_is_restored(tmp_path: Path) -> None:
    board_with(tmp_path, task())
    first = await run_research(tmp_path, diligent)
    path = first.artifacts[0].path

    @agent("researcher")
    async def careless(ctx: Context) -> dict[str, Any]:
        (ctx.root / path).write_text("# Mine now")
        return {"status": "completed", "summary": "Wrote it. There.", "artifacts": [{"type": "report", "path": path}]}

    before = (tmp_path / path).read_text()
    outcome = await run_research(tmp_path, careless)
    assert (outcome.status, outcome.task_status) == ("failed", "RESEARCHING")
    assert f"{path} was changed by the run: it was restored." in outcome.warnings
    assert (tmp_path / path).read_text() == before


async def test_revision_adds_a_plan_version_and_keeps_the_old_plan(tmp_path: Path) -> None:
    board = board_with(tmp_path, task(status=Status.RESEARCHED))
    async with Remit.open(tmp_path, agents=[planning]) as remit:
        first = await plan(remit, board, 12)
        assert (first.task_status, first.data["plan_version"], first.data["phase_count"]) == ("PLANNED", 1, 2)
        before = (tmp_path / first.artifacts[0].path).read_text()
        second = await revise(remit, board, 12, reason="the parser needs tests")
    found = the_task(tmp_path)
    assert (second.task_status, found.plan_path) == ("REVISED", "specs/012_fix_the_parser/plans/implementation-002.md")
    assert [(one.version, one.path[-7:], one.reason) for one in found.plan_versions] == [
        (1, "-001.md", ""),
        (2, "-002.md", "the parser needs tests"),
    ]
    text = (tmp_path / found.plan_path).read_text()
    assert "the parser needs tests" in text
    assert "Add the grammar" in text
    assert (tmp_path / first.artifacts[0].path).read_text() == before


async def test_invalid_transition_is_refused_and_force_warns(tmp_path: Path) -> None:
    board_with(tmp_path, task(status=Status.COMPLETED))
    with pytest.raises(Refused) as refused:
        await run_research(tmp_path, diligent)
    assert refused.value.code == "INVALID_STATUS_TRANSITION"
    assert the_task(tmp_path).status is Status.COMPLETED
    outcome = await run_research(tmp_path, diligent, force=True)
    assert outcome.task_status == "RESEARCHED"
    assert any("--force" in words for words in outcome.warnings)


async def test_refused_plan_leaves_the_task_unchanged(tmp_path: Path) -> None:
    before = task(status=Status.BLOCKED, blocking_reason="waiting", started="2026-01-01T00:00:00Z")
    board = board_with(tmp_path, before)
    async with Remit.open(tmp_path, settings={"builtin_agents": ["worker"]}) as remit:
        outcome = await plan(remit, board, 12)
        with pytest.raises(Misused):
            await plan(remit, board, 12, timeout=10**6)
    found = the_task(tmp_path)
    assert (outcome.stop_reason, outcome.errors[0].code) == ("refused", "INVALID_TARGET")
    assert (found.status, found.blocking_reason, found.started) == (Status.BLOCKED, "waiting", "2026-01-01T00:00:00Z")


async def test_status_set_by_a_person_during_the_run_wins(tmp_path: Path) -> None:
    board = board_with(tmp_path, task(), task(13, "Paint it"))

    @agent("researcher")
    async def slow(ctx: Context, number: int, write_to: str) -> dict[str, Any]:
        (ctx.root / write_to).write_text("# Report")
        with board.change() as draft:
            if number == 12:
                draft.state = draft.state.with_task(draft.state.task(12).moved(Status.ABANDONED, at=draft.at, reason="no time"))
            else:
                draft.state = draft.state.without([number])
        return {"status": "completed", "summary": "Looked. Done."}

    outcome = await run_research(tmp_path, slow)
    found = the_task(tmp_path)
    assert (found.status, found.blocking_reason, len(found.artifacts)) == (Status.ABANDONED, "no time", 1)
    assert any("was set to [ABANDONED]" in words for words in outcome.warnings)
    removed = await run_research(tmp_path, slow, 13)
    assert any("removed from the board" in words for words in removed.warnings)
    assert (tmp_path / "specs/013_paint_it/reports/research-001.md").exists()


async def test_exactly_the_files_of_the_change_are_committed(tmp_path: Path) -> None:
    git = partial(git_in, tmp_path)
    begin(tmp_path)
    (tmp_path / "mine.txt").write_text("mine")
    git("add", "mine.txt")
    board = board_with(tmp_path, task())
    async with Remit.open(tmp_path, agents=[diligent, planning]) as remit:
        outcome = await research(remit, board, 12)
        await plan(remit, board, 12)
        await revise(remit, board, 12)
    assert git("log", "--format=%s").split("\n")[:3] == [
        "task 12: revise plan to version 2",
        "task 12: create implementation plan",
        "task 12: complete research",
    ]
    files = git("show", "--format=%B", "--name-only", outcome.commit).split("\n")
    assert f"Session: {outcome.session_id}" in files
    assert {"specs/012_fix_the_parser/reports/research-001.md", "specs/state.json", "specs/TODO.md"} < set(files)
    assert "mine.txt" not in files
    assert git("diff", "--cached", "--name-only").split() == ["mine.txt"]
    assert git("status", "--porcelain", "specs").strip() == ""


@pytest.mark.parametrize(("merge", "is_alone"), [(False, True), (True, True), ("queue", True), (True, False)])
async def test_report_written_in_a_worktree_is_filed_once_and_the_worktree_removed(tmp_path: Path, merge: Any, is_alone: bool) -> None:
    """Nothing is merged: the board commits the report. A worktree with other changes stays, and is named."""
    (tmp_path / ".gitignore").write_text(".remit/\n")
    all_committed(tmp_path)
    board_with(tmp_path, task())

    @agent("researcher", workspace="worktree", merge=merge)
    async def apart(ctx: Context, write_to: str) -> dict[str, Any]:
        report = ctx.workspace / write_to
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text("# Report")
        if not is_alone:
            (ctx.workspace / "more.py").write_text("x = 1\n")
        return {"status": "completed", "summary": "Looked. Done.", "artifacts": [{"type": "report", "path": write_to}]}

    outcome = await run_research(tmp_path, apart)
    assert (outcome.status, outcome.task_status) == ("completed", "RESEARCHED"), outcome
    assert (tmp_path / outcome.artifacts[0].path).read_text() == "# Report"
    assert git(tmp_path, "log", "--format=%s").split("\n")[:2] == ["task 12: complete research", "begin"]
    branches = git(tmp_path, "branch", "--format=%(refname:short)").split()
    if is_alone:
        assert (branches, outcome.next_steps, outcome.warnings) == (["main"], "`remit plan 12` plans it.", ())
    else:
        assert branches == ["main", f"remit/{outcome.session_id}"]
        assert f"remit workspaces {outcome.session_id} --merge" in outcome.next_steps


@pytest.mark.parametrize("place", ["file", "folder"])
async def test_link_created_by_the_agent_is_not_written_through(tmp_path: Path, place: str) -> None:
    root = tmp_path / "project"
    root.mkdir()
    target = tmp_path / "outside"
    target.mkdir()

    @agent("researcher")
    async def crafty(ctx: Context, write_to: str) -> dict[str, Any]:
        wanted = ctx.root / write_to
        if place == "file":
            wanted.symlink_to(target / "stolen.md")
        else:
            wanted.parent.rmdir()
            wanted.parent.symlink_to(target)
        return {"status": "completed", "summary": "Here it is. Enjoy.", "data": {"report": "mine"}}

    board_with(root, task())
    outcome = await run_research(root, crafty)
    assert (outcome.status, outcome.task_status) == ("failed", "RESEARCHING")
    assert list(target.iterdir()) == []


def a_task(number: int = 1, *, dependencies: tuple[int, ...] = (), complexity: str = "", parent: int | None = None) -> Task:
    return Task(number=number, title="Dig", slug="dig", dependencies=dependencies, complexity=complexity, parent=parent)


@pytest.mark.parametrize(
    ("task", "subtasks", "phases", "complexity", "reason"),
    [
        (a_task(), 0, 0, "simple", "one task, no dependencies, no plan of several phases"),
        (a_task(), 0, 1, "simple", "one task, no dependencies, no plan of several phases"),
        (a_task(), 0, 2, "moderate", "2 phases"),
        (a_task(dependencies=(7,)), 0, 0, "moderate", "1 dependencies"),
        (a_task(), 1, 0, "moderate", "1 subtasks"),
        (a_task(dependencies=(7, 8, 9, 10)), 0, 0, "complex", "4 dependencies"),
        (a_task(), 4, 0, "complex", "4 subtasks"),
        (a_task(), 0, 5, "complex", "5 phases"),
        (a_task(dependencies=(7, 8, 9, 10), complexity="simple"), 0, 9, "simple", "the task says so"),
        (a_task(complexity="hard"), 0, 2, "moderate", "2 phases"),
    ],
)
def test_complexity_follows_the_documented_rule(task: Task, subtasks: int, phases: int, complexity: str, reason: str) -> None:
    state = State(tasks=(task, *(a_task(20 + one, parent=task.number) for one in range(subtasks))))
    assert complexity_of(task, state, phases) == (complexity, reason)


def test_each_context_level_loads_more_and_names_omitted_files(tmp_path: Path) -> None:
    context = tmp_path / ".remit" / "context"
    for name in ("common/style.md", "python/typing.md", "history/old.md"):
        (context / name).parent.mkdir(parents=True)
        (context / name).write_text("Read me.")
    (context / "common" / "huge.md").write_text("x" * 300_000)
    loaded = {
        level: loaded_context(tmp_path, *complexity_of(a_task(complexity=level)), "python") for level in ("simple", "moderate", "complex")
    }
    assert loaded["simple"]["files"] == ["common/style.md"]
    assert loaded["moderate"]["files"] == ["common/style.md", "python/typing.md"]
    assert loaded["complex"]["files"] == ["common/style.md", "python/typing.md", "history/old.md"]
    assert loaded["simple"]["bytes"] == len("--- common/style.md\nRead me.\n")
    assert "huge.md was left out" in str(loaded["simple"]["left_out"])
