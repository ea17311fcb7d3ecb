"""Questions about delegations: one, a tree, what is live, what was said. History has its own module (`searching`).

Functions over a connection; `sqlite` lends them one. They write nothing and wait for no writer.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any

from remit.core.events import Event, EventKind, events_of_steps
from remit.core.record import Head, Record
from remit.core.states import State
from remit.store.rows import COLUMNS, decoded, record_of, unpacked

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
    steps = [] if known is None else events_of_steps(session_id, unpacked(known[0]), known[1])
    said = connection.execute(
        "SELECT number, at, kind, body FROM events WHERE session_id=? AND number>? ORDER BY number LIMIT ?",
        (session_id, after, -1 if most is None else most),
    )
    found = [step for step in steps if step.number > after]
    for number, at, kind, body in said:
        found.append(Event(session_id=session_id, number=number, at=at, kind=EventKind(kind), body=decoded(body)))
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
            signs[session_id] = newest_of(created_at, unpacked(step_times), said_at)
    return signs


def newest_of(created_at: float, step_times: Sequence[float | None], said_at: float | None) -> float:
    """The newest sign of life among what is known; a delegation that has said nothing was at least created."""
    return max(created_at, *(at for at in (*step_times, said_at) if at is not None))


def checkpoint(connection: sqlite3.Connection, session_id: str) -> Any:
    row = connection.execute("SELECT value FROM checkpoints WHERE session_id=?", (session_id,)).fetchone()
    return None if row is None else decoded(row[0])


def _one(connection: sqlite3.Connection, statement: str, value: str) -> Record | None:
    row = connection.execute(statement, (value,)).fetchone()
    return None if row is None else record_of(row)
