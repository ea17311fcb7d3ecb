"""Making a workspace: a git worktree on a branch of its own, or a copy of the project with a small repository beside it.

Either way git finds the changes made in it afterwards (`changes`). An attempt that was not finished is cleared away by the next one. A copy
has the files that belong to the project: in a checkout those that are tracked, or untracked and not ignored; elsewhere all but the folders
that tools fill.
"""

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from remit.core.agents import Workspace
from remit.core.errors import Misused, Unavailable
from remit.runtime.workspaces.changes import TOOL_FOLDERS, stands_at
from remit.runtime.workspaces.workspace import BOOKS, Room, find_room, take_over, work_root, write_note
from remit.system.files import file_lock
from remit.system.git import LOCK_WAIT_SECONDS, REPOSITORY_LOCK, Git, GitFailed, settings_of

MAKING_SECONDS = 120.0
FILE_TICK_SECONDS = 0.012
"""Files are dated by a clock that moves in ticks; after so long it has moved."""
MOST_BYTES = 512 * 1024 * 1024
MOST_FILES = 50_000
_SKIPPED = TOOL_FOLDERS | {".git", ".hg", ".svn", ".remit"}


def open_room(
    root: Path, session_id: str, kind: Workspace, *, earlier: str | None, seconds: float, host: Room | None = None
) -> tuple[Room, bool]:
    """The room of this delegation, made or found again; and whether it was there before.

    `host`: the room that its caller works in. A new one begins from that as it stands, not from the project.

    Raises `Misused` when the project cannot have one, `Unavailable` when git cannot be used or is too slow.
    """
    room = find_room(root, session_id)
    if room is None and earlier is not None:
        room = take_over(root, earlier, session_id)
    if room is not None and room.kind is kind:
        return room, True
    stop_at = time.monotonic() + min(seconds, MAKING_SECONDS)
    tree = work_root(root) / session_id
    (work_root(root) / BOOKS / session_id).mkdir(parents=True, exist_ok=True)
    make = _worktree if kind is Workspace.WORKTREE else _copy
    room = make(root, session_id, tree, stop_at, host)
    room.folder.mkdir(parents=True, exist_ok=True)  # a project that stands in no commit yet has no folder there
    mark = room.books / "made"
    mark.touch()
    room = write_note(replace(room, made_at=mark.stat().st_mtime, host="" if host is None else host.maker))
    time.sleep(FILE_TICK_SECONDS)
    return room, False


def _worktree(root: Path, session_id: str, tree: Path, stop_at: float, host: Room | None) -> Room:
    git = Git(folder=root, stop_at=stop_at)
    try:
        top, common = Path(git.says("rev-parse", "--show-toplevel")), git.says("rev-parse", "--git-common-dir")
    except GitFailed as failed:
        raise _no_repository(root, failed) from None
    base, is_dirty = _head(git) if host is None else (_standing(host, stop_at), False)
    common_dir = (root / common).resolve()
    with file_lock(common_dir / REPOSITORY_LOCK, timeout=min(LOCK_WAIT_SECONDS, max(0.0, stop_at - time.monotonic()))):
        clear_worktree(git, session_id, tree)
        git.run("worktree", "add", "--quiet", "--no-track", "-b", f"remit/{session_id}", str(tree), base)
    git_dir = Path(Git(folder=tree, stop_at=stop_at).says("rev-parse", "--absolute-git-dir"))
    settings = settings_of(git) if host is None else host  # a caller that runs may have changed them
    below = os.path.relpath(root.resolve(), top.resolve())
    room = Room(
        root=root,
        session_id=session_id,
        maker=session_id,
        kind=Workspace.WORKTREE,
        base=base,
        git_dir=git_dir,
        common_dir=common_dir,
        below="" if below == "." else below,
        is_dirty=is_dirty,
        project_git_dir=git.says("rev-parse", "--absolute-git-dir"),
        commands=settings.commands,
        fetching=settings.fetching,
    )
    shutil.copy2(git_dir / "index", room.index)  # with its time: git takes for unchanged only what is older than its index
    return room


