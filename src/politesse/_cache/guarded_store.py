"""A store that delays nobody for long: a time limit for each call, and a pause after failures.

Theory of operation. A call that takes longer than ``timeout_s`` fails. If calls went on to a store that hangs, each new
origin would wait out the limit, so the store is left alone for a while after a late call, and after three calls in a
row that fail in time. Each pause is twice as long as the one before, until a call succeeds:

    answering --late, or the third failure in a row--> left alone, for ``timeout_s`` at first, five minutes at most
    left alone --pause is over--> on trial: one call is made, and no other until that has ended
    on trial --success--> answering
    on trial --failure--> left alone, for twice as long

A call to a store that is left alone fails at once with StoreLeftAlone, and so does one that was begun before the pause
and fails in it. That is not published: the failure with which the pause begins says how long it takes. So a store that
hangs is reported once, however many calls wait for it.

A busy store is no hanging one. At most ``_AT_ONCE`` calls are under way, and the others wait for their place in the
order in which they came; the limit of a call begins with the call. If the event loop stood still when the limit was
over, it begins again, once: the answer may be there, and nobody has looked at it yet.

What a store raises that is neither a StoreError nor late is an error of its program: it is raised, and pauses nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from politesse._tasks import ends_within
from politesse.errors import StoreError
from politesse.ports import LeasingStore, UpdatingStore
from politesse.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from politesse.clock import Clock
    from politesse.ports import Store

Result = TypeVar("Result")

_AT_ONCE: Final = 1_000  # calls: as many as SqliteStore serves together
_FAILURES: Final = 3
_LONGEST_PAUSE_S: Final = 300.0


class StoreLeftAlone(Exception):
    """The store was not called: it has failed, and the pause after that is not over; or it is closed."""


class _StoreLate(StoreError):
    """It took longer than ``store_timeout_s``."""


class GuardedStore:
    """See the module. Belongs to one event loop.

    Args:
        store: closed with this object.
        timeout_s: how long one call may take.
        clock: measures that.

    Attributes:
        outlives: whether the records may be there for longer than this process.
        leasing: the store, if it leases; to be called by ``call``.
        closed: whether the store is closed, or being closed.
    """

    def __init__(self, store: Store, *, timeout_s: float, clock: Clock) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._clock = clock
        self._updating = store if isinstance(store, UpdatingStore) else None
        self._in_memory = type(store) is MemoryStore  # it never waits; a subclass may
        self.outlives = not self._in_memory
        self.leasing = store if isinstance(store, LeasingStore) else None
        self.closed = False
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._pending: set[asyncio.Task[Any]] = set()
        self._failures = 0
        self._pauses = 0  # in a row
        self._until_mono = 0.0
        self._on_trial = False

    async def get(self, key: str) -> bytes | None:
        """Return a record, or None.

        Raises:
            StoreError: if it cannot be read, or not in time.
            StoreLeftAlone: if the store was not called.
            RuntimeError: if the store raises a BaseException.
        """
        return await self._guarded(lambda: self._store.get(key))

    async def put(self, key: str, record: bytes) -> None:
        """Keep a record; raises as ``get`` does."""
        await self._guarded(lambda: self._store.put(key, record))

    async def delete(self, key: str) -> None:
        """Delete a record; raises as ``get`` does."""
        await self._guarded(lambda: self._store.delete(key))

    async def update(self, key: str, change: Callable[[bytes | None], bytes]) -> None:
        """Replace a record by what ``change`` makes of it, None for none; raises as ``get`` does.

        Args:
            key: of the record.
            change: see UpdatingStore. Where the store has no ``update``, what another process puts meanwhile is lost.
        """
        if (updating := self._updating) is not None:
            await self._guarded(lambda: updating.update(key, change))
        else:
            await self._guarded(lambda: self._get_and_put(key, change), calls=2)

    async def call(self, call: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Return what a call of another method of the store returns; raises as ``get`` does."""
        return await self._guarded(call)

    def run(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Run work in a task; ``aclose`` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return task

    async def aclose(self) -> StoreError | None:
        """Wait for pending work within the time limit, then close the store; raises what its ``aclose`` raises.

        Returns:
            None; an error if the store does not close in time.
        """
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
        """Wait until nothing is pending: work may call the store again."""
        while self._pending:
            await asyncio.wait(set(self._pending))

    async def _get_and_put(self, key: str, change: Callable[[bytes | None], bytes]) -> None:
        await self._store.put(key, change(await self._store.get(key)))

    async def _guarded(self, call: Callable[[], Coroutine[Any, Any, Result]], calls: int = 1) -> Result:
        if self._in_memory:
            return await call()
        async with self._places:
            return await self._called(call, calls)

    async def _called(self, call: Callable[[], Coroutine[Any, Any, Result]], calls: int) -> Result:
        if self.closed:
            raise StoreLeftAlone("the store is closed")
        trial = self._pauses > 0
        if trial:
            self._try()
        try:
            result = await self._limited(call(), calls)
        except StoreError as error:
            pause_s = self._pause_after(error)
            if pause_s is None:
                raise
            raise StoreError(f"{error}; the store is left alone for {pause_s:g} s") from error
        finally:
            if trial:
                self._on_trial = False
        self._failures = self._pauses = 0
        return result

    def _try(self) -> None:
        """Begin the one call after a pause; raises StoreLeftAlone if it is not over, or that call was begun."""
        left_s = self._until_mono - self._clock.monotonic()
        if left_s > 0.0 or self._on_trial:
            raise StoreLeftAlone(f"the store has failed, and is left alone for {max(0.0, left_s):.0f} s more")
        self._on_trial = True

    def _pause_after(self, error: StoreError) -> float | None:
        """Count a failure; return for how many seconds the store is left alone from now on, None if it is not.

        Raises:
            StoreLeftAlone: if the call was begun before the pause: then one of its kind was reported.
        """
        self._failures += 1
        now_mono = self._clock.monotonic()
        if now_mono < self._until_mono:
            raise StoreLeftAlone(str(error)) from error
        if not (isinstance(error, _StoreLate) or self._pauses or self._failures >= _FAILURES):
            return None
        pause_s = min(self._timeout_s * 2.0**self._pauses, max(_LONGEST_PAUSE_S, self._timeout_s))
        self._pauses += 1
        self._until_mono = now_mono + pause_s
        return pause_s

    async def _limited(self, work: Coroutine[Any, Any, Result], calls: int = 1) -> Result:
        """Return the answer of so many calls; raises what they raise, and _StoreLate if they take too long.

        The call is a task of its own, so that a store that ignores a cancellation does not delay the caller. A
        BaseException of the store is raised as a RuntimeError: a CancelledError of its own must not cancel the waiters.
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
