"""robots.txt in the queue: how it is fetched ahead, and how the URLs that it denies are refused."""

import asyncio
import time
from itertools import pairwise
from typing import Any, cast
from weakref import ref

import pytest

from politesse import CacheOptions, ConfigurationError, Gatekeeper, HostPolicy, InvalidURL, PacingOptions, Reason
from politesse.ports import FaultKind, FetchFault, FetchRequest, FetchResponse, FetchResult
from politesse.queue import PoliteQueue
from politesse.stores import MemoryStore
from politesse.testing import ManualClock, ScriptedFetcher
from tests.core.queue.crawl import NOTHING, A, B, Queue, drained, fetch_task, made, next_url, put, urls, waiting
from tests.support.tasks import ended, settle
from tests.support.tiers import first_of

PRIVATE = "User-agent: *\nDisallow: /private\n"
SLOW = f"{PRIVATE}Crawl-delay: 100\n"


# URLs that are denied


async def test_the_queue_ends_with_its_last_page_and_not_an_interval_later(queue: Queue) -> None:
    queue.robots[A] = SLOW
    await put(queue, f"{A}/open", f"{A}/private")
    log = await drained(queue, workers=2)
    await queue.join()
    assert queue.clock.monotonic() == log.handed[-1][1] <= 101


async def test_a_url_that_is_put_within_a_turn_waits_by_the_file_of_that_moment(queue: Queue) -> None:
    queue.robots[A] = "User-agent: *\nCrawl-delay: 250\n"
    await queue.put(f"{A}/1")
    async with queue.turn() as turn:
        turn.observe(200)
        queue.robots[A] = "User-agent: *\nCrawl-delay: 5\n"
        await queue.gate.forget(A)
        await queue.gate.check(A)
        await queue.put(f"{A}/2")
    ended_mono = queue.clock.monotonic()
    async with queue.turn():
        assert queue.clock.monotonic() == ended_mono + 5


async def test_denied_urls_are_refused_while_the_host_waits() -> None:
    for known in (True, False):
        async with made() as queue:
            queue.robots[A] = SLOW
            if known:
                await queue.gate.check(A)
            for pair in zip(urls(5, f"{A}/open"), urls(5, f"{A}/private"), strict=True):
                await put(queue, *pair)
            async with waiting(queue) as [worker]:
                await queue.clock.sleep(1)
                assert queue.refused.items == urls(5, f"{A}/private")
                assert not worker.done()
                assert queue.qsize() == 5


async def test_what_a_host_policy_denies_is_refused_at_once(queue: Queue) -> None:
    await queue.gate.check(A)
    await queue.put(f"{A}/1")
    queue.gate.set_policy("a.example", HostPolicy(deny=True))
    await queue.put(f"{A}/2")
    async with waiting(queue):
        await queue.join()
    assert queue.refused.reasons == [Reason.POLICY_DENY] * 2
    assert queue.clock.monotonic() == 0


async def test_a_site_that_is_skipped_as_too_slow_is_refused_at_once() -> None:
    async with made(pacing=PacingOptions(on_long_crawl_delay="skip")) as queue:
        queue.robots[A] = "User-agent: *\nCrawl-delay: 1000\n"
        await put(queue, *urls(3))
        await drained(queue)
        assert queue.refused.reasons == [Reason.TOO_SLOW] * 3
        assert queue.clock.monotonic() < 1
        assert queue.gate.statistics().decisions == 3


async def test_url_that_is_allowed_again_before_it_is_refused_is_handed_out(queue: Queue) -> None:
    queue.robots[A] = [NOTHING, 404]
    await queue.gate.check(A)
    await queue.clock.sleep(5)
    for place, priority in enumerate((2, 1, 3)):
        await queue.put(f"{A}/{place}", priority=priority)
    await queue.gate.forget(A)
    log = await drained(queue)
    assert log.urls == [f"{A}/1", f"{A}/0", f"{A}/2"]
    assert queue.gate.statistics().decisions == 1 + 3
    assert queue.statistics().refused == 0


