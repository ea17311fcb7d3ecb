"""A change is reviewed, what was found becomes a task, and the report and the board are committed: nothing else is."""

import asyncio
import subprocess
from pathlib import Path

from remit import Board, Remit, ReviewRequest, review_work


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def prepare() -> None:
    """A repository with something staged, and something new that is not."""
    git("init", "-q")
    git("config", "user.name", "Ada")
    git("config", "user.email", "ada@example.com")
    git("add", "README.md")
    git("commit", "-qm", "start")
    Path("notes.txt").write_text("mine, staged, not to be committed by anybody else\n")
    git("add", "notes.txt")
    Path("run.py").write_text("import subprocess\n\n\ndef run(text: str) -> None:\n    subprocess.run(text, shell=True)\n")


async def main() -> None:
    async with Remit.open() as remit:
        outcome = await review_work(remit, Board(Path()), ReviewRequest(path="run.py", make_tasks=True))
    print(outcome.data["report"], outcome.data["counts"])
    for task in Board(Path()).look().state.tasks:
        print(f"task {task.number}: {task.title}, from {task.source}")
    print(git("log", "-1", "--format=%s", "--name-only"), end="")
    print(git("status", "--short", "--", "notes.txt", "run.py"), end="")


prepare()
asyncio.run(main())
