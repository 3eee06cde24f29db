"""The same crawl with Scrapy's own middleware and with politesse's: what is the same, and what is not."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

import pytest
import trustme

from tests.integration.scrapy.crawling import ADDON, Site, assert_sites_polite, crawl, html, redirect, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.realtime

QUICK: Final = {"DOWNLOAD_DELAY": 0, "POLITESSE_PACING": {"adaptive_factor": 0.0}}
SCRAPYS_OWN: Final = {"ROBOTSTXT_OBEY": True, "CONCURRENT_REQUESTS_PER_DOMAIN": 1}
ROBOTS: Final = "User-agent: *\nDisallow: /private/\nAllow: /private/open\n"


def tree(robots: str, elsewhere: list[str]) -> Site:
    """Return a site of 100 pages and some that are not to be requested."""
    pages = [f"/page/{number}" for number in range(98)]
    hidden = [f"/private/{number}" for number in range(10)]
    front = html(*pages[:50], *hidden, "/private/open", *elsewhere)
    return Site(robots, {"/": front, "/private/open": html(*pages[50:]), **dict.fromkeys([*pages, *hidden], html())})


def ssl_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.2").configure_cert(context)
    return context


async def test_the_same_pages_are_crawled_and_the_same_things_counted() -> None:
    named = "User-agent: examplebot\nDisallow: /private\nAllow: /private/open\n\nUser-agent: *\nDisallow: /\n"
    sites = [tree(ROBOTS, []), tree(named, []), tree(ROBOTS, [])]
    async with serving(*sites):
        urls = [f"{site.base}/" for site in sites]
        scrapys = await crawl(urls, SCRAPYS_OWN)
        seen = [site.page_paths for site in sites]
        for site in sites:
            site.exchanges.clear()
        ours = await crawl(urls, ADDON | QUICK)
    assert len(ours.pages) == 300
    assert set(ours.pages) == set(scrapys.pages)
    assert [sorted(site.page_paths) for site in sites] == [sorted(paths) for paths in seen]
    assert ours.ignored == scrapys.ignored
    assert len(ours.ignored) == 30
    assert ours.robots_stats() == scrapys.robots_stats()
    assert ours.robots_stats()["robotstxt/forbidden"] == 30
    assert ours.parsed == scrapys.parsed
    assert [site.robots_count for site in sites] == [1, 1, 1]
    assert_sites_polite(*sites)
    forbidden = f"Forbidden by robots.txt: <GET {sites[0].base}/private/1>"
    assert forbidden in scrapys.log
    assert forbidden in ours.log


@asynccontextmanager
async def one_port_for(plain: Site, secure: Site) -> AsyncIterator[str]:
    """Yield host and port where ``secure`` answers who speaks TLS, and ``plain`` everybody else."""

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while octets := await reader.read(65536):
                writer.write(octets)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(1)
        site = secure if first == b"\x16" else plain
        host, _, port = site.base.rpartition("/")[2].partition(":")
        inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
        inner_writer.write(first)
        await asyncio.gather(pass_on(reader, inner_writer), pass_on(inner_reader, writer))

    async with await asyncio.start_server(connected, "127.0.0.9", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


async def test_http_and_https_of_one_host_and_port_are_two_origins() -> None:
    plain = Site("User-agent: *\nDisallow: /\n", {"/": html()})
    secure = Site("User-agent: *\nDisallow: /private\n", {"/": html(), "/private": html()})
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(plain))
        await stack.enter_async_context(serving(secure, ssl_context=ssl_context()))
        authority = await stack.enter_async_context(one_port_for(plain, secure))
        urls = [f"https://{authority}/", f"http://{authority}/", f"https://{authority}/private"]
        done = await crawl(urls, ADDON | QUICK)
    assert done.pages == [f"https://{authority}/"]
    assert set(done.ignored) == {f"http://{authority}/", f"https://{authority}/private"}
    assert plain.paths == ["/robots.txt"]
    assert sorted(secure.paths) == ["/", "/robots.txt"]
    assert done.robots_stats()["robotstxt/request_count"] == 2


async def test_user_agent_of_the_request_selects_the_group() -> None:
    groups = {"examplebot": "/a", "otherbot": "/b", "third": "/c"}
    robots = "".join(f"User-agent: {agent}\nDisallow: {path}\n\n" for agent, path in groups.items())
    site = Site(robots, dict.fromkeys(["/a", "/a/exempt", "/b", "/c"], html()))
    async with serving(site):
        urls = [f"{site.base}{path}{mark}" for path in ("/a", "/b", "/c") for mark in ("", "#other")]
        urls.append(f"{site.base}/a/exempt#disobey")
        by_header, by_setting = await asyncio.gather(
            crawl(urls, ADDON | QUICK, dont_filter=True),
            crawl(urls, ADDON | QUICK | {"ROBOTSTXT_USER_AGENT": "third"}, dont_filter=True),
        )
    assert set(by_header.ignored) == {f"{site.base}/a", f"{site.base}/b#other"}
    assert set(by_setting.ignored) == {f"{site.base}/c", f"{site.base}/c#other"}
    assert f"{site.base}/a/exempt" in by_header.pages


async def test_a_request_that_was_put_back_is_filtered_as_if_it_had_not() -> None:
    site, other = Site(404), Site(404, {"/": html()})
    async with serving(site, other):
        site.pages = {"/away": redirect(f"{other.base}/")}
        # What comes behind robots.txt has to wait for the floor: it is put back into the scheduler.
        floor: dict[str, object] = {"DOWNLOAD_DELAY": 0.5}
        done = await crawl([f"{site.base}/away"], ADDON | floor, allowed_domains=["127.0.0.2"])
    assert site.paths == ["/robots.txt", "/away"]
    assert done.stats["scheduler/enqueued"] == 2
    assert other.paths == []
    assert done.stats["offsite/filtered"] == 1


async def test_robots_txt_is_fetched_through_the_proxy_of_the_crawl() -> None:
    proxy = Site("User-agent: *\nDisallow: /private\n", {"/": html("/private")})
    async with serving(proxy):
        done = await crawl(["http://site.example/"], ADDON | QUICK, environment={"http_proxy": proxy.base})
    assert [headers["Host"] for headers in proxy.robots_headers] == ["site.example"]
    assert done.pages == ["http://site.example/"]
    assert set(done.ignored) == {"http://site.example/private"}
