"""History queries use an index, so that they stay fast with a million rows."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from remit import HistoryQuery, RecordDelegation, SqliteStore, State
from remit.stores.rows import COLUMNS
from support.store_suite import outcome, record, session

ROWS = 10_000
MOST_STEPS = 2 * ROWS


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path_factory.mktemp("store") / "remit.db")
    fill(store, ROWS)
    store.optimize()
    yield store
    store.close()


def fill(store: SqliteStore, rows: int) -> None:
    """Copies of one settled delegation: 20 agents, one in ten failed, one in a hundred of a task."""
    store.apply([RecordDelegation(record(1)), outcome(1)])
    given = (
        COLUMNS.replace("session_id, root_id", "'sess_1600000000_' || n, 'sess_1600000000_' || n")
        .replace("agent", "'agent' || (n % 20)")
        .replace("status", "CASE WHEN n % 10 THEN 'completed' ELSE 'failed' END")
        .replace("created_at", "created_at + n")
        .replace("task_number", "CASE WHEN n % 100 THEN NULL ELSE n / 1000 END")
        .replace("principal", "CASE WHEN n % 2 THEN NULL ELSE 'token:' || (n % 5) END")
        .replace("conversation", "CASE WHEN n % 3 THEN NULL ELSE 'talk' || (n % 1000) END")
    )
    store._writer.execute(
        f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {rows}) "
        f"INSERT INTO delegations ({COLUMNS}) SELECT {given} FROM numbers, delegations WHERE session_id='{session(1)}'"
    )


CHOICES: dict[str, tuple[Any, ...]] = {
    "root_id": (None, session(1)),
    "agent": (None, "agent3"),
    "states": ((), (State.FAILED,)),
    "task_number": (None, 7),
    "since": (None, 2000.0),
    "until": (None, 30_000.0),
    "before_session": (None, "sess_1600000000_20000"),
}
VISITED = [
    HistoryQuery(principal="token:3", conversation=conversation, states=states, since=since, roots_only=roots_only)
    for conversation in (None, "talk7")
    for states in ((), (State.FAILED, State.COMPLETED), (State.RUNNING,))
    for since in (None, 2000.0)
    for roots_only in (False, True)
]
QUERIES = [HistoryQuery(**dict(zip(CHOICES, values, strict=True))) for values in product(*CHOICES.values())]


def test_no_query_scans_the_table(store: SqliteStore) -> None:
    """Counted in steps of SQLite's virtual machine, independent of load. A scan takes 9 steps per row."""
    connection = store._reader()
    steps = 0

    def count_steps() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.set_progress_handler(count_steps, 100)
    store._readers.append(connection)  # the one that is used next
    for query in (*QUERIES, *VISITED):
        steps = 0
        found = store.history(query)
        assert len(found) <= query.limit
        assert steps * 100 < MOST_STEPS, query
    for question in (store.live, lambda: store.durations("agent3"), lambda: store.tree(session(1)), lambda: store.heads([session(1)] * 9)):
        steps = 0
        question()
        assert steps * 100 < MOST_STEPS
