"""A damaged or foreign database file raises `Unavailable` with advice, and is never overwritten."""

import contextlib
import os
import sqlite3
from pathlib import Path

import pytest

from remit import HistoryQuery, RecordDelegation, SqliteStore, Unavailable
from remit.stores.database import VERSION
from remit.testing.store_suite import numbers_of, outcome, record, session


def open_error(path: Path) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        SqliteStore(path)
    assert caught.value.code == "STORE_UNAVAILABLE"
    assert caught.value.advice
    assert str(path) in str(caught.value)
    return caught.value


def made_by(path: Path, statement: str) -> bytes:
    """A database after a statement: an empty one before `CREATE`, otherwise one of this remit."""
    if not statement.startswith("CREATE"):
        SqliteStore(path).close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"this is not a database, but long enough to look like a file of some kind\n" * 20, "mv {0} {0}.damaged"),
        (b"SQLite format 3\0" + b"\xff" * 4000, "mv {0} {0}.damaged"),
        ("CREATE TABLE recipes (name TEXT)", "another program"),
        (f"PRAGMA user_version={VERSION + 1}", "pip install --upgrade remit"),
    ],
)
def test_file_that_is_not_ours_is_left_untouched(tmp_path: Path, content: bytes | str, said: str) -> None:
    path = tmp_path / "remit.db"
    path.write_bytes(before := made_by(path, content) if isinstance(content, str) else content)
    error = open_error(path)
    assert said.format(path) in f"{error.message} {error.advice}"
    assert path.read_bytes() == before
    assert isinstance(content, str) or sorted(os.listdir(tmp_path)) == ["remit.db"]


def test_pages_damaged_while_open_are_reported_as_damage(tmp_path: Path) -> None:
    path = tmp_path / "remit.db"
    store = SqliteStore(path)
    for start in range(0, 300, 50):
        store.apply([RecordDelegation(record(n)) for n in range(start, start + 50)])
    store.close()
    content = bytearray(path.read_bytes())
    schema_bytes = 20 * 2048
    content[schema_bytes:] = b"\x5a" * (len(content) - schema_bytes)
    path.write_bytes(content)
    store = SqliteStore(path)
    for question in (lambda: store.history(HistoryQuery()), lambda: store.get(session(299)), lambda: store.apply([outcome(299)])):
        with pytest.raises(Unavailable, match=r"remit\.db\.damaged"):
            question()
    store.close()


def test_full_disk_rolls_back_the_group_and_the_store_recovers(store: SqliteStore) -> None:
    store.apply([RecordDelegation(record(1))])
    (pages,) = store._writer.execute("PRAGMA page_count").fetchone()
    store._writer.execute(f"PRAGMA max_page_count={pages + 5}")
    group = [RecordDelegation(record(n, parameters={"text": "x" * 1000})) for n in range(2, 60)]
    for write in (store.apply, store.try_apply):
        with pytest.raises(Unavailable, match="is full") as caught:
            write(group)
        assert caught.value.code == "STORE_UNAVAILABLE"
        assert "space" in caught.value.advice
    assert numbers_of(store.live()) == [1]
    assert not store.apply([outcome(1)]).already_settled, "a small write still fits"
    store._writer.execute("PRAGMA max_page_count=1000000")
    assert not store.apply(group).clashes
    assert store.count() == 59


@pytest.mark.parametrize("replace", [False, True])
def test_deleted_or_replaced_file_is_detected(store: SqliteStore, tmp_path: Path, replace: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.stores.sqlite.PLACE_CHECK_SECONDS", 0.0)
    path = Path(store.path)
    store.apply([RecordDelegation(record(1))])
    path.rename(tmp_path / "kept.db")
    if replace:
        path.write_bytes(b"")
    with pytest.raises(Unavailable, match="deleted or replaced"):
        store.apply([outcome(1)])
    path.unlink(missing_ok=True)
    (tmp_path / "kept.db").rename(path)
    assert not store.apply([outcome(1)]).already_settled, "works again once the file is back"
