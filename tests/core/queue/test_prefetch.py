import asyncio

import pytest

from politesse import CacheOptions, Gatekeeper, PacingOptions
from politesse.ports import FaultKind, FetchFault, FetchRequest, FetchResponse, FetchResult
from politesse.queue import PoliteQueue
from politesse.stores import MemoryStore
from politesse.testing import ManualClock, ScriptedFetcher
from tests.core.queue.crawl import UA, A, B, Queue, drained, fetch_task, next_url, put, waiting
from tests.support.tasks import ended, settle
from tests.support.tiers import first_of


async def test_one_origin_that_is_unknown_holds_up_no_other_of_its_host(
    queue: Queue, fetcher: ScriptedFetcher, gate: Gatekeeper
) -> None:
    await gate.check(A)
    fetcher.gate.clear()
    await queue.put("http://a.example/1", priority=-1)
    await queue.put(f"{A}/1")
    assert await next_url(queue) == f"{A}/1"


async def test_expired_copy_is_fetched_again_without_a_worker(
    queue: Queue, fetcher: ScriptedFetcher, gate: Gatekeeper, clock: ManualClock
) -> None:
    await gate.check(A)
    await queue.put(f"{A}/1")
    await clock.sleep(2 * 86_400)
    fetcher.gate.clear()
    await queue.put(f"{B}/1")
    async with waiting(queue, 2) as workers:
        assert fetcher.count(A) == 2
        assert queue.statistics().asking == 2
        fetcher.gate.set()
        assert set(await asyncio.gather(*workers)) == {f"{A}/1", f"{B}/1"}


async def test_without_a_waiting_worker_robots_txt_is_fetched_at_the_pace_of_the_workers(
    fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, pacing=PacingOptions(min_delay_s=0)) as gate:
        queue: Queue = PoliteQueue(gate)
        for place in range(500):
            await queue.put(f"https://h{place}.example/")
        await clock.sleep(100)
        assert [str(request.origin) for request in fetcher.requests] == [f"https://h{n}.example" for n in range(100)]
        for _ in range(50):
            async with queue.turn():
                await clock.sleep(1)
        assert 150 <= len(fetcher.requests) <= 170
        assert len({str(request.origin) for request in fetcher.requests}) == len(fetcher.requests)


async def test_slow_hosts_do_not_keep_waiting_workers_from_unknown_ones(
    queue: Queue, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    for place in range(120):
        fetcher.answers[f"https://h{place}.example"] = "User-agent: *\nCrawl-delay: 1000\n" if place < 110 else 404
        await queue.put(f"https://h{place}.example/")
    await clock.sleep(5)
    log = await drained(queue, clock, workers=1)
    assert sum(moment < 10 for _, moment in log.handed) == 10


async def test_each_turn_starts_one_more_fetch_while_hosts_fetched_before_are_slow(
    queue: Queue, gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    ready = [f"https://ready{place}.example" for place in range(10)]
    await gate.check_batch(ready)
    await clock.sleep(5)
    for place in range(110):
        fetcher.answers[f"https://h{place}.example"] = "User-agent: *\nCrawl-delay: 3000\n"
        await queue.put(f"https://h{place}.example/")
    for origin in ready:
        await queue.put(f"{origin}/")
    await settle(30)
    known = len(fetcher.requests)
    assert known == len(ready) + 100
    for handed in range(1, 6):
        async with queue.turn() as turn:
            assert turn.url == f"{ready[handed - 1]}/"
            await settle(30)
            assert len(fetcher.requests) == known + handed


async def test_a_worker_that_waits_has_all_robots_txt_fetched(queue: Queue, fetcher: ScriptedFetcher) -> None:
    fetcher.gate.clear()
    await put(queue, *(f"https://h{place}.example/" for place in range(150)))
    assert queue.statistics().asking == 100
    async with waiting(queue):
        assert queue.statistics().asking == 150


class Dead(ScriptedFetcher):
    """Servers that accept and never answer, until the fetcher gives up; but for one of them."""

    def __init__(self, clock: ManualClock, alive: str) -> None:
        super().__init__()
        self.clock = clock
        self.alive = alive

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        if str(request.origin) == self.alive:
            return await super().fetch(request)
        await self.clock.sleep(30)
        return FetchFault(FaultKind.TIMEOUT, "it never answered", request.url)


@pytest.mark.parametrize("dead", first_of(1, [1_000, 5_000]))
async def test_origins_that_never_answer_do_not_delay_a_live_one(clock: ManualClock, dead: int) -> None:
    fetcher = Dead(clock, A)
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, pacing=PacingOptions(min_delay_s=0)) as gate:
        queue: Queue = PoliteQueue(gate)
        for place in range(dead):
            await queue.put(f"https://dead{place}.example/")
        await queue.put(f"{A}/1")
        async with queue.turn() as turn:
            assert turn.url == f"{A}/1"
            assert clock.monotonic() <= dead / 500
            assert queue.statistics().asking <= 2_500


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


class SlowFetcher(ScriptedFetcher):
    """Takes a tenth of a second for each answer; each origin has a file of its own."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        await self.clock.sleep(0.1)
        return FetchResponse(200, request.url, body=f"User-agent: *\nDisallow: /{request.origin}".encode())


async def test_workers_rest_while_a_robots_txt_that_the_cache_has_dropped_is_fetched_again(clock: ManualClock) -> None:
    # The cache keeps three of ten files. While a worker is busy the clock stands still, and the test reaches its limit.
    cache, store = CacheOptions(max_entries_bytes=4500), MemoryStore(max_bytes=1)
    async with Gatekeeper(UA, fetcher=SlowFetcher(clock), clock=clock, cache=cache, store=store) as gate:
        queue: Queue = PoliteQueue(gate)
        urls = [f"{scheme}://{name}.example/{n}" for n in range(4) for name in "abcde" for scheme in ("https", "http")]
        await put(queue, *urls)
        async with asyncio.timeout(20):
            log = await drained(queue, clock, workers=2, took_s=1.2)
    assert sorted(log.urls) == sorted(urls)
