"""The worktree of one board task: all its delegations work in it, are checked by their changes there, and leave one commit each.

The board creates it (`make_task_workspace`) and names it in the delegated task (`PLACE`); `place` puts the delegation into it. Before a
delegation is settled, its changes are taken from git, checked and committed on the branch (`with_verdict`), so that the record and the
board agree. `landing` merges the branch."""

import contextlib
import os
import re
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from remit.core.delegation import ROOT_CALLER, Delegation
from remit.core.errors import ErrorInfo, Misused, RemitError, Unavailable
from remit.core.ids import new_session_id
from remit.core.protected_paths import protection_of
from remit.core.result import Evidence, Return, Status
from remit.runtime.authorize import filter_allowed, step_requests
from remit.runtime.landing import checked_out_branch
from remit.runtime.workspace_session import commit_message
from remit.runtime.workspaces import (
    KIND,
    RAW_DIFF,
    MergeWrite,
    Workspace,
    describe_write,
    find_workspace,
    list_workspaces,
    make_workspace,
    open_git,
    parse_raw_diff,
    stage_changes,
)
from remit.system.git import Git, GitFailed
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.runtime.local_context import LocalRun

PLACE = "workspace"
"""Key of a delegated task that names the worktree: `Place.to_dict`."""
TAKING_SECONDS = 60.0
SHOWN = 10
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_BOARD = re.compile(r"specs/(state\.json|TODO\.md|archive/.*|\d+_.*)$")


# ---- the worktree


def make_task_workspace(root: Path, number: int, *, seconds: float) -> Workspace:
    """Create a worktree of the checked-out branch. Raises `Misused` if the project cannot have one. Blocking."""
    git = Git(folder=root, stop_at=time.monotonic() + seconds)
    onto = ""
    with contextlib.suppress(GitFailed):  # not a checkout: `make_workspace` has the better message
        onto = checked_out_branch(git)
        if not onto:
            raise Misused(
                "No branch is checked out in the project (HEAD is detached), so the work of a task cannot be merged.",
                advice="Check out a branch: git switch NAME",
            )
    return make_workspace(root, new_session_id(time.time()), seconds=seconds, task=(number, onto))


def find_task_workspace(root: Path, number: int) -> Workspace | None:
    """The worktree of a task, the newest of several. Blocking."""
    found = [one for name in list_workspaces(root) if (one := find_workspace(root, name)) is not None and one.task == number]
    return max(found, key=lambda one: one.made_at, default=None)


def snapshot_tree(workspace: Workspace) -> str:
    """The current tree of the folder. Blocking."""
    with open_git(workspace, seconds=TAKING_SECONDS) as git:
        stage_changes(git)
        return git.says("write-tree")


# ---- placing a delegation


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Working folder of a delegation of a task, and the parent of its commit."""

    workspace: str
    parent: str
    """The last commit of the task."""
    baseline: str
    """The tree at the start of the run."""
    own: str = ""
    """The task's folder; other board files are not committed as its work."""
    plan: str = ""
    """The plan, which the board writes; not committed either."""
    shared: str = ""
    """Paths copied or linked into the worktree, one per line; not its work."""

    def to_dict(self) -> dict[str, str]:
        return asdict(self)

    @classmethod
    def of(cls, delegation: Delegation) -> "Place | None":
        """The place, only if a program of this project set it: callers of a server must not enter others' worktrees."""
        said = delegation.task.extra.get(PLACE) if delegation.task is not None else None
        info = delegation.caller_info
        if not isinstance(said, Mapping) or (info is not None and (info.principal != ROOT_CALLER or info.door)):
            return None
        try:
            place = cls(**{one.name: str(said[one.name]) for one in fields(cls) if one.name in said})
        except TypeError:
            return None
        return place if all(map(_COMMIT.fullmatch, (place.parent, place.baseline))) else None


