from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from politesse import CacheOptions, Gatekeeper, PacingOptions
from politesse.ports import FaultKind, FetchFault
from politesse.queue import PoliteQueue
from politesse.testing import ScriptedFetcher
from tests.support.tasks import settle
from tests.unit.queue.crawl import UA, A, B, Log, fetch_task, waiting

if TYPE_CHECKING:
    from politesse.events import Event
    from politesse.ports import FetchRequest, FetchResult
    from politesse.testing import ManualClock


async def test_robots_txt_of_an_unknown_origin_is_fetched_at_once_and_the_url_handed_out_when_it_is_known(
    queue: PoliteQueue[object], fetcher: ScriptedFetcher
) -> None:
    fetcher.gate.clear()
    await queue.put(f"{A}/1")
    async with waiting(queue) as [worker]:
        assert fetcher.count(A) == 1
        assert not worker.done()
        assert queue.statistics().asking == 1
        fetcher.gate.set()
        assert await worker == f"{A}/1"


async def test_robots_txt_is_fetched_before_any_worker_comes(
    queue: PoliteQueue[object], fetcher: ScriptedFetcher
) -> None:
    await queue.put(f"{A}/1")
    await settle()
    assert fetcher.count(A) == 1


async def test_a_host_waits_for_a_robots_txt_without_a_worker(
    queue: PoliteQueue[object], fetcher: ScriptedFetcher, gate: Gatekeeper
) -> None:
    await gate.check(B)
    fetcher.gate.clear()
    await queue.put(f"{A}/1")
    await queue.put(f"{B}/1")
    async with queue.turn() as turn:
        assert turn.url == f"{B}/1"


async def test_one_origin_that_is_unknown_holds_up_no_other_of_its_host(
    queue: PoliteQueue[object], fetcher: ScriptedFetcher, gate: Gatekeeper
) -> None:
    await gate.check(A)
    fetcher.gate.clear()
    await queue.put("http://a.example/1", priority=-1)
    await queue.put(f"{A}/1")
    async with queue.turn() as turn:
        assert turn.url == f"{A}/1"


async def test_expired_copy_is_fetched_again_without_a_worker(
    queue: PoliteQueue[object], fetcher: ScriptedFetcher, gate: Gatekeeper, clock: ManualClock
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


async def test_unknown_hosts_are_fetched_at_the_pace_of_the_workers(
    fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, pacing=PacingOptions(min_delay_s=0)) as gate:
        queue: PoliteQueue[object] = PoliteQueue(gate, max_asking=10)
        for place in range(500):
            await queue.put(f"https://h{place}.example/")
        await clock.sleep(100)
        assert len(fetcher.requests) == 10
        for _ in range(50):
            async with queue.turn():
                await clock.sleep(1)
        assert 50 <= len(fetcher.requests) <= 70
        assert len({str(request.origin) for request in fetcher.requests}) == len(fetcher.requests)


async def test_slow_hosts_do_not_keep_waiting_workers_from_unknown_ones(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, max_asking=3)
    for place in range(20):
        fetcher.answers[f"https://h{place}.example"] = "User-agent: *\nCrawl-delay: 1000\n" if place < 10 else 404
        await queue.put(f"https://h{place}.example/")
    await clock.sleep(5)
    log = Log(queue, clock)
    await log.drain(workers=1)
    assert sum(moment < 10 for _, moment in log.handed) == 10


async def test_no_unknown_host_is_starved_by_hosts_with_much_work(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, max_asking=5)
    for place in range(20):
        for page in range(20):
            await queue.put(f"https://h{place}.example/{page}")
    log = Log(queue, clock)
    await log.drain(workers=2, took_s=1)
    assert len({url.split("/")[2] for url in log.urls[:60]}) == 20


async def test_each_turn_starts_one_more_fetch_while_hosts_fetched_before_are_slow(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    ready = [f"https://ready{place}.example" for place in range(10)]
    await gate.check_batch(ready)
    await clock.sleep(5)
    queue: PoliteQueue[object] = PoliteQueue(gate, max_asking=2)
    for place in range(10):
        fetcher.answers[f"https://h{place}.example"] = "User-agent: *\nCrawl-delay: 3000\n"
        await queue.put(f"https://h{place}.example/")
        await queue.put(f"{ready[place]}/")
    await settle(30)
    known = len(fetcher.requests)
    assert known == len(ready) + 2
    for handed in range(1, 6):
        async with queue.turn() as turn:
            assert turn.url == f"{ready[handed - 1]}/"
            await settle(30)
            assert len(fetcher.requests) == known + handed


async def put_and_count(queue: PoliteQueue[object], fetcher: ScriptedFetcher) -> int:
    """Put URLs of five unknown hosts; return of how many robots.txt is asked for without a worker."""
    before = len(fetcher.requests)
    for place in range(5):
        await queue.put(f"https://new{place}.example/")
    await settle(30)
    return len(fetcher.requests) - before


async def test_each_turn_makes_room_for_a_prefetch(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, max_asking=2)
    for url in (f"{A}/1", f"{B}/1"):
        await queue.put(url)
    for _ in range(2):
        async with queue.turn():
            pass
    assert await put_and_count(queue, fetcher) == 2


async def test_prefetched_origin_counts_once_however_many_urls_are_handed_out(
    gate: Gatekeeper, fetcher: ScriptedFetcher
) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, max_asking=2)
    for place in range(4):
        await queue.put(f"{A}/{place}")
    for _ in range(4):
        async with queue.turn():
            pass
    assert await put_and_count(queue, fetcher) == 2


async def test_origin_fetched_twice_before_its_first_turn_counts_once(
    gate: Gatekeeper, fetcher: ScriptedFetcher
) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, max_asking=1)
    await queue.put(f"{A}/1")
    await settle()
    await gate.forget(A)
    async with queue.turn():
        assert fetcher.count(A) == 2
    assert await put_and_count(queue, fetcher) == 1


