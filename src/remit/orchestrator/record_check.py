"""Whether what the board says of a task is true: its files are there, its plan is carried out, git has its commits, its commands pass.

Looks and runs the acceptance commands; changes nothing. Used by `review` of a task.
"""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.board.board import Board
from remit.board.commits import find_repository, literal, task_commits
from remit.board.plans import Plan, read_plan
from remit.board.statuses import IN_PROGRESS, Status
from remit.board.task import Task
from remit.core.errors import RemitError
from remit.flow.artifacts import Seen, inspect_artifact
from remit.flow.verify import acceptance_environment, run_acceptance
from remit.orchestrator.prompts import text_of
from remit.system.threads import off_loop

PLAN_CHARACTERS = 2_000_000
GIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Where the record and the facts part."""

    what: str
    follow_up: str = ""
    """What would close it."""

    def to_dict(self) -> dict[str, Any]:
        return {"what": self.what, "follow_up": self.follow_up}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCheck:
    gaps: tuple[Gap, ...] = ()
    checked: tuple[str, ...] = ()
    """What was found to be as it should, a line each."""

    def section(self) -> str:
        """For the report."""
        lines = ["", "## The task's record", ""]
        lines += [f"- **Gap**: {gap.what}{f' → {gap.follow_up}' if gap.follow_up else ''}" for gap in self.gaps]
        lines += [f"- {one}" for one in self.checked]
        return "\n".join([*lines, ""])


async def check_record(board: Board, task: Task, *, besides: str = "", seconds: float, accept_env: Sequence[str] = ()) -> RecordCheck:
    """`seconds`: for the acceptance commands together. `besides`: a path that is being written now, and no part of the record yet."""
    found = await off_loop(lambda: list(_looked(board, task, besides)))
    commands = tuple(dict.fromkeys([*task.accept, *await off_loop(_accept_of_plan, board.root, task)]))
    if commands:
        acceptance = await run_acceptance(commands, cwd=board.root, seconds_left=seconds, env=acceptance_environment(accept_env))
        for check in acceptance.checks:
            ended = check.trouble or f"exited {check.exit_code}"
            follow = f"Make it exit 0, then run `remit review {task.number}` again."
            found.append(f"`{check.command}` exits 0." if check.is_met else Gap(what=f"`{check.command}` {ended}.", follow_up=follow))
    gaps = tuple(one for one in found if isinstance(one, Gap))
    return RecordCheck(gaps=gaps, checked=tuple(one for one in found if isinstance(one, str)))


def _looked(board: Board, task: Task, besides: str) -> Iterator[Gap | str]:
    yield from _artifacts(board.root, task)
    yield from _plan(board.root, task)
    yield from _commits(board.root, task, besides)
    if task.status in IN_PROGRESS:
        command = {Status.RESEARCHING: "research", Status.PLANNING: "plan", Status.REVISING: "revise"}.get(task.status, "implement")
        words = f"It is still marked [{task.status.marker}]."
        yield Gap(what=words, follow_up=f"If nobody works on it, `remit {command} {task.number}` goes on with it.")


def _artifacts(root: Path, task: Task) -> Iterator[Gap | str]:
    paths = dict.fromkeys([*(one.path for one in task.artifacts), *([task.plan_path] if task.plan_path else [])])
    missing = [path for path in paths if not _is_there(root, path)]
    for path in missing:
        yield Gap(what=f"`{path}` is linked, but missing or empty.", follow_up="Bring it back from git, or have it made again.")
    if paths and not missing:
        yield f"All {len(paths)} linked files are there." if len(paths) > 1 else "Its linked file is there."
    if task.status is Status.COMPLETED and not paths:
        yield Gap(what="It is completed, but no file of it is linked.", follow_up="Say in TODO.md what was done.")


def _is_there(root: Path, path: str) -> bool:
    seen = inspect_artifact(root, path)
    return isinstance(seen, Seen) and seen.size > 0


def _plan(root: Path, task: Task) -> Iterator[Gap | str]:
    plan = _plan_of(root, task)
    if plan is None:
        return
    unfinished = [f"{phase.number} [{phase.status}]" for phase in plan.open_phases]
    if task.status is Status.COMPLETED and unfinished:
        follow = "Carry them out, or mark in the plan what was done or given up."
        yield Gap(what=f"It is completed, but phases of its plan are not: {', '.join(unfinished)}.", follow_up=follow)
    elif task.status is not Status.COMPLETED and plan.phases and not unfinished:
        yield Gap(what=f"All phases of its plan are done, but it is [{task.status.marker}].", follow_up=f"`remit implement {task.number}`")
    elif plan.phases:
        yield f"Of the {len(plan.phases)} phases of its plan, {len(plan.phases) - len(unfinished)} are done."
    for fault in plan.faults[:5]:
        yield Gap(what=f"Its plan: {fault}", follow_up=f"Correct {task.plan_path}.")


def _plan_of(root: Path, task: Task) -> Plan | None:
    text = text_of(root, task.plan_path, PLAN_CHARACTERS) if task.plan_path else None
    return read_plan(text) if text else None


def _accept_of_plan(root: Path, task: Task) -> list[str]:
    """Of the phases that are said to be done: the others cannot pass yet."""
    plan = _plan_of(root, task)
    return [*plan.accept, *(one for phase in plan.phases if not phase.is_open for one in phase.accept)] if plan is not None else []


def _commits(root: Path, task: Task, besides: str) -> Iterator[Gap | str]:
    try:
        repository = find_repository(root, time.monotonic() + GIT_SECONDS)
        if repository is None:
            return
        found = task_commits(repository.git, task.number)
        said = repository.git.run(
            "status", "--porcelain", "-z", "-uall", "--no-renames", "--", literal(f"{repository.prefix}{task.folder}")
        )
        uncommitted = [one for one in os.fsdecode(said).split("\0") if one and one[3:] != f"{repository.prefix}{besides}"]
    except RemitError as error:
        yield Gap(what=f"Its commits could not be looked at: {error.message}", follow_up="`git status` says more.")
        return
    if found:
        yield f"Git has {len(found)} commit{'s' * (len(found) > 1)} of it, the last {found[0][0][:9]}."
    elif task.status is Status.COMPLETED:
        yield Gap(
            what=f"It is completed, but no commit has a subject that begins with `task {task.number}:`.", follow_up="Commit its files."
        )
    if uncommitted:
        yield Gap(what=f"Files in {task.folder} are not committed.", follow_up=f"git add {task.folder} && git commit")
