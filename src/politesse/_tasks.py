"""Helpers for asyncio tasks: a time limit by any clock, and whether an exception is a cancellation."""

from __future__ import annotations

import asyncio
from asyncio import _get_running_loop
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from politesse.clock import Clock


async def ends_within(clock: Clock, limit_s: float, work: asyncio.Future[Any]) -> bool:
    """Wait for ``work`` to end; return False if it takes longer than ``limit_s`` seconds by ``clock``.

    Late work is cancelled, and so is the work of a cancelled caller. Its end is not awaited: it may ignore the
    cancellation.
    """
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end(_: object = None) -> None:
        if not over.done():
            over.set_result(None)

    timer = clock.call_later(limit_s, end)
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


def is_ended_with_task(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Return whether ``error`` ends ``task`` itself from outside, or the whole process."""
    return is_ended_from_outside(error, task) or isinstance(error, KeyboardInterrupt | SystemExit)
