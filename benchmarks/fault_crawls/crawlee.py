"""An ``HttpCrawler`` with ``respect_robots_txt_file=True`` and Crawlee's defaults, but for the timeouts."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from crawlee.crawlers import HttpCrawler
from crawlee.http_clients import ImpitHttpClient
from crawlee.storage_clients import MemoryStorageClient

from benchmarks.fault_crawls.task import Report, Said, Task, read_task

if TYPE_CHECKING:
    from crawlee import SkippedReason
    from crawlee.crawlers import BasicCrawlingContext, HttpCrawlingContext


async def crawl(task: Task, report: Report) -> None:
    options: dict[str, Any] = {  # HttpCrawler's types leave navigation_timeout out
        "http_client": ImpitHttpClient(timeout=task.timeout_s),  # robots.txt has no other timeout than the client's
        "navigation_timeout": timedelta(seconds=task.timeout_s),
        "respect_robots_txt_file": True,
        "storage_client": MemoryStorageClient(),
    }
    crawler = HttpCrawler(**options)

    async def handle(context: HttpCrawlingContext) -> None:
        context.log.debug("%s has come", context.request.url)

    async def before(context: BasicCrawlingContext) -> None:
        report.page(context.request.url, Said.REQUESTED)

    async def skipped(url: str, _: SkippedReason) -> None:
        report.page(url, Said.REFUSED)

    crawler.router.default_handler(handle)
    crawler.pre_navigation_hook(before)
    crawler.on_skipped_request(skipped)
    await crawler.run(task.urls)
    report.done()


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)
    asyncio.run(crawl(read_task(), Report()))
