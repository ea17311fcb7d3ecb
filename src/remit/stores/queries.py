"""Queries on the SQLite database: one delegation, its tree and its history, spending, and work of dead processes."""

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from remit.core.adaptive import RunSample
from remit.core.events import Event, EventKind, events_of_steps
from remit.core.record import CancelRequest, Head, HistoryQuery, Owner, Record, Spending
from remit.core.result import StopReason
from remit.core.states import LIVE, State
from remit.stores.rows import COLUMNS, from_json_text, record_of, unpack_times

if TYPE_CHECKING:
    from remit.core.metrics import Tally

SELECT = f"SELECT {COLUMNS} FROM delegations"


def get(connection: sqlite3.Connection, session_id: str) -> Record | None:
    return _one(connection, f"{SELECT} WHERE session_id=?", session_id)


def by_key(connection: sqlite3.Connection, key: str) -> Record | None:
    return _one(connection, f"{SELECT} WHERE key=?", key)


AFTER_PREFIX = chr(0x10FFFF)


def keys(connection: sqlite3.Connection, prefix: str, most: int) -> dict[str, str]:
    statement = "SELECT key, session_id FROM delegations WHERE key>=? AND key<? ORDER BY key DESC LIMIT ?"
    return dict(connection.execute(statement, (prefix, prefix + AFTER_PREFIX, most)))


def drop_keys(connection: sqlite3.Connection, prefix: str) -> int:
    return connection.execute("UPDATE delegations SET key=NULL WHERE key>=? AND key<?", (prefix, prefix + AFTER_PREFIX)).rowcount


def newest_by_agent(connection: sqlite3.Connection, after: int) -> dict[str, int]:
    """From the beginning by the agent index; later by number, because few are new."""
    how = "NOT INDEXED" if after else "INDEXED BY delegations_by_agent"
    return dict(connection.execute(f"SELECT agent, max(id) FROM delegations {how} WHERE id>? GROUP BY agent", (after,)))


def tree(connection: sqlite3.Connection, root_id: str) -> list[Record]:
    root = connection.execute(f"{SELECT} WHERE session_id=? AND parent_id IS NULL", (root_id,))
    below = connection.execute(f"{SELECT} WHERE root_id=? AND parent_id IS NOT NULL ORDER BY id", (root_id,))
    return [record_of(row) for row in (*root, *below)]


def children(connection: sqlite3.Connection, session_id: str) -> list[Record]:
    statement = f"{SELECT} WHERE root_id=(SELECT root_id FROM delegations WHERE session_id=?1) AND parent_id=?1 ORDER BY id"
    return [record_of(row) for row in connection.execute(statement, (session_id,))]


def events(connection: sqlite3.Connection, session_id: str, after: int, most: int | None = None) -> list[Event]:
    known = connection.execute("SELECT step_times, chunk_count FROM delegations WHERE session_id=?", (session_id,)).fetchone()
    steps = [] if known is None else events_of_steps(session_id, unpack_times(known[0]), known[1])
    said = connection.execute(
        "SELECT number, at, kind, body FROM events WHERE session_id=? AND number>? ORDER BY number LIMIT ?",
        (session_id, after, -1 if most is None else most),
    )
    found = [step for step in steps if step.number > after]
    for number, at, kind, body in said:
        found.append(Event(session_id=session_id, number=number, at=at, kind=EventKind(kind), body=from_json_text(body)))
    found.sort(key=lambda event: event.number)
    return found if most is None else found[:most]


def heads(connection: sqlite3.Connection, session_ids: Sequence[str]) -> dict[str, Head]:
    statement = (
        "SELECT status, owner, (SELECT max(number) FROM events e WHERE e.session_id=d.session_id), queue "
        "FROM delegations d WHERE session_id=?"
    )
    found = {}
    for session_id in session_ids:
        row = connection.execute(statement, (session_id,)).fetchone()
        if row is not None:
            found[session_id] = Head(State(row[0]), row[1], row[2] or 0, row[3])
    return found


