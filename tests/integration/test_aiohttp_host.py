"""A Host header that names another site than the URL: the rules of the wrong one would count."""

import aiohttp
import pytest
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

from politesse import Gatekeeper, PacingOptions, PoliteSession
from politesse.integrations.aiohttp import ClientInvalidURL, RobotsMiddleware
from tests.integration.sites import Site

UA = "ExampleBot/1.0 (+https://example.com/bot)"


@pytest.mark.parametrize("host", ["other.example", "127.0.0.1", "127.0.0.1:1", "[::1", "", "user@127.0.0.1"])
@pytest.mark.parametrize("paced", [False, True])
async def test_another_site_in_the_host_header_is_refused(site: Site, host: str, *, paced: bool) -> None:
    async with Gatekeeper(UA, pacing=PacingOptions(min_delay_s=0.0)) as gate:
        middleware = RobotsMiddleware(gate, pace=paced)
        async with aiohttp.ClientSession(middlewares=(middleware,)) as session:
            with pytest.raises(ClientInvalidURL, match="Host"):
                await session.get(f"{site.base}/page", headers={"Host": host})
        async with PoliteSession(gate) as web:
            with pytest.raises(ClientInvalidURL, match="Host"):
                await web.get(f"{site.base}/page", headers={"Host": host})
    assert "/page" not in site.paths


@pytest.mark.parametrize("form", ["user@{}", "{}/x", "{}?other.example", "{}#other.example"])
async def test_a_host_header_that_is_more_than_host_and_port_is_refused(site: Site, form: str) -> None:
    host = form.format(site.base.removeprefix("http://"))
    async with Gatekeeper(UA) as gate, aiohttp.ClientSession(middlewares=(RobotsMiddleware(gate),)) as session:
        with pytest.raises(ClientInvalidURL, match="Host"):
            await session.get(f"{site.base}/page", headers={"Host": host})
    assert "/page" not in site.paths


async def test_the_same_site_in_the_host_header_is_not(site: Site) -> None:
    host = site.base.removeprefix("http://").upper()
    async with Gatekeeper(UA) as gate, aiohttp.ClientSession(middlewares=(RobotsMiddleware(gate),)) as session:
        assert (await session.get(f"{site.base}/page", headers={"Host": host})).status == 200
        assert (await session.get(f"{site.base}/page")).status == 200


@pytest.mark.parametrize("paced", [False, True])
async def test_a_second_host_header_that_names_another_site_is_refused(site: Site, *, paced: bool) -> None:
    async def add_host(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        request.headers.add("Host", "other.example")
        return await handler(request)

    async with Gatekeeper(UA, pacing=PacingOptions(min_delay_s=0.0)) as gate:
        async with aiohttp.ClientSession(middlewares=(add_host, RobotsMiddleware(gate, pace=paced))) as session:
            with pytest.raises(ClientInvalidURL, match="Host"):
                await session.get(f"{site.base}/page")
        async with PoliteSession(gate, middlewares=(add_host,)) as web:
            with pytest.raises(ClientInvalidURL, match="Host"):
                await web.get(f"{site.base}/page")
    assert "/page" not in site.paths
