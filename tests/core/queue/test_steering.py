"""A queue that is steered from outside: paused, stopped, told to give up a host, and given notes."""

import asyncio
import logging
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from politesse import ConfigurationError, InvalidURL, Reason
from politesse.queue import CrawlPage, CrawlReport, QueueClosed
from tests.core.queue.crawl import NOTHING, A, B, C, Queue, drained, left, made, next_url, put, urls, waiting
from tests.core.queue.simulated import Pages, Reply, SimulatedWeb, crawled, follow_links
from tests.support.tasks import settle

# Pause


async def test_a_paused_queue_hands_out_nothing_and_goes_on_where_it_was(queue: Queue) -> None:
    queue.pause()
    queue.pause()
    await put(queue, f"{A}/1", f"{B}/1")
    async with waiting(queue, 2) as workers:
        await queue.clock.sleep(1_000)
        assert (queue.is_paused, queue.qsize(), queue.fetcher.requests) == (True, 2, [])
        assert repr(queue).endswith(", 2 workers waiting, paused>")
        queue.resume()
        assert not queue.is_paused
        assert sorted(await asyncio.gather(*workers)) == [f"{A}/1", f"{B}/1"]


async def test_a_host_that_becomes_ready_during_a_pause_is_handed_out_after_it(queue: Queue) -> None:
    await put(queue, *urls(3))
    await next_url(queue)
    async with waiting(queue) as [worker]:
        queue.pause()
        await queue.clock.sleep(60)
        assert not worker.done()
        queue.resume()
        await settle()
        assert worker.done()


async def test_a_fetch_of_robots_txt_that_is_under_way_may_end_during_a_pause_and_none_begins(queue: Queue) -> None:
    queue.robots[A], queue.robots[C] = NOTHING, 503
    queue.fetcher.gate.clear()
    await put(queue, f"{A}/1", f"{C}/1")
    async with waiting(queue) as [worker]:
        queue.pause()
        queue.fetcher.gate.set()
        await queue.put(f"{B}/1")
        await queue.clock.sleep(200)  # the robots.txt of C was unreachable, and might be fetched again
        assert queue.refused.items == [f"{A}/1"]  # what is known to be disallowed is refused
        assert (queue.fetcher.count(A), queue.fetcher.count(B), queue.fetcher.count(C)) == (1, 0, 1)
        queue.resume()
        assert await worker == f"{B}/1"


async def test_after_a_pause_robots_txt_is_fetched_ahead_of_the_workers(queue: Queue) -> None:
    queue.pause()
    await queue.put(f"{A}/1")
    queue.resume()
    await settle()
    assert queue.fetcher.count(A) == 1


async def test_an_on_disallowed_that_pauses_is_followed_by_no_url(queue: Queue) -> None:
    queue.robots[A] = NOTHING
    pausing: Queue = queue.made(on_disallowed=lambda *_: pausing.pause())
    await put(pausing, f"{A}/1", f"{B}/1")
    async with waiting(pausing) as [worker]:
        await pausing.clock.sleep(60)
        assert pausing.is_paused
        assert not worker.done()


async def test_a_pause_is_no_stall_and_no_wait_for_the_site(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "politesse.queue")
    queue.robots[A] = [503, 503, 404]
    await queue.put(f"{A}/1")
    async with waiting(queue) as [worker]:
        queue.pause()
        await queue.put(f"{A}/2")
        await queue.clock.sleep(100_000)
        assert caplog.messages == []
        queue.resume()
        assert await worker == f"{A}/1"
    assert queue.refused.items == []


async def test_a_stall_counts_from_the_end_of_the_pause(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "politesse.queue")
    queue.robots[A] = "User-agent: *\nCrawl-delay: 1000\n"
    await put(queue, *urls(2))
    await next_url(queue)
    caplog.clear()
    async with waiting(queue):
        queue.pause()
        await queue.clock.sleep(500)
        queue.resume()
        await queue.clock.sleep(59)
        assert caplog.messages == []
        await queue.clock.sleep(2)
        assert [text.partition(":")[0] for text in caplog.messages] == ["no progress for 60 s"]


