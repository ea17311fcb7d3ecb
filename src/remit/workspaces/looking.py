"""Looking at a room: what is in it beyond what it was made with, and whether the project has it. Nothing is committed, merged or removed.

Used by `clearing`, and by the command line for its list.
"""

import contextlib
import os
from dataclasses import dataclass
from pathlib import PurePosixPath

from remit.core.agents import Workspace
from remit.core.errors import RemitError
from remit.workspaces.changes import opened, stage
from remit.workspaces.copying import TOOL_FOLDERS
from remit.workspaces.git import Git, GitFailed
from remit.workspaces.merging import is_merged
from remit.workspaces.room import Room

LOOKING_SECONDS = 10.0


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
        return Seen(
            changed=seen.changed,
            ignored=seen.ignored,
            has_commits=seen.has_commits,
            is_merged=is_merged(room, commit, seconds=seconds),
            doubt=seen.doubt,
        )
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
