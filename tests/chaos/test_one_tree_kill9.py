"""One tree across processes, and its owner is killed: nothing is left running anywhere, and what was begun is settled by the next."""

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from remit import Remit
from remit.core.states import State
from remit.store.looking import open_to_look
from remit.system.processes import all_pids, mark_of

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
    """Processes that carry a mark of this project."""
    mark = hashlib.sha256(str(project / ".remit").encode()).hexdigest()[:12]
    return [pid for pid in all_pids() if pid != os.getpid() and (mark_of(pid) or "").startswith(mark)]


async def test_killing_the_owner_leaves_no_process_of_the_tree_and_the_next_one_settles_it(tmp_path: Path) -> None:
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
    await _until(lambda: not ours(project))
    async with Remit.open(project) as remit:
        records = await remit.history()
        assert {r.agent: r.state for r in records} == dict.fromkeys(("shell", "library", "lasts"), State.PARTIAL)
        assert {r.root_id for r in records} == {next(r.session_id for r in records if r.agent == "shell")}
        assert await remit.live() == []
        assert list((project / ".remit" / "run").glob("*.sock")) == [], "what the dead one left is swept"


async def _until_deep(project: Path) -> None:
    path = project / ".remit" / "remit.db"
    await _until(path.exists)
    store = open_to_look(path)
    try:
        await _until(lambda: any(r.agent == "lasts" and r.state is State.RUNNING for r in store.live()))
    finally:
        store.close()


async def _until(is_so: Callable[[], object], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "waited too long"
        await asyncio.sleep(0.05)
