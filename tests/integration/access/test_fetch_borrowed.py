"""AiohttpFetcher over the connector of somebody else's session."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from politesse import FetchOptions, Gatekeeper, Reason
from politesse.ports import FaultKind, FetchFault
from tests.integration.access.fetching import (
    UA,
    faulted,
    fetch_from,
    responded,
)
from tests.integration.access.servers import (
    FILE,
    Server,
    bomb,
    gzipped,
    response,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator

    from tests.integration.access.servers import Answer, Request


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


async def test_a_session_that_raises_for_status_does_not_change_an_outcome() -> None:
    async with Server(response(404)) as server, _rich_session() as (session, _):
        assert responded(await fetch_from(server, host="site.example", session=session)).status == 404


@pytest.mark.parametrize(
    "answer",
    [
        response(200, FILE),
        response(404, b"x" * 100),
        response(503),
        response(200, FILE, length=99),
        gzipped(bomb().octets),
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


async def test_over_a_borrowed_connector_a_redirect_to_another_host_is_refused() -> None:
    async with Server() as server, _rich_session() as (session, _):
        server.answers["/robots.txt"] = response(302, Location=server.url("/r", host="other.example"))
        fault = faulted(await fetch_from(server, host="site.example", session=session))
        assert fault.kind is FaultKind.REDIRECT_TARGET
        assert "other.example" in fault.detail
        assert "unguarded_redirects" in fault.detail
        assert len(server.requests) == 1


async def test_over_a_borrowed_connector_a_redirect_to_another_host_is_followed_where_opted_in() -> None:
    async with Server({"/r": response(200, FILE)}) as server, _rich_session() as (session, _):
        server.answers["/robots.txt"] = response(302, Location=server.url("/r", host="other.example"))
        options = FetchOptions(unguarded_redirects=True)
        assert responded(await fetch_from(server, options, host="site.example", session=session)).body == FILE


async def test_over_a_borrowed_connector_a_redirect_on_the_same_host_is_followed() -> None:
    async with Server({"/r": response(200, FILE)}) as server, _rich_session() as (session, _):
        server.answers["/robots.txt"] = response(302, Location=server.url("/r", host="site.example"))
        assert responded(await fetch_from(server, host="site.example", session=session)).body == FILE


async def test_over_a_borrowed_connector_a_name_never_leads_to_a_private_literal_even_where_opted_in() -> None:
    async with Server({"/r": response(200, FILE)}) as server, _rich_session() as (session, _):
        server.answers["/robots.txt"] = response(302, Location=server.url("/r"))
        options = FetchOptions(unguarded_redirects=True)
        fault = faulted(await fetch_from(server, options, host="site.example", session=session))
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
