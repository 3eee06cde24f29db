"""A User-Agent that does not contain the product token is logged, once for each client."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import aiohttp
import httpx
import pytest
from aiohttp import web

from politesse import Gatekeeper, PacingOptions, PoliteSession
from politesse.integrations.aiohttp import RobotsMiddleware
from politesse.integrations.httpx import PoliteTransport
from politesse.testing import ScriptedFetcher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

UA = "newbot/1.0 (+https://example.com/bot)"
LINE = "requests are sent as Other/1.0, but robots.txt is judged for newbot"

pytestmark = pytest.mark.realtime


@pytest.fixture
async def site() -> AsyncIterator[str]:
    async def page(_: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.router.add_get("/", page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    await runner.cleanup()


@pytest.fixture
async def gate() -> AsyncIterator[Gatekeeper]:
    pacing = PacingOptions(min_delay_s=0, adaptive_factor=0)
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), pacing=pacing) as gate:
        yield gate


async def over_session(gate: Gatekeeper, url: str, user_agent: str) -> None:
    async with PoliteSession(gate, headers={"User-Agent": user_agent}) as session:
        for _ in range(2):
            await (await session.get(url)).read()


async def over_middleware(gate: Gatekeeper, url: str, user_agent: str) -> None:
    robots, headers = RobotsMiddleware(gate), {"User-Agent": user_agent}
    async with aiohttp.ClientSession(middlewares=[robots], headers=headers) as session:
        for _ in range(2):
            await (await session.get(url)).read()


async def over_transport(gate: Gatekeeper, url: str, user_agent: str) -> None:
    async with httpx.AsyncClient(transport=PoliteTransport(gate), headers={"User-Agent": user_agent}) as client:
        for _ in range(2):
            await client.get(url)


@pytest.mark.parametrize("client", [over_session, over_middleware, over_transport])
@pytest.mark.parametrize(
    ("user_agent", "said"), [("Other/1.0", [LINE]), ("Mozilla/5.0 (compatible; NewBot/2.0)", []), (UA, [])]
)
async def test_a_user_agent_without_the_product_token_is_logged_once(
    gate: Gatekeeper, site: str, caplog: pytest.LogCaptureFixture, client: object, user_agent: str, said: list[str]
) -> None:
    assert callable(client)
    await client(gate, site, user_agent)
    logged = [record for record in caplog.records if record.name == "politesse.integrations"]
    assert [record.getMessage() for record in logged] == said
    assert {record.levelno for record in logged} <= {logging.WARNING}
