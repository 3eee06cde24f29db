"""Scrapy crawls with JOBDIR that are interrupted or killed, and resumed to their end; and the stores of their gates."""

import asyncio
import signal
import time
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from tests.wire.scrapy.crawling import (
    OPEN,
    QUICK,
    Robots,
    Site,
    answering,
    crawl,
    crawl_until,
    html,
    in_turn,
    serving,
    status,
    text,
    wide,
)

pytestmark = [pytest.mark.realtime, pytest.mark.full]

RUNS: Final = 4
SLOWER: Final = QUICK | {"DOWNLOAD_DELAY": 0.1}
SCRAPYS_OWN: Final = {"DOWNLOAD_DELAY": 0.3, "CONCURRENT_REQUESTS": 1, "ROBOTSTXT_OBEY": True}


def tree(robots: str | int | Robots, width: int) -> Site:
    """Return a site of pages on three levels, ``width`` links on each page of the first two."""
    pages = {"/": html(*(f"/{one}" for one in range(width)))}
    for one in range(width):
        pages[f"/{one}"] = html(*(f"/{one}/{two}" for two in range(width)))
        pages |= {f"/{one}/{two}": html() for two in range(width)}
    return Site(robots, pages)


def hanging_once() -> Robots:
    """Answer the first request for robots.txt so late that the run is interrupted before."""
    waits_s = iter([5.0])

    async def robots(_: object) -> web.StreamResponse:
        await asyncio.sleep(next(waits_s, 0.0))
        return text(OPEN)()

    return robots


@pytest.mark.parametrize(("number", "delay_s", "repeated"), [(signal.SIGINT, 0.02, 0), (signal.SIGKILL, 0.15, 3)])
async def test_every_page_is_fetched_however_often_the_crawl_is_interrupted_or_killed(
    tmp_path: Path, number: int, delay_s: float, repeated: int
) -> None:
    slow, shut = "User-agent: *\nCrawl-delay: 0.3\n", answering(status(503), text(OPEN))
    sites = [tree(404, 5), tree(slow, 3), tree(shut, 4), tree(hanging_once(), 2)]
    settings = QUICK | {"JOBDIR": str(tmp_path), "DOWNLOAD_DELAY": delay_s}
    total = sum(len(site.pages) for site in sites)

    def has_made(requests: int) -> bool:
        return sum(len(site.page_paths) for site in sites) >= requests

    async with serving(*sites):
        urls = [f"{site.base}/" for site in sites]
        for run in range(1, RUNS):
            await crawl_until(number, partial(has_made, total * run // RUNS), urls, settings)
        done = await crawl(urls, settings)
    assert done.stats["finish_reason"] == "finished"
    for site in sites:
        assert set(site.page_paths) == set(site.pages)
        # After a kill, only pages that were under way, or in their callback, are fetched again.
        assert len(site.page_paths) <= len(site.pages) + repeated * (RUNS - 1)


async def test_requests_of_an_earlier_queue_that_a_killed_run_has_done_are_not_made_again(tmp_path: Path) -> None:
    site = wide(404, 40)
    settings = QUICK | {"JOBDIR": str(tmp_path), "DOWNLOAD_DELAY": 0.05}
    async with serving(site):
        urls = [f"{site.base}/"]
        await crawl_until(signal.SIGINT, lambda: len(site.page_paths) >= 10, urls, settings)
        await crawl_until(signal.SIGKILL, lambda: len(site.page_paths) >= 30, urls, settings)
        # The state as it is if the process is killed while the queue is being closed.
        (tmp_path / "requests.queue" / "active.json").write_text("{}")
        await crawl(urls, settings)
    assert set(site.page_paths) == set(site.pages)
    assert len(site.page_paths) <= len(site.pages) + 3  # under way, or in a callback


async def test_every_page_is_fetched_after_kills_at_the_start_and_in_an_ordered_shutdown(tmp_path: Path) -> None:
    closed = tree(404, 2)
    closed.pages["/0"] = in_turn(status(503, Retry_After="1"), closed.pages["/0"])
    all_sites = [tree(404, 4), closed]
    all_sites[0].page_s = 0.3
    settings = QUICK | {"JOBDIR": str(tmp_path), "RETRY_TIMES": 2}

    def has_pages(number: int) -> bool:
        return len(all_sites[0].page_paths) >= number

    async with serving(*all_sites):
        urls = [f"{site.base}/" for site in all_sites]
        for _ in range(2):
            await crawl_until(signal.SIGKILL, lambda: any(tmp_path.rglob("*.journal")), urls, settings)
        for run in range(1, 3):
            await crawl_until(signal.SIGINT, partial(has_pages, 5 * run), urls, settings, kill_s=0.1)
        done = await crawl(urls, settings)
    assert done.stats["finish_reason"] == "finished"
    for site in all_sites:
        fetched = {exchange.url.removeprefix(site.base) for exchange in site.page_exchanges if exchange.status == 200}
        assert fetched == set(site.pages)


@pytest.mark.parametrize(("first", "second"), [(SCRAPYS_OWN, SLOWER), (SLOWER, SCRAPYS_OWN)])
async def test_a_job_of_plain_scrapy_is_resumed_with_the_add_on_and_the_reverse(
    tmp_path: Path, first: dict[str, object], second: dict[str, object]
) -> None:
    site, job = wide(404, 12), {"JOBDIR": str(tmp_path)}
    async with serving(site):
        urls = [f"{site.base}/"]
        await crawl_until(signal.SIGINT, lambda: len(site.page_paths) > 3, urls, first | job)
        assert len(site.page_paths) < len(site.pages)
        done = await crawl(urls, second | job)
    assert done.stats["finish_reason"] == "finished"
    assert sorted(site.page_paths) == sorted(site.pages)


@pytest.mark.parametrize(("kept", "fetched"), [(None, 1), ("sites.db", 1), (False, 2)])
async def test_second_run_of_a_job_fetches_no_robots_txt_that_is_kept(
    tmp_path: Path, kept: str | None, fetched: int
) -> None:
    site = Site(OPEN, {"/1": html(), "/2": html()})
    settings: dict[str, object] = {"JOBDIR": str(tmp_path)}
    if kept is not None:
        settings["POLITESSE_STORE"] = kept and str(tmp_path / kept)
    async with serving(site):
        for page in site.pages:
            await crawl([f"{site.base}{page}"], QUICK | settings)
    assert site.page_paths == ["/1", "/2"]
    assert site.robots_count == fetched
    assert (tmp_path / "robots.db").exists() is (kept is None)


async def test_a_retry_after_holds_for_a_run_that_starts_after_a_kill(tmp_path: Path) -> None:
    site = Site(OPEN, {"/1": status(503, Retry_After="10"), "/2": html()})
    settings = QUICK | {"JOBDIR": str(tmp_path)}

    def has_read_the_answer() -> bool:
        return bool(site.page_exchanges) and time.monotonic() - site.page_exchanges[0].ended > 1.0

    async with serving(site):
        await crawl_until(signal.SIGKILL, has_read_the_answer, [f"{site.base}/1"], settings)
        await crawl([f"{site.base}/2"], settings)
    refused, answered = site.page_exchanges
    assert answered.started - refused.ended >= 9.9
