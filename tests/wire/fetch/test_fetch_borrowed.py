"""AiohttpFetcher over the connector of a foreign session."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import aiohttp
import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.test_utils import TestServer

from politesse import FetchOptions, Gatekeeper, Reason, Verdict
from politesse.ports import FaultKind, FetchFault
from politesse.testing import ScriptedResolver
from tests.wire.fetch.fetching import PUBLIC, UA, faulted, fetch_from, responded
from tests.wire.fetch.servers import FILE, Answer, Request, Server, bomb, gzipped, response


class Loopback(AbstractResolver):
    """aiohttp's kind of resolver, for which every name is on loopback."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [ResolveResult(hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=0)]

    async def close(self) -> None:
        pass


@asynccontextmanager
async def _rich_session() -> AsyncIterator[tuple[aiohttp.ClientSession, list[str]]]:
    """A session with everything that a robots.txt request must not carry."""
    used: list[str] = []

    async def middleware(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        used.append(str(request.url))
        request.headers["X-Signed"] = "yes"
        return await handler(request)

    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(resolver=Loopback()),
        headers={"User-Agent": "Browser/9", "Authorization": "Bearer secret", "X-Api-Key": "secret"},
        cookies={"session": "secret"},
        cookie_jar=jar,
        middlewares=(middleware,),
        raise_for_status=True,
    ) as session:
        yield session, used


async def test_of_a_session_only_the_connector_is_used() -> None:
    async with Server(response(200, FILE, Set_Cookie="id=42")) as server, _rich_session() as (session, used):
        result = responded(await fetch_from(server, host="site.example", session=session))
        assert result.body == FILE
        headers = server.requests[0].headers
        assert headers["user-agent"] == UA
        assert headers.keys() == {"host", "user-agent", "accept", "accept-encoding"}
        assert used == []
        assert "id" not in {cookie.key for cookie in session.cookie_jar}


@pytest.mark.parametrize(
    "answer",
    [
        response(200, FILE),
        response(404, b"x" * 100),
        response(503),
        response(200, FILE, length=99),
        gzipped(bomb()),
    ],
    ids=["file", "404", "503", "truncated", "bomb"],
)
async def test_a_session_is_open_and_usable_after_it_lent_its_connector(answer: Answer) -> None:
    async with (
        Server({"/robots.txt": answer, "/page": response(200, b"page")}) as server,
        _rich_session() as (session, used),
    ):
        async with Gatekeeper(UA, session=session) as gate:
            await gate.check(server.url("/page", host="site.example"))
        assert not session.closed
        assert session.connector is not None
        assert not session.connector.closed
        async with session.get(server.url("/page", host="site.example")) as page:
            assert await page.text() == "page"
        assert used == [server.url("/page", host="site.example")]
        assert server.requests[-1].headers["authorization"] == "Bearer secret"


async def _redirected(
    names: ScriptedResolver, *, first: str = "site.example", second: str = "other.example"
) -> tuple[Verdict, list[str]]:
    """Ask over a borrowed connector about a host whose robots.txt redirects; return the requested targets."""
    async with Server({"/r": response(200, FILE)}) as server, _rich_session() as (session, _):
        server.answers["/robots.txt"] = response(302, Location=server.url("/r", host=second))
        async with Gatekeeper(UA, session=session, resolver=names) as gate:
            verdict = await gate.check(server.url("/public", host=first))
        return verdict, [request.target for request in server.requests]


async def test_over_a_borrowed_connector_a_redirect_to_another_public_host_is_followed() -> None:
    names = ScriptedResolver({"other.example": [PUBLIC, "2606:2800:220:1:248:1893:25c8:1946"]})
    verdict, requested = await _redirected(names)
    assert (verdict.allowed, verdict.reason) == (True, Reason.NO_RULE), verdict.explain()
    assert requested == ["/robots.txt", "/r"]


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"], [PUBLIC, "10.0.0.1"], ["169.254.169.254"], ["168.63.129.16"], ["fe80::1%eth0"], [], None],
    ids=["loopback", "public and private", "metadata", "wire server", "scoped", "none", "not known"],
)
async def test_over_a_borrowed_connector_a_redirect_to_a_host_that_may_be_private_closes_the_site(
    addresses: list[str] | None,
) -> None:
    known = {} if addresses is None else {"other.example": addresses}
    names = ScriptedResolver({"site.example": [PUBLIC], **known})
    verdict, requested = await _redirected(names)
    assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE)
    assert verdict.source is not None
    assert verdict.source.fault.startswith("redirect-target: ")
    assert "other.example" in verdict.source.fault
    assert "unguarded_redirects" in verdict.source.fault
    assert requested == ["/robots.txt"]


