"""A running crawl is steered by HTTP: what the servers see from then on, and what the report says."""

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import pairwise

import pytest
from aiohttp import ClientResponse

from politesse import Gatekeeper, PoliteSession
from politesse.queue import CrawlPage, CrawlReport, PoliteQueue
from politesse.watch import app, serve
from tests.support.sites import EAGER, UA, Site, slow_gate, until
from tests.wire.watch.watching import TOKEN, Browser, browsing, mounted

pytestmark = pytest.mark.realtime

PAGES = 10
FIRST = "/0"


@pytest.fixture
async def gate() -> AsyncIterator[Gatekeeper]:
    async with Gatekeeper(UA, pacing=EAGER) as gate:
        yield gate


class Crawl:
    """A crawl of two sites whose first page of ``site`` waits until it is let go on."""

    def __init__(self, gate: Gatekeeper, queue: PoliteQueue[None], *sites: Site) -> None:
        self._gate = gate
        self._queue = queue
        self._sites = sites
        self.reached = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def run(self) -> CrawlReport:
        for number in range(PAGES):
            for site in self._sites:
                await self._queue.put(f"{site.base}/{number}", priority=number)
        async with PoliteSession(self._gate) as web:
            return await self._queue.crawl(web, self._handle, workers=1)

    async def _handle(self, page: CrawlPage[None], response: ClientResponse) -> None:
        await response.read()
        if page.url == f"{self._sites[0].base}{FIRST}":
            self.reached.set()
            await self.goes_on.wait()


async def steered(crawl: Crawl, order: Callable[[], object]) -> CrawlReport:
    """Give an order while a page is under way, and return the report of the crawl."""
    task = asyncio.create_task(crawl.run())
    await crawl.reached.wait()
    answer = order()
    if asyncio.iscoroutine(answer):
        await answer
    crawl.goes_on.set()
    return await task


async def test_a_crawl_that_is_paused_requests_nothing_until_it_continues(
    gate: Gatekeeper, queue: PoliteQueue[None], browser: Browser, site: Site
) -> None:
    crawl = Crawl(gate, queue, site)
    task = asyncio.create_task(crawl.run())
    await crawl.reached.wait()
    assert await browser.order("pause") == "The crawl is paused"
    crawl.goes_on.set()
    await until(lambda: queue.statistics().under_way == 0)
    seen = len(site.pages)
    for _ in range(100):
        await asyncio.sleep(0)
    state = (await browser.ask("statistics"))["crawl"]
    assert (state["paused"], state["queued"], len(site.pages)) == (True, PAGES - seen, seen)
    assert await browser.order("continue", reason="the site is well again") == "The crawl continues"
    report = await task
    assert (report.pages, len(site.pages)) == (PAGES, PAGES)
    assert [note.partition(" ")[2] for note in report.notes] == [
        "The crawl is paused, by a watcher at 127.0.0.1: a reason",
        "The crawl continues, by a watcher at 127.0.0.1: the site is well again",
    ]


async def test_a_crawl_that_is_stopped_finishes_what_is_under_way_and_leaves_the_rest(
    gate: Gatekeeper, queue: PoliteQueue[None], browser: Browser, site: Site
) -> None:
    async def stop() -> None:
        assert await browser.order("stop") == "The crawl is stopping"
        assert (await browser.ask("statistics"))["crawl"]["stopping"] is True
        for action in ("continue", "pause"):
            assert "the crawl is stopping" in await browser.order(action, 400)

    report = await steered(Crawl(gate, queue, site), stop)
    assert (report.pages, report.left, site.pages) == (1, PAGES - 1, [FIRST])


async def test_a_host_that_is_given_up_or_denied_gets_no_more_requests(
    gate: Gatekeeper, queue: PoliteQueue[None], browser: Browser, site: Site, other: Site
) -> None:
    async def order() -> None:
        assert await browser.order("give_up", host="127.0.0.1") == f"127.0.0.1: given up, {PAGES - 1} URLs"
        assert await browser.order("deny", host="localhost") == "localhost: denied"

    report = await steered(Crawl(gate, queue, site, other), order)
    assert (report.given_up, report.left) == (PAGES - 1, 0)
    assert (site.pages, report.disallowed + len(other.pages)) == ([FIRST], PAGES)
    assert len(other.pages) <= 1


async def test_a_site_that_is_slowed_down_is_requested_at_the_new_pace(site: Site) -> None:
    async with slow_gate(0.0) as gate:
        queue: PoliteQueue[None] = PoliteQueue(gate)
        async with await serve(gate, queue, port=0, token=TOKEN) as server, browsing(server.url) as browser:
            await steered(Crawl(gate, queue, site), lambda: browser.order("pace", host="127.0.0.1", min_delay_s=0.05))
        starts = [seen.started for seen in site.seen if seen.path != "/robots.txt"]
        assert all(later - earlier >= 0.05 for earlier, later in pairwise(starts[1:]))


async def test_each_of_two_queues_is_watched_and_steered_alone(gate: Gatekeeper, site: Site, other: Site) -> None:
    one, two = PoliteQueue[None](gate), PoliteQueue[None](gate)
    watches = app(gate, one, TOKEN), app(gate, two, TOKEN)
    async with mounted(watches[0]) as first, mounted(watches[1], "/two") as second:
        assert await first.order("pause")
        await one.put(f"{site.base}/0")
        assert (await first.ask("statistics"))["crawl"] == {
            "queued": 1,
            "under_way": 0,
            "hosts": 1,
            "paused": True,
            "stopping": False,
        }
        state = (await second.ask("statistics"))["crawl"]
        assert (state["queued"], state["paused"]) == (0, False)
        crawl = Crawl(gate, two, other)
        crawl.goes_on.set()
        assert (await crawl.run()).pages == PAGES
        assert (site.seen, one.qsize()) == ([], 1)
