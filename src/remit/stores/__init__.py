"""The stores: `SqliteStore`, one file for several processes, and `MemoryStore`, the same without a file."""

from remit.stores.sqlite import MemoryStore, SqliteStore

__all__ = ["MemoryStore", "SqliteStore"]
