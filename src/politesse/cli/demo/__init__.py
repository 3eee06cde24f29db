"""``politesse demo``: a crawl on real sockets, judged by the logs of the servers.

::

    sites     the web: nine origins, their pages and links
    web       the servers of the web, on loopback
    report    the sums of the logs, the violations found by the judge of politesse.testing, and the table

This module crawls the web.
"""

from __future__ import annotations

import asyncio
import html
import re
import time
from typing import TYPE_CHECKING, Final

import aiohttp

from politesse._gate.gatekeeper import Gatekeeper
from politesse.cli.demo.report import MIN_LIFETIME_S, RETRY_MIN_S, Row, audit, conclude, exit_code, introduce, watch
from politesse.cli.demo.sites import TOKEN
from politesse.cli.demo.web import LittleWeb
from politesse.integrations.aiohttp import PoliteSession
from politesse.options import CacheOptions, FetchOptions, PacingOptions
from politesse.queue import PoliteQueue

if TYPE_CHECKING:
    from rich.console import Console

    from politesse.queue import CrawlPage

USER_AGENT: Final = f"{TOKEN}/1.0 (crawls the loopback interface only)"

FETCH: Final = FetchOptions(connect_timeout_s=1.5, total_timeout_s=1.5)
CACHE: Final = CacheOptions(retry_min_s=RETRY_MIN_S, retry_max_s=RETRY_MIN_S, min_lifetime_s=MIN_LIFETIME_S)
"""The default options with shorter times, because a minute or more is too long for a demo."""

PACING: Final = PacingOptions(min_delay_s=0.015, adaptive_factor=0.0, backoff_min_s=0.1)
"""A pace that would be impolite at a real server. The adaptive delay is off, because no log could show it.

The backoff is short, so that Retry-After decides, and the logs show a crawler that ignores it.
"""

UNREACHABLE_S: Final = 6.5
"""How long the crawler waits for a robots.txt that does not answer."""

TASKS: Final = 20
_PAGE_TIMEOUT_S: Final = 2.0
_HREF = re.compile(r'href="([^"]*)"')


async def run(console: Console, pages: int, gate_class: type[Gatekeeper] = Gatekeeper) -> int:
    """Serve a web of about ``pages`` pages, crawl it, and print the findings; returns the exit code.

    Tests give a broken ``gate_class``; the report must then show its violations.
    """

    def look() -> list[Row]:
        return audit(web.logs(), PACING.min_delay_s, MIN_LIFETIME_S)

    async with LittleWeb(pages) as web:
        introduce(console, web, TASKS, PACING.min_delay_s)
        started_mono = time.monotonic()
        timeout = aiohttp.ClientTimeout(total=_PAGE_TIMEOUT_S)
        async with (
            gate_class(USER_AGENT, fetch=FETCH, cache=CACHE, pacing=PACING) as gate,
            PoliteSession(gate, timeout=timeout) as session,
        ):
            queue = PoliteQueue[None](gate, max_unreachable_s=UNREACHABLE_S)
            for url in web.front_pages:
                await queue.put(url)
            crawl = asyncio.create_task(queue.crawl(session, _follow_links, workers=TASKS))
            report = await watch(console, crawl, web, look)
        rows = look()
    conclude(console, rows, report, time.monotonic() - started_mono)
    return exit_code(rows)


async def _follow_links(page: CrawlPage[None], response: aiohttp.ClientResponse) -> None:
    for href in _HREF.findall(await response.text(errors="replace")):
        page.put(html.unescape(href))
