"""The audit log: writes every decision, and reads them with filters."""

import errno
import fcntl
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from remit.core.errors import Unavailable
from remit.core.redaction import ALL_FREE, Shape, redact_json
from remit.system.beneath import open_regular

FILE = "audit.jsonl"
FULL_BYTES = 64 * 1024 * 1024
FIRST = b"0" * 64
"""The predecessor of the first line."""
LOCK_SECONDS = 2.0
LOOK_SECONDS = 0.2
TAIL_BYTES = 64 * 1024
TRIES = 100
_HASH = re.compile(r"[0-9a-f]{64}")
_FREE = frozenset({"facts", "because", "by"})
_WORDS = (
    "event verdict strict caller action depth rules effects on_the_way sessions mode source sha256 owner principal on_behalf door token_id"
)
_OURS: Shape = dict.fromkeys(_WORDS.split())
"""Never redacted, whatever is registered as a secret: an agent must not be able to hide its actions."""


class AuditLog:
    """One process's access to the file. Opened on the first write."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time, full_bytes: int = FULL_BYTES) -> None:
        self._folder = folder
        self._clock = clock
        self._full_bytes = full_bytes
        self._descriptor: int | None = None
        self._end = -1
        """The end of the file at the last check: while it is unchanged, the known end of the chain is valid."""
        self._number = 0
        self._head = FIRST
        self._look_at = 0.0
        self._has_name = True
        self._is_rolled = False
        self._second = -1.0
        self._second_text = b""

    def write(self, entries: Sequence[bytes]) -> None:
        """Entries from `entry_text`: on disk, except for a power failure, when this returns. Raises `Unavailable`."""
        try:
            if self._descriptor is None:
                self._open()
            self._lock()
            try:
                if not self._is_at_end():
                    self._catch_up()
                self._append(entries)
            finally:
                if self._descriptor is not None:
                    fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        except OSError as error:
            raise Unavailable(
                f"{self._folder.name}/{FILE} cannot be written: {error.strerror or error}.",
                code="STORE_UNAVAILABLE",
                advice="Every decision must be on record before it is acted on: free disk space or fix the permissions.",
            ) from error

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> None:
        self._descriptor = open_regular(self._folder / FILE, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        self._end, self._look_at, self._is_rolled = -1, 0.0, False

    def _lock(self) -> None:
        """Held by others for microseconds; waits a little, because the holder may have been suspended."""
        assert self._descriptor is not None
        give_up_at = 0.0
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                give_up_at = give_up_at or time.monotonic() + LOCK_SECONDS
                if time.monotonic() > give_up_at:
                    raise
                time.sleep(0.0002)

    def _is_at_end(self) -> bool:
        """Whether the file is unchanged since this process wrote it: the frequent case."""
        assert self._descriptor is not None
        return (
            os.lseek(self._descriptor, 0, os.SEEK_END) == self._end < self._full_bytes
            and self._has_name
            and not self._is_rolled
            and time.monotonic() < self._look_at
        )

    def _catch_up(self) -> None:
        """Read to the end of the chain, also of other processes."""
        for _ in range(TRIES):
            assert self._descriptor is not None
            size = os.lseek(self._descriptor, 0, os.SEEK_END)
            if size != self._end:
                self._read_tail(size)
            if self._is_rolled:
                self._put_away()
            elif self._end >= self._full_bytes and self._is_there(now=True):
                self._append([entry_text({"event": "rolled"})])
                self._put_away()
            elif self._is_there():
                return
            self._move_on()
        raise OSError(errno.EBUSY, "another program keeps replacing it")

    def _is_there(self, *, now: bool = False) -> bool:
        """Whether the file still has its name; checked from time to time, because it costs as much as everything else."""
        at = time.monotonic()
        if now or at >= self._look_at:
            self._look_at = at + LOOK_SECONDS
            assert self._descriptor is not None
            ours = os.fstat(self._descriptor)
            try:
                named = os.stat(self._folder / FILE, follow_symlinks=False)
            except FileNotFoundError:
                self._has_name = False
            else:
                self._has_name = (named.st_ino, named.st_dev) == (ours.st_ino, ours.st_dev)
        return self._has_name

    def _read_tail(self, size: int) -> None:
        """Read number and hash of the last line, and whether the chain continues in another file."""
        self._end, self._is_rolled = size, False
        if size == 0:
            self._follow(*_end_of_earlier(self._folder))
            return
        assert self._descriptor is not None
        last, torn = _last_lines(self._descriptor, size)
        entry = read_line(last)
        if entry is not None:
            self._follow(entry["number"], entry["hash"].encode())
            self._is_rolled = entry.get("event") == "rolled" and not torn
        if torn or entry is None:
            self._mend(torn, is_readable=entry is not None)

    def _follow(self, number: int, head: bytes) -> None:
        """The chain only grows: if the file ends before a line we saw, ours continues, and the gap is visible."""
        if number > self._number:
            self._number, self._head = number, head

    def _mend(self, torn: bytes, *, is_readable: bool) -> None:
        """After a crash within a line: the line is kept, and the next one records that."""
        assert self._descriptor is not None
        if torn:
            os.write(self._descriptor, b"\n")
            self._end += 1
        if not is_readable:
            self._follow(*(_last_readable(self._folder / FILE) or _end_of_earlier(self._folder)))
        self._append([entry_text({"event": "recovered", "torn_bytes": len(torn), "torn_sha256": hashlib.sha256(torn).hexdigest()})])

    def _append(self, entries: Sequence[bytes]) -> None:
        assert self._descriptor is not None
        at = self._now()
        number, head, data = self._number, self._head, b""
        for entry in entries:
            number += 1
            body = b'{"number":%d,"at":"%b",%b,"prev":"%b"' % (number, at, entry, head)
            head = hash_of(body)
            data += b'%b,"hash":"%b"}\n' % (body, head)
        written = os.write(self._descriptor, data)
        if written != len(data):
            os.ftruncate(self._descriptor, self._end)
            raise OSError(errno.ENOSPC, "no space left on the device")
        self._end += written
        self._number, self._head = number, head

    def _now(self) -> bytes:
        """UTC to the microsecond; usually only the last digits differ from the previous line."""
        seconds, rest = divmod(self._clock(), 1.0)
        if seconds != self._second:
            self._second, self._second_text = seconds, datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()
        return b"%b.%06dZ" % (self._second_text, rest * 1_000_000)

    def _put_away(self) -> None:
        """Rename a full file to its number. A second process, or the next one after a crash, completes it."""
        if self._is_there(now=True):
            os.rename(self._folder / FILE, self._folder / f"audit-{_latest_number(self._folder) + 1:05d}.jsonl")

    def _move_on(self) -> None:
        """Switch to the file that has the name now."""
        assert self._descriptor is not None
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)
        self._descriptor = None
        self._open()
        self._lock()


def entry_text(entry: Mapping[str, Any]) -> bytes:
    """The content of a line, as JSON without its braces, and without secrets."""
    ours = {**_OURS, "action": ALL_FREE} if entry.get("on_the_way") else _OURS  # its name is an agent's own text
    try:
        return redact_json(entry, to_json(entry), ours=ours)[1:-1]
    except (ValueError, UnicodeError):  # half a surrogate pair, as in the name of a file
        plain = {name: repr(value) if name in _FREE else value for name, value in entry.items()}
        return redact_json(plain, to_json(plain, fallback=repr), ours=ours)[1:-1]


def note_access(folder: Path, entry: Mapping[str, Any], clock: Callable[[], float] = time.time) -> None:
    """Refused API callers, created and revoked tokens: rare, so that the log is opened for each."""
    audit = AuditLog(folder, clock=clock)
    try:
        audit.write([entry_text(entry)])
    except Unavailable as error:
        logging.getLogger("remit.access").error("%s", error)
    finally:
        audit.close()


def hash_of(body: bytes) -> bytes:
    """Hash of a line before its own hash, including that of the previous line."""
    return hashlib.sha256(body).hexdigest().encode()


def read_line(line: bytes) -> dict[str, Any] | None:
    """The content of a line; None if unreadable."""
    try:
        entry = from_json(line)
    except ValueError:
        return None
    is_entry = isinstance(entry, dict) and entry.get("number").__class__ is int and _HASH.fullmatch(str(entry.get("hash")))
    return entry if is_entry else None


def earlier_files(folder: Path) -> list[Path]:
    return sorted((path for path in folder.glob("audit-*.jsonl") if _NUMBERED.fullmatch(path.name)), key=_number_of)


_NUMBERED = re.compile(r"audit-[0-9]{1,9}\.jsonl")


def _number_of(path: Path) -> int:
    return int(path.stem.removeprefix("audit-"))


def _latest_number(folder: Path) -> int:
    """Of the existing files: a removed one must not cause a later one to be overwritten."""
    return max(map(_number_of, earlier_files(folder)), default=0)


def _end_of_earlier(folder: Path) -> tuple[int, bytes]:
    files = earlier_files(folder)
    return (_last_readable(files[-1]) if files else None) or (0, FIRST)


def _last_readable(path: Path) -> tuple[int, bytes] | None:
    """The number and hash of the last readable line: usually the last; otherwise searched from the beginning."""
    with path.open("rb") as lines:
        found = read_line(_last_lines(lines.fileno(), os.fstat(lines.fileno()).st_size)[0])
        if found is None:
            for line in lines:
                found = read_line(line) or found
    return None if found is None else (found["number"], found["hash"].encode())


def _last_lines(descriptor: int, size: int) -> tuple[bytes, bytes]:
    """The last complete line, and the rest after it."""
    reach = TAIL_BYTES
    while True:
        data = os.pread(descriptor, min(reach, size), max(0, size - reach))
        whole, newline, torn = data.rpartition(b"\n")
        if (newline and b"\n" in whole) or reach >= size:
            return (whole.rpartition(b"\n")[2] if newline else b""), torn
        reach *= 8


_HASH_FIELD = b',"hash":"'


class Finding(NamedTuple):
    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


@dataclass(slots=True, kw_only=True)
class AuditReport:
    """The result of checking the whole log."""

    findings: list[Finding] = field(default_factory=list)
    lines: int = 0
    torn: int = 0
    """Lines torn by a crash, each noted in the following line."""
    head: str = ""
    """The hash of the last line: kept elsewhere, it proves later that the log still contains it."""
    first_at: str = ""
    sessions: set[str] = field(default_factory=set)
    """Delegations that the log mentions."""
    disabled_owners: set[str] = field(default_factory=set)
    """Processes that ran with the policy disabled: they log nothing."""


def files_of(folder: Path) -> list[Path]:
    """In the order they were written."""
    last = folder / FILE
    return [*earlier_files(folder), *([last] if last.exists() else [])]


def entries(folder: Path) -> Iterator[dict[str, Any]]:
    """The content of the lines, oldest first; unreadable ones are omitted."""
    for path in files_of(folder):
        with path.open("rb") as lines:
            for line in lines:
                entry = read_line(line)
                if entry is not None:
                    yield entry


def check_log(folder: Path, head: str | None = None) -> AuditReport:
    """The whole log, line by line. `head`: a hash that must be in it."""
    checked = AuditReport()
    walk = _Walk(checked)
    is_head_found = False
    for path in files_of(folder):
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                checked.lines += 1
                walk.step(path.name, number, line)
                is_head_found = is_head_found or (head is not None and checked.head == head)
    walk.end()
    if head is not None and not is_head_found:
        last = files_of(folder)[-1].name if checked.lines else FILE
        what = f"no line has the hash {head}: the log was cut off before it, or rewritten"
        checked.findings.append(Finding(file=last, line=checked.lines, what=what))
    return checked


class _Walk:
    """Follows the chain and checks each next line."""

    def __init__(self, checked: AuditReport) -> None:
        self._checked = checked
        self._number = 0
        self._head = FIRST.decode()
        self._torn: tuple[str, int, bytes] | None = None
        """An unreadable line: accepted if the next one records that a crash tore it."""

    def step(self, file: str, line: int, text: bytes) -> None:
        entry = read_line(text)
        if entry is None:
            self.end()
            self._torn = (file, line, text.rstrip(b"\n"))
            return
        self._excuse(entry)
        faults = list(self._faults(entry, text.rstrip(b"\n")))
        self._checked.findings += [Finding(file=file, line=line, what=what) for what in faults]
        self._number, self._head = entry["number"], entry["hash"]
        self._note(entry)

    def end(self) -> None:
        """Report an unreadable line that no later line explains."""
        if self._torn is not None:
            file, line, _ = self._torn
            self._checked.findings.append(Finding(file=file, line=line, what="this line cannot be read: it was changed or cut off"))
            self._torn = None

    def _excuse(self, entry: dict[str, Any]) -> None:
        is_told = self._torn is not None and entry.get("event") == "recovered"
        if is_told and self._torn is not None and entry.get("torn_sha256") == hashlib.sha256(self._torn[2]).hexdigest():
            self._checked.torn += 1
            self._torn = None
        self.end()

    def _faults(self, entry: dict[str, Any], text: bytes) -> Iterator[str]:
        body, found, rest = text.rpartition(_HASH_FIELD)
        expected = self._number + 1
        if not found or rest != b'%b"}' % hash_of(body):  # and nothing after it, which could contradict what was hashed
            yield f"line number {entry['number']} was changed: its hash does not fit what it says"
        if entry["number"] > expected:
            if expected == 1:
                yield f"the log begins with line number {entry['number']}: {entry['number'] - 1} before it were removed"
            else:
                yield f"line numbers {expected} to {entry['number'] - 1} are missing: they were removed"
        elif entry["number"] < expected:
            yield f"line number {entry['number']} is where {expected} is due: it was inserted, or moved"
        elif entry.get("prev") != self._head:
            yield f"line number {entry['number']} does not follow the one before it: one of the two was replaced"

    def _note(self, entry: dict[str, Any]) -> None:
        checked = self._checked
        checked.head = entry["hash"]
        checked.first_at = checked.first_at or str(entry.get("at", ""))
        sessions = entry.get("sessions")
        if isinstance(sessions, list):
            checked.sessions.update(str(one) for one in sessions)
        if entry.get("event") == "disabled":
            checked.disabled_owners.add(str(entry.get("owner", "")))
