"""What changed in the checkout while an agent worked, and is not named in its return: told, and never swept into a commit.

It may be the agent's, which forgot to name it, or anybody else's. Git is asked before and after; outside of git nothing is told.
Blocking.
"""

import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from remit.board.commits import find_repository
from remit.core.errors import RemitError
from remit.workspaces.copying import TOOL_FOLDERS

LOOKING_SECONDS = 20.0
NAMES_SHOWN = 10
_OURS = (".remit/", "specs/")
"""Of remit itself: a command on another task may write there at any time. The task's own folder is looked at all the same."""

Sight = Mapping[str, tuple[int, int]]
"""Each file that git does not have as it stands, with its size and time; a file that is gone with (-1, -1)."""


def sight(root: Path, own: str) -> Sight | None:
    """`own`: the task's folder. None: there is no git here, or it did not answer in time."""
    try:
        repository = find_repository(root, time.monotonic() + LOOKING_SECONDS)
        if repository is None:
            return None
        told = repository.git.run("--no-optional-locks", "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames")
    except (RemitError, OSError):
        return None
    below = repository.prefix
    names = [os.fsdecode(entry[3:]) for entry in told.split(b"\0") if len(entry) > 3]
    inside = [name.removeprefix(below) for name in names if name.startswith(below)]
    return {name: _stamp(root / name) for name in inside if _counts(name, own)}


def unnamed(root: Path, own: str, before: Sight | None, named: Collection[str]) -> tuple[str, ...]:
    """Files that are otherwise than before and that nobody named."""
    after = sight(root, own) if before is not None else None
    if before is None or after is None:
        return ()
    return tuple(sorted(name for name, stamp in after.items() if before.get(name) != stamp and name not in named))


def untouched(root: Path, before: Sight | None, named: Collection[str]) -> tuple[str, ...]:
    """Files that somebody had changed before and that stand as they stood: what is uncommitted in them is not the agent's."""
    return tuple(sorted(name for name in named if before is not None and name in before and before[name] == _stamp(root / name)))


def warning_of(names: Collection[str]) -> str:
    shown = sorted(names)
    more = f" and {len(shown) - NAMES_SHOWN} more" if len(shown) > NAMES_SHOWN else ""
    return f"Changed meanwhile, not named by the agent, and left uncommitted: {', '.join(shown[:NAMES_SHOWN])}{more}."


def _counts(name: str, own: str) -> bool:
    """What tools fill again by themselves (compiled files, caches) is nobody's work."""
    if not TOOL_FOLDERS.isdisjoint(name.split("/")[:-1]):
        return False
    return not name.startswith(_OURS) or name.startswith(f"{own}/")


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.lstat()
    except OSError:
        return (-1, -1)
    return found.st_size, found.st_mtime_ns
