"""Tasks that take turns and put what they find, or take a second turn: they must not wait for themselves."""

import asyncio

import pytest

from politesse import Gatekeeper
from politesse.errors import TurnHeld, WrongEventLoop
from politesse.queue import PoliteQueue, QueueClosed
from tests.core.queue.crawl import A, B, Queue, next_url, put
from tests.support.tasks import apart, settle

pytestmark = pytest.mark.timeout(20)


@pytest.mark.parametrize("workers", [1, 20])
async def test_links_are_put_within_turns_whatever_the_room_is(gate: Gatekeeper, workers: int) -> None:
    queue: PoliteQueue[int] = PoliteQueue(gate, maxsize=2)
    await queue.put(f"{A}/0", 0)
    visited: list[str] = []

    async def work() -> None:
        while True:
            async with queue.turn() as turn:
                visited.append(turn.url)
                if turn.item is not None and turn.item < 3:
                    for n in range(3):
                        await queue.put(f"{turn.url}/{n}", turn.item + 1)

    tasks = [asyncio.create_task(work()) for _ in range(workers)]
    await queue.join()
    assert len(visited) == 1 + 3 + 9 + 27
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_turn_returns_can_be_entered_once(queue: Queue) -> None:
    await put(queue, f"{A}/1", f"{B}/1")
    waiting = queue.turn()
    async with waiting:
        with pytest.raises(RuntimeError, match=r"call turn\(\) for each"):
            async with waiting:
                pytest.fail("entered twice")
        assert queue.statistics().under_way == 1
    with pytest.raises(RuntimeError, match=r"call turn\(\) for each"):
        async with waiting:
            pytest.fail("entered again")
    assert (queue.qsize(), queue.statistics().under_way) == (1, 0)


async def test_producers_wait_for_room_that_workers_have_overdrawn(gate: Gatekeeper) -> None:
    queue: Queue = PoliteQueue(gate, maxsize=1)
    await queue.put(f"{A}/0")
    producer = asyncio.create_task(queue.put(f"{A}/producer"))
    await settle()

    async def work() -> None:
        async with queue.turn():
            await queue.put(f"{A}/1")
            await queue.put(f"{A}/2")
        for _ in range(2):
            assert not producer.done()
            await next_url(queue)

    with pytest.raises(asyncio.QueueFull):
        queue.put_nowait(f"{A}/3")
    await apart(work())
    await producer


async def test_second_turn_of_the_queue_is_at_another_host(queue: Queue) -> None:
    await put(queue, f"{A}/1", f"{A}/2", f"{B}/1")
    async with queue.turn() as first, queue.turn() as second:
        assert {first.url, second.url} == {f"{A}/1", f"{B}/1"}


async def test_second_turn_is_refused_where_the_task_would_wait_for_itself(queue: Queue) -> None:
    await queue.put(f"{A}/1")
    await queue.put(f"{A}/2")
    async with queue.turn():
        with pytest.raises(TurnHeld) as caught:
            async with queue.turn():
                pytest.fail("a second turn of the host")
    assert (caught.value.url, caught.value.held_by) == (f"{A}/2", f"{A}/1")
    async with queue.turn() as turn:  # nothing was lost
        assert turn.url == f"{A}/2"
    await queue.join()


async def test_second_turn_of_an_empty_queue_waits_for_what_others_put(queue: Queue) -> None:
    await queue.put(f"{A}/1")
    async with queue.turn():
        putting = asyncio.create_task(queue.put(f"{B}/1"))
        assert await next_url(queue) == f"{B}/1"
        await putting
        queue.close()
        with pytest.raises(QueueClosed):
            async with queue.turn():
                pytest.fail("a turn of an empty queue")


# Room


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
