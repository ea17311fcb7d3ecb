"""Files of remit's own: written atomically, appended, locked, set aside; private folders, and short paths for sockets."""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from remit.core.errors import Unavailable

FIRST_WAIT_SECONDS = 0.001
LONGEST_WAIT_SECONDS = 0.02


def atomic_write(path: Path, data: bytes, *, fsync: bool = True) -> None:
    """Put `data` at `path`: a reader, or a crash at any moment, finds the old file or the new one, never a part.

    Permissions of an existing file are kept; a link is followed, so that the file it names is the one replaced.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        _write_new(temporary, data, mode=_mode_of(target), fsync=fsync)
        os.replace(temporary, target)
        if fsync:
            _sync_folder(target.parent)
    except OSError as error:
        raise _cannot("write", path, error) from error
    finally:
        with contextlib.suppress(OSError):  # gone when all went well; if it cannot be removed, the first error matters more
            temporary.unlink()


def append_line(path: Path, line: bytes) -> None:
    """Add one or more whole lines, on disk when this returns. Callers hold a lock of their own."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            _write_all(descriptor, line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _cannot("write", path, error) from error


@contextlib.contextmanager
def file_lock(path: Path, *, timeout: float) -> Iterator[None]:
    """Hold the lock that `path` stands for, against other processes and other threads; wait at most `timeout` seconds.

    The kernel frees it when its holder dies. The file stays: removing it would let two holders lock two files of one name.
    """
    try:
        descriptor = _acquire(path, time.monotonic() + timeout)
    except OSError as error:
        raise _cannot("lock", path, error) from error
    if descriptor is None:
        raise Unavailable(
            f"{path} is locked by {_holder(path)}; waited {timeout:g} s.",
            code="STORE_UNAVAILABLE",
            advice="Try again when it has finished.",
        )
    try:
        yield
    finally:
        # Unlocked by name and not only closed: a child forked meanwhile holds the same open file and would keep the lock.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def write_beside(folder: Path, name: str, data: bytes) -> Path:
    """A new file in a folder that others write to: never through a link, a pipe or an existing file that lies in wait there."""
    stem, dot, suffix = name.partition(".")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for number in range(1, 1000):
            chosen = name if number == 1 else f"{stem}-{number}{dot}{suffix}"
            try:
                file = os.open(chosen, flags, 0o644, dir_fd=descriptor)
            except FileExistsError:
                continue
            with os.fdopen(file, "wb") as opened:
                opened.write(data)
            return folder / chosen
    finally:
        os.close(descriptor)
    raise FileExistsError(f"{folder} holds a thousand of {name}")


def set_aside(path: Path, *, at: float | None = None) -> Path:
    """Rename a damaged file to NAME.damaged-YYYYmmddTHHMMSS (UTC) beside it; nothing is ever overwritten. The new name."""
    moment = datetime.fromtimestamp(time.time() if at is None else at, UTC).strftime("%Y%m%dT%H%M%S")
    for attempt in range(1, 1000):
        target = path.with_name(f"{path.name}.damaged-{moment}" + (f"-{attempt}" if attempt > 1 else ""))
        try:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))  # the name is ours from here on
        except FileExistsError:
            continue
        except OSError as error:
            raise _cannot("set aside", path, error) from error
        try:
            os.replace(path, target)
        except OSError as error:
            target.unlink()
            raise _cannot("set aside", path, error) from error
        return target
    raise Unavailable(f"{path} cannot be set aside: too many damaged copies of this second stand beside it.", code="STORE_UNAVAILABLE")


def _acquire(path: Path, give_up_at: float) -> int | None:
    """An open, locked descriptor; None when time ran out."""
    wait = FIRST_WAIT_SECONDS
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _still_named(descriptor, path):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, str(os.getpid()).encode(), 0)
                return descriptor
        except BlockingIOError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        left = give_up_at - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(wait, left))
        wait = min(wait * 2, LONGEST_WAIT_SECONDS)


def _still_named(descriptor: int, path: Path) -> bool:
    """Whether the locked file is the one others find at `path`: somebody may have removed it between open and lock."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (mine.st_dev, mine.st_ino) == (found.st_dev, found.st_ino)


def _holder(path: Path) -> str:
    try:
        pid = path.read_text(errors="replace").strip()
    except OSError:
        pid = ""
    return f"process {pid}" if pid.isdigit() else "another process"


def _mode_of(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return None


def _write_new(path: Path, data: bytes, *, mode: int | None, fsync: bool) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        if mode is not None:
            os.fchmod(descriptor, mode)
        _write_all(descriptor, data)
        if fsync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cannot(verb: str, path: Path, error: OSError) -> Unavailable:
    return Unavailable(
        f"Cannot {verb} {path}: {error.strerror or error}.",
        code="STORE_UNAVAILABLE",
        advice="Check free space and permissions of its folder; nothing was changed.",
    )


_IGNORED = """\
# made by remit: what runs here is not for the repository; agents, commands, the policy and assistant.md are
*
!.gitignore
!agents/
!agents/**
!commands/
!commands/**
!context/
!context/**
!policy.*
!assistant.md
"""


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text(_IGNORED)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        fault, advice = f"cannot be used: {error.strerror}", "Make the project folder writable, or work in a copy of it."
        if folder.is_file():
            fault, advice = "is a file, and remit keeps a folder of that name", f"Move it: mv {folder} {folder}.old"
        raise Unavailable(f"{folder} {fault}.", code="STORE_UNAVAILABLE", advice=advice) from None


LONGEST_BYTES = 107


class UnixPath:
    __slots__ = ("_folder", "name")

    def __init__(self, path: Path) -> None:
        """Raises `OSError` where its folder is needed and is not there."""
        self._folder: int | None = None
        self.name = str(path)
        if len(os.fsencode(path)) > LONGEST_BYTES:
            self._folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self.name = f"/proc/self/fd/{self._folder}/{path.name}"

    def close(self) -> None:
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None

    def __enter__(self) -> "UnixPath":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def as_target(name: str) -> str:
    """As gRPC is told it: it reads a percent sign as the beginning of an escape, and would listen or knock elsewhere."""
    return f"unix:{name.replace('%', '%25')}"
