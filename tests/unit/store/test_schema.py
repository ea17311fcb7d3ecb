"""The schema: migrated equals fresh, and several processes may create it at once."""

import contextlib
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from remit import CallerInfo, HistoryQuery, RecordDelegation, SqliteStore, State
from remit.core.record import Spending
from remit.stores.database import APPLICATION_ID, VERSION, migrations_after, statements_of
from remit.stores.rows import Row, row_of
from remit.stores.sqlite import ReadOnlyStore
from remit.testing.store_suite import numbers_of, outcome, record

Schema = list[tuple[str, str, str]]


def schema_made_by(*names: str) -> Schema:
    connection = sqlite3.connect(":memory:")
    for name in names:
        for statement in statements_of(name):
            connection.execute(statement)
    return schema_of(connection)


def schema_of(connection: sqlite3.Connection) -> Schema:
    rows = connection.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_master ORDER BY type, name").fetchall()
    connection.close()
    return [(kind, name, without_comments(sql)) for kind, name, sql in rows]


def without_comments(sql: str) -> str:
    """Also normalizes line breaks: a column added later comes before the bracket, on the line after the comment."""
    words = " ".join(" ".join(line.split("--")[0] for line in sql.splitlines()).split())
    return re.sub(r" ?([(),]) ?", r"\1", words)


def test_migrated_schema_equals_the_fresh_one() -> None:
    assert schema_made_by(*migrations_after(0)) == schema_made_by("schema.sql")


def test_several_threads_open_a_new_database_at_once(tmp_path: Path) -> None:
    path = tmp_path / "remit.db"

    def open_and_record(number: int) -> None:
        store = SqliteStore(path)
        store.apply([RecordDelegation(record(number))])
        store.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(open_and_record, range(16)))
    store = SqliteStore(path)
    assert store.count() == 16
    store.close()


def old_database(path: Path, version: int) -> None:
    """As an older remit made it, with a settled delegation of a principal if that version knows principals."""
    connection = sqlite3.connect(path)
    for name in migrations_after(0)[:version]:
        for statement in statements_of(name):
            connection.execute(statement)
    known = {row[1] for row in connection.execute("PRAGMA table_info(delegations)")}
    settled = {
        "state": State.COMPLETED,
        "settled_at": 2000.0,
        "tokens": 7,
        "caller_info": CallerInfo("token:one"),
        "result": outcome(1).result,
    }
    row = Row._make(row_of(record(1, **settled)))._asdict()
    kept = {name: value for name, value in row.items() if name in known}
    connection.execute(f"INSERT INTO delegations ({', '.join(kept)}) VALUES ({', '.join('?' * len(kept))})", tuple(kept.values()))
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={version}")
    connection.commit()
    connection.close()


@pytest.mark.parametrize("version", range(1, VERSION))
def test_database_of_an_older_remit_is_read_as_it_is(tmp_path: Path, version: int) -> None:
    path = tmp_path / "remit.db"
    old_database(path, version)
    before = path.read_bytes()
    for is_foreign in (False, True):
        with contextlib.closing(ReadOnlyStore(path, is_foreign=is_foreign)) as store:
            assert numbers_of(store.history(HistoryQuery())) == [1]
            assert store.count() == 1
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["remit.db"]


def test_spending_is_counted_once_when_a_database_is_upgraded(tmp_path: Path) -> None:
    old_database(tmp_path / "remit.db", 3)
    for _ in range(2):
        with contextlib.closing(SqliteStore(tmp_path / "remit.db")) as store:
            assert store.spent("token:one") == Spending(1, 7, 0.0, 1001.0)
