"""Merges the branch of a task: rebases its commits on the project's branch and moves that branch forward to them.

Git only, without agents, returns or acceptance commands: `merge_queue` decides what is merged. No file of the checkout changes before the
branch moves, and no commit that another process may have is rewritten: each step creates new commits and remembers them. Blocking."""

import contextlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from remit.core.errors import RemitError, Unavailable
from remit.runtime.workspaces import (
    Workspace,
    clear_worktree,
    open_git,
    project_git,
    stage_changes,
    work_root,
    write_metadata,
)
from remit.system.artifact_files import read_bounded
from remit.system.files import atomic_write, file_lock
from remit.system.git import COMMIT_LOCK, LOCK_WAIT_SECONDS, REPOSITORY_LOCK, Git, GitFailed, operation_in

GIT_SECONDS = 60.0
FRESH = ".landing-"
QUEUE_LOCK = "remit-queue.lock"
"""Held while work is merged: then a temporary worktree is in use."""
BOARD = "specs/"
STATE_FILE = "landing.json"
MOVES = 5
"""How often a candidate is rebased again because the branch moved."""
_OVERWRITTEN = ("would be overwritten", "not uptodate")
_QUOTED = re.compile(r"^error: [^']*'([^']+)'", re.MULTILINE)
MOST_STATE_BYTES = 16 << 20
"""It contains the message of a return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingState:
    """Merge progress of a task; stored beside the note of its worktree, out of the agent's reach."""

    tip: str = ""
    """The last commit of the task, if it was rebased for a return to its agent; empty: the commits in the board's records count."""
    baseline: str = ""
    """The tree at the start of the current run; equal files were not changed by it."""
    candidate: str = ""
    """The commit that the project's branch was about to move to: once the branch contains it, the task is merged."""
    is_queued: bool = False
    """Merged by the queue, however its agent is declared: `--parallel` was asked for."""
    returning: Mapping[str, Any] = field(default_factory=dict)
    """A decided return to the agent: `onto`, `tree`, `message`; empty: none is pending."""


def read_state(workspace: Workspace) -> LandingState:
    with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):
        said = json.loads(read_bounded(workspace.metadata_folder / STATE_FILE, MOST_STATE_BYTES) or b"")
        return LandingState(**{one.name: said[one.name] for one in fields(LandingState) if one.name in said})
    return LandingState()


def write_state(workspace: Workspace, state: LandingState) -> LandingState:
    atomic_write(workspace.metadata_folder / STATE_FILE, json.dumps(asdict(state)).encode(), fsync=False)
    return state


@dataclass(frozen=True, slots=True, kw_only=True)
class RebaseResult:
    """The commits of a task on top of another commit."""

    onto: str
    tip: str
    """The last commit; after a conflict, the last that could be rebased."""
    tree: str = ""
    """After a conflict: all of the work, with conflict markers."""
    conflicts: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        return not self.conflicts

    @property
    def is_empty(self) -> bool:
        """Whether the branch already contains everything."""
        return self.is_clean and self.tip == self.onto


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveResult:
    """Result of moving the branch."""

    is_done: bool
    is_outdated: bool = False
    """The branch moved meanwhile."""
    reason: str = ""
    """Why it was not moved: uncommitted work of the user would be overwritten."""
    files: tuple[str, ...] = ()


@contextlib.contextmanager
def lock_checkout(workspace: Workspace) -> Iterator[None]:
    """Lock out other merges, and commits of the board, which are built on HEAD."""
    common_dir = workspace.common_dir
    with file_lock(common_dir / REPOSITORY_LOCK, timeout=LOCK_WAIT_SECONDS), file_lock(common_dir / COMMIT_LOCK, timeout=LOCK_WAIT_SECONDS):
        yield


def git_of(workspace: Workspace) -> Git:
    return project_git(workspace, time.monotonic() + GIT_SECONDS)


