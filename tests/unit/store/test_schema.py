"""The schema: migrated equals fresh, and several processes may create it at once."""

import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from remit.core.record import RecordDelegation
from remit.stores import SqliteStore
from remit.stores.database import migrations_after, statements_of
from remit.testing.store_samples import record

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


def test_empty_file_becomes_a_database(tmp_path: Path) -> None:
    path = tmp_path / "remit.db"
    path.touch()
    store = SqliteStore(path)
    store.apply([RecordDelegation(record(1))])
    store.close()


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
