"""``politesse demo``: a crawl on real sockets, judged by the logs of the servers.

::

    sites, pages        the web: nine origins, pages made for their rules, links
    server              serves it on loopback, and keeps the logs
    crawl               the crawler, which is the example to copy
    report              what the logs come to, by the judge of politesse.testing
    view                the table
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import aiohttp

from politesse import CacheOptions, FetchOptions, Gatekeeper, PacingOptions
from politesse.cli.demo.crawl import Crawler
from politesse.cli.demo.report import MIN_LIFETIME_S, RETRY_MIN_S, audit, exit_code
from politesse.cli.demo.server import LittleWeb
from politesse.cli.demo.sites import TOKEN
from politesse.cli.demo.view import conclude, introduce, watch

if TYPE_CHECKING:
    from rich.console import Console

USER_AGENT: Final = f"{TOKEN}/1.0 (crawls the loopback interface only)"

FETCH: Final = FetchOptions(connect_timeout_s=1.5, total_timeout_s=1.5)
CACHE: Final = CacheOptions(retry_min_s=RETRY_MIN_S, retry_max_s=RETRY_MIN_S, min_lifetime_s=MIN_LIFETIME_S)
"""The defaults, with shorter times: those of a real crawler, a minute and more, are too long for a demo."""

PACING: Final = PacingOptions(min_delay_s=0.015, adaptive_factor=0.0, backoff_min_s=0.1)
"""Faster than anybody may crawl another's server, and without the pause for slow ones, which no log could show.

The backoff is short, so that Retry-After binds: a crawler that ignores it is seen.
"""

UNREACHABLE_S: Final = 6.5
"""How long the crawler waits for a robots.txt that does not answer."""

_PAGE_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of the demo.

    Attributes:
        pages: how many pages to make, about.
        tasks: how many tasks crawl at once.
        seed: of the web.
    """

    pages: int
    tasks: int
    seed: int


async def run(console: Console, plan: Plan, gate_class: type[Gatekeeper] = Gatekeeper) -> int:
    """Serve the web, crawl it, print what the servers saw; returns the exit code.

    With another ``gate_class`` the crawl uses another gate, such as a broken one: the report must show it.
    """
    async with LittleWeb(plan.pages, plan.seed) as web:
        introduce(console, web, plan.tasks, PACING.min_delay_s)
        started_mono = time.monotonic()
        async with (
            gate_class(USER_AGENT, fetch=FETCH, cache=CACHE, pacing=PACING) as gate,
            aiohttp.ClientSession(
                headers={"User-Agent": USER_AGENT}, timeout=aiohttp.ClientTimeout(total=_PAGE_TIMEOUT_S)
            ) as session,
        ):
            crawler = Crawler(gate, session, max_unreachable_s=UNREACHABLE_S)
            crawl = asyncio.create_task(crawler.crawl(web.front_pages, plan.tasks))
            await watch(console, crawl, web, partial(audit, web.servers, PACING.min_delay_s, MIN_LIFETIME_S))
        rows = audit(web.servers, PACING.min_delay_s, MIN_LIFETIME_S)
    conclude(console, rows, crawler, time.monotonic() - started_mono)
    return exit_code(rows)
