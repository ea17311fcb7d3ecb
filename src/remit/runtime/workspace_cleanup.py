"""Determines what a workspace contains beyond its initial state, and removes it: automatically if unchanged, otherwise on request.

A workspace is removed only if that certainly loses nothing, or if a person requests it; both under its lock. A branch is removed only
if its work was merged or never done; the work of a pruned workspace is committed before its folder is removed. Blocking, but for
`discard_losers`."""

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from remit.core.context import Context
from remit.core.errors import RemitError, Unavailable
from remit.core.ids import is_session_id
from remit.core.settings import Settings
from remit.runtime.landing import is_merged
from remit.runtime.workspaces import (
    LOCK,
    MAKING_SECONDS,
    MERGING_SECONDS,
    METADATA_FILE,
    PLAIN_DIFF,
    TOOL_FOLDERS,
    MergeResult,
    MergeWrite,
    Workspace,
    clear_worktree,
    find_workspace,
    load_workspace,
    merge_writes,
    metadata_folder,
    not_permitted,
    open_git,
    stage_changes,
    take_changes,
    work_root,
)
from remit.system.files import file_lock, remove_folder
from remit.system.git import LOCK_WAIT_SECONDS, REPOSITORY_LOCK, Git, GitFailed
from remit.system.threads import off_loop

LOOKING_SECONDS = 10.0
REMOVING_SECONDS = 60.0
GONE = ".gone-"
UNFINISHED_SECONDS = 2 * MAKING_SECONDS
"""Age at which an incomplete workspace can be removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceStatus:
    changed: tuple[str, ...] = ()
    """Files added, changed and deleted, relative to its tree."""
    ignored: tuple[str, ...] = ()
    """Files that git ignores, except those that tools recreate; they are in no diff."""
    has_commits: bool = False
    """Whether it has its own commits, merged or not."""
    is_merged: bool | None = None
    """Whether the project's branch contains all its changes; None without changes."""
    doubt: str = ""
    """Why the rest is uncertain."""

    @property
    def is_unchanged(self) -> bool:
        """Whether it is certainly unchanged."""
        return not (self.changed or self.ignored or self.has_commits or self.doubt)

    @property
    def is_needed(self) -> bool:
        """Whether it contains something that exists nowhere else."""
        return not self.is_unchanged and not (self.is_merged and not self.ignored and not self.doubt)


def workspace_status(workspace: Workspace, *, seconds: float = LOOKING_SECONDS) -> WorkspaceStatus:
    """Its state. A failed check is a doubt, never an error."""
    try:
        with open_git(workspace, seconds=seconds) as git:
            seen = _status_with(git, workspace)
            commit = _commit_of(git, f"refs/heads/{workspace.branch}") if seen.changed else ""
            is_whole = bool(commit) and git.says("rev-parse", f"{commit}^{{tree}}") == git.says("write-tree")
        return replace(seen, is_merged=is_merged(workspace, commit)) if is_whole else seen
    except (RemitError, OSError) as error:
        return WorkspaceStatus(doubt=error.message if isinstance(error, RemitError) else f"It could not be inspected: {error}")


def _status_with(git: Git, workspace: Workspace) -> WorkspaceStatus:
    """With the workspace already open."""
    warnings = stage_changes(git)
    changed = _names(git.run("diff", "--cached", "--name-only", "-z", "--no-renames", workspace.base))
    # Worktrees start without ignored files, so all were created in it.
    ignored = _names(git.run("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory", "--no-empty-directory"))
    doubt = "git settings that run commands were changed" if git.overrides else " ".join(warnings)
    return WorkspaceStatus(
        changed=changed,
        ignored=tuple(name for name in ignored if TOOL_FOLDERS.isdisjoint(PurePosixPath(name).parts)),
        has_commits={_commit_of(git, "HEAD"), _commit_of(git, f"refs/heads/{workspace.branch}")} != {workspace.base},
        is_merged=False if changed else None,
        doubt=doubt,
    )


def _names(listed: bytes) -> tuple[str, ...]:
    return tuple(os.fsdecode(name) for name in listed.split(b"\0") if name)


