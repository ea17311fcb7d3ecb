"""Claims: who works on a task now. One at a time, held by a living process, with an end; a dead holder's claim is nobody's (S6.1).

A claim is a locked file, which the kernel frees when its holder dies, and a note beside it that says who holds it: the note decides where a
child process has inherited the lock, or its holder hangs beyond its time; the lock decides where the holder's pid says nothing here.
Blocking, but never for long. Taken before a command marks its task in progress, released when it has settled it.
"""

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path

from remit.board.board import Board
from remit.core.errors import Refused, Unavailable
from remit.system.files import atomic_write, file_lock
from remit.system.own_folder import make_folder
from remit.system.processes import is_alive, pid_space, process_start

_LAST_TIME = 1e11
"""Above it, a time is none."""
GUARD_SECONDS = 10.0
"""The claims of a board are taken and released one at a time; each takes a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who has a task."""

    number: int
    command: str
    pid: int
    since: float
    expires_at: float
    """Wall clock. Beyond it the claim counts as given up even if its process lives: it can only have hung."""
    session_id: str = ""
    pid_started: str = ""
    pid_space: str = ""
    host: str = ""
    token: str = ""
    """Of this one claim."""

    @property
    def is_dead(self) -> bool:
        """Certainly: of a process of another pid space nothing can be said from here."""
        return self.host == os.uname().nodename and self.pid_space == pid_space() and not is_alive(self.pid, self.pid_started or None)


@dataclass(slots=True)
class Held:
    """A claim of ours."""

    holder: Holder
    _board: Board = field(repr=False)
    _lock: int = field(repr=False)
    """The descriptor of its locked file."""

    def session(self, session_id: str) -> None:
        """Say which delegation does the work, for those who would wait for it or cancel it."""
        self._note(replace(self.holder, session_id=session_id))

    def extend(self, seconds: float) -> None:
        """Hold it for so long from now on."""
        self._note(replace(self.holder, expires_at=self._board.clock.wall() + seconds))

    @property
    def is_lost(self) -> bool:
        """Beyond its time, and another has taken the task since: what is written now would be written over theirs.

        Our own note and lock may be gone, by an agent that tidied up: within our time the task is ours as long as nobody else has them.
        """
        folder, number = _folder(self._board), self.holder.number
        found = _read(folder, number)
        if found is not None:
            return found.token != self.holder.token
        lock = lock_file(folder, number)
        return not _is_at(self._lock, lock) and (lock.exists() or self._board.clock.wall() >= self.holder.expires_at)

    def _note(self, holder: Holder) -> None:
        self.holder = holder
        with _guard(self._board):
            if not self.is_lost:
                _write(_folder(self._board), holder)


@contextlib.contextmanager
def claim(board: Board, number: int, command: str, *, seconds: float) -> Iterator[Held]:
    """Hold the task while the body runs. Raises `Refused` naming who has it and until when."""
    make_folder(board.root / ".remit")
    folder = _folder(board)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"{folder} cannot be made: {error.strerror}.", code="STORE_UNAVAILABLE", advice="Check permissions.") from error
    with _guard(board):
        lock = _locked(board, number)
        try:
            held = Held(holder=_ours(board, number, command, seconds), _board=board, _lock=lock)
            _write(folder, held.holder)
        except BaseException:
            os.close(lock)
            raise
    try:
        yield held
    finally:
        _release(board, held, lock)


def holder_of(board: Board, number: int) -> Holder | None:
    """Who works on it now; None: nobody, or somebody who is dead or beyond their time."""
    folder = _folder(board)
    holder = _read(folder, number)
    return holder if holder is not None and not _is_free(folder, holder, board.clock.wall()) else None


def holders(board: Board) -> dict[int, Holder]:
    """Of all tasks that somebody works on now: for drawing the board."""
    found = (holder_of(board, number) for number in _noted(_folder(board)))
    return {holder.number: holder for holder in found if holder is not None}


def _ours(board: Board, number: int, command: str, seconds: float) -> Holder:
    now = board.clock.wall()
    return Holder(
        number=number,
        command=command,
        pid=os.getpid(),
        since=now,
        expires_at=now + seconds,
        pid_started=process_start(os.getpid()) or "",
        pid_space=pid_space(),
        host=os.uname().nodename,
        token=secrets.token_hex(8),
    )


