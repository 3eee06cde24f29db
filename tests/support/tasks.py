"""Letting the tasks of an event loop run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

T = TypeVar("T")


async def settle(rounds: int = 20) -> None:
    """Let every task run as far as it can without time passing."""
    for _ in range(rounds):
        await asyncio.sleep(0)


async def ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, as somebody who does not know them, and wait for their ends and for what these lead to."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await settle()


async def in_child_task(awaitable: Awaitable[T]) -> T:
    """Await in a task of its own, which holds none of the turns of this one."""

    async def run() -> T:
        return await awaitable

    return await asyncio.create_task(run())
