"""How a crawl ends before it is done: nothing hangs, and each URL is handled once, left in the queue, or failed."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import product
from typing import Any

import pytest

from politesse import ClosedError, Gatekeeper
from politesse.queue import CrawlPage
from politesse.testing import ManualClock
from tests.core.queue.crawl import A, B, Queue, left, made, put, urls
from tests.core.queue.simulated import Errors, Pages, Replies, Reply, SimulatedWeb, crawled, follow_links, moved
from tests.support.tiers import first_of


@pytest.fixture
async def filled(queue: Queue) -> Queue:
    for place in range(6):
        await queue.put(f"https://h{place % 3}.example/{place}", place)
    return queue


ALL = sorted(f"https://h{place % 3}.example/{place}" for place in range(6))


async def test_a_handler_that_raises_is_reported_with_its_url_and_the_crawl_goes_on(
    filled: Queue, errors: Errors, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(page: CrawlPage[object], _: Reply) -> None:
        if page.item == 2:
            raise LookupError("no title\x1b[2J in\nthis page")

    report = await filled.crawl(SimulatedWeb(), handle, on_error=errors)
    assert [(url, type(error)) for url, error in errors.seen] == [("https://h2.example/2", LookupError)]
    assert (report.pages, report.failed, report.left) == (5, 1, 0)
    assert report.first_error.startswith("https://h2.example/2: LookupError: no title")
    assert str(report).endswith(f" s; first error of handle: {report.first_error}")
    assert "\x1b" not in str(report)
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.name == "politesse.queue"
    assert record.getMessage().startswith("handle failed on https://h2.example/2\n  Traceback")
    assert "no title\\x1b[2J in" in record.getMessage()
    assert "\x1b" not in record.getMessage()


async def test_a_closed_error_ends_the_crawl_only_if_it_is_of_the_client(filled: Queue, errors: Errors) -> None:
    async def handle(page: CrawlPage[object], _: Reply) -> None:
        if page.item == 2:
            raise ClosedError("a database of the program is closed")

    web = SimulatedWeb({"https://h0.example/3": ClosedError("the transport was closed")})
    with pytest.raises(ClosedError, match="closed, with 3 URLs queued"):
        await filled.crawl(web, handle, workers=1, on_error=errors)
    assert [(url, type(error)) for url, error in errors.seen] == [("https://h2.example/2", ClosedError)]
    assert "https://h0.example/3" in left(filled)


async def test_a_cancellation_that_handle_makes_up_is_a_failure(filled: Queue, errors: Errors) -> None:
    async def handle(page: CrawlPage[object], _: Reply) -> None:
        raise asyncio.CancelledError

    report = await filled.crawl(SimulatedWeb(), handle, on_error=errors)
    assert (report.pages, report.failed) == (0, 6)
    assert {type(error) for _, error in errors.seen} == {asyncio.CancelledError}


async def test_the_report_names_the_first_error_of_handle_only(filled: Queue) -> None:
    web = SimulatedWeb({"https://h0.example/0": ConnectionError("reset")})

    async def handle(page: CrawlPage[object], _: Reply) -> None:
        raise ValueError(page.url)

    report = await filled.crawl(web, handle, workers=1)
    assert report.failed == 6
    assert report.first_error == "https://h1.example/1: ValueError: https://h1.example/1"
    assert (await filled.crawl(web, handle)).first_error == ""


async def test_a_link_that_is_put_in_a_thread_fails_its_page_and_the_crawl_ends(queue: Queue, errors: Errors) -> None:
    async def handle(page: CrawlPage[object], _: Reply) -> None:
        await asyncio.to_thread(page.put, "/a")

    async with asyncio.timeout(10):
        report = await crawled(queue, SimulatedWeb(), handle, on_error=errors)
    assert (report.pages, report.failed, report.left) == (0, 1, 0)
    assert "event loop" in errors.texts[0]


class Swallowing(SimulatedWeb):
    """Takes a cancellation for a timeout, as aiohttp does if both come at once."""

    @asynccontextmanager
    async def stream(self, method: str, url: str, **options: Any) -> AsyncIterator[Reply]:
        async with super().stream(method, url, **options) as reply:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                assert task is not None
                task.uncancel()
                raise TimeoutError from None
            yield reply


async def test_cancellation_that_the_client_takes_for_a_timeout_ends_the_crawl(queue: Queue) -> None:
    web = Swallowing()
    await put(queue, *urls(5))
    crawling = asyncio.create_task(queue.crawl(web, follow_links, workers=1))
    while not web.requests:
        await asyncio.sleep(0)
    crawling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await crawling
    assert (web.urls, queue.qsize()) == ([f"{A}/0"], 4)


async def test_the_log_says_that_a_crawl_was_cancelled(filled: Queue, caplog: pytest.LogCaptureFixture) -> None:
    async def handle(_: CrawlPage[object], __: Reply) -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(filled.crawl(SimulatedWeb(), handle))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    said = "the crawl was cancelled; 6 URLs left at 3 hosts"
    assert said in caplog.messages
    assert caught.value.__notes__ == [said]  # part of the traceback of a KeyboardInterrupt


async def test_an_error_of_handle_ends_the_crawl_if_told_to(filled: Queue, caplog: pytest.LogCaptureFixture) -> None:
    entered: list[object] = []

    async def handle(page: CrawlPage[object], _: Reply) -> None:
        entered.append(page.url)
        if len(entered) == 3:
            raise LookupError("no title")
        await asyncio.Event().wait()

    with pytest.raises(LookupError, match="no title"):
        await filled.crawl(SimulatedWeb(), handle, stop_on_error=True)
    assert left(filled) == sorted(set(ALL) - {entered[2]})
    assert "the crawl was ended by LookupError; 5 URLs left at 3 hosts" in caplog.messages
    assert (await filled.crawl(SimulatedWeb(), follow_links)).pages == 5


async def test_what_a_callback_raises_ends_the_crawl(filled: Queue, pages: Pages) -> None:
    def broken(*_: object) -> None:
        raise KeyError("of the callback")

    with pytest.raises(KeyError, match="of the callback"):
        await filled.crawl(SimulatedWeb(), pages, on_progress=broken, workers=1)
    assert sorted([*pages.urls, *left(filled)]) == ALL
    web = SimulatedWeb({"https://h1.example/1": OSError("reset")})
    with pytest.raises(KeyError, match="of the callback"):
        await filled.crawl(web, pages, on_error=broken)
    assert "https://h1.example/1" not in left(filled)


async def test_what_on_disallowed_raises_ends_the_crawl(queue: Queue) -> None:
    def broken(*_: object) -> None:
        raise KeyError("of on_disallowed")

    queue.robots[A] = "User-agent: *\nDisallow: /\n"
    queue = queue.made(on_disallowed=broken)
    await queue.put(f"{B}/1")
    with pytest.raises(KeyError, match="of on_disallowed"):
        await crawled(queue, SimulatedWeb(), follow_links)


class Broken:
    """A ``seen`` whose database goes away."""

    def __init__(self, works: int, *, on_add: bool) -> None:
        self.works = works
        self.on_add = on_add
        self.urls: set[str] = set()

    def _work(self) -> None:
        self.works -= 1
        if self.works < 0:
            raise ConnectionError("database is gone")

    def __contains__(self, url: object) -> bool:
        if not self.on_add:
            self._work()
        return url in self.urls

    def add(self, url: str) -> None:
        if self.on_add:
            self._work()
        self.urls.add(url)


async def test_a_seen_that_fails_ends_the_crawl_with_its_error() -> None:
    for works, on_add, swallows in product(range(7), (True, False), (True, False)):
        async with made() as queue:
            await crawl_with(Broken(works, on_add=on_add), queue, swallows, works < (6 if on_add else 5))


async def crawl_with(seen: Broken, queue: Queue, swallows: bool, fails: bool) -> None:  # noqa: FBT001 - as above
    pages, errors, done = Pages(), Errors(), list[str]()
    replies = {f"{A}/": Reply(links=["/1", "/2", f"{B}/old"]), f"{B}/old": moved("/new"), f"{A}/2": Reply(links=["/3"])}

    async def handle(page: CrawlPage[object], reply: Reply) -> None:
        try:
            await pages(page, reply)
        except ConnectionError:
            if not swallows:
                raise
        done.append(page.url)

    crawl = crawled(queue, SimulatedWeb(replies), handle, seen=seen, on_error=errors)
    async with asyncio.timeout(10):
        if fails:
            with pytest.raises(ConnectionError, match="database is gone"):
                await crawl
        else:
            assert (await crawl).pages == 5
            assert queue.qsize() == 0
    assert errors.seen == []
    assert not set(done) & set(left(queue))
    settled = {*done, *left(queue)}
    assert {f"{A}/", *seen.urls} - settled <= {f"{B}/old"}  # its target was admitted
    assert f"{B}/old" not in seen.urls or settled & {f"{B}/old", f"{B}/new"}


async def test_a_client_that_was_closed_before_is_an_error_at_once(filled: Queue, gate: Gatekeeper) -> None:
    web = SimulatedWeb()
    await web.aclose()
    with pytest.raises(ClosedError, match="the session of the crawl is closed, with 6 URLs queued"):
        await filled.crawl(web, follow_links)
    assert left(filled) == ALL
    assert gate.statistics().decisions == 0  # no turn was taken


async def test_a_client_that_is_closed_meanwhile_ends_the_crawl_and_no_url_is_lost(filled: Queue) -> None:
    web, pages = SimulatedWeb(), Pages()

    async def handle(page: CrawlPage[object], reply: Reply) -> None:
        await pages(page, reply)
        if len(pages.handled) == 2:
            await web.aclose()

    with pytest.raises(ClosedError, match="the session of the crawl is closed"):
        await filled.crawl(web, handle)
    assert len(pages.handled) >= 2
    assert sorted([*pages.urls, *left(filled)]) == ALL


async def test_a_gate_that_is_closed_meanwhile_ends_the_crawl_and_no_url_is_lost(filled: Queue) -> None:
    pages = Pages()
    crawl = asyncio.create_task(filled.crawl(SimulatedWeb(clock=filled.clock, took_s=3), pages))
    while len(pages.handled) < 2:
        await asyncio.sleep(0)
    await filled.gate.aclose()
    with pytest.raises(ClosedError):
        await crawl
    assert sorted([*pages.urls, *left(filled)]) == ALL
    with pytest.raises(ClosedError):
        await filled.join()


@pytest.mark.parametrize("seeds", first_of(1, [range(6), range(6, 60)]))
async def test_a_cancelled_crawl_loses_and_doubles_nothing(seeds: range, caplog: pytest.LogCaptureFixture) -> None:
    for seed in seeds:
        await crawl_and_cancel(random.Random(seed), caplog)


async def crawl_and_cancel(chance: random.Random, caplog: pytest.LogCaptureFixture) -> None:
    clock, errors, handled = ManualClock(autojump=True), Errors(), Counter[str]()
    web = SimulatedWeb(_random_replies(chance), clock, took_s=0.7)

    async def handle(page: CrawlPage[object], reply: Reply) -> None:
        await clock.sleep(chance.random() * 3)
        await follow_links(page, reply)
        handled[page.url] += 1

    async with made(clock) as queue:
        await queue.put("https://h0.example/0")
        seen: set[str] = set()
        for _ in range(4):
            crawl = asyncio.create_task(queue.crawl(web, handle, workers=5, seen=seen, on_error=errors))
            await clock.sleep(chance.random() * 12)
            for _ in range(chance.randrange(30)):
                await asyncio.sleep(0)
            crawl.cancel()
            finished, _ = await asyncio.wait([crawl], timeout=20)
            assert finished
            failed = [url for url, _ in errors.seen]
            moved_on = [url for url in seen if _is_moved(url) and url not in left(queue)]
            assert sorted([*handled.elements(), *left(queue), *failed, *moved_on]) == sorted(seen)
            if crawl.cancelled():
                hosts, size = len({url.split("/")[2] for url in left(queue)}), queue.qsize()
                shown = f"{size} URL{'s' * (size != 1)} left at {hosts} host{'s' * (hosts != 1)}"
                assert caplog.messages[-1].endswith(f"; {shown}")
        async with asyncio.timeout(20):
            await queue.crawl(web, handle, seen=seen, on_error=errors)
    assert set(handled.values()) == {1}
    assert queue.qsize() == 0


def _is_moved(url: str) -> bool:
    return int(url.rpartition("/")[2]) % 5 == 3


def _random_replies(chance: random.Random) -> Callable[[str], Replies]:
    """Return a web of 60 pages at six hosts, some of which redirect, are busy at first, or fail."""
    pages = [f"https://h{place % 6}.example/{place}" for place in range(60)]
    busy: set[str] = set()

    def reply(url: str) -> Reply | Exception:
        place = int(url.rpartition("/")[2])
        if _is_moved(url):
            return moved(pages[(place * 7 + 1) % 60])
        if place % 11 == 5:
            return OSError("reset")
        if place % 13 == 7 and url not in busy:
            busy.add(url)
            return Reply(503, {"Retry-After": "5"})
        return Reply(links=chance.sample(pages, 6))

    return reply
