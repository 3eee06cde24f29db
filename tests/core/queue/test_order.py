import asyncio
import random
from collections import Counter
from itertools import pairwise

import pytest

from politesse import Gatekeeper, HostPolicy, Reason
from politesse.events import Decided, Event
from politesse.queue import PoliteQueue
from politesse.testing import ManualClock, ScriptedFetcher
from tests.core.queue.crawl import A, B, C, Log, Queue, Refusals, drained, next_url, put, waiting


async def test_turn_carries_url_item_and_verdict(queue: Queue) -> None:
    await queue.put(f"{A}/1", item={"depth": 1})
    async with queue.turn() as turn:
        assert (turn.url, turn.item) == (f"{A}/1", {"depth": 1})
        assert turn.verdict.reason is Reason.UNAVAILABLE
        assert "a.example/1: under way" in repr(turn)
        turn.observe(200, {"Content-Type": "text/html"})


async def test_hosts_are_served_in_a_fair_round(queue: Queue, gate: Gatekeeper, clock: ManualClock) -> None:
    await gate.check_batch([A, B, C])
    for origin, count in ((A, 50), (B, 5), (C, 5)):
        await put(queue, *(f"{origin}/{place}" for place in range(count)))
    log = Log(queue, clock)
    await log.drain(workers=1, took_s=3.0)  # one worker is the scarce thing: all hosts are ready again each time
    first = Counter(url.split("/")[2] for url in log.urls[:15])
    assert set(first.values()) == {5}


async def test_a_slow_host_holds_up_no_worker(queue: Queue, fetcher: ScriptedFetcher, clock: ManualClock) -> None:
    fetcher.answers[A] = "User-agent: *\nCrawl-delay: 100\n"
    for place in range(10):
        await queue.put(f"{A}/{place}")
        await queue.put(f"{B}/{place}")
    log = await drained(queue, clock, workers=1)
    fast = [moment for url, moment in log.handed if url.startswith(B)]
    slow = [moment for url, moment in log.handed if url.startswith(A)]
    assert max(fast) < 12.0
    assert all(99.9 <= after - before <= 100.1 for before, after in pairwise(slow))


async def test_host_with_several_origins_is_ready_once(queue: Queue, clock: ManualClock) -> None:
    for origin in (A, "http://a.example", "https://a.example:8443"):
        await queue.put(f"{origin}/1")
    await clock.sleep(5)
    assert queue.statistics().ready == 1


async def test_turns_taken_elsewhere_are_waited_for(queue: Queue, gate: Gatekeeper, clock: ManualClock) -> None:
    async with gate.turn(f"{A}/elsewhere"):
        await queue.put(f"{A}/1")
        async with waiting(queue) as [worker]:
            await clock.sleep(50)
            assert not worker.done()
    async with queue.turn() as turn:
        assert turn.url == f"{A}/1"
        assert clock.monotonic() >= 51


async def test_a_host_that_permits_several_at_once_gets_them(
    queue: Queue, gate: Gatekeeper, clock: ManualClock
) -> None:
    gate.set_policy("a.example", HostPolicy(min_delay_s=0.1, max_concurrent=3))
    await put(queue, *(f"{A}/{place}" for place in range(5)))
    release = asyncio.Event()

    async def hold() -> None:
        async with queue.turn():
            await release.wait()

    tasks = [asyncio.create_task(hold()) for _ in range(5)]
    await clock.sleep(10)
    assert queue.statistics().under_way == 3
    release.set()
    await asyncio.gather(*tasks)


async def test_views_queue_for_their_own_groups(gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock) -> None:
    fetcher.answers[A] = "User-agent: ExampleBot\nAllow: /\n\nUser-agent: ExampleBot-Image\nDisallow: /\n"
    refused = Refusals()
    images = gate.agent(tokens=["ExampleBot-Image", "ExampleBot"])
    queue: Queue = PoliteQueue(images, on_disallowed=refused)
    await queue.put(f"{A}/1")
    await drained(queue, clock)
    assert refused.items == [f"{A}/1"]


async def test_refusals_at_a_host_come_before_the_next_host(
    queue: Queue, gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = "User-agent: *\nDisallow: /private\n"
    await gate.check_batch([A, B])
    await clock.sleep(5)
    await put(queue, f"{A}/private/1", f"{A}/private/2", f"{A}/open", f"{B}/1")
    assert await next_url(queue) == f"{A}/open"


@pytest.mark.parametrize("state", ["unreachable", "forgotten"])
async def test_a_host_goes_on_at_once_with_the_origin_whose_robots_txt_is_known(
    queue: Queue, gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock, state: str
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
    assert await next_url(queue) == "http://a.example/1"


async def test_url_that_a_subscriber_puts_in_front_keeps_the_order_of_the_others(
    queue: Queue, gate: Gatekeeper, clock: ManualClock
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
    queue: Queue, gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = "User-agent: *\nDisallow: /private\n"
    await gate.check(A)
    await clock.sleep(5)
    await put(queue, *(f"{A}/private/{place}" for place in range(20)))
    await queue.put(f"{A}/open")
    others: list[str] = []
    asyncio.get_running_loop().call_soon(others.append, "ran")
    async with queue.turn() as turn:
        assert (turn.url, others) == (f"{A}/open", [])
