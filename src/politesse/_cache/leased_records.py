"""Records in a store that leases: of all processes that share it, one at a time fetches a file.

Theory of operation. Before a fetch the record is read and its lease asked for, in one call:

    the store returns        this process
    the record               judges it; if that does not do, it asks again, for a lease or a newer record
    a lease                  fetches, and puts the answer under the lease, which ends with it; failures too
    that another holds it    asks again soon, until there is a record or a lease
    nothing: it fails        fetches without a lease, as with any other store that fails
    no end of the waiting    fetches without a lease after ``max_wait_s``

So a site has one request for all processes, and one more if the process that made it ended without a word.

Those who wait ask again after 10 ms, and then after half as long again each time, up to a quarter of a second; but as
soon as the lease ends. A waiter gets its record later than its leader by a third of the time of the fetch at most, and
asks about ten times a second at worst. Each wait is spread by a fifth, so that those of several processes differ.

A lease is renewed when a third of its time is over: one timer for all leases of this process, and one call.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from politesse._cache.codec import decode, encode
from politesse._cache.guarded_store import StoreLeftAlone
from politesse._cache.record_store import RecordStore
from politesse.errors import StoreError
from politesse.ports import Lease, VersionedRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse._cache.guarded_store import GuardedStore
    from politesse._cache.record import Record
    from politesse.clock import Clock, Timer
    from politesse.events import Publisher
    from politesse.origin import Origin
    from politesse.ports import LeasingStore

Wanted = TypeVar("Wanted")

_FIRST_WAIT_S: Final = 0.01
_LONGEST_WAIT_S: Final = 0.25
_LONGER: Final = 1.5
_SPREAD: Final = 0.2
_SOON_S: Final = 0.03  # after the end of a lease: those who wait for it ask one after the other
_RENEWED_AFTER: Final = 1 / 3


class LeasedRecords(RecordStore):
    """See the module.

    Args:
        store: closed with this object.
        leasing: the store within, which leases.
        max_wait_s: how long to wait for the record of another process.
        clock: measures that.
        publisher: receives ComponentFailed.
        jitter: returns 0 to 1.
    """

    def __init__(
        self,
        store: GuardedStore,
        leasing: LeasingStore,
        *,
        max_wait_s: float,
        clock: Clock,
        publisher: Publisher,
        jitter: Callable[[], float],
    ) -> None:
        super().__init__(store, publisher=publisher)
        self._guarded = store
        self._leasing = leasing
        self._max_wait_s = max_wait_s
        self._clock = clock
        self._jitter = jitter
        self._held: dict[str, Lease] = {}
        self._renewal: Timer | None = None

    async def load_or_lease(
        self, origin: Origin, judge: Callable[[Record], Wanted | None]
    ) -> tuple[Record | None, Wanted | None, Lease | None]:
        """Return the last record, what it is judged to be, and the lease to fetch another one if it is None.

        Without all three the caller fetches without a lease. A lease is to be ended by ``save_leased`` or ``let_go``.
        """
        key, version, record = str(origin), "", None
        wait_s, end_mono = _FIRST_WAIT_S, self._clock.monotonic() + self._max_wait_s
        try:
            while True:
                found = await self._guarded.call(partial(self._leasing.get_or_lease, key, version))
                if isinstance(found, Lease):
                    self._hold(key, found)
                    return record, None, found
                if isinstance(found, VersionedRecord) and found.version != version:
                    version = found.version
                    record = self._decoded(found.record, origin)
                    wanted = None if record is None else judge(record)
                    if wanted is not None:
                        return record, wanted, None
                    continue
                if self._clock.monotonic() >= end_mono:
                    break
                left_s = wait_s if isinstance(found, VersionedRecord) else found.left_s + self._jitter() * _SOON_S
                await self._clock.sleep(min(wait_s * (1.0 + _SPREAD * self._jitter()), left_s))
                wait_s = min(_LONGER * wait_s, _LONGEST_WAIT_S)
        except StoreLeftAlone:
            pass
        except StoreError as error:
            self._publish(origin, error)
        return record, None, None

    async def save_leased(self, origin: Origin, record: Record, lease: Lease) -> None:
        """Replace the record of ``origin`` and end its lease. If that was taken over, the newer record is kept."""
        key = str(origin)
        self._drop(key)
        try:
            await self._guarded.call(partial(self._leasing.put_leased, key, encode(record, key), lease))
        except StoreLeftAlone:
            return
        except StoreError as error:
            self._publish(origin, error)

    def let_go(self, origin: Origin, lease: Lease) -> None:
        """End a lease without a record, behind the caller."""
        self._drop(str(origin))
        self._guarded.run(self._release(origin, lease))

    def _decoded(self, kept: bytes, origin: Origin) -> Record | None:
        try:
            return decode(kept, str(origin))
        except StoreError as error:
            self._publish(origin, error)
            return None

    def _hold(self, key: str, lease: Lease) -> None:
        self._held[key] = lease
        if self._renewal is None:
            self._renewal = self._clock.call_later(_RENEWED_AFTER * lease.lasts_s, self._renew_soon)

    def _drop(self, key: str) -> None:
        self._held.pop(key, None)
        if not self._held and self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None

    def _renew_soon(self) -> None:
        self._renewal = None
        self._guarded.run(self._renew())

    async def _renew(self) -> None:
        held = dict(self._held)
        try:
            await self._guarded.call(partial(self._leasing.renew, held))
        except StoreLeftAlone:
            pass
        except StoreError as error:
            self._publish(None, error)
        if self._held and self._renewal is None:
            lasts_s = min(lease.lasts_s for lease in self._held.values())
            self._renewal = self._clock.call_later(_RENEWED_AFTER * lasts_s, self._renew_soon)

    async def _release(self, origin: Origin, lease: Lease) -> None:
        key = str(origin)
        try:
            await self._guarded.call(partial(self._leasing.release, key, lease))
        except StoreLeftAlone:
            return
        except StoreError as error:
            self._publish(origin, error)
