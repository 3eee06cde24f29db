from __future__ import annotations

import asyncio
import random
from collections import Counter
from itertools import pairwise

import pytest

from politesse import Gatekeeper, HostPolicy, Reason
from politesse.events import Decided, Event
from politesse.queue import PoliteQueue
from politesse.testing import ManualClock, ScriptedFetcher
from tests.unit.queue.crawl import UA, A, B, C, Log, Refusals, waiting


async def test_turn_carries_url_item_and_verdict(queue: PoliteQueue[object]) -> None:
    await queue.put(f"{A}/1", item={"depth": 1})
    async with queue.turn() as turn:
        assert (turn.url, turn.item) == (f"{A}/1", {"depth": 1})
        assert turn.verdict.reason is Reason.UNAVAILABLE
        assert "a.example/1: under way" in repr(turn)
        turn.observe(200, {"Content-Type": "text/html"})


async def test_within_a_host_what_was_put_first_goes_first(queue: PoliteQueue[object], clock: ManualClock) -> None:
    urls = [f"{A}/{place}" for place in range(20)]
    for url in urls:
        await queue.put(url)
    log = Log(queue, clock)
    await log.drain(workers=5)
    assert log.urls == urls


async def test_lower_priority_goes_first_within_its_host(queue: PoliteQueue[object], clock: ManualClock) -> None:
    for place, priority in enumerate([5, 1, 3, 1, -2, 5]):
        await queue.put(f"{A}/{place}", priority=priority)
    log = Log(queue, clock)
    await log.drain()
    assert [url[-1] for url in log.urls] == ["4", "1", "3", "2", "0", "5"]


async def test_priorities_hold_across_the_origins_of_a_host(
    queue: PoliteQueue[object], gate: Gatekeeper, clock: ManualClock
) -> None:
    origins = [A, "http://a.example", "https://a.example:8443"]
    await gate.check_batch(origins)
    for place, priority in enumerate([2, 1, 0, 1, 0, 2]):
        await queue.put(f"{origins[place % 3]}/{place}", priority=priority)
    log = Log(queue, clock)
    await log.drain(workers=3)
    assert [url[-1] for url in log.urls] == ["2", "4", "1", "3", "0", "5"]


async def test_hosts_are_served_in_a_fair_round(
    queue: PoliteQueue[object], gate: Gatekeeper, clock: ManualClock
) -> None:
    await gate.check_batch([A, B, C])
    for origin, count in ((A, 50), (B, 5), (C, 5)):
        for place in range(count):
            await queue.put(f"{origin}/{place}")
    log = Log(queue, clock)
    await log.drain(workers=1, took_s=3.0)  # one worker is the scarce thing: all hosts are ready again each time
    first = Counter(url.split("/")[2] for url in log.urls[:15])
    assert set(first.values()) == {5}


