"""The store on PostgreSQL, for a record that several machines share. Needs `remit[postgres]`.

Each project has its own schema in the database. Writers notify each other (`LISTEN`, `NOTIFY`), so nothing polls. The caller retries a
write whose commit was cut off: rows written before are recognised and not reported as a clash."""

import contextlib
import logging
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool, PoolTimeout

from remit.core.adaptive import RunSample
from remit.core.errors import Unavailable
from remit.core.events import Event, EventKind, events_of_steps
from remit.core.record import (
    AppendEvent,
    BeginDelegation,
    CancelRequest,
    Head,
    HistoryQuery,
    Owner,
    Record,
    RecordDelegation,
    Spending,
    Write,
    WriteResult,
)
from remit.core.result import StopReason
from remit.core.states import LIVE, State
from remit.stores.queries import DURATIONS_KEPT, OWNER_COLUMNS, SAMPLED, newest_of, samples_of, total_spending
from remit.stores.rows import (
    COLUMNS,
    NOTHING_MET,
    TABLES,
    Group,
    Row,
    fit_columns,
    from_json_text,
    full_row,
    record_of,
    row_of,
    row_of_new,
    unpack_times,
)

if TYPE_CHECKING:
    from remit.core.metrics import Tally

Connection = psycopg.Connection[TupleRow]
Found = TypeVar("Found")
Change = Literal["cancel", "write"]

VERSION = 1
"""The newest `sql/postgres_NNN.sql`."""
CODE = "STORE_UNAVAILABLE"
CONNECT_SECONDS = 5
READERS = 8
WAIT_SECONDS = 10.0
"""For a reader of the pool, or for a lost connection."""
LISTEN_SECONDS = 1.0
SCHEMA_LOCK = 0x52454D54
"""Advisory lock while the schema is created: several processes may open a new project at once."""

_SELECT = f"SELECT {COLUMNS} FROM delegations"
_INSERT = f"INSERT INTO delegations ({COLUMNS}) VALUES ({', '.join(['%s'] * len(Row._fields))})"
_START = "UPDATE delegations SET status='running', started_at=%s, step_times=%s WHERE session_id=%s AND status='queued'"
_SETTLE = (
    "UPDATE delegations SET status=%s, settled_at=%s, result=%s, step_times=%s, tokens=%s, cost=%s, chunk_count=%s "
    "WHERE session_id=%s AND settled_at IS NULL"
)
_SAY = "INSERT INTO events (session_id, number, at, kind, body) VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
_CHECKPOINT = (
    "INSERT INTO checkpoints (session_id, at, value) SELECT v.session_id, v.at, v.value "
    "FROM (VALUES (%s::text, %s::float8, %s::text, %s::text)) AS v (session_id, at, value, owner) WHERE v.owner IS NULL "
    "OR EXISTS (SELECT 1 FROM delegations d WHERE d.session_id=v.session_id AND d.owner=v.owner) "
    "ON CONFLICT (session_id) DO UPDATE SET at=excluded.at, value=excluded.value"
)
_LOCK_TREE = "SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || %s, 0))"
"""Before a child is recorded: its place in the tree is final, since no process commits one before it later. Shared budgets count by it."""
_ROOT, _PARENT = Row._fields.index("root_id"), Row._fields.index("parent_id")
_COUNT_WRITE = "INSERT INTO writers VALUES (%s, 1) ON CONFLICT (writer) DO UPDATE SET writes=writers.writes+1"
_OLD_TREES = (
    "SELECT session_id FROM delegations d WHERE parent_id IS NULL AND created_at<%(before)s AND settled_at<%(before)s AND NOT EXISTS "
    "(SELECT 1 FROM delegations c WHERE c.root_id=d.session_id AND c.parent_id IS NOT NULL "
    "AND (c.settled_at IS NULL OR c.settled_at>=%(before)s OR c.created_at>=%(before)s)) LIMIT 200 FOR UPDATE SKIP LOCKED"
)
_KEEP_DRAWN = (
    "INSERT INTO drawn AS kept (principal, delegations, tokens, cost, since) "
    "SELECT principal, count(*) FILTER (WHERE status!='refused'), sum(tokens)::bigint, sum(cost), min(created_at) "
    "FROM delegations WHERE (session_id=ANY(%(roots)s) OR root_id=ANY(%(roots)s)) AND principal IS NOT NULL GROUP BY principal "
    "ON CONFLICT (principal) DO UPDATE SET delegations=kept.delegations+excluded.delegations, tokens=kept.tokens+excluded.tokens, "
    "cost=kept.cost+excluded.cost, since=least(kept.since, excluded.since)"
)
_OF_OWNER = "FROM cancel_requests c JOIN delegations d ON d.session_id=c.session_id WHERE d.owner=%s AND d.settled_at IS NULL"

