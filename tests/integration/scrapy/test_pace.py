"""The pace of a Scrapy crawl as the servers saw it, under settings that would break it if they could."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
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
    from tests.integration.scrapy.crawling import Crawl

pytestmark = pytest.mark.realtime

ONE_S: Final = "User-agent: *\nCrawl-delay: 1\n"
FLOOR_S: Final = 0.1
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


def gaps_s(exchanges: list[Exchange]) -> list[float]:
    """Return the pauses from the end of each answer to the next request; negative where they overlap."""
    ordered = sorted(exchanges, key=lambda exchange: exchange.started)
    return [after.started - before.ended for before, after in pairwise(ordered)]


def refused(retry_after: str) -> Callable[[], web.Response]:
    return lambda: web.Response(status=429, headers={"Retry-After": retry_after})


@dataclass(frozen=True)
class Seen:
    """What the servers of the crawls have seen: many hosts, lost slots, a floor, two spiders of one process."""

    hosts: dict[str, Site]
    done: Crawl
    forgotten: Site
    slots_left: list[str]
    floored: Site
    listed: Site
    shared: Site
    unlike: tuple[Site, Crawl]


@pytest.fixture(scope="module")
def seen() -> Seen:
    async def side_by_side() -> Seen:
        (hosts, done), (forgotten, slots_left), (floored, listed), (shared, _), unlike = await asyncio.gather(
            crawl_hosts(),
            crawl_forgetfully(),
            crawl_with_a_floor(),
            crawl_with_two_spiders({}),
            crawl_with_two_spiders({"DOWNLOAD_DELAY": 0.3}),
        )
        return Seen(hosts, done, forgotten, slots_left, floored, listed, shared, unlike)

    return asyncio.run(side_by_side())


async def crawl_hosts() -> tuple[dict[str, Site], Crawl]:
    wide = Site(ONE_S, {"/": html(*MANY), **dict.fromkeys(MANY, html())})
    # Each with a download_slot of its own: as many slots, and still one host.
    slots = Site(ONE_S, {"/": html(*(f"{path}#slot" for path in MANY)), **dict.fromkeys(MANY, html())})
    heavy = Site(ONE_S, {"/": html("/a"), "/a": html()}, page_s=3.0)
    there, here = Site(ONE_S), Site(ONE_S)
    busy = Site(ONE_S, {"/": in_turn(refused("3"), html("/a")), "/a": html()})
    direct = Site(ONE_S, {"/": html(), "/x": html(), "/y": html()})
    fast = Site(404, chain(10))
    async with serving(wide, slots, heavy, there, here, busy, direct, fast):
        there.pages = {"/": redirect(f"{here.base}/on"), "/back": html("/last"), "/last": html()}
        here.pages = {"/on": redirect(f"{there.base}/back")}
        urls = [f"{site.base}/" for site in (wide, slots, heavy, there, busy, direct)] + [f"{fast.base}/0"]
        # What a callback asks the engine for passes no scheduler.
        beside = {f"{direct.base}/": [f"{direct.base}/x", f"{direct.base}/y"]}
        done = await crawl(urls, HURRIED | {"RETRY_TIMES": 1}, direct=beside)
    hosts = {"wide": wide, "slots": slots, "heavy": heavy, "there": there}
    return hosts | {"here": here, "busy": busy, "direct": direct, "fast": fast}, done


async def crawl_forgetfully() -> tuple[Site, list[str]]:
    site = Site("User-agent: *\nCrawl-delay: 1.5\n", chain(3))
    async with serving(site):
        done = await crawl([f"{site.base}/0"], HURRIED, forget_slots=True)
    return site, done.slots


async def crawl_with_a_floor() -> tuple[Site, Site]:
    floored, listed = Site(404, chain(4), page_s=0.3), Site(404, chain(3))
    async with serving(floored, listed):
        throttle = {"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_START_DELAY": 1.5, "AUTOTHROTTLE_MAX_DELAY": 2.0}
        slots = {"DOWNLOAD_DELAY": 0.7, "DOWNLOAD_SLOTS": {"127.0.0.3": {"delay": 1.2, "concurrency": 5}}}
        await crawl([f"{site.base}/0" for site in (floored, listed)], ADDON | throttle | slots)
    return floored, listed


async def crawl_with_two_spiders(others: dict[str, float]) -> tuple[Site, Crawl]:
    site = Site(404, chain(4), page_s=0.2)
    async with serving(site):
        done = await crawl([f"{site.base}/0"], ADDON | {"DOWNLOAD_DELAY": 0.5}, beside=[others])
    return site, done


def test_a_crawl_of_many_hosts_is_polite_to_each(seen: Seen) -> None:
    assert_sites_polite(*seen.hosts.values(), min_delay_s=FLOOR_S)
    assert seen.done.stats["finish_reason"] == "finished"
    for site in seen.hosts.values():
        assert site.robots_count == 1
        assert site.paths[0] == "/robots.txt"


@pytest.mark.parametrize("host", ["wide", "slots", "heavy", "there", "busy", "direct"])
def test_no_pause_is_shorter_than_the_crawl_delay(seen: Seen, host: str) -> None:
    assert min(gaps_s(seen.hosts[host].exchanges)) >= 1.0


@pytest.mark.parametrize("host", ["wide", "slots"])
def test_every_page_is_requested_once(seen: Seen, host: str) -> None:
    assert sorted(seen.hosts[host].page_paths) == sorted(["/", *MANY])


def test_pause_after_a_slow_response_is_as_long_as_the_response_took(seen: Seen) -> None:
    heavy = seen.hosts["heavy"]
    assert heavy.page_paths == ["/", "/a"]
    assert gaps_s(heavy.page_exchanges)[0] >= 3.0


def test_a_redirect_to_another_host_and_back_is_paced_at_both(seen: Seen) -> None:
    assert seen.hosts["there"].page_paths == ["/", "/back", "/last"]
    assert seen.hosts["here"].page_paths == ["/on"]


def test_retry_after_closes_the_host(seen: Seen) -> None:
    busy = seen.hosts["busy"]
    assert busy.page_paths == ["/", "/", "/a"]
    assert gaps_s(busy.page_exchanges)[0] >= 3.0


def test_request_of_a_callback_to_the_engine_is_paced_too(seen: Seen) -> None:
    assert sorted(seen.hosts["direct"].page_paths) == ["/", "/x", "/y"]


def test_slow_hosts_hold_up_no_fast_one(seen: Seen) -> None:
    fast, wide = seen.hosts["fast"].page_exchanges, seen.hosts["wide"].page_exchanges
    assert len(fast) == 10
    assert min(gaps_s(fast)) >= FLOOR_S
    # It has one page at a time to be found, and the others have queues that would fill every place.
    assert fast[-1].ended < wide[-2].started


def test_a_request_that_waits_is_put_back_once_at_most(seen: Seen) -> None:
    pages = sum(len(site.page_exchanges) for site in seen.hosts.values())
    assert int(seen.done.stats["scheduler/enqueued"]) <= 2 * pages


def test_a_minute_of_rest_makes_scrapy_forget_the_slot_but_not_the_pace(seen: Seen) -> None:
    assert seen.slots_left == []  # it had forgotten all of them
    assert seen.forgotten.page_paths == ["/0", "/1", "/2"]
    assert min(gaps_s(seen.forgotten.exchanges)) >= 1.5


def test_download_delay_counts_from_the_end_of_an_answer(seen: Seen) -> None:
    assert seen.floored.page_paths == ["/0", "/1", "/2", "/3"]
    assert min(gaps_s(seen.floored.exchanges)) >= 0.7


def test_download_slots_set_the_floor_of_a_host(seen: Seen) -> None:
    assert seen.listed.page_paths == ["/0", "/1", "/2"]
    assert min(gaps_s(seen.listed.page_exchanges)) >= 1.2


def test_two_spiders_of_one_process_share_the_pace_of_a_host(seen: Seen) -> None:
    assert sorted(seen.shared.page_paths) == sorted(["/0", "/1", "/2", "/3"] * 2)
    assert min(gaps_s(seen.shared.page_exchanges)) >= 0.5


def test_second_spider_may_have_another_download_delay(seen: Seen) -> None:
    site, done = seen.unlike
    assert sorted(site.page_paths) == sorted(["/0", "/1", "/2", "/3"] * 2)
    scopes = [
        line.partition("of the same scope: ")[2] for line in done.log.splitlines() if "of the same scope: " in line
    ]
    assert len(scopes) == 2
    assert len(set(scopes)) == 1
    assert min(gaps_s(site.page_exchanges)) >= 0.3


async def test_each_page_is_one_decision_however_long_it_waits_for_its_turn() -> None:
    site = Site(
        robots=f"{ONE_S}Disallow: /private\n", pages={"/": html("/1", "/2", "/private"), "/1": html(), "/2": html()}
    )
    async with serving(site):
        result = await crawl([f"{site.base}/"], HURRIED)
    assert len(result.pages) == 3
    assert result.decisions == 4
