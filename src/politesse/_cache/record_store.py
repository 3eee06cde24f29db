"""Access to the store: records as octets, a time limit for each call, and failures as events."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from politesse._cache.codec import decode, encode
from politesse._cache.own_records import OwnRecords
from politesse._tasks import ends_within
from politesse.errors import StoreError
from politesse.events import ComponentFailed, Publisher
from politesse.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from politesse._cache.record import Record
    from politesse.clock import Clock
    from politesse.origin import Origin
    from politesse.ports import Store

Result = TypeVar("Result")


class RecordStore:
    """Keeps records in a Store. A StoreError is published as ComponentFailed; the cache goes on without the store.

    Any other error of a store is raised here too, as an Exception.

    Args:
        store: closed with this object; None to keep the records in the memory of this process.
        timeout_s: how long one call may take.
        clock: measures that.
        publisher: receives ComponentFailed.
    """

    def __init__(self, store: Store | None, *, timeout_s: float, clock: Clock, publisher: Publisher) -> None:
        self._store: Store = MemoryStore() if store is None else store
        self._own = OwnRecords() if store is None else None
        self._timeout_s = timeout_s
        self._clock = clock
        self._publisher = publisher
        self._pending: set[asyncio.Task[Any]] = set()

    async def load(self, origin: Origin) -> Record | None:
        """Return the record of ``origin``; None if there is none that can be read."""
        if self._own is not None:
            return self._own.load(str(origin))
        try:
            kept = await self._limited(self._store.get(str(origin)))
            return None if kept is None else decode(kept)
        except StoreError as error:
            self._publisher.publish(ComponentFailed(origin, "store", error))
            return None

    async def save(self, origin: Origin, record: Record) -> None:
        """Replace the record of ``origin``."""
        if self._own is not None:
            self._own.save(str(origin), record)
        else:
            await self._change(origin, lambda: self._store.put(str(origin), encode(record)))

    async def delete(self, origin: Origin) -> None:
        """Delete the record of ``origin``, if there is one."""
        if self._own is not None:
            self._own.delete(str(origin))
        else:
            await self._change(origin, lambda: self._store.delete(str(origin)))

    async def aclose(self) -> None:
        """Wait for pending calls within the time limit, then close the store; raises what its ``aclose`` raises."""
        if self._pending:
            pending = asyncio.gather(*self._pending, return_exceptions=True)
            await ends_within(self._clock, self._timeout_s, pending)
        try:
            await self._limited(self._store.aclose())
        except _StoreIsLate as error:
            self._publisher.publish(ComponentFailed(None, "store", error))

    async def _change(self, origin: Origin, change: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await self._limited(change())
        except StoreError as error:
            self._publisher.publish(ComponentFailed(origin, "store", error))

    async def _limited(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the answer of the store; raises what it raises, and StoreError if it takes too long.

        The call is a task of its own, so that a store that ignores a cancellation does not delay the caller. A
        BaseException of the store is raised as a RuntimeError: a CancelledError of its own must not cancel the waiters.
        """
        if type(self._store) is MemoryStore:  # it never waits; a subclass may
            return await work
        task = asyncio.get_running_loop().create_task(work)
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        if not await ends_within(self._clock, self._timeout_s, task):
            raise _StoreIsLate(f"the store took longer than store_timeout_s={self._timeout_s:g}")
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None or isinstance(error, Exception):
            return task.result()
        raise RuntimeError(f"the store raised {error!r}") from error


class _StoreIsLate(StoreError):
    """It took longer than ``store_timeout_s``."""
