"""Stores, which keep robots.txt and what hosts have asked for beyond the cache, as records: strings of bytes.

RedisStore, which processes on many machines share, is in ``politesse.stores.redis``: it needs the extra ``redis``.
"""

from politesse.stores.memory import MemoryStore
from politesse.stores.sqlite import SqliteStore, StoredRecord, StoreStatistics

__all__ = ["MemoryStore", "SqliteStore", "StoreStatistics", "StoredRecord"]
