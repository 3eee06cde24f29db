"""If private addresses are denied, no name, spelling, redirect or change of DNS leads to such an address."""

import socket
from typing import Final

import aiohttp
import httpx
import pytest

from politesse import Disallowed, FetchOptions, Gatekeeper, HostPolicy, PoliteSession, Reason
from politesse.fetch import PublicResolver
from politesse.integrations.aiohttp import RobotsMiddleware
from politesse.integrations.httpx import PoliteTransport
from politesse.testing import Fault, HostileServer, ScriptedResolver
from politesse.testing.answers import FILE, response
from politesse.testing.faults import PRIVATE_LITERALS
from politesse.verdict import AccessResult
from tests.support.sites import EAGER, UA

DENY: Final = FetchOptions(private_addresses="deny", connect_timeout_s=2, total_timeout_s=5)
NO_FAULT: Final = Fault(name="none", robots=response(200, FILE), result=AccessResult.SUCCESSFUL)
INSIDE: Final = Fault(name="inside", robots=response(200, FILE), host="inside.example")


async def test_a_literal_or_a_name_of_private_addresses_only_is_denied_and_by_default_allowed() -> None:
    async def check(host: str, addresses: str, options: FetchOptions | None) -> tuple[Reason, str]:
        names = ScriptedResolver({"inside.example": addresses.split()})
        async with Gatekeeper(UA, fetch=options, resolver=names, pacing=EAGER) as gate:
            verdict = await gate.check(f"http://{host}:{port}/page")
            return verdict.reason, verdict.note if verdict.source is None else verdict.source.fault

    async with HostileServer(INSIDE) as server:
        port = server.origin.rpartition(":")[2]
        for host in PRIVATE_LITERALS.values():
            reason, fault = await check(host, "", DENY)
            assert reason is Reason.POLICY_DENY, host
            assert fault.endswith("is a private address, and private_addresses='deny'"), host
        for addresses in ("127.0.0.1", "::1 127.0.0.1", "::ffff:127.0.0.1"):
            reason, fault = await check("inside.example", addresses, DENY)
            assert (reason, "which is private" in fault) == (Reason.UNREACHABLE, True), addresses
        assert server.log == []
        for host in ("127.0.0.1", "inside.example"):
            assert (await check(host, "127.0.0.1", None))[0] is Reason.NO_RULE


async def test_a_page_is_not_fetched_from_a_name_that_became_private_after_its_robots_txt() -> None:
    names = ScriptedResolver({"inside.example": ["127.0.0.1"]})
    async with (
        HostileServer(INSIDE) as server,
        Gatekeeper(UA, resolver=names, pacing=EAGER) as gate,
    ):
        assert await gate.check(server.url("/page"))
        connector = aiohttp.TCPConnector(resolver=PublicResolver(names))
        async with PoliteSession(gate, connector=connector) as web:
            with pytest.raises(aiohttp.ClientConnectorError, match=r"inside\.example has no address"):
                await web.get(server.url("/page"))
        assert server.pages == []


@pytest.mark.parametrize("host", ["127.0.0.1", "inside.example"])
async def test_neither_robots_txt_as_a_page_nor_a_redirect_of_a_stranger_leads_to_a_private_address(host: str) -> None:
    names = ScriptedResolver({"inside.example": ["127.0.0.1"]})
    denying = Gatekeeper(UA, fetch=DENY, resolver=names, pacing=EAGER)
    async with HostileServer(NO_FAULT) as server, denying as gate:
        base = f"http://{host}:{server.origin.rpartition(':')[2]}"
        assert not await gate.check(f"{base}/robots.txt")
        gate.set_policy("stranger.example", HostPolicy(exempt=True, reason="on loopback, as all in this test"))
        hops = {f"/to{page}": response(302, Location=f"{base}{page}") for page in ("/robots.txt", "/page")}
        stranger = Fault(name="stranger", robots=response(404), hops=hops, host="stranger.example")
        async with HostileServer(stranger) as elsewhere:
            for url in (f"{base}/robots.txt", *map(elsewhere.url, hops)):
                for request in (_by_session, _by_middleware, _by_httpx):
                    with pytest.raises(Disallowed, match="private"):
                        await request(gate, url)
        assert server.log == []


async def test_a_polite_session_looks_at_addresses_where_private_ones_are_denied() -> None:
    names = ScriptedResolver({"inside.example": ["127.0.0.1"]})
    async with HostileServer(NO_FAULT) as server, Gatekeeper(UA, fetch=DENY, resolver=names) as gate:
        gate.set_policy("inside.example", HostPolicy(exempt=True, reason="its robots.txt was fetched from elsewhere"))
        async with PoliteSession(gate) as web:
            with pytest.raises(aiohttp.ClientConnectorError, match="has no address that may be connected to"):
                await web.get(f"http://inside.example:{server.origin.rpartition(':')[2]}/page")
        assert server.log == []


def _to_loopback() -> aiohttp.TCPConnector:
    """Return the connector of a program that does not look at addresses."""

    class Loopback(aiohttp.ThreadedResolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
        ) -> list[aiohttp.abc.ResolveResult]:
            return await super().resolve("127.0.0.1", port, family)

    return aiohttp.TCPConnector(resolver=Loopback())


async def _by_session(gate: Gatekeeper, url: str) -> None:
    async with PoliteSession(gate, connector=_to_loopback()) as web:
        await web.get(url)


async def _by_middleware(gate: Gatekeeper, url: str) -> None:
    async with aiohttp.ClientSession(connector=_to_loopback(), middlewares=[RobotsMiddleware(gate)]) as session:
        await session.get(url)


async def _by_httpx(gate: Gatekeeper, url: str) -> None:
    class Loopback(httpx.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            request.url = request.url.copy_with(host="127.0.0.1")
            return await super().handle_async_request(request)

    async with httpx.AsyncClient(transport=PoliteTransport(gate, wraps=Loopback()), follow_redirects=True) as client:
        await client.get(url)
