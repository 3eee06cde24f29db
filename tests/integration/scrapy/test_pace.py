"""The pace of a Scrapy crawl as the servers saw it, under settings that would break it if they could."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest
from aiohttp import web

from tests.integration.scrapy.crawling import (
    ADDON,
    Site,
    assert_sites_polite,
    chain,
    crawl,
    html,
    in_turn,
    redirect,
    serving,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse.testing import Exchange

pytestmark = pytest.mark.realtime

ONE_S: Final = "User-agent: *\nCrawl-delay: 1\n"
FLOOR_S: Final = 0.1

# Scrapy's own default jitter is on in all of them.
HURRIED: Final = ADDON | {
    "DOWNLOAD_DELAY": FLOOR_S,
    "CONCURRENT_REQUESTS": 4,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
    "AUTOTHROTTLE_ENABLED": True,
    "AUTOTHROTTLE_START_DELAY": 0.01,
    "AUTOTHROTTLE_TARGET_CONCURRENCY": 100.0,
}


def gaps_s(exchanges: list[Exchange]) -> list[float]:
    """Return the pauses from the end of each answer to the next request; negative where they overlap."""
    ordered = sorted(exchanges, key=lambda exchange: exchange.started)
    return [after.started - before.ended for before, after in pairwise(ordered)]


def refused(retry_after: str) -> Callable[[], web.Response]:
    return lambda: web.Response(status=429, headers={"Retry-After": retry_after})


async def test_every_pause_is_kept_and_a_slow_host_holds_up_nobody() -> None:
    many = [f"/{number}" for number in range(6)]
    wide = Site(ONE_S, {"/": html(*many), **dict.fromkeys(many, html())})
    # Each with a download_slot of its own: as many slots, and still one host.
    slots = Site(ONE_S, {"/": html(*(f"{path}#slot" for path in many)), **dict.fromkeys(many, html())})
    heavy = Site(ONE_S, {"/": html("/a"), "/a": html()}, page_s=3.0)
    there = Site(ONE_S)
    here = Site(ONE_S)
    busy = Site(ONE_S, {"/": in_turn(refused("3"), html("/a")), "/a": html()})
    direct = Site(ONE_S, {"/": html(), "/x": html(), "/y": html()})
    fast = Site(404, chain(10))
    sites = (wide, slots, heavy, there, here, busy, direct, fast)
    async with serving(*sites):
        there.pages = {"/": redirect(f"{here.base}/on"), "/back": html("/last"), "/last": html()}
        here.pages = {"/on": redirect(f"{there.base}/back")}
        urls = [f"{site.base}/" for site in (wide, slots, heavy, there, busy, direct)] + [f"{fast.base}/0"]
        # What a callback asks the engine for passes no scheduler.
        beside = {f"{direct.base}/": [f"{direct.base}/x", f"{direct.base}/y"]}
        done = await crawl(urls, HURRIED | {"RETRY_TIMES": 1}, direct=beside)
    assert_sites_polite(*sites, min_delay_s=FLOOR_S)
    for site in sites:
        assert site.robots_count == 1
        assert site.paths[0] == "/robots.txt"
    for site in (wide, slots, heavy, there, busy, direct):
        assert min(gaps_s(site.exchanges)) >= 1.0
    for site in (wide, slots):
        assert sorted(site.page_paths) == sorted(["/", *many])
    assert heavy.page_paths == ["/", "/a"]
    # What the host was slow with it is left alone for.
    assert gaps_s(heavy.page_exchanges)[0] >= 3.0
    assert there.page_paths == ["/", "/back", "/last"]
    assert here.page_paths == ["/on"]
    assert busy.page_paths == ["/", "/", "/a"]
    assert gaps_s(busy.page_exchanges)[0] >= 3.0
    assert sorted(direct.page_paths) == ["/", "/x", "/y"]
    assert min(gaps_s(fast.page_exchanges)) >= FLOOR_S
    # It has one page at a time to be found, and the others have queues that would fill every place.
    assert fast.page_exchanges[-1].ended < wide.page_exchanges[-2].started
    assert len(fast.page_exchanges) == 10
    assert done.stats["finish_reason"] == "finished"


async def test_a_minute_of_rest_makes_scrapy_forget_the_slot_but_not_the_pace() -> None:
    site = Site("User-agent: *\nCrawl-delay: 1.5\n", chain(3))
    async with serving(site):
        done = await crawl([f"{site.base}/0"], HURRIED, forget_slots=True)
    assert done.slots == []  # it had forgotten all of them
    assert site.page_paths == ["/0", "/1", "/2"]
    assert min(gaps_s(site.exchanges)) >= 1.5


async def test_download_delay_counts_from_the_end_of_an_answer_and_autothrottle_only_lengthens_it() -> None:
    plain, listed = Site(404, chain(4), page_s=0.3), Site(404, chain(3))
    throttle = {"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_START_DELAY": 1.5, "AUTOTHROTTLE_MAX_DELAY": 2.0}
    async with serving(plain, listed):
        slots = {"DOWNLOAD_DELAY": 0.7, "DOWNLOAD_SLOTS": {"127.0.0.3": {"delay": 1.2, "concurrency": 5}}}
        await crawl([f"{site.base}/0" for site in (plain, listed)], ADDON | throttle | slots)
    assert plain.page_paths == ["/0", "/1", "/2", "/3"]
    assert min(gaps_s(plain.exchanges)) >= 0.7
    assert listed.page_paths == ["/0", "/1", "/2"]
    assert min(gaps_s(listed.page_exchanges)) >= 1.2
