"""The store on PostgreSQL, for a record that several machines share. Needs `remit[postgres]`.

Each project has its own schema in the database. Writers notify each other (`LISTEN`, `NOTIFY`), so nothing polls. The caller retries a
write whose commit was cut off: rows written before are recognised and not reported as a clash."""

import contextlib
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool, PoolTimeout

from remit.core.errors import Unavailable
from remit.core.record import HistoryQuery, Write, WriteResult
from remit.core.states import LIVE
from remit.stores.rows import NOTHING_MET, Group, RowByRow
from remit.stores.sql_store import Change, Found, Read, Scan, SqlStore

VERSION = 3
"""The newest `sql/postgres_NNN.sql`."""
CODE = "STORE_UNAVAILABLE"
CONNECT_SECONDS = 5
CONNECTION = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
"""A host that is gone is noticed after about 25 seconds, idle or with a query under way. The URL wins."""
READERS = 8
WAIT_SECONDS = 10.0
"""For a reader of the pool, or for a lost connection."""
LISTEN_SECONDS = 1.0
SCHEMA_LOCK = 0x52454D54
"""Advisory lock while the schema is created: several processes may open a new project at once."""
CLASHES = (psycopg.errors.UniqueViolation, psycopg.DataError, OverflowError, UnicodeEncodeError)
"""A row that exists, or a value that cannot be stored."""
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ?, 0))"
SPENDING = " spending"
"""Locked by a transaction that changes the spending of principals, before it compares their limits."""
COUNT_WRITE = "INSERT INTO writers VALUES (?, 1) ON CONFLICT (writer) DO UPDATE SET writes=writers.writes+1"

log = logging.getLogger("remit.store")


