"""Files of a project, as the board reads and writes them: whole, on disk when it is said, with what goes wrong told.

Knows bytes, names and hashes. Used by `board.writeset` and those around it.
"""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from remit.core.errors import Unavailable

LARGEST_BYTES = 256 << 20
"""A board of 5,000 tasks has a hundredth of it."""
NOTHING = ""
"""As a hash: no file."""
_WORTH_KEEPING = range(1 << 16, 32 << 20)
"""Sizes of which the last few are kept with their hashes."""
_KEPT = 4
_hashed: tuple[tuple[bytes, str], ...] = ()
"""A change reads, stages, puts and reads back the same few files: to find that they are the same takes a tenth of hashing them again."""


def hash_of(data: bytes | None) -> str:
    global _hashed
    if data is None:
        return NOTHING
    if len(data) not in _WORTH_KEEPING:
        return hashlib.sha256(data).hexdigest()
    known = next((hashed for one, hashed in _hashed if one == data), None)
    if known is None:
        known = hashlib.sha256(data).hexdigest()
        _hashed = ((data, known), *_hashed[: _KEPT - 1])
    return known


def read_or_none(path: Path) -> bytes | None:
    """Raises `Unavailable` for what is there and cannot be read: also a pipe, which nobody may ever write to, and a device."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb") as opened:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "it is not a file")
            if found.st_size > LARGEST_BYTES:
                raise OSError(errno.EFBIG, f"it has more than {LARGEST_BYTES >> 20} MiB")
            return opened.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unavailable(
            f"{path} cannot be read: {error.strerror}.", code="STORE_UNAVAILABLE", advice="Check what it is, and its permissions."
        ) from error


def target_of(root: Path, path: str) -> Path:
    """A link is followed, so that the file it names is the one replaced."""
    return Path(os.path.realpath(root / path))


def make_folders(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        sync(folder.parent)


def copy_or_link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without links
        shutil.copyfile(source, target)


def write_synced(path: Path, data: bytes, mode: int | None) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        if mode is not None:
            os.fchmod(descriptor, mode)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(folders: Iterable[Path]) -> None:
    for folder in sorted(set(folders)):
        sync(folder)


def sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
