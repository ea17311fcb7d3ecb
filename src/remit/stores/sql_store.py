"""The store over SQL: every query and every write, for any database. `SqliteStore` and `PostgresStore` add connections and what differs."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from remit.core.adaptive import RunSample
from remit.core.budget import Limits
from remit.core.events import Event, EventKind, events_of_steps
from remit.core.record import CancelRequest, Head, HistoryQuery, Owner, Record, Spending
from remit.core.result import StopReason
from remit.core.states import LIVE, State
from remit.stores.rows import COLUMNS, TABLES, Connection, Group, fit_columns, from_json_text, record_of, to_json_text, unpack_times

if TYPE_CHECKING:
    from remit.core.metrics import Tally

Found = TypeVar("Found")
Change = Literal["cancel", "write"]
Scan = tuple[str, tuple[Any, ...]]
"""A condition that an index answers, with its values."""
Read = Callable[[str, Sequence[Any]], Iterable[Any]]

SELECT = f"SELECT {COLUMNS} FROM delegations"
AFTER_PREFIX = chr(0x10FFFF)
NO_LIMIT = 2**62
DURATIONS_KEPT = 400
EVENTS_READ = 20_000
"""For all runs of an agent whose silences are examined."""
TREES_AT_ONCE = 200
SAMPLED = (State.COMPLETED.value, State.TIMEOUT.value)
SETTLED = frozenset(state.value for state in State if state not in LIVE)
OWNER_COLUMNS = "owner_id, pid, pid_started, pid_space, host, opened_at"
_OWNER_UPDATE = ", ".join(f"{name}=excluded.{name}" for name in OWNER_COLUMNS.split(", ")[1:])
_COUNTERS = ("delegations", "tokens", "cost")
_OF_OWNER = "session_id IN (SELECT session_id FROM delegations WHERE owner=? AND settled_at IS NULL)"
_SIGNS = "SELECT at FROM events WHERE session_id=? AND kind!='notice' ORDER BY number"
_SPENT = (
    "SELECT delegations, tokens, cost, since, NULL FROM drawn WHERE principal=? UNION ALL SELECT 0, 0, 0, NULL, "
    "coalesce((SELECT body FROM events e WHERE e.session_id=d.session_id AND kind='spent' ORDER BY number DESC LIMIT 1), '{}') "
    "FROM delegations d WHERE principal=? AND settled_at IS NULL"
)
_SPENT_COLUMNS = (
    "session_id, parent_id, CASE WHEN status='refused' THEN 0 ELSE 1 END, tokens, cost, NULL, CASE WHEN settled_at IS NULL THEN "
    "coalesce((SELECT body FROM events e WHERE e.session_id=d.session_id AND kind='spent' ORDER BY number DESC LIMIT 1), '{}') END"
)


class SqlStore:
    """The `Store` over SQL, without connections."""

    AMONG: ClassVar[str]
    """A comparison with the members of `_list`."""
    UNINDEXED: ClassVar[str] = ""
    """Before a column whose index is not to be chosen."""
    FOR_UPDATE: ClassVar[str] = ""
    SKIP_LOCKED: ClassVar[str] = ""
    OLD_ROOTS: ClassVar[str] = (
        "parent_id IS NULL AND created_at<? AND settled_at<? AND NOT EXISTS (SELECT 1 FROM delegations c WHERE c.root_id=d.session_id "
        "AND c.parent_id IS NOT NULL AND (c.settled_at IS NULL OR c.settled_at>=? OR c.created_at>=?))"
    )
    """Roots of trees in which nothing is live or newer."""
    AFTER_FORGETTING: ClassVar[str] = ""
    """A statement that follows the deletion of delegations."""

    def __init__(self) -> None:
        self.owner_id: str | None = None
        """If set, outcomes are written only to delegations that still belong to this owner."""

    # ---- connections, and what differs between databases

    def _read(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        raise NotImplementedError

    def _stream(self, statement: str, values: Sequence[Any] = ()) -> Iterator[Any]:
        """Row by row, in constant memory."""
        raise NotImplementedError

    @contextmanager
    def _snapshot(self) -> Iterator[Read]:
        """Reads that all see the same state: what moves from one scan to another meanwhile is not counted twice."""
        yield self._stream

    def _transact(self, function: Callable[[Any], Found], change: Change = "write") -> Found:
        """Call it with a connection, in one transaction."""
        raise NotImplementedError

    def _transact_aside(self, function: Callable[[Any], Found]) -> Found:
        """Housekeeping: delays no other write of this process for long."""
        return self._transact(function)

    def _list(self, values: Iterable[str]) -> Any:
        raise NotImplementedError

    def _scans(self, statuses: Iterable[str] | None = None, agent: str | None = None, read: Read | None = None) -> list[Scan]:
        """Conditions that together are true for all delegations with these states, and each only for some. `read`: of a snapshot."""
        raise NotImplementedError

    def _newest_scans(self, after: int) -> list[Scan]:
        """The same for delegations after a number, with the index to use."""
        return [("WHERE id>?", (after,))]

    def _tree_scans(self, root_id: str) -> list[Scan]:
        """The same for a tree."""
        raise NotImplementedError

    def _history_scans(self, query: HistoryQuery) -> list[tuple[str, tuple[Any, ...], str]]:
        """The same for a query, with the prefix of a time that it compares."""
        raise NotImplementedError

    def _has_room(self, connection: Connection, group: Group) -> bool:
        """Whether the limits of all principals leave room for what the group records."""
        spent: dict[str, tuple[Spending, Limits]] = {}
        for row in group.draws:
            if row.status == State.REFUSED or row.principal is None:
                continue
            if row.principal not in spent:
                spent[row.principal] = self._drawn(connection, row.principal)
            before, limits = spent[row.principal]
            if before.lack(limits) is not None:
                return False
            spent[row.principal] = before._replace(delegations=before.delegations + 1, alive=before.alive + 1), limits
        return True

    def _drawn(self, connection: Connection, principal: str) -> tuple[Spending, Limits]:
        limits = _limits_of(connection.execute("SELECT limits FROM principal_limits WHERE principal=?", (principal,)).fetchall())
        return Spending() if limits == Limits() else _total(connection.execute(_SPENT, (principal, principal)).fetchall()), limits

    def _index_children(self) -> None:
        """Enter new children in indexes, where that is done later."""

    # ---- one delegation

    def _records(self, where: str, values: Sequence[Any] = ()) -> list[Record]:
        return [record_of(row) for row in self._read(f"{SELECT} WHERE {where}", values)]

    def get(self, session_id: str) -> Record | None:
        return next(iter(self._records("session_id=?", (session_id,))), None)

    def by_key(self, key: str) -> Record | None:
        return next(iter(self._records("key=?", (key,))), None)

    def keys(self, prefix: str, most: int) -> dict[str, str]:
        statement = "SELECT key, session_id FROM delegations WHERE key>=? AND key<? ORDER BY key DESC LIMIT ?"
        return dict(self._read(statement, (prefix, prefix + AFTER_PREFIX, most)))

    def drop_keys(self, prefix: str) -> int:
        statement, values = "UPDATE delegations SET key=NULL WHERE key>=? AND key<?", (prefix, prefix + AFTER_PREFIX)
        return self._transact(lambda connection: int(connection.execute(statement, values).rowcount))

    def newest_by_agent(self, after: int) -> dict[str, int]:
        found: dict[str, int] = {}
        for scan, values in self._newest_scans(after):
            for agent, number in self._read(f"SELECT agent, max(id) FROM delegations {scan} GROUP BY agent", values):
                found[agent] = max(number, found.get(agent, 0))
        return found

    def tree(self, root_id: str) -> list[Record]:
        return [record_of(row) for row in self._rows_of_tree(self._read, COLUMNS, root_id)]

    def children(self, session_id: str) -> list[Record]:
        known = self._read("SELECT root_id FROM delegations WHERE session_id=?", (session_id,))
        rows = [row for (root_id,) in known for row in self._rows_of_tree(self._read, COLUMNS, root_id, session_id)]
        return [record_of(row) for row in rows]

    def _rows_of_tree(self, read: Read, columns: str, root_id: str, parent_id: str | None = None) -> list[Any]:
        """Callers before their children. With `parent_id`, only its children."""
        found: dict[int, Any] = {}
        below, of_one = ("", ()) if parent_id is None else (f" AND {self.UNINDEXED}parent_id=?", (parent_id,))
        for scan, values in self._tree_scans(root_id):
            for row in read(f"SELECT id, parent_id, {columns} FROM delegations d WHERE {scan}{below}", (*values, *of_one)):
                found[row[0]] = row
        return [row[2:] for row in sorted(found.values(), key=lambda row: (row[1] is not None, row[0]))]

    def events(self, session_id: str, after: int = 0, most: int | None = None) -> list[Event]:
        known = self._read("SELECT step_times, chunk_count FROM delegations WHERE session_id=?", (session_id,))
        found = [step for times, count in known for step in events_of_steps(session_id, unpack_times(times), count) if step.number > after]
        said = self._read(
            "SELECT number, at, kind, body FROM events WHERE session_id=? AND number>? ORDER BY number LIMIT ?",
            (session_id, after, NO_LIMIT if most is None else most),
        )
        for number, at, kind, body in said:
            found.append(Event(session_id=session_id, number=number, at=at, kind=EventKind(kind), body=from_json_text(body)))
        found.sort(key=lambda event: event.number)
        return found if most is None else found[:most]

    def heads(self, session_ids: Sequence[str]) -> dict[str, Head]:
        statement = (
            "SELECT session_id, status, owner, (SELECT max(number) FROM events e WHERE e.session_id=d.session_id), queue "
            f"FROM delegations d WHERE session_id {self.AMONG}"
        )
        found = self._read(statement, (self._list(session_ids),))
        return {row[0]: Head(State(row[1]), row[2], row[3] or 0, row[4]) for row in found}

    def last_sign(self, session_ids: Sequence[str]) -> dict[str, float]:
        statement = (
            "SELECT session_id, created_at, step_times, (SELECT at FROM events e WHERE e.session_id=d.session_id "
            f"ORDER BY number DESC LIMIT 1) FROM delegations d WHERE session_id {self.AMONG}"
        )
        return {
            session_id: max(created_at, *(at for at in (*unpack_times(times), said_at) if at is not None))
            for session_id, created_at, times, said_at in self._read(statement, (self._list(session_ids),))
        }

    def checkpoint(self, session_id: str) -> Any:
        found = self._read("SELECT value FROM checkpoints WHERE session_id=?", (session_id,))
        return from_json_text(found[0][0]) if found else None

    # ---- many delegations

    def live(self) -> list[Record]:
        found: dict[int, Any] = {}
        for scan, values in self._scans(LIVE):
            for row in self._read(f"SELECT id, {COLUMNS} FROM delegations WHERE {scan}", values):
                found[row[0]] = row[1:]
        return [record_of(found[number]) for number in sorted(found)]

    def history(self, query: HistoryQuery) -> list[Record]:
        before = None
        if query.before_session is not None:
            known = self._read("SELECT created_at, id FROM delegations WHERE session_id=?", (query.before_session,))
            if not known:
                return []
            before = known[0]
        limit = max(0, query.limit)
        places: set[tuple[float, int]] = set()
        for scan, values, prefix in self._history_scans(query):
            conditions, more = self._filters(query, before, prefix)
            where = " AND ".join((scan, *conditions))
            statement = f"SELECT created_at, id FROM delegations WHERE {where} ORDER BY created_at DESC, id DESC LIMIT ?"
            places.update(self._read(statement, (*values, *more, limit)))
        numbers = ", ".join(str(int(number)) for _, number in sorted(places, reverse=True)[:limit])
        return self._records(f"id IN ({numbers}) ORDER BY created_at DESC, id DESC") if numbers else []

    def _filters(self, query: HistoryQuery, before: tuple[float, int] | None, prefix: str) -> tuple[list[str], list[Any]]:
        """All conditions of a query with their values, also those that its scan contains."""
        plus = self.UNINDEXED
        given = {
            f"{prefix}created_at>=?": query.since,
            f"{prefix}created_at<=?": query.until,
            f"{plus}root_id=?": query.root_id,
            f"{plus}agent=?": query.agent,
            f"{plus}status {self.AMONG}": self._list([state.value for state in query.states]) if query.states else None,
            f"{plus}task_number=?": query.task_number,
            f"{plus}principal=?": query.principal,
            f"{plus}conversation=?": query.conversation,
        }
        conditions = [condition for condition, value in given.items() if value is not None]
        values = [value for value in given.values() if value is not None]
        if before is not None:
            conditions.append(f"{prefix}created_at<=? AND ({plus}created_at<? OR {plus}id<?)")
            values += [before[0], before[0], before[1]]
        if query.roots_only:
            conditions.append(f"{plus}parent_id IS NULL")
        return conditions, values

    def count(self, state: str | None = None) -> int:
        with self._snapshot() as read:
            scans = self._scans(None if state is None else (str(state),), read=read)
            return sum(number for scan, values in scans for (number,) in read(f"SELECT count(*) FROM delegations WHERE {scan}", values))

    def durations(self, agent: str) -> list[RunSample]:
        runs: list[Any] = []
        with self._snapshot() as read:
            for scan, values in self._scans(SAMPLED, agent, read):
                statement = (
                    "SELECT created_at, id, session_id, status, started_at, settled_at, context, chunk_count FROM delegations "
                    f"WHERE {scan} AND settled_at>started_at ORDER BY created_at DESC, id DESC LIMIT {DURATIONS_KEPT}"
                )
                runs += read(statement, values)
        runs.sort(key=lambda run: run[:2], reverse=True)
        found, left = [], EVENTS_READ
        for _, _, session_id, status, started_at, settled_at, context, chunk_count in runs[:DURATIONS_KEPT]:
            left -= chunk_count  # if there are many events, not all are read
            of_one = (session_id,) if chunk_count and left >= 0 else None
            signs = [at for (at,) in self._read(_SIGNS, of_one)] if of_one else []
            silences = [after - before for before, after in zip([started_at, *signs], [*signs, settled_at], strict=True)] if signs else []
            seconds, timeout = settled_at - started_at, from_json_text(context)["timeout_seconds"]
            last = silences[-1] if silences else None
            found.append(RunSample(seconds, status == State.COMPLETED.value, timeout, max(silences, default=None), last))
        return found

    def tally(self, since: float | None = None, until: float | None = None) -> "Tally":
        from remit.core.metrics import Tally

        total = Tally()
        bounds = {"created_at>=?": since, "created_at<?": until}
        limits = "".join(f" AND {condition}" for condition, bound in bounds.items() if bound is not None)
        given = tuple(bound for bound in bounds.values() if bound is not None)
        result = f"CASE WHEN status IN ('{State.FAILED}', '{State.BLOCKED}') THEN result END"  # most need not be read
        with self._snapshot() as read:
            for scan, values in self._scans(read=read):
                statement = f"SELECT agent, status, settled_at - created_at, tokens, cost, {result} FROM delegations WHERE {scan}{limits}"
                for agent, status, seconds, tokens, cost, text in read(statement, (*values, *given)):
                    is_unavailable = text is not None and StopReason.UNAVAILABLE in text and _stop_reason(text) == StopReason.UNAVAILABLE
                    total.add(agent, State(status), seconds, tokens, cost, is_unavailable=is_unavailable)
        return total

    # ---- budgets

    def spent(self, principal: str) -> Spending:
        return _total(self._read(_SPENT, (principal, principal)))

    def spent_below(self, root_id: str, session_id: str) -> Spending:
        return self._spending_below(self._read, root_id, session_id)

    def _spending_below(self, read: Read, root_id: str, session_id: str) -> Spending:
        """Of a delegation and everything below it."""
        inside, rows = {session_id}, []
        for one, parent_id, *spent in self._rows_of_tree(read, _SPENT_COLUMNS, root_id):
            if one == session_id or parent_id in inside:
                inside.add(one)
                rows.append(spent)
        return _total(rows)

    def _spending_here(self, connection: Connection, root_id: str, session_id: str) -> Spending:
        """The same, in the transaction of `connection`."""
        return self._spending_below(lambda statement, values: connection.execute(statement, values).fetchall(), root_id, session_id)

    def limits(self, principal: str) -> Limits:
        return _limits_of(self._read("SELECT limits FROM principal_limits WHERE principal=?", (principal,)))

    def set_limits(self, principal: str, limits: Limits) -> None:
        statement = (
            "INSERT INTO principal_limits (principal, limits) VALUES (?, ?) ON CONFLICT (principal) DO UPDATE SET limits=excluded.limits"
        )
        self._transact(lambda connection: connection.execute(statement, (principal, to_json_text(limits.to_dict()))))

    # ---- owners

    def register_owner(self, owner: Owner) -> None:
        values = (owner.owner_id, owner.pid, owner.pid_started, owner.pid_space, owner.host, owner.opened_at)
        statement = f"INSERT INTO owners ({OWNER_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (owner_id) DO UPDATE SET {_OWNER_UPDATE}"
        self._transact(lambda connection: connection.execute(statement, values))

    def remove_owner(self, owner_id: str) -> None:
        self._transact(lambda connection: connection.execute("DELETE FROM owners WHERE owner_id=?", (owner_id,)))

    def owners(self) -> list[Owner]:
        names = OWNER_COLUMNS.split(", ")
        rows = self._read(f"SELECT {OWNER_COLUMNS} FROM owners ORDER BY opened_at, owner_id")
        return [Owner(**dict(zip(names, row, strict=True))) for row in rows]

    def take_over(self, session_ids: Sequence[str], *, of: str, to: str) -> list[Record]:
        statement = f"UPDATE delegations SET owner=? WHERE session_id {self.AMONG} AND owner=? AND settled_at IS NULL RETURNING {COLUMNS}"
        order = {session_id: number for number, session_id in enumerate(session_ids)}
        taken = self._transact(lambda connection: connection.execute(statement, (to, self._list(order), of)).fetchall())
        return sorted(map(record_of, taken), key=lambda record: order[record.session_id])

    def claim(self, session_id: str, *, ticket: int, owner: str) -> Record | None:
        update = "UPDATE delegations SET owner=?, ticket=? WHERE session_id=? AND ticket<? AND settled_at IS NULL AND queue IS NOT NULL"

        def claimed(connection: Connection) -> Record | None:
            before = connection.execute(f"{SELECT} WHERE session_id=?{self.FOR_UPDATE}", (session_id,)).fetchone()
            moved = connection.execute(update, (owner, ticket, session_id, ticket))
            return record_of(before) if before is not None and moved.rowcount == 1 else None

        return self._transact(claimed)

    def requeue(self, session_id: str, *, owner: str) -> None:
        change = "status='queued', started_at=NULL, attempt=attempt+1"
        statement = f"UPDATE delegations SET {change} WHERE session_id=? AND owner=? AND settled_at IS NULL"
        self._transact(lambda connection: connection.execute(statement, (session_id, owner)))

    def request_cancel(self, request: CancelRequest) -> None:
        values = (request.session_id, request.reason, request.source, request.at)
        statement = "INSERT INTO cancel_requests (session_id, reason, source, at) VALUES (?, ?, ?, ?)"
        self._transact(lambda connection: connection.execute(statement, values), "cancel")

    def take_cancels(self, owner_id: str) -> list[CancelRequest]:
        if not self._read(f"SELECT 1 FROM cancel_requests WHERE {_OF_OWNER} LIMIT 1", (owner_id,)):
            return []  # called often, usually so: hence a query before the transaction

        def taken(connection: Connection) -> list[Any]:
            take = f"DELETE FROM cancel_requests WHERE {_OF_OWNER} RETURNING id, session_id, reason, source, at"
            rows = connection.execute(take, (owner_id,)).fetchall()
            ended = "session_id IN (SELECT session_id FROM delegations WHERE settled_at IS NOT NULL)"
            connection.execute(f"DELETE FROM cancel_requests WHERE {ended}")
            return rows

        rows = sorted(self._transact(taken))
        return [CancelRequest(session_id=row[1], reason=row[2], source=row[3], at=row[4]) for row in rows]

    # ---- housekeeping

    def prune(self, *, settled_before: float) -> int:
        """Whole trees, in small transactions, so that writers get the lock in between. Spending is kept."""
        self._index_children()
        forgotten = 0
        for scan, values in self._scans(SETTLED):
            statement = f"SELECT session_id FROM delegations d WHERE {scan} AND {self.OLD_ROOTS} LIMIT {TREES_AT_ONCE}{self.SKIP_LOCKED}"
            while number := self._transact_aside(lambda one: self._forget(one, statement, (*values, *[settled_before] * 4))):  # noqa: B023
                forgotten += number
                time.sleep(0.001)  # a waiting writer retries within about this time: let it in
        return forgotten

    def _forget(self, connection: Connection, statement: str, values: Sequence[Any]) -> int:
        session_ids = []
        for (root_id,) in connection.execute(statement, values).fetchall():
            for scan, of_tree in self._tree_scans(root_id):
                session_ids += connection.execute(f"SELECT session_id FROM delegations WHERE {scan}", of_tree).fetchall()
        gone = self._list([session_id for (session_id,) in session_ids])
        for table in ("events", "checkpoints", "cancel_requests", "delegations") if session_ids else ():
            connection.execute(f"DELETE FROM {table} WHERE session_id {self.AMONG}", (gone,))
        if self.AFTER_FORGETTING:
            connection.execute(self.AFTER_FORGETTING)
        return len(session_ids)

    # ---- copying

    def rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        """All rows of one of `TABLES`, in write order."""
        order = " ORDER BY id" if table == "delegations" else ""
        return self._stream(f"SELECT {TABLES[table]} FROM {table}{order}")

    def add_rows(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Rows of another store. Existing ones are kept; of the spending of a principal the larger."""
        places = ", ".join("?" * len(TABLES[table].split(", ")))
        larger = ", ".join(f"{n}=CASE WHEN excluded.{n}>drawn.{n} THEN excluded.{n} ELSE drawn.{n} END" for n in _COUNTERS)
        conflict = f"(principal) DO UPDATE SET {larger}" if table == "drawn" else "DO NOTHING"
        statement = f"INSERT INTO {table} ({TABLES[table]}) VALUES ({places}) ON CONFLICT {conflict}"
        self._transact(lambda connection: connection.executemany(statement, [fit_columns(row) for row in rows]))


def _stop_reason(text: str) -> str | None:
    try:
        return str(from_json_text(text).get("stop_reason"))
    except (ValueError, AttributeError):
        return None


def _limits_of(rows: list[Any]) -> Limits:
    return Limits(**from_json_text(rows[0][0])) if rows else Limits()


def _total(rows: list[Any]) -> Spending:
    """From rows of what has ended, and one for each live delegation with what that reported."""
    total = Spending()
    for delegations, tokens, cost, since, told in rows:
        spent = from_json_text(told) if told is not None else {"tokens": tokens, "cost": cost}
        total = Spending(
            total.delegations + int(delegations),
            min(total.tokens + int(spent.get("tokens", 0)), 2**63 - 1),
            total.cost + float(spent.get("cost", 0.0)),
            total.since if since is None else since,
            total.alive + (told is not None),
        )
    return total
