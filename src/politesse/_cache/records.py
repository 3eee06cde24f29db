"""Keeps the records of files: in a plain store, in a LeasingStore, or not at all.

Theory of operation. The cache loads a record before a fetch, and saves a record after the fetch. In a store that
several processes share, one process at a time gets the lease to fetch a file. One call asks for the record and its
lease:

    the store returns        this process
    the record               judges the record; if it is not usable, asks again for a lease or a newer record
    a lease                  fetches, and puts the answer (or failure) under the lease, which then ends
    another holds the lease  asks again soon, until it gets a record or a lease
    an error                 fetches without a lease, as with any other store that fails
    no record in time        fetches without a lease after ``max_wait_s``

So a site gets one request from all processes, and a second request only if the first process was killed.

A waiter asks again after 10 ms. Each further wait is longer by half, up to a quarter of a second. The waiter also
asks when the lease ends. So the waiter gets the record with a delay of at most a third of the fetch time, and asks at
most ten times a second. Each wait varies by a fifth, so that several processes ask at different times.

A lease is renewed when a third of its time is over. One timer and one call renew all leases of this process.

A write or delete that fails leaves an older record in the store. Until a later call succeeds, a record of that origin
counts only if it is newer than the failed call. The next call that succeeds, and the close, first delete such records,
so that another process does not find them either. If more than ``_MAX_DOUBTED`` calls have failed, the oldest is
dropped, and no record of any origin counts that is older than the dropped call.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from politesse._cache.codec import decode, encode
from politesse._cache.guarded_store import GuardedStore, StorePaused
from politesse._cache.outcome import Copy, Moment, Record, is_before
from politesse.errors import ClosedError, StoreError
from politesse.events import ComponentFailed, Publisher
from politesse.ports import Lease, VersionedRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from politesse.clock import Clock, Timer
    from politesse.origin import Origin

Result = TypeVar("Result")

LARGE_OCTETS: Final = 64 * 1024
"""More octets are compressed, unpacked and digested in a thread: the event loop would stop for over a millisecond."""

_THREADS: Final = 2  # two threads, so that the largest file does not delay the next file
_LARGE_PACKED_OCTETS: Final = 4 * 1024  # zlib unpacks this many octets to at most 4 MiB, in 3 ms
_FIRST_WAIT_S: Final = 0.01
_LONGEST_WAIT_S: Final = 0.25
_LONGER: Final = 1.5
_SPREAD: Final = 0.2
_SOON_S: Final = 0.03  # after the end of a lease, its waiters ask within this time, one after the other
_RENEWED_AFTER: Final = 1 / 3
_MAX_DOUBTED: Final = 10_000


class ReadingThreads:
    """Threads for reading large files, so that the event loop is not blocked.

    The gate has its own threads, because slow DNS lookups may occupy all threads of the event loop's executor. The
    threads start with the first large file.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="politesse-reading")
        self._closed = False

    async def run(self, read: Callable[[], Result], *, is_large: bool) -> Result:
        """Return the result of ``read``, which runs in a thread if its input ``is_large``; raises its exceptions.

        Raises:
            ClosedError: if a large input comes after the close.
        """
        if not is_large:
            return read()
        if self._closed:
            raise ClosedError("a large file was to be read after the gatekeeper was closed")
        return await asyncio.get_running_loop().run_in_executor(self._executor, read)

    def close(self) -> None:
        """Accept no more files. Waiting files are still read."""
        self._closed = True
        self._executor.shutdown(wait=False)


