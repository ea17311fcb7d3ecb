"""Between processes: who runs delegations of this project, what passes from a dead one to a living one, who asked to cancel.

Functions over the writing connection, inside a transaction that `sqlite` has begun; the questions write nothing.
"""

import sqlite3
from collections.abc import Sequence

from remit.core.record import CancelRequest, Owner, Record
from remit.store.reading import get

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
