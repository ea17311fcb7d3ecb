"""TODO.md as people save it, at any moment, in any way: read when it is whole, and never lost when it is displaced (S6.1).

An editor truncates the file and writes it, or writes another and renames it; either may fall into the middle of a change of ours. So a file
that was touched just now is read when it has come to rest, and what a new drawing displaces (`left/`) is looked at again: whoever had it
open may have written there. Each version is merged against the drawing its person began from, of which the last few are kept (`drawn/`).
Knows when and against what to merge; `board.todo` knows how. Used by `board.book`.
"""

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from remit.board.displaced import UNTOUCHED
from remit.board.files import hash_of, read_or_none

QUIET_SECONDS = 0.03
"""A file that nobody has touched for so long is whole."""
LONGEST_WAIT_SECONDS = 1.0
LEFT_SECONDS = 10.0
"""So long a displaced TODO.md is kept for somebody who still writes to it."""
LEFT_AT_MOST = 8
DRAWINGS_KEPT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """TODO.md as somebody left it."""

    data: bytes
    base: str
    """Hash of the drawing they began from."""
    path: Path
    is_displaced: bool = False
    """It is not TODO.md any more."""


def read_at_rest(path: Path, drawn: str) -> bytes | None:
    """The file once nobody is writing it; at once when it is `drawn`. None: there is none."""
    give_up_at = time.monotonic() + LONGEST_WAIT_SECONDS
    while True:
        before = _touched(path)
        data = read_or_none(path)
        if data is not None and hash_of(data) == drawn:
            return data
        is_same = before == _touched(path)
        age = time.time() - before[0] / 1e9
        if (is_same and not 0 <= age < QUIET_SECONDS) or time.monotonic() > give_up_at:
            return data
        time.sleep(QUIET_SECONDS / 3)


def _touched(path: Path) -> tuple[int, int, int]:
    """When it was written last, or, where there is none, when its folder was: a moment ago means that it is being renamed."""
    with contextlib.suppress(OSError):
        found = os.stat(path)
        return found.st_mtime_ns, found.st_size, found.st_ino
    with contextlib.suppress(OSError):
        return os.stat(path.parent).st_mtime_ns, 0, 0
    return 0, 0, 0


# ---- what new drawings displaced


def left_name(drawn: str) -> str:
    return f"{drawn or 'unknown'}-{secrets.token_hex(4)}.md"


def left(folder: Path) -> Iterator[Version]:
    """Displaced versions that are not what they were drawn as, oldest first: a person's."""
    for touched, path in _by_age(folder):
        base = _base_of(path)
        data = None if touched == UNTOUCHED else read_at_rest(path, base)
        if data is not None and data.strip() and hash_of(data) != base:
            yield Version(data=data, base=base, path=path, is_displaced=True)


def sweep_left(folder: Path) -> None:
    """Away with those that nobody wrote to, once they are old or many."""
    found = [(path.stat().st_ctime, touched, path) for touched, path in _by_age(folder)]
    for place, (displaced_at, touched, path) in enumerate(sorted(found)):
        is_old = time.time() - displaced_at > LEFT_SECONDS
        if touched == UNTOUCHED:
            is_theirs = not (is_old or place < len(found) - LEFT_AT_MOST)
        else:
            data = path.read_bytes()
            is_theirs = not is_old or (bool(data.strip()) and hash_of(data) != _base_of(path))
        if not is_theirs:
            path.unlink()


def _base_of(path: Path) -> str:
    return path.name.partition("-")[0]


# ---- what was drawn


def keep_drawing(folder: Path, drawn: str, state: bytes, left_in: Path) -> None:
    """Remember the board that this drawing shows, as long as it is among the last, or something is left that began from it. Not on disk
    for certain, and not where there is no room: without it, a displaced version is kept beside TODO.md."""
    temporary = folder / "new"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)  # it may be a link that came with somebody's project
        with temporary.open("xb") as file:
            file.write(state)
        os.replace(temporary, folder / f"{drawn}.json")
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)  # half of it would be in the way of the change itself
        return
    needed = {_base_of(path) for _, path in _by_age(left_in)}
    for _, path in _by_age(folder)[:-DRAWINGS_KEPT]:
        if path.stem not in needed:
            path.unlink(missing_ok=True)


def drawing(folder: Path, drawn: str) -> bytes | None:
    """The state.json of the board that it shows, if it is remembered."""
    return read_or_none(folder / f"{drawn}.json") if drawn else None


def drawings(folder: Path) -> Iterator[bytes]:
    """All that are remembered, the newest first."""
    for _, path in reversed(_by_age(folder)):
        data = read_or_none(path) if path.suffix == ".json" else None
        if data is not None:
            yield data


def _by_age(folder: Path) -> list[tuple[int, Path]]:
    try:
        with os.scandir(folder) as entries:
            return sorted((entry.stat().st_mtime_ns, Path(entry.path)) for entry in entries if entry.is_file())
    except FileNotFoundError:  # no such folder, or one of them has just gone: then a change is being made, and it is read again
        return []