@dataclass(eq=False, repr=False)
class StoredRecords:
    """Keeps records in a store. A StoreError is published as ComponentFailed; the cache goes on without the store.

    While the store is paused, no record is read or kept, and only a failed delete is published. Any other error of a
    store is raised.

    Args:
        store: closed with this object; in a LeasingStore, files are fetched under leases.
        reading: threads that encode and decode large records, so that the event loop goes on.
        publisher: receives ComponentFailed.
        max_wait_s: how long to wait for the record of another process.
        clock: measures this wait.
    """

    _store: GuardedStore
    _reading: ReadingThreads
    _publisher: Publisher
    _max_wait_s: float
    _clock: Clock
    _doubted: OrderedDict[Origin, Moment | None] = field(default_factory=OrderedDict, init=False)  # the failed changes
    _dropped: Moment | None = field(default=None, init=False)  # the moment of the newest dropped change
    _repeating: asyncio.Task[None] | None = field(default=None, init=False)
    _held: dict[str, Lease] = field(default_factory=dict, init=False)
    _renewal: Timer | None = field(default=None, init=False)

    async def load(
        self, origin: Origin, accept: Callable[[Record], Copy | None]
    ) -> tuple[Record | None, Copy | None, Lease | None]:
        """Return the record of ``origin``, None if no record can be read.

        With a LeasingStore, also return the copy that ``accept`` makes of the record, or the lease under which to fetch
        a new one, or neither after ``max_wait_s``. ``save`` or ``release`` ends the lease.
        """
        if self._store.leasing is None:
            stored = await self._call(origin, self._store.get(origin.text))
            return None if stored is None else await self._decoded(stored, origin), None, None
        key, version, record = origin.text, "", None
        wait_s, end_mono = _FIRST_WAIT_S, self._clock.monotonic() + self._max_wait_s
        while True:
            asking = partial(self._store.leasing.get_or_lease, key, version)
            found = await self._call(origin, self._store.call(asking))
            if isinstance(found, Lease):
                self._hold(key, found)
                return record, None, found
            if isinstance(found, VersionedRecord) and found.version != version:
                version = found.version
                record = await self._decoded(found.record, origin)
                accepted = None if record is None else accept(record)
                if accepted is not None:
                    return record, accepted, None
                continue
            if found is None or self._clock.monotonic() >= end_mono:
                return record, None, None
            jitter = random.random()  # noqa: S311 - it only spreads the calls
            left_s = wait_s if isinstance(found, VersionedRecord) else found.left_s + jitter * _SOON_S
            await self._clock.sleep(min(wait_s * (1.0 + _SPREAD * jitter), left_s))
            wait_s = min(_LONGER * wait_s, _LONGEST_WAIT_S)

    async def save(self, origin: Origin, record: Record, lease: Lease | None) -> None:
        """Replace the record of ``origin``, and end the lease; a newer record of a process that took it over stays."""
        key, large = origin.text, len(record.body) > LARGE_OCTETS
        octets = await self._reading.run(partial(encode, record, key), is_large=large)
        putting: Coroutine[Any, Any, object]
        if lease is None or self._store.leasing is None:
            putting = self._store.put(key, octets)
        else:
            self._drop(key)
            putting = self._store.call(partial(self._store.leasing.put_leased, key, octets, lease))
        await self._call(origin, self._change(origin, record.moment, putting))

    def release(self, origin: Origin, lease: Lease) -> None:
        """End a lease without storing a record, in the background."""
        if self._store.leasing is not None:
            self._drop(origin.text)
            releasing = partial(self._store.leasing.release, origin.text, lease)
            self._store.run(self._call(origin, self._store.call(releasing)))

    async def delete(self, origin: Origin, moment: Moment) -> None:
        """Delete the record of ``origin`` at ``moment``."""
        self._doubt(origin, moment)  # a load during the call must not bring the record back
        try:
            await self._change(origin, moment, self._store.delete(origin.text))
        except StorePaused as error:
            self._publish(origin, StoreError(f"{origin} is kept: {error}"))
        except StoreError as error:
            self._publish(origin, error)

    async def aclose(self) -> None:
        """Wait for pending calls within the time limit, then close the store; raises the errors of its ``aclose``."""
        self._repeat_soon()
        if (error := await self._store.aclose()) is not None:
            self._publish(None, error)

    async def _call(self, origin: Origin | None, call: Coroutine[Any, Any, Result]) -> Result | None:
        """Return the result of a call of the store; if it raises a StoreError, publish the error and return None."""
        try:
            return await call
        except StorePaused:
            return None
        except StoreError as error:
            self._publish(origin, error)
            return None

    async def _change(self, origin: Origin, moment: Moment | None, call: Coroutine[Any, Any, object]) -> None:
        """Make a call that changes the record of ``origin``; raises its errors."""
        try:
            await call
        except BaseException:
            self._doubt(origin, moment)
            raise
        if self._doubted:
            if not is_before(moment, self._doubted.get(origin)):  # a change that began later may have failed meanwhile
                self._doubted.pop(origin, None)
            self._repeat_soon()

    def _doubt(self, origin: Origin, moment: Moment | None) -> None:
        """Note a failed change: older records of ``origin`` count no more."""
        if not is_before(moment, self._doubted.get(origin)):  # a change that began later may have failed before
            self._doubted[origin] = moment
        self._doubted.move_to_end(origin)
        if len(self._doubted) > _MAX_DOUBTED:
            _, self._dropped = self._doubted.popitem(last=False)

    def _repeat_soon(self) -> None:
        if self._doubted and (self._repeating is None or self._repeating.done()):
            self._repeating = self._store.run(self._repeat())

    async def _repeat(self) -> None:
        """Delete the records that a failed change has left, until a call fails."""
        try:
            while self._doubted:
                origin, moment = next(iter(self._doubted.items()))
                await self._store.delete(origin.text)
                if self._doubted.get(origin) is moment:
                    del self._doubted[origin]
        except StorePaused:
            pass  # the failure before the pause was published
        except Exception as error:  # noqa: BLE001 - a user's store may raise any exception
            self._publisher.publish(ComponentFailed(None, "store", error))

    async def _decoded(self, stored: object, origin: Origin) -> Record | None:
        """Return a record from the store, or None if it does not count; if it is damaged, publish the error."""
        decoding = partial(decode, stored, origin.text)
        large = isinstance(stored, bytes) and len(stored) > _LARGE_PACKED_OCTETS
        try:
            record = await self._reading.run(decoding, is_large=large)
        except StoreError as error:
            self._publish(origin, error)
            return None
        failed = self._doubted.get(origin, self._dropped)
        return record if failed is None or is_before(failed, record.moment) else None

    def _publish(self, origin: Origin | None, error: StoreError) -> None:
        self._publisher.publish(ComponentFailed(origin, "store", error))

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
        self._store.run(self._renew())

    async def _renew(self) -> None:
        if self._store.leasing is not None:
            await self._call(None, self._store.call(partial(self._store.leasing.renew, dict(self._held))))
        if self._held and self._renewal is None:
            lasts_s = min(lease.lasts_s for lease in self._held.values())
            self._renewal = self._clock.call_later(_RENEWED_AFTER * lasts_s, self._renew_soon)
