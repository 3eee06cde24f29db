"""The plan of a crawl, and what all crawlers share: the options of the gate, links, the loops without a queue."""

from __future__ import annotations

import asyncio
import html
import json
import re
import sys
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urldefrag, urljoin

from politesse import Gatekeeper
from politesse.cli.demo import CACHE, FETCH, PACING, USER_AGENT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

__all__ = ["CACHE", "FETCH", "PACING", "TIMEOUT_S", "UNREACHABLE_S", "USER_AGENT", "WORKERS", "Plan"]

TIMEOUT_S: Final = 2.0
WORKERS: Final = 20
UNREACHABLE_S: Final = 6.5
"""How long a polite crawler waits for a robots.txt that does not answer."""

_ATTEMPTS: Final = 3
BUSY: Final = frozenset({429, 503})
_HREF: Final = re.compile(r'href="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Plan:
    """Attributes:
    polite: whether politesse decides what is requested, and when.
    fronts: the URLs at which the crawl begins.
    """

    polite: bool
    fronts: list[str]

    @classmethod
    def read(cls) -> Plan:
        """Return the plan in the first argument of the command line."""
        return cls(**json.loads(sys.argv[1]))

    def text(self) -> str:
        """Return the argument that ``read`` reads."""
        return json.dumps(asdict(self))


class Fetched(NamedTuple):
    """The last answer to a request and its redirects."""

    status: int
    url: str
    text: str


def gatekeeper() -> Gatekeeper:
    """Return a gate with the options of the demo."""
    return Gatekeeper(USER_AGENT, fetch=FETCH, cache=CACHE, pacing=PACING)


def links(url: str, text: str) -> list[str]:
    """Return the http URLs to which a page links."""
    found = (urldefrag(urljoin(url, html.unescape(href))).url for href in _HREF.findall(text))
    return [link for link in found if link.startswith("http")]


class Frontier:
    """The URLs of a crawl that keeps no pace: each once, and again after a 429 or 503, three times at most."""

    def __init__(self, fronts: Iterable[str]) -> None:
        self._left = dict.fromkeys(fronts, _ATTEMPTS)
        self._waiting = list(self._left)

    def take(self) -> list[str]:
        """Return all URLs that are to be requested now."""
        taken, self._waiting = self._waiting, []
        return taken

    def note(self, url: str, fetched: Fetched | None) -> None:
        """Note the answer to a URL; None if there was none."""
        self._left[url] -= 1
        if fetched is None:
            return
        if fetched.status in BUSY and self._left[url]:
            self._waiting.append(url)
        for link in links(fetched.url, fetched.text):
            if link not in self._left:
                self._left[link] = _ATTEMPTS
                self._waiting.append(link)


async def crawl_in_tasks(plan: Plan, fetch: Callable[[str], Awaitable[Fetched | None]], workers: int = WORKERS) -> None:
    """Request all URLs, ``workers`` at once."""
    frontier = Frontier(plan.fronts)
    slots = asyncio.Semaphore(workers)

    async def visit(url: str) -> None:
        async with slots:
            fetched = await fetch(url)
        frontier.note(url, fetched)

    pending: set[asyncio.Task[None]] = set()
    while True:
        pending |= {asyncio.create_task(visit(url)) for url in frontier.take()}
        if not pending:
            return
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


def crawl_in_threads(plan: Plan, fetch: Callable[[str], Fetched | None]) -> None:
    """Request all URLs in ``WORKERS`` threads."""
    frontier = Frontier(plan.fronts)
    with ThreadPoolExecutor(WORKERS) as pool:
        pending: dict[Future[Fetched | None], str] = {}
        while True:
            pending |= {pool.submit(fetch, url): url for url in frontier.take()}
            if not pending:
                return
            for done in wait(pending, return_when=FIRST_COMPLETED).done:
                frontier.note(pending.pop(done), done.result())
