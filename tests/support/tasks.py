"""Letting the tasks of an event loop run."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import Context
from math import ceil
from typing import Any, TypeVar

from politesse.testing import ManualClock

T = TypeVar("T")


async def settle(rounds: int = 20) -> None:
    """Let each task run until it waits; no time passes."""
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]  # nothing public tells that all tasks wait
    for _ in range(rounds):
        await asyncio.sleep(0)
        if not ready:
            break


async def pass_time(
    clock: ManualClock, seconds: float, *, step_s: float = 0.01, settle: Callable[[], Awaitable[None]] = settle
) -> None:
    """Pass time in steps, so that whatever is woken acts before the clock goes on.

    Steps in which no timer is due are taken together: nothing would happen in them.
    """
    end_mono = clock.monotonic() + seconds
    await settle()
    while (left_s := end_mono - clock.monotonic()) > 1e-9:
        due_s = clock._timers[0][0] - clock.monotonic() if clock._timers else left_s
        clock.advance(min(left_s, ceil(max(min(due_s, left_s), step_s) / step_s) * step_s))
        await settle()


async def ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks from outside, and wait until they and the tasks that they wake have ended."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await settle()


def apart(awaitable: Awaitable[T]) -> asyncio.Task[T]:
    """Await in an independent task, which holds none of the turns of the current task."""

    async def run() -> T:
        return await awaitable

    return asyncio.get_running_loop().create_task(run(), context=Context())


def now(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that does not wait."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError(f"{work} waits")
