"""Stores that outlive a gate, and stores that fail."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from politesse.clock import Clock
from politesse.ports import Lease, LeaseHeld, LeasingStore, VersionedRecord

KEY: Final = "https://example.com"


class KeptStore:
    """Keeps records in a dict that outlives it, as a file outlives a process.

    Args:
        records: what is in the store.
        delay_s: how long each call takes, by ``clock``.
        clock: for that.
        fails: the errors that methods of these names raise.
    """

    def __init__(
        self,
        records: dict[str, bytes],
        delay_s: float = 0.0,
        clock: Clock | None = None,
        *,
        fails: Mapping[str, Exception] | None = None,
    ) -> None:
        self.records = records
        self.delay_s = delay_s
        self.clock = clock
        self.fails = dict(fails or {})
        self.calls: list[tuple[str, str]] = []
        self.closed = False

    async def get(self, key: str, /) -> bytes | None:
        await self.call("get", key)
        return self.records.get(key)

    async def put(self, key: str, record: bytes, /) -> None:
        await self.call("put", key)
        self.records[key] = record

    async def delete(self, key: str, /) -> None:
        await self.call("delete", key)
        self.records.pop(key, None)

    async def aclose(self) -> None:
        await self.call("aclose", "")
        self.closed = True

    async def call(self, method: str, key: str) -> None:
        """Run before each call succeeds."""
        self.calls.append((method, key))
        if self.delay_s and self.clock is not None:
            await self.clock.sleep(self.delay_s)
        if method in self.fails:
            raise self.fails[method]

    def count(self, method: str, start: str = "") -> int:
        """Return how often a method was called with a key that has this prefix."""
        return sum(called == method and key.startswith(start) for called, key in self.calls)


class FailingStore(KeptStore):
    """A KeptStore whose methods fail while ``fails`` is set.

    Args:
        records: what is in the store.
        methods: those that fail.
        fail: raises, returns or hangs instead of the call; None hangs until ``release`` is set.
        stubborn: whether a call that hangs ignores its cancellation.
    """

    def __init__(
        self, records: dict[str, bytes], *methods: str, fail: Callable[[], object] | None = None, stubborn: bool = False
    ) -> None:
        super().__init__(records)
        self.methods = set(methods)
        self.fail = fail
        self.stubborn = stubborn
        self.release = asyncio.Event()

    async def get(self, key: str, /) -> bytes | None:
        returned = await self.called("get", key)
        return self.records.get(key) if returned is None else returned  # type: ignore[return-value]

    async def called(self, method: str, key: str) -> object:
        self.calls.append((method, key))
        if method not in self.methods:
            return None
        if self.fail is not None:
            return self.fail()
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                if not self.stubborn:
                    raise
        return None

    async def call(self, method: str, key: str) -> None:
        await self.called(method, key)


class LeasingDict(KeptStore):
    """A KeptStore with leases, for several caches that share the store and its clock.

    Attributes:
        leases: who holds them and until when, by key.
        renewed: how often a lease was.
        refused: the keys of records that were put under a lease that had been taken over.
    """

    def __init__(self, clock: Clock, *, lasts_s: float = 3.0) -> None:
        super().__init__({}, clock=clock)
        self._clock = clock
        self._lasts_s = lasts_s
        self._count = 0
        self._versions: dict[str, int] = {}
        self.leases: dict[str, tuple[str, float]] = {}
        self.renewed = 0
        self.refused: list[str] = []

    async def put(self, key: str, record: bytes, /) -> None:
        await super().put(key, record)
        self._count += 1
        self._versions[key] = self._count

    async def get_or_lease(self, key: str, version: str, /) -> VersionedRecord | Lease | LeaseHeld:
        await self.call("get_or_lease", key)
        kept = f"{self._versions.get(key, 0):08}"
        if key in self.records and kept != version:
            return VersionedRecord(kept, self.records[key])
        holder = self._holder(key)
        if holder is not None:
            return LeaseHeld(holder[1] - self._clock.monotonic())
        self._count += 1
        lease = Lease(f"{self._count:08}", self._lasts_s)
        self.leases[key] = (lease.token, self._clock.monotonic() + self._lasts_s)
        return lease

    async def renew(self, leases: Mapping[str, Lease], /) -> None:
        await self.call("renew", "")
        for key, lease in leases.items():
            if self._holds(key, lease):
                self.renewed += 1
                self.leases[key] = (lease.token, self._clock.monotonic() + lease.lasts_s)

    async def put_leased(self, key: str, record: bytes, lease: Lease, /) -> bool:
        await self.call("put_leased", key)
        holder = self._holder(key)
        if (holder is not None and holder[0] != lease.token) or self._versions.get(key, 0) > int(lease.token):
            self.refused.append(key)
            return False
        self.leases.pop(key, None)
        self.records[key] = record
        self._versions[key] = int(lease.token)
        return True

    async def release(self, key: str, lease: Lease, /) -> None:
        await self.call("release", key)
        if self._holds(key, lease):
            del self.leases[key]

    def _holds(self, key: str, lease: Lease) -> bool:
        holder = self._holder(key)
        return holder is not None and holder[0] == lease.token

    def _holder(self, key: str) -> tuple[str, float] | None:
        holder = self.leases.get(key)
        return None if holder is None or holder[1] <= self._clock.monotonic() else holder


async def leased(store: LeasingStore, key: str = KEY, version: str = "") -> Lease:
    """Return the lease of a key that nobody has leased."""
    lease = await store.get_or_lease(key, version)
    assert isinstance(lease, Lease)
    return lease
