"""What is read from the SQLite database: one delegation, its tree and its history, what was spent, and what the dead left."""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from remit.core.events import Event, EventKind, events_of_steps
from remit.core.record import CancelRequest, Head, HistoryQuery, Owner, Record, Spending
from remit.core.states import LIVE, State
from remit.stores.rows import COLUMNS, from_json_text, record_of, unpack_times

if TYPE_CHECKING:
    from remit.core.metrics import Tally

SELECT = f"SELECT {COLUMNS} FROM delegations"


def get(connection: sqlite3.Connection, session_id: str) -> Record | None:
    return _one(connection, f"{SELECT} WHERE session_id=?", session_id)


def by_key(connection: sqlite3.Connection, key: str) -> Record | None:
    return _one(connection, f"{SELECT} WHERE key=?", key)


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
        "SELECT status, owner, (SELECT max(number) FROM events e WHERE e.session_id=d.session_id) FROM delegations d WHERE session_id=?"
    )
    found = {}
    for session_id in session_ids:
        row = connection.execute(statement, (session_id,)).fetchone()
        if row is not None:
            found[session_id] = Head(State(row[0]), row[1], row[2] or 0)
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
    """The newest sign of life among what is known; a delegation that has said nothing was at least created."""
    return max(created_at, *(at for at in (*step_times, said_at) if at is not None))


def checkpoint(connection: sqlite3.Connection, session_id: str) -> Any:
    row = connection.execute("SELECT value FROM checkpoints WHERE session_id=?", (session_id,)).fetchone()
    return None if row is None else from_json_text(row[0])


def _one(connection: sqlite3.Connection, statement: str, value: str) -> Record | None:
    row = connection.execute(statement, (value,)).fetchone()
    return None if row is None else record_of(row)


DURATIONS_KEPT = 1000
SETTLED = frozenset(state.value for state in State if state not in LIVE)

FIRST_PAIR = "SELECT agent, status FROM delegations ORDER BY agent, status LIMIT 1"
# Not one comparison of pairs: for that SQLite would walk through all the rows of the pair it stands on.
NEXT_STATUS = "SELECT agent, status FROM delegations WHERE agent=? AND status>? ORDER BY status LIMIT 1"
NEXT_AGENT = "SELECT agent, status FROM delegations WHERE agent>? ORDER BY agent, status LIMIT 1"
PLACE = "SELECT created_at, id FROM delegations WHERE session_id=?"
BY_ID = f"SELECT {COLUMNS} FROM delegations WHERE id=?"

Pair = tuple[str, str]
Place = tuple[float, int]
"""When it was created and its number: what history is ordered by."""


def pairs(connection: sqlite3.Connection, agent: str | None = None, statuses: Iterable[str] | None = None) -> list[Pair]:
    """The agents and states that occur, found by leaping from one to the next in the index."""
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
    """Queued and running, in the order they were recorded."""
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
    if query.root_id is not None:  # the root by its own id, the rest by the tree's index: a tree is small, so all else just filters
        for driver in (("session_id=:root", "+parent_id IS NULL"), ("root_id=:root", "parent_id IS NOT NULL")):
            places += connection.execute(_newest(query, *driver, plus="+"), values)
    elif query.task_number is not None:
        places += connection.execute(_newest(query, "task_number=:task"), values)
    elif query.conversation is not None:
        places += connection.execute(_newest(query, "conversation=:conversation"), values)
    elif query.principal is not None and not LIVE.issuperset(query.wanted or SETTLED):  # what is live is found sooner by its state
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
    """The statement whose index is chosen by `driver`. A unary plus keeps the other columns from choosing one; `plus`: of the time too."""
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


def durations(connection: sqlite3.Connection, agent: str) -> list[float]:
    """Seconds from start to outcome of the newest runs that were started, newest first."""
    statement = (
        "SELECT created_at, id, settled_at - started_at FROM delegations WHERE agent=? AND status=? AND +started_at IS NOT NULL "
        f"ORDER BY created_at DESC, id DESC LIMIT {DURATIONS_KEPT}"
    )
    runs = [run for status in SETTLED for run in connection.execute(statement, (agent, status))]
    runs.sort(reverse=True)
    return [seconds for _, _, seconds in runs[:DURATIONS_KEPT]]


def tally(connection: sqlite3.Connection, since: float | None, until: float | None = None) -> "Tally":
    """Row by row: what is summed up needs no room, however many there are."""
    from remit.core.metrics import Tally

    total_spending = Tally()
    columns = "SELECT settled_at - created_at, tokens, cost FROM delegations WHERE agent=? AND status=?"
    limits = {"created_at>=?": since, "created_at<?": until}
    given = [limit for limit in limits.values() if limit is not None]
    statement = " AND ".join([columns, *(condition for condition, limit in limits.items() if limit is not None)])
    for agent, status in pairs(connection):
        state = State(status)
        for seconds, tokens, cost in connection.execute(statement, (agent, status, *given)):
            total_spending.add(agent, state, seconds, tokens, cost)
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
    """All of it from one moment."""
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
    """Before its tree is forgotten."""
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
    """Asked often, answered nearly always with no: hence a question before the transaction."""
    return connection.execute(f"SELECT 1 {_OF_OWNER} LIMIT 1", (owner_id,)).fetchone() is not None


def take_cancels(connection: sqlite3.Connection, owner_id: str) -> list[CancelRequest]:
    rows = connection.execute(f"SELECT c.id, c.session_id, c.reason, c.source, c.at {_OF_OWNER} ORDER BY c.id", (owner_id,))
    taken = []
    for number, session_id, reason, source, at in rows.fetchall():
        taken.append(CancelRequest(session_id=session_id, reason=reason, source=source, at=at))
        connection.execute("DELETE FROM cancel_requests WHERE id=?", (number,))
    # What was asked of delegations that have since ended has become void.
    connection.execute(
        "DELETE FROM cancel_requests WHERE EXISTS (SELECT 1 FROM delegations d "
        "WHERE d.session_id=cancel_requests.session_id AND d.settled_at IS NOT NULL)"
    )
    return taken


# ---- which installation the database belongs to


def token(connection: sqlite3.Connection) -> str | None:
    """What binds it to the user who made it (`system.ownership`); None: nothing does."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name='installation'").fetchone() is None:
        return None
    found = connection.execute("SELECT token FROM installation").fetchone()
    return None if found is None else str(found[0])


def set_token(connection: sqlite3.Connection, token: str) -> None:
    """No part of the schema: older versions of remit ignore the table."""
    connection.execute("CREATE TABLE IF NOT EXISTS installation (token TEXT NOT NULL)")
    connection.execute("DELETE FROM installation")
    connection.execute("INSERT INTO installation VALUES (?)", (token,))
