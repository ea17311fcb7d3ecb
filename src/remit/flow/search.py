"""Finding files by walking folders: bounded in time and entries, following no symlink.

Says what lies where; whose work it is, is decided in `harvest`; the demo looks round with it too. Blocking.
"""

import os
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

MAX_ENTRIES = 200_000
SKIPPED_FOLDERS = frozenset(
    {
        ".git", ".hg", ".svn", ".remit", "node_modules", ".venv", "venv", "__pycache__", ".cache", ".tox", ".nox",
        ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".import_linter_cache", ".ipynb_checkpoints", ".gradle",
    }
)  # fmt: skip
"""What tools keep for themselves; nobody's work."""
_LOOK_AT_CLOCK_EVERY = 256


@dataclass(frozen=True, slots=True)
class Found:
    path: str
    """Relative to the folder that was named as the base."""
    size: int
    changed_at: float
    """Wall clock, to the file system's grain."""


@dataclass(slots=True)
class Search:
    found: list[Found] = field(default_factory=list)
    unnameable: int = 0
    """Files whose names are not UTF-8: no return can carry them."""
    entries: int = 0
    stopped_early: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    changed_since: float | None = None
    """Wall clock; None: everything."""
    stop_at: float
    """Monotonic clock."""
    max_entries: int = MAX_ENTRIES
    skipped: frozenset[str] = SKIPPED_FOLDERS


def search(base: Path, below: str, bounds: Bounds) -> Search:
    """Regular files in `base/below` that changed since then. Folders that changed themselves are looked into first."""
    result = Search()
    folders = deque([below])
    while folders and not result.stopped_early:
        folder = folders.popleft()
        try:
            with os.scandir(os.path.join(base, folder)) as entries:
                for entry in entries:
                    if _is_enough(result, bounds):
                        break
                    _consider(entry, os.path.join(folder, entry.name) if folder else entry.name, bounds, result, folders)
        except OSError:
            continue  # removed meanwhile, or not ours to read: what else there is still counts
    return result


def _is_enough(result: Search, bounds: Bounds) -> bool:
    result.entries += 1
    late = result.entries % _LOOK_AT_CLOCK_EVERY == 0 and time.monotonic() > bounds.stop_at
    result.stopped_early = late or result.entries > bounds.max_entries
    return result.stopped_early


def _consider(entry: os.DirEntry[str], path: str, bounds: Bounds, result: Search, folders: deque[str]) -> None:
    try:
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in bounds.skipped:
                recent = bounds.changed_since is not None and entry.stat(follow_symlinks=False).st_ctime >= bounds.changed_since
                (folders.appendleft if recent else folders.append)(path)
        elif entry.is_file(follow_symlinks=False):
            found = entry.stat(follow_symlinks=False)
            # By the time of the last change, not of the last writing: a file that was unpacked, moved here or downloaded
            # may be dated long before, and nobody but the kernel sets this one.
            if bounds.changed_since is None or found.st_ctime >= bounds.changed_since:
                _note(path, found, result)
    except OSError:
        return  # removed between listing and looking


def _note(path: str, found: os.stat_result, result: Search) -> None:
    try:
        path.encode()
    except UnicodeEncodeError:
        result.unnameable += 1
    else:
        result.found.append(Found(path, found.st_size, found.st_ctime))
