"""What is in a workspace beyond what it was made with, and removing it: by itself when nothing was done in it, by hand otherwise.

A workspace is removed only when that is certain to lose nothing, or when a person says so; both under its lock. A mark in the books says
that the decision has been made, so that the next process removes what a dying one has half removed. A branch goes only with work that was
merged or never done; the work of a forgotten workspace is committed before its folder goes. Blocking.
"""

import contextlib
import os
import secrets
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from remit.core.agents import Workspace
from remit.core.errors import RemitError, Unavailable
from remit.runtime.workspaces import (
    CLEARING,
    LOCK,
    MAKING_SECONDS,
    NOTE,
    TOOL_FOLDERS,
    Room,
    books_of,
    clear_worktree,
    find_room,
    is_merged,
    noted_room,
    opened,
    rooms,
    stage,
    take_changes,
    work_root,
)
from remit.system.files import file_lock
from remit.system.git import LOCK_WAIT_SECONDS, REPOSITORY_LOCK, Git, GitFailed

LOOKING_SECONDS = 10.0
REMOVING_SECONDS = 60.0
GONE = ".gone-"
UNFINISHED_SECONDS = 2 * MAKING_SECONDS
"""After its delegation has ended, a room that is not ready yet is nobody's work any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    changed: tuple[str, ...] = ()
    """Files added, changed and deleted, relative to its tree."""
    ignored: tuple[str, ...] = ()
    """What git ignores, but for what tools fill again: it is in no diff."""
    has_commits: bool = False
    """Of its own, whatever came of them."""
    is_merged: bool | None = None
    """Whether the project's branch holds all its changes; None where that cannot be said: a copy, or no changes."""
    doubt: str = ""
    """Why the rest is not certain."""

    @property
    def is_unchanged(self) -> bool:
        """As it was made; only when that is certain."""
        return not (self.changed or self.ignored or self.has_commits or self.doubt)

    @property
    def is_needed(self) -> bool:
        """Whether something is in it that is nowhere else."""
        return not self.is_unchanged and not (self.is_merged and not self.ignored and not self.doubt)


def look(room: Room, *, seconds: float = LOOKING_SECONDS) -> Seen:
    """What could not be looked at is a doubt, never an error."""
    try:
        with opened(room, seconds=seconds) as git:
            seen = look_with(git, room)
            commit = _whole_branch(git, room) if seen.changed and room.branch and not room.host else ""
        if not commit:
            return seen
        return replace(seen, is_merged=is_merged(room, commit, seconds=seconds))
    except RemitError as error:
        return Seen(doubt=error.message)
    except OSError as error:
        return Seen(doubt=f"It could not be looked at: {error}")


def look_with(git: Git, room: Room) -> Seen:
    """For whoever has opened the room."""
    warnings = stage(git)
    changed = _names(git.run("diff", "--cached", "--name-only", "-z", "--no-renames", room.base))
    doubt = "settings by which git runs commands were changed" if git.overrides else " ".join(warnings)
    return Seen(
        changed=changed,
        ignored=_ignored(git),
        has_commits=room.kind is Workspace.WORKTREE and not _is_at_base(git, room),
        is_merged=False if changed and room.branch and not room.host else None,
        doubt=doubt,
    )


def _names(listed: bytes) -> tuple[str, ...]:
    return tuple(os.fsdecode(name) for name in listed.split(b"\0") if name)


def _ignored(git: Git) -> tuple[str, ...]:
    """A worktree is made without any, a copy too: whatever there is was made in it."""
    listed = git.run("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory", "--no-empty-directory")
    return tuple(name for name in _names(listed) if TOOL_FOLDERS.isdisjoint(PurePosixPath(name).parts))


def _is_at_base(git: Git, room: Room) -> bool:
    """Neither its branch nor what is checked out in it has gone on from what it began from."""
    for name in ("HEAD", f"refs/heads/{room.branch}"):
        with contextlib.suppress(GitFailed):
            if git.says("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}") == room.base:
                continue
        return False
    return True


def _whole_branch(git: Git, room: Room) -> str:
    """The last commit of its branch, when it holds everything that is in the folder."""
    with contextlib.suppress(GitFailed):
        tip = git.says("rev-parse", "--verify", "--quiet", f"refs/heads/{room.branch}^{{commit}}")
        if git.says("rev-parse", f"{tip}^{{tree}}") == git.says("write-tree"):
            return tip
    return ""


# ---- removing


def remove(room: Room, *, with_branch: bool) -> None:
    """The folder, our books, and the branch when its work is elsewhere. The books go last: what is half removed is found again."""
    if room.kind is Workspace.WORKTREE:
        git = Git(folder=room.root, stop_at=time.monotonic() + REMOVING_SECONDS)
        with file_lock(room.common_dir / REPOSITORY_LOCK, timeout=LOCK_WAIT_SECONDS):
            with contextlib.suppress(GitFailed):
                git.run("worktree", "remove", "--force", "--force", str(room.tree))
            _empty(room)
            with contextlib.suppress(GitFailed):
                git.run("worktree", "prune")
            if with_branch:
                with contextlib.suppress(GitFailed):
                    git.run("update-ref", "-d", f"refs/heads/{room.branch}")
    else:
        _empty(room)
        shutil.rmtree(books_of(room.root, f"{room.maker}.git"), ignore_errors=True)  # not as the note says: an agent could write that
    remove_books(room.books)


