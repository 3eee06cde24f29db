from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING
from weakref import ref

import pytest

from politesse import Gatekeeper, HostPolicy, PacingOptions, Reason
from politesse.queue import PoliteQueue
from tests.support.tasks import settle
from tests.unit.queue.crawl import NOTHING, UA, A, B, C, Log, Refusals, waiting

if TYPE_CHECKING:
    from politesse.testing import ManualClock, ScriptedFetcher

PRIVATE = "User-agent: *\nDisallow: /private\n"


async def test_the_queue_ends_with_its_last_page_and_not_an_interval_later(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    """Before, a queue ended at 202 s whose last page came at 100."""
    fetcher.answers[A] = "User-agent: *\nCrawl-delay: 100\nDisallow: /private\n"
    queue: PoliteQueue[object] = PoliteQueue(gate)
    await queue.put(f"{A}/open")
    await queue.put(f"{A}/private")
    log = Log(queue, clock)
    await log.drain(workers=2)
    await queue.join()
    assert clock.monotonic() == log.handed[-1][1] <= 101


@pytest.mark.parametrize("known", [True, False])
async def test_denied_urls_are_refused_while_the_host_waits(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock, *, known: bool
) -> None:
    fetcher.answers[A] = "User-agent: *\nCrawl-delay: 100\nDisallow: /private\n"
    if known:
        await gate.check(A)
    refused = Refusals()
    queue: PoliteQueue[object] = PoliteQueue(gate, on_disallowed=refused)
    for place in range(5):
        await queue.put(f"{A}/open/{place}")
        await queue.put(f"{A}/private/{place}")
    async with waiting(queue) as [worker]:
        await clock.sleep(1)
        assert refused.items == [f"{A}/private/{place}" for place in range(5)]
        assert not worker.done()
        assert queue.qsize() == 5


async def test_what_a_host_policy_denies_is_refused_at_once(gate: Gatekeeper, clock: ManualClock) -> None:
    await gate.check(A)
    gate.set_policy("a.example", HostPolicy(deny=True))
    refused = Refusals()
    queue: PoliteQueue[object] = PoliteQueue(gate, on_disallowed=refused)
    await queue.put(f"{A}/1")
    async with waiting(queue):
        await queue.join()
    assert [verdict.reason for _, verdict in refused.verdicts] == [Reason.POLICY_DENY]
    assert clock.monotonic() == 0


async def test_a_site_that_is_skipped_as_too_slow_is_refused_at_once(
    fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = "User-agent: *\nCrawl-delay: 1000\n"
    refused = Refusals()
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, pacing=PacingOptions(on_long_crawl_delay="skip")) as gate:
        queue: PoliteQueue[object] = PoliteQueue(gate, on_disallowed=refused)
        for place in range(3):
            await queue.put(f"{A}/{place}")
        await Log(queue, clock).drain()
        assert [verdict.reason for _, verdict in refused.verdicts] == [Reason.TOO_SLOW] * 3
        assert clock.monotonic() < 1
        assert gate.statistics().decisions == 3


async def test_url_that_is_allowed_again_before_it_is_refused_is_handed_out(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = [NOTHING, 404]
    await gate.check(A)
    await clock.sleep(5)
    queue: PoliteQueue[object] = PoliteQueue(gate)
    for place, priority in enumerate((2, 1, 3)):
        await queue.put(f"{A}/{place}", priority=priority)
    await gate.forget(A)
    log = Log(queue, clock)
    await log.drain()
    assert log.urls == [f"{A}/1", f"{A}/0", f"{A}/2"]
    assert gate.statistics().decisions == 1 + 3
    assert queue.statistics().refused == 0


async def test_denied_urls_take_room_until_they_are_refused(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    fetcher.answers[A] = NOTHING
    await gate.check(A)
    queue: PoliteQueue[object] = PoliteQueue(gate, maxsize=1)
    await queue.put(f"{A}/1")
    putting = asyncio.create_task(queue.put(f"{A}/2"))
    await settle()
    assert not putting.done()
    async with waiting(queue):
        await putting
        await queue.join()
    assert queue.statistics().hosts == 0


async def test_ten_thousand_urls_of_one_origin_are_sorted_in_slices(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = "User-agent: *\nCrawl-delay: 1000\nDisallow: /private\n"
    queue: PoliteQueue[object] = PoliteQueue(gate)
    fetcher.gate.clear()
    for place in range(10_000):
        await queue.put(f"{A}/{'private' if place % 100 == 99 else 'open'}/{place}")
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


async def test_urls_that_were_sorted_are_not_sorted_again_by_the_same_file(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetcher.answers[A] = PRIVATE
    queue: PoliteQueue[object] = PoliteQueue(gate)
    for place in range(5):
        await queue.put(f"{A}/{place}")
    async with queue.turn():
        pass
    sorted_origins: list[object] = []
    monkeypatch.setattr(queue._dispatcher._denied, "sort", sorted_origins.append)
    await gate.forget(A)
    async with queue.turn():
        pass
    assert fetcher.count(A) == 2
    assert sorted_origins == []
    await queue.put(f"{B}/1")
    await settle()


async def test_a_busy_queue_keeps_no_item_that_was_handed_out(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    """It kept all, to be sorted when no host would be ready."""

    class Payload:
        pass

    fetcher.answers[C] = PRIVATE
    item = Payload()
    handed_out = ref(item)
    await gate.check_batch([A, B])
    await clock.sleep(5)
    queue: PoliteQueue[object] = PoliteQueue(gate)
    for url in (f"{A}/1", f"{B}/1"):
        await queue.put(url)
    await queue.put(f"{C}/1", item)
    del item
    await clock.sleep(5)

    async def next_url() -> str:
        async with queue.turn() as turn:
            return turn.url

    assert [await next_url() for _ in range(3)] == [f"{host}/1" for host in (A, B, C)]
    assert handed_out() is None
