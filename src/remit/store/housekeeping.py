"""What is done off the hot path: moving the write-ahead log into the database, and forgetting old trees.

Has a connection of its own, so that neither the one that records delegations nor a reader waits for it. Used by `sqlite`.
"""

import time
from pathlib import Path

from remit.store.database import begin, connect, roll_back
from remit.store.searching import SETTLED

LARGE_LOG_BYTES = 64 * 1024 * 1024
LOG_LOCK_SECONDS = 0.2
"""How long emptying a large log may wait for writers and readers; it is tried again the next time."""
TREES_AT_ONCE = 200

_OLD_ROOTS = " UNION ALL ".join(
    "SELECT * FROM (SELECT session_id FROM delegations d INDEXED BY delegations_by_status "
    f"WHERE status='{status}' AND settled_at IS NOT NULL AND created_at<:before AND settled_at<:before AND parent_id IS NULL "
    "AND NOT EXISTS (SELECT 1 FROM delegations c INDEXED BY delegations_in_tree WHERE c.root_id=d.session_id "
    "AND c.parent_id IS NOT NULL AND (c.settled_at IS NULL OR c.settled_at>=:before OR c.created_at>=:before)) "
    "ORDER BY created_at LIMIT :most)"
    for status in SETTLED
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
        """In small transactions: whoever records delegations gets the lock in between."""
        forgotten = 0
        while True:
            begin(self._connection)
            try:
                roots = self._connection.execute(_OLD_ROOTS, {"before": settled_before, "most": TREES_AT_ONCE}).fetchall()
                forgotten += sum(self._forget_tree(root_id) for (root_id,) in roots)
                self._connection.execute("COMMIT")
            except BaseException:
                roll_back(self._connection)
                raise
            if not roots:
                return forgotten
            time.sleep(0.001)  # a writer that waits looks again within this time or soon after: let it in

    def _forget_tree(self, root_id: str) -> int:
        session_ids = self._connection.execute(_OF_TREE, (root_id,)).fetchall()
        for table in ("events", "checkpoints", "cancel_requests", "delegations"):
            self._connection.executemany(f"DELETE FROM {table} WHERE session_id=?", session_ids)
        return len(session_ids)

    def close(self) -> None:
        self._connection.close()
