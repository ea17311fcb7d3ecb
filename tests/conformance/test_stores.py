"""Every store passes every check of `support.store_suite`."""

from pathlib import Path

import pytest

from remit import MemoryStore, SqliteStore
from remit.testing.store_suite import STORE_CHECKS, Check, OpenStore
from support.postgres import new_schema


@pytest.fixture(params=["sqlite", "sqlite-power", "memory", "postgres"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    if request.param == "postgres":
        from remit.stores.postgres import PostgresStore

        url, schema = request.getfixturevalue("postgres").url, new_schema()
        return lambda: PostgresStore(url, schema=schema)
    if request.param == "memory":
        first = MemoryStore()
        return lambda: MemoryStore(beside=first)
    durability = "power" if request.param == "sqlite-power" else "process"
    return lambda: SqliteStore(tmp_path / "remit.db", durability=durability)


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
def test_store_passes_the_check(check: Check, open_store: OpenStore) -> None:
    check(open_store)
