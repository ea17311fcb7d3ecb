"""Real git repositories and agents that work in them, for tests of workspaces."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from remit import FunctionAgent, Remit, Return


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false", *arguments]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, f"git {' '.join(arguments)}: {ran.stderr}"
    return ran.stdout


def commit_all(folder: Path, message: str) -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--no-verify", "-m", message)
    return git(folder, "rev-parse", "HEAD").strip()


def new_repository(folder: Path) -> Path:
    """A checkout with one commit: text, a binary file, and an ignore rule."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "src").mkdir()
    (folder / "src" / "a.py").write_text("one = 1\ntwo = 2\nthree = 3\n")
    (folder / "src" / "old.py").write_text("gone = True\n" * 20)
    (folder / "picture.bin").write_bytes(bytes(range(256)) * 8)
    (folder / ".gitignore").write_text("build/\n*.log\n.remit/\n")
    commit_all(folder, "first")
    return folder


def branches(folder: Path) -> list[str]:
    return git(folder, "branch", "--format=%(refname:short)").split()


def work_folders(folder: Path) -> list[str]:
    work = folder / ".remit" / "work"
    return sorted(path.name for path in work.iterdir() if path.name != ".books") if work.is_dir() else []


def status(folder: Path) -> str:
    return git(folder, "status", "--porcelain", "--untracked-files=all")


async def run(root: Path, first: FunctionAgent, *others: FunctionAgent, **request: Any) -> Return:
    """Delegate to the first of these agents in a new Remit."""
    async with Remit.open(root, agents=[first, *others]) as remit:
        return await remit.delegate(first.spec.name, **request)


def crash(project: Path, where: str) -> int:
    """Run `workspace_crash` until it kills itself there; its process id."""
    here = Path(__file__)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(folder) for folder in (here.parents[1], here.parent))}
    command = [sys.executable, str(here.with_name("workspace_crash.py")), str(project), where]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
        assert process.wait(60) == -signal.SIGKILL
    return process.pid


def left_by(pid: int) -> int:
    """How many of the commands that this crashed program started are running."""
    count, sleeping = 0, f"sleep\x0060.{pid:09}\0".encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            count += path.read_bytes() == sleeping
    return count


def diff_of(root: Path, result: Return) -> str:
    """The diff that a return contains."""
    (found,) = [root / artifact.path for artifact in result.artifacts if artifact.path.endswith("changes.diff")]
    return found.read_text(errors="replace")
