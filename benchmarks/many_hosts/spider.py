"""A Scrapy crawl of many hosts, and its processor time; one crawl a process, because a reactor starts only once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from scrapy import Request, Spider
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.resolver import CachingThreadedResolver
from twisted.internet.defer import Deferred, succeed

import politesse.integrations.scrapy  # noqa: F401 - imported by either crawl, so that neither is charged with it
from benchmarks.many_hosts.crawlers import USER_AGENT, links

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from scrapy.http import Response

_ADDRESS: Final = "127.0.0.1"


class _LoopbackResolver(CachingThreadedResolver):
    """Finds every name on this machine."""

    def getHostByName(self, name: str, timeout: Sequence[int] = ()) -> Deferred[str]:  # noqa: ARG002, N802 - twisted's
        return succeed(_ADDRESS)


class LinkSpider(Spider):
    """Requests the URLs to start with, and follows every link."""

    name = "links"

    def __init__(self, starts: Sequence[str]) -> None:
        super().__init__()
        self._starts = starts

    async def start(self) -> AsyncIterator[Request]:
        for url in self._starts:
            yield Request(url)

    def parse(self, response: Response, **_: Any) -> Iterator[Request]:  # noqa: ANN401 - as Scrapy declares it
        for link in links(response.text):
            yield response.follow(link)


def crawl_seconds(starts: Sequence[str], settings: Mapping[str, object]) -> tuple[float, float]:
    """Crawl in this process; return the seconds of processor time and of wall time."""
    process = AsyncCrawlerProcess(
        {
            "DNS_RESOLVER": _LoopbackResolver,
            "LOG_ENABLED": False,
            "ROBOTSTXT_OBEY": True,
            "TELNETCONSOLE_ENABLED": False,
            "USER_AGENT": USER_AGENT,
            **settings,
        }
    )
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    process.crawl(LinkSpider, starts=starts)
    process.start()
    return time.process_time() - cpu_s, time.perf_counter() - wall_s
