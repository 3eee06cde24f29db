"""Stores, which keep records beyond the cache: robots.txt, and the pace that hosts have asked for.

The gate takes each store but MemoryStore and SharedMemoryStore as one that outlives the process. A store with the
methods of LeasingStore needs a fleet. RedisStore, which processes on many machines share, is in
``politesse.stores.redis``: it needs the extra ``redis``.
"""

from politesse.stores._sqlite_records import StoredRecord, StoreStatistics
from politesse.stores.memory import MemoryStore, SharedMemoryStore
from politesse.stores.sqlite import SqliteStore

__all__ = ["MemoryStore", "SharedMemoryStore", "SqliteStore", "StoreStatistics", "StoredRecord"]
