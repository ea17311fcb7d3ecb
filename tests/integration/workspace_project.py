"""Real git repositories and agents that work in them, for tests of workspaces."""

import subprocess
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


def diff_of(root: Path, result: Return) -> str:
    """The diff that a return contains."""
    (found,) = [root / artifact.path for artifact in result.artifacts if artifact.path.endswith("changes.diff")]
    return found.read_text(errors="replace")
