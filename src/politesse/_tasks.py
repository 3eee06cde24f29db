"""Helpers for asyncio tasks: time limits, and the origin of a cancellation."""

from __future__ import annotations

import asyncio
from asyncio import _get_running_loop
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from politesse.clock import Clock, Timer

_STALL_S: Final = 0.05  # if a timer is later than this, the event loop was blocked


async def ends_within(
    clock: Clock, limit_s: float, work: asyncio.Future[Any], *, again_after_stall: bool = False
) -> bool:
    """Wait for ``work`` to end; return False if it takes longer than ``limit_s`` seconds by ``clock``.

    Late work is cancelled, and so is the work of a cancelled caller. The function does not wait for the end of
    cancelled work, which may ignore the cancellation.

    Args:
        clock: measures the limit.
        limit_s: how long the work may take.
        work: the future to wait for.
        again_after_stall: whether the limit begins again, once, if the event loop was blocked when the limit ended. In
            that case the work may have ended, or may not have begun.
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
    work.add_done_callback(_ignore_error)  # if the caller is cancelled in the same step, it does not retrieve the error
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
    """Return whether ``error`` ends ``task`` itself, by a cancellation, or because its coroutine is closed.

    Otherwise a component raised the exception, and the waiting callers were not cancelled.
    """
    if isinstance(error, asyncio.CancelledError):
        return task is None or task.cancelling() > 0
    if isinstance(error, GeneratorExit):
        return _get_running_loop() is None or asyncio.current_task() is not task
    return False


def is_anything_left() -> bool:
    """Return whether any task of the running event loop is not being cancelled; if not, the loop is about to end.

    At its end, ``asyncio.run`` cancels all tasks and waits for them, but not for later tasks.
    """
    return any(not task.cancelling() for task in asyncio.all_tasks())


def is_ended_with_task(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Return whether ``error`` ends ``task`` itself from outside, or the whole process."""
    return is_ended_from_outside(error, task) or isinstance(error, KeyboardInterrupt | SystemExit)


def current_task() -> asyncio.Task[object] | None:
    """Return the current task; None outside of a task."""
    loop = _get_running_loop()
    return None if loop is None else asyncio.current_task(loop)
