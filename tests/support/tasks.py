"""Letting the tasks of an event loop run."""

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


async def settle(rounds: int = 20) -> None:
    """Let each task run until it waits; no time passes."""
    for _ in range(rounds):
        await asyncio.sleep(0)


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