log = logging.getLogger("remit.store")


class PostgresStore:
    """The `Store` in the schema `schema` of the database at `url` (a libpq URL; PG* variables and password files apply)."""

    def __init__(self, url: str, *, schema: str = "remit") -> None:
        self.owner_id: str | None = None
        """If set, outcomes are written only to delegations that still belong to this owner."""
        self.address, self._schema = describe_address(url, schema), schema
        self._writer_id = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._listener: _Listener | None = None
        with self._errors():
            options = f"-c search_path={schema} -c application_name=remit {conninfo_to_dict(url).get('options') or ''}".strip()
            self._conninfo = make_conninfo(url, options=options, connect_timeout=CONNECT_SECONDS)
            with self._connect() as connection:
                _prepare(connection, schema, self.address)
        self._writer: Connection | None = None
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            self._conninfo, min_size=1, max_size=READERS, timeout=WAIT_SECONDS, kwargs={"autocommit": True}, open=True
        )

    def _connect(self) -> Connection:
        return psycopg.connect(self._conninfo, autocommit=True)

    # ---- writes

    def apply(self, writes: Sequence[Write]) -> WriteResult:
        if not writes:
            return NOTHING_MET
        group = Group(writes, self.owner_id)

        def write(connection: Connection) -> WriteResult:
            try:
                with connection.transaction():
                    if _written_quickly(connection, group):
                        return NOTHING_MET
                    raise psycopg.Rollback
            except (psycopg.errors.UniqueViolation, psycopg.DataError, OverflowError, UnicodeEncodeError):
                pass  # a clash, or an unusable value: one by one
            return _RowByRow(connection, self.owner_id).write(writes)

        return self._write(write)

    def try_apply(self, writes: Sequence[Write]) -> WriteResult | None:
        """Rows are locked, not the database: there is no writer to wait for."""
        return self.apply(writes)

    def enrol(self, owner: Owner) -> None:
        values = (owner.owner_id, owner.pid, owner.pid_started, owner.pid_space, owner.host, owner.opened_at)
        updated = ", ".join(f"{name}=excluded.{name}" for name in OWNER_COLUMNS.split(", ")[1:])
        statement = f"INSERT INTO owners ({OWNER_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (owner_id) DO UPDATE SET {updated}"
        self._write(lambda connection: connection.execute(statement, values))

    def dismiss(self, owner_id: str) -> None:
        self._write(lambda connection: connection.execute("DELETE FROM owners WHERE owner_id=%s", (owner_id,)))

    def take_over(self, session_ids: Sequence[str], *, of: str, to: str) -> list[Record]:
        statement = f"UPDATE delegations SET owner=%s WHERE session_id=ANY(%s) AND owner=%s AND settled_at IS NULL RETURNING {COLUMNS}"
        order = {session_id: number for number, session_id in enumerate(session_ids)}
        taken = self._write(lambda connection: connection.execute(statement, (to, list(order), of)).fetchall())
        return sorted(map(record_of, taken), key=lambda record: order[record.session_id])

    def claim(self, session_id: str, *, ticket: int, owner: str) -> Record | None:
        def claimed(connection: Connection) -> Record | None:
            before = connection.execute(f"{_SELECT} WHERE session_id=%s FOR UPDATE", (session_id,)).fetchone()
            moved = connection.execute(
                "UPDATE delegations SET owner=%s, ticket=%s WHERE session_id=%s AND ticket<%s AND settled_at IS NULL",
                (owner, ticket, session_id, ticket),
            )
            return record_of(before) if before is not None and moved.rowcount == 1 else None

        return self._write(claimed)

    def requeue(self, session_id: str, *, owner: str) -> None:
        statement = (
            "UPDATE delegations SET status='queued', started_at=NULL, attempt=attempt+1 "
            "WHERE session_id=%s AND owner=%s AND settled_at IS NULL"
        )
        self._write(lambda connection: connection.execute(statement, (session_id, owner)))

    def drop_keys(self, prefix: str) -> int:
        return self._write(
            lambda connection: connection.execute("UPDATE delegations SET key=NULL WHERE starts_with(key, %s)", (prefix,)).rowcount
        )

    def request_cancel(self, request: CancelRequest) -> None:
        values = (request.session_id, request.reason, request.source, request.at)
        statement = "INSERT INTO cancel_requests (session_id, reason, source, at) VALUES (%s, %s, %s, %s)"
        self._write(lambda connection: connection.execute(statement, values), "cancel")

    def take_cancels(self, owner_id: str) -> list[CancelRequest]:
        if not self._ask(f"SELECT 1 {_OF_OWNER} LIMIT 1", (owner_id,)):
            return []

        def taken(connection: Connection) -> list[CancelRequest]:
            rows = connection.execute(
                f"SELECT c.id, c.session_id, c.reason, c.source, c.at {_OF_OWNER} ORDER BY c.id FOR UPDATE OF c SKIP LOCKED", (owner_id,)
            ).fetchall()
            connection.execute("DELETE FROM cancel_requests WHERE id=ANY(%s)", ([row[0] for row in rows],))
            connection.execute(
                "DELETE FROM cancel_requests c USING delegations d WHERE d.session_id=c.session_id AND d.settled_at IS NOT NULL"
            )
            return [CancelRequest(session_id=row[1], reason=row[2], source=row[3], at=row[4]) for row in rows]

        return self._write(taken)

    # ---- questions

    def get(self, session_id: str) -> Record | None:
        return next(iter(self._records("session_id=%s", (session_id,))), None)

    def by_key(self, key: str) -> Record | None:
        return next(iter(self._records("key=%s", (key,))), None)

    def keys(self, prefix: str, most: int) -> dict[str, str]:
        statement = 'SELECT key, session_id FROM delegations WHERE starts_with(key, %s) ORDER BY key COLLATE "C" DESC LIMIT %s'
        return dict(self._ask(statement, (prefix, most)))

    def newest_by_agent(self, after: int) -> dict[str, int]:
        return dict(self._ask("SELECT agent, max(id) FROM delegations WHERE id>%s GROUP BY agent", (after,)))

    def tree(self, root_id: str) -> list[Record]:
        where = "(session_id=%s AND parent_id IS NULL) OR (root_id=%s AND parent_id IS NOT NULL) ORDER BY parent_id IS NOT NULL, id"
        return self._records(where, (root_id, root_id))

    def children(self, session_id: str) -> list[Record]:
        where = "root_id=(SELECT root_id FROM delegations WHERE session_id=%s) AND parent_id=%s ORDER BY id"
        return self._records(where, (session_id, session_id))

    def live(self) -> list[Record]:
        return self._records("settled_at IS NULL ORDER BY id", ())

    def history(self, query: HistoryQuery) -> list[Record]:
        conditions, values = _conditions(query)
        if query.before_session is not None:
            conditions.append("(created_at, id) < (SELECT created_at, id FROM delegations WHERE session_id=%s)")
            values.append(query.before_session)
        where = " AND ".join(conditions) or "TRUE"
        return self._records(f"{where} ORDER BY created_at DESC, id DESC LIMIT %s", (*values, max(0, query.limit)))

    def count(self, state: str | None = None) -> int:
        where = "" if state is None else " WHERE status=%s"
        ((number,),) = self._ask(f"SELECT count(*) FROM delegations{where}", () if state is None else (str(state),))
        return int(number)

    def events(self, session_id: str, after: int = 0, most: int | None = None) -> list[Event]:
        known = self._ask("SELECT step_times, chunk_count FROM delegations WHERE session_id=%s", (session_id,))
        steps = events_of_steps(session_id, unpack_times(known[0][0]), known[0][1]) if known else []
        found = [step for step in steps if step.number > after]
        said = self._ask(
            "SELECT number, at, kind, body FROM events WHERE session_id=%s AND number>%s ORDER BY number LIMIT %s",
            (session_id, after, most),
        )
        for number, at, kind, body in said:
            found.append(Event(session_id=session_id, number=number, at=at, kind=EventKind(kind), body=from_json_text(body)))
        found.sort(key=lambda event: event.number)
        return found if most is None else found[:most]

    def heads(self, session_ids: Sequence[str]) -> dict[str, Head]:
        rows = self._ask(
            "SELECT session_id, status, owner, (SELECT max(number) FROM events e WHERE e.session_id=d.session_id), queue "
            "FROM delegations d WHERE session_id=ANY(%s)",
            (list(session_ids),),
        )
        return {row[0]: Head(State(row[1]), row[2], row[3] or 0, row[4]) for row in rows}

    def last_sign(self, session_ids: Sequence[str]) -> dict[str, float]:
        rows = self._ask(
            "SELECT session_id, created_at, step_times, "
            "(SELECT at FROM events e WHERE e.session_id=d.session_id ORDER BY number DESC LIMIT 1) "
            "FROM delegations d WHERE session_id=ANY(%s)",
            (list(session_ids),),
        )
        return {row[0]: newest_of(row[1], unpack_times(row[2]), row[3]) for row in rows}

    def checkpoint(self, session_id: str) -> Any:
        found = self._ask("SELECT value FROM checkpoints WHERE session_id=%s", (session_id,))
        return from_json_text(found[0][0]) if found else None

    def durations(self, agent: str) -> list[RunSample]:
        statement = (
            "SELECT session_id, status, started_at, settled_at, context, chunk_count FROM delegations "
            "WHERE agent=%s AND status=ANY(%s) AND settled_at>started_at ORDER BY created_at DESC, id DESC LIMIT %s"
        )

        def signs(session_id: str) -> list[float]:
            said = self._ask("SELECT at FROM events WHERE session_id=%s AND kind!='notice' ORDER BY number", (session_id,))
            return [at for (at,) in said]

        return samples_of(self._ask(statement, (agent, list(SAMPLED), DURATIONS_KEPT)), signs)

    def tally(self, since: float | None = None, until: float | None = None) -> "Tally":
        from remit.core.metrics import Tally

        total = Tally()
        statement = (
            "SELECT agent, status, settled_at - created_at, tokens, cost, "
            f"CASE WHEN status IN ('{State.FAILED}', '{State.BLOCKED}') THEN result::json->>'stop_reason' END FROM delegations "
            "WHERE created_at>=coalesce(%s, '-infinity'::float8) AND created_at<coalesce(%s, 'infinity'::float8)"
        )
        with self._reader() as connection, connection.transaction(), connection.cursor("tally") as rows:
            for agent, status, seconds, tokens, cost, why in rows.execute(statement, (since, until)):
                total.add(agent, State(status), seconds, tokens, cost, is_unavailable=why == StopReason.UNAVAILABLE)
        return total

    def drawn(self, principal: str) -> Spending:
        """A consistent read: one statement."""
        rows = self._ask(
            "SELECT count(*) FILTER (WHERE status!='refused'), coalesce(sum(tokens), 0), coalesce(sum(cost), 0), min(created_at), NULL "
            "FROM delegations WHERE principal=%(p)s AND settled_at IS NOT NULL "
            "UNION ALL SELECT delegations, tokens, cost, since, NULL FROM drawn WHERE principal=%(p)s "
            "UNION ALL SELECT 1, 0, 0, created_at, coalesce((SELECT body FROM events e WHERE e.session_id=d.session_id AND kind='spent' "
            "ORDER BY number DESC LIMIT 1), '{}') FROM delegations d WHERE principal=%(p)s AND settled_at IS NULL",
            {"p": principal},
        )
        parts = []
        for delegations, tokens, cost, since, told in rows:
            spent: dict[str, Any] = {"tokens": tokens, "cost": cost} | (from_json_text(told) if told else {})
            parts.append(Spending(int(delegations), min(int(spent["tokens"]), 2**63 - 1), float(spent["cost"]), since))
        return total_spending(parts)

    def owners(self) -> list[Owner]:
        names = OWNER_COLUMNS.split(", ")
        rows = self._ask(f"SELECT {OWNER_COLUMNS} FROM owners ORDER BY opened_at, owner_id", ())
        return [Owner(**dict(zip(names, row, strict=True))) for row in rows]

    def change_stamp(self) -> int:
        ((stamp,),) = self._ask("SELECT coalesce(sum(writes), 0) FROM writers WHERE writer!=%s", (self._writer_id,))
        return int(stamp)

    def watch(self, on_change: Callable[[Change], None]) -> Callable[[], None]:
        with self._lock:
            if self._listener is None:
                self._listener = _Listener(self._connect, self._channel, self._writer_id)
            return self._listener.add(on_change)

    # ---- housekeeping

    def prune(self, *, settled_before: float) -> int:
        forgotten = 0
        while number := self._write(lambda connection: _forget_some(connection, settled_before)):
            forgotten += number
        return forgotten

    def optimize(self) -> None:
        """PostgreSQL's autovacuum does it."""

    def rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        """All rows of one of `TABLES`, in write order."""
        order = " ORDER BY id" if table == "delegations" else ""
        with self._reader() as connection, connection.transaction(), connection.cursor("copy") as cursor:
            yield from cursor.execute(f"SELECT {TABLES[table]} FROM {table}{order}")

    def add_rows(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Rows of another store. Existing ones are kept."""
        places = ", ".join(["%s"] * len(TABLES[table].split(", ")))
        statement = f"INSERT INTO {table} ({TABLES[table]}) VALUES ({places}) ON CONFLICT DO NOTHING"

        def add(connection: Connection) -> None:
            with connection.cursor() as cursor:
                cursor.executemany(statement, [_fit(row) for row in rows])

        self._write(add)

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        with self._lock:
            with contextlib.suppress(psycopg.Error):
                if self._writer is not None and not self._writer.closed:
                    self._writer.execute(  # counters of this writer continue, so that no stamp repeats
                        "WITH gone AS (DELETE FROM writers WHERE writer=%s RETURNING writes) "
                        "INSERT INTO writers SELECT '', writes FROM gone "
                        "ON CONFLICT (writer) DO UPDATE SET writes=writers.writes+excluded.writes",
                        (self._writer_id,),
                    )
                    self._writer.close()
            self._writer = None
            self._pool.close()

    # ---- connections

    @property
    def _channel(self) -> str:
        return f"remit_{self._schema}"

    def _write(self, function: Callable[[Connection], Found], change: Change = "write") -> Found:
        """In one transaction, with the notification of others. A lost connection is reopened the next time."""
        with self._lock, self._errors():
            if self._writer is None or self._writer.closed:
                self._writer = self._connect()
            with self._writer.transaction():
                found = function(self._writer)
                self._writer.execute(_COUNT_WRITE, (self._writer_id,))
                self._writer.execute("SELECT pg_notify(%s, %s)", (self._channel, f"{change} {self._writer_id}"))
            return found

    def _records(self, where: str, values: Sequence[Any]) -> list[Record]:
        return [record_of(row) for row in self._ask(f"{_SELECT} WHERE {where}", values)]

    def _ask(self, statement: str, values: Any) -> list[TupleRow]:
        """Retried once if the server closed the connection since its last use."""
        for is_last in (False, True):
            try:
                with self._reader() as connection:
                    return connection.execute(statement, values).fetchall()
            except Unavailable as error:
                if is_last or not isinstance(error.__cause__, psycopg.OperationalError):
                    raise
        raise AssertionError("unreachable")

    @contextlib.contextmanager
    def _reader(self) -> Iterator[Connection]:
        with self._errors(), self._pool.connection() as connection:
            yield connection

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Converts errors of psycopg."""
        try:
            yield
        except (psycopg.Error, PoolTimeout, OSError) as error:
            if isinstance(error, PoolTimeout) and self._pool.closed:
                raise Unavailable(f"The store at {self.address} is closed.", code=CODE, advice="Open it again.") from error
            raise _to_unavailable(error, self.address) from error


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


def _to_unavailable(error: Exception, address: str) -> Unavailable:
    said = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, psycopg.errors.InvalidPassword | psycopg.errors.InvalidAuthorizationSpecification) or "password" in said:
        advice = "Set PGUSER and PGPASSWORD, or a password file (PGPASSFILE)."
    elif re.search(r'database ".*" does not exist', said):
        advice = "Create it (createdb NAME), or fix [store] url."
    elif isinstance(error, psycopg.errors.InsufficientPrivilege):
        advice = "Let its user create the schema, or create it beforehand and grant all on it."
    elif isinstance(error, psycopg.OperationalError | PoolTimeout):
        advice = "Check that the server runs and can be reached; what was not written is tried again."
    else:
        advice = "Look at the server's log."
    return Unavailable(f"{address} cannot be used: {said}", code=CODE, advice=advice)


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
            text = files("remit.stores").joinpath("sql", f"postgres_{number:03}.sql").read_text(encoding="utf-8")
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


