import asyncio

from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.tasks import ended
from tests.unit.queue.crawl import A, Queue, fetch_task, waiting


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
