"""The board owns plans, state and TODO.md: an agent writes only the plan that a command requested."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remit import Board, Context, Remit, TaskArtifact, agent
from remit import plan_task as plan
from remit import research_task as research
from support import cli
from support.repository import begin, git

PLAN = "# Plan\n\n## Phases\n\n### Phase 1: Do it [NOT STARTED]\n\n- **Goal**: done\n- **Accept**: `true`\n"
OTHER = "specs/002_other/plans/implementation-001.md"


def planned(write_to: str) -> dict[str, Any]:
    return {
        "status": "completed",
        "summary": "The plan has one phase. It is written.",
        "artifacts": [{"type": "plan", "path": write_to}],
        "errors": [],
        "metadata": {"phase_count": 1},
    }


@agent("planner", requires_artifacts=True)
async def through_the_worker(ctx: Context, task: str, write_to: str, **more: Any) -> dict[str, Any]:
    """Write the way a model does that has no other tool."""
    paths = (write_to, OTHER, "specs/state.json", "specs/TODO.md")
    tried = [await ctx.delegate("worker.write_file", path=path, content=PLAN, create_parents=True) for path in (*paths, f"./{OTHER}")]
    assert [one.ok for one in tried] == [True, False, False, False, False]
    return planned(write_to)


@agent("planner", workspace="worktree", merge=True, requires_artifacts=True)
async def in_a_worktree(ctx: Context, task: str, write_to: str, **more: Any) -> dict[str, Any]:
    for path in (write_to, OTHER):
        (ctx.workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (ctx.workspace / path).write_text(PLAN)
    return planned(write_to)


@pytest.mark.parametrize("planner", [through_the_worker, in_a_worktree], ids=["worker", "worktree"])
async def test_planner_writes_only_the_requested_plan(tmp_path: Path, planner: Any) -> None:
    begin(tmp_path)
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "begun")
    assert cli.run("task", "Write the manual", cwd=tmp_path).code == 0
    async with Remit.open(tmp_path, agents=[planner]) as remit:
        done = await plan(remit, Board(tmp_path), 1)
    assert done.status == "completed", done
    task = Board(tmp_path).look().state.task(1)
    assert (tmp_path / task.plan_path).read_text() == PLAN
    assert not (tmp_path / OTHER).exists()


async def test_write_to_parameter_alone_does_not_permit_writing_a_plan(tmp_path: Path) -> None:
    @agent("writer")
    async def writer(ctx: Context, write_to: str) -> bool:
        return (await ctx.delegate("worker.write_file", path=write_to, content=PLAN, create_parents=True)).ok

    @agent("caller")
    async def caller(ctx: Context) -> list[bool]:
        roles = [await ctx.delegate(role, parameters={"task": "x", "write_to": OTHER}) for role in ("planner", "reviewer")]
        return [(await ctx.delegate("writer", write_to=OTHER)).data, *(one.ok for one in roles)]

    async with Remit.open(tmp_path, agents=[writer, caller]) as remit:
        assert (await remit.delegate("writer", write_to=OTHER)).data is False
        assert (await remit.delegate("caller")).data == [False, False, False]
        report = await remit.delegate("writer", write_to="specs/002_other/reports/research-001.md")
    assert report.data is True
    assert not (tmp_path / OTHER).exists()


@pytest.mark.parametrize("name", [".env", "linked.md", ".remit/audit.jsonl"])
async def test_secret_file_is_not_filed_as_a_report(tmp_path: Path, name: str) -> None:
    """An agent names a file that it may not read as its report; the board must not commit it."""
    begin(tmp_path)
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "begun")
    assert cli.run("task", "Find the key", cwd=tmp_path).code == 0
    (tmp_path / "linked.md").symlink_to(".env")

    @agent("researcher", requires_artifacts=True)
    async def researcher(ctx: Context, task: str, write_to: str, **more: Any) -> dict[str, Any]:
        (tmp_path / ".env").write_text("KEY=hunter2\n")  # the user may save it in the meantime
        return {**planned(name), "artifacts": [{"type": "report", "path": name}]}

    async with Remit.open(tmp_path, agents=[researcher]) as remit:
        done = await research(remit, Board(tmp_path), 1)
    assert done.status == "failed", done
    assert not list((tmp_path / "specs").rglob("*.md"))[1:], "only TODO.md is committed"


async def test_board_of_a_clone_does_not_send_secret_files_to_a_model(tmp_path: Path) -> None:
    begin(tmp_path)
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "begun")
    assert cli.run("task", "Write the manual", cwd=tmp_path).code == 0
    (tmp_path / ".env").write_text("KEY=hunter2\n")
    (tmp_path / "linked.md").symlink_to(".env")
    with Board(tmp_path).change() as draft:
        links = tuple(TaskArtifact(type="research", path=path) for path in (".env", "linked.md", "../outside.md"))
        draft.state = draft.state.with_task(replace(draft.state.task(1), artifacts=links))
    prompts = []

    @agent("planner", requires_artifacts=True)
    async def planner(ctx: Context, task: str, write_to: str, **more: Any) -> dict[str, Any]:
        prompts.append(task)
        return {**planned(write_to), "artifacts": [], "data": {"plan": PLAN}}

    async with Remit.open(tmp_path, agents=[planner]) as remit:
        await plan(remit, Board(tmp_path), 1)
    assert "`.env` (cannot be read)" in prompts[0]
    assert "hunter2" not in prompts[0]
