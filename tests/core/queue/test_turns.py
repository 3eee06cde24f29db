"""Puts and turns: the order of the URLs, the room for them, the phases of a host, and the end of a queue."""

import asyncio
import gc
import logging
import random
import weakref
from collections import Counter
from itertools import pairwise

import pytest

from politesse import ClosedError, Gatekeeper, HostPolicy, PacingOptions, Reason
from politesse.errors import TurnHeld, WrongEventLoop
from politesse.events import Decided, Event
from politesse.queue import PoliteQueue, QueueClosed, QueueStatistics
from politesse.testing import ManualClock, ScriptedFetcher
from tests.core.queue.crawl import UA, A, B, Queue, drained, fetch_task, made, next_url, put, timers, urls
from tests.support.tasks import apart, settle

PRIVATE = "User-agent: *\nDisallow: /private\n"


async def test_turn_carries_url_item_and_verdict(queue: Queue) -> None:
    await queue.put(f"{A}/1", item={"depth": 1})
    async with queue.turn() as turn:
        assert (turn.url, turn.item) == (f"{A}/1", {"depth": 1})
        assert turn.verdict.reason is Reason.UNAVAILABLE
        assert "a.example/1: under way" in repr(turn)
        turn.observe(200, {"Content-Type": "text/html"})
        with pytest.raises(TypeError, match="give an int, as 200"):
            turn.observe("200")  # type: ignore[arg-type] # on purpose
    turn.observe(503, {"Retry-After": "1000"})  # it has ended, so that this has no effect
    await queue.put(f"{A}/2")
    assert await next_url(queue) == f"{A}/2"
    assert queue.clock.monotonic() < 10


async def test_repr_and_statistics_show_what_it_holds(queue: Queue) -> None:
    await queue.gate.check_batch([A, B])
    assert repr(queue) == "<PoliteQueue: 0 queued at 0 hosts, 0 ready, 0 under way, 0 workers waiting>"
    await put(queue, f"{A}/1", f"{A}/2", f"{B}/1")
    assert queue.statistics() == QueueStatistics(3, 2, 2, 0, 0, 0, 0, 0)
    async with queue.turn():
        assert queue.qsize() == 2
        queue.close()
        assert repr(queue).endswith(f"1 under way ({A}/1), 0 workers waiting, closed>")
    ended = queue.made()
    await ended.aclose()
    assert repr(ended).endswith("0 workers waiting, closed>")


# Order


async def test_hosts_are_served_in_a_fair_round(queue: Queue) -> None:
    await queue.gate.check_batch([A, B, "https://c.example"])
    await put(queue, *urls(50), *urls(5, B), *urls(5, "https://c.example"))
    log = await drained(queue, took_s=3.0)  # one worker is the scarce thing: all hosts are ready again each time
    assert set(Counter(url.split("/")[2] for url in log.urls[:15]).values()) == {5}


async def test_a_slow_host_holds_up_no_worker(queue: Queue) -> None:
    queue.robots[A] = "User-agent: *\nCrawl-delay: 100\n"
    for pair in zip(urls(10), urls(10, B), strict=True):
        await put(queue, *pair)
    log = await drained(queue)
    assert max(log.at(B)) < 12.0
    assert all(99.9 <= after - before <= 100.1 for before, after in pairwise(log.at(A)))


async def test_a_host_that_permits_several_at_once_gets_them(queue: Queue) -> None:
    queue.gate.set_policy("a.example", HostPolicy(min_delay_s=0.1, max_concurrent=3))
    await put(queue, *urls(5))
    release = asyncio.Event()

    async def hold() -> None:
        async with queue.turn():
            await release.wait()

    tasks = [asyncio.create_task(hold()) for _ in range(5)]
    await queue.clock.sleep(10)
    assert queue.statistics().under_way == 3
    release.set()
    await asyncio.gather(*tasks)


async def test_views_queue_for_their_own_groups(queue: Queue) -> None:
    queue.robots[A] = "User-agent: ExampleBot\nAllow: /\n\nUser-agent: ExampleBot-Image\nDisallow: /\n"
    queue = Queue(queue.gate.agent(tokens=["ExampleBot-Image", "ExampleBot"]), queue.clock, queue.fetcher)
    await queue.put(f"{A}/1")
    await drained(queue)
    assert queue.refused.items == [f"{A}/1"]


async def test_ready_url_is_handed_out_before_the_next_host_and_without_running_other_tasks_first(queue: Queue) -> None:
    queue.robots[A] = PRIVATE
    await queue.gate.check_batch([A, B])
    await queue.clock.sleep(5)
    await put(queue, *urls(20, f"{A}/private"), f"{A}/open", f"{B}/1")
    others: list[str] = []
    asyncio.get_running_loop().call_soon(others.append, "ran")
    async with queue.turn() as turn:
        assert (turn.url, others) == (f"{A}/open", [])


