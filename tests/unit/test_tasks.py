"""A limit of a block: it ends the block and nothing else, and may be moved."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from politesse._tasks import TaskLimit

if TYPE_CHECKING:
    from collections.abc import Callable

NOW_S = 0.001
LONG_S = 30.0


async def limited(limit: TaskLimit, start: Callable[[float], None] = lambda _: None, block_s: float = LONG_S) -> None:
    """Sleep within a limit; ``start`` gets the time of the event loop, and moves the limit."""
    with limit:
        start(asyncio.get_running_loop().time())
        await asyncio.sleep(block_s)


async def started(limit: TaskLimit) -> asyncio.Task[None]:
    """Return a task that sleeps within a limit."""
    task = asyncio.create_task(limited(limit))
    await asyncio.sleep(0)
    return task


def cancellations() -> int:
    """Return how many requests to cancel the current task are open."""
    task = asyncio.current_task()
    return -1 if task is None else task.cancelling()


async def test_a_limit_that_is_over_raises_timeout_error() -> None:
    limit = TaskLimit()
    with pytest.raises(TimeoutError):
        await limited(limit, lambda now: limit.end_at(now + NOW_S))
    assert limit.expired
    assert cancellations() == 0


async def test_a_block_that_ends_in_time_is_left_alone() -> None:
    limit = TaskLimit()
    await limited(limit, lambda now: limit.end_at(now + NOW_S), block_s=0)
    await asyncio.sleep(5 * NOW_S)
    assert not limit.expired


async def test_a_limit_that_was_moved_to_a_later_time_does_not_end_at_the_earlier_one() -> None:
    limit = TaskLimit()

    def move(now: float) -> None:
        limit.end_at(now + NOW_S)
        limit.end_at(now + LONG_S)

    await limited(limit, move, block_s=5 * NOW_S)
    assert not limit.expired


async def test_a_limit_that_was_moved_to_an_earlier_time_ends_then() -> None:
    limit = TaskLimit()

    def move(now: float) -> None:
        limit.end_at(now + 2 * LONG_S)
        limit.end_at(now + NOW_S)

    with pytest.raises(TimeoutError):
        await limited(limit, move)


async def test_a_look_before_the_end_sets_the_timer_again() -> None:
    limit, began = TaskLimit(), asyncio.get_running_loop().time()
    with pytest.raises(TimeoutError):
        await limited(limit, lambda now: limit.end_at(now + 0.02, looked_at=now + NOW_S))
    assert asyncio.get_running_loop().time() - began >= 0.02


async def test_another_task_may_end_the_block() -> None:
    limit = TaskLimit()
    task = await started(limit)
    limit.end_now()
    with pytest.raises(TimeoutError):
        await task


async def test_ending_a_block_that_has_ended_does_not_cancel_its_task() -> None:
    limit = TaskLimit()
    await limited(limit, block_s=0)
    limit.end_now()
    await asyncio.sleep(0)
    assert not limit.expired


async def test_a_cancellation_from_outside_at_the_same_moment_passes() -> None:
    limit = TaskLimit()
    task = await started(limit)
    limit.end_now()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_of_the_block_passes_though_the_limit_is_over() -> None:
    limit = TaskLimit()

    async def fail() -> int:
        with limit:
            try:
                await asyncio.sleep(LONG_S)
            except asyncio.CancelledError:
                raise ZeroDivisionError from None
        return 0

    async def report() -> tuple[type[Exception] | None, int]:
        try:
            await fail()
        except ZeroDivisionError as error:
            return type(error), cancellations()
        return None, cancellations()

    task = asyncio.create_task(report())
    await asyncio.sleep(0)
    limit.end_now()
    assert await task == (ZeroDivisionError, 0)


def test_a_limit_outside_of_a_task_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        TaskLimit().__enter__()


async def test_a_limit_in_a_callback_is_an_error() -> None:
    loop = asyncio.get_running_loop()
    entered: asyncio.Future[TaskLimit] = loop.create_future()

    def enter() -> None:
        try:
            entered.set_result(TaskLimit().__enter__())
        except RuntimeError as error:
            entered.set_exception(error)

    loop.call_soon(enter)
    with pytest.raises(RuntimeError, match="outside of a task"):
        await entered
