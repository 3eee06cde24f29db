"""The settings in the guide to Scrapy work as written."""

import asyncio
import re
from pathlib import Path
from typing import Final

import pytest

from tests.integration.scrapy.crawling import Crawl, Site, crawl, html, serving

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
