"""Which addresses are public, and which of them a connection may use."""

import ipaddress
import socket

import pytest

from politesse.fetch import PublicResolver
from politesse.testing import ScriptedResolver

PUBLIC = "93.184.216.34"
PUBLIC_6 = "2606:2800:220:1:248:1893:25c8:1946"


async def _hosts(*addresses: str, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[str]:
    """Return the addresses of a name that may be connected to."""
    resolver = PublicResolver(ScriptedResolver({"site.example": list(addresses)}))
    try:
        return [found["host"] for found in await resolver.resolve("site.example", 80, family)]
    except OSError:
        return []


MORE_PUBLIC = "8.8.8.8 1.1.1.1 172.15.255.255 172.32.0.0 192.167.255.255 168.63.129.15 168.63.129.17 ::ffff:8.8.8.8"
PUBLIC_6_FORMS = "64:ff9b::808:808 2002:808:808::1 2001:4860::5efe:808:808"

OTHER_ADDRESSES = {
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


@pytest.mark.parametrize("address", [PUBLIC, PUBLIC_6, *f"{MORE_PUBLIC} {PUBLIC_6_FORMS}".split()])
async def test_public_addresses(address: str) -> None:
    assert await _hosts(address) == [address]


@pytest.mark.parametrize("addresses", OTHER_ADDRESSES.values(), ids=OTHER_ADDRESSES.keys())
async def test_addresses_that_are_not_public(addresses: str) -> None:
    for address in addresses.split():
        assert await _hosts(address) == [], address


@pytest.mark.parametrize("wrapped", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "192.168.1.1", "224.0.0.1", "0.1.2.3"])
@pytest.mark.parametrize("form", ["mapped", "nat64", "6to4", "isatap", "isatap of a unique address"])
async def test_a_private_address_is_seen_through_the_ipv6_form_that_wraps_it(wrapped: str, form: str) -> None:
    four = int(ipaddress.IPv4Address(wrapped))
    six = {
        "mapped": (0xFFFF << 32) | four,  # RFC 4291 2.5.5.2
        "nat64": (0x64_FF9B << 96) | four,  # RFC 6052 2.1
        "6to4": (0x2002 << 112) | (four << 80) | 1,  # RFC 3056 2
        "isatap": (0x2001_4860 << 96) | (0x5EFE << 32) | four,  # RFC 5214 6.1
        "isatap of a unique address": (0x2001_4860 << 96) | (0x0200_5EFE << 32) | four,
    }[form]
    assert await _hosts(str(ipaddress.IPv6Address(six))) == []


async def test_private_addresses_are_filtered_out_of_a_mixed_answer() -> None:
    mixed = ("10.0.0.1", PUBLIC, "::1", PUBLIC_6, "169.254.169.254", "fe80::1%eth0")
    assert await _hosts(*mixed) == [PUBLIC, PUBLIC_6]


@pytest.mark.parametrize(("family", "hosts"), [(socket.AF_INET, [PUBLIC]), (socket.AF_INET6, [PUBLIC_6])])
async def test_addresses_are_of_the_requested_family(family: socket.AddressFamily, hosts: list[str]) -> None:
    assert await _hosts(PUBLIC, PUBLIC_6, family=family) == hosts


# For clients that connect to addresses


@pytest.mark.parametrize("literal", [PUBLIC, PUBLIC_6])
async def test_public_literal_is_its_own_address(literal: str) -> None:
    names = ScriptedResolver({})
    assert await PublicResolver(names).public_addresses(literal, 80) == [literal]
    assert names.asked == []


@pytest.mark.parametrize("host", ["10.0.0.7", "::ffff:10.0.0.7", "inside.example"])
async def test_host_of_private_addresses_only_has_no_public_address(host: str) -> None:
    names = ScriptedResolver({"inside.example": ["10.0.0.7"]})
    with pytest.raises(OSError, match=r"^a connection to (10\.0\.0\.7|::ffff:.*), which is private$"):
        await PublicResolver(names).public_addresses(host, 80)


async def test_unknown_name_raises_the_error_of_the_lookup() -> None:
    with pytest.raises(OSError, match="does not exist"):
        await PublicResolver(ScriptedResolver({})).public_addresses("unknown.example", 80)