def _head(git: Git) -> tuple[str, bool]:
    """What the project has committed last, and whether there is more in it."""
    try:
        base = git.says("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    except GitFailed:
        raise Misused(
            f"{git.folder} is a git checkout without a commit: there is nothing to make a worktree of.",
            advice='Commit something first, or declare the agent with workspace = "copy".',
        ) from None
    more = git.run("status", "--porcelain", "-z", "--untracked-files=normal", "--", ":/", ":(exclude,top,glob)**/.remit/**")
    return base, bool(more)


def _standing(host: Room, stop_at: float) -> str:
    if host.kind is not Workspace.WORKTREE:
        # Its branch would be in the copy's own repository, and gone with it.
        raise Misused(
            f"The caller works in a copy of the project ({host.inside}), and no worktree can be made of a copy.",
            advice='Declare this agent with workspace = "copy" or "shared", or its caller with workspace = "worktree".',
        )
    return stands_at(host, seconds=stop_at - time.monotonic())


def clear_worktree(git: Git, session_id: str, tree: Path) -> None:
    """What an earlier try left under this name."""
    if not tree.exists() and not git.asks("show-ref", "--verify", "--quiet", f"refs/heads/remit/{session_id}"):
        return
    with contextlib.suppress(GitFailed):
        git.run("worktree", "remove", "--force", "--force", str(tree))
    shutil.rmtree(tree, ignore_errors=True)
    git.run("worktree", "prune")
    with contextlib.suppress(GitFailed):
        git.run("branch", "-D", "--quiet", f"remit/{session_id}")


def _copy(root: Path, session_id: str, tree: Path, stop_at: float, host: Room | None) -> Room:
    git_dir = work_root(root) / BOOKS / f"{session_id}.git"
    for left in (tree, git_dir):
        if left.exists():
            shutil.rmtree(left)
    room = Room(
        root=root, session_id=session_id, maker=session_id, kind=Workspace.COPY, base="", git_dir=git_dir, common_dir=git_dir
    )  # fmt: skip
    git = Git(folder=root, stop_at=stop_at)
    if host is not None:
        git = replace(git, folder=host.folder, git_dir=host.git_dir, work_tree=host.tree, index=host.index)
    objects = _objects(git, host)
    _copy_project(git, tree)
    git = Git(folder=tree, stop_at=stop_at)
    git.run("init", "--quiet", "--template=", f"--separate-git-dir={git_dir}", ".")
    if objects is not None:  # what the project's repository holds already is not written again
        (git_dir / "objects" / "info").mkdir(parents=True, exist_ok=True)
        (git_dir / "objects" / "info" / "alternates").write_bytes(os.fsencode(objects) + b"\n")
    git = replace(git, git_dir=git_dir)
    git.using(room.index).run("add", "--all", "--force", "--", ".")
    tree_id = git.using(room.index).says("write-tree")
    base = git.says("commit-tree", tree_id, "-m", "The project as it was copied")
    git.run("update-ref", "HEAD", base)
    shutil.copy2(room.index, git_dir / "index")
    settings = settings_of(git)
    return replace(room, base=base, commands=settings.commands, fetching=settings.fetching)


def _objects(git: Git, host: Room | None) -> Path | None:
    """Where the project's repository keeps what it holds. A copy's own repository will not do: it goes with that copy."""
    if host is not None and host.kind is Workspace.COPY:
        with contextlib.suppress(OSError):
            return Path(os.fsdecode((host.git_dir / "objects" / "info" / "alternates").read_bytes().rstrip(b"\n")))
        return None
    with contextlib.suppress(GitFailed):
        return (git.folder / git.says("rev-parse", "--git-path", "objects")).resolve()
    return None


def _no_repository(root: Path, failed: GitFailed) -> Misused:
    if "not a git repository" in failed.words:
        return Misused(
            f"{root} is not a git checkout, so no worktree can be made of it.",
            advice='Run `git init` and commit, or declare the agent with workspace = "copy".',
        )
    return Misused(
        f"git cannot make a worktree of {root}: {failed.message}", advice='Mend that, or declare the agent with workspace = "copy".'
    )


# ---- copying


def _copy_project(git: Git, target: Path) -> None:
    """Copy the folder that `git` stands in to `target`."""
    root = git.folder
    try:
        names = [os.fsdecode(name) for name in git.run("ls-files", "-z", "-co", "--exclude-standard").split(b"\0") if name]
    except GitFailed:
        names = None
    target.mkdir(parents=True)
    _copy_all(root, target, _walk(root) if names is None else dict.fromkeys(names), git.stop_at)


def _copy_all(root: Path, target: Path, names: Iterable[str], stop_at: float) -> None:
    count = size = 0
    for name in names:
        if ".remit" in name.split("/"):
            continue
        try:
            found = os.lstat(root / name)
        except OSError:
            continue  # deleted and not committed, or gone meanwhile
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
            continue  # a submodule, a pipe, a socket: nothing that can be copied
        count, size = count + 1, size + found.st_size
        if count > MOST_FILES or size > MOST_BYTES:
            raise Misused(
                f"The project is too large to be copied: more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB.",
                advice='Ignore what need not be copied (.gitignore), or declare the agent with workspace = "worktree".',
            )
        if time.monotonic() > stop_at:
            raise Unavailable("The project could not be copied in the time there was.", advice="Give the delegation a longer timeout.")
        _copy_one(root / name, target / name)


def _copy_one(source: Path, target: Path) -> None:
    """With its times: what the agent did not touch is as old as it was."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copy2(source, target, follow_symlinks=False)
    except FileNotFoundError:
        return  # gone meanwhile
    except OSError as error:
        raise Unavailable(f"{source} could not be copied: {error.strerror or error}.", advice="Make it readable, or ignore it.") from None


def _walk(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and name not in links)
        for name in sorted((*files, *links)):
            if name not in _SKIPPED:
                yield os.path.relpath(os.path.join(folder, name), root)
