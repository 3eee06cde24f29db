"""Crawls with a scheduler that has another queue than PolitePriorityQueue, as that of scrapy-redis."""

from __future__ import annotations

import signal
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.scrapy.crawling import (
    ADDON,
    Crawl,
    Site,
    answering,
    assert_sites_polite,
    chain,
    crawl,
    crawl_until,
    html,
    in_turn,
    serving,
    status,
    text,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.realtime

OPEN: Final = "User-agent: *\nAllow: /\n"
BYPASSING: Final = ADDON | {
    "SCHEDULER": "bypassing.ListScheduler",
    "DOWNLOAD_DELAY": 0,
    "RETRY_TIMES": 2,
    "POLITESSE_PACING": {"adaptive_factor": 0.0, "backoff_min_s": 0.5},
    "POLITESSE_CACHE": {"retry_min_s": 1.0},
}
PATHS: Final = [f"/{number}" for number in range(5)]


def urls_of(*sites: Site) -> list[str]:
    return [f"{site.base}{path}" for site in sites for path in PATHS]


def wide(robots: object) -> Site:
    return Site(robots, dict.fromkeys(PATHS, html()))  # type: ignore[arg-type]


def assert_warned_once(done: Crawl) -> None:
    (line,) = [line for line in done.log.splitlines() if "does not use PolitePriorityQueue" in line]
    assert "WARNING: The scheduler does not use" in line
    assert "hold up the others" in line
    assert done.stats["politesse/scheduler_bypassed"] == 1


@pytest.mark.parametrize(
    "bypassing",
    [
        {},
        {
            "SCHEDULER": "scrapy.core.scheduler.Scheduler",
            "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue",
        },
    ],
)
async def test_no_request_is_lost_and_each_host_keeps_its_pace(bypassing: dict[str, str]) -> None:
    slow = [wide("User-agent: *\nCrawl-delay: 0.4\n") for _ in range(3)]
    fast = Site(404, chain(8))
    async with serving(*slow, fast):
        settings = BYPASSING | bypassing | {"CONCURRENT_REQUESTS": 2}  # fewer places than slow hosts
        done = await crawl([*urls_of(*slow), f"{fast.base}/0"], settings)
    assert len(done.pages) == 3 * 5 + 8
    assert done.ignored == {}
    assert done.stats["finish_reason"] == "finished"
    assert_sites_polite(*slow, fast)
    for site in slow:
        assert min(after.started - before.ended for before, after in pairwise(site.page_exchanges)) >= 0.4
    assert_warned_once(done)


async def test_requests_wait_for_a_robots_txt_that_is_unreachable_for_a_time() -> None:
    unreachable = wide(answering(in_turn(status(503), text(OPEN))))
    put_off = wide(answering(in_turn(status(429, Retry_After="1"), text(OPEN))))
    closed = wide(OPEN)
    closed.pages["/0"] = in_turn(status(503, Retry_After="1"), html())
    async with serving(unreachable, put_off, closed):
        urls = urls_of(unreachable, put_off, closed)
        done = await crawl(urls, BYPASSING)
    assert sorted(done.pages) == sorted(urls)
    assert done.ignored == {}
    assert unreachable.robots_count == put_off.robots_count == 2
    assert len(closed.page_paths) == 6  # one was answered with 503
    assert done.stats["politesse/hosts/closed"] == 3


async def test_requests_of_a_site_that_is_given_up_end_in_their_errbacks() -> None:
    shut, closed, site = wide(503), wide(404), wide(OPEN)
    closed.pages = dict.fromkeys(PATHS, status(503, Retry_After="7200"))
    async with serving(shut, closed, site):
        done = await crawl(urls_of(shut, closed, site), BYPASSING | {"POLITESSE_MAX_WAIT": 2})
    assert sorted(done.pages) == sorted(urls_of(site))
    assert set(done.ignored) == {*urls_of(shut, closed)}
    assert shut.page_paths == []
    assert len(closed.page_paths) == 1
    assert done.stats["politesse/requests/given_up"] == 10
    assert done.stats["finish_reason"] == "finished"


async def test_requests_that_wait_go_back_to_the_scheduler_when_the_spider_is_closed(tmp_path: Path) -> None:
    slow = wide("User-agent: *\nCrawl-delay: 1.5\n")
    waiting = wide(answering(in_turn(status(503, Retry_After="30"), text(OPEN))))
    settings = BYPASSING | {"LIST_FILE": str(tmp_path / "requests")}
    async with serving(slow, waiting):
        urls = urls_of(slow, waiting)

        def is_amid() -> bool:
            return len(slow.page_paths) >= 2 and waiting.robots_count == 1

        log = await crawl_until(signal.SIGINT, is_amid, urls, settings)
        before = [*slow.page_paths]
        resumed = await crawl([], settings)
    assert "Received SIGINT" in log
    assert 2 <= len(before) < 5
    assert sorted(slow.page_paths) == sorted(waiting.page_paths) == PATHS  # each exactly once
    assert len(resumed.pages) == 10 - len(before)


async def test_request_of_a_callback_to_the_engine_ends_when_the_spider_is_closed() -> None:
    site = wide("User-agent: *\nCrawl-delay: 3\n")
    async with serving(site):
        direct = {f"{site.base}/0": [f"{site.base}/1", f"{site.base}/2"]}
        # robots.txt and one page
        done = await crawl([f"{site.base}/0"], BYPASSING | {"CLOSESPIDER_PAGECOUNT": 2}, direct=direct)
    assert site.page_paths == ["/0"]
    assert done.stats["finish_reason"] == "closespider_pagecount"


async def test_nothing_is_logged_of_the_scheduler_if_it_uses_the_queue() -> None:
    site = wide(404)
    async with serving(site):
        done = await crawl(urls_of(site), ADDON | {"DOWNLOAD_DELAY": 0})
    assert "PolitePriorityQueue" not in "\n".join(line for line in done.log.splitlines() if "WARNING" in line)
    assert "politesse/scheduler_bypassed" not in done.stats
