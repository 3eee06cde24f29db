"""The crawlers that are compared: each finds all pages from the same start, with the same parser of links."""

from __future__ import annotations

import asyncio
import re
import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from protego import Protego

from benchmarks.engines import AGENT
from politesse import Gatekeeper, PacingOptions, PoliteQueue, PoliteSession

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from politesse.queue import CrawlPage, Seen

USER_AGENT: Final = "ExampleBot/1.0 (+https://example.com/bot)"
UNPACED: Final = PacingOptions(min_delay_s=0.0, adaptive_factor=0.0)

_ADDRESS: Final = "127.0.0.1"
_LINK: Final = re.compile(r'href="([^"]+)"')


class LoopbackResolver:
    """Finds every name on this machine."""

    async def resolve(self, _host: str, _port: int, /) -> Sequence[str]:
        return [_ADDRESS]


class _AiohttpResolver(AbstractResolver):
    """The same, for a connector of aiohttp."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        flags = socket.AI_NUMERICHOST
        return [ResolveResult(hostname=host, host=_ADDRESS, port=port, family=family, proto=0, flags=flags)]

    async def close(self) -> None:
        """Hold nothing."""


def connector() -> aiohttp.TCPConnector:
    return aiohttp.TCPConnector(resolver=_AiohttpResolver(), family=socket.AF_INET)


async def crawl_with_semaphore(starts: Sequence[str], workers: int) -> None:
    """Plain aiohttp, which knows no robots.txt and no pace: a task for each URL, and a semaphore."""
    async with aiohttp.ClientSession(connector=connector(), headers={"User-Agent": USER_AGENT}) as web:
        await _Tasks(web, workers).crawl(starts)


async def crawl_with_protego(starts: Sequence[str], workers: int) -> None:
    """The same, with a Protego for each host, and no pace."""
    async with aiohttp.ClientSession(connector=connector(), headers={"User-Agent": USER_AGENT}) as web:
        await _Tasks(web, workers, _Parsers(web).allows).crawl(starts)


async def crawl_politely(starts: Sequence[str], workers: int, pacing: PacingOptions = UNPACED) -> None:
    """``PoliteQueue.crawl`` over a PoliteSession."""
    async with (
        Gatekeeper(USER_AGENT, pacing=pacing, resolver=LoopbackResolver()) as gate,
        PoliteSession(gate, connector=connector()) as web,
    ):
        await crawl_queue(gate, web, starts, workers)


async def crawl_queue(
    gate: Gatekeeper,
    web: PoliteSession,
    starts: Sequence[str],
    workers: int,
    *,
    seen: Seen | None = None,
    on_page: Callable[[], object] = lambda: None,
) -> None:
    """Crawl from ``starts``; ``on_page`` is called for every page."""

    async def handle(page: CrawlPage[None], response: aiohttp.ClientResponse) -> None:
        for link in links(await response.text()):
            page.put(link)
        on_page()

    queue: PoliteQueue[None] = PoliteQueue(gate)
    for url in starts:
        await queue.put(url)
    await queue.crawl(web, handle, workers=workers, seen=seen)


def links(text: str) -> list[str]:
    """Return the links of a page, as they are written."""
    return _LINK.findall(text)


class _Tasks:
    """Plain aiohttp: a task for each URL, and a semaphore.

    Args:
        web: the session.
        workers: how many URLs are requested at once.
        allows: whether a URL may be requested; None if nothing is checked.
    """

    def __init__(
        self, web: aiohttp.ClientSession, workers: int, allows: Callable[[str], Awaitable[bool]] | None = None
    ) -> None:
        self._web = web
        self._allows = allows
        self._semaphore = asyncio.Semaphore(workers)
        self._seen: set[str] = set()
        self._tasks = asyncio.TaskGroup()

    async def crawl(self, starts: Sequence[str]) -> None:
        async with self._tasks:
            for url in starts:
                self._put(url)

    def _put(self, url: str) -> None:
        if url not in self._seen:
            self._seen.add(url)
            self._tasks.create_task(self._visit(url))

    async def _visit(self, url: str) -> None:
        async with self._semaphore:
            if self._allows is not None and not await self._allows(url):
                return
            async with self._web.get(url) as response:
                text = await response.text()
        for link in links(text):
            self._put(urljoin(url, link))


class _Parsers:
    """A Protego for each host, fetched once."""

    def __init__(self, web: aiohttp.ClientSession) -> None:
        self._web = web
        self._parsers: dict[str, asyncio.Task[Protego]] = {}

    async def allows(self, url: str) -> bool:
        authority = urlsplit(url).netloc
        parser = self._parsers.get(authority)
        if parser is None:
            parser = self._parsers[authority] = asyncio.create_task(self._fetch(authority))
        return (await parser).can_fetch(url, AGENT)

    async def _fetch(self, authority: str) -> Protego:
        async with self._web.get(f"http://{authority}/robots.txt") as response:
            return Protego.parse(await response.text())
