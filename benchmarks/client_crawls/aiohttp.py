"""aiohttp: ``queue.crawl`` over a ``PoliteSession``; without politesse, a ``ClientSession`` and tasks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp

from benchmarks.client_crawls.plan import (
    TIMEOUT_S,
    UNREACHABLE_S,
    USER_AGENT,
    WORKERS,
    Fetched,
    Plan,
    crawl_in_tasks,
    gatekeeper,
    links,
)
from politesse import PoliteQueue, PoliteSession

if TYPE_CHECKING:
    from politesse.queue import CrawlPage

TIMEOUT = aiohttp.ClientTimeout(total=TIMEOUT_S)


async def handle(page: CrawlPage[None], response: aiohttp.ClientResponse) -> None:
    for link in links(str(response.url), await response.text(errors="replace")):
        page.put(link)


async def polite(plan: Plan) -> None:
    async with gatekeeper() as gate, PoliteSession(gate, timeout=TIMEOUT) as session:
        queue = PoliteQueue[None](gate, max_unreachable_s=UNREACHABLE_S)
        for url in plan.fronts:
            await queue.put(url)
        await queue.crawl(session, handle, workers=WORKERS)


async def plain(plan: Plan) -> None:
    async with aiohttp.ClientSession(timeout=TIMEOUT, headers={"User-Agent": USER_AGENT}) as session:

        async def fetch(url: str) -> Fetched | None:
            try:
                async with session.get(url) as response:
                    return Fetched(response.status, str(response.url), await response.text(errors="replace"))
            except (aiohttp.ClientError, TimeoutError):
                return None

        await crawl_in_tasks(plan, fetch)


if __name__ == "__main__":
    given = Plan.read()
    asyncio.run(polite(given) if given.polite else plain(given))
