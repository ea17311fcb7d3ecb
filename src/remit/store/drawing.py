"""What a principal has drawn, over all that it ever asked for (S8). Functions over a connection, used by `sqlite` and `housekeeping`.

Summed up from the rows when it is asked for, which is once for a process; what the history forgets is added to a table of its own before.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any

from remit.core.record import Drawn
from remit.store.rows import decoded

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


def drawn(connection: sqlite3.Connection, principal: str) -> Drawn:
    """All of it from one moment."""
    connection.execute("BEGIN")
    try:
        parts = [_of(row) for row in (*connection.execute(SUMMED, (principal,)), *connection.execute(FORGOTTEN, (principal,)))]
        for session_id, created_at in connection.execute(LIVING, (principal,)).fetchall():
            told = connection.execute(TOLD, (session_id,)).fetchone()
            spent = {} if told is None else decoded(told[0])
            parts.append(Drawn(1, int(spent.get("tokens", 0)), float(spent.get("cost", 0.0)), created_at))
    finally:
        connection.execute("COMMIT")
    return summed(parts)


def summed(parts: Sequence[Drawn]) -> Drawn:
    return Drawn(
        sum(part.delegations for part in parts),
        sum(part.tokens for part in parts),
        sum(part.cost for part in parts),
        min((part.since for part in parts if part.since is not None), default=None),
    )


def keep_drawn(connection: sqlite3.Connection, root_id: str) -> None:
    """Before its tree is forgotten."""
    for principal, *row in connection.execute(OF_TREE, (root_id,)).fetchall():
        connection.execute(KEEP, (principal, *_of(row)))


def _of(row: Sequence[Any]) -> Drawn:
    delegations, tokens, cost, since = row
    return Drawn(int(delegations), min(int(tokens), 2**63 - 1), float(cost), since)
