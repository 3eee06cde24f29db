from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from politesse.queue import PoliteQueue, QueueStatistics
from tests.support.tasks import ended, settle
from tests.unit.queue.crawl import NOTHING, A, Log, fetch_task, waiting

if TYPE_CHECKING:
    from politesse import Gatekeeper
    from politesse.testing import ManualClock, ScriptedFetcher


async def test_a_cancelled_worker_loses_no_url(queue: PoliteQueue[object], fetcher: ScriptedFetcher) -> None:
    fetcher.gate.clear()
    await queue.put(f"{A}/1")
    async with waiting(queue, 2) as [first, second]:
        first.cancel()
        await settle()
        fetcher.gate.set()
        assert await second == f"{A}/1"
    assert queue.statistics().waiting == 0


async def test_a_worker_cancelled_after_it_was_woken_wakes_the_next(
    queue: PoliteQueue[object], gate: Gatekeeper
) -> None:
    await gate.check(A)
    async with waiting(queue, 2) as [first, second]:
        await queue.put(f"{A}/1")  # wakes the first, which has not resumed yet
        first.cancel()
        assert await second == f"{A}/1"
        assert first.cancelled()


@pytest.mark.parametrize("rounds", range(12))
async def test_a_worker_cancelled_at_any_moment_loses_no_url(
    queue: PoliteQueue[object], clock: ManualClock, rounds: int
) -> None:
    await queue.put(f"{A}/1")
    await queue.put(f"{A}/2")
    handed: list[str] = []

    async def work() -> None:
        while True:
            async with queue.turn() as turn:
                handed.append(turn.url)
                await clock.sleep(1)

    task = asyncio.create_task(work())
    await settle(rounds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    log = Log(queue, clock)
    await log.drain()
    assert handed + log.urls == [f"{A}/1", f"{A}/2"]


async def test_cancelling_workers_at_random_loses_and_doubles_nothing(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    chance = random.Random(7)
    queue: PoliteQueue[object] = PoliteQueue(gate, maxsize=5)
    urls = [f"https://h{place % 10}.example/{place}" for place in range(200)]
    fetcher.answers["https://h3.example"] = [503, 404]
    fetcher.answers["https://h4.example"] = "User-agent: *\nCrawl-delay: 7\n"
    handed: list[str] = []

    async def work() -> None:
        while True:
            async with queue.turn() as turn:
                handed.append(turn.url)
                await clock.sleep(chance.random())

    async def put() -> None:
        async with asyncio.TaskGroup() as group:
            for url in urls:
                group.create_task(queue.put(url))

    putting = asyncio.create_task(put())
    workers = [asyncio.create_task(work()) for _ in range(8)]
    while not putting.done() or queue.qsize():
        victim = chance.randrange(len(workers))
        workers[victim].cancel()
        await asyncio.gather(workers[victim], return_exceptions=True)
        workers[victim] = asyncio.create_task(work())
        await (clock.sleep(chance.random() * 5) if chance.random() < 0.5 else settle(chance.randrange(10)))
    await queue.join()
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    assert sorted(handed) == sorted(urls)
    assert queue.statistics() == QueueStatistics(0, 0, 0, 0, 0, 0, 0, 0)


async def test_an_exception_in_the_block_ends_the_turn_and_counts_as_done(
    queue: PoliteQueue[object], gate: Gatekeeper
) -> None:
    await queue.put(f"{A}/1")
    with pytest.raises(LookupError):
        async with queue.turn():
            raise LookupError
    assert gate.statistics().turns == 0
    await queue.join()


async def test_a_cancellation_in_the_block_ends_the_turn_and_counts_as_done(
    queue: PoliteQueue[object], gate: Gatekeeper
) -> None:
    await queue.put(f"{A}/1")

    async def hang() -> None:
        async with queue.turn():
            await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    while not queue.statistics().under_way:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gate.statistics().turns == 0
    await queue.join()


async def test_refusals_go_on_with_the_next_worker_after_a_cancellation(
    queue: PoliteQueue[object], gate: Gatekeeper, fetcher: ScriptedFetcher
) -> None:
    fetcher.answers[A] = NOTHING
    async with waiting(queue, 2) as [first, second]:
        for place in range(1_000):
            await queue.put(f"{A}/{place}")
        while queue.qsize() == 1_000:
            await asyncio.sleep(0)
        assert queue.qsize()
        first.cancel()
        async with asyncio.timeout(5):
            await queue.join()
        assert first.cancelled()
        assert not second.done()


async def test_a_put_that_is_overtaken_when_woken_keeps_the_host_of_the_other(gate: Gatekeeper) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, maxsize=1)
    await queue.put(f"{A}/1")
    blocked = asyncio.create_task(queue.put(f"{A}/2"))
    await settle()
    async with queue.turn():
        queue.put_nowait(f"{A}/3")  # the other is woken, and has not resumed yet
        await settle()
        assert not blocked.done()
        assert (queue.qsize(), queue.statistics().hosts) == (1, 1)
    for url in (f"{A}/3", f"{A}/2"):
        async with queue.turn() as turn:
            assert turn.url == url
    await blocked
    assert queue.statistics().hosts == 0


async def test_a_robots_txt_whose_fetch_is_cancelled_by_others_is_fetched_again(
    queue: PoliteQueue[object], clock: ManualClock, fetcher: ScriptedFetcher
) -> None:
    fetcher.gate.clear()
    await queue.put(f"{A}/1")
    async with waiting(queue) as [worker]:
        await ended([fetch_task(A)])
        fetcher.gate.set()
        clock.advance(1.0)
        async with asyncio.timeout(10.0):
            assert await worker == f"{A}/1"
