"""Unchanged workspaces are removed automatically; `remit workspaces` lists, merges and removes the others."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from cli_project import remit as run_remit
from cli_project import remit_json, started, wait_for_line
from workspace_project import branches, commit_all, crash, git, new_repository, status, work_folders

from remit import Context, Remit, Return, agent
from support.engine_samples import until


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return new_repository(tmp_path / "project")


def hanging(does: str = "nothing") -> Any:
    """An agent that acts once, then waits."""

    @agent("hangs", workspace="worktree", timeout=30)
    async def hangs(ctx: Context) -> str:
        await perform(ctx, does)
        ctx.progress("there")
        await asyncio.sleep(60)
        return "never"

    return hangs


async def perform(ctx: Context, does: str) -> None:
    here = ctx.workspace
    if does == "writes":
        (here / "half.txt").write_text("half\n")
    elif does == "deletes":
        (here / "src" / "a.py").unlink()
    elif does == "ignored":
        (here / "report.log").write_text("valuable\n")
    elif does == "caches":
        (here / "node_modules").mkdir()
        (here / "node_modules" / "x.js").write_text("x")
    elif does == "commits and reverts":
        (here / "half.txt").write_text("half\n")
        commit_all(here, "mine")
        git(here, "revert", "--no-edit", "HEAD")
    elif does == "artifact":
        ctx.artifact("src/a.py", type="implementation")
    elif does == "saves":
        await ctx.checkpoint({"page": 1})


async def stopped(remit: Remit) -> Return:
    """The result of `hangs`, cancelled after it has acted."""
    handle = await remit.start("hangs")
    async for event in handle.stream():
        if event.kind == "progress":
            await handle.cancel("enough")
    return await handle.result()


def is_removed(project: Path) -> bool:
    books = project / ".remit" / "work" / ".books"
    return not work_folders(project) and branches(project) == ["main"] and not any(books.iterdir())


# ---- automatic removal


@pytest.mark.parametrize("does", ["nothing", "caches"])
async def test_unchanged_workspace_of_a_stopped_delegation_is_removed(project: Path, does: str) -> None:
    (project / ".gitignore").write_text("node_modules/\n.remit/\n")
    commit_all(project, "ignore")
    async with Remit.open(project, agents=[hanging(does)]) as remit:
        result = await remit.delegate("hangs", timeout=1)
        assert (result.status, result.errors[0].code) == ("partial", "TIMEOUT")
        assert result.extra["workspace"]["folder"] == f".remit/work/{result.session_id}"
        await remit.engine.clean_up()
        assert is_removed(project)
        assert git(project, "worktree", "list").count("\n") == 1
        assert (await stopped(remit)).errors[0].code == "CANCELLED"
    async with Remit.open(project):
        await until(lambda: is_removed(project), seconds=10)


@pytest.mark.parametrize("does", ["writes", "deletes", "ignored", "artifact", "saves", "commits and reverts"])
async def test_changed_workspace_of_a_stopped_delegation_is_kept_and_named(project: Path, does: str) -> None:
    async with Remit.open(project, agents=[hanging(does)]) as remit:
        result = await stopped(remit)
        assert result.extra["workspace"]["folder"] == f".remit/work/{result.session_id}"
        assert any("Its workspace stays" in warning for warning in result.warnings)
        await remit.engine.clean_up()
    assert work_folders(project) == [result.session_id]


async def test_unchanged_workspace_of_a_crash_is_removed_at_the_next_open(project: Path) -> None:
    await asyncio.to_thread(crash, project, "unchanged")
    assert len(work_folders(project)) == 1
    async with Remit.open(project) as remit:
        record = (await remit.history())[0]
        assert record.result is not None
        assert "workspace" in record.result.extra
        await until(lambda: is_removed(project), seconds=10)


# ---- remit workspaces


AGENTS = """
import asyncio
import contextlib
from remit import Context, agent

@agent("writes", workspace="worktree", timeout=30)
async def writes(ctx: Context, path: str = "new.txt", text: str = "new\\n") -> str:
    (ctx.workspace / path).write_text(text)
    return "written"

@agent("saves", workspace="worktree", timeout=2)
async def saves(ctx: Context) -> str:
    await ctx.checkpoint(1)
    await asyncio.sleep(60)
    return "never"

@agent("waits", workspace="worktree", timeout=60)
async def waits(ctx: Context) -> str:
    ctx.progress("there")
    await asyncio.sleep(60)
    return "never"

