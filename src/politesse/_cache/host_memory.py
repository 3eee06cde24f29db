"""The pace that hosts have asked for, kept in the store beside the records of robots.txt.

Theory of operation. A state is kept under the key ``pace/SCOPE/HOST``. To note a state, a turn only adds an entry to a
dict. The first note starts a task, which writes the notes and ends when no note is left. So a single turn is written at
once, and under load only the last state of each host is written. The close of the store waits for the task.

If a write fails, the next note of the host writes the newer state. A closed host gets no new notes, so its state is
written again after ``_RETRY_S``, or when the store is about to close.

Several processes may share a store. So a write merges the new state with the stored state, to keep a closure that
another process has stored. An UpdatingStore merges both states in one step, in its own thread. In any other store, a
closure is lost if another process stores it between the read and the write.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final

from politesse._base.constants import PACE_KEYS
from politesse._cache.codec import decode_state, encode_state
from politesse._cache.guarded_store import GuardedStore, StorePaused
from politesse._pacing.host_state import HostState, joined
from politesse.errors import StoreError
from politesse.events import ComponentFailed, Publisher

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse.clock import Clock, Timer

_AT_ONCE: Final = 100  # this many hosts are written together
_RETRY_S: Final = 30.0
_MAX_UNWRITTEN: Final = 10_000


class StoredHosts:
    """Keeps the states of the hosts, addresses or domains of a scope; see ``HostMemory``.

    Args:
        scope: ``"host"``, ``"address"`` or ``"domain"``.
        store: keeps the states.
        clock: starts the timer for later attempts.
        publisher: receives ComponentFailed.
    """

    def __init__(self, scope: str, store: GuardedStore, *, clock: Clock, publisher: Publisher) -> None:
        self._prefix = f"{PACE_KEYS}{scope}/"
        self._store = store
        self._clock = clock
        self._publisher = publisher
        self._unwritten: dict[str, Callable[[], HostState]] = {}  # the states of closed hosts that could not be written
        self._retry: Timer | None = None
        self._noted: dict[str, Callable[[], HostState]] = {}
        self._writer: asyncio.Task[None] | None = None
        store.before_close.append(self._note_unwritten)

    async def recall(self, key: str, /) -> HostState | None:
        """Return the state of a host; None if the store has no state of the host.

        Raises:
            StoreError: the state cannot be read; the error is published unless the store is paused.
        """
        if (take := self._noted.get(key)) is not None:
            return take()
        try:
            kept = await self._store.get(self._prefix + key)
            return None if kept is None else decode_state(kept, key)
        except StorePaused as error:
            raise StoreError(f"what {key} asked for is not read: {error}") from error
        except Exception as error:
            # A user's store may raise any exception. The host then counts as requested just now.
            self._publisher.publish(ComponentFailed(None, "store", error))
            raise StoreError(f"what {key} asked for cannot be read") from error

    def note(self, key: str, take: Callable[[], HostState], /) -> None:
        """Keep the state that ``take`` returns for a host. After the close of the store the state is dropped."""
        if self._store.closed:
            return
        self._noted[key] = take
        if self._writer is None or self._writer.done():
            self._writer = self._store.run(self._write())

    async def _write(self) -> None:
        """Write until no note is left."""
        while self._noted:
            batch = {key: self._noted.pop(key) for key in list(islice(self._noted, _AT_ONCE))}
            await asyncio.gather(*(self._replace(key, take) for key, take in batch.items()))

    async def _replace(self, key: str, take: Callable[[], HostState]) -> None:
        """Write the state of a host; publish an error."""
        try:
            state = take()  # taken here, because the store may call the lambda in another thread
            await self._store.update(self._prefix + key, lambda kept: _joined(key, state, kept))
        except StorePaused:
            self._write_later(key, take)
        except Exception as error:  # noqa: BLE001 - as in ``recall``
            self._publisher.publish(ComponentFailed(None, "store", error))
            self._write_later(key, take)

    def _write_later(self, key: str, take: Callable[[], HostState]) -> None:
        """Write the state of a closed host later, because no request may note the state before the host opens."""
        answers = take().answers
        if self._store.closing or answers is None or not answers.binds or len(self._unwritten) >= _MAX_UNWRITTEN:
            return
        self._unwritten[key] = take
        if self._retry is None:
            self._retry = self._clock.call_later(_RETRY_S, self._note_unwritten)

    def _note_unwritten(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._retry = None
        unwritten, self._unwritten = self._unwritten, {}
        for key, take in unwritten.items():
            self.note(key, self._noted.get(key, take))


def _joined(key: str, state: HostState, kept: bytes | None) -> bytes:
    """Return the octets of a state, merged with the stored state if another process has noted it."""
    if kept is not None:
        with suppress(StoreError):  # ``recall`` publishes this error
            theirs = decode_state(kept, key)
            if theirs.noted_by != state.noted_by:
                state = joined(state, theirs, state.since_s(theirs))
    return encode_state(state, key)
