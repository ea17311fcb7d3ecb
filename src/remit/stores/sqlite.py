"""The stores on SQLite: `SqliteStore` (one file per project, shared by its processes), `ReadOnlyStore` and `MemoryStore`."""

import contextlib
import os
import secrets
import shutil
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar
from urllib.parse import quote

from remit.core.adaptive import RunSample
from remit.core.errors import RemitError, Unavailable
from remit.core.events import Event
from remit.core.record import CancelRequest, Head, HistoryQuery, Owner, Record, Spending, Write, WriteResult
from remit.stores import database, queries
from remit.stores.database import BUSY_SECONDS, VERSION, Durability
from remit.stores.queries import SETTLED, keep_drawn, pairs
from remit.stores.rows import NOTHING_MET, TABLES, Group, write_alone, write_in_transaction
from remit.system.ownership import DatabaseBinding

if TYPE_CHECKING:
    from remit.core.metrics import Tally

Given = ParamSpec("Given")
Found = TypeVar("Found")

READERS_KEPT = 4
PLACE_CHECK_SECONDS = 0.05


LARGE_LOG_BYTES = 64 * 1024 * 1024
LOG_LOCK_SECONDS = 0.2
"""Maximum wait to truncate a large log; retried later."""
TREES_AT_ONCE = 200

OLD_ROOTS = (
    "SELECT session_id FROM delegations d WHERE agent=:agent AND status=:status AND created_at<:before "
    "AND +settled_at<:before AND +parent_id IS NULL AND NOT EXISTS (SELECT 1 FROM delegations c WHERE c.root_id=d.session_id "
    "AND c.parent_id IS NOT NULL AND (+c.settled_at IS NULL OR +c.settled_at>=:before OR +c.created_at>=:before)) LIMIT :most"
)
_OF_TREE = (
    "SELECT session_id FROM delegations WHERE session_id=?1 "
    "UNION ALL SELECT session_id FROM delegations WHERE root_id=?1 AND parent_id IS NOT NULL"
)


class Housekeeper:
    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._log = path.with_name(path.name + "-wal")
        self._connection = connection
        self._connection.execute("PRAGMA synchronous=NORMAL")

    def move_log(self) -> None:
        """PASSIVE blocks no other connection. Under constant writes it never reaches the end of the log, so a large log is forced."""
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if self._log.exists() and self._log.stat().st_size > LARGE_LOG_BYTES:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def prune(self, settled_before: float) -> int:
        """Whole trees, in small transactions, so that writers get the lock in between."""
        forgotten = 0
        for agent, status in pairs(self._connection, statuses=SETTLED):
            values = {"agent": agent, "status": status, "before": settled_before, "most": TREES_AT_ONCE}
            while old := self._forget_some(values):
                forgotten += old
                time.sleep(0.001)  # a waiting writer retries within about this time: let it in
        return forgotten

    def _forget_some(self, values: dict[str, Any]) -> int:
        database.begin(self._connection)
        try:
            roots = self._connection.execute(OLD_ROOTS, values).fetchall()
            forgotten = sum(self._forget_tree(root_id) for (root_id,) in roots)
            self._connection.execute("COMMIT")
        except BaseException:
            database.roll_back(self._connection)
            raise
        return forgotten

    def _forget_tree(self, root_id: str) -> int:
        session_ids = self._connection.execute(_OF_TREE, (root_id,)).fetchall()
        keep_drawn(self._connection, root_id)
        for table in ("events", "checkpoints", "cancel_requests", "delegations"):
            self._connection.executemany(f"DELETE FROM {table} WHERE session_id=?", session_ids)
        return len(session_ids)

    def close(self) -> None:
        self._connection.close()