def last_sign(connection: sqlite3.Connection, session_ids: Sequence[str]) -> dict[str, float]:
    statement = (
        "SELECT created_at, step_times, (SELECT at FROM events e WHERE e.session_id=d.session_id ORDER BY number DESC LIMIT 1) "
        "FROM delegations d WHERE session_id=?"
    )
    signs = {}
    for session_id in session_ids:
        row = connection.execute(statement, (session_id,)).fetchone()
        if row is not None:
            created_at, step_times, said_at = row
            signs[session_id] = newest_of(created_at, unpack_times(step_times), said_at)
    return signs


def newest_of(created_at: float, step_times: Sequence[float | None], said_at: float | None) -> float:
    """The newest known sign of life; at least its creation."""
    return max(created_at, *(at for at in (*step_times, said_at) if at is not None))


def checkpoint(connection: sqlite3.Connection, session_id: str) -> Any:
    row = connection.execute("SELECT value FROM checkpoints WHERE session_id=?", (session_id,)).fetchone()
    return None if row is None else from_json_text(row[0])


def _one(connection: sqlite3.Connection, statement: str, value: str) -> Record | None:
    row = connection.execute(statement, (value,)).fetchone()
    return None if row is None else record_of(row)


DURATIONS_KEPT = 400
EVENTS_READ = 20_000
"""For all runs of an agent whose silences are examined."""
SAMPLED = (State.COMPLETED.value, State.TIMEOUT.value)
SETTLED = frozenset(state.value for state in State if state not in LIVE)

FIRST_PAIR = "SELECT agent, status FROM delegations ORDER BY agent, status LIMIT 1"
# Not one comparison of pairs: SQLite would scan all rows of the current pair.
NEXT_STATUS = "SELECT agent, status FROM delegations WHERE agent=? AND status>? ORDER BY status LIMIT 1"
NEXT_AGENT = "SELECT agent, status FROM delegations WHERE agent>? ORDER BY agent, status LIMIT 1"
PLACE = "SELECT created_at, id FROM delegations WHERE session_id=?"
BY_ID = f"SELECT {COLUMNS} FROM delegations WHERE id=?"

Pair = tuple[str, str]
Place = tuple[float, int]
"""Creation time and number: the order of history."""


def pairs(connection: sqlite3.Connection, agent: str | None = None, statuses: Iterable[str] | None = None) -> list[Pair]:
    """The existing agents and states, found by skipping through the index."""
    wanted = None if statuses is None else frozenset(statuses)
    if agent is not None:
        return [(agent, status) for status in (wanted if wanted is not None else tuple(State))]
    found = []
    pair = connection.execute(FIRST_PAIR).fetchone()
    while pair is not None:
        if wanted is None or pair[1] in wanted:
            found.append(pair)
        pair = connection.execute(NEXT_STATUS, pair).fetchone() or connection.execute(NEXT_AGENT, pair[:1]).fetchone()
    return found


def live(connection: sqlite3.Connection) -> list[Record]:
    """Queued and running, in recording order."""
    statement = f"SELECT id, {COLUMNS} FROM delegations WHERE agent=? AND status=?"
    rows = [row for pair in pairs(connection, statuses=LIVE) for row in connection.execute(statement, pair)]
    rows.sort(key=lambda row: row[0])
    return [record_of(row[1:]) for row in rows]


def history(connection: sqlite3.Connection, query: HistoryQuery) -> list[Record]:
    before: Place | None = None
    if query.before_session is not None:
        before = connection.execute(PLACE, (query.before_session,)).fetchone()
        if before is None:
            return []
    values = _values(query, before)
    places: list[Place] = []
    if query.root_id is not None:  # the root by its own id, the rest by the tree's index: a tree is small, so other conditions just filter
        for driver in (("session_id=:root", "+parent_id IS NULL"), ("root_id=:root", "parent_id IS NOT NULL")):
            places += connection.execute(_newest(query, *driver, plus="+"), values)
    elif query.task_number is not None:
        places += connection.execute(_newest(query, "task_number=:task"), values)
    elif query.conversation is not None:
        places += connection.execute(_newest(query, "conversation=:conversation"), values)
    elif query.principal is not None and not LIVE.issuperset(query.wanted or SETTLED):  # live ones are found faster by their state
        places += connection.execute(_newest(query, "principal=:principal"), values)
    else:
        statement = _newest(query, "agent=:agent", "status=:status")
        wanted = None if query.wanted is None else [state.value for state in query.wanted]
        for agent, status in pairs(connection, query.agent, wanted):
            places += connection.execute(statement, {**values, "agent": agent, "status": status})
    places.sort(reverse=True)
    return [record_of(connection.execute(BY_ID, (number,)).fetchone()) for _, number in places[: max(0, query.limit)]]


