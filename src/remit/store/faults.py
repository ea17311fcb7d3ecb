"""What goes wrong with the database file, in words: every sqlite3 or system error becomes `Unavailable` with advice.

Used by every module of the SQLite store; knows no table.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from remit.core.errors import Unavailable

CODE = "STORE_UNAVAILABLE"


def unavailable(message: str, advice: str) -> Unavailable:
    return Unavailable(message, code=CODE, advice=advice)


def is_busy(error: sqlite3.Error) -> bool:
    """Another connection holds the lock: extended codes included, hence the low byte."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def damaged(path: Path, detail: str) -> Unavailable:
    return unavailable(
        f"{path} is damaged or not a database ({detail}).",
        f"It is left untouched at {path}; move it aside (mv {path} {path}.damaged) and start again, or restore a copy.",
    )


def foreign(path: Path) -> Unavailable:
    return unavailable(
        f"{path} is a database of another program.",
        f"It is left untouched at {path}; move it aside (mv {path} {path}.other) or use another project folder.",
    )


def replaced(path: Path) -> Unavailable:
    return unavailable(
        f"{path} was deleted or replaced while it was open; what is written now would be lost.",
        "Put the file back, or stop every remit process of this project and start again.",
    )


def translated(error: Exception, path: Path) -> Unavailable:
    """The `Unavailable` that says what `error` means and what to do."""
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return unavailable(f"The store at {path} is closed.", "Open it again.")
    code = getattr(error, "sqlite_errorcode", None) or 0
    kind = code & 0xFF
    if kind in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return damaged(path, str(error))
    message, advice = _KINDS.get(kind, (f"could not be used ({error})", "Check the disk and the permissions of {path}."))
    return unavailable(f"{path} {message}.", advice.format(path=path, folder=path.parent))


_KINDS = {
    sqlite3.SQLITE_BUSY: (
        "is locked by another process",
        "Try again; if it lasts, see which process holds it (fuser {path}).",
    ),
    sqlite3.SQLITE_FULL: (
        "could not be written: the disk is full",
        "Free some space on the disk of {folder}; nothing of this write was kept, and the store goes on when there is room.",
    ),
    sqlite3.SQLITE_READONLY: (
        "cannot be written: the file or its file system is read-only",
        "Make {path} and {folder} writable, or use another project folder.",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "could not be opened: it is missing, a directory, or not permitted",
        "See that {path} is a file you may read and write, and that {folder} is writable.",
    ),
    sqlite3.SQLITE_PERM: ("may not be opened", "Give yourself permission: chmod u+rw {path}."),
    sqlite3.SQLITE_IOERR: ("could not be read or written: the disk reports an error", "Check the disk of {folder}."),
}
_KINDS[sqlite3.SQLITE_LOCKED] = _KINDS[sqlite3.SQLITE_BUSY]


@contextmanager
def speaking_of(path: Path) -> Iterator[None]:
    """No sqlite3 error leaks out of this block."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise translated(error, path) from error
