"""Stores keep records for longer than the cache: robots.txt, and the demands of hosts.

For the gate, each store except MemoryStore and SharedMemoryStore outlives the process. A store with the methods of
LeasingStore needs a fleet. RedisStore, which processes on many machines can share, is in ``politesse.stores.redis``,
and needs the extra ``redis``.
"""

from politesse.stores._sqlite_records import StoredRecord, StoreStatistics
from politesse.stores.memory import MemoryStore, SharedMemoryStore
from politesse.stores.sqlite import SqliteStore

__all__ = ["MemoryStore", "SharedMemoryStore", "SqliteStore", "StoreStatistics", "StoredRecord"]
