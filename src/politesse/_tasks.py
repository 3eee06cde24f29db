"""Helpers for asyncio tasks: time limits, and who has cancelled what."""

from __future__ import annotations

import asyncio
from asyncio import _get_running_loop
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from politesse.clock import Clock, Timer

_NEVER: Final = float("inf")
_STALL_S: Final = 0.05  # a timer that is later than this: the event loop stood still


class TaskLimit:
    """A limit of the block that it is entered for, as ``asyncio.timeout`` is, for limits that are often moved.

    When it is over, the task is cancelled, and the block raises TimeoutError. Nothing is awaited, and a limit that is
    moved to a later time leaves its timer alone, which finds that when it runs: a fetch, whose limit is moved twice,
    takes half of the 10 us of two ``asyncio.timeout``.

    Attributes:
        ends_at: when it is over, by the clock of the event loop; infinity for never.
        expired: whether it is over.
    """

    __slots__ = ("_cancelling", "_task", "_timer", "ends_at", "expired")

    def __init__(self) -> None:
        self.ends_at = _NEVER
        self.expired = False
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._task = task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a limit is entered outside of a task")
        self._cancelling = task.cancelling()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.expired and task is not None:
            # As in asyncio.timeout: a cancellation from outside at the same moment passes.
            is_ours = task.uncancel() <= self._cancelling
            if is_ours and kind is asyncio.CancelledError:
                raise TimeoutError from error

    def end_at(self, at: float, looked_at: float | None = None) -> None:
        """Move the limit to the time ``at`` of the event loop; no effect after its end.

        Args:
            at: infinity for no limit.
            looked_at: when the timer runs, if it is set now; by default ``at``. An earlier time saves setting it anew
                where the limit is about to be moved to a time between the two.
        """
        self.ends_at = at
        looked_at = at if looked_at is None else looked_at
        timer = self._timer
        if timer is not None and timer.when() > looked_at:
            timer.cancel()
            timer = None
        if timer is None and looked_at < _NEVER and self._task is not None:
            self._timer = asyncio.get_running_loop().call_at(looked_at, self._look)

    def end_now(self) -> None:
        """End the block, from another task; no effect if it has ended already."""
        if self._task is not None and not self.expired:
            self.expired = True
            self._task.cancel()

    def _look(self) -> None:
        self._timer = None
        if asyncio.get_running_loop().time() >= self.ends_at:
            self.end_now()
        elif self.ends_at < _NEVER:
            self.end_at(self.ends_at)


async def ends_within(
    clock: Clock, limit_s: float, work: asyncio.Future[Any], *, again_after_stall: bool = False
) -> bool:
    """Wait for ``work`` to end; return False if it takes longer than ``limit_s`` seconds by ``clock``.

    Late work is cancelled, and so is the work of a cancelled caller. Its end is not awaited: it may ignore the
    cancellation.

    Args:
        clock: measures the limit.
        limit_s: how long the work may take.
        work: what to wait for.
        again_after_stall: whether the limit begins again, once, if the event loop stood still when it was over: then
            the work may have ended, or not even begun, and the event loop has not come to it.
    """
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer: Timer

    def end(_: object = None) -> None:
        if not over.done():
            over.set_result(None)

    def look() -> None:
        nonlocal timer
        if clock.monotonic() - due_mono > _STALL_S and not over.done():
            timer = clock.call_later(limit_s, end)
        else:
            end()

    due_mono = clock.monotonic() + limit_s
    timer = clock.call_later(limit_s, look if again_after_stall else end)
    work.add_done_callback(end)
    work.add_done_callback(_ignore_error)  # the caller may be cancelled in the same step in which the work fails
    try:
        await over
    finally:
        timer.cancel()
        if not work.done():
            work.cancel()
    return work.done()


def _ignore_error(work: asyncio.Future[Any]) -> None:
    """Retrieve an error that nobody awaits; otherwise asyncio logs it as never retrieved."""
    if not work.cancelled():
        work.exception()


def is_ended_from_outside(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Return whether ``error`` ends ``task`` itself: it was cancelled, or its coroutine is closed without its loop.

    Otherwise a component raised the exception, and the callers that wait for the task were not cancelled either.
    """
    if isinstance(error, asyncio.CancelledError):
        return task is None or task.cancelling() > 0
    if isinstance(error, GeneratorExit):
        return _get_running_loop() is None or asyncio.current_task() is not task
    return False


def is_anything_left() -> bool:
    """Return whether a task of the running event loop is not being cancelled: else the loop is about to end.

    That is how ``asyncio.run`` ends: it cancels all tasks, and waits for these and for no later ones.
    """
    return any(not task.cancelling() for task in asyncio.all_tasks())


def is_ended_with_task(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Return whether ``error`` ends ``task`` itself from outside, or the whole process."""
    return is_ended_from_outside(error, task) or isinstance(error, KeyboardInterrupt | SystemExit)
