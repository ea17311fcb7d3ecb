"""Reading the files a diff names, below one folder and nowhere else: no link on the way is followed, nothing but plain files is opened."""

import errno
import os
import stat
from pathlib import Path

from remit.agents.builtin.coder.review.applying import Held
from remit.agents.builtin.coder.review.names import leads_out

FILE_LIMIT_BYTES = 5_000_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_below(root: Path, path: str) -> Held:
    """What stands there. Each part of the name is opened from the one before it, so that nothing can be put in between."""
    why = leads_out(path)
    if why:
        return Held(fault=why)
    *folders, name = path.split("/")
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            below = os.open(folder, _FOLDER, dir_fd=at)
            os.close(at)
            at = below
        return _read(os.open(name, _FILE, dir_fd=at))
    except OSError as error:
        return _held(error)
    finally:
        os.close(at)


def _read(file: int) -> Held:
    with open(file, "rb") as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode):
            return Held(fault="it is no plain file")
        if status.st_size > FILE_LIMIT_BYTES:
            return Held(fault=f"it is too large to be looked at ({status.st_size:,} bytes)")
        held = opened.read(FILE_LIMIT_BYTES + 1)
    return decoded(held)


def decoded(held: bytes) -> Held:
    if len(held) > FILE_LIMIT_BYTES:
        return Held(fault="it is too large to be looked at")
    if b"\0" in held[:8000]:
        return Held(fault="it is binary")
    return Held(text=held.decode("utf-8", "surrogateescape"))


def _held(error: OSError) -> Held:
    if error.errno in (errno.ENOENT, errno.ENAMETOOLONG):
        return Held()
    if error.errno == errno.ENOTDIR:
        return Held(fault="a part of its path is a link or no folder")
    if error.errno == errno.ELOOP:
        return Held(fault="it is a symbolic link")
    return Held(fault=f"it cannot be read ({error.strerror})")
