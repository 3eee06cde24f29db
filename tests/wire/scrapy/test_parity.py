"""The same crawl with Scrapy's own middleware and with politesse's: the same pages, and the differences."""

import asyncio
import re
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from tests.wire.scrapy.crawling import (
    ADDON,
    Crawl,
    Site,
    assert_sites_polite,
    crawl,
    html,
    redirect,
    serving,
    text,
)

pytestmark = [pytest.mark.realtime, pytest.mark.full]

QUICK: Final = {"DOWNLOAD_DELAY": 0, "POLITESSE_PACING": {"adaptive_factor": 0.0}}
SCRAPYS_OWN: Final = {"ROBOTSTXT_OBEY": True, "CONCURRENT_REQUESTS_PER_DOMAIN": 1}
ROBOTS: Final = "User-agent: *\nDisallow: /private/\nAllow: /private/open\n"


def tree(robots: str, elsewhere: list[str]) -> Site:
    """Return a site of 100 pages and some that are not to be requested."""
    pages = [f"/page/{number}" for number in range(98)]
    hidden = [f"/private/{number}" for number in range(10)]
    front = html(*pages[:50], *hidden, "/private/open", *elsewhere)
    return Site(robots, {"/": front, "/private/open": html(*pages[50:]), **dict.fromkeys([*pages, *hidden], html())})


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
    assert "INFO: Hosts closed for a time: 0; no request was given up for that\n" in ours.log
    forbidden = f"Forbidden by robots.txt: <GET {sites[0].base}/private/1>"
    assert forbidden in scrapys.log
    assert forbidden in ours.log


async def test_request_is_judged_for_the_user_agent_that_it_states() -> None:
    groups = {"examplebot": "/a", "otherbot": "/b", "third": "/c"}
    robots = "".join(f"User-agent: {agent}\nDisallow: {path}\n\n" for agent, path in groups.items())
    site = Site(robots, dict.fromkeys(["/a", "/a/exempt", "/b", "/c"], html()))
    async with serving(site):
        urls = [f"{site.base}{path}{mark}" for path in ("/a", "/b", "/c") for mark in ("", "#other", "#browser")]
        urls.append(f"{site.base}/a/exempt#disobey")
        named = {"ROBOTSTXT_USER_AGENT": "third"}
        late: dict[str, object] = {"DEFAULT_REQUEST_HEADERS": {"User-Agent": "OtherBot/2.0"}}
        by_header, by_setting, by_default = await asyncio.gather(
            crawl(urls, ADDON | QUICK, dont_filter=True),
            crawl(urls, ADDON | QUICK | named, dont_filter=True),
            crawl([f"{site.base}/b", f"{site.base}/c"], ADDON | QUICK | late),
        )
    browser = {f"{site.base}/{path}#browser" for path in "abc"}
    assert set(by_header.ignored) == {f"{site.base}/a", f"{site.base}/b#other"} | browser
    assert set(by_setting.ignored) == {f"{site.base}/c", f"{site.base}/b#other"} | browser
    assert "names no crawler" in by_header.ignored[f"{site.base}/a#browser"]
    assert f"{site.base}/a/exempt" in by_header.pages
    # A later middleware sets the header: the downloader judges the request as it is sent.
    assert by_default.ignored == {f"{site.base}/b": "IgnoreRequest: Forbidden by robots.txt"}
    assert by_default.pages == [f"{site.base}/c"]


async def test_a_request_that_was_put_back_is_filtered_as_if_it_had_not() -> None:
    site, other = Site(404), Site(404, {"/": html()})
    async with serving(site, other):
        site.pages = {"/away": redirect(f"{other.base}/")}
        # A page has to wait for the floor after robots.txt: it is put back into the scheduler.
        floor: dict[str, object] = {"DOWNLOAD_DELAY": 0.5}
        done = await crawl([f"{site.base}/away"], ADDON | floor, allowed_domains=["127.0.0.2"])
    assert site.paths == ["/robots.txt", "/away"]
    assert done.stats["scheduler/enqueued"] == 2
    assert other.paths == []
    assert done.stats["offsite/filtered"] == 1


async def test_robots_txt_is_fetched_through_the_proxy_but_not_from_a_private_address_behind_it() -> None:
    async def robots(request: web.BaseRequest) -> web.StreamResponse:
        away = request.headers["Host"] == "away.example"
        return (redirect("http://10.0.0.1/robots.txt") if away else text("User-agent: *\nDisallow: /private\n"))()

    proxy = Site(robots, {"/": html("/private")})
    async with serving(proxy):
        urls = ["http://site.example/", "http://away.example/"]
        settings = ADDON | QUICK | {"POLITESSE_MAX_WAIT": 1, "POLITESSE_MAX_UNREACHABLE": 1}
        done = await crawl(urls, settings, environment={"http_proxy": proxy.base})
    assert sorted(headers["Host"] for headers in proxy.robots_headers) == ["away.example", "site.example"]
    assert done.pages == ["http://site.example/"]
    assert set(done.ignored) == {"http://site.example/private", "http://away.example/"}
    assert "a redirect to 10.0.0.1, which is private" in done.ignored["http://away.example/"]


# The settings in the guide to Scrapy work as written.


ROOT: Final = Path(__file__).parents[3]
GUIDE: Final = (ROOT / "src/politesse/guides/scrapy.md").read_text()


def settings_in(text: str) -> list[dict[str, object]]:
    blocks = []
    for code in re.findall(r"```py\n(.*?)```", text, re.DOTALL):
        names: dict[str, object] = {}
        exec(code, names)  # noqa: S102 - our own guide
        blocks.append({name: value for name, value in names.items() if name.isupper()})
    return blocks


@pytest.mark.realtime
@pytest.mark.full
async def test_settings_of_the_guide_keep_a_crawler_out_of_disallowed_pages() -> None:
    addon, middleware = settings_in(GUIDE)
    parser = {name: value for name, value in middleware.items() if name != "DOWNLOADER_MIDDLEWARES"}

    async def crawled(settings: dict[str, object]) -> tuple[Site, Crawl]:
        site = Site("User-agent: *\nDisallow: /private\nCrawl-delay: 2\n", {"/": html("/private"), "/private": html()})
        async with serving(site):
            return site, await crawl([f"{site.base}/"], settings)

    crawls = await asyncio.gather(crawled(addon), crawled(middleware), crawled(parser))
    for site, done in crawls:
        assert site.paths == ["/robots.txt", "/"]
        assert done.ignored == {f"{site.base}/private": "IgnoreRequest: Forbidden by robots.txt"}
    (polite, done), (_, without_pace), (_, scrapys_own) = crawls
    robots, page = polite.exchanges
    assert page.started - robots.ended >= 2.0
    warning = "Requests are not paced"
    assert [warning in one.log for one in (done, without_pace, scrapys_own)] == [False, True, False]