async def test_cancelled_fetch_is_started_again_with_the_next_one(
    queue: PoliteQueue[object], fetcher: ScriptedFetcher
) -> None:
    fetcher.gate.clear()
    await queue.put(f"{A}/1")
    await settle()
    fetch_task(A).cancel()
    await settle()
    assert queue.statistics().asking == 0
    fetcher.gate.set()
    await queue.put(f"{B}/1")
    async with waiting(queue, 2) as workers:
        assert set(await asyncio.gather(*workers)) == {f"{A}/1", f"{B}/1"}


async def test_expired_copy_is_fetched_even_beyond_max_asking(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, max_asking=1)
    await gate.check(A)
    await queue.put(f"{A}/1")
    await gate.forget(A)
    fetcher.gate.clear()
    await queue.put(f"{B}/1")
    await queue.put("https://c.example/1")
    async with waiting(queue):
        assert queue.statistics().asking == 2  # B, the one there is room for, and A
        assert fetcher.count("https://c.example") == 0


async def test_by_default_a_hundred_are_fetched_at_once_in_the_order_of_put(
    queue: PoliteQueue[object], fetcher: ScriptedFetcher
) -> None:
    fetcher.gate.clear()
    for place in range(150):
        await queue.put(f"https://h{place}.example/")
    async with waiting(queue):
        assert queue.statistics().asking == 100
        fetcher.gate.set()
        await settle(50)
        assert [request.origin.host for request in fetcher.requests] == [f"h{place}.example" for place in range(150)]


async def test_worker_that_waits_starts_as_many_fetches_as_allowed(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, max_asking=4)
    for place in range(12):
        await queue.put(f"https://h{place}.example/")
    await settle()  # no longer: the clock would jump
    assert len(fetcher.requests) == 4
    fetcher.gate.clear()
    async with waiting(queue):  # none is ready: the pause after each robots.txt is not over yet
        assert queue.statistics().asking == 4


class Dead(ScriptedFetcher):
    """Servers that accept and never answer, until the fetcher gives up; but for one of them."""

    def __init__(self, clock: ManualClock, alive: str) -> None:
        super().__init__()
        self.clock = clock
        self.alive = alive
        self.asked = 0
        self.most = 0

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        if str(request.origin) == self.alive:
            return await super().fetch(request)
        self.asked += 1
        self.most = max(self.most, self.asked)
        await self.clock.sleep(30)
        self.asked -= 1
        return FetchFault(FaultKind.TIMEOUT, "it never answered", request.url)


@pytest.mark.parametrize("workers", [0, 1])
async def test_a_thousand_origins_that_never_answer_do_not_delay_a_live_one(clock: ManualClock, workers: int) -> None:
    fetcher = Dead(clock, A)
    options = CacheOptions(max_concurrent_fetches=100_000)  # the limit of the queue is what is looked at
    pacing = PacingOptions(min_delay_s=0)
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, cache=options, pacing=pacing) as gate:
        queue: PoliteQueue[object] = PoliteQueue(gate)
        for place in range(1_000):
            await queue.put(f"https://dead{place}.example/")
        await queue.put(f"{A}/1")
        if not workers:
            await clock.sleep(0.75)
            assert fetcher.count(A) == 1  # after ten moments
            assert queue.statistics().asking == 1_000
        async with queue.turn() as turn:
            assert turn.url == f"{A}/1"
            assert clock.monotonic() <= 1


async def test_no_more_than_max_asking_fetches_are_recent(clock: ManualClock) -> None:
    fetcher = Dead(clock, A)
    options = CacheOptions(max_concurrent_fetches=100_000)
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, cache=options) as gate:
        queue: PoliteQueue[object] = PoliteQueue(gate, max_asking=3)
        for place in range(100):
            await queue.put(f"https://dead{place}.example/")
        await settle()
        assert fetcher.most == 3
        await clock.sleep(0.125)
        assert fetcher.most == 9


async def test_known_host_that_is_not_ready_is_tried_without_a_fetch(
    queue: PoliteQueue[object], gate: Gatekeeper
) -> None:
    await gate.check(A)
    looks: list[Event] = []
    gate.subscribe(looks.append)
    await queue.put(f"{A}/1")
    async with waiting(queue) as [worker]:
        assert not worker.done()
        assert looks == []  # a decision is counted with the turn
