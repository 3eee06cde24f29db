"""For each fault of a server, the gate answers as the table says, in time; and private addresses stay out of reach."""

import asyncio
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

import aiohttp
import httpx
import pytest

from politesse import Disallowed, FetchOptions, Gatekeeper, HostPolicy, Origin, PoliteSession, Reason
from politesse.fetch import AiohttpFetcher, PublicResolver
from politesse.integrations.aiohttp import RobotsMiddleware
from politesse.integrations.httpx import PoliteTransport
from politesse.ports import FetchFault, FetchRequest, FetchResult
from politesse.testing import FAULTS, Fault, HostileServer, ScriptedResolver
from politesse.testing.hostile import FILE, PRIVATE_LITERALS, PUBLIC_NAME, authority_pem, response
from politesse.verdict import AccessResult, Verdict
from tests.support.scripted import UA
from tests.support.sites import EAGER

SLACK_S: Final = 15.0
"""The delay that a loaded machine may add to a timeout."""

LOOPBACK: Final = "127.0.0.1"
# Stands behind it in the answer of the resolver, so that a name counts as public; it is never connected to.
PUBLIC: Final = "93.184.216.34"

CONNECT_TIMEOUT_S: Final = 2.0
TOTAL_TIMEOUT_S: Final = 4.0
"""The timeouts for servers that go on until the client gives up."""

PATIENT_TIMEOUT_S: Final = 45.0
"""The timeout for servers whose answers end: a loaded machine keeps it, too."""


class Witness:
    """A fetcher that remembers the results of another fetcher at the last hop, and the duration of all hops."""

    def __init__(self, fetcher: AiohttpFetcher) -> None:
        self._fetcher = fetcher
        self.results: dict[str, tuple[FetchResult, float]] = {}
        self.aclose = fetcher.aclose

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        started = time.monotonic()
        result = await self._fetcher.fetch(request)
        origin = str(Origin.of(request.first_url or request.url))
        _, before_s = self.results.get(origin, (result, 0.0))
        self.results[origin] = result, before_s + time.monotonic() - started
        return result


@dataclass
class Found:
    """The verdicts on a page and on a private page of an origin, and the fetch of its robots.txt."""

    page: Verdict
    private: Verdict
    result: FetchResult
    elapsed_s: float


async def crawl(servers: Mapping[str, HostileServer], timeouts_s: tuple[float, float]) -> dict[str, Found]:
    """Check a page and a private page of each origin."""
    context = ssl.create_default_context(cadata=authority_pem().decode())
    options = FetchOptions(connect_timeout_s=timeouts_s[0], total_timeout_s=timeouts_s[1], ssl_context=context)
    names = ScriptedResolver({PUBLIC_NAME: [LOOPBACK, PUBLIC]})
    witness = Witness(AiohttpFetcher(UA, options, resolver=names))
    at_once = asyncio.Semaphore(8)
    found: dict[str, Found] = {}
    async with Gatekeeper(UA, fetcher=witness) as gate:

        async def ask(name: str, server: HostileServer) -> None:
            async with at_once:
                page, private = [await gate.check(server.url(path)) for path in ("/page", "/private")]
            found[name] = Found(page, private, *witness.results[str(Origin.of(server.origin))])

        await asyncio.gather(*(ask(name, server) for name, server in servers.items()))
    return found


REFUSED: Final = [name for name in FAULTS if name.startswith("redirect-to-") and name != "redirect-to-itself"]


def _problems(fault: Fault, found: Found, asked: list[str]) -> Iterator[str]:
    """Yield how the outcome of a fault differs from the table."""
    source, explanation = found.page.source, found.page.explain()
    kind = found.result.kind if isinstance(found.result, FetchFault) else None
    if source is None or (source.result, kind) != (fault.result, fault.kind):
        yield f"{source}, {kind}: {explanation}"
    if (found.page.allowed, found.private.allowed) != (fault.allows_page, fault.allows_private):
        yield f"page {found.page.allowed}, private {found.private.allowed}: {explanation}"
    timeout_s = TOTAL_TIMEOUT_S if fault.waits else PATIENT_TIMEOUT_S
    least_s = TOTAL_TIMEOUT_S if fault.accepts else CONNECT_TIMEOUT_S
    if not (least_s - 0.05 if fault.waits else 0.0) <= found.elapsed_s < timeout_s + SLACK_S:
        yield f"took {found.elapsed_s} s"
    if not fault.allows_page and found.page.not_before is None:
        yield "a closed site is fetched again at once"
    if fault.name in REFUSED:
        if [url.rpartition("/")[2] for url in asked] != ["robots.txt"]:
            yield "the forbidden target of a redirect was requested"
        if fault.name.endswith("-from-public") and "which is private" not in explanation:
            yield f"the private address is not named: {explanation}"


@pytest.mark.full
@pytest.mark.realtime
@pytest.mark.timeout(300)
async def test_each_fault_has_the_outcome_of_the_table_in_time() -> None:
    # One test, because a crawl meets all of the faults.
    async with AsyncExitStack() as stack:
        servers = {
            # Requests for robots.txt to one host wait for each other, so each has a host of its own if possible.
            name: await stack.enter_async_context(
                HostileServer(fault, address=LOOPBACK if fault.host or fault.certificate else f"127.0.2.{place}")
            )
            for place, (name, fault) in enumerate(FAULTS.items(), 1)
        }
        waiting = {name: server for name, server in servers.items() if FAULTS[name].waits}
        ending = {name: server for name, server in servers.items() if name not in waiting}
        found = await crawl(ending, (PATIENT_TIMEOUT_S, PATIENT_TIMEOUT_S))
        found |= await crawl(waiting, (CONNECT_TIMEOUT_S, TOTAL_TIMEOUT_S))
    asked = {name: [exchange.url for exchange in server.log] for name, server in servers.items()}
    problems = {name: list(_problems(fault, found[name], asked[name])) for name, fault in FAULTS.items()}
    assert {name: some for name, some in problems.items() if some} == {}


def test_names_of_faults_are_lower_case_words() -> None:
    assert [fault.name for fault in FAULTS.values()] == [*FAULTS]
    assert [name for name in FAULTS if not (name.replace("-", "").isalnum() and name == name.lower())] == []


# If private addresses are denied, no name, redirect or change of DNS leads to such an address


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
