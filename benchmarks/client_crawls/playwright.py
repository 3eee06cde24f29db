"""Playwright with a headless Chromium: ``polite_page`` and a queue; without politesse, a few pages and tasks."""

from __future__ import annotations

import asyncio
from shutil import which
from typing import TYPE_CHECKING

from playwright.async_api import BrowserContext, Error, async_playwright

from benchmarks.client_crawls.plan import (
    BUSY,
    TIMEOUT_S,
    UNREACHABLE_S,
    USER_AGENT,
    Fetched,
    Plan,
    crawl_in_tasks,
    gatekeeper,
    links,
)
from politesse import Disallowed, PoliteQueue, QueueClosed, TooFar
from politesse.integrations.playwright import polite_page

if TYPE_CHECKING:
    from politesse.integrations.playwright import PolitePage

PAGES = 4
"""Each page of a browser is a process."""


async def polite(plan: Plan, context: BrowserContext) -> None:
    async with gatekeeper() as gate:
        queue = PoliteQueue[None](gate, max_unreachable_s=UNREACHABLE_S)
        seen = set(plan.fronts)
        for url in plan.fronts:
            await queue.put(url)

        async def work(page: PolitePage) -> None:
            while True:
                async with queue.turn() as turn:
                    try:
                        response = await page.goto(turn.url, timeout=TIMEOUT_S * 1000)
                        found = [] if response is None else links(page.page.url, await response.text())
                    except (Disallowed, TooFar, Error):
                        continue  # a redirect, or the request has failed
                    if response is not None and response.status in BUSY:
                        await queue.put(turn.url)
                    for link in found:
                        if link not in seen:
                            seen.add(link)
                            await queue.put(link)

        pages = [await polite_page(await context.new_page(), gate) for _ in range(PAGES)]
        tasks = [asyncio.create_task(work(page)) for page in pages]
        await queue.join()
        queue.close()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, BaseException) and not isinstance(ended, QueueClosed):
                raise ended


async def plain(plan: Plan, context: BrowserContext) -> None:
    free = [await context.new_page() for _ in range(PAGES)]

    async def fetch(url: str) -> Fetched | None:
        page = free.pop()
        try:
            response = await page.goto(url, timeout=TIMEOUT_S * 1000)
            return None if response is None else Fetched(response.status, page.url, await response.text())
        except Error:
            return None
        finally:
            free.append(page)

    await crawl_in_tasks(plan, fetch, PAGES)


async def main(plan: Plan) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=which("chromium"), args=["--no-sandbox"])
        context = await browser.new_context(user_agent=USER_AGENT, service_workers="block")
        await (polite if plan.polite else plain)(plan, context)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main(Plan.read()))
