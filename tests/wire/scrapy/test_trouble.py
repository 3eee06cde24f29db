"""Scrapy crawls of sites whose robots.txt is in trouble, or that want to be left alone for long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest
from aiohttp import web
from scrapy import signals

from politesse import CacheOptions, FetchOptions, Gatekeeper, PoliteQueue
from politesse.queue import QueueClosed
from politesse.testing import ScriptedFetcher
from tests.support.ports import free_port
from tests.wire.scrapy.crawling import (
    ADDON,
    FORGETFUL,
    OPEN,
    USER_AGENT,
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

    Robots = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

pytestmark = [pytest.mark.realtime, pytest.mark.full]

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


def site_of(robots: Robots | int | str) -> Site:
    return Site(robots, {"/": html()})


async def test_a_site_whose_robots_txt_cannot_be_fetched_is_closed_by_default() -> None:
    unavailable, failing, hanging, broken = site_of(503), site_of(500), site_of(never), site_of(breaking_off)
    partial, elsewhere = site_of(206), site_of(answering(redirect("ftp://127.0.0.1/robots.txt")))
    sites = [unavailable, failing, hanging, broken, partial, elsewhere]
    patch = {"politesse.integrations.scrapy._robots._TIMEOUT_S": 1.0}
    async with serving(*sites):
        gone = "http://127.0.0.20:9"
        urls = [f"{base}/" for base in (*(site.base for site in sites), gone)]
        closed = await crawl(urls, ADDON | QUICK | {"RETRY_TIMES": 2, "POLITESSE_MAX_UNREACHABLE": 5}, patch=patch)
        pages_when_closed = [site.page_paths for site in sites]
        opened = await crawl(urls, ADDON | QUICK | {"POLITESSE_ON_ERROR": "allow"}, patch=patch)
    assert closed.pages == []
    assert pages_when_closed == [[]] * 6
    assert [site.robots_count for site in sites] == [2] * 6  # once in each crawl: when to ask again is not for Scrapy
    assert set(closed.ignored) == set(urls)
    for url, why in closed.ignored.items():
        assert "Forbidden by robots.txt (robots.txt is unreachable" in why, url
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


async def test_a_site_whose_robots_txt_stays_unreachable_for_five_minutes_is_given_up_as_in_a_queue() -> None:
    site = site_of(503)
    async with serving(site):
        async with Gatekeeper(USER_AGENT, cache=CacheOptions(retry_min_s=400.0)) as gate:
            queue: PoliteQueue[str] = PoliteQueue(gate)
            await queue.put(f"{site.base}/")
            queue.close()
            with pytest.raises(QueueClosed):
                await queue.turn().__aenter__()
            assert queue.statistics().given_up == 1
        done = await crawl([f"{site.base}/"], ADDON | QUICK | {"POLITESSE_CACHE": {"retry_min_s": 400.0}})
    assert site.robots_count == 2  # once by the queue, and once by Scrapy
    assert f"{site.base} is given up" in done.log
    assert "robots.txt is unreachable" in done.ignored[f"{site.base}/"]


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


async def test_a_spider_is_closed_in_time_and_waiting_requests_are_kept(tmp_path: Path) -> None:
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


async def test_first_page_waits_for_the_interval_after_the_robots_txt_that_reopens_its_site() -> None:
    slow = text("User-agent: *\nCrawl-delay: 1\n")
    troubles = [answering(status(number)) for number in (503, 429, 500)]

    def then_slow(trouble: Robots) -> Robots:
        answers = [trouble, answering(slow)]

        async def robots(request: web.BaseRequest) -> web.StreamResponse:
            return await (answers.pop(0) if len(answers) > 1 else answers[0])(request)

        return robots

    sites = [site_of(then_slow(trouble)) for trouble in (*troubles, breaking_off)]
    async with serving(*sites):
        quick = QUICK | {"POLITESSE_CACHE": {"retry_min_s": 1.0}}
        quick["POLITESSE_PACING"] = {"adaptive_factor": 0.0, "backoff_min_s": 1.0}
        await crawl([f"{site.base}/" for site in sites], ADDON | quick)
    for site in sites:
        assert site.paths == ["/robots.txt", "/robots.txt", "/"]
        assert site.exchanges[2].started - site.exchanges[1].ended >= 1.0


async def test_robots_txt_is_followed_for_five_redirects_read_to_its_limit_and_counted_once() -> None:
    rules = "User-agent: *\nDisallow: /private\n"
    front = {"/": html("/private"), "/private": html()}
    sent = 0

    async def without_end(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(rules.encode())
        while sent < 64 * 1024 * 1024:
            await response.write(b"# nothing\n" * 1000)
            sent += 10_000
        return response

    far, sixth, target, endless = Site(), Site(), Site(rules), Site(without_end, front)
    later = Site(answering(in_turn(status(429, Retry_After="2"), text(rules))), front)
    async with serving(far, sixth, target, endless, later):
        hops = {f"/{number}": redirect(f"/{number + 1}") for number in range(1, 6)}
        far.pages = front | hops | {"/4": redirect(f"{target.base}/robots.txt")}
        sixth.pages = front | hops | {"/6": text(rules)}
        far.robots = sixth.robots = answering(redirect("/1"))
        urls = [f"{site.base}/" for site in (far, sixth, endless, later)]
        # A site may have its robots.txt on a host whose pages are not wanted.
        wanted = [f"127.0.0.{place}" for place in (2, 3, 5, 6)]
        # Retry-After holds, unless our own backoff is longer.
        backoff: dict[str, object] = {"POLITESSE_CACHE": {"retry_min_s": 1.0}, "DOWNLOAD_DELAY": 0}
        backoff["POLITESSE_PACING"] = {"adaptive_factor": 0.0, "backoff_min_s": 1.0}
        done = await crawl(urls, ADDON | backoff, allowed_domains=wanted)
    assert far.paths == ["/robots.txt", "/1", "/2", "/3", "/4", "/"]
    assert target.paths == ["/robots.txt"]
    assert "offsite/filtered" not in done.stats
    # A sixth redirect: as if the site had no robots.txt.
    assert sixth.paths == ["/robots.txt", "/1", "/2", "/3", "/4", "/5", "/", "/private"]
    assert endless.page_paths == ["/"]
    assert sent < 16 * 1024 * 1024  # 500 KiB, and the buffers on the way
    assert later.paths == ["/robots.txt", "/robots.txt", "/"]
    assert later.exchanges[1].started - later.exchanges[0].ended >= 2.0
    assert set(done.ignored) == {f"{site.base}/private" for site in (far, endless, later)}
    counted = done.robots_stats()
    assert counted["robotstxt/request_count"] == counted["robotstxt/response_count"] == 5
    statuses = {number: counted[f"robotstxt/response_status_count/{number}"] for number in (200, 302, 429)}
    assert statuses == {200: 3, 302: 1, 429: 1}


async def test_errback_of_a_site_that_cannot_be_reached_gets_the_exception_of_plain_scrapy() -> None:
    urls = [f"http://127.0.0.1:{free_port()}/", "http://host.invalid/"]
    retried = {"RETRY_TIMES": 2, "HTTPERROR_ALLOW_ALL": True}
    plain = await crawl(urls, retried)
    done = await crawl(urls, ADDON | QUICK | {"POLITESSE_MAX_WAIT": 1, "POLITESSE_MAX_UNREACHABLE": 1} | retried)
    for url in urls:
        assert set(plain.types[url]) < set(done.types[url])
        assert "scrapy.exceptions.IgnoreRequest" in done.types[url]
    assert "Connection refused)" in done.ignored[urls[0]]
    assert "Connection refused, since 20" in done.log
    assert "Forbidden by robots.txt (robots.txt is unreachable" in done.ignored[urls[1]]
    assert "retry/count" not in done.stats


async def test_denied_private_address_is_not_requested_even_if_a_store_has_its_robots_txt(tmp_path: Path) -> None:
    site = Site(OPEN, {"/": html()})
    kept = ADDON | QUICK | {"POLITESSE_STORE": str(tmp_path / "robots.db")}
    async with serving(site):
        by_name = f"http://localhost:{site.base.rpartition(':')[2]}"
        exempt = [f"{base}/exempt#disobey" for base in (site.base, by_name)]
        urls = [f"{site.base}/", f"{site.base}/robots.txt", f"{by_name}/robots.txt", *exempt]
        assert (await crawl(urls[:1], kept)).pages == urls[:1]
        # Fetched when the name had a public address.
        fetcher = ScriptedFetcher({by_name: OPEN})
        fetcher.options = FetchOptions(private_addresses="deny")  # type: ignore[attr-defined]
        async with Gatekeeper(USER_AGENT, fetcher=fetcher, store=tmp_path / "robots.db") as gate:
            assert await gate.check(f"{by_name}/")
        urls.append(f"{by_name}/")
        asked = len(site.exchanges)
        done = await crawl(
            urls,
            kept | {"POLITESSE_PRIVATE_ADDRESSES": "deny", "POLITESSE_MAX_WAIT": 1, "POLITESSE_MAX_UNREACHABLE": 1},
        )
    assert done.pages == []
    assert set(done.ignored) == set(urls)
    assert all("private" in why for why in done.ignored.values()), done.ignored
    assert len(site.exchanges) == asked
