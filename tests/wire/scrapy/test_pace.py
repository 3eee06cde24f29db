"""The pace of Scrapy crawls as the servers saw it, under hostile settings, and of several spiders in a process."""

import asyncio
from itertools import pairwise
from typing import Final

import pytest
from aiohttp import web

from politesse.testing import Exchange
from tests.wire.scrapy.crawling import (
    ADDON,
    Site,
    answering,
    assert_sites_polite,
    chain,
    crawl,
    html,
    in_turn,
    least_gap_s,
    redirect,
    serving,
    status,
    text,
)

pytestmark = [pytest.mark.realtime, pytest.mark.full]

ONE_S: Final = "User-agent: *\nCrawl-delay: 1\n"
FLOOR_S: Final = 0.1
SETTINGS: Final = ADDON | {"RETRY_TIMES": 2}
MANY: Final = [f"/{number}" for number in range(6)]

# Scrapy's own default jitter is on in all of them.
HURRIED: Final = ADDON | {
    "DOWNLOAD_DELAY": FLOOR_S,
    "CONCURRENT_REQUESTS": 4,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
    "AUTOTHROTTLE_ENABLED": True,
    "AUTOTHROTTLE_START_DELAY": 0.01,
    "AUTOTHROTTLE_TARGET_CONCURRENCY": 100.0,
}


@pytest.mark.clause("RFC 9110 5.3")
async def test_all_lines_of_a_header_set_the_pace() -> None:
    def limited() -> web.Response:
        answer = html("/a")()
        for line in ('"daily";r=1000;t=1000', '"burst";r=0;t=4'):
            answer.headers.add("RateLimit", line)
        return answer

    site = Site(404, {"/": limited, "/a": html()})
    async with serving(site):
        await crawl([f"{site.base}/"], HURRIED)
    assert site.page_paths == ["/", "/a"]
    first, second = site.page_exchanges
    assert second.started - first.ended >= 3.9


async def test_first_of_two_locations_of_a_robots_txt_is_followed() -> None:
    def moved() -> web.Response:
        answer = redirect("/rules.txt")()
        answer.headers.add("Location", "/other.txt")
        return answer

    site = Site(answering(moved), {"/": html(), "/rules.txt": text("User-agent: *\nDisallow: /\n")})
    async with serving(site):
        done = await crawl([f"{site.base}/"], HURRIED)
    assert site.paths == ["/robots.txt", "/rules.txt"]
    assert done.pages == []


async def test_each_of_many_hosts_keeps_its_pace_whatever_slots_and_throttle_say() -> None:
    wide = Site(f"{ONE_S}Disallow: /private\n", {"/": html(*MANY, "/private"), **dict.fromkeys(MANY, html())})
    # Each with a download_slot of its own: as many slots, and still one host.
    slots = Site(ONE_S, {"/": html(*(f"{path}#slot" for path in MANY)), **dict.fromkeys(MANY, html())})
    heavy = Site(ONE_S, {"/": html("/a"), "/a": html()}, page_s=3.0)
    there, here = Site(ONE_S), Site(ONE_S)
    busy = Site(ONE_S, {"/": in_turn(status(429, Retry_After="3"), html("/a")), "/a": html()})
    direct = Site(ONE_S, {"/": html(), "/x": html(), "/y": html()})
    fast = Site(404, chain(10))
    sites = [wide, slots, heavy, there, busy, direct, here, fast]
    async with serving(*sites):
        there.pages = {"/": redirect(f"{here.base}/on"), "/back": html("/last"), "/last": html()}
        here.pages = {"/on": redirect(f"{there.base}/back")}
        urls = [f"{site.base}/" for site in sites[:6]] + [f"{fast.base}/0"]
        # A request that a callback gives to the engine passes no scheduler.
        beside = {f"{direct.base}/": [f"{direct.base}/x", f"{direct.base}/y"]}
        done = await crawl(urls, HURRIED | {"RETRY_TIMES": 1}, direct=beside)
    assert_sites_polite(*sites, min_delay_s=FLOOR_S)
    assert done.stats["finish_reason"] == "finished"
    for site in sites:
        assert site.robots_count == 1
        assert site.paths[0] == "/robots.txt"
    for site in sites[:6]:
        assert least_gap_s(site, every=True) >= 1.0
    for site in (wide, slots):
        assert sorted(site.page_paths) == sorted(["/", *MANY])
    assert heavy.page_paths == ["/", "/a"]
    assert least_gap_s(heavy) >= 3.0  # a pause after a slow response is as long as the response took
    assert there.page_paths == ["/", "/back", "/last"]
    assert here.page_paths == ["/on"]
    assert busy.page_paths == ["/", "/", "/a"]
    assert busy.page_exchanges[1].started - busy.page_exchanges[0].ended >= 3.0
    assert sorted(direct.page_paths) == ["/", "/x", "/y"]
    # The fast host has one page at a time to be found, and the slow ones have queues that would fill every place.
    assert len(fast.page_paths) == 10
    assert fast.page_exchanges[-1].ended < wide.page_exchanges[-2].started
    # A request that waits is put back once at most, and each page is one decision however long it waits.
    pages = sum(len(site.page_exchanges) for site in sites)
    assert int(done.stats["scheduler/enqueued"]) <= 2 * pages
    assert done.decisions == pages + 1


