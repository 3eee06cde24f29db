"""A transport of httpx or httpx2 that denies private addresses connects only to addresses that it has checked."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from importlib import import_module
from typing import Any, Final

import pytest
import trustme

from politesse import ConfigurationError, Disallowed, FetchOptions, Gatekeeper, InvalidURL, PoliteQueue, Reason
from politesse.queue import CrawlPage
from politesse.testing import ScriptedFetcher, ScriptedResolver
from tests.support.httpx_libraries import Library
from tests.support.sites import EAGER, UA, turns

PUBLIC: Final = "93.184.216.34"
OTHER: Final = "2606:2800:220:1:248:1893:25c8:1946"
REQUEST_ERRORS: Final = "ConnectError", "ConnectTimeout"


class Wire:
    """A network backend that leads every connection to a server on loopback, and writes down each address.

    Attributes:
        dialled: the addresses, in order.
        dead: addresses at which no server answers.
        heads: the heads of the requests that the server got.
        names: the TLS server names that clients gave.
        redirects: the targets of redirects, by path.
    """

    def __init__(self, library: Library) -> None:
        self.core: Any = import_module(library.name.replace("httpx", "httpcore"))
        self.dialled: list[str] = []
        self.dead: dict[str, str] = {}
        self.given_s: list[float | None] = []
        self.heads: list[str] = []
        self.names: list[str | None] = []
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

    def under(self, sender: Any) -> Any:
        """Return a transport that connects over this backend."""
        sender._pool._network_backend = self
        return sender


@pytest.fixture
async def wire(library: Library, request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    wire = Wire(library)
    tls = None
    if "authority" in request.fixturenames:
        authority: trustme.CA = request.getfixturevalue("authority")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("site.example").configure_cert(tls)
        tls.sni_callback = lambda _, name, __: wire.names.append(name)
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        wire.port = server.sockets[0].getsockname()[1]
        yield wire


@pytest.fixture
def names() -> ScriptedResolver:
    return ScriptedResolver({"site.example": [PUBLIC], "inside.example": ["127.0.0.1"]})


class DenyingFetcher(ScriptedFetcher):
    """Fetches robots.txt as a fetcher that denies private addresses, so that only pages are connected to."""

    options = FetchOptions(private_addresses="deny")


@pytest.fixture
async def gate(names: ScriptedResolver) -> AsyncIterator[Gatekeeper]:
    async with Gatekeeper(UA, fetcher=DenyingFetcher(), resolver=names, pacing=EAGER) as gate:
        yield gate


Connect = Callable[..., Any]


@pytest.fixture
def connect(gate: Gatekeeper, wire: Wire, library: Library) -> Connect:
    """Return a function that makes a client, given the options of its AsyncHTTPTransport."""

    def client(timeout: float | None = 5.0, **options: Any) -> Any:
        sender = wire.under(library.http.AsyncHTTPTransport(trust_env=False, **options))
        transport = library.polite.PoliteTransport(gate, wraps=sender, private_addresses="deny")
        return library.http.AsyncClient(transport=transport, follow_redirects=True, timeout=timeout)

    return client


def no_keepalive(library: Library) -> Any:
    return library.http.Limits(max_keepalive_connections=0)


# What is connected to


async def test_connection_goes_to_the_address_that_was_checked(
    connect: Connect, wire: Wire, names: ScriptedResolver
) -> None:
    async with connect() as client:
        response = await client.get("http://site.example:8080/page")
        await client.get("http://site.example:8080/other")  # over the same connection
    assert (response.text, str(response.url)) == ("page", "http://site.example:8080/page")
    assert (wire.dialled, names.asked) == ([PUBLIC], ["site.example"])
    assert [head.split("\r\n")[:2] for head in wire.heads] == [
        ["GET /page HTTP/1.1", "Host: site.example:8080"],
        ["GET /other HTTP/1.1", "Host: site.example:8080"],
    ]


@pytest.mark.parametrize("literal", [PUBLIC, f"[{OTHER}]"])
async def test_public_literal_is_connected_to_without_a_lookup(
    connect: Connect, wire: Wire, names: ScriptedResolver, literal: str
) -> None:
    async with connect() as client:
        await client.get(f"http://{literal}/page")
    assert (wire.dialled, names.asked) == ([literal.strip("[]")], [])


async def test_tls_verifies_the_name_of_the_url(
    connect: Connect, wire: Wire, library: Library, authority: trustme.CA
) -> None:
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with connect(verify=trusting) as client:
        assert (await client.get("https://site.example/page")).text == "page"
        with pytest.raises(library.http.ConnectError, match=r"certificate is not valid for '93\.184\.216\.34'"):
            await client.get(f"https://{PUBLIC}/page")
    assert wire.dialled == [PUBLIC, PUBLIC]
    assert wire.names[0] == "site.example"


PRIVATE = [
    ["127.0.0.1"],
    ["10.0.0.7", "::1"],
    ["::ffff:10.0.0.7"],
    ["64:ff9b::7f00:1"],
    ["fe80::1%lo"],
    ["169.254.169.254"],
]


@pytest.mark.parametrize("addresses", PRIVATE)
async def test_name_of_private_addresses_only_is_denied(
    connect: Connect, wire: Wire, gate: Gatekeeper, names: ScriptedResolver, library: Library, addresses: Sequence[str]
) -> None:
    names.addresses["inside.example"] = addresses
    async with connect(retries=2) as client:
        with pytest.raises(library.polite.RequestDisallowed, match=r"a connection to .*, which is private") as caught:
            await client.get("http://inside.example/page")
    error: Any = caught.value
    assert isinstance(error, library.http.RequestError)
    assert isinstance(error, Disallowed)
    assert (error.verdict.reason, error.verdict.agent) == (Reason.POLICY_DENY, "examplebot")
    assert (error.verdict.url, str(caught.value.request.url)) == ("http://inside.example/page",) * 2
    assert (wire.dialled, wire.heads, names.asked, turns(gate)) == ([], [], ["inside.example"], 0)


async def test_of_mixed_addresses_only_the_public_ones_are_connected_to(
    connect: Connect, wire: Wire, names: ScriptedResolver
) -> None:
    names.addresses["site.example"] = ["127.0.0.1", PUBLIC, "::1", "10.0.0.7"]
    async with connect() as client:
        assert (await client.get("http://site.example/page")).text == "page"
    assert wire.dialled == [PUBLIC]


@pytest.mark.parametrize(
    "target",
    [
        "http://inside.example/page",
        "http://127.0.0.1/page",
        "http://10.0.0.7/page",
        "http://[::1]/page",
        "http://[::ffff:127.0.0.1]/page",
        "//169.254.169.254/latest/meta-data/",
    ],
)
async def test_redirect_to_a_private_host_is_not_followed(
    connect: Connect, wire: Wire, library: Library, target: str
) -> None:
    wire.redirects["/moved"] = target
    async with connect() as client:
        with pytest.raises(library.polite.RequestDisallowed, match="private"):
            await client.get("http://site.example/moved")
        assert (await client.get("http://site.example/page")).text == "page"
    assert wire.dialled == [PUBLIC]
    assert [head.split()[1] for head in wire.heads] == ["/moved", "/page"]


@pytest.mark.parametrize("spelling", ["2130706433", "0x7f.1", "127.1", "017700000001"])
async def test_odd_spelling_of_a_private_address_is_not_connected_to(
    connect: Connect, wire: Wire, library: Library, spelling: str
) -> None:
    async with connect() as client:
        with pytest.raises(InvalidURL) as caught:
            await client.get(f"http://{spelling}/page")
    assert isinstance(caught.value, library.http.RequestError)
    assert wire.dialled == []


class Rebinding(ScriptedResolver):
    """A resolver whose later answers differ from the first."""

    async def resolve(self, host: str, port: int, /) -> Sequence[str]:
        found = await super().resolve(host, port)
        return found if len(self.asked) == 1 else ["127.0.0.1"]


async def test_name_that_becomes_private_is_never_connected_to_there(wire: Wire, library: Library) -> None:
    names = Rebinding({"site.example": [PUBLIC]})
    sender = wire.under(library.http.AsyncHTTPTransport(limits=no_keepalive(library)))
    async with Gatekeeper(UA, fetcher=DenyingFetcher(), resolver=names, pacing=EAGER) as gate:
        transport = library.polite.PoliteTransport(gate, wraps=sender, private_addresses="deny")
        async with library.http.AsyncClient(transport=transport) as client:
            await client.get("http://site.example/page")  # the address that was checked, whatever the second answer
            with pytest.raises(library.polite.RequestDisallowed, match=r"a connection to 127\.0\.0\.1, which is priva"):
                await client.get("http://site.example/page")
    assert (wire.dialled, len(wire.heads)) == ([PUBLIC], 1)


async def test_crawl_reports_a_page_at_a_private_address(
    connect: Connect, gate: Gatekeeper, wire: Wire, library: Library
) -> None:
    errors: list[tuple[str, type[BaseException]]] = []
    queue = PoliteQueue[object](gate)
    await queue.put("http://inside.example/page")
    await queue.put("http://site.example/page")

    async def handle(page: CrawlPage[object], response: object) -> None:
        pass

    async with connect() as client:
        report = await queue.crawl(client, handle, on_error=lambda page, error: errors.append((page.url, type(error))))
    assert errors == [("http://inside.example/page", library.polite.RequestDisallowed)]
    assert (report.failed, report.pages, wire.dialled) == (1, 1, [PUBLIC])


# When connecting fails


@pytest.mark.parametrize("fault", REQUEST_ERRORS)
async def test_next_address_is_tried_with_its_part_of_the_time(
    connect: Connect, wire: Wire, names: ScriptedResolver, fault: str
) -> None:
    names.addresses["site.example"] = [OTHER, PUBLIC]
    wire.dead[OTHER] = fault
    async with connect() as client:
        assert (await client.get("http://site.example/page")).text == "page"
    assert (wire.dialled, wire.given_s) == ([OTHER, PUBLIC], [2.5, 5.0])


@pytest.mark.parametrize("fault", REQUEST_ERRORS)
async def test_fault_of_the_last_address_is_raised_after_the_retries(
    connect: Connect, wire: Wire, names: ScriptedResolver, library: Library, fault: str
) -> None:
    wire.dead[PUBLIC] = fault
    async with connect(timeout=None, retries=2) as client:
        with pytest.raises(getattr(library.http, fault), match="is dead"):
            await client.get("http://site.example/page")
    assert (wire.dialled, wire.given_s, wire.slept_s) == ([PUBLIC] * 3, [None] * 3, [0, 0.5])
    assert names.asked == ["site.example"] * 3  # each attempt has its own check


async def test_unknown_name_is_an_error_to_connect(connect: Connect, library: Library) -> None:
    async with connect() as client:
        with pytest.raises(library.http.ConnectError, match="does not exist"):
            await client.get("http://unknown.example/page")


async def test_name_that_is_too_long_for_a_lookup_is_an_error_to_connect(
    connect: Connect, names: ScriptedResolver, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def encode(host: str, port: int, /) -> Sequence[str]:
        return [("a" * 64).encode("idna").decode()]

    monkeypatch.setattr(names, "resolve", encode)
    async with connect() as client:
        with pytest.raises(library.http.ConnectError, match="label"):
            await client.get("http://site.example/page")


async def test_lookup_that_never_ends_is_bounded_by_the_timeout_to_connect(
    connect: Connect, names: ScriptedResolver, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(host: str, port: int, /) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(names, "resolve", hang)
    async with connect(timeout=0.02) as client:
        with pytest.raises(library.http.ConnectTimeout, match=r"site\.example: no connection within 0\.02 s"):
            await client.get("http://site.example/page")


# What cannot be checked


def over_pool_with_proxy(http: Any) -> Any:
    """Return a transport over a plain pool with a proxy, which httpcore makes but neither library asks for."""
    core: Any = import_module(http.__name__.replace("httpx", "httpcore"))
    sender = http.AsyncHTTPTransport()
    sender._pool = core.AsyncConnectionPool(proxy=core.Proxy("http://127.0.0.1:3128"))
    return sender


@pytest.mark.parametrize(
    "sender",
    [
        lambda http: http.AsyncHTTPTransport(proxy="http://127.0.0.1:3128"),
        lambda http: http.AsyncHTTPTransport(uds="/tmp/socket"),  # noqa: S108 - never opened
        lambda http: http.MockTransport(lambda _: http.Response(200)),
        lambda http: http.AsyncBaseTransport(),
        over_pool_with_proxy,
    ],
)
async def test_transport_whose_addresses_cannot_be_checked_is_refused(
    gate: Gatekeeper, library: Library, sender: Callable[[Any], Any]
) -> None:
    with pytest.raises(ConfigurationError, match=r"^private_addresses='deny': the addresses behind wraps=.*proxy"):
        library.polite.PoliteTransport(gate, wraps=sender(library.http), private_addresses="deny")


async def test_transport_with_open_connections_is_refused(gate: Gatekeeper, wire: Wire, library: Library) -> None:
    sender = wire.under(library.http.AsyncHTTPTransport())
    async with library.http.AsyncClient(transport=sender) as client:
        await client.get("http://127.0.0.1/page")
        with pytest.raises(ConfigurationError, match="give a new AsyncHTTPTransport"):
            library.polite.PoliteTransport(gate, wraps=sender, private_addresses="deny")


async def test_gate_must_deny_private_addresses_too(library: Library) -> None:
    async with Gatekeeper(UA) as gate:
        with pytest.raises(ConfigurationError, match=r"would request robots\.txt from private addresses; create it"):
            library.polite.PoliteTransport(gate, private_addresses="deny")


async def test_other_values_are_refused(gate: Gatekeeper, library: Library) -> None:
    with pytest.raises(ConfigurationError, match=r"^private_addresses='allow': give 'deny' or None$"):
        library.polite.PoliteTransport(gate, private_addresses="allow")


# By default


async def test_transport_of_a_gate_that_denies_does_so_by_default(
    gate: Gatekeeper, names: ScriptedResolver, library: Library
) -> None:
    async with library.http.AsyncClient(transport=library.polite.PoliteTransport(gate)) as client:
        with pytest.raises(library.polite.RequestDisallowed, match="private"):
            await client.get("http://inside.example/page")
    assert names.asked == ["inside.example"]


async def test_transport_that_is_given_is_guarded_only_on_request(
    gate: Gatekeeper, wire: Wire, names: ScriptedResolver, library: Library
) -> None:
    sender = wire.under(library.http.AsyncHTTPTransport())
    async with library.http.AsyncClient(transport=library.polite.PoliteTransport(gate, wraps=sender)) as client:
        await client.get("http://inside.example/page")
    assert (wire.dialled, names.asked) == (["inside.example"], [])
