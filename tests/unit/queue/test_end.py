from __future__ import annotations

import asyncio
import gc
from collections import Counter

import pytest

from politesse import (
    ClosedError,
    Gatekeeper,
)
from politesse.queue import PoliteQueue, QueueClosed
from politesse.testing import ManualClock, ScriptedFetcher
from tests.unit.queue.crawl import NOTHING, A, B, Log, settle, waiting


async def test_join_waits_for_turns_under_way(queue: PoliteQueue[object]) -> None:
    await queue.put(f"{A}/1")
    async with queue.turn():
        joined = asyncio.create_task(queue.join())
        await settle()
        assert not joined.done()
    await joined


async def test_join_of_an_empty_queue_returns_at_once(queue: PoliteQueue[object]) -> None:
    async with asyncio.timeout(1):
        await queue.join()


async def test_join_that_is_cancelled_harms_nobody(queue: PoliteQueue[object]) -> None:
    await queue.put(f"{A}/1")
    first, second = (asyncio.create_task(queue.join()) for _ in range(2))
    await settle()
    first.cancel()
    async with queue.turn():
        pass
    await second


async def test_closed_queue_hands_out_what_it_holds_and_then_says_so(queue: PoliteQueue[object]) -> None:
    await queue.put(f"{A}/1")
    queue.close()
    with pytest.raises(QueueClosed, match=r"put after the queue was closed"):
        await queue.put(f"{A}/2")
    with pytest.raises(QueueClosed):
        queue.put_nowait(f"{A}/2")
    async with queue.turn() as turn:
        assert turn.url == f"{A}/1"
        with pytest.raises(QueueClosed, match="nothing is left"):
            async with queue.turn():
                pytest.fail("there is no turn")
    await queue.join()


async def test_close_wakes_the_workers_of_an_empty_queue(queue: PoliteQueue[object]) -> None:
    async with waiting(queue, 3) as workers:
        queue.close()
        results = await asyncio.gather(*workers, return_exceptions=True)
    assert [type(result) for result in results] == [QueueClosed] * 3


async def test_the_last_url_of_a_closed_queue_frees_all_other_workers(queue: PoliteQueue[object]) -> None:
    await queue.put(f"{A}/1")
    queue.close()
    async with waiting(queue, 3) as workers:
        results = await asyncio.gather(*workers, return_exceptions=True)
    assert Counter(type(result) for result in results) == {str: 1, QueueClosed: 2}


async def test_the_last_refusal_of_a_closed_queue_frees_all_workers(
    queue: PoliteQueue[object], fetcher: ScriptedFetcher
) -> None:
    fetcher.answers[A] = NOTHING
    await queue.put(f"{A}/1")
    queue.close()
    async with waiting(queue, 3) as workers:
        results = await asyncio.gather(*workers, return_exceptions=True)
    assert [type(result) for result in results] == [QueueClosed] * 3


async def test_close_wakes_those_who_wait_to_put(gate: Gatekeeper) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, maxsize=1)
    await queue.put(f"{A}/1")
    blocked = asyncio.create_task(queue.put(f"{A}/2"))
    await settle()
    queue.close()
    with pytest.raises(QueueClosed):
        await blocked


@pytest.mark.parametrize("state", ["asking", "pacing", "deferred", "queued elsewhere"])
async def test_closing_the_gatekeeper_frees_everybody(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock, state: str
) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, maxsize=1)
    if state == "asking":
        fetcher.gate.clear()
    elif state == "deferred":
        fetcher.answers[A] = 503
    else:
        fetcher.answers[A] = "User-agent: *\nCrawl-delay: 3000\n"
        async with gate.turn(A):
            pass
    await queue.put(f"{A}/1")
    tasks = [asyncio.create_task(work) for work in (Log(queue, clock).work(), queue.put(f"{A}/2"), queue.join())]
    if state == "queued elsewhere":
        tasks.append(asyncio.create_task(gate.turn(A).__aenter__()))  # type: ignore[arg-type]
    await settle()
    await gate.aclose()
    async with asyncio.timeout(5):
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [ClosedError] * len(tasks)
    with pytest.raises(ClosedError):
        await queue.put(f"{B}/1")


async def test_no_task_is_left_when_all_is_done(queue: PoliteQueue[object], clock: ManualClock) -> None:
    for place in range(50):
        await queue.put(f"https://h{place % 7}.example/{place}")
    await Log(queue, clock).drain(workers=10)
    await queue.join()
    gc.collect()
    await settle()
    assert asyncio.all_tasks() == {asyncio.current_task()}