async def test_a_host_that_was_closed_before_a_pause_is_not_given_up_for_the_time_of_the_pause() -> None:
    async with made(max_wait_s=100.0) as queue:
        await put(queue, *urls(2))
        async with queue.turn() as turn:
            turn.observe(503, {"Retry-After": "90"})
        async with waiting(queue) as [worker]:
            await queue.clock.sleep(50)
            queue.pause()
            await queue.clock.sleep(80)
            queue.gate.state.pacer.close_host("a.example", queue.clock.wall() + 60, "retry-after")  # by another queue
            queue.resume()
            assert await worker == f"{A}/1"


async def test_join_waits_through_a_pause_and_a_paused_queue_can_be_closed(queue: Queue) -> None:
    await queue.put(f"{A}/1")
    queue.pause()
    joining = asyncio.create_task(queue.join())
    async with waiting(queue) as [worker]:
        queue.close()
        await queue.clock.sleep(10)
        assert not joining.done()
        await queue.aclose()
        with pytest.raises(QueueClosed):
            await worker
    with pytest.raises(QueueClosed):
        await joining


async def test_the_time_of_a_crawl_goes_on_while_it_is_paused(queue: Queue, pages: Pages) -> None:
    queue.pause()
    report = await crawled(queue, SimulatedWeb(), pages, max_time_s=30)
    assert (report.pages, report.left, report.elapsed_s) == (0, 1, 30)


async def test_a_page_under_way_is_finished_during_a_pause(queue: Queue) -> None:
    async def handle(page: CrawlPage[object], reply: Reply) -> None:
        queue.pause()
        await follow_links(page, reply)

    crawl = asyncio.create_task(crawled(queue, SimulatedWeb({f"{A}/": Reply(links=["/1"])}), handle))
    await queue.clock.sleep(100)
    assert left(queue) == [f"{A}/1"]
    queue.resume()
    assert (await crawl).pages == 2


# Stop


async def test_stop_finishes_the_pages_under_way_and_leaves_the_rest_to_the_next_crawl(queue: Queue) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    handled: list[str] = []

    async def handle(page: CrawlPage[object], _: Reply) -> None:
        begun.set()
        await go_on.wait()
        page.put("/link")
        handled.append(page.url)

    await put(queue, *urls(3), f"{B}/1")
    seen: set[str] = set()
    crawl = asyncio.create_task(queue.crawl(SimulatedWeb(), handle, workers=5, seen=seen))
    await begun.wait()
    states = [queue.is_stopping]
    await queue.clock.sleep(0.5)
    queue.stop()
    queue.stop()
    states.append(queue.is_stopping)
    await queue.clock.sleep(100)
    go_on.set()
    report = await crawl
    assert sorted(handled) == [f"{A}/0", f"{B}/1"]
    assert (report.pages, report.failed, report.left) == (2, 0, 4)
    assert [*states, queue.is_stopping] == [False, True, False]
    await queue.crawl(SimulatedWeb(), handle, seen=seen)
    assert sorted(handled) == sorted([*urls(3), f"{A}/link", f"{B}/1", f"{B}/link"])


async def test_stop_without_a_crawl_does_nothing(queue: Queue, pages: Pages) -> None:
    queue.stop()
    assert not queue.is_stopping
    assert (await crawled(queue, SimulatedWeb(), pages)).pages == 1


async def test_stop_ends_a_crawl_that_is_paused_or_has_just_begun(queue: Queue, pages: Pages, tmp_path: Path) -> None:
    async with queue.made(journal=tmp_path / "crawl.db") as kept:
        await kept.put(f"{A}/1")
        for steps in range(30):
            kept.pause()
            crawl = asyncio.create_task(kept.crawl(SimulatedWeb(), pages))
            for _ in range(steps):
                await asyncio.sleep(0)
            kept.stop()
            if crawl.done() or not kept.is_stopping:  # the crawl has not begun
                crawl.cancel()
                continue
            report = await asyncio.wait_for(crawl, 10)
            assert (report.pages, report.left) == (0, 1)