def remove_books(books: Path) -> None:
    """Out of sight first: whoever waits for their lock could else make its file anew in between, and the folder would be nobody's."""
    with contextlib.suppress(FileNotFoundError):
        os.rename(books, books.with_name(f"{GONE}{books.name}-{secrets.token_hex(4)}"))
    for gone in books.parent.glob(f"{GONE}*"):  # what a process that died here left, too
        shutil.rmtree(gone, ignore_errors=True)


def _empty(room: Room) -> None:
    if room.tree.is_symlink():
        room.tree.unlink()
    else:
        shutil.rmtree(room.tree, ignore_errors=True)


def forget(root: Path, session_id: str) -> bool:
    """The room of a delegation that is no longer known; False when its work could not be committed, and so it stays."""
    room = find_room(root, session_id)
    books = books_of(root, session_id)
    if room is None:
        if not (books / NOTE).exists():  # never finished: nobody has worked in it
            shutil.rmtree(work_root(root) / session_id, ignore_errors=True)
            shutil.rmtree(books.with_name(f"{session_id}.git"), ignore_errors=True)
        remove_books(books)
        return True
    try:
        changes = take_changes(room, message=f"{room.maker}: what was left", diff_in=None)
        remove(room, with_branch=changes.count == 0)
    except (RemitError, OSError):
        return False
    return True


# ---- by itself


def is_unchanged(room: Room, *, seconds: float = LOOKING_SECONDS) -> bool:
    """Whether nothing is in it but what it was made with, and no other began from it."""
    return look(room, seconds=seconds).is_unchanged and not _is_host(room)


def clear_unchanged(root: Path, session_id: str, *, seconds: float = LOOKING_SECONDS) -> bool:
    """Remove the room of a delegation that has ended, with its branch, if that is certain to lose nothing; True when it is gone."""
    try:
        if finish_clearing(root, session_id):
            return True
        room = find_room(root, session_id)
        if room is None:
            return False
        with opened(room, seconds=seconds) as git:
            # Found again: while the lock was waited for, somebody may have gone on in it, or removed it.
            if find_room(root, session_id) != room or _is_host(room) or not look_with(git, room).is_unchanged:
                return False
            (room.books / CLEARING).touch()
            remove(room, with_branch=True)
    except (RemitError, OSError):
        return False  # it stays, and is looked at again by the next upkeep
    return not room.books.exists()


def finish_clearing(root: Path, session_id: str) -> bool:
    """Remove the rest of a room whose clearing was begun by a process that died; False when there is no such."""
    if not (books_of(root, session_id) / CLEARING).exists():
        return False
    room = noted_room(root, session_id)
    if room is None:  # its note went before the mark: there is nothing left but the books
        remove_books(books_of(root, session_id))
    else:
        remove(room, with_branch=True)
    return True


def clear_unfinished(root: Path, session_id: str) -> bool:
    """What is left of a room that never was ready, of a delegation that ended long ago: nobody has worked in it."""
    books, tree = books_of(root, session_id), work_root(root) / session_id
    if (books / NOTE).exists() or not books.is_dir():
        return False
    try:
        git = Git(folder=root, stop_at=time.monotonic() + LOOKING_SECONDS)
        with contextlib.suppress(GitFailed):  # a project that is no checkout has no worktrees
            common_dir = (root / git.says("rev-parse", "--git-common-dir")).resolve()
            with file_lock(common_dir / REPOSITORY_LOCK, timeout=LOCK_WAIT_SECONDS):
                clear_worktree(git, session_id, tree)
    except (RemitError, OSError):
        return False
    for left in (tree, books.with_name(f"{session_id}.git")):
        shutil.rmtree(left, ignore_errors=True)
    remove_books(books)
    return True


def _is_host(room: Room) -> bool:
    """Whether another room began from this one, and goes back there."""
    others = (noted_room(room.root, name) for name in rooms(room.root) if name != room.session_id)
    return any(other is not None and other.host == room.maker for other in others)


# ---- by hand


def discard(room: Room) -> None:
    """Folder and branch, whatever is in them."""
    with file_lock(room.books / LOCK, timeout=LOCK_WAIT_SECONDS):
        if noted_room(room.root, room.session_id) != room:
            raise Unavailable("Somebody goes on in it, or has removed it.", advice="Look again: remit workspaces")
        (room.books / CLEARING).touch()
        remove(room, with_branch=True)
    if room.tree.exists():
        raise Unavailable(f"{room.tree} could not be removed wholly.", advice="Look at the rights of what is in it, then try again.")


def discard_merged(room: Room) -> str:
    """Remove it when the project has all of it; else why it stays."""
    seen = look(room)
    if seen.is_needed:
        return f"what git ignores was not merged: {', '.join(seen.ignored[:5])}" if seen.ignored else seen.doubt or "it was changed since"
    discard(room)
    return ""