# ---- groups of writes


def _written_quickly(connection: Connection, group: Group) -> bool:
    """False: an outcome was recorded before; the caller rolls back."""
    ours = "" if group.owner_id is None else " AND owner=%s"
    rows = [row if len(row) == len(Row._fields) else full_row(row) for some in group.inserts.values() for row in some]
    groups = (
        (_LOCK_TREE, _trees_of(rows)),
        (_INSERT, rows),
        (_START + ours, group.starts),
        (_SETTLE + ours, group.settlements),
        (_SAY, group.said),
        (_CHECKPOINT, group.checkpoints),
    )
    settlements = connection.cursor()
    with connection.pipeline():
        for statement, some in groups:
            if some:
                (settlements if some is group.settlements else connection.cursor()).executemany(statement, some)
    return not group.settlements or settlements.rowcount == len(group.settlements)


def _trees_of(rows: Sequence[tuple[Any, ...]]) -> list[tuple[str]]:
    """Trees that get a child, in one order for all writers."""
    return [(root,) for root in sorted({row[_ROOT] for row in rows if row[_PARENT] is not None})]


class _RowByRow:
    """The slow path: each write separately, in order, with its conflicts."""

    def __init__(self, connection: Connection, owner_id: str | None) -> None:
        self.connection = connection
        self.owner_id = owner_id
        self.clashes: list[str] = []
        self.taken_keys: dict[str, str] = {}
        self.already_settled: list[str] = []
        self.not_recorded: set[str] = set()
        """Later writes for these belong to the unrecorded delegation, not to the one that has the id."""

    def write(self, writes: Sequence[Write]) -> WriteResult:
        new = {
            id(write): full_row(row_of_new(write)) if isinstance(write, BeginDelegation) else Row._make(row_of(write.record))
            for write in writes
            if isinstance(write, BeginDelegation | RecordDelegation)
        }
        for tree in _trees_of(list(new.values())):
            self.connection.execute(_LOCK_TREE, tree)
        for write in writes:
            if (row := new.get(id(write))) is not None:
                self._record(row)
            elif (write.event if isinstance(write, AppendEvent) else write).session_id not in self.not_recorded:
                self._write_one(write)
        return WriteResult(clashes=tuple(self.clashes), taken_keys=self.taken_keys, already_settled=tuple(self.already_settled))

    def _record(self, given: Row) -> None:
        row = Row._make(_fit(given))
        recorded = self.connection.execute(f"{_INSERT} ON CONFLICT DO NOTHING", row).rowcount
        if recorded or self._is_ours(row):
            return
        self.not_recorded.add(row.session_id)
        holder = self.connection.execute("SELECT session_id FROM delegations WHERE key=%s", (row.key,)).fetchone()
        taken = self.connection.execute("SELECT 1 FROM delegations WHERE session_id=%s", (row.session_id,)).fetchone()
        if taken or holder is None:
            self.clashes.append(row.session_id)
        else:
            self.taken_keys[row.session_id] = holder[0]

    def _is_ours(self, row: Row) -> bool:
        """Written before, by an attempt whose commit was cut off."""
        if self.owner_id is None:
            return False
        same = "session_id=%s AND owner=%s AND created_at=%s AND context=%s AND agent=%s"
        values = (row.session_id, self.owner_id, row.created_at, row.context, row.agent)
        return self.connection.execute(f"SELECT 1 FROM delegations WHERE {same}", values).fetchone() is not None

    def _write_one(self, write: Write) -> None:
        one = Group((write,), self.owner_id)
        ours = "" if self.owner_id is None else " AND owner=%s"
        for statement, rows in ((_START + ours, one.starts), (_SAY, one.said), (_CHECKPOINT, one.checkpoints)):
            for columns in rows:
                self.connection.execute(statement, _fit(columns))
        for columns in map(_fit, one.settlements):
            settled = self.connection.execute(_SETTLE + ours, columns).rowcount
            if not settled and not self._is_settled_so(columns):
                self.already_settled.append(columns[7])

    def _is_settled_so(self, columns: tuple[Any, ...]) -> bool:
        """This very outcome, by an attempt whose commit was cut off."""
        if self.owner_id is None:
            return False
        same = "status=%s AND settled_at=%s AND result=%s AND step_times=%s AND session_id=%s AND owner=%s"
        values = (*columns[:4], columns[7], self.owner_id)
        return self.connection.execute(f"SELECT 1 FROM delegations WHERE {same}", values).fetchone() is not None