def checked_out_branch(git: Git) -> str:
    """Empty: HEAD is detached. `rev-parse --abbrev-ref` would be ambiguous if a tag has the same name."""
    try:
        return git.says("symbolic-ref", "--quiet", "HEAD").removeprefix("refs/heads/")
    except GitFailed as failed:
        if "not a git repository" in failed.words:
            raise
        return ""


def head_of(workspace: Workspace) -> str:
    """The commit that its task would be merged on. Raises `Unavailable` if its branch was removed."""
    try:
        return git_of(workspace).says("rev-parse", "--verify", "--quiet", f"refs/heads/{workspace.onto}^{{commit}}")
    except GitFailed:
        raise Unavailable(f"The target branch {workspace.onto} of the task no longer exists.", advice="Create it again.") from None


def rebase(workspace: Workspace, tip: str, onto: str) -> RebaseResult:
    """Rebase the commits of the task that `onto` lacks, one by one; no file is touched. If its agent merged, they become one commit:
    a merge may contain changes of its own."""
    git = git_of(workspace)
    done, done_tree = onto, git.says("rev-parse", f"{onto}^{{tree}}")
    listed = git.run("log", "-z", "--reverse", "--topo-order", "--format=%H %P%n%B", tip, f"^{onto}", f"^{workspace.base}")
    commits = [entry.partition(b"\n") for entry in listed.split(b"\0") if entry]
    if any(ids.count(b" ") > 1 for ids, _, _ in commits):
        tree, conflicts = git.merge_trees(onto, tip)
        if conflicts:
            return RebaseResult(onto=onto, tip=onto, tree=tree, conflicts=conflicts)
        return RebaseResult(onto=onto, tip=onto if tree == done_tree else _recommit(git, commits[-1][2], tree, onto))
    for ids, _, message in commits:
        commit, parent = ids.decode().split()
        tree, conflicts = _picked(git, parent, commit, done)
        if conflicts:
            tree, conflicts = _picked(git, parent, tip, done)  # the rest of the work, for one resolution
            if conflicts:
                return RebaseResult(onto=onto, tip=done, tree=tree, conflicts=conflicts)
            return RebaseResult(onto=onto, tip=_recommit(git, commits[-1][2], tree, done))
        if tree != done_tree:
            done, done_tree = _recommit(git, message, tree, done), tree
    return RebaseResult(onto=onto, tip=done)


def _picked(git: Git, parent: str, commit: str, onto: str) -> tuple[str, tuple[str, ...]]:
    """The tree of `onto` with the changes of `commit` since `parent`, and the files with conflicts."""
    # git merges commits by their history: this commit makes `parent` the common ancestor.
    ours = git.says("commit-tree", f"{onto}^{{tree}}", "-p", parent, "-m", "the project's branch")
    return git.merge_trees(ours, commit)


def _recommit(git: Git, message: bytes, tree: str, parent: str) -> str:
    said = git.run("commit-tree", tree, "-p", parent, "-F", "-", stdin=message.rstrip() + b"\n")
    return os.fsdecode(said.rstrip(b"\n"))


def _diff_names(git: Git, before: str, after: str) -> list[str]:
    names = git.run("diff-tree", "-r", "--name-only", "-z", "--no-renames", before, after).split(b"\0")
    return [os.fsdecode(name) for name in names if name]


def only_board_changed(workspace: Workspace, before: str, after: str) -> bool:
    """Whether only board commits moved the branch: then acceptance on `before` also counts for `after`."""
    git = git_of(workspace)
    if not git.asks("merge-base", "--is-ancestor", before, after):
        return False
    below = f"{workspace.below}/{BOARD}" if workspace.below else BOARD
    return all(name.startswith(below) for name in _diff_names(git, before, after))


