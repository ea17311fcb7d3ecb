"""History: by tree, agent, state, task and time, newest first, quick with a million rows. And what is live.

The index on (agent, status, created_at) gives the rows of one agent in one state, by time. Agents and states are few, so a
question that leaves them open is asked of each pair that occurs: no more entries are looked at than are wanted, in each pair.
"Newest" means created last; of equals, recorded last. The tests hold every statement to its index by EXPLAIN QUERY PLAN.
Functions over a connection, used by `sqlite`; they write nothing.
"""

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from remit.core.metrics import Tally
from remit.core.record import HistoryQuery, Record
from remit.core.states import LIVE, State
from remit.store.rows import COLUMNS, record_of

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
    if query.root_id is not None:
        for statement in tree_statements(query):
            places += connection.execute(statement, values)
    elif query.task_number is not None:
        places += connection.execute(task_statement(query), values)
    elif query.conversation is not None:
        places += connection.execute(conversation_statement(query), values)
    elif query.principal is not None and not LIVE.issuperset(query.wanted or SETTLED):  # what is live is found sooner by its state
        places += connection.execute(principal_statement(query), values)
    else:
        statement = pair_statement(query)
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


# ---- statements: a column that must not choose the index stands behind a unary plus


def pair_statement(query: HistoryQuery) -> str:
    return _newest(["agent=:agent", "status=:status", *_time(query), *_asked_for_by(query)])


def task_statement(query: HistoryQuery) -> str:
    return _newest(["task_number=:task", *_time(query), *_agent_and_state(query), *_asked_for_by(query)])


def principal_statement(query: HistoryQuery) -> str:
    roots = ["+parent_id IS NULL"] if query.roots_only else []
    return _newest(["principal=:principal", *_time(query), *_agent_and_state(query), *roots])


def conversation_statement(query: HistoryQuery) -> str:
    """Whose it is just filters: a conversation is small."""
    others = _asked_for_by(replace(query, conversation=None))
    return _newest(["conversation=:conversation", *_time(query), *_agent_and_state(query), *others])


def tree_statements(query: HistoryQuery) -> tuple[str, str]:
    """The root by its own id and the rest by the tree's index: a tree is small, so the other filters just filter."""
    rest = [*_time(query, plus="+"), *_agent_and_state(query), *_asked_for_by(query)]
    if query.task_number is not None:
        rest.append("+task_number=:task")
    return (
        _newest(["session_id=:root", "+parent_id IS NULL", *rest]),
        _newest(["root_id=:root", "parent_id IS NOT NULL", *rest]),
    )


def _newest(conditions: list[str]) -> str:
    return f"SELECT created_at, id FROM delegations WHERE {' AND '.join(conditions)} ORDER BY created_at DESC, id DESC LIMIT :limit"


def _time(query: HistoryQuery, plus: str = "") -> list[str]:
    conditions = []
    if query.since is not None:
        conditions.append(f"{plus}created_at>=:since")
    if query.until is not None:
        conditions.append(f"{plus}created_at<=:until")
    if query.before_session is not None:
        conditions.append(f"{plus}created_at<=:before_at AND (+created_at<:before_at OR +id<:before_id)")
    return conditions


def _agent_and_state(query: HistoryQuery) -> list[str]:
    conditions = [] if query.agent is None else ["+agent=:agent"]
    return conditions if query.wanted is None else [*conditions, "+status IN (SELECT value FROM json_each(:states))"]


def _asked_for_by(query: HistoryQuery) -> list[str]:
    conditions = [] if query.principal is None else ["+principal=:principal"]
    if query.conversation is not None:
        conditions.append("+conversation=:conversation")
    return [*conditions, "+parent_id IS NULL"] if query.roots_only else conditions


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


def tally(connection: sqlite3.Connection, since: float | None, until: float | None = None) -> Tally:
    """Row by row: what is summed up needs no room, however many there are."""
    summed = Tally()
    columns = "SELECT settled_at - created_at, tokens, cost FROM delegations WHERE agent=? AND status=?"
    limits = {"created_at>=?": since, "created_at<?": until}
    given = [limit for limit in limits.values() if limit is not None]
    statement = " AND ".join([columns, *(condition for condition, limit in limits.items() if limit is not None)])
    for agent, status in pairs(connection):
        state = State(status)
        for seconds, tokens, cost in connection.execute(statement, (agent, status, *given)):
            summed.add(agent, state, seconds, tokens, cost)
    return summed


def count(connection: sqlite3.Connection, state: str | None) -> int:
    """Counted over the narrow index, never over the rows."""
    statement = "SELECT count(*) FROM delegations WHERE agent=? AND status=?"
    found = pairs(connection, statuses=None if state is None else (state,))
    return sum(connection.execute(statement, pair).fetchone()[0] for pair in found)