@pytest.mark.parametrize("where", ["on_disallowed", "on_progress"])
async def test_a_function_of_the_program_may_stop_the_crawl(queue: Queue, where: str) -> None:
    queue.robots[B] = NOTHING
    pages = Pages()
    stopping: Queue = queue.made(on_disallowed=lambda *_: stopping.stop() if where == "on_disallowed" else None)
    await queue.gate.check(A)
    await queue.gate.check(B)
    await queue.clock.sleep(10)
    await put(stopping, f"{B}/1", *urls(3))  # the worker refuses the first, and is granted a turn in the same step
    web = SimulatedWeb()
    on_progress = (lambda _: stopping.stop()) if where == "on_progress" else None
    report = await stopping.crawl(web, pages, workers=1, on_progress=on_progress)
    assert (report.pages, report.left, report.stopped_by, web.urls) == (0, 3, "stop", [])
    assert left(stopping) == urls(3)


async def test_what_a_stopped_crawl_leaves_stays_in_the_journal(tmp_path: Path) -> None:
    journal, pages = tmp_path / "crawl.db", Pages()
    async with made(journal=journal) as queue:
        await put(queue, *urls(3))

        async def handle(page: CrawlPage[object], reply: Reply) -> None:
            queue.stop()
            await pages(page, reply)

        report = await queue.crawl(SimulatedWeb(), handle)
        assert (report.pages, report.left) == (1, 2)
    async with made(journal=journal) as queue:
        assert (await queue.crawl(SimulatedWeb(), pages)).pages == 2
    assert pages.urls == urls(3)


# Give up


async def _deferred(queue: Queue) -> None:
    queue.robots[A] = 503
    await put(queue, *urls(3))
    await settle()
    assert len(queue.deferred()) == 1


async def _ready(queue: Queue) -> None:
    await put(queue, *urls(4))
    await next_url(queue)


async def _fetching(queue: Queue) -> None:
    queue.fetcher.gate.clear()
    await put(queue, *urls(3))
    await settle()


async def _unfetched(queue: Queue) -> None:
    queue.pause()
    await put(queue, *urls(3))


async def _sorted(queue: Queue) -> None:
    """One URL is known to be disallowed, and two are allowed."""
    queue.robots[A] = "User-agent: *\nDisallow: /1\n"
    await put(queue, *urls(3))
    await queue.gate.check(A)


@pytest.mark.parametrize("begin", [_deferred, _ready, _fetching, _unfetched, _sorted])
async def test_the_urls_of_a_host_that_is_given_up_are_refused_whatever_they_wait_for(
    queue: Queue, begin: Callable[[Queue], object], caplog: pytest.LogCaptureFixture
) -> None:
    await begin(queue)  # type: ignore[misc] # each is a coroutine function
    await put(queue, f"{B}/1")
    number = queue.give_up("A.example.", "too \x1b[2J slow")
    assert (number, queue.qsize(), queue.deferred()) == (3, 4, {})
    await queue.put(f"{A}/late")
    assert {f"{A}/late", f"{B}/1"} <= set(left(queue))
    assert len(left(queue)) == 5
    queue.fetcher.gate.set()
    queue.robots.pop(A, None)
    queue.resume()
    log = await drained(queue, workers=3)
    await queue.join()
    assert sorted(log.urls) == [f"{A}/late", f"{B}/1"]
    assert len(queue.refused.items) == len(set(queue.refused.items)) == 3
    for _, verdict in queue.refused.verdicts:
        assert (verdict.allowed, verdict.reason, verdict.note) == (False, Reason.GIVEN_UP, "too \\x1b[2J slow")
    held = queue.statistics()
    assert (held.queued, held.refused, held.given_up, held.deferred) == (0, 3, 3, 0)
    [told] = [text for text in caplog.messages if "gave up" in text]
    assert told.startswith(f"gave up {A}: this crawler has given up the host: too \\x1b[2J slow; ")


