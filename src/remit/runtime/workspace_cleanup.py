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

from remit.core.agents import WorkspaceKind
from remit.core.errors import RemitError, Unavailable
from remit.runtime.workspaces import (
    LOCK,
    MAKING_SECONDS,
    METADATA_FILE,
    REMOVAL_MARK,
    TOOL_FOLDERS,
    Workspace,
    clear_worktree,
    find_workspace,
    is_merged,
    list_workspaces,
    load_workspace,
    metadata_folder,
    open_git,
    stage_changes,
    take_changes,
    work_root,
)
from remit.system.files import file_lock
from remit.system.git import LOCK_WAIT_SECONDS, REPOSITORY_LOCK, Git, GitFailed

LOOKING_SECONDS = 10.0
REMOVING_SECONDS = 60.0
GONE = ".gone-"
UNFINISHED_SECONDS = 2 * MAKING_SECONDS
"""So long after the end of its delegation, an unfinished workspace can be removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceStatus:
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


def workspace_status(workspace: Workspace, *, seconds: float = LOOKING_SECONDS) -> WorkspaceStatus:
    """What could not be looked at is a doubt, never an error."""
    try:
        with open_git(workspace, seconds=seconds) as git:
            seen = _status_with(git, workspace)
            commit = _whole_branch(git, workspace) if seen.changed and workspace.branch and not workspace.host else ""
        if not commit:
            return seen
        return replace(seen, is_merged=is_merged(workspace, commit, seconds=seconds))
    except RemitError as error:
        return WorkspaceStatus(doubt=error.message)
    except OSError as error:
        return WorkspaceStatus(doubt=f"It could not be looked at: {error}")


def _status_with(git: Git, workspace: Workspace) -> WorkspaceStatus:
    """With the workspace already open."""
    warnings = stage_changes(git)
    changed = _names(git.run("diff", "--cached", "--name-only", "-z", "--no-renames", workspace.base))
    doubt = "settings by which git runs commands were changed" if git.overrides else " ".join(warnings)
    return WorkspaceStatus(
        changed=changed,
        ignored=_ignored(git),
        has_commits=workspace.kind is WorkspaceKind.WORKTREE and not _is_at_base(git, workspace),
        is_merged=False if changed and workspace.branch and not workspace.host else None,
        doubt=doubt,
    )


def _names(listed: bytes) -> tuple[str, ...]:
    return tuple(os.fsdecode(name) for name in listed.split(b"\0") if name)


def _ignored(git: Git) -> tuple[str, ...]:
    """A worktree is made without any, a copy too: whatever there is was made in it."""
    listed = git.run("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory", "--no-empty-directory")
    return tuple(name for name in _names(listed) if TOOL_FOLDERS.isdisjoint(PurePosixPath(name).parts))


def _is_at_base(git: Git, workspace: Workspace) -> bool:
    """Neither its branch nor what is checked out in it has gone on from what it began from."""
    for name in ("HEAD", f"refs/heads/{workspace.branch}"):
        with contextlib.suppress(GitFailed):
            if git.says("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}") == workspace.base:
                continue
        return False
    return True


def _whole_branch(git: Git, workspace: Workspace) -> str:
    """The last commit of its branch, when it holds everything that is in the folder."""
    with contextlib.suppress(GitFailed):
        tip = git.says("rev-parse", "--verify", "--quiet", f"refs/heads/{workspace.branch}^{{commit}}")
        if git.says("rev-parse", f"{tip}^{{tree}}") == git.says("write-tree"):
            return tip
    return ""


# ---- removing


def remove_workspace(workspace: Workspace, *, with_branch: bool) -> None:
    """The folder, our folder, and the branch when its work is elsewhere. The metadata goes last: what is half removed is found again."""
    if workspace.kind is WorkspaceKind.WORKTREE:
        git = Git(folder=workspace.root, stop_at=time.monotonic() + REMOVING_SECONDS)
        with file_lock(workspace.common_dir / REPOSITORY_LOCK, timeout=LOCK_WAIT_SECONDS):
            with contextlib.suppress(GitFailed):
                git.run("worktree", "remove", "--force", "--force", str(workspace.tree))
            _empty(workspace)
            with contextlib.suppress(GitFailed):
                git.run("worktree", "prune")
            if with_branch:
                with contextlib.suppress(GitFailed):
                    git.run("update-ref", "-d", f"refs/heads/{workspace.branch}")
    else:
        _empty(workspace)
        shutil.rmtree(
            metadata_folder(workspace.root, f"{workspace.maker}.git"), ignore_errors=True
        )  # not as the note says: an agent could write that
    remove_metadata(workspace.metadata_folder)


def remove_metadata(folder: Path) -> None:
    """Renamed first: a process that waits for the lock could otherwise create its file again in between."""
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder, folder.with_name(f"{GONE}{folder.name}-{secrets.token_hex(4)}"))
    for gone in folder.parent.glob(f"{GONE}*"):  # what a process that died here left, too
        shutil.rmtree(gone, ignore_errors=True)


def _empty(workspace: Workspace) -> None:
    if workspace.tree.is_symlink():
        workspace.tree.unlink()
    else:
        shutil.rmtree(workspace.tree, ignore_errors=True)


def remove_forgotten(root: Path, session_id: str) -> bool:
    """The workspace of a delegation that is no longer known; False when its work could not be committed, and so it stays."""
    workspace = find_workspace(root, session_id)
    folder = metadata_folder(root, session_id)
    if workspace is None:
        if not (folder / METADATA_FILE).exists():  # never finished, so never used
            shutil.rmtree(work_root(root) / session_id, ignore_errors=True)
            shutil.rmtree(folder.with_name(f"{session_id}.git"), ignore_errors=True)
        remove_metadata(folder)
        return True
    try:
        changes = take_changes(workspace, message=f"{workspace.maker}: what was left", diff_in=None)
        remove_workspace(workspace, with_branch=changes.count == 0)
    except (RemitError, OSError):
        return False
    return True


# ---- by itself


def is_unchanged(workspace: Workspace, *, seconds: float = LOOKING_SECONDS) -> bool:
    """Whether nothing is in it but what it was made with, and no other began from it."""
    return workspace_status(workspace, seconds=seconds).is_unchanged and not _is_host(workspace)


def remove_unchanged(root: Path, session_id: str, *, seconds: float = LOOKING_SECONDS) -> bool:
    """Remove the workspace of a delegation that has ended, with its branch, if that is certain to lose nothing; True when it is gone."""
    try:
        if finish_removal(root, session_id):
            return True
        workspace = find_workspace(root, session_id)
        if workspace is None:
            return False
        with open_git(workspace, seconds=seconds) as git:
            # Looked up again: another process may have resumed or removed it meanwhile.
            if find_workspace(root, session_id) != workspace or _is_host(workspace) or not _status_with(git, workspace).is_unchanged:
                return False
            (workspace.metadata_folder / REMOVAL_MARK).touch()
            remove_workspace(workspace, with_branch=True)
    except (RemitError, OSError):
        return False  # it stays, and is looked at again by the next upkeep
    return not workspace.metadata_folder.exists()


def finish_removal(root: Path, session_id: str) -> bool:
    """Remove the rest of a workspace whose clearing was begun by a process that died; False when there is no such."""
    if not (metadata_folder(root, session_id) / REMOVAL_MARK).exists():
        return False
    workspace = load_workspace(root, session_id)
    if workspace is None:  # its note went before the mark: there is nothing left but the metadata
        remove_metadata(metadata_folder(root, session_id))
    else:
        remove_workspace(workspace, with_branch=True)
    return True


def remove_unfinished(root: Path, session_id: str) -> bool:
    """Remove the rest of a workspace that was never finished, of a delegation that ended long ago."""
    folder, tree = metadata_folder(root, session_id), work_root(root) / session_id
    if (folder / METADATA_FILE).exists() or not folder.is_dir():
        return False
    try:
        git = Git(folder=root, stop_at=time.monotonic() + LOOKING_SECONDS)
        with contextlib.suppress(GitFailed):  # a project that is no checkout has no worktrees
            common_dir = (root / git.says("rev-parse", "--git-common-dir")).resolve()
            with file_lock(common_dir / REPOSITORY_LOCK, timeout=LOCK_WAIT_SECONDS):
                clear_worktree(git, session_id, tree)
    except (RemitError, OSError):
        return False
    for left in (tree, folder.with_name(f"{session_id}.git")):
        shutil.rmtree(left, ignore_errors=True)
    remove_metadata(folder)
    return True


def _is_host(workspace: Workspace) -> bool:
    """Whether another workspace began from this one, and goes back there."""
    others = (load_workspace(workspace.root, name) for name in list_workspaces(workspace.root) if name != workspace.session_id)
    return any(other is not None and other.host == workspace.maker for other in others)


# ---- by hand


def discard_workspace(workspace: Workspace) -> None:
    """Folder and branch, whatever is in them."""
    with file_lock(workspace.metadata_folder / LOCK, timeout=LOCK_WAIT_SECONDS):
        if load_workspace(workspace.root, workspace.session_id) != workspace:
            raise Unavailable("It is in use again, or was removed.", advice="Look again: remit workspaces")
        (workspace.metadata_folder / REMOVAL_MARK).touch()
        remove_workspace(workspace, with_branch=True)
    if workspace.tree.exists():
        raise Unavailable(f"{workspace.tree} could not be removed wholly.", advice="Look at the rights of what is in it, then try again.")


def discard_merged(workspace: Workspace) -> str:
    """Remove it when the project has all of it; else why it stays."""
    seen = workspace_status(workspace)
    if seen.is_needed:
        return f"what git ignores was not merged: {', '.join(seen.ignored[:5])}" if seen.ignored else seen.doubt or "it was changed since"
    discard_workspace(workspace)
    return ""
