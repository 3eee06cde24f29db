"""Which addresses are public, which of them a connection may use, and names that never resolve."""

import asyncio
import ipaddress
import socket
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest

from politesse import CacheOptions, FetchOptions, Gatekeeper, Reason
from politesse.fetch import AiohttpFetcher, PublicResolver
from politesse.origin import Origin
from politesse.ports import FaultKind, FetchRequest
from politesse.testing import ScriptedResolver
from tests.support.sites import UA
from tests.wire.fetch.servers import FILE, PUBLIC, Names, Server, faulted, responded, response

PUBLIC_6 = "2606:2800:220:1:248:1893:25c8:1946"
MAX_LOOKUPS: Final = 256


async def hosts_of(*addresses: str, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[str]:
    """Return the addresses of a name that may be connected to."""
    resolver = PublicResolver(ScriptedResolver({"site.example": list(addresses)}))
    try:
        return [found["host"] for found in await resolver.resolve("site.example", 80, family)]
    except OSError:
        return []


async def test_public_addresses_may_be_connected_to() -> None:
    public = f"{PUBLIC} {PUBLIC_6} 8.8.8.8 1.1.1.1 172.15.255.255 172.32.0.0 192.167.255.255 168.63.129.15"
    public += " 168.63.129.17 ::ffff:8.8.8.8 64:ff9b::808:808 2002:808:808::1 2001:4860::5efe:808:808"
    assert [address for address in public.split() if await hosts_of(address) != [address]] == []


NOT_PUBLIC = {
    "RFC 1918": "10.0.0.1 10.255.255.255 172.16.0.1 172.31.255.255 192.168.0.1",
    "RFC 6598, shared by carriers": "100.64.0.1",
    "RFC 1122 3.2.1.3, this host and this network": "127.0.0.1 127.255.255.254 0.0.0.0 0.1.2.3 ::1 ::",
    "link-local, with metadata services of clouds": "169.254.169.254 fe80::1",
    "unique local, with other metadata services": "fc00::1 fd00:ec2::254",
    "multicast and broadcast": "224.0.0.1 239.255.255.250 ff02::1 ff0e::1 255.255.255.255",
    "reserved": "240.0.0.1",
    "documentation, benchmarks": "192.0.2.1 198.51.100.1 203.0.113.1 198.18.0.1 2001:db8::1 3fff::1",
    "protocol assignments, with a metadata service": "192.0.0.192 100::1",
    "Azure's wire server": "168.63.129.16 ::ffff:168.63.129.16",
    "relays of 6to4, withdrawn (RFC 7526)": "192.88.99.1",
    "site-local, withdrawn (RFC 3879)": "fec0::1",
    "compatible with IPv4 (RFC 4291 2.5.5.1)": "::10.0.0.1",
    "translation within a network (RFC 8215), segment routing (RFC 9602)": "64:ff9b:1::808:808 5f00::1",
    "Teredo": "2001:0:4136:e378:8000:63bf:3fff:fdd2",
}


async def test_other_addresses_may_not_be_connected_to() -> None:
    addresses = [address for of_kind in NOT_PUBLIC.values() for address in of_kind.split()]
    assert [address for address in addresses if await hosts_of(address)] == []


async def test_private_address_is_seen_through_each_ipv6_form_that_wraps_it() -> None:
    forms = [
        (0xFFFF << 32, 0),  # mapped: RFC 4291 2.5.5.2
        (0x64_FF9B << 96, 0),  # NAT64: RFC 6052 2.1
        (0x2002 << 112 | 1, 80),  # 6to4: RFC 3056 2
        ((0x2001_4860 << 96) | (0x5EFE << 32), 0),  # ISATAP: RFC 5214 6.1
        ((0x2001_4860 << 96) | (0x0200_5EFE << 32), 0),  # ISATAP of a unique address
    ]
    private = ["127.0.0.1", "10.0.0.1", "169.254.169.254", "192.168.1.1", "224.0.0.1", "0.1.2.3"]
    wrapped = [
        str(ipaddress.IPv6Address(form | int(ipaddress.IPv4Address(four)) << shift))
        for form, shift in forms
        for four in private
    ]
    assert [address for address in wrapped if await hosts_of(address)] == []


async def test_private_addresses_are_filtered_out_of_a_mixed_answer() -> None:
    mixed = ("10.0.0.1", PUBLIC, "::1", PUBLIC_6, "169.254.169.254", "fe80::1%eth0")
    assert await hosts_of(*mixed) == [PUBLIC, PUBLIC_6]


async def test_addresses_are_of_the_requested_family() -> None:
    assert await hosts_of(PUBLIC, PUBLIC_6, family=socket.AF_INET) == [PUBLIC]
    assert await hosts_of(PUBLIC, PUBLIC_6, family=socket.AF_INET6) == [PUBLIC_6]


async def test_public_literal_is_its_own_address() -> None:
    names = ScriptedResolver({})
    for literal in (PUBLIC, PUBLIC_6):
        assert await PublicResolver(names).public_addresses(literal, 80) == [literal]
    assert names.asked == []


async def test_host_of_private_addresses_only_has_no_public_address() -> None:
    names = ScriptedResolver({"inside.example": ["10.0.0.7"]})
    for host, address in {"10.0.0.7": "10.0.0.7", "::ffff:10.0.0.7": "::ffff:", "inside.example": "10.0.0.7"}.items():
        with pytest.raises(OSError, match=rf"^a connection to {address}.*, which is private$"):
            await PublicResolver(names).public_addresses(host, 80)


async def test_unknown_name_raises_the_error_of_the_lookup() -> None:
    with pytest.raises(OSError, match="does not exist"):
        await PublicResolver(ScriptedResolver({})).public_addresses("unknown.example", 80)


async def test_private_address_beside_a_public_one_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> socket.socket:
        raise ConnectionRefusedError(111, "refused")

    monkeypatch.setattr("aiohttp.connector.aiohappyeyeballs.start_connection", refuse)
    names = Names("inside.example", **{"mixed.example": ("127.0.0.1", PUBLIC)})
    fetcher = AiohttpFetcher(UA, FetchOptions(private_addresses="deny"), resolver=names)
    fetches = [FetchRequest(Origin.of(f"http://{name}.example/"), 0) for name in ("mixed", "inside")]
    mixed, inside = [faulted(await fetcher.fetch(request)) for request in fetches]
    assert (mixed.kind, "private" in mixed.detail) == (FaultKind.CONNECT, False)
    assert (inside.kind, inside.detail) == (FaultKind.ADDRESS, "a connection to 127.0.0.1, which is private")
    await fetcher.aclose()


# Names that never resolve


class Dns:
    """Stands in for the system's getaddrinfo: names of hangs.example have no answer until ``release``."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.threads: set[threading.Thread] = set()
        self._answer = threading.Event()

    def release(self) -> None:
        self._answer.set()

    def getaddrinfo(self, host: str, port: object, *args: object, **kwargs: object) -> list[tuple[Any, ...]]:
        self.asked[host] += 1
        self.threads.add(threading.current_thread())
        if host.endswith("hangs.example"):
            self._answer.wait(30)
            raise socket.gaierror(socket.EAI_AGAIN, "no name server answers")
        if "slow" in host:
            time.sleep(0.05)
        address = PUBLIC if host.startswith("public") else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port or 0))]

    async def until_asked(self, number: int) -> None:
        async with asyncio.timeout(20):
            while self.asked.total() < number:
                await asyncio.sleep(0.005)


@pytest.fixture
def dns(monkeypatch: pytest.MonkeyPatch) -> Iterator[Dns]:
    dns = Dns()
    monkeypatch.setattr(socket, "getaddrinfo", dns.getaddrinfo)
    yield dns
    dns.release()
    until = time.monotonic() + 20
    while any(thread.name.startswith("politesse") for thread in threading.enumerate()):
        assert time.monotonic() < until, "a thread is left"
        time.sleep(0.005)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    # The sockets of a server are bound by address, before any name is looked up.
    async with Server(response(200, FILE)) as server:
        yield server


async def test_names_that_never_resolve_make_no_healthy_site_unreachable(dns: Dns, server: Server) -> None:
    options = FetchOptions(connect_timeout_s=5, total_timeout_s=20)
    async with Gatekeeper(UA, cache=CacheOptions(max_concurrent_fetches=10_000), fetch=options) as gate:
        tasks = [asyncio.create_task(gate.check(f"http://n{n}.hangs.example/")) for n in range(100)]
        await dns.until_asked(40)  # more than an executor of asyncio has threads
        urls = [server.url("/public", host=f"h{n}.healthy.example") for n in range(10)]
        verdicts = await asyncio.gather(*map(gate.check, urls))
        assert {verdict.reason for verdict in verdicts} == {Reason.NO_RULE}
        assert await PublicResolver().public_addresses("public.example", 80) == [PUBLIC]
        assert not any(task.done() for task in tasks), "healthy names waited for the others"
        assert [thread for thread in dns.threads if not thread.daemon] == [], "it keeps the interpreter from ending"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.realtime
async def test_waiting_for_a_thread_does_not_count_as_connecting(dns: Dns, server: Server) -> None:
    fetcher = AiohttpFetcher(UA, FetchOptions(connect_timeout_s=0.3, total_timeout_s=25))
    hanging = [FetchRequest(Origin.of(f"http://n{n}.hangs.example/"), 0) for n in range(MAX_LOOKUPS)]
    results = await asyncio.gather(*map(fetcher.fetch, hanging))  # they are given up, but keep their threads
    assert {faulted(result).kind for result in results} == {FaultKind.TIMEOUT}
    healthy = asyncio.create_task(fetcher.fetch(FetchRequest(server.origin("healthy.example"), 0)))
    await asyncio.sleep(0.6)  # twice as long as connecting may take
    dns.release()
    assert responded(await healthy).body == FILE
    await fetcher.aclose()


async def test_lookups_beyond_the_limit_wait_and_a_cancelled_one_leaves_the_queue(dns: Dns) -> None:
    resolver = PublicResolver()
    tasks = [asyncio.create_task(resolver.resolve(f"n{n}.hangs.example", 80)) for n in range(MAX_LOOKUPS)]
    await dns.until_asked(MAX_LOOKUPS)
    given_up, kept = (asyncio.create_task(resolver.resolve(f"public-{name}.example", 80)) for name in ("one", "two"))
    await asyncio.sleep(0.05)
    assert dns.asked.total() == MAX_LOOKUPS
    given_up.cancel()
    await asyncio.sleep(0)
    dns.release()
    async with asyncio.timeout(20):
        (found,) = await kept
    assert found["host"] == PUBLIC
    await asyncio.gather(*tasks, given_up, return_exceptions=True)
    assert (dns.asked["public-one.example"], dns.asked["public-two.example"]) == (0, 1)


async def test_concurrent_lookups_of_a_name_are_one_lookup(dns: Dns) -> None:
    resolver = PublicResolver()
    found = await asyncio.gather(*(resolver.resolve("public-slow.example", port) for port in range(10)))
    assert [result["host"] for [result] in found] == [PUBLIC] * 10
    assert dns.asked["public-slow.example"] == 1
