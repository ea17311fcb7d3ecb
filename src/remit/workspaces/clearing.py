"""Clearing away rooms that nothing was done in: certain first, removed then, both under the room's lock.

A mark in the books says that the decision has been made, so that what a dying process has half removed is removed wholly by the next.
Blocking; used by `flow.workspace`, the engine and upkeep, after the answer was given.
"""

import contextlib
import shutil
import time
from pathlib import Path

from remit.core.errors import RemitError
from remit.system.files import file_lock
from remit.workspaces.changes import opened
from remit.workspaces.git import LOCK_WAIT_SECONDS, Git, GitFailed
from remit.workspaces.looking import LOOKING_SECONDS, look, look_with
from remit.workspaces.making import LOCK, MAKING_SECONDS, clear_worktree
from remit.workspaces.removing import remove, remove_books
from remit.workspaces.room import CLEARING, NOTE, Room, books_of, find_room, noted_room, rooms, work_root

UNFINISHED_SECONDS = 2 * MAKING_SECONDS
"""After its delegation has ended, a room that is not ready yet is nobody's work any more."""


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
            with file_lock(common_dir / LOCK, timeout=LOCK_WAIT_SECONDS):
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