async def test_ten_thousand_urls_of_one_origin_are_sorted_in_slices(queue: Queue) -> None:
    queue.robots[A] = "User-agent: *\nCrawl-delay: 1000\nDisallow: /private\n"
    queue.fetcher.gate.clear()
    await put(queue, *(f"{A}/{'private' if place % 100 == 99 else 'open'}/{place}" for place in range(10_000)))
    rounds = []
    async with waiting(queue), asyncio.timeout(30):
        queue.fetcher.gate.set()
        while queue.statistics().refused < 100:
            started = time.perf_counter()
            await asyncio.sleep(0)
            rounds.append(time.perf_counter() - started)
    assert len(rounds) > 10  # others have run in between
    assert sorted(rounds)[len(rounds) // 2] < 0.05
    assert queue.qsize() == 9_900
    assert queue.clock.monotonic() < 1


async def test_a_busy_queue_keeps_no_item_that_was_handed_out(queue: Queue) -> None:
    class Payload:
        pass

    queue.robots["https://c.example"] = PRIVATE
    item = Payload()
    handed_out = ref(item)
    await queue.gate.check_batch([A, B])
    await queue.clock.sleep(5)
    await put(queue, f"{A}/1", f"{B}/1")
    await queue.put("https://c.example/1", item)
    del item
    await queue.clock.sleep(5)
    assert [await next_url(queue) for _ in range(3)] == [f"{host}/1" for host in (A, B, "https://c.example")]
    assert handed_out() is None


async def test_urls_put_while_robots_txt_is_unknown_are_sorted_when_it_is_there(queue: Queue) -> None:
    queue.robots[A] = SLOW
    await put(queue, *urls(3, f"{A}/open"))
    assert await next_url(queue) == f"{A}/open/0"
    await queue.gate.forget(A)
    await queue.put(f"{A}/private")
    assert await next_url(queue) == f"{A}/open/1"
    async with waiting(queue):
        await queue.clock.sleep(1)
        assert queue.refused.items == [f"{A}/private"]


def fail(item: object, _verdict: object) -> None:
    raise LookupError(item)


async def test_error_of_on_disallowed_is_raised_by_each_turn_and_loses_no_url(queue: Queue) -> None:
    queue.robots[A] = PRIVATE
    queue = queue.made(on_disallowed=fail)
    queue.fetcher.gate.clear()
    await put(queue, *urls(3, f"{A}/private"), f"{A}/open")
    async with waiting(queue, 3) as workers:
        queue.fetcher.gate.set()
        async with asyncio.timeout(5):
            results = await asyncio.gather(*workers, return_exceptions=True)
    assert [repr(result) for result in results] == [repr(LookupError(url)) for url in urls(3, f"{A}/private")]
    assert await next_url(queue) == f"{A}/open"
    await queue.join()


async def test_twenty_workers_block_the_event_loop_no_longer_than_one_does(queue: Queue) -> None:
    queue.robots[A] = NOTHING
    queue = queue.made(on_disallowed=lambda item, verdict: time.sleep(0.0005))
    await queue.gate.check(A)
    await put(queue, *urls(200))
    refused: list[int] = []
    async with waiting(queue, 20):
        while queue.qsize():
            refused.append(queue.statistics().refused)
            await asyncio.sleep(0)
    # In 2 ms no more than four calls of half a millisecond end, and a fifth has begun.
    assert max(after - before for before, after in pairwise(refused)) <= 5


async def test_a_host_that_is_ready_does_not_wait_until_all_others_are_refused(queue: Queue) -> None:
    queue.robots[A] = NOTHING
    await queue.gate.check_batch([A, B])
    await queue.clock.sleep(5)
    queue = queue.made(on_disallowed=None)
    await put(queue, *urls(1_000), f"{B}/1")
    assert await next_url(queue) == f"{B}/1"
    assert queue.qsize() >= 900


async def test_invalid_url_is_refused_when_it_is_put(queue: Queue) -> None:
    long = [f"{A}/{mark}{letter * 9_000}" for letter in 'é"' for mark in ("", "?")]  # too long once they are escaped
    for at_known_host in (False, True):
        for url in ("nonsense", "ftp://a.example/", "https:///x", f"{A}/\ud800", f"{A}/a\nb", *long):
            with pytest.raises(InvalidURL):
                await queue.put(url)
            with pytest.raises(InvalidURL):
                queue.put_nowait(url)
        assert queue.qsize() == at_known_host
        queue.put_nowait(f"{A}/{at_known_host}")
    for _ in range(2):
        await next_url(queue)
    await queue.join()


async def test_asynchronous_callback_is_refused_by_name(gate: Gatekeeper) -> None:
    async def later(item: object, verdict: object) -> None:
        """Never be awaited."""

    with pytest.raises(ConfigurationError, match="on_disallowed="):
        PoliteQueue(gate, on_disallowed=cast("Any", later))


# Fetching ahead


async def test_expired_copy_is_fetched_again_without_a_worker(queue: Queue) -> None:
    await queue.gate.check(A)
    await queue.put(f"{A}/1")
    await queue.clock.sleep(2 * 86_400)
    queue.fetcher.gate.clear()
    await queue.put(f"{B}/1")
    async with waiting(queue, 2) as workers:
        assert queue.fetcher.count(A) == 2
        assert queue.statistics().asking == 2
        queue.fetcher.gate.set()
        assert set(await asyncio.gather(*workers)) == {f"{A}/1", f"{B}/1"}


async def test_without_a_waiting_worker_robots_txt_is_fetched_at_the_pace_of_the_workers() -> None:
    async with made(pacing=PacingOptions(min_delay_s=0)) as queue:
        fetcher = queue.fetcher
        await put(queue, *(f"https://h{place}.example/" for place in range(500)))
        await queue.clock.sleep(100)
        assert [str(request.origin) for request in fetcher.requests] == [f"https://h{n}.example" for n in range(100)]
        for _ in range(50):
            async with queue.turn():
                await queue.clock.sleep(1)
        assert 150 <= len(fetcher.requests) <= 170
        assert len({str(request.origin) for request in fetcher.requests}) == len(fetcher.requests)


async def test_slow_hosts_do_not_keep_waiting_workers_from_unknown_ones(queue: Queue) -> None:
    for place in range(120):
        queue.robots[f"https://h{place}.example"] = "User-agent: *\nCrawl-delay: 1000\n" if place < 110 else 404
        await queue.put(f"https://h{place}.example/")
    await queue.clock.sleep(5)
    log = await drained(queue)
    assert sum(moment < 10 for moment in log.at("")) == 10


async def test_each_turn_starts_one_more_fetch_while_hosts_fetched_before_are_slow(queue: Queue) -> None:
    ready = [f"https://ready{place}.example/" for place in range(10)]
    await queue.gate.check_batch(ready)
    await queue.clock.sleep(5)
    for place in range(110):
        queue.robots[f"https://h{place}.example"] = "User-agent: *\nCrawl-delay: 3000\n"
        await queue.put(f"https://h{place}.example/")
    await put(queue, *ready)
    await settle(30)
    known = len(queue.fetcher.requests)
    assert known == len(ready) + 100
    for handed in range(1, 6):
        async with queue.turn() as turn:
            assert turn.url == ready[handed - 1]
            await settle(30)
            assert len(queue.fetcher.requests) == known + handed


async def test_a_worker_that_waits_has_all_robots_txt_fetched(queue: Queue) -> None:
    queue.fetcher.gate.clear()
    await put(queue, *(f"https://h{place}.example/" for place in range(150)))
    assert queue.statistics().asking == 100
    async with waiting(queue):
        assert queue.statistics().asking == 150


async def test_a_robots_txt_whose_fetch_is_cancelled_by_others_is_fetched_again(queue: Queue) -> None:
    queue.fetcher.gate.clear()
    await queue.put(f"{A}/1")
    async with waiting(queue) as [worker]:
        await ended([fetch_task(A)])
        queue.fetcher.gate.set()
        queue.clock.advance(1.0)
        async with asyncio.timeout(10.0):
            assert await worker == f"{A}/1"


class SlowFetcher(ScriptedFetcher):
    """A is answered at once; other files take a tenth of a second, and each differs; dead servers never answer."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        if str(request.origin) == A:
            return await super().fetch(request)
        if "dead" in request.url:
            await self.clock.sleep(30)
            return FetchFault(FaultKind.TIMEOUT, "it never answered", request.url)
        await self.clock.sleep(0.1)
        return FetchResponse(200, request.url, body=f"User-agent: *\nDisallow: /{request.origin}".encode())


@pytest.mark.parametrize("dead", first_of(1, [1_000, 5_000]))
async def test_origins_that_never_answer_do_not_delay_a_live_one(clock: ManualClock, dead: int) -> None:
    async with made(clock, SlowFetcher(clock), pacing=PacingOptions(min_delay_s=0)) as queue:
        await put(queue, *(f"https://dead{place}.example/" for place in range(dead)), f"{A}/1")
        async with queue.turn() as turn:
            assert turn.url == f"{A}/1"
            assert clock.monotonic() <= dead / 500
            assert queue.statistics().asking <= 2_500


async def test_workers_rest_while_a_robots_txt_that_the_cache_has_dropped_is_fetched_again(clock: ManualClock) -> None:
    # The cache keeps three of ten files. While a worker is busy the clock stands still, and the test reaches its limit.
    cache, store = CacheOptions(max_entries_bytes=4500), MemoryStore(max_bytes=1)
    async with made(clock, SlowFetcher(clock), cache=cache, store=store) as queue:
        pages = [f"{scheme}://{name}.test/{n}" for n in range(4) for name in "abcde" for scheme in ("https", "http")]
        await put(queue, *pages)
        async with asyncio.timeout(20):
            log = await drained(queue, workers=2, took_s=1.2)
    assert sorted(log.urls) == sorted(pages)


async def test_origins_that_were_used_make_room_for_fetches_ahead_of_the_workers(queue: Queue) -> None:
    first, later = ([f"https://{name}{number}.example" for number in range(100)] for name in "ab")
    await put(queue, *(f"{origin}/1" for origin in first))
    for _ in first:
        await next_url(queue)
    await put(queue, *(f"{origin}/1" for origin in later))
    await settle(200)  # no worker waits
    assert [queue.fetcher.count(origin) for origin in later] == [1] * 100
