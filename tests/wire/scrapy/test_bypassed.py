"""Crawls with a scheduler that has another queue than PolitePriorityQueue, as scrapy-redis has it."""

import signal
from pathlib import Path
from typing import Final

import pytest

from tests.wire.scrapy.crawling import (
    ADDON,
    OPEN,
    Site,
    answering,
    assert_sites_polite,
    chain,
    crawl,
    crawl_until,
    html,
    in_turn,
    least_gap_s,
    serving,
    status,
    text,
)

pytestmark = [pytest.mark.realtime, pytest.mark.full]

BYPASSING: Final = ADDON | {
    "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue",
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


async def test_no_request_is_lost_though_the_queue_is_bypassed_and_each_host_keeps_its_pace() -> None:
    slow = [wide("User-agent: *\nCrawl-delay: 0.4\n") for _ in range(3)]
    fast = Site(404, chain(8))
    closed, gone = wide(OPEN), wide(404)
    closed.pages["/0"] = in_turn(status(503, Retry_After="1"), html())
    gone.pages = dict.fromkeys(PATHS, status(503, Retry_After="7200"))
    reopened = [
        wide(answering(in_turn(status(503), text(OPEN)))),
        wide(answering(in_turn(status(429, Retry_After="1"), text(OPEN)))),
    ]
    given_up = [gone, wide(503)]
    settings = BYPASSING | {"CONCURRENT_REQUESTS": 4, "POLITESSE_MAX_WAIT": 5, "POLITESSE_MAX_UNREACHABLE": 5}
    async with serving(*slow, fast, closed, *reopened, *given_up):
        done = await crawl([*urls_of(*slow, closed, *reopened, *given_up), f"{fast.base}/0"], settings)
    found = [f"{fast.base}{path}" for path in fast.pages]
    assert sorted(done.pages) == sorted([*urls_of(*slow, closed, *reopened), *found])
    assert done.stats["finish_reason"] == "finished"
    assert_sites_polite(*slow, fast)
    assert all(least_gap_s(site) >= 0.4 for site in slow)
    # Requests wait for a site that is closed for a time.
    assert len(closed.page_paths) == 6  # one was answered with 503
    assert [site.robots_count for site in reopened] == [2, 2]
    # The requests of a site that is given up end in their errbacks.
    assert set(done.ignored) == {*urls_of(*given_up)}
    assert [len(site.page_paths) for site in given_up] == [1, 0]
    assert done.stats["politesse/requests/given_up"] == 10
    (line,) = [line for line in done.log.splitlines() if "does not use PolitePriorityQueue" in line]
    assert "WARNING: The scheduler does not use" in line
    assert "hold up the others" in line


async def test_requests_that_wait_go_back_to_the_scheduler_when_the_spider_is_closed(tmp_path: Path) -> None:
    slow = wide("User-agent: *\nCrawl-delay: 1.5\n")
    waiting = wide(answering(in_turn(status(503, Retry_After="30"), text(OPEN))))
    settings = BYPASSING | {"JOBDIR": str(tmp_path)}
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
