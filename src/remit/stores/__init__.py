"""The stores: `SqliteStore`, a file for several processes; `MemoryStore`, without a file; `PostgresStore`, for several machines."""

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from remit.core.errors import Misused, Unavailable
from remit.stores.sqlite import MemoryStore, SqliteStore

if TYPE_CHECKING:
    from remit.core.settings import Settings
    from remit.stores.postgres import PostgresStore

__all__ = ["MemoryStore", "SqliteStore", "open_postgres"]
_PASSWORDS = ("password", "sslpassword")


def without_password(url: str) -> str:
    parts = urlsplit(url)
    name, at, host = parts.netloc.rpartition("@")
    options = "&".join(one for one in parts.query.split("&") if unquote(one.partition("=")[0]) not in _PASSWORDS)
    return urlunsplit(parts._replace(netloc=name.partition(":")[0] + at + host, query=options))


def must_have_no_password(url: str, place: str, line: str = 'url = "{}"') -> None:
    """`line`: how the address is written there."""
    if (harmless := without_password(url)) != url:
        raise Misused(
            f"{place} contains a password.",
            advice=f"Write {line.format(harmless)}, and set PGPASSWORD, or name a password file in PGPASSFILE.",
        )


def open_postgres(settings: "Settings") -> "PostgresStore":
    """The store of `[store] url`."""
    url = settings.store.url
    assert url is not None
    if not settings.source_of("store.url").startswith(("env ", "argument")):
        must_have_no_password(url, settings.source_of("store.url"))
    try:
        from remit.stores.postgres import PostgresStore
    except ImportError as error:
        raise Unavailable(
            f"The record is in PostgreSQL, and the package {error.name} is not installed.",
            code="STORE_UNAVAILABLE",
            advice="pip install 'remit[postgres]'",
        ) from error
    return PostgresStore(url, schema=settings.store.schema)
