import asyncio
import time
from itertools import pairwise
from typing import Any, cast
from weakref import ref

import pytest

from politesse import ConfigurationError, Gatekeeper, HostPolicy, InvalidURL, PacingOptions, Reason, Verdict
from politesse.events import Decided, Event
from politesse.queue import PoliteQueue
from politesse.testing import ManualClock, ScriptedFetcher
from tests.core.queue.crawl import NOTHING, UA, A, B, C, Queue, Refusals, drained, next_url, put, waiting

PRIVATE = "User-agent: *\nDisallow: /private\n"


async def test_the_queue_ends_with_its_last_page_and_not_an_interval_later(
    queue: Queue, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    """Before, a queue ended at 202 s whose last page came at 100."""
    fetcher.answers[A] = "User-agent: *\nCrawl-delay: 100\nDisallow: /private\n"
    await queue.put(f"{A}/open")
    await queue.put(f"{A}/private")
    log = await drained(queue, clock, workers=2)
    await queue.join()
    assert clock.monotonic() == log.handed[-1][1] <= 101


@pytest.mark.parametrize("known", [True, False])
async def test_denied_urls_are_refused_while_the_host_waits(
    queue: Queue, refused: Refusals, gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock, *, known: bool
) -> None:
    fetcher.answers[A] = "User-agent: *\nCrawl-delay: 100\nDisallow: /private\n"
    if known:
        await gate.check(A)
    for place in range(5):
        await queue.put(f"{A}/open/{place}")
        await queue.put(f"{A}/private/{place}")
    async with waiting(queue) as [worker]:
        await clock.sleep(1)
        assert refused.items == [f"{A}/private/{place}" for place in range(5)]
        assert not worker.done()
        assert queue.qsize() == 5


async def test_what_a_host_policy_denies_is_refused_at_once(
    queue: Queue, refused: Refusals, gate: Gatekeeper, clock: ManualClock
) -> None:
    await gate.check(A)
    await queue.put(f"{A}/1")
    gate.set_policy("a.example", HostPolicy(deny=True))
    await queue.put(f"{A}/2")
    async with waiting(queue):
        await queue.join()
    assert [verdict.reason for _, verdict in refused.verdicts] == [Reason.POLICY_DENY] * 2
    assert clock.monotonic() == 0


async def test_a_site_that_is_skipped_as_too_slow_is_refused_at_once(
    fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = "User-agent: *\nCrawl-delay: 1000\n"
    refused = Refusals()
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, pacing=PacingOptions(on_long_crawl_delay="skip")) as gate:
        queue: Queue = PoliteQueue(gate, on_disallowed=refused)
        for place in range(3):
            await queue.put(f"{A}/{place}")
        await drained(queue, clock)
        assert [verdict.reason for _, verdict in refused.verdicts] == [Reason.TOO_SLOW] * 3
        assert clock.monotonic() < 1
        assert gate.statistics().decisions == 3


async def test_url_that_is_allowed_again_before_it_is_refused_is_handed_out(
    queue: Queue, gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = [NOTHING, 404]
    await gate.check(A)
    await clock.sleep(5)
    for place, priority in enumerate((2, 1, 3)):
        await queue.put(f"{A}/{place}", priority=priority)
    await gate.forget(A)
    log = await drained(queue, clock)
    assert log.urls == [f"{A}/1", f"{A}/0", f"{A}/2"]
    assert gate.statistics().decisions == 1 + 3
    assert queue.statistics().refused == 0


async def test_ten_thousand_urls_of_one_origin_are_sorted_in_slices(
    queue: Queue, gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = "User-agent: *\nCrawl-delay: 1000\nDisallow: /private\n"
    fetcher.gate.clear()
    await put(queue, *(f"{A}/{'private' if place % 100 == 99 else 'open'}/{place}" for place in range(10_000)))
    rounds = 0

    async def count() -> None:
        nonlocal rounds
        while queue.statistics().refused < 100:
            rounds += 1
            started = time.perf_counter()
            await asyncio.sleep(0)
            longest.append(time.perf_counter() - started)

    longest: list[float] = []
    async with waiting(queue):
        fetcher.gate.set()
        await asyncio.wait_for(count(), 30)
        assert rounds > 10  # others have run in between
    assert queue.qsize() == 9_900
    assert sorted(longest)[len(longest) // 2] < 0.05
    assert clock.monotonic() < 1


async def test_a_busy_queue_keeps_no_item_that_was_handed_out(
    queue: Queue, gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    """It kept all, to be sorted when no host would be ready."""

    class Payload:
        pass

    fetcher.answers[C] = PRIVATE
    item = Payload()
    handed_out = ref(item)
    await gate.check_batch([A, B])
    await clock.sleep(5)
    await put(queue, f"{A}/1", f"{B}/1")
    await queue.put(f"{C}/1", item)
    del item
    await clock.sleep(5)

    async def next_url() -> str:
        async with queue.turn() as turn:
            return turn.url

    assert [await next_url() for _ in range(3)] == [f"{host}/1" for host in (A, B, C)]
    assert handed_out() is None


async def test_urls_put_while_robots_txt_is_unknown_are_sorted_when_it_is_there(
    queue: Queue, refused: Refusals, gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = f"{PRIVATE}Crawl-delay: 100\n"
    await put(queue, f"{A}/open/1", f"{A}/open/2", f"{A}/open/3")
    assert await next_url(queue) == f"{A}/open/1"
    await gate.forget(A)
    await queue.put(f"{A}/private")
    assert await next_url(queue) == f"{A}/open/2"
    async with waiting(queue):
        await clock.sleep(1)
        assert refused.items == [f"{A}/private"]


# Refusals


def fail(item: object, _verdict: Verdict) -> None:
    raise LookupError(item)


async def test_error_of_on_disallowed_is_raised_by_turn_and_loses_no_url(
    gate: Gatekeeper, fetcher: ScriptedFetcher
) -> None:
    fetcher.answers[A] = "User-agent: *\nDisallow: /private\n"
    queue: Queue = PoliteQueue(gate, on_disallowed=fail)
    await queue.put(f"{A}/private")
    await queue.put(f"{A}/open")
    with pytest.raises(LookupError, match="private"):
        async with queue.turn():
            pytest.fail("there is no turn")
    assert await next_url(queue) == f"{A}/open"
    await queue.join()


async def test_a_subscriber_may_put_while_a_turn_is_tried(gate: Gatekeeper, queue: Queue, clock: ManualClock) -> None:
    await gate.check(A)
    await clock.sleep(5)
    await queue.put(f"{A}/first")
    extra = [f"{A}/second"]

    def put(event: Event) -> None:
        if isinstance(event, Decided) and extra:
            queue.put_nowait(extra.pop(), priority=-1)

    gate.subscribe(put)
    handed = []
    for _ in range(2):
        async with queue.turn() as turn:
            handed.append(turn.url)
    assert handed == [f"{A}/first", f"{A}/second"]
    assert queue.qsize() == 0
    await queue.join()


@pytest.mark.parametrize("url", ["nonsense", "ftp://a.example/", "https:///x", f"{A}/\ud800", f"{A}/a\nb"])
async def test_invalid_url_is_refused_when_it_is_put(queue: Queue, url: str) -> None:
    with pytest.raises(InvalidURL):
        await queue.put(url)
    with pytest.raises(InvalidURL):
        queue.put_nowait(url)
    assert queue.qsize() == 0
    await queue.join()


@pytest.mark.parametrize("target", ["\u00e9" * 9_000, '"' * 9_000], ids=["letters", "quotes"])
@pytest.mark.parametrize("first", [True, False])
async def test_a_target_that_is_too_long_once_it_is_escaped_is_refused_when_it_is_put(
    queue: Queue, target: str, *, first: bool
) -> None:
    if not first:
        queue.put_nowait(f"{A}/0")
    with pytest.raises(InvalidURL):
        await queue.put(f"{A}/{target}")
    with pytest.raises(InvalidURL):
        queue.put_nowait(f"{A}/?{target}")
    assert queue.qsize() == (not first)
    queue.put_nowait(f"{A}/1")
    for _ in range(queue.qsize()):
        await next_url(queue)
    await queue.join()


async def test_wrong_gate_or_callback_is_refused_by_name() -> None:
    async def later(item: object, verdict: object) -> None:
        """Never be awaited."""

    async with Gatekeeper(UA, fetcher=ScriptedFetcher()) as gate:
        for wrong in (later, "x"):
            with pytest.raises(ConfigurationError, match="on_disallowed="):
                PoliteQueue(gate, on_disallowed=cast("Any", wrong))
    with pytest.raises(ConfigurationError, match=r"gate='ExampleBot/1\.0'"):
        PoliteQueue(cast("Any", "ExampleBot/1.0"))


async def test_twenty_workers_block_the_event_loop_no_longer_than_one_does(
    gate: Gatekeeper, fetcher: ScriptedFetcher
) -> None:
    """Each of them refused a hundred URLs in one round of the event loop."""
    fetcher.answers[A] = NOTHING
    queue: Queue = PoliteQueue(gate, on_disallowed=lambda item, verdict: time.sleep(0.0005))
    await gate.check(A)
    await put(queue, *(f"{A}/{place}" for place in range(200)))
    refused: list[int] = []
    async with waiting(queue, 20):
        while queue.qsize():
            refused.append(queue.statistics().refused)
            await asyncio.sleep(0)
    # In 2 ms no more than four calls of half a millisecond end, and a fifth has begun.
    assert max(after - before for before, after in pairwise(refused)) <= 5


async def test_a_host_that_is_ready_does_not_wait_until_all_others_are_refused(
    queue: Queue, gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = NOTHING
    await gate.check_batch([A, B])
    await clock.sleep(5)
    await put(queue, *(f"{A}/{place}" for place in range(1_000)))
    await queue.put(f"{B}/1")
    async with queue.turn() as turn:
        assert turn.url == f"{B}/1"
        assert queue.qsize() >= 900


async def test_other_workers_go_on_if_on_disallowed_raises(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    fetcher.answers[A] = NOTHING
    queue: Queue = PoliteQueue(gate, on_disallowed=fail)
    fetcher.gate.clear()
    await put(queue, f"{A}/1", f"{A}/2", f"{A}/3")
    async with waiting(queue, 3) as workers:
        fetcher.gate.set()
        async with asyncio.timeout(5):
            results = await asyncio.gather(*workers, return_exceptions=True)
    assert [type(result) for result in results] == [LookupError] * 3
