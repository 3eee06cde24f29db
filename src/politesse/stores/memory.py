"""A store in this process: bounded by bytes, it evicts the least recently used record first."""

from __future__ import annotations

from collections import OrderedDict

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
        self._max_bytes = max_bytes
        self._bytes = 0
        # The least recently used first. An LRUCache takes 250 octets more for each record: it has three dicts.
        self._records: OrderedDict[str, bytes] = OrderedDict()

    async def get(self, key: str, /) -> bytes | None:
        """Return the record, or None."""
        record = self._records.get(key)
        if record is not None:
            self._records.move_to_end(key)
        return record

    async def put(self, key: str, record: bytes, /) -> None:
        """Keep a record, replacing an earlier one."""
        self._drop(key)  # the record that it replaces is outdated
        size = len(key) + len(record)
        if size > self._max_bytes:
            return
        while self._bytes + size > self._max_bytes:
            oldest, dropped = self._records.popitem(last=False)
            self._bytes -= len(oldest) + len(dropped)
        self._records[key] = record
        self._bytes += size

    async def delete(self, key: str, /) -> None:
        """Delete a record if there is one."""
        self._drop(key)

    def _drop(self, key: str) -> None:
        record = self._records.pop(key, None)
        if record is not None:
            self._bytes -= len(key) + len(record)

    async def aclose(self) -> None:
        """Do nothing: a store in memory has nothing to close."""

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"<MemoryStore: {len(self)} records, {self._bytes} of {self._max_bytes} bytes>"
