"""``politesse demo``: a crawl on real sockets, judged by the logs of the servers.

::

    sites, weave    the web: eight origins, pages made for their rules, links
    server          serves it on loopback, and keeps the logs
    crawl           the crawler, which is the example to copy
    report, view    what the logs say; the table
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import aiohttp

from politesse import FetchOptions, Gatekeeper
from politesse.cli.demo.crawl import Crawler
from politesse.cli.demo.report import audit, exit_code
from politesse.cli.demo.server import LittleWeb
from politesse.cli.demo.sites import TOKEN
from politesse.cli.demo.view import conclude, introduce, watch
from politesse.integrations.aiohttp import RobotsMiddleware

if TYPE_CHECKING:
    from rich.console import Console

USER_AGENT: Final = f"{TOKEN}/1.0 (crawls the loopback interface only)"

FETCH: Final = FetchOptions(connect_timeout_s=3.0, total_timeout_s=3.0)
"""As it comes, but for a robots.txt that never answers: nobody wants to wait for that in a demo."""

_PAGE_TIMEOUT_S: Final = 5.0  # longer: at a redirect it counts the wait for the robots.txt of the target


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

    With another ``gate_class`` the crawl asks another gate, such as a broken one: the report must tell.
    """
    async with LittleWeb(plan.pages, plan.seed) as web:
        introduce(console, web, plan.tasks)
        started_mono = time.monotonic()
        async with gate_class(USER_AGENT, fetch=FETCH) as gate, _session(gate) as session:
            crawler = Crawler(gate, session)
            crawl = asyncio.create_task(crawler.crawl(web.front_pages, plan.tasks))
            await watch(console, crawl, web)
        rows = audit(web.servers)
    conclude(console, rows, crawler, time.monotonic() - started_mono)
    return exit_code(rows)


def _session(gate: Gatekeeper) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        headers={"User-Agent": USER_AGENT},
        timeout=aiohttp.ClientTimeout(total=_PAGE_TIMEOUT_S),
        middlewares=(RobotsMiddleware(gate),),  # the safety net: it sees every hop of a redirect
    )
