"""Stores in the memory of this process, bounded by bytes; they evict the least recently used record first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from itertools import count
from typing import Final

from politesse._base.checks import check_number
from politesse.errors import ConfigurationError
from politesse.ports import Lease, LeaseHeld, VersionedRecord

_LEASE_S: Final = 3600.0  # a lease lasts longer than any fetch, and its holder ends it earlier


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
        # The least recently used record is first. An LRUCache would have three dicts, and would take 250 octets more
        # for each record than this dict.
        self._records: OrderedDict[str, bytes] = OrderedDict()

    async def get(self, key: str, /) -> bytes | None:
        """Return the record, or None."""
        record = self._records.get(key)
        if record is not None:
            self._records.move_to_end(key)
        return record

    async def put(self, key: str, record: bytes, /) -> None:
        """Keep a record, in place of an earlier record."""
        self._drop(key)  # the earlier record is outdated
        size = len(key) + len(record)
        if size > self._max_bytes:
            return
        while self._bytes + size > self._max_bytes:
            self._drop(next(iter(self._records)))
        self._records[key] = record
        self._bytes += size

    async def delete(self, key: str, /) -> None:
        """Delete a record."""
        self._drop(key)

    def _drop(self, key: str) -> None:
        record = self._records.pop(key, None)
        if record is not None:
            self._bytes -= len(key) + len(record)

    async def aclose(self) -> None:
        """Do nothing, because a store in memory has no resources to close."""

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"<MemoryStore: {len(self)} records, {self._bytes} of {self._max_bytes} bytes>"


class SharedMemoryStore(MemoryStore):
    """A MemoryStore for several gates of an event loop: together they fetch each robots.txt only once.

    >>> import asyncio
    >>> from politesse import Gatekeeper
    >>> from politesse.testing import ScriptedFetcher
    >>> async def main():
    ...     site, store = ScriptedFetcher({"https://example.com": 404}), SharedMemoryStore()
    ...     for name in ("OneBot", "OtherBot"):
    ...         async with Gatekeeper(f"{name}/1.0 (+https://example.com/bot)", fetcher=site, store=store) as gate:
    ...             await gate.check("https://example.com/page")
    ...     return len(site.requests)
    >>> asyncio.run(main())
    1

    Args:
        max_bytes: see MemoryStore.
    """

    def __init__(self, *, max_bytes: int = 64 * 1024 * 1024) -> None:
        super().__init__(max_bytes=max_bytes)
        self._numbers = count(1)
        self._versions: dict[str, str] = {}
        self._leases: dict[str, str] = {}  # maps the keys of records to the tokens of their leases

    async def put(self, key: str, record: bytes, /) -> None:
        """Keep a record, in place of an earlier record."""
        await super().put(key, record)
        if key in self._records:
            self._versions[key] = self._next_number()

    async def get_or_lease(self, key: str, version: str, /) -> VersionedRecord | Lease | LeaseHeld:
        """Return the record if its version is new; else a lease, or a LeaseHeld if another gate has the lease."""
        current = self._versions.get(key, version)
        if current != version:
            self._records.move_to_end(key)
            return VersionedRecord(current, self._records[key])
        if key in self._leases:
            return LeaseHeld(_LEASE_S)
        self._leases[key] = token = self._next_number()
        return Lease(token, _LEASE_S)

    async def renew(self, leases: Mapping[str, Lease], /) -> None:
        """Do nothing, because a lease lasts until its holder ends it."""

    async def put_leased(self, key: str, record: bytes, lease: Lease, /) -> bool:
        """Keep a record and end its lease; return False if the lease has ended, or a newer record was put."""
        if self._leases.get(key) != lease.token:
            return False
        del self._leases[key]
        if self._versions.get(key, "") > lease.token:
            return False
        await self.put(key, record)
        return True

    async def release(self, key: str, lease: Lease, /) -> None:
        """End a lease without storing a record."""
        if self._leases.get(key) == lease.token:
            del self._leases[key]

    def _next_number(self) -> str:
        return f"{next(self._numbers):016}"

    def _drop(self, key: str) -> None:
        super()._drop(key)
        self._versions.pop(key, None)
