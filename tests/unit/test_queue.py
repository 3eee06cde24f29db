from __future__ import annotations

import asyncio
import gc
import random
import time
from collections import Counter, defaultdict
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from politesse import (
    AgentView,
    ClosedError,
    ConfigurationError,
    Decided,
    Event,
    Gatekeeper,
    HostPolicy,
    InvalidURL,
    NotYet,
    PacingOptions,
    Reason,
    Turn,
    Verdict,
)
from politesse.queue import PoliteQueue, QueueClosed, QueueStatistics
from politesse.testing import ManualClock, ScriptedFetcher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

UA = "ExampleBot/1.0 (+https://example.com/bot)"
A = "https://a.example"
B = "https://b.example"
C = "https://c.example"
NOTHING = "User-agent: *\nDisallow: /\n"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(autojump=True)


@pytest.fixture
def fetcher() -> ScriptedFetcher:
    return ScriptedFetcher()


@pytest.fixture
async def gate(fetcher: ScriptedFetcher, clock: ManualClock) -> AsyncIterator[Gatekeeper]:
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        yield gate


@pytest.fixture
def queue(gate: Gatekeeper) -> PoliteQueue[object]:
    return PoliteQueue(gate)


class Log:
    """Workers, and what they were handed: URL and moment."""

    def __init__(self, queue: PoliteQueue[object], clock: ManualClock) -> None:
        self.queue = queue
        self.clock = clock
        self.handed: list[tuple[str, float]] = []
        self.in_block: Counter[str] = Counter()

    @property
    def urls(self) -> list[str]:
        return [url for url, _ in self.handed]

    async def work(self, took_s: float = 0.0) -> None:
        while True:
            try:
                async with self.queue.turn() as turn:
                    self.handed.append((turn.url, self.clock.monotonic()))
                    host = turn.url.split("/")[2]
                    self.in_block[host] += 1
                    assert self.in_block[host] == 1
                    await self.clock.sleep(took_s)
                    self.in_block[host] -= 1
                    turn.observe(200)
            except QueueClosed:
                return

    async def drain(self, workers: int = 1, took_s: float = 0.0) -> None:
        self.queue.close()
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self.work(took_s))


async def settle(rounds: int = 8) -> None:
    for _ in range(rounds):
        await asyncio.sleep(0)


@asynccontextmanager
async def waiting(queue: PoliteQueue[object], count: int = 1) -> AsyncIterator[list[asyncio.Task[str]]]:
    """Tasks that wait for a turn."""

    async def one() -> str:
        async with queue.turn() as turn:
            return turn.url

    tasks = [asyncio.create_task(one()) for _ in range(count)]
    await settle()
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# What is handed out, and in which order.


async def test_turn_carries_url_item_and_verdict(queue: PoliteQueue[object]) -> None:
    await queue.put(f"{A}/1", item={"depth": 1})
    async with queue.turn() as turn:
        assert (turn.url, turn.item) == (f"{A}/1", {"depth": 1})
        assert turn.verdict.reason is Reason.UNAVAILABLE
        assert "a.example/1: under way" in repr(turn)
        turn.observe(200, {"Content-Type": "text/html"})