async def test_workers_that_wait_refuse_at_once_what_is_given_up_and_each_url_once(queue: Queue) -> None:
    queue.robots[A] = "User-agent: *\nDisallow: /1\nCrawl-delay: 100\n"
    refused: list[object] = []

    def refuse(url: object, _: object) -> None:
        refused.append(url)
        if url == f"{A}/1":  # it was withdrawn from the middle of the URLs of its host
            assert steered.give_up("a.example", "enough") == 2

    steered = queue.made(on_disallowed=refuse)
    await put(steered, *urls(3))
    async with waiting(steered):
        await steered.join()
    assert (refused[0], sorted(map(str, refused))) == (f"{A}/1", urls(3))
    queue.robots[B] = 503
    await put(steered, *urls(2, B))
    async with waiting(steered):
        assert steered.give_up("b.example", "enough") == 2
        await settle()
        assert (len(refused), steered.qsize()) == (5, 0)


async def test_origins_that_were_given_up_take_no_room_from_later_fetches(queue: Queue) -> None:
    queue.fetcher.gate.clear()
    many = [f"https://h{place}.example" for place in range(150)]
    await put(queue, *(f"{origin}/" for origin in many))
    for place in range(150):
        assert queue.give_up(f"h{place}.example", "all of them") == 1
    queue.fetcher.gate.set()
    async with waiting(queue):
        await queue.join()
    assert queue.statistics().given_up == 150
    before = len(queue.fetcher.requests)
    await put(queue, *(f"https://i{place}.example/" for place in range(150)))
    await settle(100)
    assert len(queue.fetcher.requests) - before == 100


async def test_a_page_under_way_is_not_given_up(queue: Queue) -> None:
    queue.robots[B] = 503

    async def handle(page: CrawlPage[object], _: Reply) -> None:
        assert queue.give_up("a.example", "enough") == 2
        assert queue.give_up("b.example", "enough") == 1
        assert queue.give_up("c.example", "enough") == 0
        page.put("/link")

    await put(queue, *urls(3), f"{B}/1")
    report = await queue.crawl(SimulatedWeb(), handle, max_pages=1, workers=1)
    assert (report.pages, report.given_up, report.disallowed, report.left) == (1, 3, 0, 1)
    report = await queue.crawl(SimulatedWeb(), Pages())
    assert (report.pages, report.given_up, report.left) == (1, 0, 0)


async def test_what_is_given_up_is_done_in_the_journal_and_its_record_says_so(tmp_path: Path) -> None:
    journal = tmp_path / "crawl.db"
    records: list[dict[str, object]] = []
    async with made(journal=journal) as queue:
        await put(queue, *urls(3), f"{B}/1")
        queue.give_up("a.example", "moved to the API")
        await queue.crawl(SimulatedWeb(), Pages(), out=records.append)
    shown = [(record["outcome"], record["reason"], record["note"]) for record in records if "reason" in record]
    assert shown == [("given-up", "given-up", "moved to the API")] * 3
    async with made(journal=journal) as queue:
        assert (await queue.crawl(SimulatedWeb(), Pages())).pages == 0


async def test_what_is_given_up_is_refused_though_the_crawl_stops_at_once(tmp_path: Path) -> None:
    journal = tmp_path / "crawl.db"
    async with made(journal=journal) as queue:
        await put(queue, *urls(500), f"{B}/1", f"{B}/2")

        async def handle(page: CrawlPage[object], _: Reply) -> None:
            if page.url.startswith(B):
                queue.give_up("a.example", "moved to the API")
                queue.stop()

        report = await queue.crawl(SimulatedWeb(), handle, workers=1)
        assert (report.given_up + report.pages, report.left) == (501, 1)
        assert [(loss.host, loss.left) for loss in report.losses] == [("a.example", report.given_up)]
    async with made(journal=journal) as queue:
        assert (await queue.crawl(SimulatedWeb(), Pages())).pages == 1


