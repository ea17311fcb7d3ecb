"""The SQLite database: opens, migrates and checks it, converts its errors, and does maintenance (checkpoints, pruning)."""

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from remit.core.errors import Unavailable

APPLICATION_ID = 0x52454D54
"""`REMT`, in the header of every database of remit."""
VERSION = 6
"""The newest migration; `schema.sql` is the result of all migrations up to it."""
BUSY_SECONDS = 5.0
PAGE_BYTES = 2048
"""Half the usual: a commit of one delegation writes five or six whole pages, which is its main cost."""

Durability = Literal["process", "power"]


def connect(path: Path, *, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    """A connection in autocommit mode for any thread; its user ensures that only one uses it at a time."""
    connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA wal_autocheckpoint=0")  # moved off the hot path: see `housekeeping`
    return connection


def connect_writer(path: Path, durability: Durability) -> sqlite3.Connection:
    """The connection that records delegations. It never waits by itself: `begin` and `try_begin` decide."""
    connection = connect(path)
    connection.execute(f"PRAGMA synchronous={'FULL' if durability == 'power' else 'NORMAL'}")
    connection.execute("SELECT 1 FROM owners LIMIT 1").fetchone()  # waits for a process that opens or closes the file
    connection.execute("PRAGMA busy_timeout=0")
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    connection = connect(path)
    connection.execute("PRAGMA query_only=1")
    return connection


def try_begin(connection: sqlite3.Connection) -> bool:
    """Take the write lock; False at once if another connection has it."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if is_busy(error):
            return False
        raise
    return True


def begin(connection: sqlite3.Connection, *, seconds: float = BUSY_SECONDS) -> None:
    """Take the write lock, waiting up to `seconds` for its holder."""
    _execute_when_free(connection, "BEGIN IMMEDIATE", seconds)


def _execute_when_free(connection: sqlite3.Connection, statement: str, seconds: float = BUSY_SECONDS) -> None:
    end = time.monotonic() + seconds
    pause = 0.0005
    while True:
        try:
            connection.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= end:
                raise
        time.sleep(pause)
        pause = min(pause * 2, 0.02)


def roll_back(connection: sqlite3.Connection) -> None:
    """Roll back a failed transaction; after some errors (a full disk) SQLite has done so itself."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


# ---- making and migrating


def prepare(path: Path) -> None:
    """Create the database, or migrate an older one. Safe if several processes do it at once."""
    with translating_errors(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # SQLite gives its other files the permissions of this one
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        connection = connect(path)
        try:
            if version_of(connection, path) < VERSION:
                connection.execute(f"PRAGMA page_size={PAGE_BYTES}")  # only effective for an empty file
                _bring_up_to_date(connection, path)
            _execute_when_free(
                connection, "PRAGMA journal_mode=WAL"
            )  # the switch needs exclusive access, and does not wait for it by itself
        finally:
            connection.close()


def version_of(connection: sqlite3.Connection, path: Path) -> int:
    """The schema version; 0 for an empty file. A consistent read: another process may be creating it."""
    statement = "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) FROM pragma_application_id, pragma_user_version"
    application, version, tables = connection.execute(statement).fetchone()
    if application != APPLICATION_ID and (application or version or tables):
        raise foreign(path)
    if version > VERSION:
        raise unavailable(
            f"{path} was written by a newer remit (schema {version}; this one knows {VERSION}).",
            "Upgrade: pip install --upgrade remit. The database is left untouched.",
        )
    return int(version)


def _bring_up_to_date(connection: sqlite3.Connection, path: Path) -> None:
    begin(connection)
    try:
        version = version_of(connection, path)  # again, under the lock: another process may have been faster
        names = ["schema.sql"] if version == 0 else migrations_after(version)
        for name in names if version < VERSION else ():
            for statement in statements_of(name):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise


def migrations_after(version: int) -> list[str]:
    return [f"migration_{number:03}.sql" for number in range(version + 1, VERSION + 1)]


def statements_of(name: str) -> Iterator[str]:
    """The statements of a file, one by one: `executescript` would commit earlier ones."""
    statement = ""
    for line in Path(__file__).with_name("sql").joinpath(name).read_text(encoding="utf-8").splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


CODE = "STORE_UNAVAILABLE"


def unavailable(message: str, advice: str) -> Unavailable:
    return Unavailable(message, code=CODE, advice=advice)


def is_busy(error: sqlite3.Error) -> bool:
    """Another connection has the lock: the low byte covers extended codes."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def foreign(path: Path) -> Unavailable:
    return unavailable(
        f"{path} is a database of another program.",
        f"It is left untouched at {path}; move it aside (mv {path} {path}.other) or use another project folder.",
    )


def to_unavailable(error: Exception, path: Path) -> Unavailable:
    """`Unavailable` in SQLite's words, with advice."""
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return unavailable(f"The store at {path} is closed.", "Open it again.")
    kind = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    if kind in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        advice = f"It is left untouched at {path}; move it aside (mv {path} {path}.damaged) and start again, or restore a copy."
    else:
        advice = f"Nothing was written. Check the space and permissions of {path.parent}, and which process uses it (fuser {path})."
    return unavailable(f"{path} cannot be used: {error}.", advice)


@contextlib.contextmanager
def translating_errors(path: Path) -> Iterator[None]:
    """No sqlite3 error leaks out of this block."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise to_unavailable(error, path) from error
