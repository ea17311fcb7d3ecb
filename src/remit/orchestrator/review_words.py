"""What a reviewer that is asked in words is told: what to look at, where the report is wanted, how findings are handed back."""

import time
from pathlib import Path

from remit.board.commits import find_repository, task_commits
from remit.board.task import Task
from remit.core.errors import RemitError
from remit.orchestrator.prompts import Brief, about_task, quoted

GIT_SECONDS = 20.0
COMMITS_NAMED = 50


def words_of(root: Path, what: str, task: Task | None, write_to: str, *, focus: str, base: str) -> str:
    parts = about_task(task, focus, "review") if task is not None else [f"Review {what}."]
    if task is None and focus.strip():
        parts.append(f"Asked for in particular: {focus.strip()}")
    parts += [_to_look_at(root, task, base), _wanted(write_to)]
    if task is not None:
        plan = task.plan_path if task.plan_path and (root / task.plan_path).is_file() else ""
        reports = tuple(one.path for one in task.artifacts if one.type == "research" and (root / one.path).is_file())
        parts += quoted(Brief(command="review", task=task, plan=plan, reports=reports), root)
    return "\n\n".join(part for part in parts if part)


def _to_look_at(root: Path, task: Task | None, base: str) -> str:
    if task is None:
        since = f"Look above all at what changed since the commit {base}. " if base else "Look above all at what changed last. "
        return f"{since}Change no code."
    commits = _commits(root, task.number)
    if not commits:
        return "No commit of this task was found: judge by its plan and the files it speaks of. Change no code."
    return "\n".join(["These commits belong to it; `git show` shows them. Change no code.", "", *(f"- {one}" for one in commits)])


def _commits(root: Path, number: int) -> list[str]:
    try:
        repository = find_repository(root, time.monotonic() + GIT_SECONDS)
        found = task_commits(repository.git, number) if repository is not None else []
    except RemitError:
        return []  # the review itself can do without
    return [f"{commit[:9]} {subject}" for commit, subject in found[:COMMITS_NAMED]]


def _wanted(write_to: str) -> str:
    return (
        f"Write the report to `{write_to}`, relative to the project's root: the verdict first, then the findings with severity, file and "
        "line, then what was not looked at. Nothing else in specs/ is yours to change. Where you cannot write there, write it into your "
        "folder for intermediate files and name that path. "
        f'Return status completed with the artifact {{"type": "report", "path": "{write_to}"}}, and in data the findings: '
        '{"findings": [{"severity": "critical|high|medium|low|info", "file": "src/a.py", "line": 12, "message": "…", "suggestion": "…"}]}. '
        "An empty list says that nothing was found."
    )
