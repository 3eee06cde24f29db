"""Crawls with Scrapy's HTTP cache whose server is down in the second run."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from tests.wire.scrapy.crawling import ADDON, Crawl, Site, answering, crawl, html, serving, status, text

pytestmark = [pytest.mark.realtime, pytest.mark.full]

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


@pytest.fixture(scope="module", params=[ADDON | NO_DELAY, SCRAPYS_OWN], ids=["politesse", "scrapy"])
def cached(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, dict[str, object]]:
    """Return a site that is down, and the settings for the cache that has its pages."""
    site, cache = twenty_pages(), cached_in(tmp_path_factory.mktemp("cache"))

    async def crawl_once() -> None:
        async with serving(site):
            await crawl([f"{site.base}/"], request.param | cache)

    asyncio.run(crawl_once())
    return site, ADDON | cache | {"DOWNLOAD_DELAY": DELAY_S}


async def test_cached_pages_are_served_without_a_wait_and_the_others_stay_forbidden_when_the_server_is_down(
    cached: tuple[Site, dict[str, object]],
) -> None:
    site, settings = cached
    unknown = f"{site.base}/unknown"
    done = await crawl([unknown, f"{site.base}/"], settings | {"POLITESSE_MAX_WAIT": 1, "POLITESSE_MAX_UNREACHABLE": 1})
    assert "robots.txt is unreachable" in done.ignored.pop(unknown)
    assert_served(site, done)
    assert done.stats["httpcache/hit"] == 20
    assert done.log.count("Error downloading") == 1  # robots.txt, for the pages that are not in the cache


async def test_only_cached_pages_are_served_with_ignore_missing(cached: tuple[Site, dict[str, object]]) -> None:
    site, settings = cached
    urls = [f"{site.base}/", f"{site.base}/unknown"]
    done = await crawl(urls, settings | {"HTTPCACHE_IGNORE_MISSING": True})
    assert sorted(done.pages) == sorted(f"{site.base}{path}" for path in site.pages)
    assert done.ignored[urls[1]].startswith("IgnoreRequest: Ignored request not in cache")


async def test_stale_pages_are_served_when_the_server_is_down(tmp_path: Path) -> None:
    site = twenty_pages(ETag='"one"')
    site.robots = answering(text(ROBOTS, ETag='"two"'))  # without a validator this policy does not store it
    async with serving(site):
        await crawl([f"{site.base}/"], ADDON | NO_DELAY | cached_in(tmp_path) | RFC2616)
    done = await crawl([f"{site.base}/"], ADDON | NO_DELAY | cached_in(tmp_path) | RFC2616)
    assert_served(site, done)
    assert done.stats["httpcache/errorrecovery"] == 20


@pytest.mark.parametrize("action", ["challenge", "captcha"])
async def test_challenge_in_place_of_robots_txt_opens_no_site_and_is_not_cached(tmp_path: Path, action: str) -> None:
    refusal = status(202 if action == "challenge" else 405, x_amzn_waf_action=action)
    site = Site(answering(refusal), {"/": html()})
    settings = ADDON | NO_DELAY | cached_in(tmp_path) | {"POLITESSE_MAX_UNREACHABLE": 1}
    async with serving(site):
        first = await crawl([f"{site.base}/"], settings)
        second = await crawl([f"{site.base}/"], settings)
    assert site.page_paths == []
    assert "robots.txt is unreachable" in first.ignored[f"{site.base}/"]
    assert f"x-amzn-waf-action: {action}" in first.ignored[f"{site.base}/"]
    assert set(second.ignored) == {f"{site.base}/"}


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
