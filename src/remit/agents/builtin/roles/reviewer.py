"""The built-in reviewer: the change of a path or of a task, checked by `coder.review_code` and filed as one report.

This module finds the change; findings and their report are those of `coder.review_code`. The diff always ends at the working tree,
so that the review is of the files as they are now. Filters, hooks and external diff programs of the repository are switched off.
"""

import asyncio
import difflib
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from remit.agents.builtin.roles.returns import SUMMARY_LENGTH, answered, handed_on, put, read, shorten, title_of
from remit.agents.function import FunctionAgent, agent
from remit.board.commits import task_commits
from remit.core.errors import Misused
from remit.core.result import Return
from remit.flow.artifacts import Seen, inspect_artifact, read_bounded
from remit.flow.context import Context
from remit.system.files import atomic_write
from remit.system.threads import off_loop
from remit.workspaces.git import Git, GitFailed, settings_of

LAST_COMMITS = 10
MAX_FILES = 400
MAX_CHARACTERS = 4_000_000
MAX_LISTED = 60
REVIEW_SECONDS = 240.0
REPORT_SECONDS = 5.0
"""Kept back for writing the report."""
_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/", "-M", "--full-index", "--relative")
_BOARD = re.compile(r"^(specs/(state\.json|TODO\.md|archive/|reviews/|\d{3,}_)|\.remit/)")
_SKIPPED = frozenset({".git", ".remit", "node_modules", "__pycache__", ".venv", "venv", "build", "dist", "target"})

Permitted = Callable[[Sequence[str]], list[str]]
"""The paths among these that the policy lets the reviewer read."""


@dataclass(slots=True)
class Change:
    what: str
    """In words, for the report."""
    text: str = ""
    files: list[str] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    """Abbreviated hash and subject, the newest first."""
    not_seen: list[str] = field(default_factory=list)