class SqliteStore:
    """The `Store` of an embedded engine. `durability`: whether it survives the end of this process, or also a power failure."""

    def __init__(self, path: str | Path, *, durability: Durability = "process") -> None:
        self.path = Path(path).absolute()
        self._place = str(self.path)
        self.owner_id: str | None = None
        """If set, outcomes are written only to delegations that still belong to this owner."""
        self._lock: Lock | RLock = Lock()
        self._housekeeping_lock = Lock()
        self._readers: deque[sqlite3.Connection] = deque()
        self._is_closed = False
        self._stamp = 0
        self._place_checked_at = 0.0
        self._open(durability)

    def _open(self, durability: Durability) -> None:
        database.prepare(self.path)
        with database.translating_errors(self.path):
            self._writer = database.connect_writer(self.path, durability)
            self._cursor = self._writer.cursor()
            self._identity = self._identity_now()
            self._housekeeper = Housekeeper(self.path, database.connect(self.path, busy_seconds=LOG_LOCK_SECONDS))

    # ---- writes

    def apply(self, writes: Sequence[Write]) -> WriteResult:
        if not writes:
            return WriteResult()
        group = Group(writes, self.owner_id)
        with self._lock:
            try:
                self._check_place()
                while True:
                    database.begin(self._writer)
                    applied = write_in_transaction(self._writer, group, writes)
                    if applied is not None:
                        return applied
            except sqlite3.Error as error:
                raise database.to_unavailable(error, self.path) from error

    def try_apply(self, writes: Sequence[Write]) -> WriteResult | None:
        if not writes:
            return WriteResult()
        if not self._lock.acquire(blocking=False):
            return None
        try:
            self._check_place()
            if len(writes) == 1 and write_alone(self._cursor, writes[0], self.owner_id):
                return NOTHING_MET
            group = Group(writes, self.owner_id)
            if not database.try_begin(self._writer):
                return None
            return write_in_transaction(self._writer, group, writes)
        except sqlite3.Error as error:
            raise database.to_unavailable(error, self.path) from error
        except BaseException:
            self._writer.rollback()  # one value that cannot be written must not block later writes
            raise
        finally:
            self._lock.release()

    def enrol(self, owner: Owner) -> None:
        self._transact(queries.enrol, owner)

    def dismiss(self, owner_id: str) -> None:
        self._transact(queries.dismiss, owner_id)

    def take_over(self, session_ids: Sequence[str], *, of: str, to: str) -> list[Record]:
        return self._transact(queries.take_over, session_ids, of, to)

    def claim(self, session_id: str, *, ticket: int, owner: str) -> Record | None:
        return self._transact(queries.claim, session_id, ticket, owner)

    def requeue(self, session_id: str, *, owner: str) -> None:
        self._transact(queries.requeue, session_id, owner)

    def drop_keys(self, prefix: str) -> int:
        return self._transact(queries.drop_keys, prefix)

    def request_cancel(self, request: CancelRequest) -> None:
        self._transact(queries.request_cancel, request)

    def take_cancels(self, owner_id: str) -> list[CancelRequest]:
        if not self._ask(queries.has_cancels, owner_id):
            return []
        return self._transact(queries.take_cancels, owner_id)

    # ---- questions

    def get(self, session_id: str) -> Record | None:
        return self._ask(queries.get, session_id)

    def by_key(self, key: str) -> Record | None:
        return self._ask(queries.by_key, key)

    def keys(self, prefix: str, most: int) -> dict[str, str]:
        return self._ask(queries.keys, prefix, most)

    def newest_by_agent(self, after: int) -> dict[str, int]:
        return self._ask(queries.newest_by_agent, after)

    def tree(self, root_id: str) -> list[Record]:
        return self._ask(queries.tree, root_id)

    def children(self, session_id: str) -> list[Record]:
        return self._ask(queries.children, session_id)

    def live(self) -> list[Record]:
        return self._ask(queries.live)

    def history(self, query: HistoryQuery) -> list[Record]:
        return self._ask(queries.history, query)

    def count(self, state: str | None = None) -> int:
        return self._ask(queries.count, state)

    def events(self, session_id: str, after: int = 0, most: int | None = None) -> list[Event]:
        return self._ask(queries.events, session_id, after, most)

    def heads(self, session_ids: Sequence[str]) -> dict[str, Head]:
        return self._ask(queries.heads, session_ids)

    def last_sign(self, session_ids: Sequence[str]) -> dict[str, float]:
        return self._ask(queries.last_sign, session_ids)

    def checkpoint(self, session_id: str) -> Any:
        return self._ask(queries.checkpoint, session_id)

    def durations(self, agent: str) -> list[RunSample]:
        return self._ask(queries.durations, agent)

    def tally(self, since: float | None = None, until: float | None = None) -> "Tally":
        return self._ask(queries.tally, since, until)

    def drawn(self, principal: str) -> Spending:
        return self._ask(queries.drawn, principal)

    def owners(self) -> list[Owner]:
        return self._ask(queries.owners)

    def change_stamp(self) -> int:
        """From the writing connection, whose own commits do not count; while it is busy, the last answer."""
        if self._lock.acquire(blocking=False):
            try:
                (self._stamp,) = self._writer.execute("PRAGMA data_version").fetchone()
            except sqlite3.Error as error:
                if not database.is_busy(error):
                    raise database.to_unavailable(error, self.path) from error
            finally:
                self._lock.release()
        return self._stamp

    def watch(self, on_change: Callable[[Literal["cancel", "write"]], None]) -> Callable[[], None] | None:
        """SQLite has no notification between processes."""
        return None

    # ---- housekeeping

    def prune(self, *, settled_before: float) -> int:
        with self._housekeeping_lock, database.translating_errors(self.path):
            return self._housekeeper.prune(settled_before)

    def optimize(self) -> None:
        with self._housekeeping_lock, database.translating_errors(self.path):
            self._housekeeper.move_log()

    def rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        """All rows of one of `TABLES`, in write order."""
        order = " ORDER BY id" if table == "delegations" else ""
        with contextlib.closing(self._connect_reader()) as connection, database.translating_errors(self.path):
            yield from connection.execute(f"SELECT {TABLES[table]} FROM {table}{order}")

    def add_rows(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Rows of another store. Existing ones are kept."""
        places = ", ".join("?" * len(TABLES[table].split(", ")))
        statement = f"INSERT OR IGNORE INTO {table} ({TABLES[table]}) VALUES ({places})"
        self._transact(sqlite3.Connection.executemany, statement, rows)

    def close(self) -> None:
        """The last process that closes the file checkpoints its write-ahead log."""
        with self._lock, self._housekeeping_lock, database.translating_errors(self.path):
            self._is_closed = True
            while self._readers:
                self._readers.pop().close()
            self._housekeeper.close()
            self._writer.close()

    # ---- lending connections

    def _transact(
        self, function: Callable[Concatenate[sqlite3.Connection, Given], Found], *given: Given.args, **named: Given.kwargs
    ) -> Found:
        with self._lock, database.translating_errors(self.path):
            self._check_place()
            database.begin(self._writer)
            try:
                found = function(self._writer, *given, **named)
                self._writer.execute("COMMIT")
            except BaseException:
                database.roll_back(self._writer)
                raise
            return found

    def _ask(self, function: Callable[Concatenate[sqlite3.Connection, Given], Found], *given: Given.args, **named: Given.kwargs) -> Found:
        try:
            connection = self._reader()
            found = function(connection, *given, **named)
        except sqlite3.Error as error:
            raise database.to_unavailable(error, self.path) from error
        if len(self._readers) < READERS_KEPT and not self._is_closed:
            self._readers.append(connection)
        else:
            connection.close()
        return found

    def _reader(self) -> sqlite3.Connection:
        if self._is_closed:
            raise database.unavailable(f"The store at {self.path} is closed.", "Open it again.")
        try:
            return self._readers.pop()
        except IndexError:
            return self._connect_reader()

    def _connect_reader(self) -> sqlite3.Connection:
        return database.connect_reader(self.path)

    def _identity_now(self) -> tuple[int, int]:
        found = os.stat(self._place)
        return found.st_dev, found.st_ino

    def _check_place(self) -> None:
        """Writes to a deleted file are lost without an error: a periodic check prevents that."""
        now = time.monotonic()
        if now < self._place_checked_at + PLACE_CHECK_SECONDS or self._is_closed:
            return
        try:
            stands = self._identity_now() == self._identity
        except OSError:
            stands = False
        if not stands:
            raise database.replaced(self.path)
        self._place_checked_at = now


class BoundStore(SqliteStore):
    """The database of a project, whose log belongs to the user from opening to closing."""

    def __init__(self, binding: DatabaseBinding, durability: Durability) -> None:
        self._binding = binding
        binding.note_open()
        super().__init__(binding.path, durability=durability)
        binding.note_open()  # with the log that was made

    def close(self) -> None:
        super().close()
        with contextlib.suppress(RemitError), self._binding.lock():  # then the user is asked, if the log stays
            self._binding.note_closed()


def open_bound(path: Path, *, durability: Durability, adopts: bool) -> SqliteStore:
    """The database of a project: created here, now or before. `adopts`: accept one that was not. Raises `Refused`."""
    binding = DatabaseBinding(path)
    with binding.lock():
        expected = binding.token() or _bind(binding, durability, adopts=adopts)
        store = BoundStore(binding, durability)
    found = store._ask(queries.token)
    if found is None and not store.count():
        store._transact(queries.set_token, expected)
    elif found != expected:
        store.close()
        binding.forget()
        raise binding.refused()
    return store


def _bind(binding: DatabaseBinding, durability: Durability, *, adopts: bool) -> str:
    """A process killed in here leaves a new database empty and registered, and an existing one unchanged."""
    token = secrets.token_hex(16)
    if binding.has_content:
        if not adopts:
            raise binding.refused()
        store = SqliteStore(binding.path, durability=durability)
        store._transact(queries.set_token, token)
        store.close()
    binding.bind(token)
    return token


def open_read_only(path: Path) -> SqliteStore:
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
    """Read only; SQLite itself refuses writes."""

    _shares_index = True
    """Whether the index of the write-ahead log may be used, which registers readers."""

    def _open(self, durability: Durability) -> None:
        self._copies: TemporaryDirectory[str] | None = None
        with database.translating_errors(self.path):
            self._address = self._find_address()
            self._writer = self._connect_reader()
            self._identity = self._identity_now()
            (version,) = self._writer.execute("PRAGMA user_version").fetchone()
        if version != VERSION:
            advice = "`remit trust` adopts it, and the next delegation or `remit recover` upgrades it, where it can be written."
            raise database.unavailable(f"{self.path} has schema {version}; this remit reads {VERSION}.", advice)

    def _find_address(self) -> str:
        path = self.path
        log, index = (path.with_name(path.name + tail) for tail in ("-wal", "-shm"))
        if not log.exists() or log.stat().st_size == 0:
            return f"file:{quote(str(path))}?mode=ro&immutable=1"
        if index.exists() and self._shares_index:
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


class ForeignStore(ReadOnlyStore):
    """A database that was not created here: no file beside it is used or written."""

    _shares_index = False


class _MemoryDatabase:
    """One connection shared by several `MemoryStore`s, like processes share a file."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.lock = RLock()
        for statement in database.statements_of("schema.sql"):
            self.connection.execute(statement)


class MemoryStore(SqliteStore):
    """The same store without a file, for tests and for work that need not survive the process."""

    def __init__(self, beside: "MemoryStore | None" = None) -> None:
        """`beside`: another store whose contents this one shares, like two processes share a database."""
        self._database: _MemoryDatabase = _MemoryDatabase() if beside is None else beside._database
        self._own_changes = 0
        super().__init__(":memory:")

    def _open(self, durability: Durability) -> None:
        self._lock = self._database.lock
        self._writer = self._database.connection
        self._cursor = self._writer.cursor()
        self._housekeeper = Housekeeper(self.path, self._writer)

    def apply(self, writes: Sequence[Write]) -> WriteResult:
        with self._counted():
            return super().apply(writes)

    def try_apply(self, writes: Sequence[Write]) -> WriteResult | None:
        if not self._lock.acquire(blocking=False):
            return None
        try:
            with self._counted():
                return super().try_apply(writes)
        finally:
            self._lock.release()

    def prune(self, *, settled_before: float) -> int:
        with self._counted():
            return super().prune(settled_before=settled_before)

    def _transact(
        self, function: Callable[Concatenate[sqlite3.Connection, Given], Found], *given: Given.args, **named: Given.kwargs
    ) -> Found:
        with self._counted():
            return super()._transact(function, *given, **named)

    def _ask(self, function: Callable[Concatenate[sqlite3.Connection, Given], Found], *given: Given.args, **named: Given.kwargs) -> Found:
        with self._lock, database.translating_errors(self.path):
            return function(self._writer, *given, **named)

    def change_stamp(self) -> int:
        return self._writer.total_changes - self._own_changes

    def optimize(self) -> None:
        """There is no write-ahead log."""

    def close(self) -> None:
        """The database lives as long as a store that shares it."""

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            before = self._writer.total_changes
            try:
                yield
            finally:
                self._own_changes += self._writer.total_changes - before

    def _identity_now(self) -> tuple[int, int]:
        return (0, 0)

    def _check_place(self) -> None:
        """There is no file that could be replaced."""
