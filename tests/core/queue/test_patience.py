import asyncio
from math import inf

import pytest

from politesse import CacheOptions, Gatekeeper, PacingOptions, Reason
from politesse.events import Event
from politesse.ports import FaultKind, FetchFault, FetchResponse
from politesse.queue import PoliteQueue
from politesse.stores import MemoryStore
from politesse.testing import ManualClock, ScriptedFetcher
from politesse.verdict import Bound
from tests.core.queue.crawl import (
    NOTHING,
    UA,
    A,
    B,
    Log,
    Queue,
    Refusals,
    drained,
    next_url,
    put,
    running_timers,
    waiting,
)
from tests.support.tasks import settle

DAY_S = 86_400


def gone(origin: str) -> FetchFault:
    return FetchFault(FaultKind.DNS, "no such host", f"{origin}/robots.txt")


async def test_forty_hosts_of_which_eight_answer_503_end_within_six_minutes(
    queue: Queue, refused: Refusals, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    for place in range(40):
        origin = f"https://h{place}.example"
        fetcher.answers[origin] = 503 if place % 5 == 0 else 404
        for page in range(5):
            await queue.put(f"{origin}/{page}")
    log = await drained(queue, clock, workers=8, took_s=0.1)
    assert clock.monotonic() < 360
    assert len(set(log.urls)) == 32 * 5
    assert log.handed[-1][1] < 20  # live hosts do not wait for dead ones
    assert {verdict.reason for _, verdict in refused.verdicts} == {Reason.UNREACHABLE}
    assert len(refused.verdicts) == 8 * 5
    assert queue.statistics().given_up == 8 * 5


async def test_failures_that_neither_cache_nor_store_can_keep_are_counted_all_the_same(
    refused: Refusals, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    cache, store = CacheOptions(max_entries_bytes=1), MemoryStore(max_bytes=1)
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, cache=cache, store=store) as gate:
        queue: Queue = PoliteQueue(gate, on_disallowed=refused)
        for place in range(3):
            fetcher.answers[f"https://h{place}.example"] = 503
            await queue.put(f"https://h{place}.example/")
        await drained(queue, clock)
    assert {verdict.reason for _, verdict in refused.verdicts} == {Reason.UNREACHABLE}
    assert clock.monotonic() < 360
    assert fetcher.count("https://h0.example") <= 4  # after 0, 60, 180 s, and after 420 s if that were not too late


async def test_a_name_that_does_not_resolve_costs_seconds_and_the_verdict_names_it(
    queue: Queue, refused: Refusals, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = gone(A)
    await put(queue, *(f"{A}/{place}" for place in range(3)))
    await queue.put(f"{B}/1")
    await drained(queue, clock)
    assert clock.monotonic() < 5
    assert refused.items == [f"{A}/{place}" for place in range(3)]
    verdict = refused.verdicts[0][1]
    assert verdict.reason is Reason.UNREACHABLE
    assert verdict.source is not None
    assert verdict.source.fault == "dns: no such host"
    assert fetcher.count(A) == 1


async def test_a_url_that_is_put_after_its_origin_was_given_up_is_refused_at_once(
    queue: Queue, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = 503
    await queue.put(f"{A}/1")
    async with waiting(queue):
        await queue.join()
        given_up_mono = clock.monotonic()
        assert given_up_mono < 200  # robots.txt was fetched at 0, 60 and 180 s; the next one would come at 420 s
        await queue.put(f"{A}/2")
        await queue.join()
        assert clock.monotonic() - given_up_mono < 1
    assert fetcher.count(A) == 3


async def test_a_retry_after_that_ends_later_is_not_waited_for(
    queue: Queue, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = FetchResponse(503, f"{A}/robots.txt", {"retry-after": "301"})
    fetcher.answers[B] = [FetchResponse(503, f"{B}/robots.txt", {"retry-after": "299"}), 404]
    await queue.put(f"{A}/1")
    async with waiting(queue):
        await queue.join()
        assert clock.monotonic() < 1
    await queue.put(f"{B}/1")
    assert await next_url(queue) == f"{B}/1"


@pytest.mark.parametrize(("max_wait_s", "waits"), [(3_700.0, True), (3_500.0, False), (None, True), (inf, True)])
async def test_a_429_to_robots_txt_is_waited_for_as_long_as_max_wait_s_allows(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock, max_wait_s: float | None, *, waits: bool
) -> None:
    fetcher.answers[A] = [FetchResponse(429, f"{A}/robots.txt", {"retry-after": "3600"}), 404]
    refused = Refusals()
    queue: Queue = PoliteQueue(gate, on_disallowed=refused, max_wait_s=max_wait_s)
    await queue.put(f"{A}/1")
    log = await drained(queue, clock)
    assert log.urls == ([f"{A}/1"] if waits else [])
    assert [verdict.reason for _, verdict in refused.verdicts] == ([] if waits else [Reason.TOO_MANY_REQUESTS])
    assert (clock.monotonic() < 1) is not waits


@pytest.mark.parametrize("later", [0, 2, 100])
async def test_a_page_that_is_answered_with_retry_after_of_hours_ends_the_queue_at_once(
    queue: Queue, refused: Refusals, clock: ManualClock, later: int
) -> None:
    """Before, ``join`` waited for as long as Retry-After said."""
    for place in range(1 + later):
        await queue.put(f"{A}/{place}", priority=place)
    async with queue.turn() as turn:
        turn.observe(429, {"Retry-After": "7200"})
        ended_mono, ended_wall = clock.monotonic(), clock.wall()
    async with waiting(queue):
        await queue.join()
    assert clock.monotonic() - ended_mono < 1
    assert refused.items == [f"{A}/{1 + place}" for place in range(later)]
    for _, verdict in refused.verdicts:
        assert (verdict.allowed, verdict.reason) == (False, Reason.WAIT_TOO_LONG)
        assert verdict.not_before == pytest.approx(ended_wall + 7_200)
        assert verdict.note.startswith(f"{Bound.RETRY_AFTER} until 20")
    assert queue.statistics().given_up == later


async def test_a_visit_time_that_opens_in_hours_is_not_waited_for(fetcher: ScriptedFetcher) -> None:
    midnight = 1_800_057_600.0
    clock = ManualClock(midnight, autojump=True)
    fetcher.answers[A] = "User-agent: *\nVisit-time: 0600-0700\n"
    fetcher.answers[B] = "User-agent: *\nVisit-time: 0030-0700\n"
    refused = Refusals()
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        queue: Queue = PoliteQueue(gate, on_disallowed=refused)
        for origin in (A, B):
            await queue.put(f"{origin}/1")
        log = await drained(queue, clock, workers=2)
    assert log.urls == [f"{B}/1"]
    assert refused.items == [f"{A}/1"]
    assert str(refused.verdicts[0][1]) == (
        "disallowed: https://a.example/1 (the site makes its pages wait for longer than this crawler accepts: "
        "visit-time until 2027-01-16T06:00:00Z)"
    )
    assert clock.wall() - midnight < 3_600


async def test_a_crawl_delay_that_is_longer_is_not_waited_for(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = "User-agent: *\nCrawl-delay: 90\n"
    refused = Refusals()
    await gate.check(A)
    await clock.sleep(100)
    queue: Queue = PoliteQueue(gate, on_disallowed=refused, max_wait_s=60)
    await put(queue, *(f"{A}/{place}" for place in range(3)))
    log = await drained(queue, clock)
    assert log.urls == [f"{A}/0"]  # the first one may go at once
    assert refused.items == [f"{A}/1", f"{A}/2"]
    assert clock.monotonic() < 102


async def test_a_floor_of_ones_own_is_waited_for_however_long_it_is(
    fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, pacing=PacingOptions(min_delay_s=500)) as gate:
        queue: Queue = PoliteQueue(gate, max_wait_s=60)
        for place in range(3):
            await queue.put(f"{A}/{place}")
        log = await drained(queue, clock)
    assert len(log.urls) == 3


async def test_urls_that_wait_for_others_of_their_host_are_not_given_up(
    queue: Queue, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = "User-agent: *\nCrawl-delay: 100\n"
    await put(queue, *(f"{A}/{place}" for place in range(100)))
    log = await drained(queue, clock)
    assert len(log.urls) == 100
    assert clock.monotonic() > 9_000


async def test_a_closure_by_another_caller_is_noticed_after_max_wait_s(
    queue: Queue, gate: Gatekeeper, clock: ManualClock
) -> None:
    await gate.check(A)
    await put(queue, *(f"{A}/{place}" for place in range(2)))
    async with waiting(queue):  # one turn; the other URL waits for the pacer
        await clock.sleep(1.5)
        async with gate.turn(f"{A}/elsewhere") as turn:
            turn.observe(503, {"Retry-After": f"{DAY_S}"})
        async with waiting(queue):
            await queue.join()
    assert clock.monotonic() < 3_700
    assert queue.statistics().refused == 1


async def test_closures_by_others_that_follow_each_other_count_as_one(gate: Gatekeeper, clock: ManualClock) -> None:
    await gate.check(A)
    queue: Queue = PoliteQueue(gate, max_wait_s=600)
    await queue.put(f"{A}/1")
    close_host = gate.state.pacer.close_host
    close_host("a.example", clock.wall() + 400, Bound.RETRY_AFTER)
    async with waiting(queue) as [worker]:
        await clock.sleep(300)
        close_host("a.example", clock.wall() + 400, Bound.RETRY_AFTER)
        await clock.sleep(400)
        assert queue.statistics().given_up == 1
        assert not worker.done()


async def test_a_host_held_by_another_turn_for_hours_is_waited_for(
    fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    gate = Gatekeeper(UA, fetcher=fetcher, clock=clock, pacing=PacingOptions(max_turn_s=inf))
    queue: Queue = PoliteQueue(gate)
    async with gate, gate.turn(f"{A}/elsewhere") as turn:
        await queue.put(f"{A}/1")
        async with waiting(queue) as [worker]:
            await clock.sleep(3 * 3_600)
            assert not worker.done()
            assert queue.statistics().refused == 0
            assert running_timers(clock) <= 3
            turn.end()
            await clock.sleep(1)
            assert await worker == f"{A}/1"


@pytest.mark.parametrize("urls", [1, 2])
async def test_a_host_whose_urls_are_all_handed_out_is_not_looked_at_any_more(
    gate: Gatekeeper, clock: ManualClock, urls: int
) -> None:
    """It was kept for ``max_wait_s``, an hour: a crawl of many hosts kept them all."""
    queue: Queue = PoliteQueue(gate, max_wait_s=1_000_000)
    await put(queue, *(f"{A}/{place}" for place in range(urls)))
    for _ in range(urls):
        await next_url(queue)
    await clock.sleep(10_000)  # the pacer has forgotten the host by then
    assert running_timers(clock) == 0


async def test_report_mode_gives_up_what_would_wait_too_long(fetcher: ScriptedFetcher, clock: ManualClock) -> None:
    refused = Refusals()
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, mode="report") as gate:
        queue: Queue = PoliteQueue(gate, on_disallowed=refused)
        await queue.put(f"{A}/1")
        await queue.put(f"{A}/2")
        async with queue.turn() as turn:
            turn.observe(503, {"Retry-After": "7200"})
        async with waiting(queue):
            await queue.join()
    assert [(bool(verdict), verdict.reason) for _, verdict in refused.verdicts] == [(False, Reason.WAIT_TOO_LONG)]


async def test_statistics_and_repr_say_what_is_deferred_and_until_when(
    queue: Queue, gate: Gatekeeper, fetcher: ScriptedFetcher
) -> None:
    fetcher.answers[A] = fetcher.answers[B] = 503
    verdict = await gate.check(A)
    assert verdict.not_before is not None
    for origin in (A, B):
        await queue.put(f"{origin}/1")
    assert queue.statistics().deferred_until_wall is None
    async with waiting(queue):
        held = queue.statistics()
        assert (held.deferred, held.deferred_until_wall) == (2, min(queue.deferred().values()))
        assert set(map(str, queue.deferred())) == {A, B}
        assert "1 worker waiting, 2 origins deferred until 2027-01-15T08:01:" in repr(queue)


async def test_left_returns_what_waits_as_it_was_put(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = "User-agent: *\nDisallow: /private\n"
    fetcher.answers[B] = 503
    await gate.check_batch([A, B])
    await clock.sleep(5)
    queue: PoliteQueue[str] = PoliteQueue(gate)
    put: list[tuple[str, str | None, float]] = [
        (f"{B}/1", None, 0),
        (f"{A}/private", "denied", 0),
        (f"{A}/2", "two", 1.5),
        (f"{A}/1", "one", -1),
    ]
    for url, item, priority in put:
        await queue.put(url, item, priority)
    assert queue.left() == put
    assert sum(queue.sizes().values()) == len(put)
    async with queue.turn() as turn:
        assert turn.url == f"{A}/1"
        await gate.aclose()
    again: PoliteQueue[str] = PoliteQueue(gate)
    assert queue.left() == [put[0], put[2]]
    assert again.left() == []


async def test_max_wait_s_of_zero_waits_for_no_site_and_no_look_is_a_busy_loop(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = "User-agent: *\nCrawl-delay: 5\n"
    queue: Queue = PoliteQueue(gate, max_wait_s=0)
    await queue.put(f"{A}/1")
    await queue.put(f"{B}/1")
    log = Log(queue, clock)
    async with asyncio.timeout(5):
        await log.drain()
    assert log.urls == [f"{B}/1"]


# Deferrals


async def test_a_deferral_is_counted_once_though_the_wall_clock_is_set_forward(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = [503, 404]
    verdict = await gate.check(A)
    assert verdict.not_before is not None
    wait_s = verdict.not_before - clock.wall()
    clock.set_wall(clock.wall() + 100_000)
    looks: list[Event] = []
    gate.subscribe(looks.append)
    queue: Queue = PoliteQueue(gate, max_unreachable_s=200_000.0)
    await queue.put(f"{A}/1")
    async with queue.turn() as turn:
        assert turn.url == f"{A}/1"
        assert wait_s <= clock.monotonic() <= wait_s + 5
    assert queue.statistics().refused == 0
    assert len(looks) <= wait_s + 10  # about one look each second


@pytest.mark.parametrize(("robots", "reason"), [(503, Reason.UNREACHABLE), (NOTHING, Reason.DISALLOW_RULE)])
async def test_report_mode_defers_and_refuses_nothing(
    fetcher: ScriptedFetcher, clock: ManualClock, robots: int | str, reason: Reason
) -> None:
    fetcher.answers[A] = robots
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, mode="report") as gate:
        queue: Queue = PoliteQueue(gate)
        await queue.put(f"{A}/1")
        async with queue.turn() as turn:
            assert (turn.url, turn.verdict.reason) == (f"{A}/1", reason)
            assert queue.statistics().deferred == 0
            assert clock.monotonic() < 10
        await gate.check(A)
        await queue.put(f"{A}/2")  # now that it is known
        assert await next_url(queue) == f"{A}/2"


async def test_url_disallowed_by_a_copy_that_serves_after_429_is_refused_at_once(
    queue: Queue, gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    busy = FetchResponse(429, f"{A}/robots.txt", headers={"retry-after": "500"})
    fetcher.answers[A] = [NOTHING, busy]
    await gate.check(A)
    await clock.sleep(86_400 * 0.9)  # it is fresh still, and old enough to be asked for again behind the answer
    await gate.check(A)
    await settle()
    verdict = await gate.check(A)
    assert (verdict.reason, verdict.not_before is not None) == (Reason.DISALLOW_RULE, True)
    await queue.put(f"{A}/1")
    async with waiting(queue):
        await settle()
        assert (queue.statistics().refused, queue.statistics().deferred) == (1, 0)


async def test_deferred_origin_is_not_tried_before_its_time(
    queue: Queue, gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = 503
    verdict = await gate.check(A)
    looks: list[Event] = []
    await queue.put(f"{A}/1")
    async with waiting(queue):
        gate.subscribe(looks.append)
        assert queue.statistics().deferred == 1
        assert verdict.not_before is not None
        await clock.sleep(verdict.not_before - clock.wall() - 0.1)
        assert looks == []
