"""Whether the agent files of a project have changed since they were read: names, sizes, times and inodes of what lies in their folders.

Reads no file; `agents.files` does. Cheap enough to be asked whenever agents are listed; used by `agents.directory`.
"""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR

FOLDERS = (".remit/agents", ".claude/agents", ".opencode/agent", ".opencode/agents")
"""Where agent files are looked for. When two agents have one name, the settings come first, then these in order."""
OWN = FOLDERS[0]
SETTINGS = ("remit.toml", "pyproject.toml")
MOST_FILES = 1000
MOST_FOLDERS = 500
"""Nobody keeps agents in more; whoever puts a whole disk there is not waited for."""
_RECENT_NS = 100_000_000
"""What was written so shortly before it was looked at may be written again in the same tick of the file system's clock."""

_WRITING_NS = 500_000_000
"""Whoever writes a file in place has ended by then, on a busy machine too."""

Facts = tuple[str, int, int, int, int]
Fault = Callable[[str, str, bool], None]
"""Where, what, and whether what lies there could not be looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What lay there at a moment."""

    files: tuple[Facts, ...]
    is_settled: bool
    """False: some of it is so new that another change might not show."""


def look(root: Path, also: Iterable[Path] = ()) -> Look:
    """At the agent files of a project, its settings, and `also`."""
    now = time.time_ns()
    paths = [path for folder in FOLDERS if _is_ours(str(root), folder) for path in pages_below(f"{root}/{folder}")]
    paths += [f"{root}/{name}" for name in SETTINGS]
    paths += map(str, also)
    files = tuple(found for path in paths if (found := _facts(path)) is not None)
    newest = max((changed_at for *_, changed_at in files), default=0)  # which nobody can set, as they can the time of writing
    return Look(files=files, is_settled=not 0 <= now - newest <= _RECENT_NS)


def _is_ours(root: str, folder: str) -> bool:
    """Whether it is there, and no link that leads out of the project. Raises nothing."""
    above = folder.partition("/")[0]
    try:
        if S_ISDIR(os.lstat(f"{root}/{above}").st_mode) and S_ISDIR(os.lstat(f"{root}/{folder}").st_mode):
            return True  # no link at all, as nearly always
        return Path(root, folder).resolve(strict=True).is_relative_to(Path(root).resolve())
    except (OSError, RuntimeError):
        return False


def may_be_written(path: Path) -> bool:
    """Whether it was changed so shortly ago that whoever writes it may be in the middle of it."""
    found = _facts(str(path))
    return found is not None and 0 <= time.time_ns() - found[-1] <= _WRITING_NS


def settled_facts(path: Path) -> Facts | None:
    """By which it is known again as long as it is not changed; None: it is gone, or so new that another change might not show."""
    found = _facts(str(path))
    return None if found is None or 0 <= time.time_ns() - found[-1] <= _RECENT_NS else found


def pages_below(folder: str, tell: Fault = lambda _place, _fault, _is_unread: None) -> list[str]:
    """The Markdown files in and below a folder, in order of their names; our own folder has none below it. Ends beyond `MOST_FILES`."""
    found: list[str] = []
    waiting = [folder]
    seen = 0
    while waiting and len(found) <= MOST_FILES:
        place = waiting.pop(0)
        seen += 1
        if seen > MOST_FOLDERS:
            tell(folder, f"it holds more than {MOST_FOLDERS} folders; the others are not looked into", False)
            break
        try:
            below = _listed(place, found)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            tell(place, f"it cannot be read: {error.strerror or error}", True)
            continue
        if not place.endswith(OWN):
            waiting[:0] = below
    return found


def _listed(place: str, found: list[str]) -> list[str]:
    """The folders in a folder; its Markdown files are put to those that were `found`. Raises `OSError`."""
    below, pages = [], []
    with os.scandir(place) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False):
                below.append(entry.path)
            elif entry.name.endswith(".md") and not entry.name.startswith(("_", ".")):
                pages.append(entry.path)
    found += pages
    return below


def _facts(path: str) -> Facts | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return path, found.st_mtime_ns, found.st_size, found.st_ino, found.st_ctime_ns
