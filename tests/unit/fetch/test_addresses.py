from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING

import pytest

from politesse.fetch.addresses import AddressGuard, PublicResolver, is_public
from politesse.ports import FaultKind

if TYPE_CHECKING:
    from collections.abc import Sequence

PUBLIC = "93.184.216.34"
PUBLIC_6 = "2606:2800:220:1:248:1893:25c8:1946"
PRIVATE = "10.0.0.1"


class FakeResolver:
    """Resolves names as the test says; what it does not know does not exist."""

    def __init__(self, **addresses: Sequence[str]) -> None:
        self.addresses = addresses
        self.asked: list[tuple[str, int]] = []

    async def resolve(self, host: str, port: int, /) -> Sequence[str]:
        self.asked.append((host, port))
        try:
            return self.addresses[host]
        except KeyError:
            raise OSError(f"{host} does not exist") from None


async def _hosts(guard: AddressGuard, host: str) -> list[str]:
    return [found["host"] for found in await guard.resolve(host, 80)]


@pytest.mark.parametrize(
    "address",
    [
        PUBLIC,
        PUBLIC_6,
        "8.8.8.8",
        "1.1.1.1",
        "172.15.255.255",
        "172.32.0.0",
        "192.167.255.255",
        "168.63.129.15",
        "168.63.129.17",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2002:808:808::1",
        "2001:4860::5efe:808:808",
    ],
)
def test_public_addresses(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        # RFC 1918
        "10.0.0.1",
        "10.255.255.255",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.0.1",
        # RFC 6598, shared by carriers
        "100.64.0.1",
        # RFC 1122 3.2.1.3: this host, this network
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",  # noqa: S104
        "0.1.2.3",
        "::1",
        "::",
        # link-local, the metadata services of clouds among them
        "169.254.169.254",
        "fe80::1",
        # unique local, where other metadata services are
        "fc00::1",
        "fd00:ec2::254",
        # multicast and broadcast
        "224.0.0.1",
        "239.255.255.250",
        "ff02::1",
        "ff0e::1",
        "255.255.255.255",
        # reserved, documentation, benchmarks
        "240.0.0.1",
        "192.0.2.1",
        "198.51.100.1",
        "203.0.113.1",
        "198.18.0.1",
        "2001:db8::1",
        "100::1",
        # protocol assignments: the metadata service of a cloud among them
        "192.0.0.192",
        # Azure's wire server
        "168.63.129.16",
        "::ffff:168.63.129.16",
        # relays of 6to4, withdrawn (RFC 7526)
        "192.88.99.1",
        # site-local, which was withdrawn (RFC 3879), addresses that were compatible with IPv4 (RFC 4291 2.5.5.1),
        # translation within one network (RFC 8215), segment routing (RFC 9602), Teredo, documentation (RFC 9637)
        "fec0::1",
        "::10.0.0.1",
        "64:ff9b:1::808:808",
        "5f00::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "3fff::1",
    ],
)
def test_addresses_that_are_not_for_everybody(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("wrapped", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "192.168.1.1", "224.0.0.1", "0.1.2.3"])
@pytest.mark.parametrize("form", ["mapped", "nat64", "6to4", "isatap", "isatap of a unique address"])
def test_a_private_address_is_seen_through_the_ipv6_form_that_wraps_it(wrapped: str, form: str) -> None:
    four = int(ipaddress.IPv4Address(wrapped))
    six = {
        "mapped": (0xFFFF << 32) | four,  # RFC 4291 2.5.5.2
        "nat64": (0x64_FF9B << 96) | four,  # RFC 6052 2.1
        "6to4": (0x2002 << 112) | (four << 80) | 1,  # RFC 3056 2
        "isatap": (0x2001_4860 << 96) | (0x5EFE << 32) | four,  # RFC 5214 6.1
        "isatap of a unique address": (0x2001_4860 << 96) | (0x0200_5EFE << 32) | four,
    }[form]
    assert not is_public(ipaddress.IPv6Address(six))


@pytest.mark.parametrize("host", [PUBLIC, PRIVATE, "127.0.0.1", "::1", "169.254.169.254", "example.com", "localhost"])
def test_the_first_hop_may_be_any_host(host: str) -> None:
    assert AddressGuard(FakeResolver()).permits_host(host)


