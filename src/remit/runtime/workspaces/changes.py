"""What was changed in a room: the diff against what it began from, and, in a worktree, a commit on its branch, so that nothing is lost.

Taken with an index of our own: whatever the agent did to git's (staged, locked, damaged, switched branches) does not matter.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from remit.core.agents import Workspace
from remit.core.errors import Unavailable
from remit.runtime.workspaces.workspace import LOCK, Room
from remit.system.files import file_lock
from remit.system.git import Git, GitFailed, Settings, held

TOOL_FOLDERS = frozenset({"node_modules", ".venv", "venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".tox"})
"""Filled by tools, which fill them again."""
_CACHES = tuple(f":(exclude,glob)**/{name}/**" for name in ("__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"))
"""Never part of an agent's work, whether or not the project ignores them."""
DIFF = "changes.diff"
TAKING_SECONDS = 60.0
_SUBMODULE = "160000"
_PLAIN_DIFF = (
    "--no-color", "--no-ext-diff", "--no-textconv", "--no-relative", "--submodule=short", "--src-prefix=a/", "--dst-prefix=b/",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    changed: tuple[str, ...] = ()
    """Files added, changed or renamed, as they stand in the room, relative to its tree."""
    count: int = 0
    """Of files changed, the deleted ones too."""
    diff: Path | None = None
    commit: str | None = None
    """On the room's branch; the base itself when nothing changed."""
    warnings: tuple[str, ...] = ()
    doubt: str = ""
    """Why it must not be merged without being looked at: continues "could not be merged: "."""


def take_changes(room: Room, *, message: str, diff_in: Path | None, seconds: float = TAKING_SECONDS) -> Changes:
    """Write the diff into `diff_in`, commit the changes on the branch, and say what they are. Nothing is removed or merged."""
    with opened(room, seconds=seconds) as git:
        warnings = stage(git)
        entries = list(_entries(git.run("diff", "--cached", "--raw", "-z", "--no-renames", "--no-abbrev", room.base)))
        diff = _write_diff(git, room, diff_in) if entries and diff_in is not None else None
        commit = _commit(git, room, message) if room.kind is Workspace.WORKTREE else None
    if any(mode == _SUBMODULE for mode, _, _ in entries):
        warnings += ("A repository inside the workspace is in the diff as a reference only; its files are in the folder.",)
    doubt = "nothing of it could be taken" if warnings and not entries else ""
    if git.overrides:
        names = ", ".join(name for name, _ in git.overrides[:3])
        doubt = f"settings by which git runs commands were changed meanwhile ({names})"
        warnings += (f"Settings by which git runs commands were changed meanwhile, and not used: {names}.",)
    changed = tuple(path for _, status, path in entries if status != "D")
    return Changes(changed=changed, count=len(entries), diff=diff, commit=commit, warnings=warnings, doubt=doubt)


@contextlib.contextmanager
def opened(room: Room, *, seconds: float) -> Iterator[Git]:
    """Git in the room, with our own index; nobody else of us is in it meanwhile."""
    if not room.is_there:
        raise Unavailable("The workspace is no longer there: its folder was removed or replaced.", advice="Delegate it again.")
    git = Git(folder=room.tree, stop_at=time.monotonic() + seconds, git_dir=room.git_dir, index=room.index)
    with file_lock(room.books / LOCK, timeout=max(0.0, seconds)):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{room.index}.lock").unlink()  # ours alone: left by a run that was killed
        yield held(git, Settings(room.commands, room.fetching))


def stands_at(room: Room, *, seconds: float) -> str:
    """A commit of the room as it stands, on no branch: what a room inside it begins from. The agent's own git sees nothing of it."""
    with opened(room, seconds=seconds) as git:
        stage(git)
        return _commit_of(git, room, f"{room.maker}: as it stood")


def stage(git: Git) -> tuple[str, ...]:
    """Everything as it stands, into our index; what could not be read is a warning."""
    try:
        git.run("add", "--all", "--", ".", *_CACHES)
    except GitFailed as failed:
        if "not a git repository" in failed.words:
            raise Unavailable(f"What git keeps of the workspace was damaged or removed ({git.git_dir}).") from None
        # A file that cannot be read, a repository without a commit inside: the rest still counts.
        git.run("add", "--all", "--ignore-errors", "--", ".", *_CACHES, allowed=(0, 1, 128))
        return (f"Not everything is in the diff: {failed.message}",)
    return ()


def _entries(raw: bytes) -> Iterator[tuple[str, str, str]]:
    """New mode, status letter and path of each line of a raw diff."""
    parts = iter(raw.split(b"\0"))
    for head in parts:
        if head:
            _, mode, _, _, status = head.decode().split(" ")
            yield mode, status[0], os.fsdecode(next(parts))


def _write_diff(git: Git, room: Room, folder: Path) -> Path:
    """Whole or not at all, and never over a file of the agent's."""
    draft = room.books / DIFF
    with open(draft, "wb") as file:
        git.run("diff", "--cached", "--binary", "--find-renames", *_PLAIN_DIFF, room.base, stdout=file)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for number in range(1, 1000):
            name = DIFF if number == 1 else f"changes-{number}.diff"
            with contextlib.suppress(FileExistsError):
                os.link(draft, name, dst_dir_fd=descriptor)
                return folder / name
    finally:
        os.close(descriptor)
        draft.unlink()
    raise Unavailable(f"{folder} holds a thousand diffs.")


def is_recorded_diff(path: str) -> bool:
    """Whether an artifact is the diff of a workspace, by its name."""
    name = path.rpartition("/")[2]
    return path.startswith(".remit/") and name.startswith("changes") and name.endswith(".diff")


def _commit(git: Git, room: Room, message: str) -> str:
    """The tree as it stands, on the room's branch."""
    commit = _commit_of(git, room, message)
    git.run("update-ref", f"refs/heads/{room.branch}", commit)
    with contextlib.suppress(OSError):  # whoever looks into the folder afterwards sees a clean checkout
        shutil.copy2(room.index, room.git_dir / "index.remit")
        os.replace(room.git_dir / "index.remit", room.git_dir / "index")
    return commit


def _commit_of(git: Git, room: Room, message: str) -> str:
    """Of what is staged; what the agent committed itself stays in its history."""
    tree = git.says("write-tree")
    parent = room.base
    with contextlib.suppress(GitFailed):  # a HEAD that leads nowhere, or into another history, is not gone on from
        if git.asks("merge-base", "--is-ancestor", room.base, "HEAD"):
            parent = git.says("rev-parse", "--verify", "HEAD^{commit}")
    if git.says("rev-parse", f"{parent}^{{tree}}") == tree:
        return parent
    return git.says("commit-tree", tree, "-p", parent, "-m", message)
