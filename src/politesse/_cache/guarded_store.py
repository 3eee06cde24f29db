"""A store with a time limit for each call, and a pause after failures.

Theory of operation. A call that takes longer than ``timeout_s`` fails. Without a pause, each new origin would wait for
a store that hangs. So the store is paused after a late call, and after three consecutive failures of any kind. Each
pause is twice as long as the last, until a call succeeds:

    answering --late, or the third failure in a row--> paused, for ``timeout_s`` at first, at most five minutes
    paused --pause is over--> on trial: one call is made, and no other before its end
    on trial --success--> answering
    on trial --failure--> paused, for twice as long

A call during a pause fails at once with StorePaused. A call that began before the pause and fails during the pause
raises StorePaused, too. StorePaused is not published, because the failure that began the pause was published, with the
length of the pause. So a store that hangs is reported once, even if many calls wait for it.

At most ``_AT_ONCE`` calls are under way. The other calls wait in order. The time limit of a call begins when the call
begins, so a call is not late because the store is busy. If the event loop was blocked when the limit ended, the call
gets the same time once more, because the answer may have arrived meanwhile.

An exception other than a StoreError is a bug of the store. The caller gets the exception, and no pause begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from politesse.clock import Clock, ends_within
from politesse.errors import StoreError
from politesse.ports import LeasingStore, Store, UpdatingStore
from politesse.stores.memory import MemoryStore, SharedMemoryStore

Result = TypeVar("Result")

_AT_ONCE: Final = 1_000  # SqliteStore accepts this many calls at once
_FAILURES: Final = 3
_LONGEST_PAUSE_S: Final = 300.0


class StorePaused(Exception):
    """The store is paused after a failure, or closed."""


class _StoreLate(StoreError):
    """The call took longer than ``store_timeout_s``."""


class GuardedStore:
    """A store with time limits and pauses; see the module. Belongs to one event loop.

    Args:
        store: closed with this object.
        timeout_s: the time limit of a call.
        clock: measures the time of a call.

    Attributes:
        outlives: whether the records may outlive this process.
        leasing: the store, if it is a LeasingStore; use ``call`` for its methods.
        closing: whether ``aclose`` was called; pending work may still call the store.
        before_close: called when ``aclose`` is called, to start the last work.
        closed: whether the store is closed.
    """

    def __init__(self, store: Store, *, timeout_s: float, clock: Clock) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._clock = clock
        self._updating = store if isinstance(store, UpdatingStore) else None
        self._in_memory = type(store) in {MemoryStore, SharedMemoryStore}  # these never wait, but a subclass may wait
        self.outlives: bool = not self._in_memory
        self.leasing: LeasingStore | None = store if isinstance(store, LeasingStore) else None
        self.closing: bool = False
        self.before_close: list[Callable[[], None]] = []
        self.closed: bool = False
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._pending: set[asyncio.Task[Any]] = set()
        self._failures = 0
        self._pauses = 0  # the number of consecutive pauses
        self._until_mono = 0.0
        self._on_trial = False

    def get(self, key: str) -> Coroutine[Any, Any, bytes | None]:
        """Return a record, or None.

        Raises:
            StoreError: if the record cannot be read, or not in time.
            StorePaused: if the store was not called, because it is paused.
            RuntimeError: if the store raises a BaseException.
        """
        return self.call(partial(self._store.get, key))

    def put(self, key: str, record: bytes) -> Coroutine[Any, Any, None]:
        """Keep a record. Raises the same errors as ``get``."""
        return self.call(partial(self._store.put, key, record))

    def delete(self, key: str) -> Coroutine[Any, Any, None]:
        """Delete a record. Raises the same errors as ``get``."""
        return self.call(partial(self._store.delete, key))

    async def update(self, key: str, change: Callable[[bytes | None], bytes]) -> None:
        """Replace a record by ``change(record)``. Raises the same errors as ``get``.

        Args:
            key: the key of the record.
            change: see UpdatingStore. If the store has no ``update``, a record is lost if another process puts it
                between the read and the write.
        """
        if (updating := self._updating) is not None:
            await self.call(lambda: updating.update(key, change))
        else:
            await self.call(lambda: self._get_and_put(key, change), calls=2)

    def run(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Run work in a task; ``aclose`` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return task

    async def aclose(self) -> StoreError | None:
        """Wait for pending work within the time limit, then close the store; raises the errors of its ``aclose``.

        Returns:
            None, or an error if the store does not close in time.
        """
        self.closing = True
        for callback in self.before_close:
            callback()
        if self._pending:
            await ends_within(self._clock, self._timeout_s, asyncio.ensure_future(self._end_pending()))
        self.closed = True
        for task in self._pending:
            task.cancel()
        try:
            await self._limited(self._store.aclose())
        except _StoreLate as error:
            return error
        return None

    async def _end_pending(self) -> None:
        """Wait until no work is pending; work may call the store again."""
        while self._pending:
            await asyncio.wait(set(self._pending))

    async def _get_and_put(self, key: str, change: Callable[[bytes | None], bytes]) -> None:
        await self._store.put(key, change(await self._store.get(key)))

    async def call(self, call: Callable[[], Coroutine[Any, Any, Result]], calls: int = 1) -> Result:
        """Return the result of ``call``, which calls the store ``calls`` times; raises the same errors as ``get``."""
        if self._in_memory:
            return await call()
        async with self._places:
            if self.closed:
                raise StorePaused("the store is closed")
            if trial := self._pauses > 0:
                self._try()
            try:
                result = await self._limited(call(), calls)
            except StoreError as error:
                pause_s = self._pause_after(error)
                if pause_s is None:
                    raise
                raise StoreError(f"{error}; the store is paused for {pause_s:g} s") from error
            finally:
                if trial:
                    self._on_trial = False
            self._failures = self._pauses = 0
            return result

    def _try(self) -> None:
        """Begin the trial after a pause; raises StorePaused during the pause and during another trial."""
        left_s = self._until_mono - self._clock.monotonic()
        if left_s > 0.0 or self._on_trial:
            raise StorePaused(f"the store is paused after a failure, for {max(0.0, left_s):.0f} s more")
        self._on_trial = True

    def _pause_after(self, error: StoreError) -> float | None:
        """Count a failure; return the seconds of the pause that begins now, or None.

        Raises:
            StorePaused: the call began before the present pause; the failure that began the pause was reported.
        """
        self._failures += 1
        now_mono = self._clock.monotonic()
        if now_mono < self._until_mono:
            raise StorePaused(str(error)) from error
        if not (isinstance(error, _StoreLate) or self._pauses or self._failures >= _FAILURES):
            return None
        # The exponent is bounded, so that a store that fails for days does not overflow.
        pause_s = min(self._timeout_s * 2.0 ** min(self._pauses, 32), max(_LONGEST_PAUSE_S, self._timeout_s))
        self._pauses += 1
        self._until_mono = now_mono + pause_s
        return pause_s

    async def _limited(self, work: Coroutine[Any, Any, Result], calls: int = 1) -> Result:
        """Return the result of ``work``, which makes ``calls`` calls; raises _StoreLate after their time limit.

        The call runs in a separate task, so that a store that ignores a cancellation does not delay the caller. A
        BaseException of the store is raised as a RuntimeError: the store's own CancelledError must not cancel the
        waiters.
        """
        if self._in_memory:
            return await work
        task = self.run(work)
        if not await ends_within(self._clock, calls * self._timeout_s, task, again_after_stall=True):
            raise _StoreLate(f"the store took longer than store_timeout_s={self._timeout_s:g}")
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None or isinstance(error, Exception):
            return task.result()
        raise RuntimeError(f"the store raised {error!r}") from error