def _fit(columns: tuple[Any, ...]) -> tuple[Any, ...]:
    """PostgreSQL also refuses NUL in texts."""
    return tuple([value.replace("\0", "\\x00") if isinstance(value, str) else value for value in fit_columns(columns)])


def _forget_some(connection: Connection, before: float) -> int:
    roots = [row[0] for row in connection.execute(_OLD_TREES, {"before": before})]
    if not roots:
        return 0
    connection.execute(_KEEP_DRAWN, {"roots": roots})
    of_trees = "SELECT session_id FROM delegations WHERE session_id=ANY(%(roots)s) OR root_id=ANY(%(roots)s)"
    for table in ("events", "checkpoints", "cancel_requests"):
        connection.execute(f"DELETE FROM {table} WHERE session_id IN ({of_trees})", {"roots": roots})
    return connection.execute("DELETE FROM delegations WHERE session_id=ANY(%(r)s) OR root_id=ANY(%(r)s)", {"r": roots}).rowcount


def _conditions(query: HistoryQuery) -> tuple[list[str], list[Any]]:
    given: dict[str, Any] = {
        "root_id=%s": query.root_id,
        "agent=%s": query.agent,
        "status=ANY(%s)": None if query.wanted is None else [str(state) for state in query.wanted],
        "task_number=%s": query.task_number,
        "principal=%s": query.principal,
        "conversation=%s": query.conversation,
        "created_at>=%s": query.since,
        "created_at<=%s": query.until,
    }
    conditions = [condition for condition, value in given.items() if value is not None]
    if query.wanted is not None and LIVE.issuperset(query.wanted):
        conditions.append("settled_at IS NULL")  # so that the small index is used
    if query.roots_only:
        conditions.append("parent_id IS NULL")
    return conditions, [value for value in given.values() if value is not None]


# ---- notifications


class _Listener:
    """A thread that receives notifications of other processes. After a lost connection all watchers check: they
    may have missed something."""

    def __init__(self, connect: Callable[[], Connection], channel: str, writer_id: str) -> None:
        self._connect, self._channel, self._writer_id = connect, channel, writer_id
        self._watchers: dict[object, Callable[[Change], None]] = {}
        self._is_closed = threading.Event()
        self._is_listening = threading.Event()
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
                    self._tell("write")
                    self._tell("cancel")
                    self._listen(connection)
            except psycopg.Error as error:
                log.warning("Lost the connection that notifies of changes: %s", " ".join(str(error).split()))
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
