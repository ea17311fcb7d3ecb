"""Owners: the processes that use a project, how one knows that another is dead, and how one taps it on the shoulder.

A process is identified by pid and start time within its pid namespace; from another namespace (a container sharing the folder), a
named pipe tells: it has a reader as long as its owner lives. The same pipe is the bell that makes an owner look for cancel requests.
"""

import asyncio
import contextlib
import errno
import os
import secrets
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from remit.core.clock import Clock
from remit.core.record import Owner
from remit.system.processes import is_alive, pid_space, process_start


def this_owner(clock: Clock) -> Owner:
    pid = os.getpid()
    return Owner(
        owner_id=f"{pid}-{secrets.token_hex(4)}",
        pid=pid,
        pid_started=process_start(pid) or "",
        pid_space=pid_space(),
        host=socket.gethostname(),
        opened_at=clock.wall(),
    )


_closed: set[str] = set()
"""Owners of this process that closed and still stand in the store, because they could not write everything."""


def note_closed(owner_id: str) -> None:
    """This one runs nothing any more, although its process lives."""
    _closed.add(owner_id)


def is_dead(owner: Owner, run_folder: Path) -> bool:
    """Whether nobody can be running its delegations any more. In doubt it lives: nobody takes over what a living one runs."""
    if owner.owner_id in _closed:
        return True
    if owner.pid_space == pid_space():
        return not is_alive(owner.pid, owner.pid_started)
    return owner.host == socket.gethostname() and not _has_reader(bell_path(run_folder, owner.owner_id))


def bell_path(run_folder: Path, owner_id: str) -> Path:
    return run_folder / f"{owner_id}.bell"


def _has_reader(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        return error.errno not in (errno.ENXIO, errno.ENOENT)
    return True


def ring(run_folder: Path, owner_id: str) -> bool:
    """Make the owner look for requests now; whether somebody was there to hear it."""
    try:
        bell = os.open(bell_path(run_folder, owner_id), os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    with contextlib.suppress(OSError):
        os.write(bell, b"!")
    os.close(bell)
    return True


class Bell:
    """Our own bell: calls `answer` on the loop whenever it is rung."""

    def __init__(self, run_folder: Path, owner_id: str, answer: Callable[[], None]) -> None:
        self._path = bell_path(run_folder, owner_id)
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        run_folder.mkdir(parents=True, exist_ok=True)
        made = self._path.with_suffix(".new")  # until it has a reader it looks like a dead one's, which others sweep away
        os.mkfifo(made, 0o600)
        # Open for both, so that the pipe never reports its end when a ringer goes away.
        self._file = os.open(made, os.O_RDWR | os.O_NONBLOCK)
        made.rename(self._path)
        self._loop.add_reader(self._file, self._rung)

    def _rung(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._file, 4096)
        self._answer()

    def close(self) -> None:
        self._loop.remove_reader(self._file)
        os.close(self._file)
        self._path.unlink(missing_ok=True)


def sweep_bells(run_folder: Path) -> None:
    """Remove bells that dead processes left, and the sockets beside them."""
    if not run_folder.is_dir():
        return
    for path in run_folder.glob("*.bell"):
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(path.stat().st_mode) and not _has_reader(path):
                path.unlink(missing_ok=True)
                path.with_suffix(".sock").unlink(missing_ok=True)