@agent("logs", workspace="worktree", timeout=30)
async def logs(ctx: Context) -> str:
    (ctx.workspace / "logged.txt").write_text("new\\n")
    (ctx.workspace / "run.log").write_text("valuable\\n")
    return "written"
"""


@pytest.fixture
def shop(project: Path) -> Path:
    folder = project / ".remit" / "agents"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text(AGENTS)
    return project


def ask(shop: Path, *asked: str, code: int = 0) -> str:
    return str(remit_json(shop, "delegate", *asked, code=code)["metadata"]["session_id"])


def test_list_has_owner_changes_and_merge_state(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # wide enough for all cells
    written, saved = ask(shop, "writes"), ask(shop, "saves", code=3)
    first, second = remit_json(shop, "workspaces")["workspaces"]
    assert (first["session_id"], first["agent"], first["state"]) == (written, "writes", "completed")
    assert (first["branch"], first["folder"]) == (f"remit/{written}", f".remit/work/{written}")
    assert (first["changed_files"], first["is_merged"], first["is_unchanged"]) == (1, False, False)
    assert 0 <= first["age_seconds"] < 600
    assert (second["session_id"], second["state"], second["is_unchanged"]) == (saved, "timeout", True)
    git(shop, "merge", "-q", f"remit/{written}")
    assert remit_json(shop, "workspaces", written)["workspaces"][0]["is_merged"] is True
    table = run_remit(shop, "workspaces").stdout
    assert "1 file changed, merged" in table
    assert "unchanged" in table


def test_remove_asks_only_for_unmerged_changes(shop: Path) -> None:
    written, saved = ask(shop, "writes"), ask(shop, "saves", code=3)
    done = run_remit(shop, "workspaces", saved, "--remove")
    assert (done.returncode, done.stdout) == (0, f"removed  {saved}  saves\n")
    assert branches(shop) == ["main", f"remit/{written}"]
    done = run_remit(shop, "workspaces", written, "--remove")
    assert done.returncode == 4
    assert "1 file changed, not merged" in done.stderr
    assert "--yes" in done.stderr
    git(shop, "merge", "-q", f"remit/{written}")
    more = shop / ".remit" / "work" / written / "more.txt"
    more.write_text("added by hand after the merge\n")
    assert remit_json(shop, "workspaces")["workspaces"][0]["is_merged"] is False
    assert run_remit(shop, "workspaces", written, "--remove").returncode == 4
    more.unlink()
    assert run_remit(shop, "workspaces", written, "--remove").returncode == 0, "already merged"
    other = ask(shop, "writes", "path=other.txt")
    assert remit_json(shop, "workspaces", other[-6:], "--remove", "--yes")["workspaces"][0]["did"] == "removed"
    assert is_removed(shop)
    assert status(shop) == ""
    assert "has no workspace" in run_remit(shop, "workspaces", other).stderr
    assert "There is no delegation" in run_remit(shop, "workspaces", "sess_unknown").stderr


def test_workspace_of_a_running_delegation_is_not_removed(shop: Path) -> None:
    process = started(shop, "delegate", "waits")
    try:
        wait_for_line(process, "there")
        listed = remit_json(shop, "workspaces")["workspaces"][0]
        assert (listed["state"], listed["is_in_use"]) == ("running", True)
        session = listed["session_id"]
        assert run_remit(shop, "workspaces", session, "--remove", "--yes").returncode == 5
        assert run_remit(shop, "workspaces", session, "--merge").returncode == 1
        assert work_folders(shop) == [session]
    finally:
        process.kill()
        process.communicate()
    done = run_remit(shop, "workspaces", session, "--remove", "--yes")
    assert done.returncode == 5
    assert "remit recover" in done.stdout


def test_merge_command_merges_and_keeps_ignored_files(shop: Path) -> None:
    written = ask(shop, "writes")
    done = run_remit(shop, "workspaces", written, "--merge")
    assert (done.returncode, done.stdout) == (0, f"merged  {written}  writes: into main\n"), done.stderr
    assert (shop / "new.txt").read_text() == "new\n"
    assert status(shop) == ""
    assert is_removed(shop)
    logged = ask(shop, "logs")
    done = run_remit(shop, "workspaces", logged, "--merge")
    assert (done.returncode, "run.log" in done.stdout) == (0, True)
    assert (shop / ".remit" / "work" / logged / "run.log").exists()
    assert run_remit(shop, "workspaces", logged, "--remove").returncode == 4, "it has an ignored file that is not merged"