async def place(work: "LocalRun") -> None:
    """Put the root of a task's tree into the worktree of the task; its children inherit that."""
    found = Place.of(work.delegation)
    if found is None:
        return
    workspace = await off_loop(find_workspace, work.root, found.workspace)
    if workspace is None or not workspace.task:
        raise Unavailable(
            f"The worktree of task {work.delegation.task and work.delegation.task.task_number} is no longer there ({found.workspace}).",
            advice="Run the command again: it makes a new one.",
        )
    work.own_workspace = workspace


# ---- the verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChanges:
    """Changes of a delegation in the worktree of its task."""

    commit: str
    """On the branch; the parent if nothing changed."""
    tree: str = ""
    """The whole folder, including uncommitted files."""
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    is_new: bool = True
    """Whether the current run changed something, rather than only an earlier one."""
    warnings: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return len(self.changed) + len(self.deleted)


async def with_verdict(work: "LocalRun", result: Return, prove: Callable[[Return], Awaitable[Return]]) -> Return:
    """The return with the files that git reports as changed; `completed` requires some. `prove`: runs acceptance commands."""
    workspace, placed = work.own_workspace, Place.of(work.delegation)
    assert workspace is not None
    assert placed is not None
    await work.end_children()  # nothing may change during the diff
    try:
        changes = await _take(work, workspace, placed)
    except (RemitError, OSError) as error:
        return _without_changes(result, workspace, error)
    result = await prove(replace(result, warnings=(*result.warnings, *changes.warnings)))
    if work.delegation.accept:
        with contextlib.suppress(RemitError, OSError):  # the next run then treats it as changed
            await off_loop(_restore, workspace, changes.tree)
    location = {
        "kind": KIND, "folder": workspace.inside, "branch": workspace.branch, "task": workspace.task,
        "commit": changes.commit, "changed": list(changes.changed), "deleted": list(changes.deleted),
    }  # fmt: skip
    result = replace(result, extra={**result.extra, PLACE: location})
    if result.status is not Status.COMPLETED:
        return result
    if not changes.count or not (changes.is_new or result.evidence is Evidence.VERIFIED):
        return _nothing_changed(work.delegation, result, changes)
    return result


async def _take(work: "LocalRun", workspace: Workspace, placed: Place) -> PhaseChanges:
    staged = await off_loop(_stage, workspace, placed)
    (alike,) = step_requests(work, "", {})
    allowed = await filter_allowed(work.deps, (one.request(alike) for one in staged.writes), work.delegation)
    ours = [one for one in staged.writes if _is_not_its_own(one.path, placed)]
    refused = [one for one, is_allowed in zip(staged.writes, allowed, strict=True) if not is_allowed and one not in ours]
    changes = await off_loop(_commit, workspace, placed, staged, [*ours, *refused], commit_message(work.delegation))
    if not refused:
        return changes
    names = ", ".join(one.path for one in refused[:SHOWN])
    why = f"because the policy does not allow {work.delegation.agent} to write them"
    warning = f"Not committed, {why}: {names}. They are in {workspace.inside}."
    return replace(changes, warnings=(*changes.warnings, warning))


def commit_by_hand(workspace: Workspace, placed: Place, message: str) -> PhaseChanges:
    """Commit a person's changes in the folder since the last commit. Protected files are left out, because their author is unknown.
    Blocking."""
    staged = _stage(workspace, placed)
    left_out = [
        one
        for one in staged.writes
        if one.protected is not None or protection_of(one.path) is not None or _is_not_its_own(one.path, placed)
    ]
    return _commit(workspace, placed, staged, left_out, message)


