"""The stores: `SqliteStore`, a file for several processes; `MemoryStore`, without a file; `PostgresStore`, for several machines."""

from typing import TYPE_CHECKING

from remit.core.errors import Misused, Unavailable
from remit.stores.sqlite import MemoryStore, SqliteStore

if TYPE_CHECKING:
    from remit.core.settings import Settings
    from remit.stores.postgres import PostgresStore

__all__ = ["MemoryStore", "SqliteStore", "open_postgres"]


def open_postgres(settings: "Settings") -> "PostgresStore":
    """The store of `[store] url`."""
    url = settings.store.url
    assert url is not None
    address = url.partition("://")[2].partition("/")[0]
    if ":" in address.rpartition("@")[0] and not settings.source_of("store.url").startswith(("env ", "argument")):
        raise Misused(
            f"{settings.source_of('store.url')} contains a password.",
            advice="Leave it out of the file; set PGPASSWORD, or name a PGPASSFILE.",
        )
    try:
        from remit.stores.postgres import PostgresStore
    except ImportError as error:
        raise Unavailable(
            f"The record is in PostgreSQL, and the package {error.name} is not installed.",
            code="STORE_UNAVAILABLE",
            advice="pip install 'remit[postgres]'",
        ) from error
    return PostgresStore(url, schema=settings.store.schema)
