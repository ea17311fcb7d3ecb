"""Workspaces that nothing was done in go by themselves, when that is certain."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from workspace_project import branches, commit_all, git, new_repository, work_folders

from remit import Context, Remit, Return, agent
from remit.testing.engine_samples import until
from remit.upkeep import clean_up, clear_spare_rooms
from remit.workspaces.clearing import clear_unchanged
from remit.workspaces.room import CLEARING, books_of

both = pytest.mark.parametrize("kind", ["worktree", "copy"])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return new_repository(tmp_path / "project")


def hanging(kind: str, does: str = "nothing") -> Any:
    """Does it, then waits to be stopped."""

    @agent("hangs", workspace=kind, timeout=30)
    async def hangs(ctx: Context) -> str:
        await act(ctx, does)
        ctx.progress("there")
        await asyncio.sleep(60)
        return "never"

    return hangs


async def act(ctx: Context, does: str) -> None:
    here = ctx.workspace
    if does == "writes":
        (here / "half.txt").write_text("half\n")
    elif does == "deletes":
        (here / "src" / "a.py").unlink()
    elif does == "is ignored":
        (here / "report.log").write_text("of worth\n")
    elif does == "caches":
        (here / "node_modules").mkdir()
        (here / "node_modules" / "x.js").write_text("x")
    elif does == "commits and reverts":
        (here / "half.txt").write_text("half\n")
        commit_all(here, "mine")
        git(here, "revert", "--no-edit", "HEAD")
    elif does == "names a file":
        ctx.artifact("src/a.py", type="implementation")
    elif does == "saves":
        await ctx.checkpoint({"page": 1})


async def stopped(remit: Remit) -> Return:
    """Cancelled when it has done what it does."""
    handle = await remit.start("hangs")
    async for event in handle.stream():
        if event.kind == "progress":
            await handle.cancel("enough")
    return await handle.result()


def is_cleared(project: Path) -> bool:
    books = project / ".remit" / "work" / ".books"
    return not work_folders(project) and branches(project) == ["main"] and not any(books.iterdir())


# ---- what goes by itself


@both
async def test_a_stopped_one_that_changed_nothing_leaves_neither_folder_nor_branch(project: Path, kind: str) -> None:
    async with Remit.open(project, agents=[hanging(kind)]) as remit:
        result = await remit.delegate("hangs", timeout=1)
        assert (result.status, result.errors[0].code) == ("partial", "TIMEOUT")
        assert "workspace" not in result.extra
        assert not any("workspace" in warning for warning in result.warnings)
        await until(lambda: is_cleared(project), seconds=10)
        assert git(project, "worktree", "list").count("\n") == 1
        assert (await stopped(remit)).errors[0].code == "CANCELLED"
    await until(lambda: is_cleared(project), seconds=10)


async def test_what_tools_fill_again_keeps_no_workspace(project: Path) -> None:
    (project / ".gitignore").write_text("node_modules/\n.remit/\n")
    commit_all(project, "ignore")
    async with Remit.open(project, agents=[hanging("worktree", "caches")]) as remit:
        await stopped(remit)
        await until(lambda: is_cleared(project), seconds=10)


@both
@pytest.mark.parametrize("does", ["writes", "deletes", "is ignored", "names a file", "saves"])
async def test_one_with_anything_in_it_stays_and_is_named(project: Path, kind: str, does: str) -> None:
    async with Remit.open(project, agents=[hanging(kind, does)]) as remit:
        result = await stopped(remit)
        assert result.extra["workspace"]["folder"] == f".remit/work/{result.session_id}"
        assert any("Its workspace stays" in warning for warning in result.warnings)
        await clean_up(remit.engine, remit.settings)
    assert work_folders(project) == [result.session_id]


async def test_commits_of_its_own_keep_it_even_when_they_come_to_nothing(project: Path) -> None:
    async with Remit.open(project, agents=[hanging("worktree", "commits and reverts")]) as remit:
        result = await stopped(remit)
        await clean_up(remit.engine, remit.settings)
    assert work_folders(project) == [result.session_id]
    assert "mine" in git(project, "log", "--format=%s", f"remit/{result.session_id}")


async def test_one_that_saved_where_it_was_goes_only_when_it_has_left_the_registry(project: Path) -> None:
    """An agent's own session may be tied to the folder it began in: `resume` needs it."""
    async with Remit.open(project, agents=[hanging("worktree", "saves")], settings={"retention_seconds": 0}) as remit:
        result = await stopped(remit)
        assert work_folders(project) == [result.session_id]
        await clear_spare_rooms(remit.engine, remit.settings)
    assert is_cleared(project)


DIES = """
import asyncio, os, signal, sys
from remit import Context, Remit, agent

@agent("dies", workspace=sys.argv[2], timeout=30)
async def dies(ctx: Context) -> str:
    if sys.argv[3] == "writes":
        (ctx.workspace / "half.txt").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)

async def main() -> None:
    async with Remit.open(sys.argv[1], agents=[dies]) as remit:
        await remit.delegate("dies")

asyncio.run(main())
"""


def die(project: Path, kind: str, does: str) -> None:
    ran = subprocess.run([sys.executable, "-c", DIES, str(project), kind, does], capture_output=True, timeout=60, check=False)
    assert ran.returncode == -9, ran.stderr
    assert len(work_folders(project)) == 1


@both
async def test_what_a_crash_left_goes_at_the_next_opening_if_nothing_is_in_it(project: Path, kind: str) -> None:
    die(project, kind, "nothing")
    async with Remit.open(project) as remit:
        record = (await remit.history())[0]
        assert record.result is not None
        assert "workspace" not in record.result.extra
        await until(lambda: is_cleared(project), seconds=10)


async def test_what_a_crash_left_stays_if_something_is_in_it(project: Path) -> None:
    die(project, "worktree", "writes")
    async with Remit.open(project) as remit:
        record = (await remit.history())[0]
        await clean_up(remit.engine, remit.settings)
    assert work_folders(project) == [record.session_id]


async def test_a_clearing_that_was_cut_off_is_finished_at_the_next_opening(project: Path) -> None:
    async with Remit.open(project, agents=[hanging("worktree", "saves")]) as remit:
        result = await stopped(remit)
    (books_of(project, result.session_id) / CLEARING).touch()
    git(project, "worktree", "remove", "--force", f".remit/work/{result.session_id}")
    async with Remit.open(project, settings={"retention_seconds": 0}):
        await until(lambda: is_cleared(project), seconds=10)


async def test_a_room_that_somebody_goes_on_in_is_not_cleared_under_them(project: Path) -> None:
    seen: list[bool] = []

    @agent("hangs", workspace="worktree", timeout=30)
    async def goes_on(ctx: Context) -> str:
        if ctx.saved is None:
            await ctx.checkpoint(1)
            ctx.progress("there")
            await asyncio.sleep(60)
        seen.append(await asyncio.to_thread(clear_unchanged, project, first.session_id))
        (ctx.workspace / "done.txt").write_text("done\n")
        return "done"

    async with Remit.open(project, agents=[goes_on]) as remit:
        first = await stopped(remit)
        again = await remit.delegate("hangs", resume=first.session_id)
    assert again.ok, again
    assert seen == [False]
    assert work_folders(project) == [first.session_id], "its folder, under its first name"
