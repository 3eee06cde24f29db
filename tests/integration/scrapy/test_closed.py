"""Scrapy crawls of sites that are closed for a time: what waits, what is given up, and what the next run fetches."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from tests.integration.scrapy.crawling import (
    FORGETFUL,
    OPEN,
    QUICK,
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

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.realtime


def wide(robots: object, number: int, first: Callable[[], web.Response] | None = None) -> Site:
    """Return a site of a front page and pages that it links; ``first`` is the first answer of each."""
    paths = [f"/{place}" for place in range(number)]
    pages = dict.fromkeys(paths, html()) | {"/": html(*paths)}
    if first is not None:
        pages |= {path: in_turn(first, html()) for path in paths[:1]}
    return Site(robots, pages)  # type: ignore[arg-type]


def urls_of(site: Site) -> list[str]:
    return [f"{site.base}{path}" for path in site.pages]


async def test_pages_wait_for_a_robots_txt_that_is_unreachable_for_a_time() -> None:
    site = wide(answering(in_turn(status(503), text(OPEN))), 99)
    async with serving(site):
        done = await crawl([f"{site.base}/"], QUICK)
        for_all = await crawl(urls_of(site), QUICK)
    assert done.ignored == for_all.ignored == {}
    assert len(done.pages) == len(for_all.pages) == 100
    assert site.robots_count == 3  # the first one was answered with 503


async def test_other_origins_of_a_host_go_on_while_one_waits_for_its_robots_txt() -> None:
    shut, site = wide(503, 2), wide(OPEN, 5)
    async with serving(shut), serving(site):
        done = await crawl([*urls_of(shut), *urls_of(site)], QUICK | {"POLITESSE_MAX_WAIT": 2})
    assert set(done.pages) == set(urls_of(site))
    assert set(done.ignored) == set(urls_of(shut))
    assert shut.page_paths == []


async def test_pages_of_a_host_that_closes_for_longer_than_the_longest_wait_are_kept_for_the_next_run(
    tmp_path: Path,
) -> None:
    site = wide(404, 199, status(503, Retry_After="7200"))
    site.pages["/"] = in_turn(status(503, Retry_After="7200"), html())
    del site.pages["/0"]
    settings = FORGETFUL | {"JOBDIR": str(tmp_path), "RETRY_TIMES": 2}
    async with serving(site):
        urls = urls_of(site)
        done = await crawl([urls[-1], *urls[:-1]], settings)
        requested = site.page_paths.copy()
        resumed = await crawl([], settings)
    assert requested == ["/"]
    assert done.pages == []
    assert done.ignored == {}
    assert done.stats["finish_reason"] == "finished"
    stats = done.politesse_stats()
    assert stats["requests/given_up"] == stats["requests/kept"] == len(urls)
    assert stats["hosts/closed"] == stats["hosts/given_up"] == 1
    assert sorted(resumed.pages) == sorted(urls)
    assert sorted(site.page_paths) == sorted(["/", *site.pages])


async def test_pages_of_a_host_that_is_given_up_end_in_their_errbacks_without_a_job_directory() -> None:
    site, other = wide(404, 19), wide(OPEN, 10)
    site.pages = dict.fromkeys(site.pages, status(503, Retry_After="7200"))
    async with serving(site, other):
        done = await crawl([*urls_of(site), *urls_of(other)], QUICK | {"RETRY_TIMES": 2})
    assert len(site.page_paths) == 1
    assert set(done.pages) == set(urls_of(other))
    assert set(done.ignored) == set(urls_of(site))
    for why in done.ignored.values():
        assert why.startswith("IgnoreRequest: No turn at 127.0.0.2 within 3600 s")
        assert "retry-after" in why
    assert done.politesse_stats()["requests/given_up"] == 20
    assert "requests/kept" not in done.politesse_stats()


async def test_spider_that_raises_in_its_errback_is_called_for_each_page_all_the_same() -> None:
    site = wide(503, 9)
    async with serving(site):
        done = await crawl(urls_of(site), QUICK | {"POLITESSE_MAX_WAIT": 0}, errback_raises=True)
    assert set(done.ignored) == set(urls_of(site))
    assert done.stats["finish_reason"] == "finished"
    assert done.stats["spider_exceptions/ValueError"] == done.politesse_stats()["requests/given_up"] == 10


async def test_requests_of_a_site_that_was_given_up_are_counted_if_the_spider_is_closed_before_it_is_idle() -> None:
    site = wide(503, 9)

    async def after_the_other(_: web.BaseRequest) -> web.StreamResponse:
        while not site.robots_count:
            await asyncio.sleep(0.02)
        return web.Response(text=OPEN)

    busy = Site(after_the_other, chain(50))
    settings = QUICK | {"POLITESSE_MAX_WAIT": 0, "POLITESSE_CACHE": {"retry_min_s": 600.0}, "DOWNLOAD_DELAY": 0.3}
    async with serving(site, busy):
        done = await crawl([*urls_of(site), f"{busy.base}/0"], settings | {"CLOSESPIDER_PAGECOUNT": 3})
    assert done.stats["finish_reason"] == "closespider_pagecount"
    assert done.politesse_stats()["requests/given_up"] == 10
    assert "Not fetched for that reason: 10 requests, of which 0 stay in JOBDIR" in done.log


async def test_errback_that_raises_loses_nothing_of_what_is_kept_for_the_next_run(tmp_path: Path) -> None:
    closed = wide(answering(in_turn(status(503), text(OPEN))), 9)
    forbidding = wide("User-agent: *\nDisallow: /3\nDisallow: /4\n", 9)
    settings = QUICK | {"JOBDIR": str(tmp_path)}
    async with serving(closed, forbidding):
        urls = [*urls_of(closed), *urls_of(forbidding)]
        first = await crawl(urls, settings | {"POLITESSE_MAX_WAIT": 0}, errback_raises=True)
        second = await crawl(urls, settings, errback_raises=True)
    assert set(first.ignored) == {f"{forbidding.base}/3", f"{forbidding.base}/4"}
    assert first.stats["spider_exceptions/ValueError"] == 2
    assert f"ValueError: {forbidding.base}/3" in first.log
    assert second.ignored == {}
    assert set(closed.page_paths) == set(closed.pages)
    assert len(closed.page_paths) + len(forbidding.page_paths) == len(urls) - 2
    assert first.stats["finish_reason"] == second.stats["finish_reason"] == "finished"


@pytest.mark.parametrize(
    ("line", "bound"), [("Crawl-delay: 4000", "crawl-delay"), ("Request-rate: 1/4000", "request-rate")]
)
async def test_pages_of_a_site_with_a_very_long_interval_are_kept_for_the_next_run(
    tmp_path: Path, line: str, bound: str
) -> None:
    site = wide(f"User-agent: *\n{line}\n", 20)
    settings = FORGETFUL | {"JOBDIR": str(tmp_path)}
    async with serving(site):
        done = await crawl(urls_of(site), settings)
        site.robots = 404
        resumed = await crawl([], settings)
    assert done.pages == []
    assert done.ignored == {}
    assert done.politesse_stats()["requests/kept"] == 21
    assert "127.0.0.2 is given up" in done.log
    assert f"{bound} until" in done.log
    assert done.log.count("127.0.0.2 is waited for until") == 1
    assert sorted(resumed.pages) == sorted(urls_of(site))


@pytest.mark.parametrize("refusal", [429, 503])
async def test_a_host_that_answers_nothing_but_refusals_is_given_up_once_as_a_whole(refusal: int) -> None:
    pages, robots = wide(OPEN, 49), wide(answering(status(refusal, Retry_After="2")), 49)
    pages.pages = dict.fromkeys(pages.pages, status(refusal, Retry_After="2"))
    async with serving(pages, robots):
        settings = QUICK | {"POLITESSE_MAX_WAIT": 5, "RETRY_TIMES": 2}
        done = await crawl([*urls_of(pages), *urls_of(robots)], settings)
    assert 2 <= len(pages.page_paths) <= 3
    assert pages.robots_count == 1
    assert 2 <= robots.robots_count <= 3
    assert robots.page_paths == []
    assert done.pages == []
    assert len(done.ignored) == 100
    assert done.log.count("127.0.0.2 is given up") == done.log.count(f"{robots.base} is given up") == 1
    assert done.politesse_stats()["hosts/given_up"] == 2


async def test_name_without_an_address_is_given_up_at_once() -> None:
    url = "http://does-not-exist.invalid/"
    done = await crawl([url], QUICK)
    assert list(done.ignored) == [url]
    assert done.politesse_stats()["requests/given_up"] == 1
    assert "politesse/seconds_waited" in done.stats_s  # until the end of the spider


async def test_download_delay_of_the_crawler_gives_up_no_site() -> None:
    site = wide(404, 1)
    async with serving(site):
        done = await crawl(urls_of(site), QUICK | {"DOWNLOAD_DELAY": 2, "POLITESSE_MAX_WAIT": 1})
    assert len(done.pages) == 2
    assert done.ignored == {}
    assert "hosts/given_up" not in done.politesse_stats()


async def test_an_answer_between_two_refusals_begins_the_longest_wait_again() -> None:
    site = wide(404, 3)
    refusal = status(429, Retry_After="2")
    site.pages = dict.fromkeys(site.pages, in_turn(*[refusal, html()] * 3))  # one after the other, whatever the page
    async with serving(site):
        done = await crawl(urls_of(site), QUICK | {"POLITESSE_MAX_WAIT": 5, "RETRY_TIMES": 5})
    assert len(done.pages) == 4
    assert done.ignored == {}


async def test_redirect_of_a_request_that_had_to_wait_passes_the_filter_for_duplicates() -> None:
    site = Site(answering(in_turn(status(503), text(OPEN))), {"/": redirect("/a"), "/a": html()})
    async with serving(site):
        done = await crawl(urls_of(site), QUICK)
    assert int(done.politesse_stats()["requests/deferred"]) >= 1
    assert sorted(site.page_paths) == ["/", "/a"]


async def test_pages_wait_for_the_end_of_a_retry_after() -> None:
    site = wide(404, 30, status(503, Retry_After="1"))
    async with serving(site):
        done = await crawl(urls_of(site), QUICK | {"RETRY_TIMES": 2})
    assert len(done.pages) == 31
    assert done.ignored == {}
    assert len(site.page_paths) == 32  # one was answered with 503


async def test_pages_outside_of_a_visit_time_are_kept_for_the_next_run(tmp_path: Path) -> None:
    now = time.time()
    window = "-".join(time.strftime("%H%M", time.gmtime(now + hours * 3600)) for hours in (6, 7))
    site = wide(f"User-agent: *\nVisit-time: {window}\n", 20)
    settings = FORGETFUL | {"JOBDIR": str(tmp_path)}
    async with serving(site):
        done = await crawl(urls_of(site), settings)
        site.robots = OPEN
        resumed = await crawl([], settings)
    assert done.pages == []
    assert done.ignored == {}
    assert done.politesse_stats()["hosts/closed"] == 1
    assert len(resumed.pages) == 21


async def test_robots_txt_that_is_unreachable_for_a_whole_run_costs_no_page(tmp_path: Path) -> None:
    site, nowhere = wide(503, 20), "http://does-not-exist.invalid/"
    settings = QUICK | {"JOBDIR": str(tmp_path), "POLITESSE_MAX_WAIT": 2}
    async with serving(site):
        done = await crawl([*urls_of(site), nowhere], settings)
        site.robots = OPEN
        resumed = await crawl([], settings)
    assert done.ignored == resumed.ignored == {}
    assert done.politesse_stats()["requests/kept"] == 22
    assert sorted(resumed.pages) == sorted(urls_of(site))
    assert resumed.politesse_stats()["requests/kept"] == 1
    assert f"{nowhere.removesuffix('/')} is given up" in resumed.log


@pytest.mark.parametrize("what", ["page", "robots.txt"])
async def test_the_next_run_knows_at_once_that_a_site_is_closed_for_long(tmp_path: Path, what: str) -> None:
    closed = status(503, Retry_After="7200")
    site = wide(OPEN, 5, closed) if what == "page" else wide("User-agent: *\nCrawl-delay: 4000\n", 5)
    settings = QUICK | {"JOBDIR": str(tmp_path)}
    async with serving(site):
        await crawl([f"{site.base}/0"], settings | {"RETRY_TIMES": 1})
        before = site.paths.copy()
        done = await crawl(urls_of(site), settings)
    assert site.paths == before  # nothing is requested
    assert (done.pages, done.ignored) == ([], {})
    assert done.politesse_stats()["hosts/given_up"] == 1
    assert done.elapsed_s < 30