async def test_the_first_hop_may_be_a_name_of_any_address() -> None:
    guard = AddressGuard(FakeResolver(home=[PRIVATE, "127.0.0.1", "::1"]))
    assert await _hosts(guard, "home") == [PRIVATE, "127.0.0.1", "::1"]
    assert guard.refusal == ""


@pytest.mark.parametrize("first", [PUBLIC, PUBLIC_6])
@pytest.mark.parametrize("second", [PRIVATE, "127.0.0.1", "::1", "169.254.169.254", "::ffff:10.0.0.1", "224.0.0.1"])
def test_a_literal_private_address_behind_a_public_one_is_refused(first: str, second: str) -> None:
    guard = AddressGuard(FakeResolver())
    assert guard.permits_host(first)
    guard.next_hop()
    assert not guard.permits_host(second)
    assert "private" in guard.refusal
    assert str(ipaddress.ip_address(second)) in guard.refusal


async def test_a_name_of_a_private_address_behind_a_public_literal_is_refused() -> None:
    guard = AddressGuard(FakeResolver(inside=[PRIVATE]))
    guard.permits_host(PUBLIC)
    guard.next_hop()
    assert guard.permits_host("inside")  # a name is judged when it is resolved
    with pytest.raises(OSError, match="inside has no address that may be connected to"):
        await guard.resolve("inside", 80)
    assert PRIVATE in guard.refusal


async def test_a_literal_private_address_behind_a_name_of_a_public_one_is_refused() -> None:
    guard = AddressGuard(FakeResolver(outside=[PUBLIC]))
    guard.permits_host("outside")
    await guard.resolve("outside", 80)
    guard.next_hop()
    assert not guard.permits_host(PRIVATE)


async def test_a_name_that_changes_its_address_between_hops_is_refused() -> None:
    resolver = FakeResolver(rebound=[PUBLIC])
    guard = AddressGuard(resolver)
    assert await _hosts(guard, "rebound") == [PUBLIC]
    guard.next_hop()
    resolver.addresses["rebound"] = ["127.0.0.1"]
    with pytest.raises(OSError, match="no address"):
        await guard.resolve("rebound", 80)


async def test_private_addresses_are_filtered_out_of_a_mixed_answer() -> None:
    guard = AddressGuard(FakeResolver(mixed=[PRIVATE, PUBLIC, "::1", PUBLIC_6, "169.254.169.254"]))
    guard.permits_host("8.8.8.8")
    guard.next_hop()
    assert await _hosts(guard, "mixed") == [PUBLIC, PUBLIC_6]


async def test_a_first_hop_with_a_public_address_among_others_counts_as_public() -> None:
    guard = AddressGuard(FakeResolver(mixed=[PRIVATE, PUBLIC]))
    assert await _hosts(guard, "mixed") == [PRIVATE, PUBLIC]
    guard.next_hop()
    assert not guard.permits_host(PRIVATE)


def test_private_hops_may_follow_each_other() -> None:
    guard = AddressGuard(FakeResolver())
    for host in (PRIVATE, "127.0.0.1", "::1"):
        assert guard.permits_host(host)
        guard.next_hop()
    assert guard.refusal == ""


def test_no_way_leads_back_from_a_public_hop_to_a_private_one() -> None:
    guard = AddressGuard(FakeResolver())
    assert guard.permits_host(PRIVATE)
    guard.next_hop()
    assert guard.permits_host(PUBLIC)
    guard.next_hop()
    assert not guard.permits_host(PRIVATE)


async def test_a_lenient_guard_permits_every_address() -> None:
    guard = AddressGuard(FakeResolver(inside=[PRIVATE]), private_addresses="allow")
    assert guard.permits_host(PUBLIC)
    guard.next_hop()
    assert guard.permits_host(PRIVATE)
    assert await _hosts(guard, "inside") == [PRIVATE]
    assert guard.refusal == ""


def test_to_a_blind_guard_every_name_is_public() -> None:
    guard = AddressGuard(FakeResolver(), blind=True)
    assert guard.permits_host("example.com")
    guard.next_hop()
    assert not guard.permits_host(PRIVATE)
    assert guard.permits_host(PUBLIC)
    assert guard.permits_host("elsewhere.example")


def test_to_a_blind_guard_a_literal_is_what_it_is() -> None:
    guard = AddressGuard(FakeResolver(), blind=True)
    assert guard.permits_host(PRIVATE)
    guard.next_hop()
    assert guard.permits_host("127.0.0.1")


