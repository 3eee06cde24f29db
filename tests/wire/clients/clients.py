"""The ways to request politely, with the same methods: the tests of what holds for each of them."""

import asyncio
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Protocol

import aiohttp
import httpx
import httpx2

from politesse import AgentView, Gatekeeper
from politesse.integrations.aiohttp import PoliteSession, RobotsMiddleware
from politesse.integrations.httpx import PoliteTransport
from politesse.integrations.httpx2 import PoliteTransport as Httpx2Transport
from politesse.testing import assert_polite
from tests.support.httpx_libraries import Library
from tests.support.sites import UA, Site

Session = PoliteSession | aiohttp.ClientSession


class Client(Protocol):
    """What a program requests with."""

    async def get(self, url: str, headers: Any = None) -> int:
        """Return the status of a page that was read to its end."""

    async def open(self, url: str) -> Callable[[], object]:
        """Request a page, and return what releases it unread."""

    async def aclose(self) -> None:
        """Close the client."""


class Aiohttp:
    def __init__(self, web: Session) -> None:
        self.web = web

    async def get(self, url: str, headers: Any = None) -> int:
        async with self.web.get(url, headers=headers) as response:
            await response.read()
            return response.status

    async def open(self, url: str) -> Callable[[], object]:
        response = await self.web.get(url)
        return response.close

    async def aclose(self) -> None:
        await self.web.close()


class Httpx:
    def __init__(self, name: str, gate: AgentView, **options: Any) -> None:
        library = Library(name)
        options |= {"transport": library.polite.PoliteTransport(gate), "follow_redirects": True, "timeout": 3}
        self.web: httpx.AsyncClient = library.http.AsyncClient(**options)

    async def get(self, url: str, headers: Any = None) -> int:
        return (await self.web.get(url, headers=headers)).status_code

    async def open(self, url: str) -> Callable[[], object]:
        response = await self.web.send(self.web.build_request("GET", url), stream=True)
        return lambda: asyncio.ensure_future(response.aclose())

    async def aclose(self) -> None:
        await self.web.aclose()


def with_middleware(gate: AgentView, *, pace: bool, **options: Any) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(middlewares=(RobotsMiddleware(gate, pace=pace),), **options)


SESSIONS: dict[str, Callable[..., Session]] = {
    "PoliteSession": PoliteSession,
    "pace": partial(with_middleware, pace=True),
    "permission": partial(with_middleware, pace=False),
}
CLIENTS: dict[str, Callable[..., Client]] = {
    "PoliteSession": lambda gate, **options: Aiohttp(PoliteSession(gate, **options)),
    "RobotsMiddleware": lambda gate, **options: Aiohttp(SESSIONS["pace"](gate, **options)),
    "PoliteTransport": partial(Httpx, "httpx"),
    "PoliteTransport of httpx2": partial(Httpx, "httpx2"),
}


CRAWLING: dict[str, Callable[[Gatekeeper], Any]] = {
    "PoliteSession": PoliteSession,
    "ClientSession": lambda _: aiohttp.ClientSession(),
    "RobotsMiddleware": lambda gate: aiohttp.ClientSession(middlewares=[RobotsMiddleware(gate, pace=True)]),
    "httpx.AsyncClient": lambda _: httpx.AsyncClient(),
    "httpx2.AsyncClient": lambda _: httpx2.AsyncClient(),
    "httpx.PoliteTransport": lambda gate: httpx.AsyncClient(transport=PoliteTransport(gate), follow_redirects=True),
    "httpx2.PoliteTransport": lambda gate: httpx2.AsyncClient(transport=Httpx2Transport(gate), follow_redirects=True),
}
"""What a crawl takes."""


@cache
def use_memory() -> None:
    """Keep Crawlee's own state in memory: files would be shared with the tests in other processes.

    Crawlee takes one storage for a process.
    """
    from crawlee import service_locator
    from crawlee.storage_clients import MemoryStorageClient

    service_locator.set_storage_client(MemoryStorageClient())


def judge(*sites: Site, min_delay_s: float = 0.0, agent: str = UA) -> None:
    """Fail unless the servers' logs show a polite crawl in the name of one agent."""
    trace = [exchange for site in sites for exchange in site.trace()]
    robots = {site.base: site.robots for site in sites}
    assert_polite(trace, robots, agent="ExampleBot", min_delay_s=min_delay_s, slack_s=0.01)
    assert {seen.headers["User-Agent"] for site in sites for seen in site.seen} == {agent}
