"""Crawls with a JOBDIR that something else has written, and with sites that change between two runs."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.scrapy.crawling import ADDON, Site, crawl, crawl_until, html, serving, start

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.realtime

QUICK: Final = ADDON | {
    "DOWNLOAD_DELAY": 0.1,
    "POLITESSE_PACING": {"adaptive_factor": 0.0, "backoff_min_s": 0.5},
    "POLITESSE_CACHE": {"retry_min_s": 1.0},
}
SCRAPYS_OWN: Final = {"DOWNLOAD_DELAY": 0.3, "CONCURRENT_REQUESTS": 1, "ROBOTSTXT_OBEY": True}


def site_of_pages() -> Site:
    pages = [f"/{number}" for number in range(12)]
    return Site(404, {"/": html(*pages), **dict.fromkeys(pages, html())})


async def crawl_in_two(job_dir: Path, site: Site, first: Mapping[str, object], second: Mapping[str, object]) -> None:
    job = {"JOBDIR": str(job_dir)}
    urls = [f"{site.base}/"]
    await crawl_until(signal.SIGINT, lambda: len(site.page_paths) > 3, urls, {**first, **job})
    assert len(site.page_paths) < len(site.pages)
    done = await crawl(urls, {**second, **job})
    assert done.stats["finish_reason"] == "finished"
    assert sorted(site.page_paths) == sorted(site.pages)


async def test_a_job_of_plain_scrapy_is_resumed_with_the_add_on(tmp_path: Path) -> None:
    site = site_of_pages()
    async with serving(site):
        await crawl_in_two(tmp_path, site, SCRAPYS_OWN, QUICK)


async def test_a_job_of_the_add_on_is_resumed_by_plain_scrapy(tmp_path: Path) -> None:
    site = site_of_pages()
    async with serving(site):
        await crawl_in_two(tmp_path, site, QUICK, SCRAPYS_OWN)


async def test_a_robots_txt_that_fails_between_two_runs_loses_no_page(tmp_path: Path) -> None:
    site = site_of_pages()
    job = {"JOBDIR": str(tmp_path), "POLITESSE_STORE": False}  # the next run has no copy
    async with serving(site):
        urls = [f"{site.base}/"]
        await crawl_until(signal.SIGINT, lambda: len(site.page_paths) > 3, urls, QUICK | job)
        site.robots = 503
        failed = await crawl(urls, QUICK | job | {"POLITESSE_MAX_WAIT": 0})
        assert failed.pages == []
        assert failed.ignored == {}
        site.robots = 404
        await crawl(urls, QUICK | job)
    assert sorted(site.page_paths) == sorted(site.pages)


async def test_a_journal_of_another_version_is_named_in_the_first_error_and_nothing_is_lost(tmp_path: Path) -> None:
    site = site_of_pages()
    journal = tmp_path / "requests.queue.journal"
    settings = QUICK | {"JOBDIR": str(tmp_path)}
    async with serving(site):
        await crawl_until(signal.SIGKILL, lambda: len(site.page_paths) > 3, [f"{site.base}/"], settings)
        written = journal.read_bytes()
        journal.write_bytes(written.replace(b"journal 1", b"journal 2"))
        process = await start(json.dumps({"urls": [f"{site.base}/"], "settings": settings}))
        _, err = await asyncio.wait_for(process.communicate(), 60)
        errors = [line for line in err.decode().splitlines() if "ERROR" in line or "CRITICAL" in line]
        assert "is not a journal of this version of politesse" in errors[0]  # Scrapy adds what fails after that
        journal.write_bytes(written)
        await crawl([f"{site.base}/"], settings)
    assert set(site.page_paths) == set(site.pages)
