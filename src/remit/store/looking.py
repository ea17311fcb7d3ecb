"""Looking into a database that cannot be written: a folder of somebody else's, a read-only disk. Used by commands that only read.

Where it can be written it is opened as always. Else a database without a write-ahead log is read as it lies there, one with a log
through that log; a log that nobody has indexed cannot be read in place, so both are copied and the copy is read.
"""

import os
import shutil
import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from remit.core.errors import Unavailable
from remit.store import faults
from remit.store.database import BUSY_SECONDS, VERSION, Durability
from remit.store.sqlite import SqliteStore


def open_to_look(path: Path) -> SqliteStore:
    """The record at `path`, whether or not it can be written."""
    try:
        return SqliteStore(path)
    except Unavailable as unavailable:
        code = getattr(unavailable.__cause__, "sqlite_errorcode", None) or 0
        is_locked_away = code & 0xFF in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
        if not is_locked_away or not path.is_file() or not os.access(path, os.R_OK):
            raise
    return ReadOnlyStore(path)


class ReadOnlyStore(SqliteStore):
    """Answers questions alone; SQLite itself refuses whatever would write."""

    def _open(self, durability: Durability) -> None:
        self._copies: TemporaryDirectory[str] | None = None
        with faults.speaking_of(self.path):
            self._address = self._find_address()
            self._writer = self._connect_reader()
            self._identity = self._identity_now()
            (version,) = self._writer.execute("PRAGMA user_version").fetchone()
        if version != VERSION:
            advice = "Open the project once where it can be written."
            raise faults.unavailable(f"{self.path} has schema {version}; this remit reads {VERSION}.", advice)

    def _find_address(self) -> str:
        path = self.path
        log, index = (path.with_name(path.name + tail) for tail in ("-wal", "-shm"))
        if not log.exists() or log.stat().st_size == 0:
            return f"file:{quote(str(path))}?mode=ro&immutable=1"
        if index.exists():
            return f"file:{quote(str(path))}?mode=ro"
        self._copies = TemporaryDirectory(prefix="remit-look-")
        for file in (path, log):
            shutil.copyfile(file, Path(self._copies.name) / file.name)
        return f"file:{quote(self._copies.name)}/{quote(path.name)}"

    def _connect_reader(self) -> sqlite3.Connection:
        return sqlite3.connect(self._address, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            while self._readers:
                self._readers.pop().close()
            self._writer.close()
        if self._copies is not None:
            self._copies.cleanup()
