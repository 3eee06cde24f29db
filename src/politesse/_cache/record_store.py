"""Access to the store: records as octets, and failures as events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from politesse._cache.codec import decode, encode
from politesse._cache.guarded_store import StoreLeftAlone
from politesse._cache.own_records import OwnRecords
from politesse.errors import StoreError
from politesse.events import ComponentFailed, Publisher

if TYPE_CHECKING:
    from politesse._cache.guarded_store import GuardedStore
    from politesse._cache.record import Record
    from politesse.origin import Origin


class RecordStore:
    """Keeps records in a store. A StoreError is published as ComponentFailed; the cache goes on without the store.

    While the store is left alone, nothing is read and nothing is kept; only a record that is not deleted is published.
    Any other error of a store is raised here too, as an Exception.

    Args:
        store: closed with this object; None to keep the records in the memory of this process.
        publisher: receives ComponentFailed.
    """

    def __init__(self, store: GuardedStore | None, *, publisher: Publisher) -> None:
        self._store = store
        self._own = OwnRecords()
        self._publisher = publisher

    async def load(self, origin: Origin) -> Record | None:
        """Return the record of ``origin``; None if there is none that can be read."""
        key = str(origin)
        if self._store is None:
            return self._own.load(key)
        try:
            kept = await self._store.get(key)
            return None if kept is None else decode(kept, key)
        except StoreLeftAlone:
            return None
        except StoreError as error:
            self._publish(origin, error)
            return None

    async def save(self, origin: Origin, record: Record) -> None:
        """Replace the record of ``origin``."""
        key = str(origin)
        if self._store is None:
            self._own.save(key, record)
            return
        try:
            await self._store.put(key, encode(record, key))
        except StoreLeftAlone:
            return
        except StoreError as error:
            self._publish(origin, error)

    async def delete(self, origin: Origin) -> None:
        """Delete the record of ``origin``, if there is one."""
        key = str(origin)
        if self._store is None:
            self._own.delete(key)
            return
        try:
            await self._store.delete(key)
        except StoreLeftAlone as error:
            self._publish(origin, StoreError(f"{origin} is kept: {error}"))
        except StoreError as error:
            self._publish(origin, error)

    async def aclose(self) -> None:
        """Wait for pending calls within the time limit, then close the store; raises what its ``aclose`` raises."""
        error = None if self._store is None else await self._store.aclose()
        if error is not None:
            self._publish(None, error)

    def _publish(self, origin: Origin | None, error: StoreError) -> None:
        self._publisher.publish(ComponentFailed(origin, "store", error))