def _values(query: HistoryQuery, before: Place | None) -> dict[str, Any]:
    return {
        "root": query.root_id,
        "agent": query.agent,
        "status": None,
        "states": None if query.wanted is None else json.dumps([state.value for state in query.wanted]),
        "task": query.task_number,
        "principal": query.principal,
        "conversation": query.conversation,
        "since": query.since,
        "until": query.until,
        "before_at": None if before is None else before[0],
        "before_id": None if before is None else before[1],
        "limit": max(0, query.limit),
    }


_FILTERS = {
    "agent": "agent=:agent",
    "wanted": "status IN (SELECT value FROM json_each(:states))",
    "task_number": "task_number=:task",
    "principal": "principal=:principal",
    "conversation": "conversation=:conversation",
}


def _newest(query: HistoryQuery, *driver: str, plus: str = "") -> str:
    """The statement whose index is chosen by `driver`. A unary plus keeps other columns from choosing one; `plus`: also the time."""
    conditions = list(driver)
    for bound, text in (("since", "created_at>=:since"), ("until", "created_at<=:until")):
        if getattr(query, bound) is not None:
            conditions.append(plus + text)
    if query.before_session is not None:
        conditions.append(f"{plus}created_at<=:before_at AND (+created_at<:before_at OR +id<:before_id)")
    for name, text in _FILTERS.items():
        column = text.replace(" ", "=").partition("=")[0]
        if getattr(query, name) is not None and not any(one.startswith(f"{column}=") for one in driver):
            conditions.append(f"+{text}")
    if query.roots_only:
        conditions.append("+parent_id IS NULL")
    return f"SELECT created_at, id FROM delegations WHERE {' AND '.join(conditions)} ORDER BY created_at DESC, id DESC LIMIT :limit"


# ---- figures


def durations(connection: sqlite3.Connection, agent: str) -> list[RunSample]:
    statement = (
        "SELECT created_at, id, session_id, status, started_at, settled_at, context, chunk_count FROM delegations "
        f"WHERE agent=? AND status=? AND +settled_at>+started_at ORDER BY created_at DESC, id DESC LIMIT {DURATIONS_KEPT}"
    )
    runs = [run for status in SAMPLED for run in connection.execute(statement, (agent, status))]
    runs.sort(reverse=True)

    def signs(session_id: str) -> list[float]:
        said = connection.execute("SELECT at FROM events WHERE session_id=? AND kind!='notice' ORDER BY number", (session_id,))
        return [at for (at,) in said]

    return samples_of([run[2:] for run in runs[:DURATIONS_KEPT]], signs)


def samples_of(runs: Sequence[Sequence[Any]], signs: Callable[[str], list[float]]) -> list[RunSample]:
    """From rows with session, status, start, end, context and number of events, newest first. If there are many
    events, not all are read."""
    found, left = [], EVENTS_READ
    for session_id, status, started_at, settled_at, context, chunk_count in runs:
        left -= chunk_count
        heard = signs(session_id) if chunk_count and left >= 0 else []
        silences = [after - before for before, after in zip([started_at, *heard], [*heard, settled_at], strict=True)] if heard else [None]
        seconds, timeout = settled_at - started_at, from_json_text(context)["timeout_seconds"]
        largest = max((one for one in silences if one is not None), default=None)
        found.append(RunSample(seconds, status == State.COMPLETED.value, timeout, largest, silences[-1]))
    return found


