"""Scrapy: the add-on; without politesse, ``ROBOTSTXT_OBEY`` and the same least delay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider
from scrapy.crawler import AsyncCrawlerProcess

from benchmarks.client_crawls.plan import CACHE, PACING, TIMEOUT_S, UNREACHABLE_S, USER_AGENT, WORKERS, Plan, links

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy.http import Response

COMMON: dict[str, Any] = {
    "CONCURRENT_REQUESTS": WORKERS,
    "DOWNLOAD_DELAY": PACING.min_delay_s,
    "DOWNLOAD_TIMEOUT": TIMEOUT_S,
    "LOG_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "USER_AGENT": USER_AGENT,
}
POLITE: dict[str, Any] = COMMON | {
    "ADDONS": {"politesse.integrations.scrapy.PolitesseAddon": 100},
    "POLITESSE_CACHE": CACHE,
    "POLITESSE_MAX_UNREACHABLE": UNREACHABLE_S,
    "POLITESSE_PACING": PACING,
}
PLAIN: dict[str, Any] = COMMON | {
    "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
    "ROBOTSTXT_OBEY": True,
}


class LinksSpider(Spider):
    name = "links"

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self._plan = plan

    async def start(self) -> AsyncIterator[Request]:
        for url in self._plan.fronts:
            yield Request(url)

    def parse(self, response: Response) -> Iterator[Request]:
        for link in links(response.url, response.text):
            yield Request(link)


if __name__ == "__main__":
    given = Plan.read()
    process = AsyncCrawlerProcess(POLITE if given.polite else PLAIN)
    process.crawl(LinksSpider, plan=given)
    process.start()
