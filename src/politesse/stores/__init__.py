"""Stores, which keep robots.txt and what hosts have asked for beyond the cache, as records: strings of bytes."""

from politesse.stores.memory import MemoryStore
from politesse.stores.sqlite import SqliteStore, StoredRecord, StoreStatistics

__all__ = ["MemoryStore", "SqliteStore", "StoreStatistics", "StoredRecord"]