def _is_not_its_own(path: str, placed: Place) -> bool:
    """Whether it belongs to the board, or was copied or linked into the worktree."""
    if path == placed.plan or any(path == one or path.startswith(f"{one}/") for one in placed.shared.splitlines()):
        return True
    return bool(_BOARD.match(path)) and not (placed.own and path.startswith(f"{placed.own}/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _StagedChanges:
    writes: tuple[MergeWrite, ...]
    """Differences from the parent."""
    tree: str
    warnings: tuple[str, ...]
    """Files that could not be read."""


def _stage(workspace: Workspace, placed: Place) -> _StagedChanges:
    with open_git(workspace, seconds=TAKING_SECONDS) as git:
        warnings = stage_changes(git)
        files = list(parse_raw_diff(git.run("diff", "--cached", *RAW_DIFF, placed.parent)))
        if git.overrides:
            names = ", ".join(name for name, _ in git.overrides[:3])
            raise Unavailable(
                f"Git settings that run commands were changed meanwhile ({names}).", advice="Look at the git configuration first."
            )
        writes = tuple(describe_write(git, workspace, file) for file in files)
        return _StagedChanges(writes=writes, tree=git.says("write-tree"), warnings=warnings)


def _commit(workspace: Workspace, placed: Place, staged: _StagedChanges, left_out: Sequence[MergeWrite], message: str) -> PhaseChanges:
    """One commit on the parent, however often the work was started and whatever the agent committed itself."""
    kept = [one for one in staged.writes if one not in left_out]
    with open_git(workspace, seconds=TAKING_SECONDS) as git:
        index = workspace.metadata_folder / "index.commit"
        shutil.copy2(workspace.index, index)
        commit = placed.parent
        if kept:
            private = git.using(index)
            unstage(private, left_out)
            commit = git.says("commit-tree", private.says("write-tree"), "-p", placed.parent, "-m", message)
        git.run("update-ref", f"refs/heads/{workspace.branch}", commit)
        git.run("symbolic-ref", "HEAD", f"refs/heads/{workspace.branch}")
        with contextlib.suppress(OSError):  # for the agent's own `git status`
            os.replace(index, workspace.git_dir / "index")
    return PhaseChanges(
        commit=commit,
        tree=staged.tree,
        changed=tuple(one.path for one in kept if not one.file.is_deleted),
        deleted=tuple(one.path for one in kept if one.file.is_deleted),
        left_out=tuple(one.path for one in left_out),
        is_new=staged.tree != placed.baseline,
        warnings=staged.warnings,
    )


def unstage(git: Git, writes: Iterable[MergeWrite]) -> None:
    """Set these files in the index to their state before the change."""
    entries = (b"%b %b\t%b\0" % (file.old_mode.encode(), file.old_object_id.encode(), os.fsencode(file.path)) for file, _, _ in writes)
    git.run("update-index", "--replace", "-z", "--index-info", stdin=b"".join(entries))


def _restore(workspace: Workspace, tree: str) -> None:
    """Restore the folder to its state before the acceptance commands: their files are not the agent's work."""
    with open_git(workspace, seconds=TAKING_SECONDS) as git:
        stage_changes(git)
        git.run("read-tree", "--reset", "-u", tree)


def _nothing_changed(delegation: Delegation, result: Return, changes: PhaseChanges) -> Return:
    earlier = changes.count and not changes.is_new
    what = "changed nothing in this run; what an earlier run changed is kept" if earlier else "changed no file of the project"
    number = delegation.task.task_number if delegation.task is not None else ""
    taken = f"mark the phase [COMPLETED] in the plan of task {number}"
    if delegation.task is None or not delegation.task.extra.get("phase"):
        taken = f"take it as it is: remit workspaces {number} --merge"
    error = ErrorInfo(
        type="validation",
        code="VALIDATION_FAILED",
        message=f"{delegation.agent} reports completed, but {what}.",
        recoverable=True,
        recommendation=f"Look at what it did (`remit show {result.session_id}`); run it again, give it an acceptance command, or {taken}.",
    )
    return replace(result, status=Status.FAILED, summary=error.message, errors=(*result.errors, error), next_steps=error.recommendation)


def _without_changes(result: Return, workspace: Workspace, error: Exception) -> Return:
    """If git failed, the work is not completed."""
    why = error.message if isinstance(error, RemitError) else str(error)
    message = f"The changes in {workspace.inside} could not be taken: {why}"
    if result.status is not Status.COMPLETED:
        return replace(result, warnings=(*result.warnings, message))
    fault = ErrorInfo(
        type="git", code="GIT_COMMIT_FAILED", message=message, recoverable=True, recommendation="Fix that, then run the command again."
    )
    return replace(result, status=Status.FAILED, summary=message, errors=(*result.errors, fault), next_steps=fault.recommendation)
