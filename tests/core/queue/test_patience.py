"""How long the queue waits for a site, when it gives the site up, and what the log says of both."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from math import inf
from typing import Any, TypeAlias

import pytest

from politesse import CacheOptions, ConfigurationError, PacingOptions, Reason
from politesse.events import Event
from politesse.ports import FaultKind, FetchFault, FetchRequest, FetchResponse, FetchResult
from politesse.stores import MemoryStore
from politesse.testing import ManualClock, ScriptedFetcher
from politesse.verdict import Bound
from tests.core.queue.crawl import NOTHING, A, B, Queue, drained, made, next_url, put, timers, urls, waiting
from tests.core.queue.simulated import Pages, Reply, SimulatedWeb
from tests.support.tasks import apart, settle

DAY_S = 86_400
Logs: TypeAlias = pytest.LogCaptureFixture


def busy(origin: str, retry_after: int, status: int = 503) -> FetchResponse:
    return FetchResponse(status, f"{origin}/robots.txt", {"retry-after": f"{retry_after}"})


# robots.txt


async def test_forty_hosts_of_which_eight_answer_503_end_within_six_minutes(queue: Queue) -> None:
    for place in range(40):
        origin = f"https://h{place}.example"
        queue.robots[origin] = 503 if place % 5 == 0 else 404
        await put(queue, *urls(5, origin))
    log = await drained(queue, workers=8, took_s=0.1)
    assert queue.clock.monotonic() < 360
    assert len(set(log.urls)) == 32 * 5
    assert log.handed[-1][1] < 20  # live hosts do not wait for dead ones
    assert queue.refused.reasons == [Reason.UNREACHABLE] * 8 * 5
    assert queue.statistics().given_up == 8 * 5


async def test_failures_that_neither_cache_nor_store_can_keep_are_counted_all_the_same() -> None:
    async with made(cache=CacheOptions(max_entries_bytes=1), store=MemoryStore(max_bytes=1)) as queue:
        for place in range(3):
            queue.robots[f"https://h{place}.example"] = 503
            await queue.put(f"https://h{place}.example/")
        await drained(queue)
    assert queue.refused.reasons == [Reason.UNREACHABLE] * 3
    assert queue.clock.monotonic() < 360
    assert (
        queue.fetcher.count("https://h0.example") <= 4
    )  # after 0, 60, 180 s, and after 420 s if that were not too late


async def test_a_name_that_does_not_resolve_costs_seconds_and_the_verdict_names_it(queue: Queue) -> None:
    queue.robots[A] = FetchFault(FaultKind.DNS, "no such host", f"{A}/robots.txt")
    await put(queue, *urls(3), f"{B}/1")
    await drained(queue)
    assert queue.clock.monotonic() < 5
    assert queue.refused.items == urls(3)
    verdict = queue.refused.verdicts[0][1]
    assert verdict.reason is Reason.UNREACHABLE
    assert verdict.source is not None
    assert verdict.source.fault == "dns: no such host"
    assert queue.fetcher.count(A) == 1


async def test_a_closed_host_does_not_count_as_an_unreachable_robots_txt(queue: Queue) -> None:
    queue.robots[A] = [503, 503, 404]  # at 0 s; when the host opens; 120 s later
    await put(queue, f"{A}/1", f"{A}:8443/1")
    web = SimulatedWeb({f"{A}:8443/1": [Reply(429, {"Retry-After": "1000"}), Reply()]})
    report = await queue.crawl(web, Pages())
    assert (report.left, report.lost, report.given_up) == (0, 0, 0)
    assert queue.fetcher.count(A) == 3
    assert 1120 < queue.clock.monotonic() < 1140


async def test_origins_that_close_their_host_in_turn_are_given_up() -> None:
    origins = [A, f"{A}:8001", f"{A}:8002"]
    options: dict[str, Any] = {"cache": CacheOptions(retry_max_s=200), "pacing": PacingOptions(backoff_max_s=100)}
    async with made(**options) as queue:
        for origin in origins:
            queue.robots[origin] = busy(origin, 250)
            await put(queue, f"{origin}/1")
        report = await queue.crawl(SimulatedWeb(), Pages())
        assert (report.pages, report.lost) == (0, 3)
        assert queue.clock.monotonic() < 3 * DAY_S


async def test_an_origin_is_given_up_although_others_close_its_host_again_and_again(queue: Queue) -> None:
    async def close_for_ever() -> None:
        while True:
            async with queue.gate.turn(f"{A}:8001/") as turn:
                turn.observe(429, {"retry-after": "600"})

    queue.robots[A] = 503
    await put(queue, f"{A}/1")
    closing = apart(close_for_ever())
    report = await queue.crawl(SimulatedWeb(), Pages())
    closing.cancel()
    assert (report.pages, report.lost) == (0, 1)
    assert 3000 <= queue.clock.monotonic() < 4300


async def test_a_url_that_is_put_after_its_origin_was_given_up_is_refused_at_once(queue: Queue) -> None:
    queue.robots[A] = 503
    await queue.put(f"{A}/1")
    async with waiting(queue):
        await queue.join()
        given_up_mono = queue.clock.monotonic()
        assert given_up_mono < 200  # robots.txt was fetched at 0, 60 and 180 s; the next one would come at 420 s
        await queue.put(f"{A}/2")
        await queue.join()
        assert queue.clock.monotonic() - given_up_mono < 1
    assert queue.fetcher.count(A) == 3


async def test_a_retry_after_that_ends_later_is_not_waited_for(queue: Queue) -> None:
    queue.robots[A] = busy(A, 301)
    queue.robots[B] = [busy(B, 299), 404]
    await queue.put(f"{A}/1")
    async with waiting(queue):
        await queue.join()
        assert queue.clock.monotonic() < 1
    await queue.put(f"{B}/1")
    assert await next_url(queue) == f"{B}/1"


async def test_a_turn_that_began_is_progress_while_its_host_closes_again() -> None:
    async with made(max_wait_s=60.0) as queue:
        async with queue.gate.turn(f"{A}/first") as turn:
            turn.observe(503, {"Retry-After": "50"})
        await put(queue, *urls(2))
        log: list[tuple[float, str]] = []

        async def work() -> None:
            while True:
                async with queue.turn() as turn:
                    log.append((round(queue.clock.monotonic()), turn.url))
                    if turn.url == f"{A}/0":  # the second wait ends 83 - 51 s after this turn began
                        await queue.clock.sleep(2)
                        turn.observe(503, {"Retry-After": "30"})
                        await queue.clock.sleep(15)

        workers = [asyncio.create_task(work()) for _ in range(2)]
        await queue.join()
        for worker in workers:
            worker.cancel()
    assert (log, queue.refused.items) == ([(51, f"{A}/0"), (83, f"{A}/1")], [])


async def test_a_url_that_was_put_when_room_came_is_given_up_in_time() -> None:
    async with made(max_wait_s=60.0, maxsize=1) as queue:
        async with queue.gate.turn(f"{A}/first"):
            pass
        await queue.gate.check(A)
        await queue.put(f"{A}/0")
        async with running(queue.put(f"{A}/1"), queue.put(f"{A}/2")), waiting(queue, 3):
            await queue.clock.sleep(0.5)

            async def closes() -> None:  # it stands in line before /1
                async with queue.gate.turn(f"{A}/other") as turn:
                    turn.observe(503, {"Retry-After": "3000"})

            async with running(closes()):
                await queue.clock.sleep(100)
        assert queue.refused.items == [f"{A}/1", f"{A}/2"]


class StoppedClock(ManualClock):
    """A clock of a process that stops for half a second just before the clock is read for the n-th time."""

    def __init__(self, stops_at: int) -> None:
        super().__init__()
        self._left = stops_at

    def _pass(self) -> float:
        self._left -= 1
        return 0.5 if self._left <= 0 else 0.0

    def monotonic(self) -> float:
        return self._pass() + super().monotonic()

    def wall(self) -> float:
        return self._pass() + super().wall()


async def test_a_closure_as_long_as_max_wait_s_is_waited_for_wherever_the_process_stops() -> None:
    for stops_at in range(1, 200):
        pacing = PacingOptions(min_delay_s=0.0)
        async with made(StoppedClock(stops_at), max_wait_s=3_600.0, pacing=pacing) as queue:
            await queue.gate.check(A)
            await queue.put(f"{A}/1")
            async with queue.turn() as turn:
                turn.observe(503, {"Retry-After": "3600"})
                await queue.put(f"{A}/1")
            async with waiting(queue):
                assert (queue.qsize(), queue.refused.items, stops_at) == (1, [], stops_at)


async def test_a_429_to_robots_txt_is_waited_for_as_long_as_max_wait_s_allows() -> None:
    for max_wait_s, waits in ((3_700.0, True), (3_500.0, False), (None, True), (inf, True)):
        async with made(max_wait_s=max_wait_s) as queue:
            queue.robots[A] = [busy(A, 3_600, 429), 404]
            await queue.put(f"{A}/1")
            log = await drained(queue)
        assert (max_wait_s, log.urls) == (max_wait_s, [f"{A}/1"] if waits else [])
        assert queue.refused.reasons == ([] if waits else [Reason.TOO_MANY_REQUESTS])
        assert (queue.clock.monotonic() < 1) is not waits


async def test_a_deferral_is_counted_once_though_the_wall_clock_is_set_forward(queue: Queue) -> None:
    queue.robots[A] = [503, 404]
    verdict = await queue.gate.check(A)
    assert verdict.not_before is not None
    wait_s = verdict.not_before - queue.clock.wall()
    queue.clock.set_wall(queue.clock.wall() + 100_000)
    looks: list[Event] = []
    queue.gate.subscribe(looks.append)
    queue = queue.made(max_unreachable_s=200_000.0)
    await queue.put(f"{A}/1")
    assert await next_url(queue) == f"{A}/1"
    assert wait_s <= queue.clock.monotonic() <= wait_s + 5
    assert queue.statistics().refused == 0
    assert len(looks) <= wait_s + 10  # about one look each second


async def test_report_mode_defers_and_refuses_nothing_but_gives_up_what_would_wait_too_long() -> None:
    answers: dict[Reason, int | str] = {Reason.UNREACHABLE: 503, Reason.DISALLOW_RULE: NOTHING}
    for reason, answer in answers.items():
        async with made(mode="report") as queue:
            queue.robots[A] = answer
            await queue.put(f"{A}/1")
            async with queue.turn() as turn:
                assert (turn.url, turn.verdict.reason) == (f"{A}/1", reason)
                assert queue.statistics().deferred == 0
                assert queue.clock.monotonic() < 10
            await queue.gate.check(A)
            await put(queue, f"{A}/2", f"{A}/3")  # now that it is known
            async with queue.turn() as turn:
                assert turn.url == f"{A}/2"
                turn.observe(503, {"Retry-After": "7200"})
            async with waiting(queue):
                await queue.join()
        assert queue.refused.reasons == [Reason.WAIT_TOO_LONG]
        assert not queue.refused.verdicts[0][1]


class SlowFetcher(ScriptedFetcher):
    """Each request takes a moment."""

    clock: ManualClock

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        await self.clock.sleep(0.2)
        return await super().fetch(request)


@pytest.mark.parametrize("status", [429, 503])
async def test_robots_txt_that_closes_its_host_for_hours_does_not_stop_it_for_ever_in_report_mode(status: int) -> None:
    other, fetcher = f"{A}:8443", SlowFetcher()
    async with made(fetcher=fetcher, mode="report", max_wait_s=20_000.0) as queue:
        fetcher.clock = queue.clock
        queue.robots[other] = FetchResponse(200, f"{other}/robots.txt", {"cache-control": "max-age=60"}, b"")
        queue.robots[A] = busy(A, 3_600, status)
        await put(queue, f"{other}/1", f"{A}/1", f"{A}/2")
        log = await drained(queue)
    assert log.urls == [f"{other}/1"]
    assert queue.refused.items == [f"{A}/1", f"{A}/2"]
    assert queue.refused.reasons == [Reason.WAIT_TOO_LONG] * 2
    assert queue.clock.monotonic() < 30_000


async def test_url_disallowed_by_a_copy_that_serves_after_429_is_refused_at_once(queue: Queue) -> None:
    queue.robots[A] = [NOTHING, busy(A, 500, 429)]
    await queue.gate.check(A)
    await queue.clock.sleep(DAY_S * 0.9)  # it is fresh still, and old enough to be asked for again behind the answer
    await queue.gate.check(A)
    await settle()
    verdict = await queue.gate.check(A)
    assert (verdict.reason, verdict.not_before is not None) == (Reason.DISALLOW_RULE, True)
    await queue.put(f"{A}/1")
    async with waiting(queue):
        await settle()
        assert (queue.statistics().refused, queue.statistics().deferred) == (1, 0)


async def test_deferred_origins_are_shown_and_not_tried_before_their_time(queue: Queue) -> None:
    queue.robots[A] = queue.robots[B] = 503
    await queue.gate.check(A)
    looks: list[Event] = []
    await put(queue, f"{A}/1", f"{B}/1")
    assert queue.statistics().deferred_until_wall is None
    async with waiting(queue):
        queue.gate.subscribe(looks.append)
        held, until_wall = queue.statistics(), min(queue.deferred().values())
        assert (held.deferred, held.deferred_until_wall) == (2, until_wall)
        assert set(map(str, queue.deferred())) == {A, B}
        assert "1 worker waiting, 2 origins deferred until 2027-01-15T08:01:" in repr(queue)
        await queue.clock.sleep(until_wall - queue.clock.wall() - 0.1)
        assert looks == []


# Pages


async def test_a_page_that_is_answered_with_retry_after_of_hours_ends_the_queue_at_once() -> None:
    for later in (0, 2, 100):
        async with made() as queue:
            for place in range(1 + later):
                await queue.put(f"{A}/{place}", priority=place)
            async with queue.turn() as turn:
                turn.observe(429, {"Retry-After": "7200"})
                ended_mono, ended_wall = queue.clock.monotonic(), queue.clock.wall()
            async with waiting(queue):
                await queue.join()
            assert queue.clock.monotonic() - ended_mono < 1
            assert queue.refused.items == urls(1 + later)[1:]
            for _, verdict in queue.refused.verdicts:
                assert (verdict.allowed, verdict.reason) == (False, Reason.WAIT_TOO_LONG)
                assert verdict.not_before == pytest.approx(ended_wall + 7_200)
                assert verdict.note.startswith(f"{Bound.RETRY_AFTER} until 20")
            assert queue.statistics().given_up == later


async def test_a_visit_time_that_opens_in_hours_is_not_waited_for() -> None:
    midnight = 1_800_057_600.0
    async with made(ManualClock(midnight, autojump=True)) as queue:
        queue.robots[A] = "User-agent: *\nVisit-time: 0600-0700\n"
        queue.robots[B] = "User-agent: *\nVisit-time: 0030-0700\n"
        await put(queue, f"{A}/1", f"{B}/1")
        log = await drained(queue, workers=2)
    assert log.urls == [f"{B}/1"]
    assert queue.refused.items == [f"{A}/1"]
    assert str(queue.refused.verdicts[0][1]) == (
        "disallowed: https://a.example/1 (the site makes its pages wait for longer than this crawler accepts: "
        "visit-time until 2027-01-16T06:00:00Z)"
    )
    assert queue.clock.wall() - midnight < 3_600


async def test_a_crawl_delay_that_is_longer_is_not_waited_for(queue: Queue) -> None:
    queue.robots[A] = "User-agent: *\nCrawl-delay: 90\n"
    await queue.gate.check(A)
    await queue.clock.sleep(100)
    queue = queue.made(max_wait_s=60)
    await put(queue, *urls(3))
    log = await drained(queue)
    assert log.urls == [f"{A}/0"]  # the first one may go at once
    assert queue.refused.items == [f"{A}/1", f"{A}/2"]
    assert queue.clock.monotonic() < 102


async def test_max_wait_s_of_zero_waits_for_no_site_and_no_look_is_a_busy_loop(queue: Queue) -> None:
    queue.robots[A] = "User-agent: *\nCrawl-delay: 5\n"
    queue = queue.made(max_wait_s=0)
    await put(queue, f"{A}/1", f"{B}/1")
    async with asyncio.timeout(5):
        log = await drained(queue)
    assert log.urls == [f"{B}/1"]


async def test_a_floor_of_ones_own_is_waited_for_however_long_it_is() -> None:
    async with made(pacing=PacingOptions(min_delay_s=500), max_wait_s=60) as queue:
        await put(queue, *urls(3))
        log = await drained(queue)
    assert len(log.urls) == 3


async def test_urls_that_wait_for_others_of_their_host_are_not_given_up(queue: Queue) -> None:
    queue.robots[A] = "User-agent: *\nCrawl-delay: 100\n"
    await put(queue, *urls(100))
    log = await drained(queue)
    assert len(log.urls) == 100
    assert queue.clock.monotonic() > 9_000


async def test_a_closure_by_another_caller_is_noticed_after_max_wait_s(queue: Queue) -> None:
    await queue.gate.check(A)
    await put(queue, *urls(2))
    async with waiting(queue):  # one turn; the other URL waits for the pacer
        await queue.clock.sleep(1.5)
        async with queue.gate.turn(f"{A}/elsewhere") as turn:
            turn.observe(503, {"Retry-After": f"{DAY_S}"})
        async with waiting(queue):
            await queue.join()
    assert queue.clock.monotonic() < 3_700
    assert queue.statistics().refused == 1


async def test_closures_by_others_that_follow_each_other_count_as_one(queue: Queue) -> None:
    await queue.gate.check(A)
    queue = queue.made(max_wait_s=600)
    await queue.put(f"{A}/1")
    close_host = queue.gate.state.pacer.close_host
    close_host("a.example", queue.clock.wall() + 400, Bound.RETRY_AFTER)
    async with waiting(queue) as [worker]:
        await queue.clock.sleep(300)
        close_host("a.example", queue.clock.wall() + 400, Bound.RETRY_AFTER)
        await queue.clock.sleep(400)
        assert queue.statistics().given_up == 1
        assert not worker.done()


async def test_a_host_held_by_another_turn_for_hours_is_waited_for() -> None:
    async with made(pacing=PacingOptions(max_turn_s=inf)) as queue, queue.gate.turn(f"{A}/elsewhere") as turn:
        await queue.put(f"{A}/1")
        async with waiting(queue) as [worker]:
            await queue.clock.sleep(3 * 3_600)
            assert not worker.done()
            assert queue.statistics().refused == 0
            assert timers(queue.clock) <= 3
            turn.end()
            await queue.clock.sleep(1)
            assert await worker == f"{A}/1"


async def test_a_host_whose_urls_are_all_handed_out_is_not_looked_at_any_more() -> None:
    for count in (1, 2):
        async with made(max_wait_s=1_000_000) as queue:
            await put(queue, *urls(count))
            for _ in range(count):
                await next_url(queue)
            await queue.clock.sleep(10_000)  # the pacer has forgotten the host by then
            assert timers(queue.clock) == 0


async def test_left_returns_what_waits_as_it_was_put(queue: Queue) -> None:
    queue.robots[A] = "User-agent: *\nDisallow: /private\n"
    queue.robots[B] = 503
    await queue.gate.check_batch([A, B])
    await queue.clock.sleep(5)
    queue = queue.made()
    given = [(f"{B}/1", None, 0), (f"{A}/private", "denied", 0), (f"{A}/2", "two", 1.5), (f"{A}/1", "one", -1)]
    for url, item, priority in given:
        await queue.put(url, item, priority)
    assert queue.left() == given
    assert sum(queue.sizes().values()) == len(given)
    async with queue.turn() as turn:
        assert turn.url == f"{A}/1"
        await queue.gate.aclose()
    assert queue.left() == [given[0], given[2]]
    assert queue.made().left() == []  # that of a closed gate


# Sites that refuse the crawler

CHALLENGE = Reply(403, {"cf-mitigated": "challenge"})
PRICE = Reply(402, {"crawler-price": "USD 0.01"})


async def test_a_site_that_refuses_gets_few_requests_and_is_given_up_with_its_words() -> None:
    for reply, asked, words in (
        (CHALLENGE, 3, "403, cf-mitigated: challenge"),
        (PRICE, 3, "402, crawler-price: USD 0.01"),
        (Reply(401, {"www-authenticate": "License"}), 12, "401, WWW-Authenticate: License"),
        (Reply(403), 12, "403"),
    ):
        web = SimulatedWeb(dict.fromkeys(urls(60), reply))
        async with made() as queue:
            await put(queue, *urls(60))
            report = await queue.crawl(web, Pages())
        assert (len(web.requests), report.given_up) == (asked, 60 - asked)
        assert set(queue.refused.reasons) == {Reason.REFUSED}
        assert {verdict.note for _, verdict in queue.refused.verdicts} == {f"refused 3 times in a row: {words}"}
        assert 900.0 + 1800.0 < queue.clock.monotonic() < 3600.0


async def test_private_pages_and_challenges_between_other_pages_give_nothing_up(queue: Queue, pages: Pages) -> None:
    await put(queue, *urls(100))
    answers = {url: Reply(404 if place % 2 else 403) for place, url in enumerate(urls(100)[::5])}
    report = await queue.crawl(SimulatedWeb(answers), pages)
    assert (report.pages, report.given_up) == (100, 0)
    assert (started_mono := queue.clock.monotonic()) < 101  # they slow nothing
    await put(queue, *urls(9))
    report = await queue.crawl(SimulatedWeb(dict.fromkeys(urls(9)[::3], CHALLENGE)), pages)
    assert (report.pages, report.given_up) == (9, 0)
    assert 3 * 900.0 < queue.clock.monotonic() - started_mono < 3 * 900.0 * 1.1 + 60.0  # each challenge closes the site


async def test_after_how_many_refusals_a_site_is_given_up_is_an_option_whatever_their_times(queue: Queue) -> None:
    quick: dict[str, Any] = {"pacing": PacingOptions(refused_min_s=5.0, refused_after=2)}
    for options, reply, asked in (({"max_refusals": 1}, PRICE, 1), (quick, Reply(403), 4)):
        async with made(**options) as limited:
            await put(limited, *urls(10))
            web = SimulatedWeb(dict.fromkeys(urls(10), reply))
            await limited.crawl(web, Pages())
        assert (len(web.requests), len(limited.refused.verdicts)) == (asked, 10 - asked)
        assert limited.clock.monotonic() < 60.0
    for wrong in (0, -1, "three", None, 1.5):
        with pytest.raises(ConfigurationError, match="max_refusals="):
            queue.made(max_refusals=wrong)


async def test_the_log_has_the_words_of_a_site_that_refuses(queue: Queue, pages: Pages, caplog: Logs) -> None:
    await put(queue, *urls(5))
    await queue.crawl(SimulatedWeb(lambda _: PRICE), pages)
    refuses = "the site refuses this crawler: refused 3 times in a row: 402, crawler-price"
    assert f"gave up https://a.example: {refuses}" in caplog.text
    assert "by 402 for https://a.example/0 (refused 1 time in a row: 402, crawler-price: USD 0.01)" in caplog.text


async def test_a_site_with_one_answer_gets_few_requests_in_an_hour() -> None:
    at_most = [(CHALLENGE, 3), (PRICE, 3), *((Reply(status), 12) for status in (401, 403))]
    at_most += [(Reply(500), 11), (Reply(502), 10), (Reply(504), 10)]
    for reply, asked in at_most:
        starts = list[float]()
        async with made() as queue:
            while queue.clock.monotonic() < 3600.0:
                async with queue.gate.turn(f"{A}/") as turn:
                    starts.append(queue.clock.monotonic())
                    turn.observe(reply.status_code, reply.headers)
        assert sum(time < 3600.0 for time in starts) <= asked, reply


# The log of a queue that gives up a site, or does not move


@pytest.fixture
def logged(caplog: Logs) -> Logs:
    caplog.set_level(logging.INFO, "politesse.queue")
    return caplog


def said(caplog: Logs, level: int = logging.INFO) -> list[str]:
    of_queue = [record for record in caplog.records if record.name == "politesse.queue"]
    return [record.getMessage() for record in of_queue if record.levelno == level]


async def test_a_site_that_is_given_up_is_logged_once(logged: Logs) -> None:
    for known in (True, False):
        logged.clear()
        async with made(max_unreachable_s=0) as queue:
            queue.robots[A] = 503
            queue.robots[B] = NOTHING
            if known:
                await queue.gate.check_batch([A, B])
            await put(queue, *urls(3), *urls(3, B))
            async with waiting(queue):
                await queue.join()
                assert queue.statistics().given_up == 3
                await queue.put(f"{A}/4")
                await queue.join()
            why = "robots.txt is unreachable, so everything is disallowed: the server answered with status 503"
            assert said(logged, logging.WARNING) == [f"gave up {A}: {why}; 3 URLs are not requested"]


async def test_a_site_that_answers_and_is_given_up_again_is_logged_again(queue: Queue, logged: Logs) -> None:
    queue = queue.made(max_unreachable_s=0)
    for answer in (503, "", 503):
        queue.robots[A] = answer
        await queue.gate.forget(A)
        await queue.put(f"{A}/1")
        async with waiting(queue) as [worker]:
            await queue.clock.sleep(100)
            assert worker.done() == (answer == "")
    assert [line[-24:] for line in said(logged, logging.WARNING)] == ["; 1 URL is not requested"] * 2


@pytest.fixture
async def still() -> AsyncIterator[Queue]:
    """A queue with a clock that moves only when the test moves it."""
    async with made(ManualClock(), maxsize=2) as queue:
        yield queue


@asynccontextmanager
async def running(*waits: Coroutine[object, object, object]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(wait) for wait in waits]
    await settle(8)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def advance(queue: Queue, *seconds: float) -> None:
    for each in seconds:
        queue.clock.advance(each)
        await settle(8)


async def one_turn(queue: Queue) -> None:
    async with queue.turn():
        await asyncio.Event().wait()


async def test_puts_that_wait_for_room_without_a_worker_are_logged_once(still: Queue, logged: Logs) -> None:
    async with running(*(still.put(url) for url in urls(5))):
        await advance(still, 59)
        assert said(logged) == []
        await advance(still, 1)
        waits = "0 under way, 0 workers waiting, 3 puts wait for room (a.example)"
        shown = f"<PoliteQueue: 2 queued at 1 host (a.example), 1 ready, {waits}>"
        assert said(logged) == [f"no progress for 60 s: {shown}"]
        await advance(still, 3_600)
        assert len(said(logged)) == 1


async def test_join_without_a_worker_is_logged(still: Queue, logged: Logs) -> None:
    await still.put(f"{A}/1")
    async with running(still.join()):
        await advance(still, 60)
    [line] = said(logged)
    assert "1 queued at 1 host (a.example)" in line


async def test_a_turn_of_an_empty_queue_is_logged_again_after_progress_only(still: Queue, logged: Logs) -> None:
    async with running(one_turn(still), one_turn(still)):
        await advance(still, 7_200)
        assert len(said(logged)) == 1
        await still.put(f"{A}/\u202e")
        await settle(8)
        await advance(still, 5, 60)
    [idle, held] = said(logged)
    assert "0 queued at 0 hosts, 0 ready, 0 under way, 2 workers waiting" in idle
    assert f"1 under way ({A}/\\u202e), 1 worker waiting" in held


async def test_a_turn_of_the_host_that_another_task_holds_is_logged_with_its_holder(still: Queue, logged: Logs) -> None:
    await put(still, *urls(2))

    async def parent() -> None:
        async with still.turn():
            await apart(one_turn(still))

    async with running(parent()):
        await advance(still, 5, 60)
    [line] = said(logged)
    assert f"1 queued at 1 host (a.example), 0 ready, 1 under way ({A}/0), 1 worker waiting" in line


async def test_hosts_that_are_all_deferred_are_logged(still: Queue, logged: Logs) -> None:
    still.robots[A] = 429
    await still.put(f"{A}/1")
    async with waiting(still):
        await advance(still, 59)
        assert still.statistics().deferred == 1
        await advance(still, 1)
    [line] = said(logged)
    assert f"1 worker waiting, {A} deferred until 2027-01-15T08:0" in line


async def test_waits_that_are_given_up_and_begun_again_are_one_stall(still: Queue, logged: Logs) -> None:
    for _ in range(12):
        async with running(one_turn(still)):
            await advance(still, 8)
        assert timers(still.clock) == 0
    assert len(said(logged)) == 1


async def test_a_queue_that_moves_is_not_logged(queue: Queue, logged: Logs) -> None:
    queue.robots[A] = "User-agent: *\nCrawl-delay: 50"
    await put(queue, *urls(5))
    await asyncio.gather(drained(queue), queue.join())
    assert queue.clock.monotonic() > 200
    assert said(logged) == []