async def test_nothing_is_given_up_before_the_journal_was_read(tmp_path: Path) -> None:
    async with made(journal=tmp_path / "crawl.db") as queue:
        with pytest.raises(ConfigurationError, match="journal"):
            queue.give_up("a.example", "moved to the API")


async def test_a_signal_in_the_last_step_of_a_crawl_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with made(journal=tmp_path / "crawl.db") as queue:
        await put(queue, *urls(1))

        async def flush() -> None:
            signal.raise_signal(signal.SIGTERM)

        monkeypatch.setattr(queue._dispatcher, "flush", flush)
        report = await queue.crawl(SimulatedWeb(), Pages(), stop_on_signals=True)
    assert (report.pages, report.stopped_by) == (1, "SIGTERM")


async def test_the_urls_of_a_large_host_are_refused_a_hundred_in_a_step(queue: Queue) -> None:
    for number in range(5_000):
        queue.put_nowait(f"{A}/{number}", number)
    await settle()
    assert queue.give_up("a.example", "too many") == len(left(queue)) == 5_000
    refused = [0]
    async with waiting(queue):
        while queue.qsize():
            refused.append(len(queue.refused.items))
            await asyncio.sleep(0)
        await queue.join()
    assert sorted(map(str, queue.refused.items)) == sorted(map(str, range(5_000)))
    assert max(after - before for before, after in pairwise(refused[1:])) <= 100


@pytest.mark.parametrize("fetch", ["under way", "not begun"])
async def test_a_url_put_after_a_giving_up_needs_no_second_fetch_of_robots_txt(queue: Queue, fetch: str) -> None:
    # Two fetches ended in two deferrals of one origin, and the end of the second one raised KeyError in a timer.
    queue.robots[A] = [503, 503, 404]
    if fetch == "under way":
        queue.fetcher.gate.clear()
    else:
        queue.pause()
    await queue.put(f"{A}/1")
    await settle()
    assert queue.give_up("a.example", "enough") == 1
    await queue.put(f"{A}/2")
    assert len(queue._dispatcher.robots.fetching) + len(queue._dispatcher.robots.unfetched) == 1
    queue.fetcher.gate.set()
    queue.resume()
    assert await next_url(queue) == f"{A}/2"
    assert (queue.refused.items, queue.fetcher.count(A)) == ([f"{A}/1"], 3)


async def test_what_cannot_be_given_up_or_noted_is_an_error(queue: Queue) -> None:
    for host in ("", "http://a.example", "a.example/path", "user@a.example"):
        with pytest.raises(InvalidURL):
            queue.give_up(host, "enough")
    for wrong in (None, 3, b"a.example"):
        with pytest.raises(TypeError, match="host="):
            queue.give_up(wrong, "enough")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="reason="):
            queue.give_up("a.example", wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="text="):
            queue.note(wrong)  # type: ignore[arg-type]


# Notes


async def test_notes_are_logged_and_reported_with_their_time(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    queue.note("before the crawl")

    async def handle(page: CrawlPage[object], _: Reply) -> None:
        queue.note(f"at \x1b[2J {page.url}")

    report: CrawlReport = await crawled(queue, SimulatedWeb(), handle)
    assert report.notes == (f"2027-01-15T08:00:01Z at \\x1b[2J {A}/",)
    assert caplog.messages == ["before the crawl", f"at \\x1b[2J {A}/"]
    assert (await queue.crawl(SimulatedWeb(), handle)).notes == ()


async def test_the_last_notes_of_a_long_crawl_are_kept(queue: Queue) -> None:
    async def handle(_: CrawlPage[object], __: Reply) -> None:
        for number in range(1_500):
            queue.note(f"note {number} {'x' * 600}")

    report = await crawled(queue, SimulatedWeb(), handle)
    assert (len(report.notes), "note 500 " in report.notes[0]) == (1_000, True)
    assert max(map(len, report.notes)) < 530
