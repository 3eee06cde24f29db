from __future__ import annotations

import asyncio

import pytest

from politesse import ConfigurationError, Gatekeeper
from politesse.errors import WrongEventLoop
from politesse.queue import PoliteQueue
from tests.support.tasks import settle
from tests.unit.queue.crawl import A, B


async def test_maxsize_counts_per_host(gate: Gatekeeper) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, maxsize=2)
    for origin in (A, B):
        queue.put_nowait(f"{origin}/1")
        queue.put_nowait(f"{origin}/2")
        with pytest.raises(asyncio.QueueFull, match=r"2 URLs wait at .\.example"):
            queue.put_nowait(f"{origin}/3")
    assert queue.qsize() == 4


async def test_put_waits_for_room_at_its_host_while_others_put(gate: Gatekeeper) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, maxsize=1)
    await queue.put(f"{A}/1")
    blocked = [asyncio.create_task(queue.put(f"{A}/{place}")) for place in (2, 3)]
    await settle()
    await queue.put(f"{B}/1")
    assert not any(task.done() for task in blocked)
    handed = []
    for _ in range(4):
        async with queue.turn() as turn:
            handed.append(turn.url)
    await asyncio.gather(*blocked)
    assert [url for url in handed if url.startswith(A)] == [f"{A}/{place}" for place in (1, 2, 3)]
    assert queue.statistics().hosts == 0


async def test_a_put_that_is_cancelled_puts_nothing_and_passes_its_room_on(gate: Gatekeeper) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, maxsize=1)
    await queue.put(f"{A}/1")
    first, second = (asyncio.create_task(queue.put(f"{A}/{place}")) for place in (2, 3))
    await settle()
    async with queue.turn():
        first.cancel()  # woken, and not resumed yet
        await settle()
        assert first.cancelled()
        assert second.done()
    async with queue.turn() as turn:
        assert turn.url == f"{A}/3"
    await queue.join()
    assert queue.statistics().hosts == 0


async def test_the_last_put_that_is_cancelled_leaves_no_host_behind(gate: Gatekeeper) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, maxsize=1)
    await queue.put(f"{A}/1")
    blocked = asyncio.create_task(queue.put(f"{A}/2"))
    other = asyncio.create_task(queue.put(f"{A}/3"))
    await settle()
    async with queue.turn():
        blocked.cancel()
        other.cancel()
        await settle()
    assert queue.statistics().hosts == 0


async def test_put_that_is_cancelled_while_it_waits_takes_no_room(gate: Gatekeeper) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, maxsize=1)
    await queue.put(f"{A}/1")
    first, second = (asyncio.create_task(queue.put(f"{A}/{place}")) for place in (2, 3))
    await settle()
    first.cancel()
    await settle()
    async with queue.turn():
        pass
    await second
    async with queue.turn() as turn:
        assert turn.url == f"{A}/3"


@pytest.mark.parametrize("options", [{"maxsize": -1}, {"max_deferrals": -1}, {"max_asking": 0}])
async def test_invalid_options_are_refused(gate: Gatekeeper, options: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        PoliteQueue(gate, **options)  # type: ignore[arg-type]


async def test_one_that_was_handed_out_makes_room_for_one(gate: Gatekeeper) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, maxsize=1)
    await queue.put(f"{A}/1")
    blocked = [asyncio.create_task(queue.put(f"{A}/{place}")) for place in (2, 3)]
    await settle()
    async with queue.turn():
        await settle()
        assert [task.done() for task in blocked] == [True, False]
    for task in blocked:
        task.cancel()
    await settle()


async def test_by_default_there_is_room_for_all_and_the_priority_is_zero(queue: PoliteQueue[object]) -> None:
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


async def test_the_only_put_that_waited_is_cancelled_and_the_host_stays(gate: Gatekeeper) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, maxsize=1)
    await queue.put(f"{A}/1")
    blocked = asyncio.create_task(queue.put(f"{A}/2"))
    await settle()
    blocked.cancel()
    await settle()
    assert queue.statistics().hosts == 1
    with pytest.raises(asyncio.QueueFull):
        queue.put_nowait(f"{A}/3")
    async with queue.turn() as turn:
        assert turn.url == f"{A}/1"
    assert queue.statistics().hosts == 0


async def test_a_put_in_a_thread_is_an_error_and_the_queue_goes_on(queue: PoliteQueue[object]) -> None:
    """It raised after it had counted the URL, which no worker ever had: ``join`` waited for ever."""
    with pytest.raises(WrongEventLoop, match="call_soon_threadsafe"):
        await asyncio.to_thread(queue.put_nowait, f"{A}/1")
    assert queue.qsize() == 0
    async with asyncio.timeout(10):
        await queue.join()
