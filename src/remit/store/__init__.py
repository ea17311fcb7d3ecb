"""The stores: `SqliteStore`, one file for several processes, and `MemoryStore`, its twin that keeps nothing."""

from remit.store.memory import MemoryStore
from remit.store.sqlite import SqliteStore

__all__ = ["MemoryStore", "SqliteStore"]