def _commit_of(git: Git, name: str) -> str:
    with contextlib.suppress(GitFailed):
        return git.says("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    return ""


# ---- removing


def remove_workspace(workspace: Workspace, *, with_branch: bool) -> None:
    """Remove the folder, its metadata, and the branch if its work is elsewhere. Renaming the metadata decides it: `remove_left` finishes
    what a killed process began."""
    name = f"{GONE}{workspace.maker}-{'all' if with_branch else 'folder'}-{secrets.token_hex(4)}"
    gone = workspace.metadata_folder.with_name(name)
    os.rename(workspace.metadata_folder, gone)
    _finish_removal(workspace.root, gone)


def remove_left(root: Path) -> None:
    """Finish the removals that dead processes began."""
    for gone in metadata_folder(root, "").glob(f"{GONE}*"):
        with contextlib.suppress(RemitError, OSError):
            _finish_removal(root, gone)


def _finish_removal(root: Path, gone: Path) -> None:
    maker, _, what = gone.name.removeprefix(GONE).partition("-")
    if is_session_id(maker):
        _remove_folders(root, maker, with_branch=what.startswith("all"))
    remove_folder(gone)


def _remove_folders(root: Path, maker: str, *, with_branch: bool) -> None:
    git = Git(folder=root, stop_at=time.monotonic() + REMOVING_SECONDS)
    with contextlib.suppress(GitFailed):  # a project that is not a checkout has no worktrees
        common_dir = (root / git.says("rev-parse", "--git-common-dir")).resolve()
        with file_lock(common_dir / REPOSITORY_LOCK, timeout=LOCK_WAIT_SECONDS):
            clear_worktree(git, maker, work_root(root) / maker, with_branch=with_branch)
    for left in (work_root(root) / maker, metadata_folder(root, f"{maker}.git")):
        remove_folder(left)


def remove_forgotten(root: Path, session_id: str) -> bool:
    """Remove the workspace of an unknown delegation; False if its work could not be committed, so it stays."""
    workspace = find_workspace(root, session_id)
    folder = metadata_folder(root, session_id)
    if workspace is None:
        if not remove_unfinished(root, session_id) and (folder / METADATA_FILE).exists():
            remove_folder(folder)
        return True
    if workspace.task:
        return True  # it belongs to a board task and is removed after the merge
    try:
        changes = take_changes(workspace, message=f"{workspace.maker}: what was left", diff_in=None)
        remove_workspace(workspace, with_branch=changes.count == 0)
    except (RemitError, OSError):
        return False
    return True


# ---- by itself


def remove_unchanged(root: Path, session_id: str) -> bool:
    """Remove the workspace of a finished delegation, with its branch, if that certainly loses nothing; True if it is gone."""
    try:
        workspace = find_workspace(root, session_id)
        if workspace is None:
            return False
        with open_git(workspace, seconds=LOOKING_SECONDS) as git:
            # Loaded again: another process may have resumed or removed it.
            if find_workspace(root, session_id) != workspace or not _status_with(git, workspace).is_unchanged:
                return False
            remove_workspace(workspace, with_branch=True)
    except (RemitError, OSError):
        return False  # the next maintenance run tries again
    return True


def remove_unfinished(root: Path, session_id: str) -> bool:
    """Remove a workspace that was never completed, unless it may be in creation: a board task has no delegation on record then."""
    folder = metadata_folder(root, session_id)
    try:
        if (folder / METADATA_FILE).exists() or time.time() - folder.stat().st_mtime < UNFINISHED_SECONDS:
            return False
        _remove_folders(root, session_id, with_branch=True)
    except (RemitError, OSError):
        return False
    remove_folder(folder)
    return True


# ---- by hand


def diff_text(workspace: Workspace) -> bytes:
    """All changes since its base, committed or not."""
    with open_git(workspace, seconds=REMOVING_SECONDS) as git:
        stage_changes(git)
        return git.run("diff", "--cached", "--binary", "--find-renames", *PLAIN_DIFF, workspace.base)


def merge_by_hand(
    workspace: Workspace, message: str, may_write: Callable[[Sequence[MergeWrite]], Sequence[bool]], settings: Settings
) -> MergeResult:
    """Merge its changes into the project's checked-out branch, as `merge = true` does. Removes nothing.

    `may_write`: which files may be merged; one that may not prevents the merge."""
    from remit.runtime.merge_queue import merge_work

    stop_at = time.monotonic() + MERGING_SECONDS
    changes = take_changes(workspace, message=message, diff_in=None, seconds=MERGING_SECONDS)
    if changes.doubt:
        return MergeResult(is_done=False, reason=changes.doubt)
    if not changes.count:
        return MergeResult(is_done=False, reason="nothing was changed in it")
    writes = merge_writes(workspace, changes.commit, seconds=stop_at - time.monotonic())
    if refused := [one.path for one, is_allowed in zip(writes, may_write(writes), strict=True) if not is_allowed]:
        return not_permitted(refused)
    seconds = stop_at - time.monotonic()
    return asyncio.run(merge_work(workspace, changes.commit, workspace.root, settings, is_accepting=False, seconds=seconds, marks={}))


def discard_workspace(workspace: Workspace) -> None:
    """Remove folder and branch with any content."""
    with file_lock(workspace.metadata_folder / LOCK, timeout=LOCK_WAIT_SECONDS):
        if load_workspace(workspace.root, workspace.session_id) != workspace:
            raise Unavailable("It is in use again, or was removed.", advice="Look again: remit workspaces")
        remove_workspace(workspace, with_branch=True)
    if workspace.tree.exists():
        raise Unavailable(
            f"{workspace.tree} could not be removed completely.", advice="Check the permissions of its files, then try again."
        )


async def discard_losers(ctx: Context, session_ids: Iterable[str]) -> None:
    """Remove the workspaces of runs whose work is not used, because another run of the same call is; their diffs stay on record."""

    def discard(session_id: str) -> None:
        workspace = load_workspace(ctx.root, session_id)
        if workspace is not None:
            discard_workspace(workspace)

    for session_id in session_ids:
        try:
            await off_loop(discard, session_id)
        except (OSError, RemitError) as error:
            ctx.warn(f"The workspace of {session_id} could not be removed: {error}")


def discard_merged(workspace: Workspace) -> str:
    """Remove it if the project has all of it; otherwise return the reason why it stays."""
    seen = workspace_status(workspace)
    if seen.is_needed:
        return f"what git ignores was not merged: {', '.join(seen.ignored[:5])}" if seen.ignored else seen.doubt or "it was changed since"
    discard_workspace(workspace)
    return ""