@pytest.mark.parametrize(
    ("first", "addresses", "followed"),
    [
        ("127.0.0.1", [], True),
        ("localhost", ["::1", "127.0.0.1"], True),
        ("localhost", [PUBLIC], False),  # the connection was to something else, as a proxy
        ("localhost", ["10.0.0.1"], False),
        ("localhost", [], False),
    ],
)
@pytest.mark.parametrize("second", ["inside.example", "127.0.0.2"])
async def test_over_a_borrowed_connector_a_private_host_may_redirect_to_another(
    first: str, addresses: list[str], second: str, *, followed: bool
) -> None:
    names = ScriptedResolver({"localhost": addresses, "inside.example": ["127.0.0.1"]})
    # The server listens at 127.0.0.1 alone: only the system refuses the literal there.
    verdict, requested = await _redirected(names, first=first, second=second)
    if second == "inside.example":
        assert requested == (["/robots.txt", "/r"] if followed else ["/robots.txt"])
        assert verdict.allowed is followed
    assert verdict.source is not None
    assert ("which is private" in verdict.source.fault) is not followed


async def test_a_redirect_to_a_name_that_only_the_resolver_of_the_connector_knows_is_followed() -> None:
    async with Server({"/r": response(200, FILE)}) as server:
        server.answers["/robots.txt"] = response(301, Location=server.url("/r", host="b.known-to-it.example"))
        connector = aiohttp.TCPConnector(resolver=Loopback())
        async with aiohttp.ClientSession(connector=connector) as session, Gatekeeper(UA, session=session) as gate:
            verdict = await gate.check(server.url("/private", host="a.known-to-it.example"))
            assert verdict.reason is Reason.DISALLOW_RULE, verdict.explain()


async def test_over_a_borrowed_connector_a_redirect_is_checked_at_each_hop() -> None:
    names = ScriptedResolver({"one.example": [PUBLIC], "two.example": [PUBLIC], "inside.example": ["10.0.0.1"]})
    async with Server() as server, _rich_session() as (session, _):
        hops = ["/robots.txt", "/one", "/two", "/inside"]
        for here, there in pairwise(hops):
            server.answers[here] = response(302, Location=server.url(there, host=f"{there[1:]}.example"))
        async with Gatekeeper(UA, session=session, resolver=names) as gate:
            verdict = await gate.check(server.url("/public", host="site.example"))
        assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE)
        assert [request.target for request in server.requests] == ["/robots.txt", "/one", "/two"]


async def test_over_a_borrowed_connector_a_name_never_leads_to_a_private_literal_even_where_opted_in() -> None:
    async with Server({"/r": response(200, FILE)}) as server, _rich_session() as (session, _):
        server.answers["/robots.txt"] = response(302, Location=server.url("/r"))
        options = FetchOptions(unguarded_redirects=True)
        names = ScriptedResolver({"site.example": [PUBLIC]})
        fault = faulted(await fetch_from(server, options, host="site.example", session=session, resolver=names))
        assert fault.kind is FaultKind.REDIRECT_TARGET
        assert len(server.requests) == 1


async def test_a_session_that_is_closed_is_a_fault_and_closes_the_gate() -> None:
    async with Server(response(200, FILE)) as server:
        session = aiohttp.ClientSession()
        await session.close()
        assert faulted(await fetch_from(server, session=session)).kind is FaultKind.INTERNAL
        async with Gatekeeper(UA, session=session) as gate:
            assert (await gate.check(server.url("/public"))).reason is Reason.UNREACHABLE
        assert server.requests == []


async def test_a_fetch_whose_session_closes_between_two_hops_is_a_fault() -> None:
    session = aiohttp.ClientSession()

    async def close(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await session.close()
        writer.write(response(302, Location="/r"))

    async with Server({"/robots.txt": close, "/r": response(200, FILE)}) as server:
        assert isinstance(await fetch_from(server, session=session), FetchFault)


async def test_a_connection_that_is_handed_back_carries_a_large_page_afterwards() -> None:
    peers = []

    async def answer(request: web.Request) -> web.Response:
        peers.append(request.transport and request.transport.get_extra_info("peername"))
        return web.Response(body=FILE if request.path == "/robots.txt" else bytes(20 * 1024 * 1024))

    app = web.Application()
    app.router.add_get("/{path}", answer)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        async with Gatekeeper(UA, session=session) as gate:
            assert await gate.check(str(server.make_url("/large")))
        async with session.get(server.make_url("/large")) as page:
            assert len(await page.read()) == 20 * 1024 * 1024
        assert peers[0] == peers[1], "it went over another connection"
