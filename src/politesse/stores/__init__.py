"""Stores keep records for longer than the cache does: copies of robots.txt, and demands of hosts.

The gate assumes that a store outlives the process, unless its class is MemoryStore or SharedMemoryStore. An instance
of a subclass of these two is also assumed to outlive the process. A LeasingStore that outlives the process needs a
fleet, or ``PacingOptions(scope="process")``. RedisStore, which processes on many machines can share, is in
``politesse.stores.redis``, and needs the extra ``redis``.

To add a store, write a class with the methods of ``politesse.ports.Store``, and export it here, unless it needs an
extra. A store that processes share also has the methods of UpdatingStore. With the methods of LeasingStore, only one of
these processes fetches a robots.txt. To let a URL name the store, extend ``store_at`` (``sqlite.py``).
"""

from politesse.stores.memory import MemoryStore, SharedMemoryStore
from politesse.stores.sqlite import SqliteStore, StoredRecord, StoreStatistics

__all__ = ["MemoryStore", "SharedMemoryStore", "SqliteStore", "StoreStatistics", "StoredRecord"]