async def test_unknown_origin_is_asked_at_once_and_handed_out_when_known(
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


async def test_robots_txt_is_asked_for_before_any_worker_comes(
    queue: PoliteQueue[object], fetcher: ScriptedFetcher
) -> None:
    await queue.put(f"{A}/1")
    await settle()
    assert fetcher.count(A) == 1


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


async def test_a_host_with_several_origins_stands_in_the_round_once(
    queue: PoliteQueue[object], clock: ManualClock
) -> None:
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
        queue: PoliteQueue[object] = PoliteQueue(gate)
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
    refused: list[object] = []
    queue: PoliteQueue[object] = PoliteQueue(gate, on_disallowed=lambda item, _: refused.append(item))
    await gate.check(A)
    await queue.put(f"{A}/1")
    gate.set_policy("a.example", HostPolicy(deny=True))
    await Log(queue, clock).drain()
    assert refused == [f"{A}/1"]


async def test_the_first_turn_keeps_the_crawl_delay_from_robots_txt_on(
    queue: PoliteQueue[object], fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = "User-agent: *\nCrawl-delay: 30\n"
    await queue.put(f"{A}/1")
    async with queue.turn():
        assert clock.monotonic() >= 30


async def test_a_copy_that_ran_out_is_asked_for_again_without_a_worker(
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


async def test_views_queue_for_their_own_groups(gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock) -> None:
    fetcher.answers[A] = "User-agent: ExampleBot\nAllow: /\n\nUser-agent: ExampleBot-Image\nDisallow: /\n"
    refused: list[object] = []
    images = gate.agent(tokens=["ExampleBot-Image", "ExampleBot"])
    queue: PoliteQueue[object] = PoliteQueue(images, on_disallowed=lambda item, _: refused.append(item))
    await queue.put(f"{A}/1")
    await Log(queue, clock).drain()
    assert refused == [f"{A}/1"]


# What may not be requested.


async def test_disallowed_urls_are_told_and_count_as_done(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    fetcher.answers[A] = "User-agent: *\nDisallow: /private\n"
    refused: list[tuple[object, Verdict]] = []
    queue: PoliteQueue[object] = PoliteQueue(gate, on_disallowed=lambda item, verdict: refused.append((item, verdict)))
    await queue.put(f"{A}/private/1", item="one")
    await queue.put(f"{A}/private/2")
    await queue.put(f"{A}/open")
    async with queue.turn() as turn:
        assert turn.url == f"{A}/open"
    await queue.join()
    assert [item for item, _ in refused] == ["one", f"{A}/private/2"]
    assert [verdict.reason for _, verdict in refused] == [Reason.DISALLOW_RULE] * 2
    assert refused[0][1].url == f"{A}/private/1"
    assert queue.statistics().refused == 2


async def test_a_worker_refuses_while_it_waits_and_join_ends(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = NOTHING
    queue: PoliteQueue[object] = PoliteQueue(gate)
    for place in range(1_000):
        await queue.put(f"{A}/{place}")
    async with waiting(queue) as [worker], asyncio.timeout(10):
        await queue.join()
        assert not worker.done()
    assert clock.monotonic() < 10  # a refusal waits for no interval
    assert queue.statistics().refused == 1_000


async def test_a_long_run_of_refusals_lets_others_run(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    fetcher.answers[A] = NOTHING
    queue: PoliteQueue[object] = PoliteQueue(gate)
    await gate.check(A)
    for place in range(1_000):
        await queue.put(f"{A}/{place}")
    async with waiting(queue):
        assert 0 < queue.qsize() < 1_000
        await queue.join()


async def test_what_on_disallowed_raises_comes_out_of_turn_and_loses_nothing(
    gate: Gatekeeper, fetcher: ScriptedFetcher
) -> None:
    def refuse(item: object, _verdict: Verdict) -> None:
        raise LookupError(item)

    fetcher.answers[A] = "User-agent: *\nDisallow: /private\n"
    queue: PoliteQueue[object] = PoliteQueue(gate, on_disallowed=refuse)
    await queue.put(f"{A}/private")
    await queue.put(f"{A}/open")
    with pytest.raises(LookupError, match="private"):
        async with queue.turn():
            pytest.fail("there is no turn")
    async with queue.turn() as turn:
        assert turn.url == f"{A}/open"
    await queue.join()


async def test_what_on_disallowed_raises_in_one_worker_leaves_the_rest_to_the_next(
    gate: Gatekeeper, fetcher: ScriptedFetcher
) -> None:
    def refuse(item: object, _verdict: Verdict) -> None:
        raise LookupError(item)

    fetcher.answers[A] = "User-agent: *\nDisallow: /private\n"
    queue: PoliteQueue[object] = PoliteQueue(gate, on_disallowed=refuse)
    async with waiting(queue, 2) as [first, second]:
        await queue.put(f"{A}/private")
        await queue.put(f"{A}/open")
        with pytest.raises(LookupError):
            await first
        async with asyncio.timeout(5):
            assert await second == f"{A}/open"


async def test_on_disallowed_may_put_another_and_join_waits_for_it(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    def refuse(_item: object, _verdict: Verdict) -> None:
        replacing.put_nowait(f"{B}/instead")

    fetcher.answers[A] = NOTHING
    replacing: PoliteQueue[object] = PoliteQueue(gate, on_disallowed=refuse)
    await replacing.put(f"{A}/1")
    joined = asyncio.create_task(replacing.join())
    async with replacing.turn() as turn:
        assert turn.url == f"{B}/instead"
        await settle()
        assert not joined.done()
    await joined


async def test_a_subscriber_may_put_while_a_turn_is_tried(
    gate: Gatekeeper, queue: PoliteQueue[object], clock: ManualClock
) -> None:
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
async def test_what_is_no_url_is_refused_when_it_is_put(queue: PoliteQueue[object], url: str) -> None:
    with pytest.raises(InvalidURL):
        await queue.put(url)
    with pytest.raises(InvalidURL):
        queue.put_nowait(url)
    assert queue.qsize() == 0
    await queue.join()


@pytest.mark.parametrize("status", [503, 429])
async def test_unreachable_robots_txt_defers_and_the_url_is_handed_out_later(
    queue: PoliteQueue[object], fetcher: ScriptedFetcher, clock: ManualClock, status: int
) -> None:
    fetcher.answers[A] = [status, status, 404]
    await queue.put(f"{A}/1")
    await queue.put(f"{B}/1")
    async with queue.turn() as turn:
        assert turn.url == f"{B}/1"
    async with queue.turn() as turn:
        assert turn.url == f"{A}/1"
        assert 180 <= clock.monotonic() <= 220
    assert fetcher.count(A) == 3


async def test_known_to_be_unreachable_defers_too(
    queue: PoliteQueue[object], gate: Gatekeeper, fetcher: ScriptedFetcher
) -> None:
    fetcher.answers[A] = [503, 404]
    await gate.check(A)
    await queue.put(f"{A}/1")
    async with waiting(queue) as [worker]:
        assert queue.statistics().deferred == 1
        assert await worker == f"{A}/1"


@pytest.mark.parametrize("most", [0, 1, 3])
async def test_after_so_many_deferrals_all_of_the_origin_is_refused(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock, most: int
) -> None:
    fetcher.answers[A] = 503
    refused: list[object] = []
    queue: PoliteQueue[object] = PoliteQueue(
        gate, on_disallowed=lambda item, _: refused.append(item), max_deferrals=most
    )
    for place in range(3):
        await queue.put(f"{A}/{place}")
    await Log(queue, clock).drain(workers=2)
    assert refused == [f"{A}/{place}" for place in range(3)]
    assert fetcher.count(A) == most + 1
    await queue.join()


async def test_answers_in_between_begin_the_count_of_deferrals_anew(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = [503, 404, 503, 404]
    queue: PoliteQueue[object] = PoliteQueue(gate, max_deferrals=1)
    for place in range(2):
        await queue.put(f"{A}/{place}")
    async with queue.turn():
        pass
    await gate.forget(A)
    async with queue.turn() as turn:
        assert turn.url == f"{A}/1"


async def test_report_mode_hands_out_what_would_be_denied(fetcher: ScriptedFetcher, clock: ManualClock) -> None:
    fetcher.answers[A] = NOTHING
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, mode="report") as gate:
        queue: PoliteQueue[object] = PoliteQueue(gate)
        await queue.put(f"{A}/1")
        async with queue.turn() as turn:
            assert (turn.url, turn.verdict.reason) == (f"{A}/1", Reason.DISALLOW_RULE)


# Room.


async def test_maxsize_counts_per_host(gate: Gatekeeper) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, maxsize=2)
    for origin in (A, B):
        queue.put_nowait(f"{origin}/1")
        queue.put_nowait(f"{origin}/2")
        with pytest.raises(asyncio.QueueFull, match=r"2 URLs wait at .\.example"):
            queue.put_nowait(f"{origin}/3")
    assert queue.qsize() == 4


async def test_put_waits_for_room_at_its_host_while_others_put(gate: Gatekeeper) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, maxsize=1)
    await queue.put(f"{A}/1")
    blocked = [asyncio.create_task(queue.put(f"{A}/{place}")) for place in (2, 3)]
    await settle()
    await queue.put(f"{B}/1")
    assert not any(task.done() for task in blocked)
    handed = []
    for _ in range(4):
        async with queue.turn() as turn:
            handed.append(turn.url)
    await asyncio.gather(*blocked)
    assert [url for url in handed if url.startswith(A)] == [f"{A}/{place}" for place in (1, 2, 3)]
    assert queue.statistics().hosts == 0


async def test_a_put_that_is_cancelled_puts_nothing_and_passes_its_room_on(gate: Gatekeeper) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, maxsize=1)
    await queue.put(f"{A}/1")
    first, second = (asyncio.create_task(queue.put(f"{A}/{place}")) for place in (2, 3))
    await settle()
    async with queue.turn():
        first.cancel()  # woken, and not resumed yet
        await settle()
        assert first.cancelled()
        assert second.done()
    async with queue.turn() as turn:
        assert turn.url == f"{A}/3"
    await queue.join()
    assert queue.statistics().hosts == 0


async def test_the_last_put_that_is_cancelled_leaves_no_host_behind(gate: Gatekeeper) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, maxsize=1)
    await queue.put(f"{A}/1")
    blocked = asyncio.create_task(queue.put(f"{A}/2"))
    other = asyncio.create_task(queue.put(f"{A}/3"))
    await settle()
    async with queue.turn():
        blocked.cancel()
        other.cancel()
        await settle()
    assert queue.statistics().hosts == 0


async def test_a_put_that_is_cancelled_while_it_waits_leaves_the_line(gate: Gatekeeper) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, maxsize=1)
    await queue.put(f"{A}/1")
    first, second = (asyncio.create_task(queue.put(f"{A}/{place}")) for place in (2, 3))
    await settle()
    first.cancel()
    await settle()
    async with queue.turn():
        pass
    await second
    async with queue.turn() as turn:
        assert turn.url == f"{A}/3"


@pytest.mark.parametrize("options", [{"maxsize": -1}, {"max_deferrals": -1}, {"max_asking": 0}])
async def test_options_that_cannot_be_meant_are_refused(gate: Gatekeeper, options: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        PoliteQueue(gate, **options)  # type: ignore[arg-type]


# Cancellation.


async def test_a_cancelled_worker_loses_no_url(queue: PoliteQueue[object], fetcher: ScriptedFetcher) -> None:
    fetcher.gate.clear()
    await queue.put(f"{A}/1")
    async with waiting(queue, 2) as [first, second]:
        first.cancel()
        await settle()
        fetcher.gate.set()
        assert await second == f"{A}/1"
    assert queue.statistics().waiting == 0


async def test_a_worker_cancelled_after_it_was_woken_wakes_the_next(
    queue: PoliteQueue[object], gate: Gatekeeper
) -> None:
    await gate.check(A)
    async with waiting(queue, 2) as [first, second]:
        await queue.put(f"{A}/1")  # wakes the first, which has not resumed yet
        first.cancel()
        assert await second == f"{A}/1"
        assert first.cancelled()


@pytest.mark.parametrize("rounds", range(12))
async def test_a_worker_cancelled_at_any_moment_loses_no_url(
    queue: PoliteQueue[object], clock: ManualClock, rounds: int
) -> None:
    await queue.put(f"{A}/1")
    await queue.put(f"{A}/2")
    handed: list[str] = []

    async def work() -> None:
        while True:
            async with queue.turn() as turn:
                handed.append(turn.url)
                await clock.sleep(1)

    task = asyncio.create_task(work())
    await settle(rounds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    log = Log(queue, clock)
    await log.drain()
    assert handed + log.urls == [f"{A}/1", f"{A}/2"]


async def test_cancelling_workers_at_random_loses_and_doubles_nothing(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    chance = random.Random(7)
    queue: PoliteQueue[object] = PoliteQueue(gate, maxsize=5)
    urls = [f"https://h{place % 10}.example/{place}" for place in range(200)]
    fetcher.answers["https://h3.example"] = [503, 404]
    fetcher.answers["https://h4.example"] = "User-agent: *\nCrawl-delay: 7\n"
    handed: list[str] = []

    async def work() -> None:
        while True:
            async with queue.turn() as turn:
                handed.append(turn.url)
                await clock.sleep(chance.random())

    async def put() -> None:
        async with asyncio.TaskGroup() as group:
            for url in urls:
                group.create_task(queue.put(url))

    putting = asyncio.create_task(put())
    workers = [asyncio.create_task(work()) for _ in range(8)]
    while not putting.done() or queue.qsize():
        victim = chance.randrange(len(workers))
        workers[victim].cancel()
        await asyncio.gather(workers[victim], return_exceptions=True)
        workers[victim] = asyncio.create_task(work())
        await (clock.sleep(chance.random() * 5) if chance.random() < 0.5 else settle(chance.randrange(10)))
    await queue.join()
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    assert sorted(handed) == sorted(urls)
    assert queue.statistics() == QueueStatistics(0, 0, 0, 0, 0, 0, 0, 0)


async def test_an_exception_in_the_block_ends_the_turn_and_counts_as_done(
    queue: PoliteQueue[object], gate: Gatekeeper
) -> None:
    await queue.put(f"{A}/1")
    with pytest.raises(LookupError):
        async with queue.turn():
            raise LookupError
    assert gate.statistics().turns == 0
    await queue.join()


async def test_a_cancellation_in_the_block_ends_the_turn_and_counts_as_done(
    queue: PoliteQueue[object], gate: Gatekeeper
) -> None:
    await queue.put(f"{A}/1")

    async def hang() -> None:
        async with queue.turn():
            await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    while not queue.statistics().under_way:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gate.statistics().turns == 0
    await queue.join()


# The end.


async def test_join_waits_for_turns_under_way(queue: PoliteQueue[object]) -> None:
    await queue.put(f"{A}/1")
    async with queue.turn():
        joined = asyncio.create_task(queue.join())
        await settle()
        assert not joined.done()
    await joined


async def test_join_of_an_empty_queue_returns_at_once(queue: PoliteQueue[object]) -> None:
    async with asyncio.timeout(1):
        await queue.join()


async def test_join_that_is_cancelled_harms_nobody(queue: PoliteQueue[object]) -> None:
    await queue.put(f"{A}/1")
    first, second = (asyncio.create_task(queue.join()) for _ in range(2))
    await settle()
    first.cancel()
    async with queue.turn():
        pass
    await second


async def test_closed_queue_hands_out_what_it_holds_and_then_says_so(queue: PoliteQueue[object]) -> None:
    await queue.put(f"{A}/1")
    queue.close()
    with pytest.raises(QueueClosed, match=r"put after the queue was closed"):
        await queue.put(f"{A}/2")
    with pytest.raises(QueueClosed):
        queue.put_nowait(f"{A}/2")
    async with queue.turn() as turn:
        assert turn.url == f"{A}/1"
        with pytest.raises(QueueClosed, match="nothing is left"):
            async with queue.turn():
                pytest.fail("there is no turn")
    await queue.join()


async def test_close_wakes_the_workers_of_an_empty_queue(queue: PoliteQueue[object]) -> None:
    async with waiting(queue, 3) as workers:
        queue.close()
        results = await asyncio.gather(*workers, return_exceptions=True)
    assert [type(result) for result in results] == [QueueClosed] * 3


async def test_the_last_url_of_a_closed_queue_frees_all_other_workers(queue: PoliteQueue[object]) -> None:
    await queue.put(f"{A}/1")
    queue.close()
    async with waiting(queue, 3) as workers:
        results = await asyncio.gather(*workers, return_exceptions=True)
    assert Counter(type(result) for result in results) == {str: 1, QueueClosed: 2}


async def test_the_last_refusal_of_a_closed_queue_frees_all_workers(
    queue: PoliteQueue[object], fetcher: ScriptedFetcher
) -> None:
    fetcher.answers[A] = NOTHING
    await queue.put(f"{A}/1")
    queue.close()
    async with waiting(queue, 3) as workers:
        results = await asyncio.gather(*workers, return_exceptions=True)
    assert [type(result) for result in results] == [QueueClosed] * 3


async def test_close_wakes_those_who_wait_to_put(gate: Gatekeeper) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, maxsize=1)
    await queue.put(f"{A}/1")
    blocked = asyncio.create_task(queue.put(f"{A}/2"))
    await settle()
    queue.close()
    with pytest.raises(QueueClosed):
        await blocked


@pytest.mark.parametrize("state", ["asking", "pacing", "deferred", "queued elsewhere"])
async def test_closing_the_gatekeeper_frees_everybody(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock, state: str
) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate, maxsize=1)
    if state == "asking":
        fetcher.gate.clear()
    elif state == "deferred":
        fetcher.answers[A] = 503
    else:
        fetcher.answers[A] = "User-agent: *\nCrawl-delay: 3000\n"
        async with gate.turn(A):
            pass
    await queue.put(f"{A}/1")
    tasks = [asyncio.create_task(work) for work in (Log(queue, clock).work(), queue.put(f"{A}/2"), queue.join())]
    if state == "queued elsewhere":
        tasks.append(asyncio.create_task(gate.turn(A).__aenter__()))  # type: ignore[arg-type]
    await settle()
    await gate.aclose()
    async with asyncio.timeout(5):
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [ClosedError] * len(tasks)
    with pytest.raises(ClosedError):
        await queue.put(f"{B}/1")


async def test_no_task_is_left_when_all_is_done(queue: PoliteQueue[object], clock: ManualClock) -> None:
    for place in range(50):
        await queue.put(f"https://h{place % 7}.example/{place}")
    await Log(queue, clock).drain(workers=10)
    await queue.join()
    gc.collect()
    await settle()
    assert asyncio.all_tasks() == {asyncio.current_task()}


# Numbers and cost.


async def test_repr_and_statistics_tell_what_it_holds(queue: PoliteQueue[object], gate: Gatekeeper) -> None:
    await gate.check_batch([A, B])
    assert repr(queue) == "<PoliteQueue: 0 queued at 0 hosts, 0 ready, 0 under way, 0 workers waiting>"
    for url in (f"{A}/1", f"{A}/2", f"{B}/1"):
        await queue.put(url)
    assert queue.statistics() == QueueStatistics(3, 2, 2, 0, 0, 0, 0, 0)
    async with queue.turn():
        assert queue.qsize() == 2
        queue.close()
        assert repr(queue).endswith("1 under way, 0 workers waiting, closed>")


@pytest.mark.realtime
async def test_on_the_real_clock_no_turn_is_early_and_none_overlap(fetcher: ScriptedFetcher) -> None:
    pacing = PacingOptions(min_delay_s=0.05, adaptive_factor=0)
    ended: dict[str, float] = {}
    gaps: list[float] = []
    async with Gatekeeper(UA, fetcher=fetcher, pacing=pacing) as gate:
        queue: PoliteQueue[str] = PoliteQueue(gate)
        for place in range(100):
            host = f"h{place % 20}.example"
            await queue.put(f"https://{host}/{place}", item=host)
        queue.close()

        async def work() -> None:
            while True:
                async with queue.turn() as turn:
                    host = str(turn.item)
                    if host in ended:
                        gaps.append(time.monotonic() - ended.pop(host))
                    await asyncio.sleep(0.002)
                    ended[host] = time.monotonic()  # popped by the next: two at once would find it missing

        results = await asyncio.gather(*(work() for _ in range(50)), return_exceptions=True)
    assert {type(result) for result in results} == {QueueClosed}
    assert len(gaps) == 80
    assert min(gaps) >= 0.05


class CountingView(AgentView):
    """Counts how often a turn is tried."""

    __slots__ = ("tries",)

    def __init__(self, gate: Gatekeeper) -> None:
        super().__init__(gate._shared, gate.identity)
        self.tries = 0

    def try_turn(self, url: str) -> Turn | NotYet:
        self.tries += 1
        return super().try_turn(url)


async def test_ten_thousand_hosts_cost_few_looks_each(fetcher: ScriptedFetcher, clock: ManualClock) -> None:
    hosts, rounds, workers = 10_000, 2, 100
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        view = CountingView(gate)
        queue: PoliteQueue[object] = PoliteQueue(view)
        for place in range(hosts * rounds):
            await queue.put(f"https://h{place % hosts}.example/{place // hosts}")
        assert len(fetcher.requests) <= 100
        log = Log(queue, clock)
        await log.drain(workers=workers, took_s=0.5)
    assert len(set(log.urls)) == hosts * rounds
    assert view.tries < 1.5 * hosts * rounds
    assert len(fetcher.requests) == hosts
    moments: defaultdict[str, list[float]] = defaultdict(list)
    for url, moment in log.handed:
        moments[url.split("/")[2]].append(moment)
    assert all(after - before >= 1.5 for before, after in moments.values())  # 0.5 s taken, then 1 s of pause
    # 100 workers at 0.5 s each are what is scarce: nobody waits while somebody is ready.
    assert log.handed[-1][1] < 1.1 * hosts * rounds * 0.5 / workers + 5


async def test_unknown_hosts_are_asked_at_the_pace_of_the_hand_outs(
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
