"""Scrapy crawls of sites whose robots.txt is in trouble, or that want to be left alone for long."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port
from scrapy import signals

from tests.integration.scrapy.crawling import (
    ADDON,
    FORGETFUL,
    Site,
    answering,
    chain,
    crawl,
    html,
    in_turn,
    redirect,
    serving,
    status,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.integration.scrapy.crawling import Crawl

pytestmark = pytest.mark.realtime

QUICK: Final = {"DOWNLOAD_DELAY": 0, "POLITESSE_PACING": {"adaptive_factor": 0.0}}


async def never(_: web.BaseRequest) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def breaking_off(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b"User-agent: *\nAllow: /\n")
    assert request.transport is not None
    request.transport.close()
    return response


def site_of(robots: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]] | int | str) -> Site:
    return Site(robots, {"/": html()})


async def test_a_site_whose_robots_txt_cannot_be_fetched_is_closed_by_default() -> None:
    unavailable, failing, hanging, broken = site_of(503), site_of(500), site_of(never), site_of(breaking_off)
    partial, elsewhere = site_of(206), site_of(answering(redirect("ftp://127.0.0.1/robots.txt")))
    sites = [unavailable, failing, hanging, broken, partial, elsewhere]
    patch = {"politesse.integrations.scrapy.engine_fetcher._TIMEOUT_S": 1.0}
    async with serving(*sites):
        gone = "http://127.0.0.20:9"
        urls = [f"{base}/" for base in (*(site.base for site in sites), gone)]
        closed = await crawl(urls, ADDON | QUICK | {"RETRY_TIMES": 2, "POLITESSE_MAX_WAIT": 5}, patch=patch)
        pages_when_closed = [site.page_paths for site in sites]
        opened = await crawl(urls, ADDON | QUICK | {"POLITESSE_ON_ERROR": "allow"}, patch=patch)
    assert closed.pages == []
    assert pages_when_closed == [[]] * 6
    assert [site.robots_count for site in sites] == [2] * 6  # once in each crawl: when to ask again is not for Scrapy
    assert set(closed.ignored) == set(urls)
    for url, why in closed.ignored.items():
        assert why.startswith("IgnoreRequest: Forbidden by robots.txt (robots.txt is unreachable"), url
    assert "the server answered with status 503" in closed.ignored[f"{unavailable.base}/"]
    assert "timeout" in closed.ignored[f"{hanging.base}/"]
    assert "ftp" in closed.ignored[f"{elsewhere.base}/"]
    assert f"All of {unavailable.base} is disallowed: the server answered with status 503" in closed.log
    assert f"Error downloading <GET {hanging.base}/robots.txt>" in closed.log
    counted = closed.robots_stats()
    assert counted["robotstxt/forbidden"] == counted["robotstxt/request_count"] == 7
    for number, times in {503: 1, 500: 1, 206: 1, 302: 1}.items():
        assert counted[f"robotstxt/response_status_count/{number}"] == times
    assert counted["robotstxt/response_count"] == 4
    failures = [number for name, number in counted.items() if name.startswith("robotstxt/exception_count/<class '")]
    assert sum(int(number) for number in failures) == 3
    if hasattr(signals, "robots_parsed"):  # since Scrapy 2.18
        assert closed.parsed[f"{failing.base}/"] == {"ExampleBot": False, "OtherBot": False}
    assert sorted(opened.pages) == sorted(f"{site.base}/" for site in sites)
    assert "robotstxt/forbidden" not in opened.robots_stats()


async def test_an_expired_copy_is_fetched_again_with_its_validator_alone(tmp_path: Path) -> None:
    async def robots(request: web.BaseRequest) -> web.StreamResponse:
        headers = {"ETag": '"one"', "Cache-Control": "max-age=1"}
        if request.headers.get("If-None-Match") == '"one"':
            return web.Response(status=304, headers=headers)
        return web.Response(text="User-agent: *\nDisallow: /5\n", headers=headers)

    baked = web.Response(headers={"Set-Cookie": "flavour=chocolate", "Content-Type": "text/html"}, text='<a href="/1">')
    site = Site(robots, chain(7) | {"/0": lambda: baked})
    settings: dict[str, object] = {"DOWNLOAD_DELAY": 0.4, "POLITESSE_CACHE": {"min_lifetime_s": 0.0}}
    # It would answer from its own copy, without asking.
    settings |= {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path)}
    async with serving(site):
        done = await crawl([f"{site.base}/0"], ADDON | settings)
    assert site.page_paths == [f"/{number}" for number in range(5)]
    assert set(done.ignored) == {f"{site.base}/5"}
    asked = [headers.get("If-None-Match") for headers in site.robots_headers]
    assert asked[0] is None
    assert len(asked) > 1
    assert set(asked[1:]) == {'"one"'}
    assert [headers for headers in site.robots_headers if "Cookie" in headers] == []
    assert done.robots_stats()["robotstxt/response_status_count/304"] == len(asked) - 1


async def test_request_that_would_wait_too_long_is_dropped_and_the_crawl_ends() -> None:
    hour = time.gmtime(time.time() + 6 * 3600)
    window = f"{time.strftime('%H%M', hour)}-{time.strftime('%H%M', time.gmtime(time.time() + 7 * 3600))}"
    closed = Site(404, {"/": in_turn(status(429, Retry_After="600"), html()), "/a": html()})
    slow = Site("User-agent: *\nCrawl-delay: 30\n", {"/": html()})
    visits = Site(f"User-agent: *\nVisit-time: {window}\n", {"/": html()})
    put_off = site_of(answering(status(429, Retry_After="60")))
    sites = [closed, slow, visits, put_off]
    async with serving(*sites):
        urls = [f"{site.base}{path}" for site in sites for path in ("/", "/a")]
        done = await crawl(urls, ADDON | QUICK | {"POLITESSE_MAX_WAIT": 5})
    assert [site.page_paths for site in sites] == [[closed.page_paths[0]], [], [], []]
    # One of each got its robots.txt, and then nothing could be had in time; one was answered with 429.
    assert done.stats["politesse/too_far"] == 5
    assert "No turn at 127.0.0.3 within 5 s" in done.ignored[f"{slow.base}/"]
    assert "visit-time" in done.ignored[f"{visits.base}/"]
    assert "429" in done.ignored[f"{put_off.base}/"]
    assert done.robots_stats()["robotstxt/forbidden"] == 2
    assert put_off.robots_count == 1
    assert done.stats["finish_reason"] == "finished"


async def test_a_spider_is_closed_in_time_and_what_waits_is_kept(tmp_path: Path) -> None:
    closed = Site(404, {"/": status(503, Retry_After="3000"), "/a": html()})
    hanging = site_of(never)
    waiting = Site("User-agent: *\nCrawl-delay: 60\n", {"/": html()})
    sites = [closed, hanging, waiting]
    async with serving(*sites):
        urls = [f"{site.base}{path}" for site in sites for path in ("/", "/a")]
        settings = ADDON | FORGETFUL | {"CLOSESPIDER_TIMEOUT": 2, "JOBDIR": str(tmp_path)}
        done = await crawl(urls, settings)
        first = len(closed.page_paths)
        closed.pages = {"/": html(), "/a": html()}
        resumed = await crawl([], settings)
    assert done.stats["finish_reason"] == "closespider_timeout"
    assert done.elapsed_s < 25  # where the next to come is 30 s away
    assert hanging.paths[0] == waiting.paths[0] == "/robots.txt"
    assert hanging.page_paths == waiting.page_paths == []
    # One was answered with 503, and the other waited in the scheduler: on disk, and none the worse for it.
    assert first == 1
    assert sorted(closed.page_paths) == ["/", "/a"]
    assert resumed.pages == [f"{closed.base}{closed.page_paths[1]}"]


@dataclass(frozen=True)
class Odd:
    """Sites whose robots.txt is odd, and what came of one crawl of all."""

    far: Site
    target: Site
    sixth: Site
    endless: Site
    sent: list[int]
    later: Site
    done: Crawl


@pytest.fixture(scope="module")
def odd() -> Odd:
    return asyncio.run(crawl_odd_sites())


async def crawl_odd_sites() -> Odd:
    rules = "User-agent: *\nDisallow: /private\n"
    front = {"/": html("/private"), "/private": html()}
    sent = [0]

    async def without_end(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(rules.encode())
        while sent[0] < 64 * 1024 * 1024:
            await response.write(b"# nothing\n" * 1000)
            sent[0] += 10_000
        return response

    far, sixth, target, endless = Site(), Site(), Site(rules), Site(without_end, front)
    later = Site(answering(in_turn(status(429, Retry_After="2"), text(rules))), front)
    async with serving(far, sixth, target, endless, later):
        hops = {f"/{number}": redirect(f"/{number + 1}") for number in range(1, 6)}
        far.pages = front | hops | {"/4": redirect(f"{target.base}/robots.txt")}
        sixth.pages = front | hops | {"/6": text(rules)}
        far.robots = sixth.robots = answering(redirect("/1"))
        urls = [f"{site.base}/" for site in (far, sixth, endless, later)]
        # A site may have its robots.txt elsewhere, whatever else is not wanted from there.
        wanted = [f"127.0.0.{place}" for place in (2, 3, 5, 6)]
        # What Retry-After asks for holds, unless our own backoff is longer.
        backoff: dict[str, object] = {"POLITESSE_CACHE": {"retry_min_s": 1.0}}
        backoff["POLITESSE_PACING"] = {"adaptive_factor": 0.0, "backoff_min_s": 1.0}
        done = await crawl(urls, ADDON | backoff | {"DOWNLOAD_DELAY": 0}, allowed_domains=wanted)
    return Odd(far, target, sixth, endless, sent, later, done)


def test_five_redirects_of_robots_txt_are_followed_and_bind_the_first_site(odd: Odd) -> None:
    assert odd.far.paths == ["/robots.txt", "/1", "/2", "/3", "/4", "/"]
    assert odd.target.paths == ["/robots.txt"]
    assert f"{odd.far.base}/private" in odd.done.ignored


def test_robots_txt_may_lead_where_pages_may_not(odd: Odd) -> None:
    assert odd.target.base.startswith("http://127.0.0.4:")
    assert "offsite/filtered" not in odd.done.stats


def test_a_sixth_redirect_is_as_if_there_were_no_robots_txt(odd: Odd) -> None:
    assert odd.sixth.paths == ["/robots.txt", "/1", "/2", "/3", "/4", "/5", "/", "/private"]


def test_a_robots_txt_too_long_to_be_read_is_cut_and_not_read_on(odd: Odd) -> None:
    assert odd.endless.page_paths == ["/"]
    assert f"{odd.endless.base}/private" in odd.done.ignored
    assert odd.sent[0] < 16 * 1024 * 1024  # 500 KiB, and what the buffers on the way hold


def test_deferred_robots_txt_is_fetched_again_at_the_stated_time(odd: Odd) -> None:
    assert odd.later.paths == ["/robots.txt", "/robots.txt", "/"]
    first, second, _ = odd.later.exchanges
    assert second.started - first.ended >= 2.0
    assert f"{odd.later.base}/private" in odd.done.ignored


def test_robots_txt_is_counted_once_however_often_it_is_redirected(odd: Odd) -> None:
    counted = odd.done.robots_stats()
    assert counted["robotstxt/request_count"] == 5
    assert counted["robotstxt/response_count"] == 5
    assert counted["robotstxt/response_status_count/200"] == 3
    assert counted["robotstxt/response_status_count/302"] == 1
    assert counted["robotstxt/response_status_count/429"] == 1


async def test_a_refused_connection_is_quoted_without_the_period_of_its_message() -> None:
    url = f"http://127.0.0.1:{unused_port()}/"
    done = await crawl([url], ADDON | QUICK | {"POLITESSE_MAX_WAIT": 1})
    assert "Connection refused)" in done.ignored[url]
    assert "Connection refused, since 20" in done.log
