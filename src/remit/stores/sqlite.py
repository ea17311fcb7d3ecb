"""The stores on SQLite: `SqliteStore` (one file per project, shared by its processes), `ReadOnlyStore` and `MemoryStore`."""

import contextlib
import json
import os
import secrets
import shutil
import sqlite3
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from threading import Lock
from typing import Any

from remit.core.errors import RemitError, Unavailable
from remit.core.record import AppendEvent, BeginDelegation, HistoryQuery, RecordDelegation, SettleDelegation, Write, WriteResult
from remit.core.states import LIVE, State
from remit.stores import database
from remit.stores.database import Durability
from remit.stores.rows import INSERTS, NEW_COUNT, NOTHING_MET, PRINCIPAL, SETTLE_OURS, Group, RowByRow, row_of, row_of_new, settlement_of
from remit.stores.sql_store import SETTLED, Change, Found, Read, Scan, SqlStore
from remit.system.ownership import DatabaseBinding

READERS_KEPT = 4
PLACE_CHECK_SECONDS = 0.05
LARGE_LOG_BYTES = 64 * 1024 * 1024
LOG_LOCK_SECONDS = 0.2
"""Maximum wait to begin a large log again; retried later."""
CLASHES = (sqlite3.IntegrityError, OverflowError, UnicodeEncodeError)
"""A row that exists, or a value that cannot be stored."""

# A new child is not in the indexes of agents and trees: that would cost it a third more than a root. `_index_children` enters it.
_OF_CHILD = INSERTS[NEW_COUNT + 1].replace("(attempt", "(unindexed, attempt").replace("VALUES (", "VALUES (1, ")
_INSERTS = {**INSERTS, NEW_COUNT + 1: _OF_CHILD}
NEW_CHILDREN = "unindexed=1 AND id>(SELECT up_to FROM index_progress)"
INDEXED = "unindexed IS NULL"
CHILDREN_AT_ONCE = 500
"""New children that one transaction indexes."""
MOST_NEW_CHILDREN = 10_000
"""Beyond it they are indexed when the store is opened: every question reads them all."""
LAST_NUMBER = "SELECT coalesce(max(id), 0) FROM delegations"

PAIR = f"agent=? AND status=? AND {INDEXED}"
FIRST_PAIR = f"SELECT agent, status FROM delegations WHERE {INDEXED} ORDER BY agent, status LIMIT 1"
# Not one comparison of pairs: SQLite would scan all rows of the current pair.
NEXT_STATUS = f"SELECT agent, status FROM delegations WHERE agent=? AND status>? AND {INDEXED} ORDER BY status LIMIT 1"
NEXT_AGENT = f"SELECT agent, status FROM delegations WHERE agent>? AND {INDEXED} ORDER BY agent, status LIMIT 1"