async def test_download_delay_counts_from_the_end_of_an_answer_and_download_slots_set_that_of_a_host() -> None:
    floored, listed = Site(404, chain(4), page_s=0.3), Site(404, chain(3))
    async with serving(floored, listed):
        throttle = {"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_START_DELAY": 1.5, "AUTOTHROTTLE_MAX_DELAY": 2.0}
        slots = {"DOWNLOAD_DELAY": 0.7, "DOWNLOAD_SLOTS": {"127.0.0.3": {"delay": 1.2, "concurrency": 5}}}
        await crawl([f"{site.base}/0" for site in (floored, listed)], ADDON | throttle | slots)
    assert (floored.page_paths, listed.page_paths) == (["/0", "/1", "/2", "/3"], ["/0", "/1", "/2"])
    assert least_gap_s(floored, every=True) >= 0.7
    assert least_gap_s(listed) >= 1.2


def named(name: str, **settings: object) -> dict[str, object]:
    return {"USER_AGENT": f"{name}/1.0 (+https://example.com/bot)", **settings}


def pages(site: Site) -> list[tuple[str, Exchange]]:
    """Return the pages that were requested, in order, each with the name of the spider."""
    both = zip(site.agents, site.exchanges, strict=True)
    found = [(agent, exchange) for agent, exchange in both if not exchange.url.endswith("/robots.txt")]
    return sorted(found, key=lambda page: page[1].started)


def assert_each_keeps_its_delay(site: Site, delays_s: dict[str, float]) -> None:
    """Each request keeps the delay of its spider; while the slowest spider crawls, all keep its delay."""
    seen = pages(site)
    slowest = max(delays_s, key=delays_s.__getitem__)
    places = [place for place, (agent, _) in enumerate(seen) if agent == slowest]
    for place, ((_, before), (agent, after)) in enumerate(pairwise(seen)):
        gap_s = after.started - before.ended
        assert gap_s >= delays_s[agent], (place, agent, gap_s)
        if places[0] <= place < places[-1]:
            assert gap_s >= delays_s[slowest], (place, agent, gap_s)


async def test_two_spiders_of_unlike_delay_and_name_keep_the_slower_delay_together() -> None:
    delays_s = {"QuickBot": 0.2, "SlowBot": 0.7}
    site = Site("User-agent: *\nAllow: /\n", chain(4), page_s=0.1)
    quick = named("QuickBot", DOWNLOAD_DELAY=0.2)
    slow = named("SlowBot", DOWNLOAD_SLOTS={"127.0.0.2": {"delay": 0.7}}, POLITESSE_PACING={"adaptive_factor": 0.0})
    async with serving(site):
        await crawl([f"{site.base}/0"], SETTINGS | quick, beside=[slow])
    assert sorted(site.page_paths) == sorted(["/0", "/1", "/2", "/3"] * 2)
    assert site.robots_count == 1
    assert_each_keeps_its_delay(site, delays_s)


async def test_ten_spiders_make_one_request_at_a_time_and_share_one_robots_txt() -> None:
    async def robots(_: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(0.3)
        return text("User-agent: *\nDisallow: /private\n")()

    site = Site(robots, {"/": html("/private")}, page_s=0.1)
    async with serving(site):
        beside = [named(f"Bot-{chr(ord('a') + number)}") for number in range(9)]
        await crawl([f"{site.base}/"], SETTINGS | {"DOWNLOAD_DELAY": 0.2}, beside=beside)
    assert site.page_paths == ["/"] * 10
    assert site.robots_count == 1
    assert_sites_polite(site, min_delay_s=0.2)
