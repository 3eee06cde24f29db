from __future__ import annotations

from aiohttp import web

from tests.integration.scrapy.crawling import ADDON, Site, assert_sites_polite, crawl, html, redirect, serving


async def test_data_txt_is_fetched_through_the_engine_in_its_turn_and_is_no_robots_txt() -> None:
    # As a robots.txt it would close the site.
    data_txt = web.Response(text="User-agent: *\nDisallow: /\n")
    pages = {"/": html("/1"), "/1": html(), "/data.txt": redirect("/d"), "/d": lambda: data_txt}
    site = Site("User-agent: *\nCrawl-delay: 0.3\n", pages)
    async with serving(site):
        done = await crawl([f"{site.base}/"], ADDON, data_txt=True)
    assert done.data_txt == [["found", "User-agent: *\nDisallow: /\n"]] * 2
    assert site.paths == ["/robots.txt", "/", "/data.txt", "/d", "/1"]
    assert_sites_polite(site)
    assert done.robots_stats()["robotstxt/request_count"] == 1
    assert done.robots_stats()["robotstxt/response_count"] == 1
    assert len(done.parsed) <= 1
