"""A small crawler that asks before each request: the part of the demo to copy."""

from __future__ import annotations

import asyncio
import html
import re
import time
from typing import TYPE_CHECKING, Final

import aiohttp
from yarl import URL

from politesse import Disallowed, InvalidURL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from politesse import Gatekeeper, Verdict

_HREF = re.compile(r'href="([^"]*)"')
_SOONEST_S: Final = 0.05
_BRIEFLY_S: Final = 0.1
_SLOW_ROBOTS_S: Final = 1.0


class Crawler:
    """Follows links with many tasks, and asks the gate before each request.

    Args:
        gate: answers whether, and from when on, a URL may be requested.
        session: requests the pages; with RobotsMiddleware in it, redirects are checked too.
        patience_s: how long a page may have to wait for a robots.txt that cannot be got now; longer, and it is left.

    Attributes:
        refused: how many links the gate refused.
        stopped: how many redirects were not followed because their target is refused.
        postponed: how often a page was put back until later.
        left: how many pages were left because their robots.txt cannot be got for too long.
        failed: how many requests failed.
    """

    def __init__(self, gate: Gatekeeper, session: aiohttp.ClientSession, *, patience_s: float = 10.0) -> None:
        self._gate = gate
        self._session = session
        self._patience_s = patience_s
        self._frontier: asyncio.Queue[URL] = asyncio.Queue()
        self._seen: set[URL] = set()
        self.refused = self.stopped = self.postponed = self.left = self.failed = 0

    async def crawl(self, start: Iterable[str], tasks: int) -> None:
        """Visit everything that can be reached from ``start`` and is allowed, with ``tasks`` tasks at once."""
        for url in start:
            self._offer(URL(url))
        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(self._work()) for _ in range(tasks)]
            await self._frontier.join()
            for worker in workers:
                worker.cancel()

    async def _work(self) -> None:
        while True:
            url = await self._frontier.get()
            wait_s = await self._visit(url)
            if wait_s is None:
                self._frontier.task_done()
            else:
                asyncio.get_running_loop().call_later(wait_s, self._put_back, url)

    async def _visit(self, url: URL) -> float | None:
        """Request a page if that is allowed now; return in how many seconds to try again, None for never."""
        try:
            verdict = await self._ask(url)
            if verdict is None:
                return _SLOW_ROBOTS_S
            if verdict.not_before is not None:
                return self._postpone(verdict)
            if not verdict.allowed:
                self.refused += 1
                return None
            async with self._session.get(url) as response:
                self._seen.add(response.url)  # another one than url after a redirect
                for link in _links(await response.text(), response.url):
                    self._offer(link)
        except Disallowed as refusal:  # by RobotsMiddleware, at a hop of a redirect
            if refusal.verdict.not_before is not None:
                return self._postpone(refusal.verdict)
            self.stopped += 1
        except InvalidURL:
            pass  # mailto and the like
        except (aiohttp.ClientError, TimeoutError):
            self.failed += 1
        return None

    async def _ask(self, url: URL) -> Verdict | None:
        """Return the verdict; None where robots.txt is slow to come: the gate waits for it, and this task need not."""
        try:
            async with asyncio.timeout(_BRIEFLY_S):
                return await self._gate.check(str(url))
        except TimeoutError:
            return None

    def _postpone(self, verdict: Verdict) -> float | None:
        wait_s = (verdict.not_before or 0.0) - time.time()
        if wait_s > self._patience_s:
            self.left += 1
            return None
        self.postponed += 1
        return max(wait_s, _SOONEST_S)

    def _put_back(self, url: URL) -> None:
        self._frontier.put_nowait(url)
        self._frontier.task_done()  # for the time that it was taken out; now it counts anew

    def _offer(self, url: URL) -> None:
        if url not in self._seen:
            self._seen.add(url)
            self._frontier.put_nowait(url)


def _links(page: str, base: URL) -> Iterator[URL]:
    for href in _HREF.findall(page):
        try:
            yield base.join(URL(html.unescape(href))).with_fragment(None)
        except ValueError:
            continue  # no URL at all
