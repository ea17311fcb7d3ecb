"""Workspaces in a tree: a child shares the workspace of its caller or starts from it, and merges into it."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client
from workspace_project import branches, commit_all, diff_of, git, new_repository, run, status, work_folders

from remit import Context, Remit, Return, agent, call

both = pytest.mark.parametrize("kind", ["worktree", "copy"])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return new_repository(tmp_path / "project")


@agent("write", timeout=30)
async def write(ctx: Context, path: str = "child.txt", text: str = "child\n") -> str:
    """Shares the workspace of its caller (the default)."""
    (ctx.workspace / path).write_text(text)
    ctx.artifact(path, type="implementation")
    return str(ctx.workspace)


@agent("look", workspace="none", timeout=30)
async def look(ctx: Context, path: str) -> str:
    return (ctx.workspace / path).read_text()


@agent("between", workspace="scratch", timeout=30)
async def between(ctx: Context) -> str:
    return (await ctx.delegate("write")).data


@agent("merges", workspace="worktree", merge=True, timeout=30)
async def merges(ctx: Context, path: str = "child.txt", text: str = "child\n", sees: str = "") -> str:
    if sees:
        assert (ctx.workspace / sees).read_text() == "caller, not committed\n"
        assert not (ctx.workspace / "mine.log").exists()
    (ctx.workspace / path).write_text(text)
    ctx.artifact(path, type="implementation")
    return str(ctx.workspace)


@agent("branches", workspace="worktree", timeout=30)
async def branches_off(ctx: Context, path: str = "child.txt", text: str = "child\n") -> str:
    (ctx.workspace / path).write_text(text)
    return "done"


@agent("copies", workspace="copy", timeout=30)
async def copies(ctx: Context, sees: str = "") -> str:
    if sees:
        assert (ctx.workspace / sees).read_text() == "caller, not committed\n"
    (ctx.workspace / "child.txt").write_text("child\n")
    return "done"


CHILDREN = [write, look, between, merges, branches_off, copies]


async def run_under(project: Path, kind: str, body, *others, **declared: object) -> Return:  # type: ignore[no-untyped-def]
    """Run `body` as an agent with its own workspace."""

    @agent("caller", workspace=kind, timeout=60, **declared)
    async def caller(ctx: Context) -> object:
        return await body(ctx)

    return await run(project, caller, *CHILDREN, *others)


def paths(result: Return) -> list[str]:
    return [artifact.path for artifact in result.artifacts]


def run_shell(command: str, folder: Path) -> None:
    subprocess.run(command, shell=True, cwd=folder, check=True, capture_output=True)


# ---- shared workspace


@both
async def test_shared_child_works_in_the_workspace_of_its_caller(project: Path, kind: str) -> None:
    """Folder, artifacts and acceptance are those of the caller; its changes are in the diff of the caller."""
    children: list[Return] = []

    async def body(ctx: Context) -> None:
        children.append(await ctx.delegate("write", accept=["test -f child.txt", "test $(pwd) = " + str(ctx.workspace)]))

    result = await run_under(project, kind, body)
    (child,) = children
    folder = f".remit/work/{result.session_id}"
    assert (child.status, child.evidence) == ("completed", "verified"), child
    assert child.data == str(project / folder)
    assert paths(child) == [f"{folder}/child.txt"]
    assert "workspace" not in child.extra, "the child commits, merges and removes nothing"
    assert "+child" in diff_of(project, result)
    assert not (project / "child.txt").exists()
    assert work_folders(project) == [result.session_id]
    assert status(project) == ""


async def test_command_agent_runs_in_the_workspace_of_its_caller(project: Path) -> None:
    (project / ".remit").mkdir()
    (project / "remit.toml").write_text('[agents.shell]\ncommand = ["sh", "-c", "pwd; echo made > made.txt"]\nanswers = "value"\n')
    commit_all(project, "an agent that is a command")

    async def body(ctx: Context) -> str:
        return (await ctx.delegate("shell", task="go")).data

    result = await run_under(project, "worktree", body)
    assert str(result.data).strip() == str(project / ".remit" / "work" / result.session_id), result
    assert "+made" in diff_of(project, result)


async def test_changes_of_shared_children_are_merged_with_their_caller(project: Path) -> None:
    async def body(ctx: Context) -> None:
        done = await ctx.gather(call("write", path="one.txt"), call("write", path="two.txt"))
        assert all(child.ok for child in done)
        assert not (project / "one.txt").exists(), "the child does not merge"

    result = await run_under(project, "worktree", body, merge=True)
    assert result.ok, result
    assert (project / "one.txt").read_text() == (project / "two.txt").read_text() == "child\n"
    assert git(project, "log", "-1", "--format=%B").strip() == f"caller\n\nSession: {result.session_id}"


def remit_command(folder: Path, environment: dict[str, str], *words: str) -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, "-m", "remit", *words, "--json"], cwd=folder, env={**os.environ, **environment},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return json.loads(ran.stdout)


async def test_delegations_of_another_process_share_the_workspace(project: Path) -> None:
    """`remit delegate` and `remit mcp`, started in the worktree by an agent."""
    results: dict[str, dict[str, Any]] = {}

    async def body(ctx: Context) -> None:
        environment = ctx.environment()
        for words in (("delegate", "write"), ("delegate", "merges", "path=merged.txt")):
            results[words[1]] = await asyncio.to_thread(remit_command, ctx.workspace, environment, *words)
        assert (ctx.workspace / "merged.txt").exists()
        words = ["-m", "remit", "mcp"]
        server = StdioServerParameters(command=sys.executable, args=words, cwd=ctx.workspace, env={**os.environ, **environment})
        async with Client(stdio_client(server)) as client:
            answer = await client.call_tool("delegate", {"target": "write", "parameters": {"path": "by-mcp.txt"}})
        results["mcp"] = answer.structured_content or {}

    result = await run_under(project, "worktree", body)
    assert result.ok, result
    folder = f".remit/work/{result.session_id}"
    assert results["write"]["data"] == results["mcp"]["data"] == str(project / folder), results
    assert results["merges"]["workspace"]["merged_into"] == folder, results
    for name in ("child.txt", "merged.txt", "by-mcp.txt"):
        assert f"+++ b/{name}" in diff_of(project, result)
        assert not (project / name).exists()


# ---- own workspace below a caller with a workspace


async def test_child_worktree_starts_from_its_caller_and_merges_into_it(project: Path) -> None:
    children: list[Return] = []
    before: list[str] = []

    async def body(ctx: Context) -> None:
        (ctx.workspace / "seen.txt").write_text("caller, not committed\n")
        (ctx.workspace / "src" / "old.py").unlink()
        (ctx.workspace / "mine.log").write_text("ignored")
        before.extend((git(ctx.workspace, "rev-parse", "HEAD"), git(ctx.workspace, "ls-files", "-s")))
        children.append(await ctx.delegate("merges", sees="seen.txt"))
        assert (ctx.workspace / "child.txt").read_text() == "child\n"
        assert not (ctx.workspace / "src" / "old.py").exists()
        assert [git(ctx.workspace, "rev-parse", "HEAD"), git(ctx.workspace, "ls-files", "-s")] == before, "branch and index are unchanged"

    result = await run_under(project, "worktree", body)
    (child,) = children
    folder = f".remit/work/{result.session_id}"
    assert child.ok, child
    assert child.warnings == ()
    assert child.data != str(project / folder)
    assert paths(child) == [f"{folder}/child.txt", f".remit/scratch/{child.session_id}/changes.diff"]
    assert child.extra["workspace"] == {"kind": "worktree", "merged_into": folder}
    assert diff_of(project, child).count("+++ b/") == 1, "the diff is against its starting point"
    assert diff_of(project, result).count("+++ b/") == 2
    assert branches(project) == ["main", f"remit/{result.session_id}"]
    assert work_folders(project) == [result.session_id]
    assert not (project / "child.txt").exists()


async def test_concurrent_merges_into_a_working_caller_lose_nothing(project: Path) -> None:
    async def body(ctx: Context) -> None:
        (ctx.workspace / "list.txt").write_text("".join(f"{n}\n" for n in range(40)))
        started = [await ctx.start("merges", path=f"file{n}.txt") for n in range(4)]
        lines = "".join(f"{n}\n" for n in range(39)) + "last\n"
        started.append(await ctx.start("merges", path="list.txt", text="first\n" + lines.removeprefix("0\n")))
        (ctx.workspace / "more.txt").write_text("meanwhile\n")
        done = [await handle.result() for handle in started]
        assert [child.status for child in done] == ["completed"] * 5, done
        assert (ctx.workspace / "list.txt").read_text().startswith("first\n1\n")

    result = await run_under(project, "worktree", body, merge=True)
    assert result.ok, result
    assert sorted(name for name in os.listdir(project) if name.endswith(".txt")) == [
        *(f"file{n}.txt" for n in range(4)),
        "list.txt",
        "more.txt",
    ]
    assert branches(project) == ["main"]


async def test_conflict_with_the_caller_names_a_command_that_applies_it(project: Path) -> None:
    children: list[Return] = []
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    async def body(ctx: Context) -> None:
        (ctx.workspace / "both.txt").write_text("one\n")
        handle = await ctx.start("slow", path="both.txt", text="child's\n")
        await has_begun.wait()
        (ctx.workspace / "both.txt").write_text("caller's\n")
        may_end.set()
        child = await handle.result()
        children.append(child)
        assert (ctx.workspace / "both.txt").read_text() == "caller's\n"
        (ctx.workspace / "both.txt").write_text("one\n")
        command = child.errors[0].recommendation.partition(f".remit/work/{ctx.session_id}: ")[2]
        await asyncio.to_thread(run_shell, command, ctx.workspace)
        assert (ctx.workspace / "both.txt").read_text() == "child's\n"

    @agent("slow", workspace="worktree", merge=True, timeout=30)
    async def slow(ctx: Context, path: str, text: str) -> str:
        has_begun.set()
        await may_end.wait()
        (ctx.workspace / path).write_text(text)
        return "done"

    result = await run_under(project, "worktree", body, slow)
    assert result.status == "completed", result
    (child,) = children
    assert (child.status, child.errors[0].code) == ("partial", "MERGE_CONFLICT")
    assert "both.txt" in child.errors[0].message
    assert f"Nothing was changed in .remit/work/{result.session_id}" in child.errors[0].recommendation
    assert git(project, "show", f"remit/{child.session_id}:both.txt") == "child's\n"


async def test_resumed_child_of_a_workspace_is_not_merged_into_the_project(project: Path) -> None:
    """Its branch contains changes of its caller too, which must not be merged with it."""
    stopped: list[str] = []

    @agent("long", workspace="worktree", merge=True, timeout=30)
    async def long(ctx: Context) -> str:
        if (ctx.workspace / "first.txt").exists():
            return "both"
        (ctx.workspace / "first.txt").write_text("1")
        await asyncio.sleep(20)
        return "never"

    @agent("caller", workspace="worktree", timeout=30)
    async def caller(ctx: Context) -> None:
        (ctx.workspace / "mine.txt").write_text("not asked to be merged")
        stopped.append((await ctx.delegate("long", timeout=1)).session_id)

    async with Remit.open(project, agents=[caller, long]) as remit:
        await remit.delegate("caller")
        resumed = await remit.delegate("long", resume=stopped[0])
    assert (resumed.status, resumed.errors[0].code) == ("partial", "MERGE_CONFLICT")
    assert "began from the workspace of" in resumed.errors[0].message
    assert not (project / "first.txt").exists()
    assert not (project / "mine.txt").exists()


@pytest.mark.parametrize("where", ["before", "after"])
async def test_kill_9_during_a_merge_into_the_caller_loses_nothing(project: Path, where: str) -> None:
    script = Path(__file__).with_name("workspace_crash.py")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    words = [sys.executable, str(script), str(project), f"read-tree {where}"]
    ran = await asyncio.to_thread(subprocess.run, words, timeout=60, check=False, env=environment)
    assert ran.returncode == -9
    async with Remit.open(project) as remit:
        child, caller = sorted(await remit.history(), key=lambda record: -record.depth)
    assert git(project, "show", f"remit/{child.session_id}:half.txt") == "half\n"
    assert caller.result is not None
    assert "+caller's" in diff_of(project, caller.result)
    assert ("+half" in diff_of(project, caller.result)) == (where == "after")
    assert status(project) == ""
