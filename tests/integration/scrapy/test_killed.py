"""Scrapy crawls with JOBDIR that are interrupted or killed, and resumed until nothing is left."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.scrapy.crawling import (
    OPEN,
    QUICK,
    Site,
    answering,
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

PACED: Final = QUICK | {"DOWNLOAD_DELAY": 0.02}
RUNS: Final = 4


def tree(robots: object, width: int) -> Site:
    """Return a site of pages on three levels, ``width`` links on each page of the first two."""
    pages = {"/": html(*(f"/{one}" for one in range(width)))}
    for one in range(width):
        pages[f"/{one}"] = html(*(f"/{one}/{two}" for two in range(width)))
        pages |= {f"/{one}/{two}": html() for two in range(width)}
    return Site(robots, pages)  # type: ignore[arg-type]


def sites() -> list[Site]:
    slow = "User-agent: *\nCrawl-delay: 0.3\n"
    shut = answering(in_turn(status(503), text(OPEN)))
    return [tree(404, 5), tree(slow, 3), tree(shut, 4)]


async def crawl_in_runs(number: int, all_sites: list[Site], settings: dict[str, object]) -> None:
    urls = [f"{site.base}/" for site in all_sites]
    total = sum(len(site.pages) for site in all_sites)

    def has_made(requests: int) -> bool:
        return sum(len(site.page_paths) for site in all_sites) >= requests

    for run in range(1, RUNS):
        await crawl_until(number, partial(has_made, total * run // RUNS), urls, settings)
    done = await crawl(urls, settings)
    assert done.stats["finish_reason"] == "finished"


async def test_every_page_is_fetched_exactly_once_however_often_the_crawl_is_interrupted(tmp_path: Path) -> None:
    all_sites = sites()
    async with serving(*all_sites):
        await crawl_in_runs(signal.SIGINT, all_sites, PACED | {"JOBDIR": str(tmp_path)})
    for site in all_sites:
        assert Counter(site.page_paths) == Counter(site.pages.keys())


async def test_what_a_killed_run_has_done_of_an_earlier_queue_is_not_done_again(tmp_path: Path) -> None:
    paths = [f"/{place}" for place in range(40)]
    site = Site(404, dict.fromkeys(paths, html()) | {"/": html(*paths)})
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


async def test_a_request_that_waits_for_robots_txt_when_the_crawl_is_interrupted_is_made_in_the_next_run(
    tmp_path: Path,
) -> None:
    site = tree(404, 2)
    waits_s = iter([5.0])

    async def robots(request: object) -> object:
        await asyncio.sleep(next(waits_s, 0.0))
        return text(OPEN)()

    site.robots = robots  # type: ignore[assignment]
    async with serving(site):
        settings = PACED | {"JOBDIR": str(tmp_path)}
        urls = [f"{site.base}/"]
        await crawl_until(signal.SIGINT, lambda: bool(site.robots_headers), urls, settings)
        done = await crawl(urls, settings)
    assert sorted(done.pages) == sorted(f"{site.base}{path}" for path in site.pages)
    assert done.ignored == {}


async def test_every_page_is_fetched_in_the_end_however_often_the_crawl_is_killed(tmp_path: Path) -> None:
    all_sites = sites()
    async with serving(*all_sites):
        await crawl_in_runs(signal.SIGKILL, all_sites, PACED | {"JOBDIR": str(tmp_path), "DOWNLOAD_DELAY": 0.15})
    for site in all_sites:
        assert set(site.page_paths) == set(site.pages)
        # Only pages that were under way, or in their callback, are fetched again.
        assert len(site.page_paths) <= len(site.pages) + 3 * (RUNS - 1)
