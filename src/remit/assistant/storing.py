"""A conversation's file: opened with care, appended to line by line, held by one writer at a time, mended after a crash.

Knows bytes and locks; what the lines say is `lines`' matter. Whatever lies in the folder may have come with a clone: no link is followed,
no pipe waited for, no huge file read. A line is with the kernel when `append` returns, so a killed process loses at most one that was
being written; such a rest is kept aside when the next writer comes.
"""

import contextlib
import fcntl
import json
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

from remit.assistant.lines import Line, Torn, decoded, encoded
from remit.core.errors import Failed, Misused, Refused, RemitError, Unavailable
from remit.system.files import write_beside

MAX_BYTES = 16 * 1024 * 1024
"""Of one conversation, in all: read in a fraction of a second, and far more than a model could."""
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NOTE_BYTES = 4096
_HEADER_BYTES = 64 * 1024


def read_file(path: Path) -> bytes:
    """The whole of it. Raises `Misused` where there is none, `Failed` where it is no file of ours."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    except OSError as error:
        raise _cannot_open(path, error) from None
    try:
        size = _size(descriptor, path)
        if size > MAX_BYTES:
            raise Failed(f"{path.name} is {size} bytes, more than a conversation can have ({MAX_BYTES}).", advice=f"Move it away: {path}")
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read(MAX_BYTES + 1)
    finally:
        os.close(descriptor)


def first_line(path: Path) -> bytes:
    """As much of it as a header can have."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    except OSError as error:
        raise _cannot_open(path, error) from None
    try:
        _size(descriptor, path)
        return os.read(descriptor, _HEADER_BYTES).partition(b"\n")[0]
    finally:
        os.close(descriptor)


def create_file(path: Path, first: Line) -> None:
    """With its first line, or not at all. Raises `FileExistsError`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
    try:
        _write_all(descriptor, encoded(first))
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def lines_of(data: bytes) -> tuple[list[Line], int]:
    """The lines, and how many there are that say nothing: a rest that a crash left, or what somebody else wrote."""
    found: list[Line] = []
    unread = 0
    for line in data.split(b"\n"):
        if line.strip():
            try:
                found.append(decoded(line))
            except ValueError:
                unread += 1
    return found, unread


class Pen:
    """The right to write to a conversation: one at a time, until it is put down. Freed by the kernel when its holder dies."""

    __slots__ = ("_descriptor", "_note", "path", "torn")

    def __init__(self, path: Path, session_id: str, at: float) -> None:
        """Raises `Refused` when another has it."""
        self.path = path
        self._note = path.with_suffix(".lock")
        self.torn: Torn | None = None
        self._descriptor = _locked(path, self._note)
        try:
            self._sign(session_id, at)
            self._mend(at)
        except BaseException:
            self.put_down()
            raise

    def append(self, line: Line) -> None:
        """With the kernel when this returns: the death of the process does not lose it."""
        data = encoded(line)
        size = self.size
        if size + len(data) > MAX_BYTES:
            raise Refused(
                f"The conversation {self.path.stem} is full ({MAX_BYTES // 1024 // 1024} MB).",
                code="INVALID_OPERATION",
                advice="Begin a new one; this one can still be read.",
            )
        try:
            _write_all(self._descriptor, data)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, size)  # half a line would be taken for a crash
            raise _cannot("written", self.path, error) from None

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def sync(self) -> None:
        """To the disk: also a power cut does not lose it. Blocking."""
        os.fsync(self._descriptor)

    def put_down(self) -> None:
        if self._descriptor < 0:
            return
        with contextlib.suppress(OSError):
            self._note.unlink()
        # Unlocked by name and not only closed: a child forked meanwhile holds the same open file and would keep the lock.
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)
        self._descriptor = -1

    def unlink(self) -> None:
        """The file itself, and what lies beside it."""
        self.path.unlink()
        for rest in self.path.parent.glob(f"{self.path.stem}.torn*"):
            rest.unlink(missing_ok=True)

    def _sign(self, session_id: str, at: float) -> None:
        """Who has it, in words for others: only the lock decides."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self._note, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FLAGS, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(json.dumps({"pid": os.getpid(), "session": session_id, "since": at}).encode())

    def _mend(self, at: float) -> None:
        """What a crash left of a last line is kept aside."""
        size = _size(self._descriptor, self.path)
        rest = _rest(self._descriptor, size) if size <= MAX_BYTES else b""  # larger ones are no conversations: to be deleted at most
        if not rest:
            return
        try:
            decoded(rest)
        except ValueError:
            kept = write_beside(self.path.parent, f"{self.path.stem}.torn", rest)
            os.ftruncate(self._descriptor, size - len(rest))
            self.torn = Torn(at=at, size=len(rest), kept=kept.name)
            self.append(self.torn)
        else:
            _write_all(self._descriptor, b"\n")  # it was whole but for its end


def _locked(path: Path, note: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | _FLAGS)
    except OSError as error:
        raise _cannot_open(path, error) from None
    try:
        _size(descriptor, path)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink == 0:
            raise _unknown(path)
    except BlockingIOError:
        os.close(descriptor)
        raise _taken(path, note) from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _taken(path: Path, note: Path) -> Refused:
    pid, session_id, since = _signed(note)
    who = "another process" if pid is None else "this process" if pid == os.getpid() else f"process {pid}"
    stop = f", or stop that: remit cancel {session_id}" if session_id else ""
    return Refused(
        f"The conversation {path.stem} is open in {who}{since}.",
        code="INVALID_OPERATION",
        advice=f"Wait until its message is answered{stop}; or begin a new conversation.",
    )


def _signed(note: Path) -> tuple[int | None, str, str]:
    try:
        descriptor = os.open(note, os.O_RDONLY | _FLAGS)
        with os.fdopen(descriptor, "rb") as file:
            said = json.loads(file.read(_NOTE_BYTES))
        since = datetime.fromtimestamp(said["since"], UTC).astimezone().strftime(" since %H:%M:%S")
        return int(said["pid"]), str(said["session"])[:40], since
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return None, "", ""


def _rest(descriptor: int, size: int) -> bytes:
    """What stands after the last newline."""
    parts: list[bytes] = []
    end = size
    while end > 0:
        start = max(0, end - 64 * 1024)
        block = os.pread(descriptor, end - start, start)
        at = block.rfind(b"\n")
        parts.append(block[at + 1 :])
        if at >= 0:
            break
        end = start
    return b"".join(reversed(parts))


def _size(descriptor: int, path: Path) -> int:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise Failed(f"{path.name} is no file.", advice=f"Move it away: {path}")
    return found.st_size


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _cannot_open(path: Path, error: OSError) -> RemitError:
    if isinstance(error, FileNotFoundError):
        return _unknown(path)
    if isinstance(error, IsADirectoryError):
        return Failed(f"{path.name} is no file.", advice=f"Move it away: {path}")
    if path.is_symlink():
        return Failed(f"{path.name} is a link, and no conversation.", advice=f"Move it away: {path}")
    return _cannot("opened", path, error)


def _unknown(path: Path) -> Misused:
    return Misused(f"There is no conversation {path.stem}.", code="INVALID_TARGET", advice="`remit conversations` lists them.")


def _cannot(verb: str, path: Path, error: OSError) -> Unavailable:
    return Unavailable(
        f"The conversation {path.stem} cannot be {verb}: {error.strerror or error}.",
        code="STORE_UNAVAILABLE",
        advice="Check free space and permissions of its folder.",
    )
