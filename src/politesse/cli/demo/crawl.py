"""A small crawler that takes a turn for each request: the part of the demo to copy."""

from __future__ import annotations

import asyncio
import html
import re
from typing import TYPE_CHECKING, Final

import aiohttp
from yarl import URL

from politesse import InvalidURL, PoliteQueue, Reason, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from politesse._gate.view import AgentView
    from politesse.queue import QueuedTurn

_HREF = re.compile(r'href="([^"]*)"')
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_COME_AGAIN: Final = frozenset({429, 503})
_OUT_OF_REACH: Final = frozenset({Reason.UNREACHABLE, Reason.TOO_MANY_REQUESTS, Reason.WAIT_TOO_LONG})


class Crawler:
    """Follows links with many tasks; a queue hands each of them what may be requested now.

    Args:
        gate: settles what may be requested, and when.
        session: requests the pages.
        max_attempts: how often a page is requested that is answered with 429 or 503.
        max_unreachable_s: for how many seconds a robots.txt that cannot be fetched is waited for.

    Attributes:
        refused: how many URLs robots.txt forbids, targets of redirects included.
        left: how many were given up because their robots.txt could not be fetched, or their site had them wait.
        repeated: how many requests were put again because the server asked to come later.
        failed: how many pages could not be fetched.
    """

    def __init__(
        self,
        gate: AgentView,
        session: aiohttp.ClientSession,
        *,
        max_attempts: int = 3,
        max_unreachable_s: float = 300.0,
    ) -> None:
        self._session = session
        self._max_attempts = max_attempts
        self._queue: PoliteQueue[int] = PoliteQueue(
            gate, on_disallowed=self._turned_away, max_unreachable_s=max_unreachable_s
        )  # its items count the attempts
        self._seen: set[URL] = set()
        self.refused = self.left = self.repeated = self.failed = 0

    async def crawl(self, start: Iterable[str], tasks: int) -> None:
        """Visit everything that can be reached from ``start`` and is allowed, with ``tasks`` tasks at once."""
        async with asyncio.TaskGroup() as group:
            for url in start:
                await self._offer(URL(url), url)
            workers = [group.create_task(self._work()) for _ in range(tasks)]
            await self._queue.join()
            for worker in workers:
                worker.cancel()

    async def _work(self) -> None:
        while True:
            async with self._queue.turn() as turn:
                try:
                    await self._visit(turn)
                except (aiohttp.ClientError, TimeoutError):
                    self.failed += 1

    async def _visit(self, turn: QueuedTurn[int]) -> None:
        """Request a page, and put what it leads to while the turn lasts, so that the queue is not done before."""
        # The target of a redirect is another URL, perhaps of another host: it has to have a turn of its own.
        async with self._session.get(turn.url, allow_redirects=False) as response:
            turn.observe(response.status, response.headers)
            page = await response.text(errors="replace")
        if response.status in _COME_AGAIN:
            await self._put_again(turn)
        elif response.status in _REDIRECTS:
            await self._offer(response.url, response.headers.get("Location", ""))
        else:
            for href in _HREF.findall(page):
                await self._offer(response.url, html.unescape(href))

    async def _put_again(self, turn: QueuedTurn[int]) -> None:
        attempts = (turn.item or 0) + 1
        if attempts < self._max_attempts:
            self.repeated += 1
            await self._queue.put(turn.url, attempts)
        else:
            self.failed += 1

    async def _offer(self, base: URL, href: str) -> None:
        try:
            url = base.join(URL(href)).with_fragment(None)
            if url not in self._seen:
                self._seen.add(url)
                await self._queue.put(str(url), 0)
        except (ValueError, InvalidURL):
            pass  # no URL at all, or mailto and the like

    def _turned_away(self, _: int | str, verdict: Verdict) -> None:
        if verdict.reason in _OUT_OF_REACH:
            self.left += 1
        else:
            self.refused += 1
