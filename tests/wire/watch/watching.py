"""A client of a watch, for the tests."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
from aiohttp import web

TOKEN: Final = "a token of the tests"
WITH_TOKEN: Final = {"Authorization": f"Bearer {TOKEN}"}


class Browser:
    """A client of a watch."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self.http = http
        self.url = url

    async def ask(self, path: str, status: int = 200, **headers: str) -> Any:
        async with self.http.get(self.url + path, headers=WITH_TOKEN | headers) as response:
            assert response.status == status, await response.text()
            assert response.headers["Cache-Control"] == "no-store"
            return await response.json()

    async def order(self, action: str, status: int = 200, **members: object) -> str:
        order = {"action": action, "reason": "a reason", **members}
        async with self.http.post(f"{self.url}steer", json=order, headers=WITH_TOKEN) as response:
            answer = await response.json()
            assert response.status == status, answer
            text: str = answer["done" if status == 200 else "error"]
            return text

    async def hosts(self, query: str = "") -> list[str]:
        page = await self.ask(f"hosts{query}")
        return [row["host"] for row in page["hosts"]]

    async def row(self, host: str) -> Any:
        [row] = (await self.ask(f"hosts?search={host}"))["hosts"]
        return row


@asynccontextmanager
async def browsing(url: str) -> AsyncIterator[Browser]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as http:
        yield Browser(http, url)


class Stream:
    """An open event stream."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def messages(self, *names: str) -> dict[str, Any]:
        """Return the next messages of these names."""
        found: dict[str, Any] = {}
        while set(names) - set(found):
            name = (await self._line()).removeprefix("event: ")
            found[name] = json.loads((await self._line()).removeprefix("data: "))
            assert await self._line() == ""
        assert found.keys() == set(names)
        return found

    async def _line(self) -> str:
        return (await self._response.content.readuntil(b"\n")).decode().removesuffix("\n")

    async def comment(self) -> str:
        line = await self._line()
        assert await self._line() == ""
        return line

    async def is_ended(self) -> bool:
        return not await self._response.content.read(1)


@asynccontextmanager
async def streaming(browser: Browser, query: str = "") -> AsyncIterator[Stream]:
    async with browser.http.get(f"{browser.url}events{query}", headers=WITH_TOKEN) as response:
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        yield Stream(response)


@asynccontextmanager
async def mounted(application: web.Application, prefix: str = "") -> AsyncIterator[Browser]:
    if prefix:
        outer = web.Application()
        outer.add_subapp(prefix, application)
        application = outer
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with browsing(f"http://127.0.0.1:{runner.addresses[0][1]}{prefix}/") as browser:
            yield browser
    finally:
        await runner.cleanup()
