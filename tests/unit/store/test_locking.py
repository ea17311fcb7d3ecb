"""Several connections to one file: which operations wait for a lock."""

import sqlite3
import threading
from collections.abc import Iterator

import pytest

from remit import HistoryQuery, RecordDelegation, SqliteStore, Unavailable
from remit.stores import database
from remit.testing.store_suite import numbers_of, outcome, record


@pytest.fixture
def holder(store: SqliteStore) -> Iterator[sqlite3.Connection]:
    """Another connection that holds the write lock."""
    connection = sqlite3.connect(store.path, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


def test_try_apply_does_not_wait_for_the_write_lock(store: SqliteStore, holder: sqlite3.Connection) -> None:
    assert store.try_apply([RecordDelegation(record(1))]) is None
    holder.execute("ROLLBACK")
    assert store.try_apply([RecordDelegation(record(1))]) is not None


def test_apply_times_out_with_advice(store: SqliteStore, holder: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database.begin, "__kwdefaults__", {"seconds": 0.05})
    with pytest.raises(Unavailable, match="database is locked") as caught:
        store.apply([RecordDelegation(record(1))])
    assert caught.value.code == "STORE_UNAVAILABLE"


def test_readers_do_not_wait_for_a_writer(store: SqliteStore, holder: sqlite3.Connection) -> None:
    """`holder` never releases its lock: a query that waited for it would raise."""
    assert store.history(HistoryQuery()) == []
    assert store.live() == []
    assert store.take_cancels("one") == []


def test_pruning_many_trees_lets_a_writer_proceed(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.stores.sql_store.TREES_AT_ONCE", 10)
    store.apply([RecordDelegation(record(n)) for n in range(500)])
    store.apply([outcome(n) for n in range(500)])
    pruning = threading.Thread(target=store.prune, kwargs={"settled_before": 3000.0})
    pruning.start()
    for number in range(1000, 1020):
        assert not store.apply([RecordDelegation(record(number))]).clashes
    pruning.join()
    assert numbers_of(store.live()) == list(range(1000, 1020))
    assert store.count() == 20
