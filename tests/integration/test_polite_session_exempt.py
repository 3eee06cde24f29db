"""Requests that are made without asking robots.txt, for a reason."""

import pytest
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

from politesse import Gatekeeper, Reason
from politesse.integrations.aiohttp import ClientDisallowed, PoliteSession
from tests.integration.sites import Site, serving, turns

WHY = "our own server"


async def test_forbidden_page_is_requested_and_robots_txt_is_not(site: Site, polite: PoliteSession) -> None:
    async with polite.get(f"{site.base}/private", exempt=WHY) as response:
        assert await response.text() == "page /private"
    async with polite.request("POST", f"{site.base}/private/2", data=b"body", exempt=WHY) as response:
        assert response.status == 200
    assert site.paths == ["/private", "/private/2"]


async def test_exemption_is_for_its_own_request_alone(site: Site, polite: PoliteSession) -> None:
    await polite.get(f"{site.base}/private", exempt=WHY)
    for pending in (polite.get(f"{site.base}/private"), polite.get(f"{site.base}/private", exempt=None)):
        with pytest.raises(ClientDisallowed):
            await pending
    assert site.paths == ["/private", "/robots.txt"]


async def test_redirect_within_the_host_is_exempt_too(site: Site, polite: PoliteSession) -> None:
    async for second in serving(Site()):  # another port is the same host
        site.redirects["/private/a"] = (302, f"{second.base}/private/b")
        second.redirects["/private/b"] = (302, f"{site.base}/private/c")
        async with polite.get(f"{site.base}/private/a", exempt=WHY) as response:
            assert response.status == 200
        assert site.paths == ["/private/a", "/private/c"]
        assert second.paths == ["/private/b"]


async def test_redirect_to_another_host_is_judged(
    site: Site, other: Site, gate: Gatekeeper, polite: PoliteSession
) -> None:
    site.redirects |= {"/private/a": (302, f"{other.base}/private/b"), "/private/c": (302, f"{other.base}/page")}
    with pytest.raises(ClientDisallowed) as caught:
        await polite.get(f"{site.base}/private/a", exempt=WHY)
    assert caught.value.verdict.reason is Reason.DISALLOW_RULE
    async with polite.get(f"{site.base}/private/c", exempt=WHY) as response:
        assert response.status == 200
    assert site.paths == ["/private/a", "/private/c"]
    assert other.paths == ["/robots.txt", "/page"]
    assert turns(gate) == 0


async def test_request_that_a_middleware_sends_to_another_host_is_judged(
    site: Site, other: Site, polite: PoliteSession
) -> None:
    async def stray(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        request.url = request.url.with_host(other.host).with_port(int(other.base.rpartition(":")[2]))
        request.headers["Host"] = request.url.raw_authority
        return await handler(request)

    with pytest.raises(ClientDisallowed):
        await polite.get(f"{site.base}/private", exempt=WHY, middlewares=(stray,))
    assert (site.paths, other.paths) == ([], ["/robots.txt"])


async def test_request_that_a_middleware_sends_to_another_page_of_the_host_is_exempt(
    site: Site, polite: PoliteSession
) -> None:
    async def stray(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        request.url = request.url.with_path("/private/2")
        return await handler(request)

    await polite.get(f"{site.base}/private/1", exempt=WHY, middlewares=(stray,))
    assert site.paths == ["/private/2"]
