"""Stores keep records for longer than the cache: robots.txt, and the demands of hosts.

For the gate, each store except MemoryStore and SharedMemoryStore outlives the process, and so do subclasses of these
two. A LeasingStore that outlives the process needs a fleet, or ``PacingOptions(scope="process")``. RedisStore, which
processes on many machines can share, is in ``politesse.stores.redis``, and needs the extra ``redis``.

A new store has the methods of ``politesse.ports.Store``, and is exported here, unless it needs an extra. If processes
share it, it also has those of UpdatingStore and LeasingStore. If a URL is to name it, extend ``store_at``
(``sqlite.py``).
"""

from politesse.stores._sqlite_records import StoredRecord, StoreStatistics
from politesse.stores.memory import MemoryStore, SharedMemoryStore
from politesse.stores.sqlite import SqliteStore

__all__ = ["MemoryStore", "SharedMemoryStore", "SqliteStore", "StoreStatistics", "StoredRecord"]