async def test_a_scoped_address_is_judged_without_its_scope() -> None:
    guard = AddressGuard(FakeResolver(scoped=["fe80::1%eth0"]))
    assert await _hosts(guard, "scoped") == ["fe80::1%eth0"]
    guard.permits_host(PUBLIC)
    guard.next_hop()
    with pytest.raises(OSError, match="no address"):
        await guard.resolve("scoped", 80)


@pytest.mark.parametrize(
    ("family", "hosts"),
    [
        (socket.AF_UNSPEC, [PUBLIC, PUBLIC_6]),
        (socket.AF_INET, [PUBLIC]),
        (socket.AF_INET6, [PUBLIC_6]),
    ],
)
async def test_addresses_are_of_the_requested_family(family: socket.AddressFamily, hosts: list[str]) -> None:
    guard = AddressGuard(FakeResolver(dual=[PUBLIC, PUBLIC_6]))
    assert [found["host"] for found in await guard.resolve("dual", 80, family)] == hosts


async def test_resolved_address_has_name_port_and_family() -> None:
    resolver = FakeResolver(dual=[PUBLIC, PUBLIC_6])
    four, six = await AddressGuard(resolver).resolve("dual", 8080)
    assert resolver.asked == [("dual", 8080)]
    assert (four["hostname"], four["host"], four["port"], four["family"]) == ("dual", PUBLIC, 8080, socket.AF_INET)
    assert (six["hostname"], six["host"], six["port"], six["family"]) == ("dual", PUBLIC_6, 8080, socket.AF_INET6)
    assert four["flags"] & socket.AI_NUMERICHOST  # nobody resolves it once more


async def test_a_name_without_addresses_is_an_os_error() -> None:
    with pytest.raises(OSError, match="nothing has no address"):
        await AddressGuard(FakeResolver(nothing=[])).resolve("nothing", 80)


async def test_error_of_the_resolver_is_raised_and_is_no_refusal() -> None:
    guard = AddressGuard(FakeResolver())
    with pytest.raises(OSError, match="does not exist"):
        await guard.resolve("unknown", 80)
    assert guard.refusal == ""


async def test_closing_a_guard_does_not_close_a_borrowed_resolver() -> None:
    guard = AddressGuard(FakeResolver(again=[PUBLIC]))
    await guard.close()
    assert await _hosts(guard, "again") == [PUBLIC]


@pytest.mark.parametrize("host", [PRIVATE, "127.0.0.1", "::1", "::ffff:10.0.0.1", "0.0.0.0", "224.0.0.1", "fe80::1"])  # noqa: S104
def test_where_private_addresses_are_denied_the_first_hop_may_not_be_one(host: str) -> None:
    guard = AddressGuard(FakeResolver(), private_addresses="deny")
    assert not guard.permits_host(host)
    assert "private" in guard.refusal
    assert guard.kind is FaultKind.ADDRESS


async def test_where_private_addresses_are_denied_a_name_has_only_its_public_ones() -> None:
    guard = AddressGuard(FakeResolver(mixed=[PRIVATE, PUBLIC], inside=[PRIVATE]), private_addresses="deny")
    assert await _hosts(guard, "mixed") == [PUBLIC]
    assert guard.refusal == ""
    with pytest.raises(OSError, match="no address"):
        await guard.resolve("inside", 80)
    assert PRIVATE in guard.refusal


def test_where_private_addresses_are_denied_they_stay_so_after_a_public_hop() -> None:
    guard = AddressGuard(FakeResolver(), private_addresses="deny")
    assert guard.permits_host(PUBLIC)
    guard.next_hop()
    assert not guard.permits_host(PRIVATE)
    assert guard.kind is FaultKind.REDIRECT_TARGET


async def test_a_public_resolver_finds_public_addresses_only() -> None:
    names = FakeResolver(mixed=[PRIVATE, PUBLIC, "::1", PUBLIC_6], inside=[PRIVATE, "fe80::1%eth0"])
    resolver = PublicResolver(names)
    assert [found["host"] for found in await resolver.resolve("mixed", 80, socket.AF_UNSPEC)] == [PUBLIC, PUBLIC_6]
    with pytest.raises(OSError, match="inside has no address"):
        await resolver.resolve("inside", 80, socket.AF_UNSPEC)
    names.addresses["mixed"] = [PRIVATE]
    with pytest.raises(OSError, match="mixed has no address"):
        await resolver.resolve("mixed", 80, socket.AF_UNSPEC)
    await resolver.close()
