"""The ways to request politely, with the same methods: the tests of what holds for each of them."""

import asyncio
from collections.abc import Callable
from typing import Protocol

import aiohttp
import httpx
import pytest

from politesse import AgentView
from politesse.integrations.aiohttp import PoliteSession, RobotsMiddleware
from tests.support.httpx_libraries import Library

Session = PoliteSession | aiohttp.ClientSession


class Client(Protocol):
    """What a program requests with."""

    async def get(self, url: str) -> int:
        """Return the status of a page that was read to its end."""

    async def open(self, url: str) -> Callable[[], object]:
        """Request a page, and return what releases it unread."""

    async def aclose(self) -> None:
        """Close the client."""


class Aiohttp:
    def __init__(self, web: Session) -> None:
        self.web = web

    async def get(self, url: str) -> int:
        async with self.web.get(url) as response:
            await response.read()
            return response.status

    async def open(self, url: str) -> Callable[[], object]:
        response = await self.web.get(url)
        return response.close

    async def aclose(self) -> None:
        await self.web.close()


class Httpx:
    def __init__(self, gate: AgentView, name: str) -> None:
        library = Library(name)
        transport = library.polite.PoliteTransport(gate)
        self.web: httpx.AsyncClient = library.http.AsyncClient(transport=transport, follow_redirects=True, timeout=3)

    async def get(self, url: str) -> int:
        return (await self.web.get(url)).status_code

    async def open(self, url: str) -> Callable[[], object]:
        response = await self.web.send(self.web.build_request("GET", url), stream=True)
        return lambda: asyncio.ensure_future(response.aclose())

    async def aclose(self) -> None:
        await self.web.aclose()


CLIENTS: dict[str, Callable[[AgentView], Client]] = {
    "PoliteSession": lambda gate: Aiohttp(PoliteSession(gate)),
    "RobotsMiddleware": lambda gate: Aiohttp(SESSIONS["pace"](gate)),
    "PoliteTransport": lambda gate: Httpx(gate, "httpx"),
    "PoliteTransport of httpx2": lambda gate: Httpx(gate, "httpx2"),
}

SESSIONS: dict[str, Callable[[AgentView], Session]] = {
    "PoliteSession": PoliteSession,
    "pace": lambda gate: aiohttp.ClientSession(middlewares=(RobotsMiddleware(gate, pace=True),)),
    "permission": lambda gate: aiohttp.ClientSession(middlewares=(RobotsMiddleware(gate),)),
}
in_every_way = pytest.mark.parametrize("session", SESSIONS, indirect=True)
