"""Stores, which keep records of robots.txt beyond the cache; a record is a string of bytes."""

from politesse.stores.memory import MemoryStore
from politesse.stores.sqlite import SqliteStore, StoredRecord, StoreStatistics

__all__ = ["MemoryStore", "SqliteStore", "StoreStatistics", "StoredRecord"]
