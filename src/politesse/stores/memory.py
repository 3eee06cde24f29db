"""Records in this process, bounded by bytes, the least recently used forgotten first."""

from __future__ import annotations

import cachetools

from politesse.errors import ConfigurationError


class MemoryStore:
    """A Store that lives and dies with the process.

    Args:
        max_bytes: how many bytes of records, keys included, to keep; positive. A record larger than that is
            not kept.
    """

    def __init__(self, *, max_bytes: int = 64 * 1024 * 1024) -> None:
        if max_bytes <= 0:
            raise ConfigurationError(f"max_bytes={max_bytes}: a store needs room for at least one record")
        self._records: cachetools.LRUCache[str, tuple[str, bytes]] = cachetools.LRUCache(max_bytes, getsizeof=_size)

    async def get(self, key: str, /) -> bytes | None:
        """Return the record, or None."""
        kept = self._records.get(key)
        return None if kept is None else kept[1]

    async def put(self, key: str, record: bytes, /) -> None:
        """Keep a record in place of the one before."""
        kept = (key, record)
        if _size(kept) <= self._records.maxsize:
            self._records[key] = kept
        else:
            self._records.pop(key, None)  # what it would have replaced holds no longer

    async def delete(self, key: str, /) -> None:
        """Forget a record, if there is one."""
        self._records.pop(key, None)

    async def aclose(self) -> None:
        """Nothing is open."""

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        records = self._records
        return f"<MemoryStore: {len(records)} records, {records.currsize} of {records.maxsize} bytes>"


def _size(kept: tuple[str, bytes]) -> int:
    return len(kept[0]) + len(kept[1])
