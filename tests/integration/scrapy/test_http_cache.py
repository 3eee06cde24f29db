"""Crawls with Scrapy's HTTP cache whose server is down in the second run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.scrapy.crawling import ADDON, Crawl, Site, answering, crawl, html, serving, text

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.realtime

ROBOTS: Final = "User-agent: *\nDisallow: /private\n"
RFC2616: Final = {"HTTPCACHE_POLICY": "scrapy.extensions.httpcache.RFC2616Policy"}
NO_DELAY: Final = {"DOWNLOAD_DELAY": 0, "POLITESSE_PACING": {"adaptive_factor": 0.0}}
SCRAPYS_OWN: Final = {"ROBOTSTXT_OBEY": True}
DELAY_S: Final = 30.0  # 20 pages would take ten minutes


def cached_in(directory: Path) -> dict[str, object]:
    return {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(directory), "RETRY_TIMES": 0}


def twenty_pages(**headers: str) -> Site:
    pages = [f"/{number}" for number in range(19)]
    front = "".join(f'<a href="{page}">on</a>' for page in (*pages, "/private"))
    page = text("", Content_Type="text/html", **headers)
    return Site(ROBOTS, {"/": text(front, Content_Type="text/html", **headers), **dict.fromkeys(pages, page)})


def assert_served(site: Site, done: Crawl) -> None:
    assert sorted(done.pages) == sorted(f"{site.base}{path}" for path in site.pages)
    assert done.ignored == {f"{site.base}/private": "IgnoreRequest: Forbidden by robots.txt"}


@pytest.mark.parametrize("first", [ADDON | NO_DELAY, SCRAPYS_OWN], ids=["politesse", "scrapy"])
async def test_cached_pages_are_served_without_a_wait_when_the_server_is_down(
    tmp_path: Path, first: dict[str, object]
) -> None:
    site = twenty_pages()
    async with serving(site):
        await crawl([f"{site.base}/"], first | cached_in(tmp_path))
    done = await crawl([f"{site.base}/"], ADDON | cached_in(tmp_path) | {"DOWNLOAD_DELAY": DELAY_S})
    assert_served(site, done)
    assert done.stats["httpcache/hit"] == 20
    assert done.log.count("Error downloading") == 1  # robots.txt, for the page that is not in the cache


async def test_stale_pages_are_served_when_the_server_is_down(tmp_path: Path) -> None:
    site = twenty_pages(ETag='"one"')
    site.robots = answering(text(ROBOTS, ETag='"two"'))  # without a validator this policy does not store it
    async with serving(site):
        await crawl([f"{site.base}/"], ADDON | NO_DELAY | cached_in(tmp_path) | RFC2616)
    done = await crawl([f"{site.base}/"], ADDON | NO_DELAY | cached_in(tmp_path) | RFC2616)
    assert_served(site, done)
    assert done.stats["httpcache/errorrecovery"] == 20


async def test_a_page_that_is_not_cached_stays_forbidden_and_holds_up_no_cached_one(tmp_path: Path) -> None:
    site = twenty_pages()
    async with serving(site):
        await crawl([f"{site.base}/"], ADDON | NO_DELAY | cached_in(tmp_path))
    unknown = f"{site.base}/unknown"
    settings = ADDON | cached_in(tmp_path) | {"DOWNLOAD_DELAY": DELAY_S, "POLITESSE_MAX_WAIT": 1}
    done = await crawl([unknown, f"{site.base}/"], settings)
    assert sorted(done.pages) == sorted(f"{site.base}{path}" for path in site.pages)
    assert "robots.txt is unreachable" in done.ignored[unknown]


async def test_robots_txt_is_fetched_from_the_server_before_a_page_that_is_not_cached(tmp_path: Path) -> None:
    site = Site(404, {"/": html("/new"), "/new": html()})
    async with serving(site):
        await crawl([f"{site.base}/"], ADDON | NO_DELAY | cached_in(tmp_path) | {"DEPTH_LIMIT": 1})
        site.robots = "User-agent: *\nDisallow: /later\n"
        site.pages["/new"] = html("/later")
        done = await crawl([f"{site.base}/new", f"{site.base}/later"], ADDON | NO_DELAY | cached_in(tmp_path))
    assert site.paths == ["/robots.txt", "/", "/new", "/robots.txt"]
    assert done.pages == [f"{site.base}/new"]
    assert set(done.ignored) == {f"{site.base}/later"}


async def test_only_cached_pages_are_served_with_ignore_missing(tmp_path: Path) -> None:
    site = twenty_pages()
    async with serving(site):
        await crawl([f"{site.base}/"], ADDON | NO_DELAY | cached_in(tmp_path))
    settings = ADDON | cached_in(tmp_path) | {"DOWNLOAD_DELAY": DELAY_S, "HTTPCACHE_IGNORE_MISSING": True}
    done = await crawl([f"{site.base}/", f"{site.base}/unknown"], settings)
    assert sorted(done.pages) == sorted(f"{site.base}{path}" for path in site.pages)
    assert done.ignored[f"{site.base}/unknown"].startswith("IgnoreRequest: Ignored request not in cache")
