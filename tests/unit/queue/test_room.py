import asyncio

import pytest

from politesse import Gatekeeper
from politesse.errors import WrongEventLoop
from politesse.queue import PoliteQueue
from tests.unit.queue.crawl import A, B, Queue


async def test_maxsize_counts_per_host(gate: Gatekeeper) -> None:
    queue: Queue = PoliteQueue(gate, maxsize=2)
    for origin in (A, B):
        queue.put_nowait(f"{origin}/1")
        queue.put_nowait(f"{origin}/2")
        with pytest.raises(asyncio.QueueFull, match=r"2 URLs wait at .\.example"):
            queue.put_nowait(f"{origin}/3")
    assert queue.qsize() == 4


async def test_by_default_there_is_room_for_all_and_the_priority_is_zero(queue: Queue) -> None:
    for place, priority in enumerate([1, None, 0, -1]):
        if priority is None:
            queue.put_nowait(f"{A}/{place}")
            await queue.put(f"{A}/{place}+")
        else:
            queue.put_nowait(f"{A}/{place}", priority=priority)
    handed = []
    for _ in range(5):
        async with queue.turn() as turn:
            handed.append(turn.url.removeprefix(f"{A}/"))
    assert handed == ["3", "1", "1+", "2", "0"]


async def test_a_put_in_a_thread_is_an_error_and_the_queue_goes_on(queue: Queue) -> None:
    """It raised after it had counted the URL, which no worker ever had: ``join`` waited for ever."""
    with pytest.raises(WrongEventLoop, match="call_soon_threadsafe"):
        await asyncio.to_thread(queue.put_nowait, f"{A}/1")
    assert queue.qsize() == 0
    async with asyncio.timeout(10):
        await queue.join()