def tally(connection: sqlite3.Connection, since: float | None, until: float | None = None) -> "Tally":
    """Row by row, in constant memory."""
    from remit.core.metrics import Tally

    total_spending = Tally()
    # Only for failures: most rows need not be parsed as JSON.
    reason = (
        f"CASE WHEN status IN ('{State.FAILED}', '{State.BLOCKED}') AND json_valid(result) THEN json_extract(result, '$.stop_reason') END"
    )
    columns = f"SELECT settled_at - created_at, tokens, cost, {reason} FROM delegations WHERE agent=? AND status=?"
    limits = {"created_at>=?": since, "created_at<?": until}
    given = [limit for limit in limits.values() if limit is not None]
    statement = " AND ".join([columns, *(condition for condition, limit in limits.items() if limit is not None)])
    for agent, status in pairs(connection):
        state = State(status)
        for seconds, tokens, cost, why in connection.execute(statement, (agent, status, *given)):
            total_spending.add(agent, state, seconds, tokens, cost, is_unavailable=why == StopReason.UNAVAILABLE)
    return total_spending


def count(connection: sqlite3.Connection, state: str | None) -> int:
    """Counted over the narrow index, never over the rows."""
    statement = "SELECT count(*) FROM delegations WHERE agent=? AND status=?"
    found = pairs(connection, statuses=None if state is None else (state,))
    return sum(connection.execute(statement, pair).fetchone()[0] for pair in found)


SUMMED = (
    "SELECT total(status!='refused'), total(tokens), total(cost), min(created_at) FROM delegations "
    "WHERE principal=? AND settled_at IS NOT NULL"
)
LIVING = "SELECT session_id, created_at FROM delegations WHERE principal=? AND settled_at IS NULL"
TOLD = "SELECT body FROM events WHERE session_id=? AND kind='spent' ORDER BY number DESC LIMIT 1"
FORGOTTEN = "SELECT delegations, tokens, cost, since FROM drawn WHERE principal=?"
OF_TREE = (
    "SELECT principal, total(status!='refused'), total(tokens), total(cost), min(created_at) FROM delegations "
    "WHERE session_id=?1 OR (root_id=?1 AND parent_id IS NOT NULL) GROUP BY principal HAVING principal IS NOT NULL"
)
KEEP = (
    "INSERT INTO drawn (principal, delegations, tokens, cost, since) VALUES (?, ?, ?, ?, ?) ON CONFLICT (principal) DO UPDATE SET "
    "delegations=delegations+excluded.delegations, tokens=tokens+excluded.tokens, cost=cost+excluded.cost, since=min(since, excluded.since)"
)


def drawn(connection: sqlite3.Connection, principal: str) -> Spending:
    """A consistent read."""
    connection.execute("BEGIN")
    try:
        parts = [_of(row) for row in (*connection.execute(SUMMED, (principal,)), *connection.execute(FORGOTTEN, (principal,)))]
        for session_id, created_at in connection.execute(LIVING, (principal,)).fetchall():
            told = connection.execute(TOLD, (session_id,)).fetchone()
            spent = {} if told is None else from_json_text(told[0])
            parts.append(Spending(1, int(spent.get("tokens", 0)), float(spent.get("cost", 0.0)), created_at))
    finally:
        connection.execute("COMMIT")
    return total_spending(parts)


def total_spending(parts: Sequence[Spending]) -> Spending:
    return Spending(
        sum(part.delegations for part in parts),
        sum(part.tokens for part in parts),
        sum(part.cost for part in parts),
        min((part.since for part in parts if part.since is not None), default=None),
    )


def keep_drawn(connection: sqlite3.Connection, root_id: str) -> None:
    """Before its tree is pruned."""
    for principal, *row in connection.execute(OF_TREE, (root_id,)).fetchall():
        connection.execute(KEEP, (principal, *_of(row)))


def _of(row: Sequence[Any]) -> Spending:
    delegations, tokens, cost, since = row
    return Spending(int(delegations), min(int(tokens), 2**63 - 1), float(cost), since)


OWNER_COLUMNS = "owner_id, pid, pid_started, pid_space, host, opened_at"


