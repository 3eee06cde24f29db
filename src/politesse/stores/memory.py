"""A store in this process: bounded by bytes, it evicts the least recently used record first."""

from __future__ import annotations

import cachetools

from politesse._checks import check_number
from politesse.errors import ConfigurationError


class MemoryStore:
    """A Store in the memory of this process.

    >>> import asyncio
    >>> store = MemoryStore(max_bytes=1024)
    >>> asyncio.run(store.put("https://example.com", b"record"))
    >>> store
    <MemoryStore: 1 records, 25 of 1024 bytes>

    Args:
        max_bytes: how many bytes of records to keep, including keys; positive. A larger record is not kept.

    Raises:
        ConfigurationError: ``max_bytes`` is not positive.
    """

    def __init__(self, *, max_bytes: int = 64 * 1024 * 1024) -> None:
        check_number("max_bytes", max_bytes, "a positive number of bytes")
        if not max_bytes > 0:
            raise ConfigurationError(f"max_bytes={max_bytes}: give a positive number of bytes")
        self._records: cachetools.LRUCache[str, tuple[str, bytes]] = cachetools.LRUCache(max_bytes, getsizeof=_size)

    async def get(self, key: str, /) -> bytes | None:
        """Return the record, or None."""
        kept = self._records.get(key)
        return None if kept is None else kept[1]

    async def put(self, key: str, record: bytes, /) -> None:
        """Keep a record, replacing an earlier one."""
        kept = (key, record)
        if _size(kept) <= self._records.maxsize:
            self._records[key] = kept
        else:
            self._records.pop(key, None)  # the record that it replaces is outdated

    async def delete(self, key: str, /) -> None:
        """Delete a record if there is one."""
        self._records.pop(key, None)

    async def aclose(self) -> None:
        """Do nothing: a store in memory has nothing to close."""

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        records = self._records
        return f"<MemoryStore: {len(records)} records, {records.currsize} of {records.maxsize} bytes>"


def _size(kept: tuple[str, bytes]) -> int:
    return len(kept[0]) + len(kept[1])