class SqliteStore(SqlStore):
    """The `Store` of an embedded engine. `durability`: whether it survives the end of this process, or also a power failure."""

    AMONG = "IN (SELECT value FROM json_each(?))"
    UNINDEXED = "+"
    OLD_ROOTS = SqlStore.OLD_ROOTS.replace("c.parent_id IS NOT NULL", f"c.parent_id IS NOT NULL AND c.{INDEXED}")
    """`prune` indexes new children first, and a tree whose root ended long ago gets none."""
    AFTER_FORGETTING = f"UPDATE index_progress SET up_to=min(up_to, ({LAST_NUMBER}))"  # the numbers above are used again

    def __init__(self, path: str | Path, *, durability: Durability = "process") -> None:
        super().__init__()
        self.path = Path(path).absolute()
        self._place = str(self.path)
        self._lock = Lock()
        self._aside_lock = Lock()
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
            self._aside = database.connect(self.path, busy_seconds=LOG_LOCK_SECONDS)
            self._aside.execute("PRAGMA synchronous=NORMAL")
        with contextlib.suppress(Unavailable):  # nothing depends on it
            if self._read(f"SELECT ({LAST_NUMBER}) - up_to FROM index_progress")[0][0] > MOST_NEW_CHILDREN:
                self._index_children()

    # ---- writes

    def apply(self, writes: Sequence[Write]) -> WriteResult:
        if not writes:
            return NOTHING_MET
        group = Group(writes, self.owner_id)
        with self._lock:
            try:
                self._check_place()
                while True:
                    database.begin(self._writer)
                    applied = self._write_in_transaction(group, writes)
                    if applied is not None:
                        return applied
            except sqlite3.Error as error:
                raise database.to_unavailable(error, self.path) from error

    def try_apply(self, writes: Sequence[Write]) -> WriteResult | None:
        if not writes:
            return NOTHING_MET
        if not self._lock.acquire(blocking=False):
            return None
        try:
            self._check_place()
            if len(writes) == 1 and self._is_written_alone(writes[0]):
                return NOTHING_MET
            group = Group(writes, self.owner_id)
            if not database.try_begin(self._writer):
                return None
            return self._write_in_transaction(group, writes)
        except sqlite3.Error as error:
            raise database.to_unavailable(error, self.path) from error
        except BaseException:
            self._writer.rollback()  # one value that cannot be written must not block later writes
            raise
        finally:
            self._lock.release()

    def _is_written_alone(self, write: Write) -> bool:
        """One statement, which commits itself. False, and nothing written: it needs more, there is a clash, or another process writes."""
        kind = type(write)
        try:
            if kind is BeginDelegation or kind is RecordDelegation:  # `type is` is quicker than isinstance
                new = row_of_new(write) if kind is BeginDelegation else row_of(write.record)  # type: ignore[arg-type, union-attr]
                if write.limits is None and (len(new) <= PRINCIPAL or new[PRINCIPAL] is None):  # type: ignore[union-attr]
                    self._cursor.execute(_INSERTS[len(new)], new)
                    return True
            elif kind is SettleDelegation and self.owner_id is not None and not (write.tokens or write.cost):  # type: ignore[union-attr]
                self._cursor.execute(SETTLE_OURS, (*settlement_of(write), self.owner_id))  # type: ignore[arg-type]
                return self._cursor.rowcount == 1
            elif kind is AppendEvent and write.limits is None:  # type: ignore[union-attr]
                Group((write,), self.owner_id).write(self._writer)
                return True
        except CLASHES:
            pass
        except sqlite3.OperationalError as error:
            if not database.is_busy(error):
                raise
        return False

    def _write_in_transaction(self, group: Group, writes: Sequence[Write]) -> WriteResult | None:
        """Write all of `group` in the open transaction, and commit. Any error rolls back.

        None, and nothing written: a clash, and another process took the lock before the second attempt."""
        connection = self._writer
        try:
            if self._is_written_quickly(group):
                connection.execute("COMMIT")
                return NOTHING_MET
            database.roll_back(connection)
            if not database.try_begin(connection):
                return None
            applied = RowByRow(connection, group.owner_id, self._drawn, self._spending_here).write(writes)
            connection.execute("COMMIT")
        except BaseException:
            database.roll_back(connection)
            raise
        return applied

    def _is_written_quickly(self, group: Group) -> bool:
        """False: a clash, or limits to compare; the transaction is left open."""
        if group.limited_trees:
            return False
        if group.draws and not self._has_room(self._writer, group):
            return False
        try:
            settled = group.write(self._writer, _INSERTS)
        except CLASHES:
            return False
        return settled is None or settled.rowcount == len(group.settlements)

    # ---- changes of other processes

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

    def watch(self, on_change: Callable[[Change], None]) -> Callable[[], None] | None:
        """SQLite has no notification between processes."""
        return None

    # ---- housekeeping

    def _index_children(self) -> None:
        """Enter new children in the indexes of agents and trees: many at once touch few pages, each by itself touches two."""
        (last,) = self._read(LAST_NUMBER)[0]
        while self._transact_aside(lambda connection: _index_some(connection, last)):
            time.sleep(0.001)  # a waiting writer retries within about this time: let it in

    def optimize(self) -> None:
        """Checkpoint the log, and index new children. PASSIVE blocks no other connection. Under constant writes it never reaches the end of
        the log, so a large log is forced. Its file is then written again from its start: overwriting a page costs half of extending the
        file by one."""
        with self._aside_lock, database.translating_errors(self.path):
            _, pages, _ = self._aside.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if pages * database.PAGE_BYTES > LARGE_LOG_BYTES:
                self._aside.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        self._index_children()

    def close(self) -> None:
        """The last process that closes the file checkpoints its write-ahead log."""
        with self._lock, self._aside_lock, database.translating_errors(self.path):
            self._is_closed = True
            while self._readers:
                self._readers.pop().close()
            self._aside.close()
            self._writer.close()

    # ---- the index of agents and states

    def _list(self, values: Iterable[str]) -> str:
        return json.dumps(list(values))

    def _scans(self, statuses: Iterable[str] | None = None, agent: str | None = None, read: Read | None = None) -> list[Scan]:
        """The existing agents and states, found by skipping through the only index that every delegation has."""
        wanted = None if statuses is None else frozenset(statuses)
        if agent is not None:
            scan, values = self._new_children(wanted)
            pairs = [(PAIR, (agent, str(status))) for status in (State if wanted is None else wanted)]
            return [(f"{scan} AND +agent=?", (*values, agent)), *pairs]
        found = [self._new_children(wanted)]
        read = read or self._read
        pair = next(iter(read(FIRST_PAIR, ())), None)
        while pair is not None:
            if wanted is None or pair[1] in wanted:
                found.append((PAIR, pair))
            pair = next(iter(read(NEXT_STATUS, pair)), None) or next(iter(read(NEXT_AGENT, pair[:1])), None)
        return found

    def _new_children(self, statuses: Iterable[str] | None) -> Scan:
        """New children. Always read first: one that is indexed between two reads is then found by both, and not by neither."""
        return (NEW_CHILDREN, ()) if statuses is None else (f"{NEW_CHILDREN} AND +status {self.AMONG}", (self._list(statuses),))

    def _newest_scans(self, after: int) -> list[Scan]:
        if after:  # few
            return [("NOT INDEXED WHERE id>?", (after,))]
        return [
            (f"NOT INDEXED WHERE {NEW_CHILDREN}", ()),
            (f"INDEXED BY delegations_by_agent WHERE {INDEXED}", ()),
        ]

    def _tree_scans(self, root_id: str) -> list[Scan]:
        root, below = "session_id=? AND +parent_id IS NULL", f"root_id=? AND parent_id IS NOT NULL AND {INDEXED}"
        return [(f"{NEW_CHILDREN} AND +root_id=?", (root_id,)), (root, (root_id,)), (below, (root_id,))]

    def _history_scans(self, query: HistoryQuery) -> list[tuple[str, tuple[Any, ...], str]]:
        if query.root_id is not None:  # a tree is small: other conditions just filter
            return [(*scan, "+") for scan in self._tree_scans(query.root_id)]
        if query.task_number is not None:
            return [("task_number=?", (query.task_number,), "")]
        if query.conversation is not None:
            return [("conversation=?", (query.conversation,), "")]
        if query.principal is not None and not LIVE.issuperset(query.states or SETTLED):  # live ones are found faster by their state
            return [("principal=?", (query.principal,), "")]
        wanted = [state.value for state in query.states] or None
        return [(*scan, "") for scan in self._scans(wanted, query.agent)]

    # ---- lending connections

    def _transact(self, function: Callable[[Any], Found], change: Change = "write") -> Found:
        with self._lock:
            self._check_place()
            return self._transacted(self._writer, function)

    def _transact_aside(self, function: Callable[[Any], Found]) -> Found:
        with self._aside_lock:
            return self._transacted(self._aside, function)

    def _transacted(self, connection: sqlite3.Connection, function: Callable[[Any], Found]) -> Found:
        with database.translating_errors(self.path):
            database.begin(connection)
            try:
                found = function(connection)
                connection.execute("COMMIT")
            except BaseException:
                database.roll_back(connection)
                raise
            return found

    def _read(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        try:
            connection = self._reader()
            found = connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise database.to_unavailable(error, self.path) from error
        if len(self._readers) < READERS_KEPT and not self._is_closed:
            self._readers.append(connection)
        else:
            connection.close()
        return found

    def _stream(self, statement: str, values: Sequence[Any] = ()) -> Iterator[Any]:
        with contextlib.closing(self._connect_reader()) as connection, database.translating_errors(self.path):
            yield from connection.execute(statement, values)

    @contextmanager
    def _snapshot(self) -> Iterator[Read]:
        with contextlib.closing(self._reader()) as connection, database.translating_errors(self.path):
            connection.execute("BEGIN")
            yield connection.execute

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
            is_same = self._identity_now() == self._identity
        except OSError:
            is_same = False
        if not is_same:
            raise database.unavailable(
                f"{self.path} was deleted or replaced while it was open; what is written now would be lost.",
                "Put the file back, or stop every remit process of this project and start again.",
            )
        self._place_checked_at = now

    # ---- which installation the database belongs to

    def token(self) -> str | None:
        """Binds it to the user who created it (`system.ownership`); None: unbound."""
        if not self._read("SELECT 1 FROM sqlite_master WHERE name='installation'"):
            return None
        found = self._read("SELECT token FROM installation")
        return str(found[0][0]) if found else None

    def set_token(self, token: str) -> None:
        """Not part of the schema: older versions of remit ignore the table."""

        def set_it(connection: sqlite3.Connection) -> None:
            connection.execute("CREATE TABLE IF NOT EXISTS installation (token TEXT NOT NULL)")
            connection.execute("DELETE FROM installation")
            connection.execute("INSERT INTO installation VALUES (?)", (token,))

        self._transact(set_it)


def _index_some(connection: sqlite3.Connection, last: int) -> bool:
    """Index children up to the number `last`. False: none are left."""
    ((up_to,),) = connection.execute("SELECT up_to FROM index_progress").fetchall()
    if last <= up_to:
        return False
    few = f"SELECT id FROM delegations WHERE id>? AND id<=? AND unindexed=1 ORDER BY id LIMIT 1 OFFSET {CHILDREN_AT_ONCE - 1}"
    end = next(iter(connection.execute(few, (up_to, last)).fetchall()), (last,))[0]
    connection.execute("UPDATE delegations SET unindexed=NULL WHERE id>? AND id<=? AND unindexed=1", (up_to, end))
    # Another process may have forgotten the newest rows since `last` was read: their numbers are used again.
    connection.execute(f"UPDATE index_progress SET up_to=min(?, ({LAST_NUMBER}))", (end,))
    return end < last


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
    found = store.token()
    if found is None and not store.count():
        store.set_token(expected)
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
        store.set_token(token)
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
    """A copy, only read: what another user or an older remit wrote is not changed."""

    def __init__(self, path: Path, *, is_foreign: bool = False) -> None:
        """`is_foreign`: it was not created here, so that no file beside it is used."""
        self._logs = () if is_foreign else ("-wal",)
        super().__init__(path)

    def _open(self, durability: Durability) -> None:
        self._copies = TemporaryDirectory(prefix="remit-look-")
        with database.translating_errors(self.path):
            self._identity = self._identity_now()
            for tail in ("", *self._logs):
                file = self.path.with_name(self.path.name + tail)
                if file.exists():
                    shutil.copyfile(file, Path(self._copies.name, file.name))
            copy = Path(self._copies.name, self.path.name)
            try:
                database.prepare(copy)
            except Unavailable as error:
                words = (text.replace(str(copy), str(self.path)) for text in (error.message, error.advice or ""))
                raise database.unavailable(*words) from error.__cause__
            self._writer = self._aside = self._connect_reader()

    def _connect_reader(self) -> sqlite3.Connection:
        return database.connect_reader(Path(self._copies.name, self.path.name))

    def close(self) -> None:
        super().close()
        self._copies.cleanup()


class _TemporaryFolder:
    """Removed with the last store that uses it, or at the end of the process."""

    def __init__(self) -> None:
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.path = Path(mkdtemp(prefix="remit-store-", dir=memory))
        weakref.finalize(self, _remove_folder, self.path, os.getpid())


def _remove_folder(path: Path, process: int) -> None:
    if os.getpid() == process:  # not in a copy of the process
        shutil.rmtree(path, ignore_errors=True)


class MemoryStore(SqliteStore):
    """The same store in a temporary folder, in memory if possible: for tests, and for work that need not survive the process."""

    def __init__(self, beside: "MemoryStore | None" = None) -> None:
        """`beside`: another store whose contents this one shares, like two processes share a database."""
        self._folder: _TemporaryFolder = _TemporaryFolder() if beside is None else beside._folder
        super().__init__(self._folder.path / "remit.db")