def move_branch(workspace: Workspace, expected: str, target: str, may_move: Callable[[], bool]) -> MoveResult:
    """Move the branch from `expected` forward to `target`: in the worktree that has it checked out, else only the branch.
    `may_move` is asked once the locks are held."""
    with lock_checkout(workspace):
        git = git_of(workspace)
        if not may_move():
            return MoveResult(is_done=False, reason="it was stopped before the merge")
        if git.says("rev-parse", "--verify", f"refs/heads/{workspace.onto}^{{commit}}") != expected:
            return MoveResult(is_done=False, is_outdated=True)
        if expected == target:
            return MoveResult(is_done=True)
        place = _checkout_of(git, workspace)
        if place == "":
            git.run("update-ref", f"refs/heads/{workspace.onto}", target, expected)
            return MoveResult(is_done=True)
        if place != os.path.realpath(workspace.top):
            return MoveResult(is_done=False, reason=f"{workspace.onto} is checked out in another worktree ({place})")
        if git.git_dir is not None and (operation := operation_in(git.git_dir)):
            return MoveResult(is_done=False, reason=f"a {operation} is in progress in the project")
        try:
            git.run("merge", "--ff-only", "--no-autostash", "--no-stat", "--quiet", target)
        except GitFailed as failed:  # the queue tries again for a while: a command of a person may hold the index
            listed = tuple(line.strip() for line in failed.words.splitlines() if line.startswith("\t"))
            is_dirty = any(words in failed.words for words in _OVERWRITTEN)
            reason = "uncommitted work in the project would be overwritten" if is_dirty else failed.message
            return MoveResult(is_done=False, reason=reason, files=listed or tuple(_QUOTED.findall(failed.words)))
        return MoveResult(is_done=True)


def _checkout_of(git: Git, workspace: Workspace) -> str:
    """The worktree that has the branch checked out; empty if none has."""
    place = ""
    for line in os.fsdecode(git.run("worktree", "list", "--porcelain", "-z")).split("\0"):
        if line.startswith("worktree "):
            place = line.removeprefix("worktree ")
        elif line == f"branch refs/heads/{workspace.onto}":
            return os.path.realpath(place)
    return ""


def remember_candidate(workspace: Workspace, target: str) -> None:
    """Record the target before the branch moves, so that the next process can tell whether it moved."""
    write_state(workspace, replace(read_state(workspace), candidate=target))


def forget_candidate(workspace: Workspace) -> None:
    """Work continues in a workspace of which an earlier part was merged."""
    state = read_state(workspace)
    if state.candidate:
        write_state(workspace, replace(state, candidate=""))


def landed_as(workspace: Workspace, *, seconds: float = GIT_SECONDS) -> str:
    """The commit under which its work was merged; empty if it was not. Without a branch of its task, the checked-out one counts."""
    candidate = read_state(workspace).candidate
    with contextlib.suppress(GitFailed):
        onto = f"refs/heads/{workspace.onto}" if workspace.onto else "HEAD"
        if candidate and project_git(workspace, time.monotonic() + seconds).asks("merge-base", "--is-ancestor", candidate, onto):
            return candidate
    return ""


def is_merged(workspace: Workspace, commit: str) -> bool:
    """Whether the project's branch contains all changes of this commit."""
    return rebase(workspace, commit, git_of(workspace).says("rev-parse", "--verify", "HEAD^{commit}")).is_empty


# ---- back to the agent


def begin_return(workspace: Workspace, rebased: RebaseResult, message: str, subject: str, state: str = "") -> None:
    """Record that the work goes back to its agent, on top of `rebased`. `message` is for the agent, `subject` names its commit, `state`
    is the outcome of its merge."""
    tree = rebased.tree or git_of(workspace).says("rev-parse", f"{rebased.tip}^{{tree}}")
    owed = {"name": secrets.token_hex(6), "onto": rebased.onto, "tip": rebased.tip, "tree": tree, "message": message, "subject": subject}
    returning = {**owed, "conflicts": list(rebased.conflicts), "is_placed": False, "state": state}
    write_state(workspace, replace(read_state(workspace), returning=returning, candidate=""))


def subject_of_commit(workspace: Workspace, commit: str) -> str:
    return git_of(workspace).says("log", "-1", "--format=%s", commit)


def rename_return(workspace: Workspace) -> None:
    """Rename a return whose agent was stopped, so that it is handed back again."""
    state = read_state(workspace)
    write_state(workspace, replace(state, returning={**state.returning, "name": secrets.token_hex(6)}))


