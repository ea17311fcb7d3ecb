"""Workspaces in a tree: children work in the workspace of their caller."""

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
from workspace_project import branches, diff_of, git, new_repository, run, status, work_folders

from remit import Context, Return, agent, best, call


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return new_repository(tmp_path / "project")


@agent("write", timeout=30)
async def write(ctx: Context, path: str = "child.txt", text: str = "child\n") -> str:
    """Shares the workspace of its caller (the default)."""
    (ctx.workspace / path).write_text(text)
    ctx.artifact(path, type="implementation")
    return str(ctx.workspace)


@agent("merges", workspace="worktree", merge=True, timeout=30)
async def merges(ctx: Context, path: str = "child.txt") -> str:
    (ctx.workspace / path).write_text("child\n")
    return str(ctx.workspace)


@agent("keeps", workspace="worktree", timeout=30)
async def keeps(ctx: Context) -> None: ...


CHILDREN = [write, merges, keeps]


async def run_under(project: Path, body, *others, **declared: object) -> Return:  # type: ignore[no-untyped-def]
    """Run `body` as an agent with its own workspace."""

    @agent("caller", workspace="worktree", timeout=60, **declared)
    async def caller(ctx: Context) -> object:
        return await body(ctx)

    return await run(project, caller, *CHILDREN, *others)


def paths(result: Return) -> list[str]:
    return [artifact.path for artifact in result.artifacts]


# ---- shared workspace


async def test_shared_child_works_in_the_workspace_of_its_caller(project: Path) -> None:
    """Folder, artifacts and acceptance are those of the caller; its changes are in the diff of the caller."""
    children: list[Return] = []

    async def body(ctx: Context) -> None:
        children.append(await ctx.delegate("write", accept=["test -f child.txt", "test $(pwd) = " + str(ctx.workspace)]))

    result = await run_under(project, body)
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


async def test_changes_of_shared_children_are_merged_with_their_caller(project: Path) -> None:
    async def body(ctx: Context) -> None:
        done = await ctx.gather(call("write", path="one.txt"), call("write", path="two.txt"))
        assert all(child.ok for child in done)
        assert not (project / "one.txt").exists(), "the child does not merge"

    result = await run_under(project, body, merge=True)
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

    result = await run_under(project, body)
    assert result.ok, result
    folder = f".remit/work/{result.session_id}"
    assert results["write"]["data"] == results["mcp"]["data"] == str(project / folder), results
    assert results["merges"]["data"] == str(project / folder), results
    for name in ("child.txt", "merged.txt", "by-mcp.txt"):
        assert f"+++ b/{name}" in diff_of(project, result)
        assert not (project / name).exists()


# ---- agents that declare a workspace of their own


async def test_child_that_declares_a_workspace_works_in_the_one_of_its_caller(project: Path) -> None:
    children: list[Return] = []

    async def body(ctx: Context) -> None:
        children.extend(await ctx.gather(call("merges", path="one.txt"), call("merges", path="two.txt")))
        assert {(ctx.workspace / name).read_text() for name in ("one.txt", "two.txt")} == {"child\n"}
        assert branches(project) == ["main", f"remit/{ctx.session_id}"]

    result = await run_under(project, body)
    assert all(child.ok and child.data == str(project / f".remit/work/{result.session_id}") for child in children), children
    assert diff_of(project, result).count("+++ b/") == 2
    assert work_folders(project) == [result.session_id]
    assert status(project) == ""


async def test_stopped_child_leaves_its_files_in_the_workspace_of_its_caller(project: Path) -> None:
    children: list[Return] = []

    @agent("slow", workspace="worktree", timeout=1)
    async def slow(ctx: Context) -> None:
        (ctx.workspace / "half.md").write_text("half")
        await asyncio.sleep(30)

    async def body(ctx: Context) -> None:
        children.append(await ctx.delegate("slow"))

    result = await run_under(project, body, slow)
    assert [one.path for one in children[0].artifacts] == [f".remit/work/{result.session_id}/half.md"]


async def test_best_is_refused_where_its_candidates_would_share_a_folder(project: Path) -> None:
    children: list[Return] = []

    async def body(ctx: Context) -> None:
        children.append(await ctx.delegate(best(2, call("keeps"), by="vote")))

    await run_under(project, body)
    assert "would share the workspace" in children[0].errors[0].message
