"""Crawlee: the request manager and the client; without politesse, ``respect_robots_txt_file``."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

from crawlee import ConcurrencySettings, Request
from crawlee.crawlers import HttpCrawler, HttpCrawlingContext
from crawlee.http_clients import ImpitHttpClient
from crawlee.storage_clients import MemoryStorageClient
from crawlee.storages import RequestQueue

from benchmarks.client_crawls.plan import TIMEOUT_S, UNREACHABLE_S, USER_AGENT, WORKERS, Plan, gatekeeper, links
from politesse.integrations.crawlee import PoliteHttpClient, PoliteRequestManager


async def crawl(plan: Plan) -> None:
    storage = MemoryStorageClient()
    options: dict[str, Any] = {
        "concurrency_settings": ConcurrencySettings(desired_concurrency=WORKERS, max_concurrency=WORKERS),
        "configure_logging": False,
        "navigation_timeout": timedelta(seconds=TIMEOUT_S),
        "storage_client": storage,
    }
    async with AsyncExitStack() as stack:
        headers = {"User-Agent": USER_AGENT}
        sender = ImpitHttpClient(
            follow_redirects=not plan.polite, browser=None, timeout=TIMEOUT_S, headers=None if plan.polite else headers
        )
        if plan.polite:
            gate = await stack.enter_async_context(gatekeeper())
            queue = await RequestQueue.open(storage_client=storage)
            manager = PoliteRequestManager(gate, queue, max_wait_s=UNREACHABLE_S)
            await stack.enter_async_context(manager)
            options |= {"request_manager": manager, "http_client": PoliteHttpClient(manager, sender)}
        else:
            options |= {"http_client": sender, "respect_robots_txt_file": True}
        crawler = HttpCrawler(**options)

        @crawler.router.default_handler
        async def handle(context: HttpCrawlingContext) -> None:
            text = (await context.http_response.read()).decode(errors="replace")
            found = links(context.request.loaded_url or context.request.url, text)
            # Crawlee's own key is in lower case and without escapes, so that some of the pages would have the same.
            await context.add_requests([Request.from_url(link, unique_key=link) for link in found])

        await crawler.run(plan.fronts)


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)
    asyncio.run(crawl(Plan.read()))
