"""What git remembers of each file: how many commits changed it, how many lines, by how many people, when last. Bounded in commits and time.

The repository may be anybody's, so nothing its configuration names is run: no hook, no diff driver, no text conversion, no signature
check, no fetch of what a partial clone lacks.
"""

import os
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from remit.core.errors import RemitError
from remit.workspaces.git import Git

COMMITS_AT_MOST = 3_000
FILES_IN_COMMIT = 200
"""Larger commits are moves and reformatting; they say nothing about where work goes on."""
GIT_SECONDS = 15.0
_SAFE = (
    "--no-renames", "--no-ext-diff", "--no-textconv", "--no-show-signature", "--no-notes", "--no-color", "--no-mailmap", "--no-merges",
    "--ignore-submodules=all",
)  # fmt: skip
_OVERRIDES = (("log.showSignature", "false"), ("core.pager", "cat"), ("gpg.program", "false"), ("diff.external", ""))


@dataclass(slots=True)
class Churn:
    commits: int = 0
    lines: int = 0
    authors: set[str] = field(default_factory=set)
    last: int = 0
    """When it was last changed, seconds since 1970."""


@dataclass(slots=True)
class History:
    files: dict[str, Churn] = field(default_factory=dict)
    commits: int = 0
    since: int = 0
    until: int = 0
    is_cut: bool = False
    """There are more commits than were looked at."""
    why_not: str = ""


def read_history(workspace: Path, below: str, seconds: float = GIT_SECONDS) -> History:
    git = Git(folder=workspace, stop_at=time.monotonic() + max(0.1, min(seconds, GIT_SECONDS)), may_fetch=False, overrides=_OVERRIDES)
    try:
        if not git.asks("rev-parse", "--verify", "--quiet", "HEAD"):
            return History(why_not="There are no commits yet.")
        output = git.run(
            "--no-pager", "log", f"--max-count={COMMITS_AT_MOST}", "--relative", "--numstat", "-z", "--format=%x01%ct%x02%ae", *_SAFE,
            "--", f":(literal){below}" if below else ".",
        )  # fmt: skip
    except RemitError as error:
        return History(why_not=_why_not(error))
    return _gathered(output)


def _why_not(error: RemitError) -> str:
    if "not a git repository" in error.message:
        return "It is no git checkout."
    return error.message.splitlines()[0][:200]


def _gathered(output: bytes) -> History:
    churns: dict[str, Churn] = defaultdict(Churn)
    history = History()
    for commit in output.split(b"\1")[1:]:
        head, *rows = commit.split(b"\0")
        when, _, author = head.partition(b"\2")
        try:
            moment = int(when)
        except ValueError:
            continue
        history.commits += 1
        history.since = moment if not history.since else min(history.since, moment)
        history.until = max(history.until, moment)
        changed = [row for row in (_row(raw) for raw in rows) if row is not None]
        if len(changed) > FILES_IN_COMMIT:
            continue
        for path, lines in changed:
            churn = churns[path]
            churn.commits += 1
            churn.lines += lines
            churn.last = max(churn.last, moment)
            churn.authors.add(author.decode("utf-8", "replace"))
    history.is_cut = history.commits >= COMMITS_AT_MOST
    history.files = dict(churns)
    return history


def _row(raw: bytes) -> tuple[str, int] | None:
    parts = raw.lstrip(b"\n").split(b"\t", 2)
    if len(parts) != 3 or not parts[2]:
        return None
    lines = sum(int(part) for part in parts[:2] if part.isdigit())
    return os.fsdecode(parts[2]), lines
