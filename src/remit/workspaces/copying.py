"""Copying a project: what belongs to it, without what tools keep for themselves; bounded in size, links kept as links.

What belongs to it is git's to say where the project is a checkout (tracked, or untracked and not ignored); elsewhere all but the
folders that tools fill.
"""

import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from remit.core.errors import Misused, Unavailable
from remit.workspaces.git import Git, GitFailed

MOST_BYTES = 512 * 1024 * 1024
MOST_FILES = 50_000
TOOL_FOLDERS = frozenset({"node_modules", ".venv", "venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".tox"})
"""Filled by tools, which fill them again."""
_SKIPPED = TOOL_FOLDERS | {".git", ".hg", ".svn", ".remit"}


def copy_project(git: Git, target: Path) -> None:
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
