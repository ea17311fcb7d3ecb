"""Claims: which process works on a task. One live process at a time, with a time limit.

A claim is a locked file that names its holder. The kernel releases the lock when the holder dies; the text decides if a child process
inherited the lock, or the holder exceeds its time. A claim taken over by another process gets a new file; the old one is unlinked.
Blocking, but briefly. Taken before a command marks its task in progress, released when the command has settled it."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path

from remit.board import write_set
from remit.board.board import Board
from remit.core.errors import Refused, Unavailable
from remit.system.beneath import open_regular
from remit.system.files import file_lock, make_folder
from remit.system.processes import ProcessIdentity

_LAST_TIME = 1e11
"""Times above it are invalid."""
GUARD_SECONDS = 10.0
"""Claims of a board are taken and released one at a time; each takes a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder(ProcessIdentity):
    """The process that works on a task."""

    number: int
    command: str
    since: float
    expires_at: float
    """Wall clock. Afterwards the claim counts as abandoned even if its process lives: it must be hanging."""
    session_id: str = ""


@dataclass(slots=True)
class Claim:
    """A claim of this process."""

    holder: Holder
    _board: Board = field(repr=False)
    _lock: int = field(repr=False)
    """Descriptor of the locked file."""

    def name_session(self, session_id: str) -> None:
        """Set the delegation that does the work, so that others can wait for it or cancel it."""
        self.holder = replace(self.holder, session_id=session_id)
        with _guard(self._board):
            _write(self._lock, self.holder)

    @property
    def is_lost(self) -> bool:
        """Beyond its time, and taken by another process since: writing now would overwrite its work.

        An agent may have deleted the file: within its time the claim is valid as long as no other process has one."""
        path = lock_file(_folder(self._board), self.holder.number)
        with contextlib.suppress(OSError):
            return not os.path.samestat(os.fstat(self._lock), os.stat(path))
        return self._board.clock.wall() >= self.holder.expires_at

    def _release(self) -> None:
        try:
            with _guard(self._board):
                if not self.is_lost:
                    lock_file(_folder(self._board), self.holder.number).unlink(missing_ok=True)
        finally:
            # Unlock, not only close: a child forked meanwhile has the same open file and would keep the lock.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)


@contextlib.contextmanager
def claim(board: Board, number: int, command: str, *, seconds: float) -> Iterator[Claim]:
    """Claim the task during the block. Raises `Refused` with the holder and advice."""
    make_folder(board.root / ".remit")
    write_set.make_ready(_folder(board), board.root)
    now = board.clock.wall()
    holder = Holder(number=number, command=command, since=now, expires_at=now + seconds)
    with _guard(board):
        lock = _locked(_folder(board), number, now)
        try:
            _write(lock, holder)
        except BaseException:
            os.close(lock)
            raise
    held = Claim(holder=holder, _board=board, _lock=lock)
    try:
        yield held
    finally:
        held._release()


def holder_of(board: Board, number: int) -> Holder | None:
    """The process that works on it; None: none does, or it is dead or beyond its time."""
    path = lock_file(_folder(board), number)
    holder = _read(path, number)
    if holder is None or holder.is_dead or board.clock.wall() >= holder.expires_at:
        return None
    with contextlib.suppress(FileNotFoundError):
        lock = try_lock(path, os.O_RDWR)
        if lock is None:
            return holder
        os.close(lock)
    return None


def holders(board: Board) -> dict[int, Holder]:
    """Holders of all claimed tasks."""
    with contextlib.suppress(FileNotFoundError):
        numbers = sorted(int(path.stem) for path in _folder(board).iterdir() if path.suffix == ".lock" and path.stem.isdigit())
        return {number: holder for number in numbers if (holder := holder_of(board, number)) is not None}
    return {}


def lock_file(folder: Path, number: int) -> Path:
    return folder / f"{number:03d}.lock"


def _locked(folder: Path, number: int, now: float) -> int:
    """Descriptor of its locked file; else `Refused`. Under the guard."""
    path = lock_file(folder, number)
    lock = try_lock(path)  # whatever the file says, no process has the lock
    if lock is None:
        holder = _read(path, number)
        if holder is None or not (holder.is_dead or now >= holder.expires_at):
            raise _refused(path, number, holder)
        path.unlink(missing_ok=True)
        lock = try_lock(path)
    if lock is None:
        raise _refused(path, number, None)
    return lock


def _refused(path: Path, number: int, holder: Holder | None) -> Refused:
    words, stop = f"Task {number} is being worked on by another process.", f"if no process runs: rm {path}"
    if holder is not None:
        when = datetime.fromtimestamp(holder.since, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
        where = "" if holder.host == os.uname().nodename else f" on {holder.host}"
        words = f"Task {number} is being worked on by `remit {holder.command}` (process {holder.pid}{where}) since {when}."
        stop = f"stop it with `remit cancel {holder.session_id}`" if holder.session_id else f"stop process {holder.pid}"
    return Refused(words, code="INVALID_OPERATION", advice=f"Wait until it has ended, or {stop}.")


def try_lock(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int | None:
    """Descriptor of the locked file; None: another process has the lock. The kernel releases it when its holder dies."""
    try:
        descriptor = open_regular(path, flags)
    except FileNotFoundError:
        raise
    except OSError as error:  # also a link that came with a cloned project
        raise Unavailable(f"{path} cannot be opened: {error.strerror}.", code="STORE_UNAVAILABLE", advice="Remove it.") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _guard(board: Board) -> contextlib.AbstractContextManager[None]:
    return file_lock(board.folder / "claims.lock", timeout=GUARD_SECONDS)


def _folder(board: Board) -> Path:
    return board.folder / "tasks"


def _read(path: Path, number: int) -> Holder | None:
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        data = json.loads(path.read_bytes())
        holder = Holder(pid=data["pid"], **{one.name: data[one.name] for one in fields(Holder) if one.name in data and one.name != "pid"})
        times = (holder.since, holder.expires_at)
        words = (holder.command, holder.session_id, holder.pid_started, holder.pid_space, holder.host)
        if type(holder.pid) is int and all(isinstance(one, str) for one in words) and all(0 <= one < _LAST_TIME for one in times):
            return replace(holder, number=number)
    return None


def _write(lock: int, holder: Holder) -> None:
    """One padded write: a reader without the guard must not see parts of an older text."""
    os.ftruncate(lock, os.pwrite(lock, json.dumps(asdict(holder)).encode().ljust(1024), 0))
