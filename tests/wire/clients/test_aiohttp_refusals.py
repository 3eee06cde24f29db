"""The aiohttp middleware refuses what it cannot judge."""

import aiohttp
import pytest
from yarl import URL

from politesse import Gatekeeper, InvalidURL, PacingOptions, PoliteSession
from politesse.integrations.aiohttp import RobotsMiddleware
from politesse.testing import ScriptedFetcher

UA = "ExampleBot/1.0 (+https://example.com/bot)"


@pytest.mark.parametrize("path", ["/private/../a", "/private/%2e%2e/a", "/x/."])
async def test_dot_segments_that_would_be_sent_are_refused(path: str) -> None:
    async with (
        Gatekeeper(UA, fetcher=ScriptedFetcher()) as gate,
        aiohttp.ClientSession(middlewares=(RobotsMiddleware(gate),)) as session,
    ):
        with pytest.raises(aiohttp.ClientError, match="dot segments"):
            await session.get(URL(f"http://127.0.0.1:9{path}", encoded=True))


@pytest.mark.parametrize("path", ["/x ", "/x y", "/x?q=a b"])
async def test_raw_blank_that_would_be_sent_is_refused(path: str) -> None:
    url = URL(f"http://127.0.0.1:9{path}", encoded=True)
    async with (
        Gatekeeper(UA, fetcher=ScriptedFetcher(), pacing=PacingOptions(min_delay_s=0.0)) as gate,
        aiohttp.ClientSession(middlewares=(RobotsMiddleware(gate),)) as session,
        PoliteSession(gate) as polite,
    ):
        for refused in (session.get(url), polite.get(url)):
            with pytest.raises(aiohttp.ClientError, match="blank"):
                await refused
        with pytest.raises(InvalidURL, match="blank"):
            await gate.check(url)
        with pytest.raises(InvalidURL, match="blank"):
            gate.try_turn(url)
        assert (await gate.check(f"http://127.0.0.1:9{path}")).allowed  # as text, which clients escape
