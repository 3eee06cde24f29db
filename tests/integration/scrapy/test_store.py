"""What a Scrapy crawl keeps of sites for the next one: ``POLITESSE_STORE``, and JOBDIR."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from politesse.stores import SqliteStore
from tests.integration.scrapy.crawling import OPEN, QUICK, Site, crawl, crawl_until, html, serving, status

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.realtime


def a_site() -> Site:
    return Site(OPEN, {"/1": html(), "/2": html()})


async def crawl_twice(site: Site, settings: dict[str, object]) -> None:
    async with serving(site):
        for page in site.pages:
            await crawl([f"{site.base}{page}"], QUICK | settings)
    assert site.page_paths == ["/1", "/2"]


async def test_a_second_run_fetches_no_robots_txt_that_is_kept(tmp_path: Path) -> None:
    site = a_site()
    await crawl_twice(site, {"POLITESSE_STORE": str(tmp_path / "sites.db")})
    assert site.paths.count("/robots.txt") == 1


async def test_a_job_keeps_it_in_its_directory(tmp_path: Path) -> None:
    site = a_site()
    await crawl_twice(site, {"JOBDIR": str(tmp_path)})
    assert site.paths.count("/robots.txt") == 1
    store = SqliteStore(tmp_path / "robots.db")
    assert await store.get(site.base) is not None
    await store.aclose()


@pytest.mark.parametrize("off", [False, "", "0"])
async def test_a_job_may_keep_nothing(tmp_path: Path, off: object) -> None:
    site = a_site()
    await crawl_twice(site, {"JOBDIR": str(tmp_path), "POLITESSE_STORE": off})
    assert site.paths.count("/robots.txt") == 2
    assert not (tmp_path / "robots.db").exists()


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


async def test_a_store_that_cannot_be_used_is_one_line_that_names_the_setting(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.db"
    foreign.write_bytes(b"something else" * 100)
    site = a_site()
    async with serving(site):
        done = await crawl([f"{site.base}/1"], QUICK | {"POLITESSE_STORE": str(foreign)})
    [line] = [line for line in done.log.splitlines() if "ERROR" in line or "CRITICAL" in line]
    assert "no politesse file" in line
    assert "store POLITESSE_STORE" in line
    assert site.paths == []
    assert foreign.read_bytes() == b"something else" * 100