async def test_a_slow_host_holds_up_no_worker(
    queue: PoliteQueue[object], fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = "User-agent: *\nCrawl-delay: 100\n"
    for place in range(10):
        await queue.put(f"{A}/{place}")
        await queue.put(f"{B}/{place}")
    log = Log(queue, clock)
    await log.drain(workers=1)
    fast = [moment for url, moment in log.handed if url.startswith(B)]
    slow = [moment for url, moment in log.handed if url.startswith(A)]
    assert max(fast) < 12.0
    assert all(99.9 <= after - before <= 100.1 for before, after in pairwise(slow))


async def test_a_request_that_hangs_holds_up_its_own_host_only(queue: PoliteQueue[object], clock: ManualClock) -> None:
    for place in range(3):
        await queue.put(f"{A}/{place}")
        await queue.put(f"{B}/{place}")
    async with queue.turn() as hanging:
        async with waiting(queue, 3) as workers:
            other = B if hanging.url.startswith(A) else A
            done, _ = await asyncio.wait(workers)
        assert {task.result() for task in done} == {f"{other}/{place}" for place in range(3)}
        assert queue.qsize() == 2


async def test_host_with_several_origins_is_ready_once(queue: PoliteQueue[object], clock: ManualClock) -> None:
    for origin in (A, "http://a.example", "https://a.example:8443"):
        await queue.put(f"{origin}/1")
    await clock.sleep(5)
    assert queue.statistics().ready == 1


async def test_retry_after_keeps_the_host_for_itself(queue: PoliteQueue[object], clock: ManualClock) -> None:
    await queue.put(f"{A}/1")
    await queue.put(f"{A}/2")
    async with queue.turn() as turn:
        turn.observe(429, {"Retry-After": "500"})
        ended = clock.monotonic()
    async with queue.turn() as turn:
        assert turn.url == f"{A}/2"
        assert clock.monotonic() - ended >= 500


async def test_hosts_outside_their_visit_time_sleep_without_a_worker(
    fetcher: ScriptedFetcher,
) -> None:
    midnight = 1_800_057_600.0
    assert midnight % 86_400 == 0
    clock = ManualClock(midnight, autojump=True)
    fetcher.answers[A] = "User-agent: *\nVisit-time: 0600-0700\n"
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        queue: PoliteQueue[object] = PoliteQueue(gate, max_wait_s=None)
        for origin in (A, B):
            await queue.put(f"{origin}/1")
        async with queue.turn() as turn:
            assert turn.url == f"{B}/1"
        async with queue.turn() as turn:
            assert turn.url == f"{A}/1"
            assert 6 * 3600 <= clock.wall() - midnight <= 7 * 3600


async def test_turns_taken_elsewhere_are_waited_for(
    queue: PoliteQueue[object], gate: Gatekeeper, clock: ManualClock
) -> None:
    async with gate.turn(f"{A}/elsewhere"):
        await queue.put(f"{A}/1")
        async with waiting(queue) as [worker]:
            await clock.sleep(50)
            assert not worker.done()
    async with queue.turn() as turn:
        assert turn.url == f"{A}/1"
        assert clock.monotonic() >= 51


async def test_a_host_that_permits_several_at_once_gets_them(gate: Gatekeeper, clock: ManualClock) -> None:
    gate.set_policy("a.example", HostPolicy(min_delay_s=0.1, max_concurrent=3))
    queue: PoliteQueue[object] = PoliteQueue(gate)
    for place in range(5):
        await queue.put(f"{A}/{place}")
    release = asyncio.Event()

    async def hold() -> None:
        async with queue.turn():
            await release.wait()

    tasks = [asyncio.create_task(hold()) for _ in range(5)]
    await clock.sleep(10)
    assert queue.statistics().under_way == 3
    release.set()
    await asyncio.gather(*tasks)


async def test_a_policy_set_later_counts_for_what_is_queued(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    refused = Refusals()
    queue: PoliteQueue[object] = PoliteQueue(gate, on_disallowed=refused)
    await gate.check(A)
    await queue.put(f"{A}/1")
    gate.set_policy("a.example", HostPolicy(deny=True))
    await Log(queue, clock).drain()
    assert refused.items == [f"{A}/1"]


async def test_the_first_turn_keeps_the_crawl_delay_from_robots_txt_on(
    queue: PoliteQueue[object], fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = "User-agent: *\nCrawl-delay: 30\n"
    await queue.put(f"{A}/1")
    async with queue.turn():
        assert clock.monotonic() >= 30


async def test_views_queue_for_their_own_groups(gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock) -> None:
    fetcher.answers[A] = "User-agent: ExampleBot\nAllow: /\n\nUser-agent: ExampleBot-Image\nDisallow: /\n"
    refused = Refusals()
    images = gate.agent(tokens=["ExampleBot-Image", "ExampleBot"])
    queue: PoliteQueue[object] = PoliteQueue(images, on_disallowed=refused)
    await queue.put(f"{A}/1")
    await Log(queue, clock).drain()
    assert refused.items == [f"{A}/1"]


async def test_refusals_at_a_host_come_before_the_next_host(
    queue: PoliteQueue[object], gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = "User-agent: *\nDisallow: /private\n"
    await gate.check_batch([A, B])
    await clock.sleep(5)
    for url in (f"{A}/private/1", f"{A}/private/2", f"{A}/open", f"{B}/1"):
        await queue.put(url)
    async with queue.turn() as turn:
        assert turn.url == f"{A}/open"


@pytest.mark.parametrize("state", ["unreachable", "forgotten"])
async def test_a_host_goes_on_at_once_with_the_origin_whose_robots_txt_is_known(
    queue: PoliteQueue[object], gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock, state: str
) -> None:
    fetcher.answers[A] = 503 if state == "unreachable" else 404
    await gate.check_batch([A, "http://a.example", B])
    await clock.sleep(5)
    await queue.put(f"{A}/1", priority=-1)
    await queue.put("http://a.example/1")
    await queue.put(f"{B}/1")
    if state == "forgotten":
        fetcher.gate.clear()
        await gate.forget(A)
    async with queue.turn() as turn:
        assert turn.url == "http://a.example/1"


async def test_url_that_a_subscriber_puts_in_front_keeps_the_order_of_the_others(
    queue: PoliteQueue[object], gate: Gatekeeper, clock: ManualClock
) -> None:
    await gate.check(A)
    await clock.sleep(5)
    places = list(range(1, 30))
    random.Random(3).shuffle(places)
    await queue.put(f"{A}/0", priority=0)
    for place in places:
        await queue.put(f"{A}/{place}", priority=place)
    extra = [f"{A}/{place}" for place in (-1, -2, -3)]

    def put(event: Event) -> None:
        if isinstance(event, Decided) and extra and event.verdict.url == f"{A}/0":
            for place in (-1, -2, -3):
                queue.put_nowait(extra.pop(0), priority=place)

    gate.subscribe(put)
    handed = []
    for _ in range(33):
        async with queue.turn() as turn:
            handed.append(int(turn.url.rsplit("/", 1)[1]))
    assert handed == [0, -3, -2, -1, *range(1, 30)]


async def test_ready_url_is_handed_out_without_running_other_tasks_first(
    queue: PoliteQueue[object], gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = "User-agent: *\nDisallow: /private\n"
    await gate.check(A)
    await clock.sleep(5)
    for place in range(20):
        await queue.put(f"{A}/private/{place}")
    await queue.put(f"{A}/open")
    others: list[str] = []
    asyncio.get_running_loop().call_soon(others.append, "ran")
    async with queue.turn() as turn:
        assert (turn.url, others) == (f"{A}/open", [])
