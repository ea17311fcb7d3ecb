"""Files that nobody but their owner reads: 0600, in a folder of 0700, written whole or not at all. Used by everything that is kept here.

Who could change such a file could let anybody in, so one that belongs to somebody else, or that others may write to, is not believed.
"""

import contextlib
import os
import secrets
import stat
from pathlib import Path

from remit.core.errors import Refused, Unavailable

FOLDER = "access"
"""Below `.remit`."""
LARGEST_BYTES = 16 * 1024 * 1024
_OTHERS = 0o077


def private_folder(path: Path) -> Path:
    """Made if need be. One that others can look into is closed to them, when it is ours."""
    try:
        path.mkdir(mode=0o700, exist_ok=True, parents=True)
        found = os.stat(path, follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise Refused(f"{path} is not a folder of yours.", code="FORBIDDEN", advice="Move it away; remit makes its own.")
        if found.st_mode & _OTHERS:
            os.chmod(path, 0o700)
    except OSError as error:
        raise _cannot("use", path, error) from error
    return path


def read_private(path: Path) -> bytes | None:
    """What it holds; None: there is none. Raises `Refused` for one that others can read or write, or that is not ours."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _cannot("read", path, error) from error
    with os.fdopen(descriptor, "rb") as opened:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & _OTHERS:
            raise Refused(
                f"{path} is open to others: whoever read it may use it, whoever wrote it may let anybody in.",
                code="FORBIDDEN",
                advice=f"Remove it, and make what was in it anew; or, if nobody else was there: chown $USER {path} && chmod 600 {path}",
            )
        return opened.read(LARGEST_BYTES)


def write_private(path: Path, data: bytes, *, fsync: bool = True) -> None:
    """A reader, or a crash at any moment, finds the old file or the new one; never a part, and never one that others can read."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(data)
            opened.flush()
            if fsync:
                os.fsync(descriptor)
        os.replace(temporary, path)
    except OSError as error:
        raise _cannot("write", path, error) from error
    finally:
        with contextlib.suppress(OSError):  # gone when all went well
            temporary.unlink()


def stamp_of(path: Path) -> tuple[int, ...] | None:
    """Changes with whatever is written there: one call of the system, so that it can be asked for at every request."""
    try:
        seen = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size, seen.st_ino, seen.st_mode, seen.st_uid


def _cannot(verb: str, path: Path, error: OSError) -> Unavailable:
    return Unavailable(
        f"Cannot {verb} {path}: {error.strerror or error}.", code="STORE_UNAVAILABLE", advice="Check its permissions, and free space."
    )
