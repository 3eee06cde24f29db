"""Scrapy crawls of sites that are closed for a time: their requests wait, end in errbacks, or stay for the next run."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from tests.wire.scrapy.crawling import (
    FORGETFUL,
    OPEN,
    QUICK,
    Crawl,
    Site,
    answering,
    chain,
    crawl,
    html,
    in_turn,
    redirect,
    serving,
    status,
    text,
)

pytestmark = [pytest.mark.realtime, pytest.mark.full]

NOWHERE: Final = "http://does-not-exist.invalid/"


def wide(robots: object, number: int, first: Callable[[], web.Response] | None = None) -> Site:
    """Return a site of a front page and pages that it links; ``first`` is the first answer of a page."""
    paths = [f"/{place}" for place in range(number)]
    pages = dict.fromkeys(paths, html()) | {"/": html(*paths)}
    if first is not None:
        pages |= {path: in_turn(first, html()) for path in paths[:1]}
    return Site(robots, pages)  # type: ignore[arg-type]


def urls_of(*sites: Site) -> list[str]:
    return [f"{site.base}{path}" for site in sites for path in site.pages]


def outside_of_a_visit_time() -> str:
    now = time.time()
    window = "-".join(time.strftime("%H%M", time.gmtime(now + hours * 3600)) for hours in (6, 7))
    return f"User-agent: *\nVisit-time: {window}\n"


@dataclass(frozen=True)
class Closed:
    """Sites that are closed in many ways, and one crawl of all of them without JOBDIR."""

    sites: dict[str, Site]
    done: Crawl

    def why(self, name: str) -> list[str]:
        """Return the reasons in the errbacks of the requests of a site."""
        return [why for url, why in self.done.ignored.items() if url.startswith(f"{self.sites[name].base}/")]


@pytest.fixture(scope="module")
def closed() -> Closed:
    refusals = {number: status(number, Retry_After="2") for number in (429, 503)}
    sites = {
        "unreachable": wide(answering(in_turn(status(503), text(OPEN))), 99),
        "retry after": wide(404, 30, status(503, Retry_After="1")),
        "redirected": Site(answering(in_turn(status(503), text(OPEN))), {"/": redirect("/a"), "/a": html()}),
        "between": wide(404, 3),
        "long": wide(404, 19),
        "slow": wide("User-agent: *\nCrawl-delay: 30\n", 1),
        "visit": wide(outside_of_a_visit_time(), 1),
        "429": wide(OPEN, 49),
        "503": wide(OPEN, 49),
        "robots 429": wide(answering(refusals[429]), 49),
        "robots 503": wide(answering(refusals[503]), 49),
    }
    # One after the other, whatever the page is.
    sites["between"].pages = dict.fromkeys(sites["between"].pages, in_turn(*[refusals[429], html()] * 3))
    sites["long"].pages = dict.fromkeys(sites["long"].pages, status(503, Retry_After="7200"))
    for number, refusal in refusals.items():
        sites[str(number)].pages = dict.fromkeys(sites[str(number)].pages, refusal)

    async def crawl_all() -> Crawl:
        async with serving(*sites.values()), serving(other := wide(503, 2)):
            sites["other origin"] = other  # of the host of the first
            settings = QUICK | {"POLITESSE_MAX_WAIT": 5, "POLITESSE_MAX_UNREACHABLE": 5, "RETRY_TIMES": 5}
            return await crawl([*urls_of(*sites.values()), NOWHERE], settings, errback_raises=True)

    return Closed(sites, asyncio.run(crawl_all()))


@pytest.mark.parametrize("name", ["unreachable", "retry after", "redirected", "between"])
def test_pages_wait_for_the_end_of_a_closing(closed: Closed, name: str) -> None:
    pages = {url for url in closed.done.pages if url.startswith(f"{closed.sites[name].base}/")}
    found = {"/a"} if name == "redirected" else set(closed.sites[name].pages)
    assert pages == {f"{closed.sites[name].base}{path}" for path in found}
    assert closed.why(name) == []


def test_site_that_was_closed_is_asked_no_more_often_than_it_has_to_be(closed: Closed) -> None:
    assert closed.sites["unreachable"].robots_count == 2
    assert len(closed.sites["retry after"].page_paths) == 32  # one was answered with 503
    # The redirect of a request that had to wait passes the filter for duplicates.
    assert sorted(closed.sites["redirected"].page_paths) == ["/", "/a"]
    assert int(closed.done.politesse_stats()["requests/deferred"]) >= 1


@pytest.mark.parametrize(
    ("name", "reason", "requests"),
    [
        ("long", "retry-after", 1),
        ("slow", "crawl-delay", 0),
        ("visit", "visit-time", 0),
        ("429", "retry-after", 2),
        ("503", "retry-after", 2),
        ("robots 429", "429", 0),
        ("robots 503", "503", 0),
        ("other origin", "status 503", 0),
    ],
)
def test_pages_of_a_site_that_is_given_up_end_in_their_errbacks(
    closed: Closed, name: str, reason: str, requests: int
) -> None:
    site, why = closed.sites[name], closed.why(name)
    assert len(why) == len(site.pages)
    assert [one for one in why if not one.startswith("IgnoreRequest: ") or reason not in one] == []
    most = 1 + closed.done.elapsed_s / 2.0  # a site that opens while the spider is busy is tried again
    assert min(requests, 1) <= len(site.page_paths) <= (most if requests > 1 else requests)
    assert site.robots_count <= most
    known_by = site.base if reason.endswith(("429", "503")) else site.base.partition("//")[2].partition(":")[0]
    assert closed.done.log.count(f"{known_by} is given up") == 1


def test_crawl_of_closed_sites_ends_and_counts_them_and_calls_each_errback_although_those_raise(closed: Closed) -> None:
    done, stats = closed.done, closed.done.politesse_stats()
    assert NOWHERE in done.ignored  # a name without an address is given up at once
    assert done.stats["spider_exceptions/ValueError"] == stats["requests/given_up"] == len(done.ignored)
    assert "requests/kept" not in stats
    assert stats["too_far"] == sum(why.startswith("IgnoreRequest: No turn at") for why in done.ignored.values()) > 100
    assert stats["hosts/given_up"] == 9
    assert done.stats["finish_reason"] == "finished"
    assert "politesse/seconds_waited" in done.stats_s


async def test_requests_of_a_site_that_was_given_up_are_counted_if_the_spider_is_closed_before_it_is_idle() -> None:
    site = wide(503, 9)

    async def after_the_other(_: web.BaseRequest) -> web.StreamResponse:
        while not site.robots_count:
            await asyncio.sleep(0.02)
        return web.Response(text=OPEN)

    busy = Site(after_the_other, chain(50))
    settings = QUICK | {
        "POLITESSE_MAX_WAIT": 0,
        "POLITESSE_MAX_UNREACHABLE": 0,
        "POLITESSE_CACHE": {"retry_min_s": 600.0},
        "DOWNLOAD_DELAY": 0.3,
    }
    async with serving(site, busy):
        done = await crawl([*urls_of(site), f"{busy.base}/0"], settings | {"CLOSESPIDER_PAGECOUNT": 3})
    assert done.stats["finish_reason"] == "closespider_pagecount"
    assert done.politesse_stats()["requests/given_up"] == 10
    assert "Not fetched for that reason: 10 requests, of which 0 stay in JOBDIR" in done.log


async def test_requests_of_sites_that_are_given_up_stay_in_the_job_and_are_made_in_its_next_run(tmp_path: Path) -> None:
    sites = {
        "retry-after": wide(404, 199),
        "crawl-delay": wide("User-agent: *\nCrawl-delay: 4000\n", 20),
        "request-rate": wide("User-agent: *\nRequest-rate: 1/4000\n", 20),
        "visit-time": wide(outside_of_a_visit_time(), 20),
        "status 503": wide(503, 20),
    }
    sites["retry-after"].pages = dict.fromkeys(sites["retry-after"].pages, status(503, Retry_After="7200"))
    forbidding = wide("User-agent: *\nDisallow: /3\nDisallow: /4\n", 9)
    settings = FORGETFUL | {
        "JOBDIR": str(tmp_path),
        "RETRY_TIMES": 2,
        "POLITESSE_MAX_WAIT": 2,
        "POLITESSE_MAX_UNREACHABLE": 2,
    }
    async with serving(*sites.values(), forbidding):
        urls = [*urls_of(*sites.values(), forbidding), NOWHERE]
        first = await crawl(urls, settings, errback_raises=True)
        requested = {name: len(site.page_paths) for name, site in sites.items()}
        for site in sites.values():
            site.robots, site.pages = OPEN, dict.fromkeys(site.pages, html())
        second = await crawl([], settings, errback_raises=True)
    assert requested == dict.fromkeys(sites, 0) | {"retry-after": 1}
    assert sorted(second.pages) == sorted(urls_of(*sites.values()))
    for bound, site in sites.items():
        (why,) = [line for line in first.log.splitlines() if "is given up" in line and bound in line]
        assert site.base.partition("//")[2].partition(":")[0] in why
    stats = first.politesse_stats()
    assert stats["requests/given_up"] == stats["requests/kept"] == len(second.pages) + 1
    assert stats["hosts/given_up"] == 6
    assert set(first.ignored) == {f"{forbidding.base}/3", f"{forbidding.base}/4"}
    assert f"ValueError: {forbidding.base}/3" in first.log
    assert len(forbidding.page_paths) == 8  # in the first run
    assert second.ignored == {}
    assert second.politesse_stats()["requests/kept"] == 1
    assert f"{NOWHERE.removesuffix('/')} is given up" in second.log
    assert first.stats["finish_reason"] == second.stats["finish_reason"] == "finished"
