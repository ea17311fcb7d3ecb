"""The audit log: writes every decision, and reads them with filters."""

import errno
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from remit.core.errors import Unavailable
from remit.core.redaction import ALL_FREE, Shape, redact_json
from remit.system.beneath import open_regular

FILE = "audit.jsonl"
LOOK_SECONDS = 0.2
_FREE = frozenset({"facts", "because", "by"})
_WORDS = (
    "event verdict strict caller action depth rules effects on_the_way sessions mode source sha256 owner principal on_behalf door token_id"
)
_OURS: Shape = dict.fromkeys(_WORDS.split())
"""Never redacted, whatever is registered as a secret: an agent must not be able to hide its actions."""


class AuditLog:
    """One process's access to the file. Opened on the first write; several processes append to it."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._descriptor: int | None = None
        self._look_at = 0.0
        self._is_torn = False
        """Whether the file ends within a line."""

    def write(self, entries: Sequence[bytes]) -> None:
        """Entries from `entry_text`: on disk, except for a power failure, when this returns. Raises `Unavailable`."""
        try:
            self._append(self._opened(), entries)
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

    def _opened(self) -> int:
        """The file with the name: checked from time to time, because it costs as much as everything else."""
        if self._descriptor is not None and time.monotonic() >= self._look_at and not self._has_name(self._descriptor):
            self.close()
        if self._descriptor is None:
            self._descriptor = open_regular(self._folder / FILE, os.O_RDWR | os.O_APPEND | os.O_CREAT)
            size = os.fstat(self._descriptor).st_size
            self._is_torn = size > 0 and os.pread(self._descriptor, 1, size - 1) != b"\n"
        return self._descriptor

    def _has_name(self, descriptor: int) -> bool:
        self._look_at = time.monotonic() + LOOK_SECONDS
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self._folder / FILE, follow_symlinks=False))
        except FileNotFoundError:
            return False

    def _append(self, descriptor: int, entries: Sequence[bytes]) -> None:
        second, part = divmod(self._clock(), 1)
        at = b"%b.%06dZ" % (_utc(int(second)), part * 1e6)
        data = b"\n" * self._is_torn + b"".join([b'{"at":"%b",%b}\n' % (at, entry) for entry in entries])
        written = os.write(descriptor, data)
        self._is_torn = 0 < written < len(data) or (self._is_torn and not written)
        if written != len(data):
            raise OSError(errno.ENOSPC, "no space left on the device")


@lru_cache(maxsize=1)
def _utc(second: int) -> bytes:
    """Formatted once a second: it would cost a third of an entry."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()


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


def entries(folder: Path) -> Iterator[dict[str, Any]]:
    """The decisions, oldest first, each with the number of its line; unreadable lines are omitted."""
    number = 0
    earlier = sorted(folder.glob("audit-*.jsonl"))  # as a rotation of logs may name them
    for path in (*earlier, *([folder / FILE] if (folder / FILE).exists() else [])):
        with path.open("rb") as lines:
            for line in lines:
                number += 1
                if (entry := _read_line(line)) is not None:
                    yield {**entry, "number": number}


def _read_line(line: bytes) -> dict[str, Any] | None:
    try:
        entry = from_json(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
