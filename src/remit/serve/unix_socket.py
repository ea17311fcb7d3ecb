"""A Unix socket that a door listens at: for its owner alone, moved to its place whole, removed when it is ours. Knows no protocol.

It is bound in a folder that only we can enter, made ours alone, and moved to its place, which is one step: nobody ever finds it open to
others. What a dead server left is replaced; a living server's socket, and what is no socket, never is. Folders are left as they are.
"""

import contextlib
import errno
import fcntl
import os
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from remit.core.errors import Misused, RemitError, Unavailable
from remit.system.own_folder import make_folder
from remit.system.unix_path import UnixPath

LOCK_SECONDS = 2.0
_BOUND = "s"
_ANSWER_SECONDS = 1.0


class UnixSocket:
    """One that is bound; removed at the end if it is still ours."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._inode = _inode(path)

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            if _inode(self.path) == self._inode:
                self.path.unlink()


def bind_unix(path: Path, listen: Callable[[str], object], door: str) -> UnixSocket:
    """`listen`: takes the name to listen at. Raises `Unavailable` where another server listens, `Misused` for what is no socket."""
    folder = path.parent
    if folder.name == "run" and folder.parent.name == ".remit":  # the project's own, made when it is first needed
        make_folder(folder.parent)
        make_folder(folder)
    with _told(path, door), _one_at_a_time(folder):
        _must_be_free(path, door)
        with tempfile.TemporaryDirectory(prefix=f".{door}-", dir=folder, ignore_cleanup_errors=True) as private:
            bound = Path(private) / _BOUND
            with UnixPath(bound) as short:
                listen(short.name)
            os.chmod(bound, 0o600)
            os.rename(bound, path)
        return UnixSocket(path)


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Two servers that start at once must not both find the place free. Whoever holds a folder of others for ever keeps nobody out."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        end = time.monotonic() + LOCK_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.01)
        yield
    finally:
        os.close(held)


@contextlib.contextmanager
def _told(path: Path, door: str) -> Iterator[None]:
    try:
        yield
    except RemitError:
        raise
    except (OSError, RuntimeError) as error:
        words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        advice = f"Choose another path, in a folder that is yours: [serve] {door}."
        raise Unavailable(f"{path} cannot be listened on: {words}.", code="TOOL_UNAVAILABLE", advice=advice) from None


def _must_be_free(path: Path, door: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Misused(f"{path} is there and is no socket.", advice=f"Choose another path: [serve] {door}.")
    if _answers(path):
        raise Unavailable(
            f"Another server listens at {path}.", code="TOOL_UNAVAILABLE", advice=f"Stop it, or choose another path: [serve] {door}."
        )


def _answers(path: Path) -> bool:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(_ANSWER_SECONDS)
        with UnixPath(path) as short:
            sock.connect(short.name)
    except OSError as error:
        return error.errno not in (errno.ECONNREFUSED, errno.ENOENT)  # a full queue is somebody's
    finally:
        sock.close()
    return True


def _inode(path: Path) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino
