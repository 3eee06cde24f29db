"""A Scrapy spider with ROBOTSTXT_OBEY and Scrapy's defaults, but for the timeout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.exceptions import IgnoreRequest
from scrapy.resolver import dnscache

from benchmarks.fault_crawls.task import Report, Said, Task, read_task

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy.http import Response


class TaskSpider(Spider):
    name = "task"

    def __init__(self, task: Task, report: Report) -> None:
        super().__init__()
        self._task = task
        self._report = report

    async def start(self) -> AsyncIterator[Request]:
        for url in self._task.urls:
            yield Request(url, errback=self._failed)

    async def parse(self, response: Response) -> None:
        self._report.page(response.url, Said.REQUESTED)

    def _failed(self, failure: Any) -> None:  # noqa: ANN401 - twisted types it no more closely
        # Any answer but a 2xx is an IgnoreRequest as well, but a page here is always a 200.
        said = Said.REFUSED if failure.check(IgnoreRequest) else Said.REQUESTED
        self._report.page(failure.request.url, said)


def crawl(task: Task, report: Report) -> None:
    for host, address in task.names.items():
        dnscache[host] = address
    settings = {
        "ROBOTSTXT_OBEY": True,
        "DOWNLOAD_TIMEOUT": task.timeout_s,
        "LOG_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,  # a port for each of many crawls
    }
    process = AsyncCrawlerProcess(settings)
    process.crawl(TaskSpider, task=task, report=report)
    process.start()
    report.done()


if __name__ == "__main__":
    crawl(read_task(), Report())
