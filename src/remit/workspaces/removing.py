"""Removing rooms: when nothing is in them that is not elsewhere, or when their delegation is forgotten.

A branch goes only with work that was merged or never done; a forgotten room's work is committed before its folder goes.
"""

import contextlib
import os
import secrets
import shutil
import time
from pathlib import Path

from remit.core.agents import Workspace
from remit.core.errors import RemitError
from remit.system.files import file_lock
from remit.workspaces.changes import take_changes
from remit.workspaces.git import LOCK_WAIT_SECONDS, Git, GitFailed
from remit.workspaces.making import LOCK
from remit.workspaces.room import NOTE, Room, books_of, find_room, work_root

REMOVING_SECONDS = 60.0
GONE = ".gone-"


def remove(room: Room, *, with_branch: bool) -> None:
    """The folder, our books, and the branch when its work is elsewhere. The books go last: what is half removed is found again."""
    if room.kind is Workspace.WORKTREE:
        git = Git(folder=room.root, stop_at=time.monotonic() + REMOVING_SECONDS)
        with file_lock(room.common_dir / LOCK, timeout=LOCK_WAIT_SECONDS):
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