class Connection(psycopg.Connection[TupleRow]):
    """Statements have `?` for values, as in SQLite."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> psycopg.Cursor[TupleRow]:
        return super().execute(_translated(query) if isinstance(query, str) else query, params, **options)

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> psycopg.Cursor[TupleRow]:
        cursor = self.cursor()
        cursor.executemany(_translated(statement), rows)
        return cursor


@lru_cache(maxsize=512)
def _translated(statement: str) -> str:
    return statement.replace("?", "%s")


class PostgresStore(SqlStore):
    """The `Store` in the schema `schema` of the database at `url` (a libpq URL; PG* variables and password files apply)."""

    AMONG = "=ANY(?)"
    FOR_UPDATE = " FOR UPDATE"
    SKIP_LOCKED = " FOR UPDATE SKIP LOCKED"

    def __init__(self, url: str, *, schema: str = "remit") -> None:
        super().__init__()
        self.address, self._schema = describe_address(url, schema), schema
        self._writer_id = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._listener: _Listener | None = None
        with self._errors():
            given = conninfo_to_dict(url)
            options = f"-c search_path={schema} -c application_name=remit {given.get('options') or ''}".strip()
            self._conninfo = make_conninfo("", **{**CONNECTION, **given, "options": options})
            with self._connect() as connection:
                _prepare(connection, schema, self.address)
        self._writer: Connection | None = None
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            self._conninfo,
            connection_class=Connection,
            min_size=1,
            max_size=READERS,
            timeout=WAIT_SECONDS,
            kwargs={"autocommit": True},
            open=True,
        )

    def _connect(self) -> Connection:
        return Connection.connect(self._conninfo, autocommit=True)

    # ---- writes

    def apply(self, writes: Sequence[Write]) -> WriteResult:
        if not writes:
            return NOTHING_MET
        group = Group(writes, self.owner_id)

        def write(connection: Connection) -> WriteResult:
            """With locks, and one by one if that is needed."""
            self._take_locks(connection, group)
            if not group.limited_trees and (not group.draws or self._has_room(connection, group)):
                try:
                    with connection.transaction():
                        with connection.pipeline():
                            settled = group.write(connection)
                        if settled is None or settled.rowcount == len(group.settlements):
                            return NOTHING_MET
                        raise psycopg.Rollback
                except CLASHES:
                    pass
            return RowByRow(connection, self.owner_id, self._drawn, self._spending_here).write(writes)

        is_plain = not group.limited_trees and not group.draws
        return NOTHING_MET if is_plain and self._is_written_at_once(group) else self._transact(write)

    def _is_written_at_once(self, group: Group) -> bool:
        """In one round trip, and another one for outcomes. False, and nothing written: a clash, or an outcome that was recorded before."""
        with self._lock, self._errors():
            connection = self._open_writer()
            try:
                with connection.pipeline() as pipeline, connection.transaction():
                    self._take_locks(connection, group)
                    settled = group.write(connection)
                    self._notify(connection, "write")
                    if settled is not None:
                        pipeline.sync()
                        if settled.rowcount != len(group.settlements):
                            raise psycopg.Rollback
                    return True
            except CLASHES:
                pass
        return False

    def try_apply(self, writes: Sequence[Write]) -> WriteResult | None:
        """Rows are locked, not the database: there is no writer to wait for."""
        return self.apply(writes)

    def _take_locks(self, connection: Connection, group: Group) -> None:
        """In one order for all writers. A tree is locked before its limits are compared: other processes draw from them, too."""
        names = sorted(group.limited_trees)
        if group.is_drawn:
            names.append(SPENDING)
        if names:
            connection.executemany(LOCK, [(name,) for name in names])

    # ---- changes of other processes

    def change_stamp(self) -> int:
        ((stamp,),) = self._read("SELECT coalesce(sum(writes), 0) FROM writers WHERE writer!=?", (self._writer_id,))
        return int(stamp)

    def watch(self, on_change: Callable[[Change], None]) -> Callable[[], None]:
        with self._lock:
            if self._listener is None:
                self._listener = _Listener(self._connect, self._channel, self._writer_id)
            return self._listener.add(on_change)

    def optimize(self) -> None:
        """PostgreSQL's autovacuum does it."""

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        if not self._lock.acquire(timeout=LISTEN_SECONDS):
            self._hang_up()
            self._lock.acquire()
        try:
            with contextlib.suppress(psycopg.Error):
                if self._writer is not None and not self._writer.closed:
                    self._writer.execute(  # counters of this writer continue, so that no stamp repeats
                        "WITH gone AS (DELETE FROM writers WHERE writer=? RETURNING writes) "
                        "INSERT INTO writers SELECT '', writes FROM gone "
                        "ON CONFLICT (writer) DO UPDATE SET writes=writers.writes+excluded.writes",
                        (self._writer_id,),
                    )
                    self._writer.close()
            self._writer = None
            self._pool.close()
        finally:
            self._lock.release()

    def _hang_up(self) -> None:
        """End a write that waits for a server that does not answer: the interpreter waits for its thread."""
        if (writer := self._writer) is not None:
            with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(writer.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)

    # ---- indexes: the server chooses them

    def _list(self, values: Iterable[str]) -> list[str]:
        return [str(value) for value in values]

    def _scans(self, statuses: Iterable[str] | None = None, agent: str | None = None, read: Read | None = None) -> list[Scan]:
        wanted = None if statuses is None else self._list(statuses)
        given: dict[str, Any] = {"agent=?": agent, f"status {self.AMONG}": wanted}
        conditions = [condition for condition, value in given.items() if value is not None]
        if wanted is not None and LIVE.issuperset(wanted):
            conditions.append("settled_at IS NULL")  # so that the small index is used
        return [(" AND ".join(conditions) or "TRUE", tuple(value for value in given.values() if value is not None))]

    def _tree_scans(self, root_id: str) -> list[Scan]:
        return [("((session_id=? AND parent_id IS NULL) OR (root_id=? AND parent_id IS NOT NULL))", (root_id, root_id))]

    def _history_scans(self, query: HistoryQuery) -> list[tuple[str, tuple[Any, ...], str]]:
        if query.root_id is not None:
            return [(*scan, "") for scan in self._tree_scans(query.root_id)]
        is_live = query.states and LIVE.issuperset(query.states)
        return [("settled_at IS NULL" if is_live else "TRUE", (), "")]

    # ---- connections

    @property
    def _channel(self) -> str:
        return f"remit_{self._schema}"

    def _transact(self, function: Callable[[Any], Found], change: Change = "write") -> Found:
        """With the notification of others. A lost connection is reopened the next time."""
        with self._lock, self._errors():
            connection = self._open_writer()
            with connection.transaction():
                found = function(connection)
                with connection.pipeline():
                    self._notify(connection, change)
            return found

    def _open_writer(self) -> Connection:
        if self._writer is None or self._writer.closed:
            self._writer = self._connect()
        return self._writer

    def _notify(self, connection: Connection, change: Change) -> None:
        connection.execute(COUNT_WRITE, (self._writer_id,))
        connection.execute("SELECT pg_notify(?, ?)", (self._channel, f"{change} {self._writer_id}"))

    def _read(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Retried once if the server closed the connection since its last use."""
        for is_last in (False, True):
            try:
                with self._errors(), self._pool.connection() as connection:
                    return connection.execute(statement, values).fetchall()
            except Unavailable as error:
                if is_last or not isinstance(error.__cause__, psycopg.OperationalError):
                    raise
        raise AssertionError("unreachable")

    def _stream(self, statement: str, values: Sequence[Any] = ()) -> Iterator[Any]:
        with self._errors(), self._pool.connection() as connection, connection.transaction(), connection.cursor("rows") as cursor:
            yield from cursor.execute(_translated(statement), values)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Converts errors of psycopg."""
        try:
            yield
        except (psycopg.Error, PoolTimeout, OSError) as error:
            if isinstance(error, PoolTimeout) and self._pool.closed:
                raise Unavailable(f"The store at {self.address} is closed.", code=CODE, advice="Open it again.") from error
            advice = "Check that the server runs and the database exists (createdb NAME), and PGUSER and PGPASSWORD or PGPASSFILE."
            if isinstance(error, psycopg.errors.InsufficientPrivilege):
                advice = "Let its user create the schema, or create it beforehand and grant all on it."
            said = " ".join(str(error).split()) or type(error).__name__
            raise Unavailable(f"{self.address} cannot be used: {said}", code=CODE, advice=advice) from error


def describe_address(url: str, schema: str) -> str:
    """For people: without user and password."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error as error:
        raise Unavailable(
            f"[store] url is not an address of PostgreSQL: {str(error).strip()}.",
            code=CODE,
            advice='Write e.g. url = "postgresql://db.example.org/shop".',
        ) from None
    host, port = parts.get("host") or "the default host", parts.get("port")
    return f"PostgreSQL {host}{f':{port}' if port else ''}/{parts.get('dbname') or ''} (schema {schema})"


# ---- schema


def _prepare(connection: Connection, schema: str, address: str) -> None:
    """Create the schema, or migrate an older one. Safe if several processes do it at once."""
    version = _version(connection, schema)
    if version > VERSION:
        raise Unavailable(
            f"{address} was written by a newer remit (schema {version}; this one knows {VERSION}).",
            code=CODE,
            advice="Upgrade: pip install --upgrade remit. The database is left untouched.",
        )
    if version == VERSION:
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (SCHEMA_LOCK,))
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
        connection.execute("CREATE TABLE IF NOT EXISTS remit_version (version INTEGER NOT NULL)")
        for number in range(_version(connection, schema) + 1, VERSION + 1):
            text = Path(__file__).with_name("sql").joinpath(f"postgres_{number:03}.sql").read_text(encoding="utf-8")
            connection.execute(text)
            connection.execute("DELETE FROM remit_version")
            connection.execute("INSERT INTO remit_version VALUES (%s)", (number,))


def _version(connection: Connection, schema: str) -> int:
    """0: there is no record yet."""
    found = connection.execute("SELECT 1 FROM pg_tables WHERE schemaname=%s AND tablename='remit_version'", (schema,)).fetchone()
    if found is None:
        return 0
    ((version,),) = connection.execute("SELECT coalesce(max(version), 0) FROM remit_version").fetchall()
    return int(version)


# ---- notifications


class _Listener:
    """A thread that receives notifications of other processes. After a lost connection all watchers check: they
    may have missed something."""

    def __init__(self, connect: Callable[[], Connection], channel: str, writer_id: str) -> None:
        self._connect, self._channel, self._writer_id = connect, channel, writer_id
        self._watchers: dict[object, Callable[[Change], None]] = {}
        self._is_closed = threading.Event()
        self._is_listening = threading.Event()
        self._is_connected = True
        self._thread = threading.Thread(target=self._run, name="remit-listen", daemon=True)
        self._thread.start()

    def add(self, on_change: Callable[[Change], None]) -> Callable[[], None]:
        self._is_listening.wait(CONNECT_SECONDS)
        mark = object()
        self._watchers[mark] = on_change

        def stop() -> None:
            self._watchers.pop(mark, None)

        return stop

    def close(self) -> None:
        self._is_closed.set()
        self._thread.join(2 * LISTEN_SECONDS)

    def _run(self) -> None:
        while not self._is_closed.is_set():
            try:
                with self._connect() as connection:
                    connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
                    self._is_listening.set()
                    self._is_connected = True
                    self._tell("write")
                    self._tell("cancel")
                    self._listen(connection)
            except psycopg.Error as error:
                if self._is_connected:  # once for each outage
                    log.warning("Lost the connection that notifies of changes: %s", " ".join(str(error).split()))
                self._is_connected = False
                self._is_closed.wait(LISTEN_SECONDS)

    def _listen(self, connection: Connection) -> None:
        while not self._is_closed.is_set():
            for notice in connection.notifies(timeout=LISTEN_SECONDS / 4, stop_after=1):
                what, _, writer_id = notice.payload.partition(" ")
                if writer_id != self._writer_id:
                    self._tell("cancel" if what == "cancel" else "write")

    def _tell(self, what: Change) -> None:
        for on_change in tuple(self._watchers.values()):
            on_change(what)
