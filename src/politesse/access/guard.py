"""Which addresses may be connected to: a public server must not send us to a private one."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Final, Literal, get_args

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver

from politesse.ports import FaultKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from politesse.ports import Resolver

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

PrivateAddresses = Literal["redirects", "deny", "allow"]
"""Which way to private addresses is closed: redirects from public ones, every way, or none."""

PRIVATE_ADDRESSES: Final = get_args(PrivateAddresses)

# Protocol assignments, of which not every Python knows all, and where a cloud keeps its metadata service (RFC 6890
# 2.2.2); and what relays of 6to4 had, which are withdrawn (RFC 7526).
_FOR_NOBODY: Final = (ipaddress.IPv4Network("192.0.0.0/24"), ipaddress.IPv4Network("192.88.99.0/24"))
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")  # all that IANA has given out of IPv6
_DOCUMENTATION: Final = ipaddress.IPv6Network("3fff::/20")  # RFC 9637; not every Python knows it
# RFC 5214 6.1: the interface identifier of ISATAP, before the IPv4 address that it tunnels to; the bit tells whether
# that address is unique.
_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})


class SystemResolver:
    """The resolver that aiohttp would use: getaddrinfo in a thread, or aiodns where it is installed."""

    async def resolve(self, host: str, port: int, /) -> Sequence[str]:
        """Return the addresses of ``host``; raises OSError."""
        resolver = DefaultResolver()
        try:
            return [found["host"] for found in await resolver.resolve(host, port, socket.AF_UNSPEC)]
        finally:
            await resolver.close()


class PublicResolver(AbstractResolver):
    """Finds public addresses only, for the connector that pages are fetched with.

    ``aiohttp.TCPConnector(resolver=PublicResolver())`` connects to no name that stands for a private address, at
    whatever moment it does. It goes with ``FetchOptions(private_addresses="deny")``, by which the gate denies what
    names such an address itself: aiohttp asks no resolver about literals.

    Args:
        resolver: finds the addresses; that of the system unless given.
    """

    def __init__(self, resolver: Resolver | None = None) -> None:
        self._resolver = resolver or SystemResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the public addresses of ``host``; raises OSError where it has none."""
        return await _resolve(self._resolver, host, port, family, is_public)

    async def close(self) -> None:
        """Do nothing: the resolver belongs to whoever gave it."""


class AddressGuard(AbstractResolver):
    """Judges every address of one fetch at the moment it is connected to, names in the resolver itself.

    Unless told otherwise the first hop may go anywhere: whoever crawls ``localhost`` means it. If it went to a public
    address, no later hop may go to a private one. Checking in the resolver leaves no gap between the check and the
    connection in which a name could change its address.

    Args:
        resolver: finds the addresses.
        blind: whether somebody else's resolver finds them instead, so that every name has to count as public.
        private_addresses: see PrivateAddresses.

    Attributes:
        refusal: what was refused and why, as a phrase; empty if nothing was.
        kind: the kind of fault that a refusal is.
    """

    def __init__(
        self, resolver: Resolver, *, blind: bool = False, private_addresses: PrivateAddresses = "redirects"
    ) -> None:
        self._resolver = resolver
        self._blind = blind
        self._follows_seen = private_addresses == "redirects"
        self._public_only = private_addresses == "deny"
        self._seen_public = False
        self.refusal = ""
        self.kind = FaultKind.ADDRESS

    def next_hop(self) -> None:
        """From now on the first hop is over."""
        self.kind = FaultKind.REDIRECT_TARGET
        if self._follows_seen:
            self._public_only = self._seen_public

    def after_public(self) -> None:
        """Count a first hop to a public address as made: a redirect from another host led to what comes now."""
        self._seen_public = True
        self.next_hop()

    @property
    def private(self) -> bool | None:
        """Whether all hops so far went to private addresses; None where somebody else found the address."""
        if not self._seen_public:
            return True
        return None if self._blind else False

    def permits_host(self, host: str) -> bool:
        """Judge a URL's host before it is connected to: aiohttp resolves no literals. A name is judged later."""
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            self._seen_public = self._seen_public or self._blind
            return True
        return self._permits(address)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of ``host`` that may be connected to; raises OSError where none may."""
        found = await _resolve(self._resolver, host, port, family, self._permits)
        self.refusal = ""  # one of its addresses was, and another will do
        return found

    async def close(self) -> None:
        """The resolver belongs to the fetcher."""

    def _permits(self, address: IPAddress) -> bool:
        public = is_public(address)
        if self._public_only and not public:
            way = "a redirect" if self.kind is FaultKind.REDIRECT_TARGET else "a connection"
            self.refusal = f"{way} to {address}, which is private"
            return False
        self._seen_public = self._seen_public or public
        return True


async def _resolve(
    resolver: Resolver, host: str, port: int, family: socket.AddressFamily, permits: Callable[[IPAddress], bool]
) -> list[ResolveResult]:
    """Return the addresses of ``host`` that are permitted, as aiohttp wants them; raises OSError where none is."""
    found = []
    for text in await resolver.resolve(host, port):
        # A scoped address (fe80::1%eth0) is private with or without its scope.
        address = ipaddress.ip_address(text.partition("%")[0])
        kind = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004
        if permits(address) and family in {socket.AF_UNSPEC, kind}:
            found.append(
                ResolveResult(hostname=host, host=text, port=port, family=kind, proto=0, flags=socket.AI_NUMERICHOST)
            )
    if not found:
        raise OSError(None, f"{host} has no address that may be connected to")
    return found


def is_public(address: IPAddress) -> bool:
    """Whether an address is reachable for everybody, seen through the forms that wrap IPv4 in IPv6."""
    if isinstance(address, ipaddress.IPv4Address):
        reserved = address.is_multicast or any(address in network for network in _FOR_NOBODY)
        return address.is_global and not reserved
    # What 6to4 wraps is looked at alone as well: Pythons disagree about the wrapping.
    only = address.ipv4_mapped or address.sixtofour or _behind(address, address in _NAT64)
    if only is not None:
        return is_public(only)
    tunnel_end = _behind(address, (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP)
    if tunnel_end is not None and not is_public(tunnel_end):
        return False
    return address in _GLOBAL_UNICAST and address not in _DOCUMENTATION and address.is_global


def _behind(address: ipaddress.IPv6Address, wraps: bool) -> ipaddress.IPv4Address | None:  # noqa: FBT001 - private
    """Return the IPv4 address in the last 32 bits, if the ones before say that it is one."""
    return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF) if wraps else None