def finish_return(workspace: Workspace) -> Workspace:
    """Bring the rebased work into the worktree, once; from then on the agent or a person changes it."""
    state = read_state(workspace)
    if state.returning.get("is_placed"):
        return workspace
    onto, tip, tree = (str(state.returning[name]) for name in ("onto", "tip", "tree"))
    with open_git(workspace, seconds=GIT_SECONDS) as git:
        stage_changes(git)
        git.run("read-tree", "--reset", "-u", tree)
        git.run("update-ref", f"refs/heads/{workspace.branch}", tip)
        git.run("symbolic-ref", "HEAD", f"refs/heads/{workspace.branch}")
        with contextlib.suppress(OSError):
            shutil.copy2(workspace.index, workspace.git_dir / "index")
    workspace = write_metadata(replace(workspace, base=onto))
    write_state(workspace, replace(state, tip=tip, baseline=tree, returning={**state.returning, "is_placed": True}))
    return workspace


def end_return(workspace: Workspace, tip: str) -> None:
    """Record that the agent or a person changed the work: `tip` is its new state."""
    write_state(workspace, replace(read_state(workspace), returning={}, tip=tip))


def unresolved(workspace: Workspace, commit: str, files: Sequence[str]) -> tuple[str, ...]:
    """Those of `files` that still contain conflict markers."""
    if not files:
        return ()
    pathspecs = [f":(top,literal){path}" for path in files]
    code, output = git_of(workspace).code("grep", "-l", "-z", "-E", "^(<<<<<<<|>>>>>>>) ", commit, "--", *pathspecs)
    return tuple(os.fsdecode(name).partition(":")[2] for name in output.split(b"\0") if name) if not code else ()


def newest_tip(workspace: Workspace, commits: Sequence[str]) -> str:
    """The last commit of the task: the one it was rebased to, or a later one of these."""
    git, tip = git_of(workspace), read_state(workspace).tip or workspace.base
    for commit in commits:
        with contextlib.suppress(GitFailed):  # a commit that was rebased and pruned
            if git.asks("merge-base", "--is-ancestor", tip, commit):
                tip = commit
    return tip


# ---- a separate tree for acceptance commands


@contextlib.contextmanager
def fresh_worktree(workspace: Workspace, commit: str) -> Iterator[Path]:
    """A temporary worktree of `commit`; yields the folder in it that is the project's root. The caller has locked the queue."""
    folder = work_root(workspace.root) / f"{FRESH}{commit[:12]}-{os.getpid()}"
    git = git_of(workspace)
    _remove_fresh(git, workspace.root, workspace.common_dir)
    with file_lock(workspace.common_dir / REPOSITORY_LOCK, timeout=LOCK_WAIT_SECONDS):
        git.run("worktree", "add", "--quiet", "--detach", str(folder), commit)
    try:
        yield folder / workspace.below if workspace.below else folder
    finally:
        with contextlib.suppress(RemitError, OSError):
            _remove_fresh(git_of(workspace), workspace.root, workspace.common_dir)


def _remove_fresh(git: Git, root: Path, common_dir: Path) -> None:
    """Remove the temporary worktree, also one of a killed process: only one merge runs at a time."""
    left = list(work_root(root).glob(f"{FRESH}*"))
    if not left:
        return
    with file_lock(common_dir / REPOSITORY_LOCK, timeout=LOCK_WAIT_SECONDS):
        for folder in left:
            clear_worktree(git, "", folder, with_branch=False)


def remove_left_worktrees(root: Path) -> None:
    """Remove the temporary worktrees of killed processes, unless a process merges now."""
    if any(work_root(root).glob(f"{FRESH}*")):
        git = Git(folder=root, stop_at=time.monotonic() + GIT_SECONDS)
        with contextlib.suppress(RemitError, OSError):
            common_dir = (root / git.says("rev-parse", "--git-common-dir")).resolve()
            with file_lock(common_dir / QUEUE_LOCK, timeout=0.0):
                _remove_fresh(git, root, common_dir)
