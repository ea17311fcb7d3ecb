"""Git repositories for tests, with their own identity."""

import subprocess
from pathlib import Path


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True, timeout=60).stdout


def begin(root: Path) -> None:
    """Initialise a repository without a commit in the folder."""
    git(root, "init", "-q", "-b", "main")
    with (root / ".git" / "config").open("a") as config:
        config.write("[user]\n\tname = Ada\n\temail = ada@example.com\n")


def all_committed(root: Path) -> None:
    """Initialise a repository with one commit of all files in the folder."""
    begin(root)
    git(root, "add", ".")
    git(root, "commit", "-qm", "begin")