async def test_a_host_goes_on_at_once_with_the_origin_whose_robots_txt_is_known() -> None:
    for state in ("unreachable", "forgotten"):
        async with made() as queue:
            queue.robots[A] = 503 if state == "unreachable" else 404
            await queue.gate.check_batch([A, "http://a.example", B])
            await queue.clock.sleep(5)
            await queue.put(f"{A}/1", priority=-1)
            await put(queue, "http://a.example/1", f"{B}/1")
            if state == "forgotten":
                queue.fetcher.gate.clear()
                await queue.gate.forget(A)
            assert await next_url(queue) == "http://a.example/1"


async def test_urls_are_handed_out_by_priority_which_is_zero_by_default(queue: Queue) -> None:
    for place, priority in enumerate([1, None, 0, -1]):
        if priority is None:
            queue.put_nowait(f"{A}/{place}")
            await queue.put(f"{A}/{place}+")
        else:
            queue.put_nowait(f"{A}/{place}", priority=priority)
    assert [await next_url(queue) for _ in range(5)] == [f"{A}/{place}" for place in ("3", "1", "1+", "2", "0")]


async def test_urls_that_a_subscriber_puts_in_front_keep_the_order_of_the_others(queue: Queue) -> None:
    await queue.gate.check(A)
    await queue.clock.sleep(5)
    places = list(range(1, 30))
    random.Random(3).shuffle(places)
    for place in (0, *places):
        await queue.put(f"{A}/{place}", priority=place)
    extra = [-1, -2, -3]

    def put_in_front(event: Event) -> None:
        while isinstance(event, Decided) and extra and event.verdict.url == f"{A}/0":
            place = extra.pop(0)
            queue.put_nowait(f"{A}/{place}", priority=place)

    queue.gate.subscribe(put_in_front)
    handed = [int((await next_url(queue)).rsplit("/", 1)[1]) for _ in range(33)]
    assert handed == [0, -3, -2, -1, *range(1, 30)]
    assert queue.qsize() == 0
    await queue.join()


# Tasks that take turns and put links, or take a second turn: they must not wait for themselves.


@pytest.mark.parametrize("workers", [1, 20])
async def test_links_are_put_within_turns_whatever_the_room_is(gate: Gatekeeper, workers: int) -> None:
    queue: PoliteQueue[int] = PoliteQueue(gate, maxsize=2)
    await queue.put(f"{A}/0", 0)
    visited: list[str] = []

    async def work() -> None:
        while True:
            async with queue.turn() as turn:
                visited.append(turn.url)
                if turn.item is not None and turn.item < 3:
                    for n in range(3):
                        await queue.put(f"{turn.url}/{n}", turn.item + 1)

    tasks = [asyncio.create_task(work()) for _ in range(workers)]
    async with asyncio.timeout(20):
        await queue.join()
    assert len(visited) == 1 + 3 + 9 + 27
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_turn_returns_can_be_entered_once(queue: Queue) -> None:
    await put(queue, f"{A}/1", f"{B}/1")
    turn = queue.turn()
    async with turn:
        with pytest.raises(RuntimeError, match=r"call turn\(\) for each"):
            await turn.__aenter__()
        assert queue.statistics().under_way == 1
    with pytest.raises(RuntimeError, match=r"call turn\(\) for each"):
        await turn.__aenter__()
    assert (queue.qsize(), queue.statistics().under_way) == (1, 0)


async def test_producers_wait_for_room_that_workers_have_overdrawn(queue: Queue) -> None:
    queue = queue.made(maxsize=1)
    await queue.put(f"{A}/0")
    producer = asyncio.create_task(queue.put(f"{A}/producer"))
    await settle()

    async def work() -> None:
        async with queue.turn():
            await put(queue, f"{A}/1", f"{A}/2")
        for _ in range(2):
            assert not producer.done()
            await next_url(queue)

    with pytest.raises(asyncio.QueueFull, match=r"1 URLs wait at a\.example already"):
        queue.put_nowait(f"{A}/3")
    await apart(work())
    await producer


async def test_room_for_a_producer_that_is_cancelled_as_it_comes_goes_to_the_next() -> None:
    async with made(ManualClock(), maxsize=1, pacing=PacingOptions(min_delay_s=0.0)) as queue:
        await queue.gate.check(A)
        await queue.put(f"{A}/1")
        first, second = (asyncio.create_task(queue.put(f"{A}/{number}")) for number in (2, 3))
        await settle()
        async with queue.turn():
            first.cancel()
            await settle()
            assert (first.cancelled(), second.done(), queue.qsize()) == (True, True, 1)


async def test_a_host_whose_turns_have_all_ended_is_ready_when_a_url_is_put() -> None:
    async with made(ManualClock(), pacing=PacingOptions(min_delay_s=0.0)) as queue:
        await queue.gate.check(A)
        for number in range(2):
            await queue.put(f"{A}/{number}")
            assert queue.statistics().ready == 1
            async with queue.turn():
                pass


async def test_second_turn_is_at_another_host_or_refused_where_the_task_would_wait_for_itself(queue: Queue) -> None:
    await put(queue, f"{A}/1", f"{A}/2", f"{B}/1")
    async with queue.turn() as first:
        assert first.url == f"{A}/1"
        async with queue.turn() as second:
            assert second.url == f"{B}/1"
        await queue.put(f"{B}/2")
        assert await next_url(queue) == f"{B}/2"  # it waits for the interval
        with pytest.raises(TurnHeld) as caught:
            await queue.turn().__aenter__()
        assert (caught.value.url, caught.value.held_by) == (f"{A}/2", f"{A}/1")
    assert await next_url(queue) == f"{A}/2"  # nothing was lost
    await queue.join()


