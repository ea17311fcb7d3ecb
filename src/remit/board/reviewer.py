"""The built-in reviewer: checks the change of a path or of a task with `coder.review_code` and files one report.

This module finds the files and the base commit, always up to the working tree; `coder.review_code` provides changes, findings and report.
Filters and hooks of the repository are disabled."""

import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remit.agents.function import FunctionAgent, agent
from remit.board.commits import task_commits
from remit.board.role_agents import SUMMARY_LENGTH, complete, put, read, title_of
from remit.builtin.coder.source_files import list_files
from remit.core.context import Context
from remit.core.errors import Misused
from remit.core.text import markdown_line, one_line
from remit.system.beneath import path_inside
from remit.system.git import NO_SUBMODULES, Git, GitFailed, open_to_read
from remit.system.threads import off_loop

LAST_COMMITS = 10
MAX_LISTED = 60
REVIEW_SECONDS = 240.0
REPORT_SECONDS = 5.0
"""Reserved for writing the report."""
_BOARD = re.compile(r"^(specs/(state\.json|TODO\.md|archive/|reviews/|\d{3,}_)|\.remit/)")


@dataclass(slots=True)
class Change:
    what: str
    """Description for the report."""
    since: str = ""
    """The commit or tree to compare with; empty: every line counts as new."""
    files: list[str] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    """Abbreviated hash and subject, newest first."""


@agent("reviewer", effects=("read", "write"), acts_on={"write_to": "path"}, requires_artifacts=True, workspace="shared")
async def reviewer(
    ctx: Context,
    task: str,
    path: str = "",
    number: int | None = None,
    focus: str = "",
    write_to: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Review a path, or the commits of a task, with `coder.review_code`; the report lists findings and what was not checked."""
    stop_at = time.monotonic() + max(1.0, min(60.0, ctx.remaining / 4))
    of_task = number is not None
    change = await off_loop(change_of_task if of_task else change_of_path, ctx.workspace, number if of_task else path, stop_at)
    review, body = None, ""
    if change.files:
        ctx.progress(f"Reviewing {change.what}")
        seconds = max(1.0, min(REVIEW_SECONDS, ctx.remaining - REPORT_SECONDS))
        asked = {"path": change.files, **({"since": change.since} if change.since else {})}
        review = await ctx.delegate("coder.review_code", parameters=asked, timeout=seconds)
        report = next((one for one in review.artifacts if one.path.endswith(".md")), None)
        body = (await read(ctx, report.path) if report is not None else "").partition("\n")[2].strip()  # without its own title
    data = review.data if review is not None and isinstance(review.data, dict) else {"verdict": "nothing to review", "findings": []}
    title = title_of(ctx, task) if of_task else f"`{path or '.'}`"
    text = "\n".join(_report(title, number, focus, change, body)) + "\n"
    place = await put(ctx, text, write_to, "review.md", "report", f"Review: {data.get('verdict', 'not complete')}.")
    data, what = {**data, "report": place}, change.what.replace("`", "")
    if review is None:
        return complete(f"Review of {what}: nothing to review. No changed file was found.", data=data)
    summary = one_line(f"Reviewed: {what}. {review.summary}", SUMMARY_LENGTH)
    returned = {**review.forwarded(), "summary": summary, "artifacts": [], "data": data}
    return returned if body else {**returned, "status": "partial"}


REVIEWER: FunctionAgent = reviewer


# ---- the change


def change_of_task(workspace: Path, number: int, stop_at: float) -> Change:
    """All commits whose subject begins with `task N`, as one change of the files they touch, up to the working tree."""
    change = Change(what=f"the commits of task {number}")
    try:
        git = open_to_read(workspace, stop_at)
        commits = task_commits(git, number)
    except GitFailed:
        return change
    if commits:
        change.commits = [f"{one[:9]} {subject}" for one, subject in commits]
        touched = (_names(git, "diff-tree", "--root", "-r", "-m", "--no-commit-id", "--relative", one) for one, _ in commits)
        change.since, change.files = _parent(git, commits[-1][0]), _without_board({path for paths in touched for path in paths})
    return change


def change_of_path(workspace: Path, path: str, stop_at: float) -> Change:
    """Uncommitted changes, else the last commits; without git, all files."""
    inside = _inside(workspace, path)
    name = f"`{inside or '.'}`"
    try:
        git = open_to_read(workspace, stop_at)
        git.run("rev-parse", "--verify", "--quiet", "HEAD")
    except GitFailed:
        return Change(what=f"all of {name} (nothing is committed)", files=_all(workspace, inside, stop_at))
    within = [f":(literal){inside}"] if inside else ["."]
    new = _names(git, "ls-files", "--others", "--exclude-standard", "--", *within)
    if files := _without_board({*_names(git, "diff", "--relative", "HEAD", "--", *within), *new}):
        return Change(what=f"the uncommitted changes in {name}", since="HEAD", files=files)
    commits = git.run("log", f"-n{LAST_COMMITS}", "--format=%H %h %s", "--", *within).decode("utf-8", "replace").splitlines()
    if not commits:
        return Change(what=f"all of {name}", files=_all(workspace, inside, stop_at))
    since, listed = _parent(git, commits[-1].partition(" ")[0]), [one.partition(" ")[2] for one in commits]
    files = _without_board(_names(git, "diff", "--relative", since, "--", *within))
    return Change(what=f"the last commits that changed {name}", since=since, files=files, commits=listed)


def _all(workspace: Path, inside: str, stop_at: float) -> list[str]:
    return _without_board(one.path for one in list_files(workspace, inside, (), lambda: time.monotonic() > stop_at).files)


def _without_board(paths: Iterable[str]) -> list[str]:
    return sorted(path for path in paths if not _BOARD.match(path))


def _names(git: Git, command: str, *arguments: str) -> list[str]:
    wanted = () if command == "ls-files" else ("--name-only", "--no-renames", NO_SUBMODULES)
    return [name for name in git.run(command, "-z", *wanted, *arguments).decode("utf-8", "surrogateescape").split("\0") if name]


def _parent(git: Git, commit: str) -> str:
    found = git.code("rev-parse", "--verify", "--quiet", f"{commit}^")
    return found[1].decode().strip() if found[0] == 0 else git.says("hash-object", "-t", "tree", os.devnull)


def _inside(workspace: Path, path: str) -> str:
    """From the top of the workspace; empty: all of it. Raises `Misused`."""
    inside = path_inside(workspace, path)
    if inside is None or not (workspace / inside).exists():
        raise Misused(f"There is no {path} in the project.", advice="Name a folder or file inside it.")
    return "" if inside == "." else inside


def _report(title: str, number: int | None, focus: str, change: Change, body: str) -> Iterator[str]:
    yield from (f"# Review: {markdown_line(title)}", "")
    yield from (f"- **Task number**: {number}",) if number is not None else ()
    yield from (f"- **Asked for in particular**: {markdown_line(focus)}",) if focus else ()
    yield f"- **Reviewed**: {markdown_line(change.what)}"
    yield "- **Made by**: the reviewer that comes with remit, with `coder.review_code`."
    yield from (f"- **Commit**: {markdown_line(one)}" for one in change.commits[:MAX_LISTED])
    yield from ("", body or "There was no change to look at, or the review did not end.")
    yield from ("", "## What was not looked at", "", "- Whether it does what it should: that takes a reader.")
