"""History: by tree, agent, state, task and time, newest first, quick with a million rows.

Each question is answered from an index that gives the rows already filtered and in order, one index range per state, so that
only as many entries are looked at as are asked for, in each state. "Newest" means created last; of equals, recorded last.
The tests hold every combination of filters to this by EXPLAIN QUERY PLAN.
"""

import sqlite3
from typing import Any

from remit.core.record import HistoryQuery, Record
from remit.core.states import LIVE, State
from remit.store.rows import COLUMNS, record_of

SETTLED = tuple(state.value for state in State if state not in LIVE)
NEWEST_FIRST = "ORDER BY created_at DESC, id DESC"
DURATIONS_KEPT = 1000

Question = tuple[str, dict[str, Any]]


def history(connection: sqlite3.Connection, query: HistoryQuery) -> list[Record]:
    statement, values = question_of(query)
    if query.before_session is not None:
        place = connection.execute("SELECT created_at, id FROM delegations WHERE session_id=?", (query.before_session,)).fetchone()
        if place is None:
            return []
        values |= {"before_at": place[0], "before_id": place[1]}
    return [record_of(row) for row in connection.execute(statement, values)]


def question_of(query: HistoryQuery) -> Question:
    """The statement and its values. Columns that must not choose the index stand behind a unary plus."""
    values = {
        "root": query.root_id,
        "agent": query.agent,
        "status": None if query.state is None else query.state.value,
        "task": query.task_number,
        "since": query.since,
        "until": query.until,
        "limit": max(0, query.limit),
    }
    if query.root_id is not None:
        arms = _arms_of_tree(query)
    elif query.task_number is not None:
        arms = [_arm("delegations_by_task", ["task_number=:task", *_time(query), *_agent_and_state(query)])]
    else:
        arms = _arms_by_state(query)
    ids = " UNION ALL ".join(f"SELECT * FROM ({arm})" for arm in arms)
    columns = ", ".join(f"d.{name}" for name in COLUMNS.split(", "))
    statement = (
        f"SELECT {columns} FROM (SELECT id FROM ({ids}) {NEWEST_FIRST} LIMIT :limit) AS found "
        f"CROSS JOIN delegations AS d ON d.id=found.id ORDER BY d.created_at DESC, d.id DESC"
    )
    return statement, values


def _arms_of_tree(query: HistoryQuery) -> list[str]:
    """The root by its own id and the rest by the tree's index: a tree is small, so the rest of the filters just filter."""
    rest = [*_time(query, plus="+"), *_agent_and_state(query)]
    if query.task_number is not None:
        rest.append("+task_number=:task")
    return [
        _arm("sqlite_autoindex_delegations_1", ["session_id=:root", "parent_id IS NULL", *rest]),
        _arm("delegations_in_tree", ["root_id=:root", "parent_id IS NOT NULL", *rest]),
    ]


def _arms_by_state(query: HistoryQuery) -> list[str]:
    arms = []
    if query.state is None or query.state in LIVE:
        arms.append(_arm("delegations_live", ["settled_at IS NULL", *_time(query), *_agent_and_state(query)]))
    for status in SETTLED if query.state is None else (query.state.value,):
        if status in SETTLED:
            index = "delegations_by_status" if query.agent is None else "delegations_by_agent"
            agent = [] if query.agent is None else ["agent=:agent"]
            arms.append(_arm(index, [*agent, f"status='{status}'", "settled_at IS NOT NULL", *_time(query)]))
    return arms


def _arm(index: str, conditions: list[str]) -> str:
    where = " AND ".join(conditions)
    return f"SELECT created_at, id FROM delegations INDEXED BY {index} WHERE {where} {NEWEST_FIRST} LIMIT :limit"


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
    return conditions if query.state is None else [*conditions, "+status=:status"]


# ---- figures over history


def durations(connection: sqlite3.Connection, agent: str, most: int) -> list[float]:
    """Seconds from start to outcome of the newest runs that were started, newest first."""
    conditions = ["agent=:agent", "settled_at IS NOT NULL", "+started_at IS NOT NULL"]
    arms = [_arm("delegations_by_agent", [f"status='{status}'", *conditions]) for status in SETTLED]
    ids = " UNION ALL ".join(f"SELECT * FROM ({arm})" for arm in arms)
    statement = (
        f"SELECT d.settled_at - d.started_at FROM (SELECT id FROM ({ids}) {NEWEST_FIRST} LIMIT :limit) AS found "
        f"CROSS JOIN delegations AS d ON d.id=found.id ORDER BY d.created_at DESC, d.id DESC"
    )
    return [seconds for (seconds,) in connection.execute(statement, {"agent": agent, "limit": most})]


def count(connection: sqlite3.Connection, state: str | None) -> int:
    """Counted over the narrow indexes, never over the rows."""
    live = "SELECT count(*) FROM delegations INDEXED BY delegations_live WHERE settled_at IS NULL"
    settled = "SELECT count(*) FROM delegations INDEXED BY delegations_by_status WHERE settled_at IS NOT NULL"
    if state is None:
        (found,) = connection.execute(f"SELECT ({live}) + ({settled})").fetchone()
    elif state in LIVE:
        (found,) = connection.execute(f"{live} AND +status=?", (state,)).fetchone()
    else:
        (found,) = connection.execute(f"{settled} AND status=?", (state,)).fetchone()
    return int(found)
