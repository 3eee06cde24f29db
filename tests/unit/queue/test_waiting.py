from __future__ import annotations

import asyncio

from politesse.queue.waiting import WaitingTasks
from tests.support.tasks import settle


async def start(waiting: WaitingTasks, count: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(waiting.wait()) for _ in range(count)]
    await settle()
    return tasks


async def test_task_that_came_first_is_woken_first() -> None:
    waiting = WaitingTasks()
    first, second = await start(waiting, 2)
    assert len(waiting) == 2
    waiting.wake()
    await settle()
    assert (first.done(), second.done(), len(waiting)) == (True, False, 1)
    waiting.wake_all()
    await settle()
    assert second.done()
    waiting.wake()  # none is there


async def test_task_cancelled_before_it_is_woken_costs_no_wake_up() -> None:
    waiting = WaitingTasks()
    first, second, third = await start(waiting, 3)
    first.cancel()  # it is still waiting until it runs
    waiting.wake()
    await settle()
    assert first.cancelled()
    assert (second.done(), third.done()) == (True, False)
    third.cancel()
    await settle()
    assert len(waiting) == 0


async def test_task_cancelled_after_it_was_woken_wakes_one_other() -> None:
    waiting = WaitingTasks()
    first, second, third = await start(waiting, 3)
    waiting.wake()
    first.cancel()
    await settle()
    assert first.cancelled()
    assert (second.done(), third.done()) == (True, False)
    waiting.wake_all()
    await third


async def test_task_cancelled_while_it_waits_wakes_no_other() -> None:
    waiting = WaitingTasks()
    first, second = await start(waiting, 2)
    first.cancel()
    await settle()
    assert (second.done(), len(waiting)) == (False, 1)
    waiting.wake_all()
    await second
