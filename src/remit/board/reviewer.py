"""The built-in reviewer: checks the change of a path or of a task with `coder.review_code` and files its report.

This module finds the files and the base commit, always up to the working tree. Filters and hooks of the repository are disabled."""

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from remit.agents.function import FunctionAgent, agent
from remit.board.commits import task_commits
from remit.board.role_agents import SUMMARY_LENGTH, complete, put, read
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


class Change(NamedTuple):
    what: str
    """Description for the report."""
    files: list[str]
    since: str = ""
    """The commit or tree to compare with; empty: every line counts as new."""
    commits: tuple[str, ...] = ()
    """Abbreviated hash and subject, newest first."""


@agent("reviewer", effects=("read", "write"), acts_on={"write_to": "path"}, requires_artifacts=True, workspace="shared")
async def reviewer(
    ctx: Context,
    task: str,
    path: str = "",
    number: int | None = None,
    write_to: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Review a path, or the commits of a task, with `coder.review_code`; the report lists findings and what was not checked."""
    stop_at = time.monotonic() + max(1.0, min(60.0, ctx.remaining / 4))
    if number is not None:
        change = await off_loop(change_of_task, ctx.workspace, number, stop_at)
    else:
        change = await off_loop(change_of_path, ctx.workspace, path, stop_at)
    facts = "".join(f"- **{name}**: {markdown_line(words)}\n" for name, words in _facts(change))
    if not change.files:
        data = {"verdict": "nothing to review", "findings": []}
        place = await put(ctx, f"# Review: nothing to review\n\n{facts}", write_to, "review.md", "report", "No changed file was found.")
        return complete(f"Reviewed: {change.what}. No changed file was found.", data={**data, "report": place})
    ctx.progress(f"Reviewing {change.what}")
    seconds = max(1.0, min(REVIEW_SECONDS, ctx.remaining - REPORT_SECONDS))
    asked = {"path": change.files, **({"since": change.since} if change.since else {})}
    review = await ctx.delegate("coder.review_code", parameters=asked, timeout=seconds)
    report = next((one for one in review.artifacts if one.path.endswith(".md")), None)
    text = await read(ctx, report.path) if report is not None else ""
    title, _, body = (text or "# Review: not complete\n").partition("\n")
    place = await put(ctx, f"{title}\n\n{facts}{body}", write_to, "review.md", "report", title.lstrip("# "))
    data = {**(review.data if isinstance(review.data, dict) else {}), "report": place}
    summary = one_line(f"Reviewed: {change.what}. {review.summary}", SUMMARY_LENGTH)
    returned = {**review.forwarded(), "summary": summary, "artifacts": [], "data": data}
    return returned if text else {**returned, "status": "partial"}


REVIEWER: FunctionAgent = reviewer


def _facts(change: Change) -> list[tuple[str, str]]:
    return [("Reviewed", change.what), *(("Commit", one) for one in change.commits[:MAX_LISTED])]


# ---- the change


def change_of_task(workspace: Path, number: int, stop_at: float) -> Change:
    """All commits whose subject begins with `task N`, as one change of the files they touch, up to the working tree."""
    what = f"the commits of task {number}"
    try:
        git = open_to_read(workspace, stop_at)
        commits = task_commits(git, number)
    except GitFailed:
        commits = []
    if not commits:
        return Change(what, [])
    touched = (_names(git, "diff-tree", "--root", "-r", "-m", "--no-commit-id", "--relative", one) for one, _ in commits)
    files = _without_board({path for paths in touched for path in paths})
    return Change(what, files, _parent(git, commits[-1][0]), tuple(f"{one[:9]} {subject}" for one, subject in commits))


def change_of_path(workspace: Path, path: str, stop_at: float) -> Change:
    """Uncommitted changes, else the last commits; without git, all files."""
    inside = _inside(workspace, path)
    name = inside or "the project"
    try:
        git = open_to_read(workspace, stop_at)
        git.run("rev-parse", "--verify", "--quiet", "HEAD")
    except GitFailed:
        return Change(f"all of {name} (nothing is committed)", _all(workspace, inside, stop_at))
    within = [f":(literal){inside}"] if inside else ["."]
    new = _names(git, "ls-files", "--others", "--exclude-standard", "--", *within)
    if files := _without_board({*_names(git, "diff", "--relative", "HEAD", "--", *within), *new}):
        return Change(f"the uncommitted changes in {name}", files, "HEAD")
    commits = git.run("log", f"-n{LAST_COMMITS}", "--format=%H %h %s", "--", *within).decode("utf-8", "replace").splitlines()
    if not commits:
        return Change(f"all of {name}", _all(workspace, inside, stop_at))
    since = _parent(git, commits[-1].partition(" ")[0])
    files = _without_board(_names(git, "diff", "--relative", since, "--", *within))
    return Change(f"the last commits that changed {name}", files, since, tuple(one.partition(" ")[2] for one in commits))


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
