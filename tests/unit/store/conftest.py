"""The store of a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from remit import SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "remit.db")
    yield store
    store.close()
