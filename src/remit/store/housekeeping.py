"""What is done off the hot path: moving the write-ahead log into the database, and forgetting old trees.

Has a connection of its own, so that neither the one that records delegations nor a reader waits for it. Used by `sqlite`.
"""

import time
from pathlib import Path
from typing import Any

from remit.store.database import begin, connect, roll_back
from remit.store.drawing import keep_drawn
from remit.store.searching import SETTLED, pairs

LARGE_LOG_BYTES = 64 * 1024 * 1024
LOG_LOCK_SECONDS = 0.2
"""How long emptying a large log may wait for writers and readers; it is tried again the next time."""
TREES_AT_ONCE = 200

OLD_ROOTS = (
    "SELECT session_id FROM delegations d WHERE agent=:agent AND status=:status AND created_at<:before "
    "AND +settled_at<:before AND +parent_id IS NULL AND NOT EXISTS (SELECT 1 FROM delegations c WHERE c.root_id=d.session_id "
    "AND c.parent_id IS NOT NULL AND (+c.settled_at IS NULL OR +c.settled_at>=:before OR +c.created_at>=:before)) LIMIT :most"
)
_OF_TREE = (
    "SELECT session_id FROM delegations WHERE session_id=?1 "
    "UNION ALL SELECT session_id FROM delegations WHERE root_id=?1 AND parent_id IS NOT NULL"
)


class Housekeeper:
    def __init__(self, path: Path) -> None:
        self._log = path.with_name(path.name + "-wal")
        self._connection = connect(path, busy_seconds=LOG_LOCK_SECONDS)
        self._connection.execute("PRAGMA synchronous=NORMAL")

    def move_log(self) -> None:
        """PASSIVE disturbs nobody. Under unending writes it never reaches the end of the log, so a large one is forced."""
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if self._log.exists() and self._log.stat().st_size > LARGE_LOG_BYTES:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def prune(self, settled_before: float) -> int:
        """Whole trees, in small transactions: whoever records delegations gets the lock in between."""
        forgotten = 0
        for agent, status in pairs(self._connection, statuses=SETTLED):
            values = {"agent": agent, "status": status, "before": settled_before, "most": TREES_AT_ONCE}
            while old := self._forget_some(values):
                forgotten += old
                time.sleep(0.001)  # a writer that waits looks again within about this time: let it in
        return forgotten

    def _forget_some(self, values: dict[str, Any]) -> int:
        begin(self._connection)
        try:
            roots = self._connection.execute(OLD_ROOTS, values).fetchall()
            forgotten = sum(self._forget_tree(root_id) for (root_id,) in roots)
            self._connection.execute("COMMIT")
        except BaseException:
            roll_back(self._connection)
            raise
        return forgotten

    def _forget_tree(self, root_id: str) -> int:
        session_ids = self._connection.execute(_OF_TREE, (root_id,)).fetchall()
        keep_drawn(self._connection, root_id)
        for table in ("events", "checkpoints", "cancel_requests", "delegations"):
            self._connection.executemany(f"DELETE FROM {table} WHERE session_id=?", session_ids)
        return len(session_ids)

    def close(self) -> None:
        self._connection.close()
