"""Kill the owner of a tree that spans processes: no process is left, and the next process settles the started work."""

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from remit import Remit, State
from remit.stores.sqlite import open_read_only
from support.pace import until
from support.processes import all_pids, mark_of

AGENTS = '''
import os, subprocess, sys, time
from remit import Context, Remit, agent, run

@agent("shell", isolation="process", timeout=60)
def shell() -> str:
    """Delegates by the command line, and leaves a daemon of its own."""
    subprocess.Popen(["sh", "-c", "setsid sleep 300 & setsid sleep 300"])
    return subprocess.run([sys.executable, "-m", "remit", "delegate", "library", "--json"], capture_output=True, text=True).stdout

@agent("library", isolation="process", timeout=60)
def library() -> str:
    return run("lasts", root="/").summary

@agent("lasts", isolation="process", timeout=60)
def lasts() -> None:
    time.sleep(50)
'''


def ours(project: Path) -> list[int]:
    """Return the processes that are marked with this project."""
    mark = hashlib.sha256(str(project / ".remit").encode()).hexdigest()[:12]
    return [pid for pid in all_pids() if pid != os.getpid() and (mark_of(pid) or "").startswith(mark)]


async def test_killed_owner_leaves_no_process_and_its_tree_is_settled(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".remit" / "agents").mkdir(parents=True)
    (project / ".remit" / "agents" / "tree.py").write_text(AGENTS)
    words = [sys.executable, "-m", "remit", "delegate", "shell", "--json"]
    owner = await asyncio.create_subprocess_exec(*words, cwd=project, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await _until_deep(project)
        assert len(ours(project)) >= 8
    finally:
        owner.send_signal(signal.SIGKILL)
        await owner.wait()
    await until(lambda: not ours(project))
    async with Remit.open(project) as remit:
        records = await remit.history()
        assert {r.agent: r.state for r in records} == dict.fromkeys(("shell", "library", "lasts"), State.PARTIAL)
        assert {r.root_id for r in records} == {next(r.session_id for r in records if r.agent == "shell")}
        assert await remit.live() == []
        assert list((project / ".remit" / "run").glob("*.sock")) == [], "sockets of the dead process are removed"


RESUMED = """
import json, subprocess, sys, time
from pathlib import Path
from remit import agent, run
LOG = Path(__file__).parents[2] / "log"

def note(words):
    with LOG.open("a") as file:
        file.write(words + "\\n")

@agent("boss", isolation="process", timeout=60, resumable=True)
def boss() -> list:
    words = [sys.executable, "-m", "remit", "delegate", "step", "number=1", "--json"]
    first = json.loads(subprocess.run(words, capture_output=True, text=True).stdout)["data"]
    return [first, run("step", root="/", number=2).data, run("step", root="/", number=3).data]

@agent("step", isolation="process", timeout=60, resumable=True)
def step(number: int) -> int:
    note(f"began {number}")
    if number == 3 and LOG.read_text().count("began 3") == 1:
        time.sleep(50)
    note(f"ended {number}")
    return number * 10
"""


async def test_finished_children_are_not_repeated_after_kill_9(tmp_path: Path) -> None:
    """With the CLI and with the library, a repeated caller finds its finished children by their requests."""
    project = tmp_path / "project"
    (project / ".remit" / "agents").mkdir(parents=True)
    (project / ".remit" / "agents" / "tree.py").write_text(RESUMED)
    log = project / "log"
    words = [sys.executable, "-m", "remit", "delegate", "boss", "--json"]
    owner = await asyncio.create_subprocess_exec(*words, cwd=project, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await until(lambda: log.exists() and "began 3" in log.read_text())
    finally:
        owner.send_signal(signal.SIGKILL)
        await owner.wait()
    async with Remit.open(project) as remit:
        (boss,) = [r for r in await remit.history() if r.agent == "boss"]
        result = await remit.result(boss.session_id, wait_seconds=30)
        assert result is not None
        assert result.data == [10, 20, 30], result
        assert len(await remit.tree(boss.session_id)) == 4
    assert log.read_text().split("\n") == ["began 1", "ended 1", "began 2", "ended 2", "began 3", "began 3", "ended 3", ""]


async def _until_deep(project: Path) -> None:
    path = project / ".remit" / "remit.db"
    await until(path.exists)
    store = open_read_only(path)
    try:
        await until(lambda: any(r.agent == "lasts" and r.state is State.RUNNING for r in store.live()))
    finally:
        store.close()