async def test_second_turn_of_an_empty_queue_waits_for_what_others_put(queue: Queue) -> None:
    await queue.put(f"{A}/1")
    async with queue.turn():
        putting = asyncio.create_task(queue.put(f"{B}/1"))
        assert await next_url(queue) == f"{B}/1"
        await putting
        queue.close()
        with pytest.raises(QueueClosed):
            await queue.turn().__aenter__()


async def test_a_put_in_a_thread_is_an_error_and_the_queue_goes_on(queue: Queue) -> None:
    with pytest.raises(WrongEventLoop, match="call_soon_threadsafe"):
        await asyncio.to_thread(queue.put_nowait, f"{A}/1")
    assert queue.qsize() == 0
    async with asyncio.timeout(10):
        await queue.join()


# The phases of a host, as the log for debugging shows them


def moves(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged of the host since the last call."""
    texts = [record.getMessage().removeprefix("a.example: ") for record in caplog.records]
    caplog.clear()
    return texts


async def test_a_host_goes_through_its_phases(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "politesse.queue")
    queue.robots[A] = f"{PRIVATE}Crawl-delay: 5\n"
    await put(queue, *urls(2))
    await settle()
    assert moves(caplog) == ["unknown, was empty: robots.txt is unknown", "paced, was unknown: robots.txt is known"]
    async with queue.turn() as turn:
        assert moves(caplog) == ["ready, was paced: the pacer calls", "in turn, was ready: a worker asks for its turn"]
        turn.observe(503, {"Retry-After": "40"})
    assert moves(caplog) == ["ready, was in turn: it is looked at"]
    async with queue.turn():
        assert moves(caplog) == [
            "in turn, was ready: a worker asks for its turn",
            "closed, was in turn: it is closed",
            "ready, was closed: the pacer calls",
            "in turn, was ready: a worker asks for its turn",
            "empty, was in turn: no URL is left",
        ]
        assert queue.clock.monotonic() >= 45


async def test_a_host_that_would_wait_too_long_is_given_up(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    queue = queue.made(max_wait_s=60.0)
    await put(queue, *urls(3))
    async with queue.turn() as turn:
        turn.observe(429, {"Retry-After": "3600"})
    caplog.set_level(logging.DEBUG, "politesse.queue")
    queue.close()
    with pytest.raises(QueueClosed, match="nothing is left"):
        await queue.turn().__aenter__()
    assert queue.refused.reasons == [Reason.WAIT_TOO_LONG] * 2
    assert [text for text in moves(caplog) if "given up, was" in text] == [
        "given up, was in turn: it would wait for too long"
    ]


# The end


async def test_a_closed_queue_refuses_urls_also_those_that_wait_for_room(queue: Queue) -> None:
    queue = queue.made(maxsize=1)
    await queue.put(f"{A}/1")
    waits = asyncio.create_task(queue.put(f"{A}/2"))
    await settle()
    queue.close()
    for use in (waits, queue.put(f"{A}/3")):
        with pytest.raises(QueueClosed, match="put after the queue was closed"):
            await asyncio.wait_for(use, 10)


async def test_an_answer_in_the_moment_of_the_close_starts_nothing() -> None:
    clock, fetcher = ManualClock(), ScriptedFetcher({A: 503})
    gate = Gatekeeper(UA, fetcher=fetcher, clock=clock)
    queue = Queue(gate, clock, fetcher)
    fetcher.gate.clear()
    await put(queue, *(f"https://h{place}.example/" for place in range(99)), f"{A}/1")
    await queue.put(f"{B}/1")  # there is no room for its fetch
    task = fetch_task(A)
    await settle()
    fetcher.gate.set()
    while not task.done():
        await asyncio.sleep(0)
    await gate.aclose()
    await settle()
    assert task.exception() is None
    assert not timers(clock)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert fetcher.count(B) == 0


async def test_the_close_of_the_gatekeeper_is_the_cause_of_later_errors(queue: Queue) -> None:
    queue.fetcher.gate.clear()
    await queue.put(f"{A}/1")
    await settle()
    await queue.gate.aclose()
    await settle()
    with pytest.raises(ClosedError, match="1 URLs queued") as raised:
        await queue.put(f"{B}/1")
    assert str(raised.value.__cause__) == "the gatekeeper was closed"


async def test_join_ends_well_if_all_was_done_before_the_gatekeeper_was_closed(queue: Queue) -> None:
    await queue.put(f"{A}/1")
    async with queue.turn():
        joined = asyncio.create_task(queue.join())
        await settle()
    await queue.gate.aclose()
    await joined
    await queue.join()


async def test_a_gatekeeper_keeps_no_queue_alive(gate: Gatekeeper) -> None:
    seen = weakref.ref(PoliteQueue(gate))
    gc.collect()
    assert seen() is None
    assert gate.state.closing == {}
