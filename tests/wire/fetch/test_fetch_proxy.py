"""AiohttpFetcher behind a proxy."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

import aiohttp
import pytest
import trustme
from yarl import URL

from politesse import Disallowed, FetchOptions, Gatekeeper, HostPolicy, PoliteSession, Reason
from politesse.fetch import AiohttpFetcher
from politesse.origin import Origin, StrOrURL
from politesse.ports import FaultKind, FetchRequest
from tests.support.sites import EAGER
from tests.wire.fetch.fetching import UA, faulted, fetch_from, responded, server_context, trusting
from tests.wire.fetch.servers import FILE, Answer, Names, Request, Server, response


@pytest.mark.parametrize("given", [str, URL])
async def test_proxy_receives_the_whole_url_and_resolves_the_name(given: Callable[[str], StrOrURL]) -> None:
    names = Names()
    async with Server({"http://site.example/robots.txt": response(200, FILE)}) as proxy:
        fetcher = AiohttpFetcher(UA, FetchOptions(proxy=given(proxy.url(""))), resolver=names)
        result = responded(await fetcher.fetch(FetchRequest(Origin.of("http://site.example/"), 5)))
        assert (result.body, result.final_url) == (FILE, "http://site.example/robots.txt")
        assert proxy.requests[0].headers["user-agent"] == UA
        assert proxy.requests[0].host == "site.example"
        assert names.asked == []


async def test_only_the_proxy_receives_its_credentials() -> None:
    async with Server({"http://site.example/robots.txt": response(200, FILE)}) as proxy:
        options = FetchOptions(proxy=f"http://user:secret@127.0.0.1:{proxy.port}")
        assert "secret" not in repr(options)
        await AiohttpFetcher(UA, options).fetch(FetchRequest(Origin.of("http://site.example/"), 5))
        headers = proxy.requests[0].headers
        assert headers["proxy-authorization"] == "Basic dXNlcjpzZWNyZXQ="  # RFC 7617 2: user:secret
        assert "authorization" not in headers


async def test_a_proxy_tunnels_to_a_server_whose_certificate_is_verified(authority: trustme.CA) -> None:
    context = server_context(authority.issue_cert("secure.example"))
    async with Server(response(200, FILE), context) as server, Server() as proxy:
        proxy.answers[f"secure.example:{server.port}"] = _tunnel(server.port)
        verifying = trusting(authority).ssl_context
        for options in (FetchOptions(proxy=proxy.url(""), ssl_context=verifying), FetchOptions(proxy=proxy.url(""))):
            result = await fetch_from(server, options, host="secure.example", resolver=Names())
            if options.ssl_context is None:
                assert faulted(result).kind is FaultKind.TLS
            else:
                assert responded(result).body == FILE
        assert [request.method for request in proxy.requests] == ["CONNECT", "CONNECT"]
        assert len(server.requests) == 1


def _tunnel(port: int) -> Answer:
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


@pytest.mark.parametrize(
    ("url", "answer", "kind"),
    [
        ("https://secure.example/", response(403), FaultKind.PROTOCOL),
        ("https://secure.example/", response(407, Proxy_Authenticate="Basic"), FaultKind.PROTOCOL),
        ("https://secure.example/", response(502), FaultKind.PROTOCOL),
        ("http://site.example/", b"", FaultKind.CONNECT),
    ],
)
async def test_a_proxy_that_makes_no_connection_is_a_fault(url: str, answer: bytes, kind: FaultKind) -> None:
    origin = Origin.of(url)
    answers: dict[str, Answer] = {"secure.example:443": answer, "http://site.example/robots.txt": answer}
    async with Server(answers) as proxy:
        fetcher = AiohttpFetcher(UA, FetchOptions(proxy=proxy.url("")))
        assert faulted(await fetcher.fetch(FetchRequest(origin, 5))).kind is kind
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
            private, public = [await gate.check(f"http://site.example{path}") for path in ("/private", "/public")]
            assert (private.reason, public.reason) == (Reason.DISALLOW_RULE, Reason.NO_RULE)
        request = FetchRequest(Origin.of("http://other.example/"), 0, path="/r", redirected=True)
        assert responded(await AiohttpFetcher(UA, options, resolver=names).fetch(request)).body == FILE
        assert names.asked == []


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "10.0.0.1", "[::1]", "169.254.169.254", "168.63.129.16", "localhost", "LOCALHOST", "a.localhost"],
)
async def test_behind_a_proxy_a_redirect_that_names_a_private_address_closes_the_site(host: str) -> None:
    answers: dict[str, Answer] = {"http://site.example/robots.txt": response(302, Location=f"http://{host}/r")}
    async with Server(answers) as proxy:
        options = FetchOptions(proxy=proxy.url(""))
        async with Gatekeeper(UA, fetch=options) as gate:
            verdict = await gate.check("http://site.example/public")
            assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE)
            assert verdict.source is not None
            assert "which is private" in verdict.source.fault
        request = FetchRequest(Origin.of(f"http://{host}/"), 0, path="/r", redirected=True)
        assert faulted(await AiohttpFetcher(UA, options).fetch(request)).kind is FaultKind.REDIRECT_TARGET
        assert len(proxy.requests) == 1


@pytest.mark.parametrize("borrowed", [False, True], ids=["own connector", "borrowed connector"])
async def test_a_proxy_of_the_environment_is_used_for_pages_only(
    monkeypatch: pytest.MonkeyPatch, *, borrowed: bool
) -> None:
    async with Server(response(200, FILE)) as server, Server() as proxy:
        proxy.answers[server.url("/page")] = response(200, b"page")
        monkeypatch.setenv("http_proxy", proxy.url(""))
        async with AsyncExitStack() as stack:
            lender = aiohttp.ClientSession(trust_env=True)
            session = await stack.enter_async_context(lender) if borrowed else None
            gate = await stack.enter_async_context(Gatekeeper(UA, session=session, pacing=EAGER))
            web = await stack.enter_async_context(PoliteSession(gate, trust_env=True))
            async with web.get(server.url("/page")) as page:
                assert await page.read() == b"page"
            assert not await gate.check(server.url("/private"))
        await lender.close()
        assert [request.target for request in server.requests] == ["/robots.txt"]
        assert [request.target for request in proxy.requests] == [server.url("/page")]


@pytest.mark.parametrize("path", ["/page", "/robots.txt"])
@pytest.mark.parametrize("host", ["127.0.0.1", "inside.example"])
async def test_no_proxy_of_the_environment_is_asked_for_a_private_address(
    monkeypatch: pytest.MonkeyPatch, path: str, host: str
) -> None:
    options = FetchOptions(private_addresses="deny")
    async with Server() as proxy, Gatekeeper(UA, fetch=options, resolver=Names("inside.example")) as gate:
        monkeypatch.setenv("http_proxy", proxy.url("", host="localhost"))
        async with PoliteSession(gate, trust_env=True) as web:
            with pytest.raises(Disallowed, match="private"):
                await web.get(f"http://{host}:{proxy.port}{path}")
            gate.set_policy("elsewhere.example", HostPolicy(exempt=True, reason="it has no robots.txt here"))
            async with web.get("http://elsewhere.example/") as page:  # the proxy is private, and may be
                assert page.status == 404
        assert [request.target for request in proxy.requests] == ["http://elsewhere.example/"]