def _locked(board: Board, number: int) -> int:
    """The descriptor of its lock, which is ours; else `Refused`. Under the guard."""
    folder = _folder(board)
    path = lock_file(folder, number)
    lock = _try_lock(path)
    if lock is not None:  # whatever the note says, nobody holds it
        return lock
    holder = _read(folder, number)
    if holder is None:
        raise _unknown(path, number)
    if not (holder.is_dead or board.clock.wall() >= holder.expires_at):
        raise _refused(holder)
    # A child of a dead holder has inherited the lock, or a hung one still has it: it keeps a file that has no name any more.
    path.unlink(missing_ok=True)
    lock = _try_lock(path)
    if lock is None:
        raise Refused(f"Task {number} is being worked on by another process.", code="INVALID_OPERATION", advice="Try again.")
    return lock


def _refused(holder: Holder) -> Refused:
    since = datetime.fromtimestamp(holder.since, UTC).astimezone()
    when = since.strftime("%H:%M") if since.date() == datetime.now().astimezone().date() else since.strftime("%Y-%m-%d %H:%M")
    where = "" if holder.host == os.uname().nodename else f" on {holder.host}"
    stop = f"stop it with `remit cancel {holder.session_id}`" if holder.session_id else f"stop process {holder.pid}"
    return Refused(
        f"Task {holder.number} is being worked on by `remit {holder.command}` (process {holder.pid}{where}) since {when}.",
        code="INVALID_OPERATION",
        advice=f"Wait until it has ended, or {stop}.",
    )


def _unknown(lock: Path, number: int) -> Refused:
    """Its note was lost or written over by somebody else: the lock alone says that there is a holder."""
    return Refused(
        f"Task {number} is being worked on by another process; who it is cannot be read.",
        code="INVALID_OPERATION",
        advice=f"Wait until it has ended. If there is none: rm {lock}",
    )


def _release(board: Board, held: Held, lock: int) -> None:
    folder = _folder(board)
    try:
        with _guard(board):
            if not held.is_lost:
                _note_file(folder, held.holder.number).unlink(missing_ok=True)
                lock_file(folder, held.holder.number).unlink(missing_ok=True)
    finally:
        # Unlocked by name and not only closed: a child forked meanwhile holds the same open file and would keep the lock.
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def _is_free(folder: Path, holder: Holder, now: float) -> bool:
    return holder.is_dead or now >= holder.expires_at or not _is_locked(lock_file(folder, holder.number))


def _is_locked(path: Path) -> bool:
    try:
        lock = _try_lock(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    if lock is not None:
        os.close(lock)
    return lock is None


def _try_lock(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int | None:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one of this name."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    return False


def _guard(board: Board) -> contextlib.AbstractContextManager[None]:
    return file_lock(board.folder / "claims.lock", timeout=GUARD_SECONDS)


def _folder(board: Board) -> Path:
    return board.folder / "tasks"


def _noted(folder: Path) -> list[int]:
    with contextlib.suppress(FileNotFoundError):
        return sorted(int(path.stem) for path in folder.iterdir() if path.suffix == ".json" and path.stem.isdigit())
    return []


def _read(folder: Path, number: int) -> Holder | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        data = json.loads(_note_file(folder, number).read_bytes())
        holder = Holder(**{one.name: data[one.name] for one in fields(Holder) if one.name in data})
        times = (holder.since, holder.expires_at)
        words = (holder.command, holder.session_id, holder.pid_started, holder.pid_space, holder.host, holder.token)
        if type(holder.pid) is int and all(isinstance(one, str) for one in words) and all(0 <= one < _LAST_TIME for one in times):
            return replace(holder, number=number)
    return None


def _write(folder: Path, holder: Holder) -> None:
    atomic_write(_note_file(folder, holder.number), json.dumps(asdict(holder)).encode(), fsync=False)


def _note_file(folder: Path, number: int) -> Path:
    return folder / f"{number:03d}.json"


def lock_file(folder: Path, number: int) -> Path:
    return folder / f"{number:03d}.lock"
