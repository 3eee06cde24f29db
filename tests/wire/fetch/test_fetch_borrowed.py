"""AiohttpFetcher where it does not resolve names itself: over a borrowed connector, and behind a proxy."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import pairwise

import aiohttp
import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer
from yarl import URL

from politesse import Disallowed, FetchOptions, Gatekeeper, HostPolicy, PoliteSession, Reason, Verdict
from politesse.errors import ConfigurationError
from politesse.fetch import AiohttpFetcher
from politesse.origin import Origin
from politesse.ports import FaultKind, FetchFault, FetchRequest
from politesse.testing import ScriptedResolver
from tests.support.sites import EAGER, UA
from tests.wire.fetch.servers import (
    FILE,
    PUBLIC,
    Answer,
    Loopback,
    Names,
    Request,
    Server,
    bomb,
    borrowed,
    faulted,
    fetch_from,
    gzipped,
    responded,
    response,
    server_context,
    trusting,
)


@asynccontextmanager
async def rich_session() -> AsyncIterator[tuple[aiohttp.ClientSession, list[str]]]:
    """A session with everything that a robots.txt request must not carry."""
    used: list[str] = []

    async def middleware(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        used.append(str(request.url))
        request.headers["X-Signed"] = "yes"
        return await handler(request)

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(resolver=Loopback()),
        headers={"User-Agent": "Browser/9", "Authorization": "Bearer secret", "X-Api-Key": "secret"},
        cookies={"session": "secret"},
        cookie_jar=aiohttp.CookieJar(unsafe=True),
        middlewares=(middleware,),
        raise_for_status=True,
    ) as session:
        yield session, used


async def test_of_a_session_only_the_connector_is_used() -> None:
    async with Server(response(200, FILE, Set_Cookie="id=42")) as server, rich_session() as (session, used):
        result = responded(await fetch_from(server, host="site.example", session=session))
        assert result.body == FILE
        headers = server.requests[0].headers
        assert headers["user-agent"] == UA
        assert headers.keys() == {"host", "user-agent", "accept", "accept-encoding"}
        assert used == []
        assert "id" not in {cookie.key for cookie in session.cookie_jar}


async def test_session_is_open_and_usable_after_it_lent_its_connector() -> None:
    answers = [response(200, FILE), response(404, b"x" * 100), response(503), response(200, FILE, length=99)]
    for answer in (*answers, gzipped(bomb())):
        rows: dict[str, Answer] = {"/robots.txt": answer, "/page": response(200, b"page")}
        async with Server(rows) as server, rich_session() as (session, used):
            page_url = server.url("/page", host="site.example")
            async with Gatekeeper(UA, session=session, pacing=EAGER) as gate:
                await gate.check(page_url)
            assert not session.closed
            assert session.connector is not None
            assert not session.connector.closed
            async with session.get(page_url) as page:
                assert await page.text() == "page"
            assert used == [page_url]
            assert server.requests[-1].headers["authorization"] == "Bearer secret"


async def test_connection_that_is_handed_back_carries_a_large_page_afterwards() -> None:
    peers = []

    async def answer(request: web.Request) -> web.Response:
        peers.append(request.transport and request.transport.get_extra_info("peername"))
        return web.Response(body=FILE if request.path == "/robots.txt" else bytes(8 * 1024 * 1024))

    app = web.Application()
    app.router.add_get("/{path}", answer)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        async with Gatekeeper(UA, session=session, pacing=EAGER) as gate:
            assert await gate.check(str(server.make_url("/large")))
        async with session.get(server.make_url("/large")) as page:
            assert len(await page.read()) == 8 * 1024 * 1024  # more than a robots.txt may take on the wire
        assert peers[0] == peers[1], "it went over another connection"


async def redirected(
    addresses: Mapping[str, Sequence[str]], *, first: str = "site.example", second: str = "other.example"
) -> tuple[Verdict, list[str]]:
    """Ask over a borrowed connector about a host whose robots.txt redirects; return the requested targets."""
    async with Server({"/r": response(200, FILE)}) as server, borrowed() as session:
        server.answers["/robots.txt"] = response(302, Location=server.url("/r", host=second))
        async with Gatekeeper(UA, session=session, resolver=ScriptedResolver(addresses), pacing=EAGER) as gate:
            verdict = await gate.check(server.url("/public", host=first))
        return verdict, [request.target for request in server.requests]


async def test_over_a_borrowed_connector_a_redirect_to_another_public_host_is_followed() -> None:
    verdict, requested = await redirected({"other.example": [PUBLIC, "2606:2800:220:1:248:1893:25c8:1946"]})
    assert (verdict.allowed, verdict.reason) == (True, Reason.NO_RULE), verdict.explain()
    assert requested == ["/robots.txt", "/r"]


async def test_over_a_borrowed_connector_a_redirect_to_a_host_that_may_be_private_closes_the_site() -> None:
    rows: list[list[str] | None] = [["127.0.0.1"], [PUBLIC, "10.0.0.1"], ["169.254.169.254"], ["168.63.129.16"]]
    rows += [["fe80::1%eth0"], [], None]
    for addresses in rows:
        known = {} if addresses is None else {"other.example": addresses}
        verdict, requested = await redirected({"site.example": [PUBLIC], **known})
        assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE), addresses
        assert verdict.source is not None
        assert verdict.source.fault.startswith("redirect-target: ")
        assert "other.example" in verdict.source.fault
        assert "unguarded_redirects" in verdict.source.fault
        assert requested == ["/robots.txt"], addresses


async def test_over_a_borrowed_connector_a_private_host_may_redirect_to_another() -> None:
    rows: list[tuple[str, list[str], bool]] = [
        ("127.0.0.1", [], True),
        ("localhost", ["::1", "127.0.0.1"], True),
        ("localhost", [PUBLIC], False),  # the connection was to something else, as a proxy
        ("localhost", ["10.0.0.1"], False),
        ("localhost", [], False),
    ]
    for first, addresses, followed in rows:
        names = {"localhost": addresses, "inside.example": ["127.0.0.1"]}
        verdict, requested = await redirected(names, first=first, second="inside.example")
        assert (verdict.allowed, requested) == (followed, ["/robots.txt", "/r"] if followed else ["/robots.txt"])
        # The server listens at 127.0.0.1 alone: only the system refuses the literal there.
        verdict, _ = await redirected(names, first=first, second="127.0.0.2")
        assert verdict.source is not None
        assert ("which is private" in verdict.source.fault) is not followed, (first, addresses)


async def test_a_redirect_to_a_name_that_only_the_resolver_of_the_connector_knows_is_followed() -> None:
    async with Server({"/r": response(200, FILE)}) as server, borrowed() as session:
        server.answers["/robots.txt"] = response(301, Location=server.url("/r", host="b.known-to-it.example"))
        async with Gatekeeper(UA, session=session, pacing=EAGER) as gate:
            verdict = await gate.check(server.url("/private", host="a.known-to-it.example"))
            assert verdict.reason is Reason.DISALLOW_RULE, verdict.explain()


async def test_over_a_borrowed_connector_a_redirect_is_checked_at_each_hop() -> None:
    names = ScriptedResolver({"one.example": [PUBLIC], "two.example": [PUBLIC], "inside.example": ["10.0.0.1"]})
    async with Server() as server, borrowed() as session:
        for here, there in pairwise(["/robots.txt", "/one", "/two", "/inside"]):
            server.answers[here] = response(302, Location=server.url(there, host=f"{there[1:]}.example"))
        async with Gatekeeper(UA, session=session, resolver=names) as gate:
            verdict = await gate.check(server.url("/public", host="site.example"))
        assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE)
        assert [request.target for request in server.requests] == ["/robots.txt", "/one", "/two"]


async def test_over_a_borrowed_connector_a_name_never_leads_to_a_private_literal_even_where_opted_in() -> None:
    names = ScriptedResolver({"site.example": [PUBLIC]})
    async with Server({"/r": response(200, FILE)}) as server, borrowed() as session:
        server.answers["/robots.txt"] = response(302, Location=server.url("/r"))
        options = FetchOptions(unguarded_redirects=True)
        fault = faulted(await fetch_from(server, options, host="site.example", session=session, resolver=names))
        assert fault.kind is FaultKind.REDIRECT_TARGET
        assert len(server.requests) == 1


async def test_session_that_is_closed_is_a_fault_and_closes_the_gate() -> None:
    async with Server(response(200, FILE)) as server:
        session = aiohttp.ClientSession()
        await session.close()
        assert faulted(await fetch_from(server, session=session)).kind is FaultKind.INTERNAL
        async with Gatekeeper(UA, session=session, pacing=EAGER) as gate:
            assert (await gate.check(server.url("/public"))).reason is Reason.UNREACHABLE
        assert server.requests == []


async def test_fetch_whose_session_closes_between_two_hops_is_a_fault() -> None:
    session = aiohttp.ClientSession()

    async def close(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await session.close()
        writer.write(response(302, Location="/r"))

    async with Server({"/robots.txt": close, "/r": response(200, FILE)}) as server:
        assert isinstance(await fetch_from(server, session=session), FetchFault)


# A proxy


async def test_proxy_receives_the_whole_url_and_resolves_the_name() -> None:
    names = Names()
    async with Server({"http://site.example/robots.txt": response(200, FILE)}) as proxy:
        for url in (proxy.url(""), URL(proxy.url(""))):
            fetcher = AiohttpFetcher(UA, FetchOptions(proxy=url), resolver=names)
            result = responded(await fetcher.fetch(FetchRequest(Origin.of("http://site.example/"), 5)))
            assert (result.body, result.final_url) == (FILE, "http://site.example/robots.txt")
            assert (proxy.requests[-1].headers["user-agent"], proxy.requests[-1].host) == (UA, "site.example")
        assert names.asked == []


async def test_only_the_proxy_receives_its_credentials() -> None:
    async with Server({"http://site.example/robots.txt": response(200, FILE)}) as proxy:
        options = FetchOptions(proxy=f"http://user:secret@127.0.0.1:{proxy.port}")
        assert "secret" not in repr(options)
        await AiohttpFetcher(UA, options).fetch(FetchRequest(Origin.of("http://site.example/"), 5))
        headers = proxy.requests[0].headers
        assert headers["proxy-authorization"] == "Basic dXNlcjpzZWNyZXQ="  # RFC 7617 2: user:secret
        assert "authorization" not in headers


def tunnel(port: int) -> Answer:
    async def handler(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError):
                while octets := await source.read(65_536):
                    target.write(octets)
                    await target.drain()
            with suppress(OSError):
                target.write_eof()

        try:
            await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer))
        finally:
            there_writer.transport.abort()

    return handler


async def test_proxy_tunnels_to_a_server_whose_certificate_is_verified(authority: trustme.CA) -> None:
    context = server_context(authority.issue_cert("secure.example"))
    async with Server(response(200, FILE), context) as server, Server() as proxy:
        proxy.answers[f"secure.example:{server.port}"] = tunnel(server.port)
        verifying = FetchOptions(proxy=proxy.url(""), ssl_context=trusting(authority).ssl_context)
        result = await fetch_from(server, verifying, host="secure.example", resolver=Names())
        assert responded(result).body == FILE
        result = await fetch_from(server, FetchOptions(proxy=proxy.url("")), host="secure.example", resolver=Names())
        assert faulted(result).kind is FaultKind.TLS
        assert [request.method for request in proxy.requests] == ["CONNECT", "CONNECT"]
        assert len(server.requests) == 1


async def test_proxy_that_makes_no_connection_is_a_fault() -> None:
    rows = [
        ("https://secure.example/", response(403), FaultKind.PROTOCOL),
        ("https://secure.example/", response(407, Proxy_Authenticate="Basic"), FaultKind.PROTOCOL),
        ("https://secure.example/", response(502), FaultKind.PROTOCOL),
        ("http://site.example/", b"", FaultKind.CONNECT),
        ("http://site.example/", response(407, Proxy_Authenticate="Basic"), FaultKind.CONNECT),
    ]
    for url, answer, kind in rows:
        async with Server({"secure.example:443": answer, "http://site.example/robots.txt": answer}) as proxy:
            fetcher = AiohttpFetcher(UA, FetchOptions(proxy=proxy.url("")))
            assert faulted(await fetcher.fetch(FetchRequest(Origin.of(url), 5))).kind is kind, (url, answer)
            assert proxy.requests != []


async def test_behind_a_proxy_a_redirect_to_another_host_is_followed() -> None:
    answers: dict[str, Answer] = {
        "http://site.example/robots.txt": response(302, Location="http://other.example/r"),
        "http://other.example/r": response(200, FILE),
    }
    names = Names()
    async with Server(answers) as proxy:
        options = FetchOptions(proxy=proxy.url(""))
        async with Gatekeeper(UA, fetch=options, resolver=names) as gate:
            reasons = [(await gate.check(f"http://site.example{path}")).reason for path in ("/private", "/public")]
            assert reasons == [Reason.DISALLOW_RULE, Reason.NO_RULE]
        request = FetchRequest(Origin.of("http://other.example/"), 0, path="/r", redirected=True)
        assert responded(await AiohttpFetcher(UA, options, resolver=names).fetch(request)).body == FILE
        assert names.asked == []


async def test_behind_a_proxy_a_redirect_that_names_a_private_address_closes_the_site() -> None:
    hosts = [
        "127.0.0.1",
        "10.0.0.1",
        "[::1]",
        "169.254.169.254",
        "168.63.129.16",
        "localhost",
        "LOCALHOST",
        "a.localhost",
    ]
    for host in hosts:
        answers: dict[str, Answer] = {"http://site.example/robots.txt": response(302, Location=f"http://{host}/r")}
        async with Server(answers) as proxy:
            options = FetchOptions(proxy=proxy.url(""))
            async with Gatekeeper(UA, fetch=options, pacing=EAGER) as gate:
                verdict = await gate.check("http://site.example/public")
                assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE), host
                assert verdict.source is not None
                assert "which is private" in verdict.source.fault
            request = FetchRequest(Origin.of(f"http://{host}/"), 0, path="/r", redirected=True)
            assert faulted(await AiohttpFetcher(UA, options).fetch(request)).kind is FaultKind.REDIRECT_TARGET, host
            assert len(proxy.requests) == 1


@pytest.mark.parametrize("is_borrowed", [False, True], ids=["own connector", "borrowed connector"])
async def test_proxy_of_the_environment_is_used_for_pages_only(
    monkeypatch: pytest.MonkeyPatch, *, is_borrowed: bool
) -> None:
    async with Server(response(200, FILE)) as server, Server() as proxy, AsyncExitStack() as stack:
        proxy.answers[server.url("/page")] = response(200, b"page")
        monkeypatch.setenv("http_proxy", proxy.url(""))
        lender = await stack.enter_async_context(aiohttp.ClientSession(trust_env=True)) if is_borrowed else None
        gate = await stack.enter_async_context(Gatekeeper(UA, session=lender, pacing=EAGER))
        client = await stack.enter_async_context(PoliteSession(gate, trust_env=True))
        async with client.get(server.url("/page")) as page:
            assert await page.read() == b"page"
        assert not await gate.check(server.url("/private"))
        assert [request.target for request in server.requests] == ["/robots.txt"]
        assert [request.target for request in proxy.requests] == [server.url("/page")]


async def test_no_proxy_of_the_environment_is_asked_for_a_private_address(monkeypatch: pytest.MonkeyPatch) -> None:
    options = FetchOptions(private_addresses="deny")
    async with Server() as proxy, Gatekeeper(UA, fetch=options, resolver=Names("inside.example")) as gate:
        monkeypatch.setenv("http_proxy", proxy.url("", host="localhost"))
        async with PoliteSession(gate, trust_env=True) as client:
            for host in ("127.0.0.1", "inside.example"):
                for path in ("/page", "/robots.txt"):
                    with pytest.raises(Disallowed, match="private"):
                        await client.get(f"http://{host}:{proxy.port}{path}")
            gate.set_policy("elsewhere.example", HostPolicy(exempt=True, reason="it has no robots.txt here"))
            async with client.get("http://elsewhere.example/") as page:  # the proxy is private, and may be
                assert page.status == 404
        assert [request.target for request in proxy.requests] == ["http://elsewhere.example/"]


# Options that contradict each other


def test_error_about_a_proxy_does_not_quote_its_password() -> None:
    for proxy in ("ftp://user:secret@127.0.0.1", "http://user:secret@[::1"):
        with pytest.raises(ConfigurationError) as caught:
            FetchOptions(proxy=proxy)
        assert "secret" not in str(caught.value)


async def test_options_that_would_weaken_a_check_are_an_error() -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with pytest.raises(ConfigurationError, match="does not verify certificates"):
        FetchOptions(ssl_context=context)
    with pytest.raises(ConfigurationError, match="behind a proxy"):  # which resolves names itself
        FetchOptions(private_addresses="deny", proxy="http://127.0.0.1:3128")
    async with aiohttp.ClientSession() as session:
        with pytest.raises(ConfigurationError, match="borrowed connector"):
            AiohttpFetcher("ExampleBot/1.0", FetchOptions(private_addresses="deny"), session=session)
