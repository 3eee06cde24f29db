import asyncio
import gc
import weakref

import pytest

from politesse import ClosedError, Gatekeeper
from politesse.queue import PoliteQueue, QueueClosed
from politesse.testing import ManualClock, ScriptedFetcher
from tests.core.queue.crawl import UA, A, B, Queue, fetch_task, put, running_timers, waiting
from tests.support.tasks import settle


async def test_a_closed_queue_refuses_urls(queue: Queue) -> None:
    queue.close()
    with pytest.raises(QueueClosed, match="put after the queue was closed"):
        await queue.put(f"{A}/1")


async def test_an_answer_in_the_moment_of_the_close_starts_nothing(fetcher: ScriptedFetcher) -> None:
    clock = ManualClock()
    gate = Gatekeeper(UA, fetcher=fetcher, clock=clock)
    fetcher.answers[A] = 503
    queue: Queue = PoliteQueue(gate)
    fetcher.gate.clear()
    await put(queue, *(f"https://h{place}.example/" for place in range(99)))
    await queue.put(f"{A}/1")
    await queue.put(f"{B}/1")  # there is no room for its fetch
    task = fetch_task(A)
    await settle()
    fetcher.gate.set()
    while not task.done():
        await asyncio.sleep(0)
    await gate.aclose()
    await settle()
    assert task.exception() is None
    assert not running_timers(clock)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert fetcher.count(B) == 0


async def test_join_raises_if_the_gatekeeper_is_closed_during_the_last_turn(queue: Queue, gate: Gatekeeper) -> None:
    await queue.put(f"{A}/1")
    async with queue.turn():
        await gate.aclose()
        with pytest.raises(ClosedError):
            await queue.join()


async def test_queue_of_a_closed_gatekeeper_raises(queue: Queue, gate: Gatekeeper) -> None:
    await gate.aclose()
    with pytest.raises(ClosedError):
        await queue.put(f"{A}/1")
    async with waiting(queue, 3) as workers:
        results = await asyncio.gather(*workers, return_exceptions=True)
    assert [type(result) for result in results] == [ClosedError] * 3


async def test_a_gatekeeper_keeps_no_queue_alive(gate: Gatekeeper) -> None:
    queue: Queue = PoliteQueue(gate)
    seen = weakref.ref(queue)
    del queue
    gc.collect()
    assert seen() is None
    assert gate.state.closing == {}


async def test_the_close_of_the_gatekeeper_is_the_cause_of_later_errors(
    queue: Queue, gate: Gatekeeper, fetcher: ScriptedFetcher
) -> None:
    fetcher.gate.clear()
    await queue.put(f"{A}/1")
    await settle()
    await gate.aclose()
    await settle()
    with pytest.raises(ClosedError, match="1 URLs queued") as raised:
        await queue.put(f"{B}/1")
    assert str(raised.value.__cause__) == "the gatekeeper was closed"


async def test_join_ends_well_if_all_was_done_before_the_gatekeeper_was_closed(queue: Queue, gate: Gatekeeper) -> None:
    await queue.put(f"{A}/1")
    async with queue.turn():
        joined = asyncio.create_task(queue.join())
        await settle()
    await gate.aclose()
    await joined
    await queue.join()
