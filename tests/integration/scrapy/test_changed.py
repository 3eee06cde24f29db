"""What changes between the question and the request: the rules, or the request itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest
from aiohttp import web

from tests.integration.scrapy.crawling import ADDON, Site, crawl, html, in_turn, serving

if TYPE_CHECKING:
    from tests.integration.scrapy.crawling import Crawl

pytestmark = pytest.mark.realtime

QUICK: Final = {"DOWNLOAD_DELAY": 0, "POLITESSE_PACING": {"adaptive_factor": 0.0}}
MEDDLING: Final = {"DOWNLOADER_MIDDLEWARES": {"meddling.Meddler": 900}}


@dataclass(frozen=True)
class Ended:
    """A site after a crawl of one of its pages."""

    site: Site
    url: str
    done: Crawl

    def assert_refused(self, why: str = "") -> None:
        """Assert that the page was not requested, and that exception, log and count say so."""
        assert self.site.page_paths == []
        assert self.done.ignored == {self.url: f"IgnoreRequest: Forbidden by robots.txt{why}"}
        assert self.done.log.count(f"Forbidden by robots.txt: <GET {self.url}>{why}\n") == 1
        assert self.done.robots_stats()["robotstxt/forbidden"] == 1
        assert self.done.stats["finish_reason"] == "finished"


async def crawl_one(site: Site, path: str, **task: object) -> Ended:
    async with serving(site):
        url = f"{site.base}{path}"
        return Ended(site, url, await crawl([url], ADDON | QUICK | MEDDLING, environment=None, **task))


def robots_in_turn(*texts: str) -> Site:
    answer = in_turn(*(partial(web.Response, text=text) for text in texts))

    async def robots(_: web.BaseRequest) -> web.StreamResponse:
        return answer()

    return Site(robots)


async def test_a_request_that_is_disallowed_when_its_turn_comes_is_ignored_logged_and_counted() -> None:
    site = robots_in_turn("User-agent: *\nAllow: /\n", "User-agent: *\nDisallow: /forget\n")
    ended = await crawl_one(site, "/forget")
    assert site.robots_count == 2
    ended.assert_refused()


async def test_a_request_to_a_host_that_is_denied_when_its_turn_comes_is_ignored_with_the_reason() -> None:
    ended = await crawl_one(Site(404, {"/deny": html()}), "/deny")
    ended.assert_refused(" (a host policy denies this host)")


async def test_a_request_that_a_middleware_behind_returns_is_judged_as_any_other() -> None:
    site = Site("User-agent: *\nDisallow: /private\n", {"/private": html()})
    ended = await crawl_one(site, "/replace")
    assert site.paths == ["/robots.txt"]
    assert ended.done.ignored == {f"{site.base}/private": "IgnoreRequest: Forbidden by robots.txt"}


async def test_a_host_header_that_names_another_site_is_refused() -> None:
    why = " (it would be sent with the Host header 'other.example': the rules of that site would apply)"
    (await crawl_one(Site(404, {"/page": html()}), "/page", host="other.example")).assert_refused(why)


async def test_a_host_header_that_a_middleware_behind_sets_is_refused() -> None:
    why = " (it would be sent with the Host header 'other.example': the rules of that site would apply)"
    (await crawl_one(Site(404, {"/host": html()}), "/host")).assert_refused(why)


async def test_a_host_header_that_names_the_same_site_is_sent() -> None:
    site = Site(404, {"/page": html()})
    async with serving(site):
        done = await crawl([f"{site.base}/page"], ADDON | QUICK, host=site.base.removeprefix("http://"))
    assert done.pages == [f"{site.base}/page"]
