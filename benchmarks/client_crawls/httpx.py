"""httpx: ``queue.crawl`` over a ``PoliteTransport``; without politesse, an ``AsyncClient`` and tasks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx

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
from politesse import PoliteQueue
from politesse.integrations.httpx import PoliteTransport

if TYPE_CHECKING:
    from politesse.queue import CrawlPage


async def handle(page: CrawlPage[None], response: httpx.Response) -> None:
    for link in links(str(response.url), response.text):
        page.put(link)


async def polite(plan: Plan) -> None:
    async with (
        gatekeeper() as gate,
        httpx.AsyncClient(transport=PoliteTransport(gate), timeout=TIMEOUT_S) as client,
    ):
        queue = PoliteQueue[None](gate, max_unreachable_s=UNREACHABLE_S)
        for url in plan.fronts:
            await queue.put(url)
        await queue.crawl(client, handle, workers=WORKERS)


async def plain(plan: Plan) -> None:
    headers = {"User-Agent": USER_AGENT}
    async with httpx.AsyncClient(timeout=TIMEOUT_S, headers=headers, follow_redirects=True) as client:

        async def fetch(url: str) -> Fetched | None:
            try:
                response = await client.get(url)
            except httpx.HTTPError:
                return None
            return Fetched(response.status_code, str(response.url), response.text)

        await crawl_in_tasks(plan, fetch)


if __name__ == "__main__":
    given = Plan.read()
    asyncio.run(polite(given) if given.polite else plain(given))