@agent("reviewer", effects=("read", "write"), acts_on={"write_to": "path"}, requires_artifacts=True, workspace="shared")
async def reviewer(
    ctx: Context,
    task: str,
    path: str = "",
    number: int | None = None,
    base: str = "",
    focus: str = "",
    write_to: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Review a path, or the commits of a task, with `coder.review_code`; the report says what was found and what was not checked."""
    ctx.progress("Looking for the change")
    change = await _change(ctx, path, number, base)
    review = await _review(ctx, change) if change.text.strip() else None
    data = review.data if review is not None and isinstance(review.data, dict) else {"verdict": "nothing to review", "findings": []}
    body = ""
    if review is None:
        change.not_seen.append("Changed lines: there was no change to look at.")
    else:
        report = next((one for one in review.artifacts if one.path.endswith(".md")), None)
        body = (await read(ctx, report.path) if report is not None else "").partition("\n")[2].strip()  # without its own title
        if not body:
            change.not_seen.append(f"The change: {shorten(review.errors[0].message if review.errors else review.summary, 300)}")
    title = title_of(ctx, task) if number is not None else f"`{path or '.'}`"
    text = "\n".join(_report(title, number, focus, change, body)) + "\n"
    place = await put(ctx, text, write_to, "review.md", "report", f"Review: {data.get('verdict', 'not complete')}.")
    data = {**data, "report": place, "notLookedAt": [*change.not_seen, *data.get("notChecked", [])]}
    if review is None:
        return answered("completed", f"Review of {_plain(change.what)}: nothing to review.", data=data)
    summary = f"Reviewed: {_plain(change.what)}. {review.summary}"
    returned = {**handed_on(review), "summary": shorten(summary, SUMMARY_LENGTH), "artifacts": [], "data": data}
    return returned if body else {**returned, "status": "partial"}


REVIEWER: FunctionAgent = reviewer


async def _change(ctx: Context, path: str, number: int | None, base: str) -> Change:
    loop = asyncio.get_running_loop()
    stop_at = time.monotonic() + max(1.0, min(60.0, ctx.remaining / 4))

    def permitted(paths: Sequence[str]) -> list[str]:
        return asyncio.run_coroutine_threadsafe(ctx.permitted(paths), loop).result()

    if number is not None:
        return await off_loop(change_of_task, ctx.workspace, number, stop_at, permitted)
    return await off_loop(change_of_path, ctx.workspace, path, base, stop_at, permitted)


async def _review(ctx: Context, change: Change) -> Return:
    """The diff is handed over as a file where the coder can read it, so that the record does not repeat it; the file is removed."""
    file = ctx.scratch / "change.patch"
    diff = change.text
    if file.is_relative_to(ctx.workspace):
        await off_loop(atomic_write, file, change.text.encode("utf-8", "surrogateescape"))
        diff = f"@{file.relative_to(ctx.workspace)}"
    ctx.progress(f"Reviewing {change.what}")
    seconds = max(1.0, min(REVIEW_SECONDS, ctx.remaining - REPORT_SECONDS))
    try:
        return await ctx.delegate("coder.review_code", diff=diff, timeout=seconds)
    finally:
        await off_loop(file.unlink, True)


# ---- the change


def change_of_task(workspace: Path, number: int, stop_at: float, permitted: Permitted) -> Change:
    """All commits whose subject begins with `task N`, as one change of the files they touch, up to the working tree."""
    git = _open_git(workspace, stop_at)
    try:
        commits = task_commits(git, number) if git is not None else []
    except GitFailed:
        git = None
    if git is None:
        return Change(what=f"task {number}", not_seen=["The commits of the task: there is no git repository with commits here."])
    change = Change(what=f"the commits of task {number}", commits=[f"{one[:9]} {subject}" for one, subject in commits])
    if not commits:
        change.not_seen.append(f"A change: no commit has a subject that begins with `task {number}`.")
        return change
    touched = {path for one, _ in commits for path in _names(git, "diff-tree", "--root", "-r", "-m", "--no-commit-id", "--relative", one)}
    files = _readable(sorted(touched), change, permitted)
    if not files:
        change.not_seen.append("A change: the commits of the task touch only files of the board.")
        return change
    _take(change, git, workspace, _parent(git, commits[-1][0]), files)
    return change


def change_of_path(workspace: Path, path: str, base: str, stop_at: float, permitted: Permitted) -> Change:
    """The changes since `base`; without it what is not committed, else the last commits; without git, all files."""
    inside = _inside(workspace, path)
    name = f"`{inside or '.'}`"
    git = _open_git(workspace, stop_at)
    if git is None or git.code("rev-parse", "--verify", "--quiet", "HEAD")[0] != 0:
        return _whole(workspace, inside, Change(what=f"all of {name} (nothing is committed)"), permitted)
    within = _literal([inside]) if inside else ["."]
    new = [one for one in _names(git, "ls-files", "--others", "--exclude-standard", "--", *within) if not _BOARD.match(one)]
    start, change = "HEAD", Change(what=f"the uncommitted changes in {name}")
    if base:
        if base.startswith("-") or git.code("rev-parse", "--verify", "--quiet", f"{base}^{{commit}}")[0] != 0:
            raise Misused(f"git knows no commit {base!r}.", advice="Name a commit, a branch or a tag.")
        start, change = base, Change(what=f"{name} since {base}")
    elif not new and not any(not _BOARD.match(one) for one in _names(git, "diff", "--relative", "HEAD", "--", *within)):
        commits = git.run("log", f"-n{LAST_COMMITS}", "--format=%H %h %s", "--", *within).decode("utf-8", "replace").splitlines()
        if not commits:
            return _whole(workspace, inside, Change(what=f"all of {name}"), permitted)
        start = _parent(git, commits[-1].partition(" ")[0])
        change = Change(what=f"the last commits that changed {name}", commits=[one.partition(" ")[2] for one in commits])
    changed = _names(git, "diff", "--relative", start, "--", *within)
    _take(change, git, workspace, start, _readable(sorted({*changed, *new}), change, permitted), set(new))
    return change


def _take(change: Change, git: Git | None, workspace: Path, start: str, files: Sequence[str], new: Collection[str] = ()) -> None:
    known = [path for path in files if path not in new]
    change.files = list(files)
    change.text = git.run(*_DIFF, start, "--", *_literal(known)).decode("utf-8", "surrogateescape") if known and git else ""
    change.text += "".join(_as_new(workspace, path, change) for path in files if path in new)
    if len(change.text) > MAX_CHARACTERS:
        change.not_seen.append(f"The change: it has {len(change.text):,} characters, more than one review takes. Review parts of it.")
        change.text = ""


def _whole(workspace: Path, inside: str, change: Change, permitted: Permitted) -> Change:
    """Every file as if it were new."""
    top, found = workspace / inside, list[str]()
    for folder, names, files in os.walk(top):
        names[:] = sorted(name for name in names if name not in _SKIPPED and not name.startswith("."))
        found += [os.path.relpath(os.path.join(folder, file), workspace) for file in files if not file.startswith(".")]
        if len(found) > 10 * MAX_FILES:
            break
    readable = _readable([inside] if top.is_file() else sorted(found), change, permitted)
    _take(change, None, workspace, "", readable, readable)
    return change


def _as_new(workspace: Path, path: str, change: Change) -> str:
    """A diff that adds the file; empty for what is no text, which is reported."""
    seen = inspect_artifact(workspace, path)
    data = read_bounded((workspace / path).resolve(), MAX_CHARACTERS) if isinstance(seen, Seen) else None
    if data is None or b"\0" in data or not path.isprintable() or '"' in path or "\\" in path:
        change.not_seen.append(f"`{shorten(path, 200)}`: it is not a text file that can be read.")
        return ""
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    ended = lines[-1] == ""
    body = "".join(difflib.unified_diff([], [f"{line}\n" for line in (lines[:-1] if ended else lines)], "/dev/null", f"b/{path}"))
    return f"diff --git a/{path} b/{path}\nnew file mode 100644\n{body}" + ("" if ended else "\\ No newline at end of file\n")


def _readable(paths: Sequence[str], change: Change, permitted: Permitted) -> list[str]:
    own = [path for path in paths if not _BOARD.match(path)]
    allowed = set(permitted(own))
    kept = [path for path in own if path in allowed]
    change.not_seen += [f"`{path}`: the policy does not let it be read." for path in own if path not in allowed][:20]
    if len(kept) > MAX_FILES:
        change.not_seen.append(f"{len(kept) - MAX_FILES} more files: at most {MAX_FILES} are looked at in one review.")
    return kept[:MAX_FILES]


def _open_git(workspace: Path, stop_at: float) -> Git | None:
    git = Git(folder=workspace, stop_at=stop_at, may_fetch=False)
    try:
        git.run("rev-parse", "--git-dir")
        return replace(git, overrides=tuple((name, "") for name in settings_of(git).commands if name.startswith("filter.")))
    except GitFailed:
        return None


def _names(git: Git, command: str, *arguments: str) -> list[str]:
    wanted = () if command == "ls-files" else ("--name-only", "--no-renames")
    return [name for name in git.run(command, "-z", *wanted, *arguments).decode("utf-8", "surrogateescape").split("\0") if name]


def _literal(paths: Sequence[str]) -> list[str]:
    return [f":(literal){path}" for path in paths]


def _parent(git: Git, commit: str) -> str:
    found = git.code("rev-parse", "--verify", "--quiet", f"{commit}^")
    return found[1].decode().strip() if found[0] == 0 else git.says("hash-object", "-t", "tree", os.devnull)


def _inside(workspace: Path, path: str) -> str:
    """From the top of the workspace; empty: all of it. Raises `Misused`."""
    top = os.path.realpath(workspace)
    real = os.path.realpath(os.path.join(top, path or "."))
    if real != top and not real.startswith(f"{top.rstrip('/')}/"):
        raise Misused(f"{path} leads out of the project.", advice="Name a folder or file inside it.")
    if not os.path.exists(real):
        raise Misused(f"There is no {path} in the project.", advice="Name a folder or file inside it.")
    return "" if real == top else os.path.relpath(real, top)


# ---- the report


def _report(title: str, number: int | None, focus: str, change: Change, body: str) -> Iterator[str]:
    yield from (f"# Review: {_text(title)}", "")
    yield from (f"- **Task number**: {number}",) if number is not None else ()
    yield from (f"- **Asked for in particular**: {_text(focus)}",) if focus else ()
    yield f"- **Reviewed**: {_text(change.what)}"
    yield "- **Made by**: the reviewer that comes with remit, with `coder.review_code`."
    yield from (f"- **Commit**: {_text(one)}" for one in change.commits[:MAX_LISTED])
    yield from ("", body) if body else ()
    yield from ("", "## What was not looked at", "", "- Whether it does what it should: that takes a reader.")
    yield from (f"- {_text(one)}" for one in dict.fromkeys(change.not_seen))


def _text(text: str) -> str:
    """Text of a change must not become markup of the report."""
    return " ".join(text.split()).replace("<", "&lt;").replace("](", "] (")


def _plain(text: str) -> str:
    return text.replace("`", "")
