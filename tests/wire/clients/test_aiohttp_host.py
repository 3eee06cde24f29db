"""A Host header that names another site than the URL: the rules of the wrong one would count."""

import aiohttp
import pytest
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

from politesse import Gatekeeper, PoliteSession
from politesse.integrations.aiohttp import ClientInvalidURL, RobotsMiddleware
from tests.support.sites import EAGER, UA, Site
from tests.wire.clients.clients import Session, in_every_way


@in_every_way
@pytest.mark.parametrize(
    "host",
    [
        *("other.example", "127.0.0.1", "127.0.0.1:1", "[::1", "", "user@127.0.0.1"),
        *("user@{}", "{}/x", "{}?other.example", "{}#other.example"),
    ],
)
async def test_a_host_header_that_is_not_host_and_port_of_the_url_is_refused(
    site: Site, session: Session, host: str
) -> None:
    with pytest.raises(ClientInvalidURL, match="Host"):
        await session.get(f"{site.base}/page", headers={"Host": host.format(site.base.removeprefix("http://"))})
    assert site.pages == []


@in_every_way
async def test_the_same_site_in_the_host_header_is_not(site: Site, session: Session) -> None:
    host = site.base.removeprefix("http://").upper()
    assert (await session.get(f"{site.base}/page", headers={"Host": host})).status == 200
    assert (await session.get(f"{site.base}/page")).status == 200


@pytest.mark.parametrize("paced", [False, True])
async def test_a_second_host_header_that_names_another_site_is_refused(site: Site, *, paced: bool) -> None:
    async def add_host(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        request.headers.add("Host", "other.example")
        return await handler(request)

    async with Gatekeeper(UA, pacing=EAGER) as gate:
        async with aiohttp.ClientSession(middlewares=(add_host, RobotsMiddleware(gate, pace=paced))) as session:
            with pytest.raises(ClientInvalidURL, match="Host"):
                await session.get(f"{site.base}/page")
        async with PoliteSession(gate, middlewares=(add_host,)) as web:
            with pytest.raises(ClientInvalidURL, match="Host"):
                await web.get(f"{site.base}/page")
    assert "/page" not in site.paths