def enrol(connection: sqlite3.Connection, owner: Owner) -> None:
    connection.execute(
        f"INSERT OR REPLACE INTO owners ({OWNER_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
        (owner.owner_id, owner.pid, owner.pid_started, owner.pid_space, owner.host, owner.opened_at),
    )


def dismiss(connection: sqlite3.Connection, owner_id: str) -> None:
    connection.execute("DELETE FROM owners WHERE owner_id=?", (owner_id,))


def owners(connection: sqlite3.Connection) -> list[Owner]:
    rows = connection.execute(f"SELECT {OWNER_COLUMNS} FROM owners ORDER BY opened_at, owner_id")
    names = OWNER_COLUMNS.split(", ")
    return [Owner(**dict(zip(names, row, strict=True))) for row in rows]


def take_over(connection: sqlite3.Connection, session_ids: Sequence[str], of: str, to: str) -> list[Record]:
    taken = []
    for session_id in dict.fromkeys(session_ids):
        moved = connection.execute(
            "UPDATE delegations SET owner=? WHERE session_id=? AND owner=? AND settled_at IS NULL", (to, session_id, of)
        )
        record = get(connection, session_id) if moved.rowcount == 1 else None
        if record is not None:
            taken.append(record)
    return taken


def claim(connection: sqlite3.Connection, session_id: str, ticket: int, owner: str) -> Record | None:
    before = get(connection, session_id)
    moved = connection.execute(
        "UPDATE delegations SET owner=?1, ticket=?2 WHERE session_id=?3 AND ticket<?2 AND settled_at IS NULL", (owner, ticket, session_id)
    )
    return before if moved.rowcount == 1 else None


def requeue(connection: sqlite3.Connection, session_id: str, owner: str) -> None:
    connection.execute(
        "UPDATE delegations SET status='queued', started_at=NULL, attempt=attempt+1 WHERE session_id=? AND owner=? AND settled_at IS NULL",
        (session_id, owner),
    )


def request_cancel(connection: sqlite3.Connection, request: CancelRequest) -> None:
    connection.execute(
        "INSERT INTO cancel_requests (session_id, reason, source, at) VALUES (?, ?, ?, ?)",
        (request.session_id, request.reason, request.source, request.at),
    )


_OF_OWNER = "FROM cancel_requests c JOIN delegations d ON d.session_id=c.session_id WHERE d.owner=? AND d.settled_at IS NULL"


def has_cancels(connection: sqlite3.Connection, owner_id: str) -> bool:
    """Called often, usually false: hence a query before the transaction."""
    return connection.execute(f"SELECT 1 {_OF_OWNER} LIMIT 1", (owner_id,)).fetchone() is not None


def take_cancels(connection: sqlite3.Connection, owner_id: str) -> list[CancelRequest]:
    rows = connection.execute(f"SELECT c.id, c.session_id, c.reason, c.source, c.at {_OF_OWNER} ORDER BY c.id", (owner_id,))
    taken = []
    for number, session_id, reason, source, at in rows.fetchall():
        taken.append(CancelRequest(session_id=session_id, reason=reason, source=source, at=at))
        connection.execute("DELETE FROM cancel_requests WHERE id=?", (number,))
    # Requests for delegations that have ended are void.
    connection.execute(
        "DELETE FROM cancel_requests WHERE EXISTS (SELECT 1 FROM delegations d "
        "WHERE d.session_id=cancel_requests.session_id AND d.settled_at IS NOT NULL)"
    )
    return taken


# ---- which installation the database belongs to


def token(connection: sqlite3.Connection) -> str | None:
    """Binds it to the user who created it (`system.ownership`); None: unbound."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name='installation'").fetchone() is None:
        return None
    found = connection.execute("SELECT token FROM installation").fetchone()
    return None if found is None else str(found[0])


def set_token(connection: sqlite3.Connection, token: str) -> None:
    """Not part of the schema: older versions of remit ignore the table."""
    connection.execute("CREATE TABLE IF NOT EXISTS installation (token TEXT NOT NULL)")
    connection.execute("DELETE FROM installation")
    connection.execute("INSERT INTO installation VALUES (?)", (token,))
