import asyncio

from politesse import Gatekeeper
from politesse.queue import PoliteQueue
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.tasks import ended, settle
from tests.unit.queue.crawl import A, Queue, fetch_task, next_url, waiting


async def test_a_put_that_is_overtaken_when_woken_keeps_the_host_of_the_other(gate: Gatekeeper) -> None:
    queue: Queue = PoliteQueue(gate, maxsize=1)
    await queue.put(f"{A}/1")
    blocked = asyncio.create_task(queue.put(f"{A}/2"))
    await settle()
    async with queue.turn():
        queue.put_nowait(f"{A}/3")  # the other is woken, and has not resumed yet
        await settle()
        assert not blocked.done()
        assert (queue.qsize(), queue.statistics().hosts) == (1, 1)
    for url in (f"{A}/3", f"{A}/2"):
        assert await next_url(queue) == url
    await blocked
    assert queue.statistics().hosts == 0


async def test_a_robots_txt_whose_fetch_is_cancelled_by_others_is_fetched_again(
    queue: Queue, clock: ManualClock, fetcher: ScriptedFetcher
) -> None:
    fetcher.gate.clear()
    await queue.put(f"{A}/1")
    async with waiting(queue) as [worker]:
        await ended([fetch_task(A)])
        fetcher.gate.set()
        clock.advance(1.0)
        async with asyncio.timeout(10.0):
            assert await worker == f"{A}/1"
