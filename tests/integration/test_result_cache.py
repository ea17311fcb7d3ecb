"""The result cache: command line, settings, policy, worktrees and killed processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from remit import Context, Remit, agent
from support.cli import run
from support.repository import begin, git

PROJECT = """
[agents.lister]
command = ["ls", "{folder}"]
answers = "value"
effects = ["read"]
reads = ["folder"]
cache = "1h"
"""


def test_cached_results_are_reused_listed_and_cleared(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text(PROJECT)
    (tmp_path / "folder").mkdir()
    first = run("delegate", "lister", "folder=folder", "--json", cwd=tmp_path).json()
    again = run("delegate", "lister", "folder=folder", "--json", cwd=tmp_path).json()
    assert first["status"] == again["status"] == "completed", first
    assert again["metadata"]["cached_from"] == first["metadata"]["session_id"]
    shown = run("show", "--json", cwd=tmp_path).json()["delegation"]
    assert (shown["session_id"], shown["cached_from"]) == (again["metadata"]["session_id"], first["metadata"]["session_id"])
    assert first["metadata"]["session_id"] in run("show", cwd=tmp_path).stdout
    off = run("delegate", "lister", "folder=folder", "--cache", "off", "--json", cwd=tmp_path).json()
    assert "cached_from" not in off["metadata"]
    listed = run("cache", "--json", cwd=tmp_path).json()["results"]
    assert [one["session_id"] for one in listed] == [first["metadata"]["session_id"]]
    assert "lister" in run("cache", "list", "lister", cwd=tmp_path).stdout
    assert "1 result forgotten" in run("cache", "clear", cwd=tmp_path).stdout
    assert "No result is cached" in run("cache", cwd=tmp_path).stdout
    (tmp_path / "folder" / "new").write_text("")
    assert "cached_from" not in run("delegate", "lister", "folder=folder", "--json", cwd=tmp_path).json()["metadata"]
    assert run("delegate", "lister", "folder=folder", "--cache", "often", cwd=tmp_path).code != 0


async def test_policy_applies_to_cached_results(tmp_path: Path) -> None:
    @agent("reader", cache="1h", effects=("read",), acts_on={"path": "path"})
    async def reader(path: str) -> str:
        return path

    async with Remit.open(tmp_path, agents=[reader]) as remit:
        assert (await remit.delegate("reader", path="a")).ok
        assert "cached_from" in (await remit.delegate("reader", path="a")).metadata.extra
    rules = 'permit (principal, action, resource); forbid (principal, action == Action::"reader", resource);'
    async with Remit.open(tmp_path, agents=[reader], policy=rules) as remit:
        refused = await remit.delegate("reader", path="a")
        assert refused.errors[0].code == "POLICY_DENIED"


async def test_changed_code_invalidates_the_cache(tmp_path: Path) -> None:
    texts = ["return 1", "return 2"]
    found = []
    for text in (*texts, texts[0]):
        (tmp_path / ".remit" / "agents").mkdir(parents=True, exist_ok=True)
        code = f"from remit import agent\n\n@agent('reader', cache='1h', effects=('read',))\nasync def reader():\n    {text}\n"
        (tmp_path / ".remit" / "agents" / "reader.py").write_text(code)
        async with Remit.open(tmp_path) as remit:
            found.append((await remit.delegate("reader")).data)
    assert found == [1, 2, 1]


async def test_worktree_does_not_use_cached_results_of_the_project(tmp_path: Path) -> None:
    begin(tmp_path)
    git(tmp_path, "commit", "-qm", "first", "--allow-empty")

    @agent("reader", cache="1h", effects=("read",))
    async def reader(ctx: Context) -> str:
        return str(ctx.workspace)

    @agent("lead", effects=("read",), workspace="worktree")
    async def lead(ctx: Context) -> list[bool]:
        found = [(await ctx.delegate("reader")).data for _ in range(2)]
        return [one == str(ctx.workspace) for one in found]

    async with Remit.open(tmp_path, agents=[reader, lead]) as remit:
        assert (await remit.delegate("reader")).data == str(tmp_path)
        assert (await remit.delegate("lead")).data == [True, True]


KILLED = """
import asyncio, sys
from remit import Remit, agent

@agent("reader", cache="1h", effects=("read",), timeout=60)
async def reader():
    if sys.argv[1] == "hang":
        print("runs", flush=True)
        await asyncio.sleep(50)
    return "fresh"

async def main():
    async with Remit.open(".", agents=[reader]) as remit:
        print((await remit.delegate("reader")).data)

asyncio.run(main())
"""


def test_killed_run_does_not_block_the_next(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(KILLED)
    hanging = subprocess.Popen([sys.executable, "script.py", "hang"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert hanging.stdout is not None
    assert hanging.stdout.readline() == "runs\n"
    os.kill(hanging.pid, signal.SIGKILL)
    hanging.wait()
    hanging.stdout.close()
    for _ in range(2):
        done = subprocess.run([sys.executable, "script.py", "go"], cwd=tmp_path, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
        assert done.stdout == "fresh\n"
