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


async def _until_deep(project: Path) -> None:
    path = project / ".remit" / "remit.db"
    await until(path.exists)
    store = open_read_only(path)
    try:
        await until(lambda: any(r.agent == "lasts" and r.state is State.RUNNING for r in store.live()))
    finally:
        store.close()
