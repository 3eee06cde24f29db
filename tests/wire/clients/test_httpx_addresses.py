"""A transport of httpx or httpx2 that denies private addresses connects only to addresses that it has checked."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from importlib import import_module
from typing import Any, Final

import pytest
import trustme

from politesse import ConfigurationError, Disallowed, FetchOptions, Gatekeeper, PoliteQueue, Reason
from politesse.queue import CrawlPage
from politesse.testing import ScriptedFetcher, ScriptedResolver
from tests.support.httpx_libraries import Library
from tests.support.sites import EAGER, UA, turns

PUBLIC: Final = "93.184.216.34"
OTHER: Final = "2606:2800:220:1:248:1893:25c8:1946"


class DenyingFetcher(ScriptedFetcher):
    """Fetches robots.txt as a fetcher that denies private addresses, so that only pages are connected to."""

    options = FetchOptions(private_addresses="deny")


class Wire:
    """A network backend that leads every connection to a server on loopback, and writes down each address.

    Attributes:
        names: the addresses of host names.
        dialled: the addresses, in order.
        dead: addresses at which no server answers.
        heads: the heads of the requests that the server got.
        server_names: the TLS server names that clients gave.
        redirects: the targets of redirects, by path.
    """

    def __init__(self, library: Library) -> None:
        self.http = library.http
        self.polite = library.polite
        self.core: Any = import_module(library.name.replace("httpx", "httpcore"))
        self.names = ScriptedResolver({"site.example": [PUBLIC], "inside.example": ["127.0.0.1"]})
        self.gate = Gatekeeper(UA, fetcher=DenyingFetcher(), resolver=self.names, pacing=EAGER)
        self.dialled: list[str] = []
        self.dead: dict[str, str] = {}
        self.given_s: list[float | None] = []
        self.heads: list[str] = []
        self.server_names: list[str | None] = []
        self.redirects: dict[str, str] = {}
        self.port = 0
        self.slept_s: list[float] = []

    async def connect_tcp(self, host: str, port: int, *options: Any, **named: Any) -> Any:
        timeout = options[0] if options else named["timeout"]
        self.dialled.append(host)
        self.given_s.append(timeout)
        if host in self.dead:
            raise getattr(self.core, self.dead[host])(f"{host} is dead")
        return await self.core.AnyIOBackend().connect_tcp("127.0.0.1", self.port, timeout)

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                self.heads.append(head)
                target = self.redirects.get(head.split()[1])
                start = f"302 Found\r\nLocation: {target}" if target else "200 OK"
                writer.write(f"HTTP/1.1 {start}\r\nContent-Length: 4\r\n\r\npage".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def sender(self, **options: Any) -> Any:
        """Return a transport that connects over this backend."""
        sender = self.http.AsyncHTTPTransport(trust_env=False, **options)
        sender._pool._network_backend = self
        return sender

    def client(self, timeout: float | None = 5.0, **options: Any) -> Any:
        transport = self.polite.PoliteTransport(self.gate, wraps=self.sender(**options), private_addresses="deny")
        return self.http.AsyncClient(transport=transport, follow_redirects=True, timeout=timeout)


@pytest.fixture
async def wire(library: Library, request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    wire = Wire(library)
    tls = None
    if "authority" in request.fixturenames:
        authority: trustme.CA = request.getfixturevalue("authority")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("site.example").configure_cert(tls)
        tls.sni_callback = lambda _, name, __: wire.server_names.append(name)
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0, ssl=tls)
    async with server, wire.gate:
        wire.port = server.sockets[0].getsockname()[1]
        yield wire


# What is connected to


async def test_connection_goes_to_the_address_that_was_checked(wire: Wire) -> None:
    async with wire.client() as client:
        response = await client.get("http://site.example:8080/page")
        await client.get("http://site.example:8080/other")  # over the same connection
        assert (response.text, str(response.url)) == ("page", "http://site.example:8080/page")
        assert (wire.dialled, wire.names.asked) == ([PUBLIC], ["site.example"])
        assert [head.split("\r\n")[:2] for head in wire.heads] == [
            [f"GET {path} HTTP/1.1", "Host: site.example:8080"] for path in ("/page", "/other")
        ]
        for literal in (PUBLIC, f"[{OTHER}]"):  # without a lookup
            await client.get(f"http://{literal}/page")
    assert (wire.dialled, wire.names.asked) == ([PUBLIC, PUBLIC, OTHER], ["site.example"])


async def test_tls_verifies_the_name_of_the_url(wire: Wire, authority: trustme.CA) -> None:
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with wire.client(verify=trusting) as client:
        assert (await client.get("https://site.example/page")).text == "page"
        with pytest.raises(wire.http.ConnectError, match=r"certificate is not valid for '93\.184\.216\.34'"):
            await client.get(f"https://{PUBLIC}/page")
    assert (wire.dialled, wire.server_names[0]) == ([PUBLIC, PUBLIC], "site.example")


async def test_name_of_private_addresses_only_is_denied(wire: Wire) -> None:
    private = ["127.0.0.1"], ["10.0.0.7", "::1"], ["::ffff:10.0.0.7"], ["64:ff9b::7f00:1"], ["fe80::1%lo"]
    async with wire.client(retries=2) as client:
        for addresses in (*private, ["169.254.169.254"]):
            wire.names.asked.clear()
            wire.names.addresses["inside.example"] = addresses
            with pytest.raises(wire.polite.RequestDisallowed, match=r"a connection to .*, which is private") as caught:
                await client.get("http://inside.example/page")
            error: Any = caught.value
            assert {Disallowed, wire.http.RequestError} < set(type(error).__mro__)
            assert (error.verdict.reason, error.verdict.agent) == (Reason.POLICY_DENY, "examplebot")
            assert error.verdict.url == str(error.request.url) == "http://inside.example/page"
            assert (wire.dialled, wire.names.asked, turns(wire.gate)) == ([], ["inside.example"], 0), addresses


async def test_of_mixed_addresses_only_the_public_ones_are_connected_to(wire: Wire) -> None:
    wire.names.addresses["site.example"] = ["127.0.0.1", PUBLIC, "::1", "10.0.0.7"]
    async with wire.client() as client:
        assert (await client.get("http://site.example/page")).text == "page"
    assert wire.dialled == [PUBLIC]


async def test_redirect_to_a_private_host_is_not_followed(wire: Wire) -> None:
    hosts = ("inside.example", "127.0.0.1", "10.0.0.7", "[::1]", "[::ffff:127.0.0.1]")
    targets = [*(f"http://{host}/page" for host in hosts), "//169.254.169.254/latest/meta-data/"]
    async with wire.client() as client:
        for target in targets:
            wire.redirects["/moved"] = target
            with pytest.raises(wire.polite.RequestDisallowed, match="private"):
                await client.get("http://site.example/moved")
        assert (await client.get("http://site.example/page")).text == "page"
    assert set(wire.dialled) == {PUBLIC}
    assert [head.split()[1] for head in wire.heads] == [*["/moved"] * len(targets), "/page"]


async def test_name_that_becomes_private_is_never_connected_to_there(wire: Wire) -> None:
    async with wire.client(limits=wire.http.Limits(max_keepalive_connections=0)) as client:
        await client.get("http://site.example/page")
        wire.names.addresses["site.example"] = ["127.0.0.1"]
        with pytest.raises(wire.polite.RequestDisallowed, match=r"a connection to 127\.0\.0\.1, which is priva"):
            await client.get("http://site.example/page")
    assert (wire.dialled, len(wire.heads)) == ([PUBLIC], 1)


async def test_crawl_reports_a_page_at_a_private_address(wire: Wire) -> None:
    errors: list[tuple[str, type[BaseException]]] = []
    queue = PoliteQueue[object](wire.gate)
    await queue.put("http://inside.example/page")
    await queue.put("http://site.example/page")

    async def handle(page: CrawlPage[object], response: object) -> None:
        pass

    async with wire.client() as client:
        report = await queue.crawl(client, handle, on_error=lambda page, error: errors.append((page.url, type(error))))
    assert errors == [("http://inside.example/page", wire.polite.RequestDisallowed)]
    assert (report.failed, report.pages, wire.dialled) == (1, 1, [PUBLIC])


# When connecting fails


async def test_next_address_is_tried_with_its_part_of_the_time(wire: Wire) -> None:
    wire.names.addresses["site.example"] = [OTHER, PUBLIC]
    for fault in ("ConnectError", "ConnectTimeout"):
        wire.dead = {OTHER: fault}
        async with wire.client() as client:
            assert (await client.get("http://site.example/page")).text == "page"
    assert (wire.dialled, wire.given_s) == ([OTHER, PUBLIC] * 2, [2.5, 5.0] * 2)


async def test_fault_of_the_last_address_is_raised_after_the_retries(wire: Wire) -> None:
    for fault in ("ConnectError", "ConnectTimeout"):
        wire.dead = {PUBLIC: fault}
        async with wire.client(timeout=None, retries=2) as client:
            with pytest.raises(getattr(wire.http, fault), match="is dead"):
                await client.get("http://site.example/page")
    assert (wire.dialled, wire.given_s, wire.slept_s) == ([PUBLIC] * 6, [None] * 6, [0, 0.5] * 2)
    assert wire.names.asked == ["site.example"] * 6  # each attempt has its own check


async def test_failed_or_endless_lookup_is_an_error_to_connect(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    async def encode(host: str, port: int, /) -> Sequence[str]:
        return [("a" * 64).encode("idna").decode()]

    async def hang(host: str, port: int, /) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    async with wire.client(timeout=0.02) as client:
        with pytest.raises(wire.http.ConnectError, match="does not exist"):
            await client.get("http://unknown.example/page")
        monkeypatch.setattr(wire.names, "resolve", encode)
        with pytest.raises(wire.http.ConnectError, match="label"):
            await client.get("http://site.example/page")
        monkeypatch.setattr(wire.names, "resolve", hang)
        with pytest.raises(wire.http.ConnectTimeout, match=r"site\.example: no connection within 0\.02 s"):
            await client.get("http://site.example/page")


# What cannot be checked


async def test_transport_whose_addresses_cannot_be_checked_is_refused(wire: Wire) -> None:
    http, core, make = wire.http, wire.core, wire.polite.PoliteTransport
    over_pool = http.AsyncHTTPTransport()  # httpcore makes a plain pool with a proxy, but neither library asks for it
    over_pool._pool = core.AsyncConnectionPool(proxy=core.Proxy("http://127.0.0.1:3128"))
    senders = [
        http.AsyncHTTPTransport(proxy="http://127.0.0.1:3128"),
        http.AsyncHTTPTransport(uds="/tmp/socket"),  # noqa: S108 - never opened
        http.MockTransport(lambda _: http.Response(200)),
        http.AsyncBaseTransport(),
        over_pool,
    ]
    for sender in senders:
        with pytest.raises(ConfigurationError, match=r"^private_addresses='deny': the addresses behind wraps=.*proxy"):
            make(wire.gate, wraps=sender, private_addresses="deny")
    opened = wire.sender()
    async with http.AsyncClient(transport=opened) as client:
        await client.get("http://127.0.0.1/page")
        with pytest.raises(ConfigurationError, match="give a new AsyncHTTPTransport"):
            make(wire.gate, wraps=opened, private_addresses="deny")
    with pytest.raises(ConfigurationError, match=r"^private_addresses='allow': give 'deny' or None$"):
        make(wire.gate, private_addresses="allow")
    async with Gatekeeper(UA) as gate:  # which must deny them, too
        with pytest.raises(ConfigurationError, match=r"would request robots\.txt from private addresses; create it"):
            make(gate, private_addresses="deny")


async def test_transport_of_a_gate_that_denies_does_so_by_default_unless_it_is_given(wire: Wire) -> None:
    async with wire.http.AsyncClient(transport=wire.polite.PoliteTransport(wire.gate)) as client:
        with pytest.raises(wire.polite.RequestDisallowed, match="private"):
            await client.get("http://inside.example/page")
    assert wire.names.asked == ["inside.example"]
    transport = wire.polite.PoliteTransport(wire.gate, wraps=wire.sender())
    async with wire.http.AsyncClient(transport=transport) as client:
        await client.get("http://inside.example/page")
    assert (wire.dialled, wire.names.asked) == (["inside.example"], ["inside.example"])
