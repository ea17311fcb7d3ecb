"""Merging a room's branch into the project, or into the room of its caller: wholly, or not at all with the project exactly as it was.

The merge is made among git's objects first (`merge-tree`), where a conflict touches no file. Only a merge that is there already is then
brought into the checkout, by a fast-forward, which git refuses before it begins when it would touch uncommitted work.
What began from the room of its caller goes back there, as changes of that one's own: its branch and its index are left alone.
"""

import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from remit.runtime.workspaces.changes import opened, stage, take_changes
from remit.runtime.workspaces.workspace import Room
from remit.system.files import file_lock
from remit.system.git import LOCK_WAIT_SECONDS, REPOSITORY_LOCK, Git, GitFailed, Settings, held

MERGING_SECONDS = 60.0
NEEDED_GIT = "2.38"
"""The first with `merge-tree --write-tree`."""
_OVERWRITTEN = ("would be overwritten", "not uptodate")
_UNKNOWN_OPTION = 129
"""How git ends when it does not know what it is asked."""
_QUOTED = re.compile(r"^error: [^']*'([^']+)'", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    is_done: bool
    into: str = ""
    """The branch of the project, or the folder of the caller's room."""
    conflicts: tuple[str, ...] = ()
    """Files that stand in the way, relative to the repository."""
    reason: str = ""
    """Why it was not done: continues "could not be merged: "."""


class Intent:
    """Whether a merge may still go on: it can be called off until the moment it touches the checkout, and not after it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_called_off = False
        self._has_begun = False

    def call_off(self) -> bool:
        """True: nothing will be merged. False: it is being done, or has been."""
        with self._lock:
            self._is_called_off = not self._has_begun
            return self._is_called_off

    def begin(self) -> bool:
        with self._lock:
            self._has_begun = not self._is_called_off
            return self._has_begun


def merge(room: Room, commit: str, intent: Intent, *, seconds: float) -> Merged:
    """Bring `commit` into the branch that is checked out in the project."""
    seconds = min(seconds, MERGING_SECONDS)
    stop_at = time.monotonic() + seconds
    with file_lock(room.common_dir / REPOSITORY_LOCK, timeout=min(LOCK_WAIT_SECONDS, seconds)):
        git = _project(room, stop_at)
        if not git.asks("symbolic-ref", "--quiet", "HEAD"):
            return Merged(is_done=False, reason="no branch is checked out in the project (HEAD is detached)")
        into = git.says("symbolic-ref", "--short", "HEAD")
        try:
            target = _joined(git, room, commit, into)
            if isinstance(target, Merged):
                return target
            if not intent.begin():
                return Merged(is_done=False, into=into, reason="it was stopped before that")
            git.run("merge", "--ff-only", "--no-autostash", "--no-stat", "--quiet", target)
        except GitFailed as failed:
            return Merged(is_done=False, into=into, conflicts=_named(failed.words), reason=_why(failed, "the project"))
    return Merged(is_done=True, into=into)


def merge_into_room(room: Room, commit: str, host: Room, intent: Intent, *, seconds: float) -> Merged:
    """Bring what `commit` adds to its base into the folder of the caller's room, beside whatever was done there since."""
    into = host.inside
    try:
        with opened(host, seconds=min(seconds, MERGING_SECONDS)) as git:
            stage(git)
            tree = git.says("write-tree")
            target: str | Merged = commit
            if tree != git.says("rev-parse", f"{room.base}^{{tree}}"):
                ours = git.says("commit-tree", tree, "-p", room.base, "-m", f"{host.maker}: before {room.branch}")
                target = _both(git, ours, commit, into)
            if isinstance(target, Merged):
                return target
            if not intent.begin():
                return Merged(is_done=False, into=into, reason="it was stopped before that")
            git.run("read-tree", "-m", "-u", tree, target)
    except GitFailed as failed:
        return Merged(is_done=False, into=into, conflicts=_named(failed.words), reason=_why(failed, "the caller's workspace"))
    return Merged(is_done=True, into=into)


def merge_by_hand(room: Room, message: str) -> Merged:
    """Bring its changes into the branch that is checked out in the project, as `merge = true` does. Nothing is removed."""
    if not room.branch:
        return Merged(is_done=False, reason="it is a copy, which has no branch; its diff can be applied with git apply")
    if room.host:
        return Merged(is_done=False, reason=f"it began from the workspace of {room.host}, and its branch holds that one's work too")
    stop_at = time.monotonic() + MERGING_SECONDS
    changes = take_changes(room, message=message, diff_in=None, seconds=MERGING_SECONDS)
    if changes.doubt or changes.commit is None:
        return Merged(is_done=False, reason=changes.doubt or "its changes could not be taken")
    if not changes.count:
        return Merged(is_done=False, reason="nothing was changed in it")
    return merge(room, changes.commit, Intent(), seconds=stop_at - time.monotonic())


def is_merged(room: Room, commit: str, *, seconds: float) -> bool:
    """Whether the project's branch holds this commit."""
    return _project(room, time.monotonic() + seconds).asks("merge-base", "--is-ancestor", commit, "HEAD")


def _project(room: Room, stop_at: float) -> Git:
    """Git in the project's own checkout, wherever the configuration now says that it lies."""
    git_dir = Path(room.project_git_dir) if room.project_git_dir else None
    git = Git(folder=room.root, stop_at=stop_at, git_dir=git_dir, work_tree=room.top)
    return held(git, Settings(room.commands, room.fetching))


def _joined(git: Git, room: Room, commit: str, into: str) -> str | Merged:
    """The commit to go forward to: both histories in one."""
    ours = git.says("rev-parse", "--verify", "HEAD^{commit}")
    if git.asks("merge-base", "--is-ancestor", ours, commit):
        return commit
    if git.asks("merge-base", "--is-ancestor", commit, ours):
        return ours  # it is in there already: a merge that was done before a crash
    tree = _both(git, ours, commit, into)
    return tree if isinstance(tree, Merged) else git.says("commit-tree", tree, "-p", ours, "-p", commit, "-m", f"Merge {room.branch}")


def _both(git: Git, ours: str, theirs: str, into: str) -> str | Merged:
    """The tree with the changes of both; no file is touched."""
    code, told = git.code("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
    tree, *names = [part.decode(errors="replace") for part in told.split(b"\0") if part]
    if code:
        return Merged(is_done=False, into=into, conflicts=tuple(names), reason="both sides changed the same lines")
    return tree


def _named(words: str) -> tuple[str, ...]:
    """The files git names when it refuses: each on a line of its own, indented by a tab; or quoted, by its plainer commands."""
    listed = tuple(line.strip() for line in words.splitlines() if line.startswith("\t"))
    return listed or tuple(_QUOTED.findall(words))


def _why(failed: GitFailed, where: str) -> str:
    if failed.exit_code == _UNKNOWN_OPTION:
        return f"this git is too old to merge without touching files; {NEEDED_GIT} or later is needed for work on both sides"
    if any(words in failed.words for words in _OVERWRITTEN):
        return f"uncommitted work in {where} would be overwritten"
    return failed.message
