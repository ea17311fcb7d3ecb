"""What stood where a new file of a write set was put: kept when it is not what its writer had read, since it is then somebody else's.

Knows no task and no TODO.md. Used by `board.writeset`; `board.saved` looks at what was laid aside.
"""

import contextlib
import errno
import os
import shutil
from pathlib import Path
from typing import Any

from remit.board.files import hash_of, make_folders, read_or_none, target_of
from remit.core.errors import Unavailable
from remit.system.exchanging import name_new

UNTOUCHED = 0
"""When a displaced file was written last, as long as nobody has written to it since."""


def set_aside(root: Path, step: dict[str, Any], staged: Path) -> list[str]:
    """What came out: into its place when it has one, beside the new file when it is not what was expected, else nowhere."""
    came_out = came_out_at(staged) if came_out_at(staged).exists() else staged
    if step["displaced_to"]:
        lay_aside(came_out, root / step["displaced_to"], step["expected"])
        return []
    data = read_or_none(came_out)
    if data is None or step["expected"] is None or hash_of(data) in (step["expected"], step["new"]):
        return []
    kept = kept_beside(came_out, target_of(root, step["path"]).with_name(step["kept_as"]))
    return [f"{step['path']} was changed by somebody else while it was written: their version is kept as {kept.name}."]


def lay_aside(file: Path, place: Path, expected: str) -> None:
    """Keep it there, marked as untouched as long as it is what was expected."""
    with contextlib.suppress(FileNotFoundError, PermissionError):  # another user's: then it is read again each time
        os.utime(file, (UNTOUCHED, UNTOUCHED))  # first: who writes after this is seen by the time, who did before, by the hash
    data = read_or_none(file)
    if data is None:
        return
    if hash_of(data) != expected:
        with contextlib.suppress(PermissionError):
            os.utime(file)
    make_folders(place.parent)
    os.replace(file, place)


def kept_beside(file: Path, wanted: Path) -> Path:
    for number in range(1, 1000):
        place = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            name_new(file, place)
        except FileExistsError:
            continue
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            shutil.copyfile(file, place)
            file.unlink()
        return place
    raise Unavailable(f"Too many files of the name {wanted} are kept already.", code="STATUS_SYNC_FAILED", advice="Look at them.")


def came_out_at(staged: Path) -> Path:
    """Where what was replaced is, when names could not be exchanged."""
    return staged.with_name(f"{staged.name}.out")
