"""Scrapy crawls with JOBDIR that are interrupted or killed, and resumed until nothing is left."""

from __future__ import annotations

import asyncio
import json
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
    start,
    status,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
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


async def test_every_page_is_fetched_after_kills_at_the_start_and_in_an_ordered_shutdown(tmp_path: Path) -> None:
    closed = tree(404, 2)
    closed.pages["/0"] = in_turn(status(503, Retry_After="1"), closed.pages["/0"])
    all_sites = [tree(404, 4), closed]
    all_sites[0].page_s = 0.3
    settings = QUICK | {"JOBDIR": str(tmp_path), "RETRY_TIMES": 2}
    async with serving(*all_sites):
        urls = [f"{site.base}/" for site in all_sites]
        for _ in range(2):
            await crawl_until(signal.SIGKILL, lambda: any(tmp_path.rglob("*.journal")), urls, settings)
        for run in range(1, 3):
            await interrupt_and_kill(partial(has_pages, all_sites[0], 5 * run), urls, settings)
        done = await crawl(urls, settings)
    assert done.stats["finish_reason"] == "finished"
    for site in all_sites:
        fetched = {exchange.url.removeprefix(site.base) for exchange in site.page_exchanges if exchange.status == 200}
        assert fetched == set(site.pages)


def has_pages(site: Site, number: int) -> bool:
    return len(site.page_paths) >= number


async def interrupt_and_kill(when: Callable[[], bool], urls: list[str], settings: Mapping[str, object]) -> None:
    """Interrupt a crawl when a condition holds, and kill it while it waits for the last page."""
    process = await start(json.dumps({"urls": urls, "settings": settings}))
    ended = asyncio.ensure_future(process.communicate())
    async with asyncio.timeout(60):
        while not when() and not ended.done():
            await asyncio.sleep(0.02)
        assert not ended.done(), f"the crawl ended by itself:\n{(await ended)[1].decode()}"
        process.send_signal(signal.SIGINT)
        await asyncio.wait({ended}, timeout=0.1)
        if not ended.done():
            process.kill()
        await ended


async def test_a_run_that_was_killed_as_scrapy_wrote_the_state_of_the_queue_is_resumed(tmp_path: Path) -> None:
    site = tree(404, 3)
    async with serving(site):
        urls, settings = [f"{site.base}/"], QUICK | {"JOBDIR": str(tmp_path), "DOWNLOAD_DELAY": 0.3}
        await crawl_until(signal.SIGKILL, partial(has_pages, site, 4), urls, settings)
        (tmp_path / "requests.queue" / "active.json").write_text("")  # opened, and not yet written
        done = await crawl(urls, settings)
    assert done.stats["finish_reason"] == "finished"
    assert set(site.page_paths) == set(site.pages)
