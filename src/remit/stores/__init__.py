"""The stores: `SqliteStore`, one file for several processes, and `MemoryStore`, its twin that keeps nothing."""

from remit.stores.memory import MemoryStore
from remit.stores.sqlite import SqliteStore

__all__ = ["MemoryStore", "SqliteStore"]
