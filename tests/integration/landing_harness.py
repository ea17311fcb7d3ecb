"""A repository with a board, several tasks, and a scripted agent in worktrees, for tests of landing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from implement_harness import entry, returned

from remit import Board, Context, Outcome, Remit, Task, agent
from remit import TaskStatus as Status
from remit import implement_task as implement
from support.repository import begin, git

GREEN = "test ! -e broken"
Script = Callable[[Context, Path, dict[str, Any]], Any]
"""The script of the agent in its folder; returns its return."""


def made_board(
    root: Path, tasks: int = 1, *, accept: Sequence[str] = (GREEN,), plans: Mapping[int, str] | None = None, **more: Any
) -> Board:
    (root / "README").write_text("A project.\n")
    (root / "shared.txt").write_text("".join(f"line {number}\n" for number in range(20)))
    (root / ".gitignore").write_text(".remit/\n")
    board = Board(root)
    with board.change(make=True) as draft:
        for number in range(1, tasks + 1):
            task = Task(
                number=number, title=f"Task {number}", slug=f"task_{number}", description="Do it", language="python", created=draft.at
            )
            fields = {"status": Status.PLANNED, "accept": tuple(accept), **more}
            if plans and number in plans:
                fields["plan_path"] = f"specs/{number:03d}_task_{number}/plans/implementation-001.md"
                draft.write(str(fields["plan_path"]), plans[number])
            draft.state = draft.state.with_task(replace(task, **fields))
    begin(root)
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "begin")
    return board


class Writer:
    """The implementer in worktrees, which records its requests."""

    def __init__(self, *scripts: Script, merge: bool | str = "queue", workspace: str = "worktree") -> None:
        self.scripts = list(scripts)
        self.merge = merge
        self.workspace = workspace
        self.requests: list[dict[str, Any]] = []
        self.resumed: list[Any] = []

    def agents(self) -> list[Any]:
        async def work(ctx: Context, task: str, **more: Any) -> Any:
            """Implement a task."""
            script = self.scripts[min(len(self.requests), len(self.scripts) - 1)]
            self.requests.append({"task": task, **more})
            self.resumed.append(ctx.saved)
            await ctx.checkpoint({"vendor": "scripted", "turn": len(self.requests)})
            done = script(ctx, ctx.workspace, more)
            return await done if hasattr(done, "__await__") else done

        options: dict[str, Any] = {"workspace": self.workspace, "merge": self.merge}
        return [agent("task-executor", **options)(work), agent("implementer", **options)(work)]

    async def implement(self, board: Board, number: int = 1, **options: Any) -> Outcome:
        async with Remit.open(board.root, agents=self.agents(), recover=False) as remit:
            return await implement(remit, board, number, **options)


def writes(name: str, text: str = "new\n") -> Script:
    def script(_ctx: Context, folder: Path, _more: dict[str, Any]) -> Any:
        (folder / name).write_text(text)
        return returned()  # it names no file

    return script


def branches(root: Path) -> list[str]:
    return git(root, "branch", "--format=%(refname:short)").split()


def status(board: Board, number: int = 1) -> str:
    return str(entry(board, number)["status"])
