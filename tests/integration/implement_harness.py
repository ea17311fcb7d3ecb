"""A git repository with a board, a plan, and a scripted implementer, for tests of `implement`."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from remit import Board, Context, Outcome, Remit, Task, agent
from remit import TaskStatus as Status
from remit import implement_task as implement
from support.repository import begin, git

PLAN_PATH = "specs/001_csv/plans/implementation-001.md"
PLAN = """# Plan

### Phase 1: Read rows [NOT STARTED]
- **Goal**: rows come out
- **Accept**: `test -s rows.txt`

### Phase 2: Write CSV [NOT STARTED]
- **Goal**: a file goes in

### Phase 3: Document it [NOT STARTED]
- **Goal**: people can read of it
"""
Script = Callable[[Context, int], Any]
"""The script of one phase: it may write files below `ctx.root` and returns its return."""


def made_project(root: Path, *, plan: str | None = PLAN, in_git: bool = True, **more: Any) -> Board:
    """`in_git` is off where a test does not need git."""
    (root / "README").write_text("A project.\n")
    board = Board(root)
    with board.change(make=True) as draft:
        task = Task(
            number=1, title="CSV", slug="csv", description="Rows as CSV", language="python", status=Status.PLANNED, created=draft.at
        )
        if plan is not None:
            draft.write(PLAN_PATH, plan)
            task = replace(task, plan_path=PLAN_PATH)
        draft.state = draft.state.with_task(replace(task, **more))
    if in_git:
        begin(root)
        git(root, "add", "README", "specs")
        git(root, "commit", "-q", "-m", "begin")
    return board


def returned(*paths: str, status: str = "completed", **more: Any) -> dict[str, Any]:
    errors = [] if status == "completed" else [_error(f"It is {status}.")]
    artifacts = [{"type": "implementation", "path": path} for path in paths]
    return {"status": status, "summary": f"Wrote {', '.join(paths) or 'nothing'}.", "artifacts": artifacts, "errors": errors, **more}


def _error(message: str) -> dict[str, Any]:
    return {"type": "execution", "message": message, "code": "UNKNOWN_ERROR", "recoverable": True, "recommendation": "Look at it."}


def writes(ctx: Context, phase: int) -> dict[str, Any]:
    """The usual script of a phase: it writes one file."""
    name = {0: "whole.txt", 1: "rows.txt"}.get(phase, f"part{phase}.txt")
    (ctx.root / name).write_text(f"phase {phase}\n")
    return returned(name)


class Worker:
    """The implementer, which records its requests."""

    def __init__(self, **scripts: Script) -> None:
        self.scripts = scripts
        self.requests: list[dict[str, Any]] = []

    @property
    def phases(self) -> list[int]:
        return [request.get("phase", 0) for request in self.requests]

    def agents(self) -> list[Any]:
        async def work(ctx: Context, task: str, **more: Any) -> Any:
            """Implement a phase."""
            self.requests.append({"task": task, **more})
            phase = more.get("phase", 0)
            done = self.scripts.get(f"p{phase}", writes)(ctx, phase)
            return await done if hasattr(done, "__await__") else done

        return [agent("task-executor")(work), agent("implementer")(work)]

    async def implement(self, board: Board, number: int = 1, **options: Any) -> Outcome:
        async with Remit.open(board.root, agents=self.agents(), recover=False) as remit:
            return await implement(remit, board, number, **options)


def entry(board: Board, number: int = 1) -> dict[str, Any]:
    """The task in state.json."""
    data = json.loads(board.state_path.read_bytes())
    found: dict[str, Any] = next(one for one in data["active_projects"] if one["project_number"] == number)
    return found


def subjects(root: Path) -> list[str]:
    """Subjects of all commits, oldest first."""
    return git(root, "log", "--reverse", "--format=%s").splitlines()


def files_of(root: Path, subject: str) -> set[str]:
    """The paths changed by the commit with this subject."""
    commit = git(root, "log", "-1", "--format=%h", f"--grep=^{subject}").strip()
    return set(git(root, "show", "--name-only", "--format=", commit).split())
