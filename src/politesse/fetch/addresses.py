"""Which addresses may be connected to: a public server must not send us to a private one."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import TYPE_CHECKING, Final, Literal, get_args

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver, ThreadedResolver

from politesse.fetch.lookups import Lookups
from politesse.ports import FaultKind

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from politesse.ports import Resolver

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

PrivateAddresses = Literal["redirects", "deny", "allow"]
"""Which way to private addresses is closed: redirects from public ones, every way, or none."""

PRIVATE_ADDRESSES: Final = get_args(PrivateAddresses)

# Protocol assignments, of which not every Python knows all, and where a cloud keeps its metadata service (RFC 6890
# 2.2.2); what relays of 6to4 had, which are withdrawn (RFC 7526); and the wire server of another cloud, Azure, which is
# out of a public network but answers each of its machines alone.
_FOR_NOBODY: Final = (
    ipaddress.IPv4Network("192.0.0.0/24"),
    ipaddress.IPv4Network("192.88.99.0/24"),
    ipaddress.IPv4Network("168.63.129.16/32"),
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")  # all that IANA has given out of IPv6
_DOCUMENTATION: Final = ipaddress.IPv6Network("3fff::/20")  # RFC 9637; not every Python knows it
# RFC 5214 6.1: the interface identifier of ISATAP, before the IPv4 address that it tunnels to; the bit tells whether
# that address is unique.
_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})


class SystemResolver:
    """The resolver of the system: getaddrinfo in threads of its own, or aiodns where aiohttp would use that.

    One lookup a name at a time, 256 names at once; more wait until one of them is answered, or given up by the system.
    Names that never resolve hold up no others below that. The executor of the event loop is not used.
    """

    def __init__(self) -> None:
        self._lookups = Lookups()

    async def resolve(self, host: str, port: int, /) -> Sequence[str]:
        """Return the addresses of ``host``; raises OSError."""
        found, _ = await self.look_up(host, port, None)
        return found

    async def look_up(self, host: str, port: int, limit_s: float | None) -> tuple[Sequence[str], float]:
        """Return the addresses of ``host``, and the seconds that it took; raises OSError, TimeoutError.

        ``limit_s`` bounds these seconds. Waiting until the lookup can begin does not count.
        """
        if DefaultResolver is ThreadedResolver:
            return await self._lookups.addresses(host, limit_s)
        return await _timed(_over_aiodns(host, port), limit_s)


async def _over_aiodns(host: str, port: int) -> Sequence[str]:
    resolver = DefaultResolver()
    try:
        return [found["host"] for found in await resolver.resolve(host, port, socket.AF_UNSPEC)]
    finally:
        await resolver.close()


async def _timed(
    resolving: Coroutine[object, object, Sequence[str]], limit_s: float | None
) -> tuple[Sequence[str], float]:
    """Return what a resolver finds within ``limit_s``, and the seconds that it took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(limit_s):
        return await resolving, loop.time() - began


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
        return _permitted(host, port, family, await self._resolver.resolve(host, port), is_public)

    async def close(self) -> None:
        """Do nothing: the resolver belongs to whoever gave it."""


class AddressGuard(AbstractResolver):
    """Judges every address of one fetch at the moment it is connected to, names in the resolver itself.

    Unless told otherwise the first hop may go anywhere: whoever crawls ``localhost`` means it. If it went to a public
    address, no later hop may go to a private one. Checking in the resolver leaves no gap between the check and the
    connection in which a name could change its address.

    Where somebody else's resolver finds the addresses, names can only be looked up beside it: ``permits_name``.

    Args:
        resolver: finds the addresses.
        blind: whether somebody else's resolver finds them instead, so that every name has to count as public, unless
            ``was_at`` knows better.
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
        self._seen_before = False  # the same, but for a name under way that counts as public
        self._limit: tuple[asyncio.Timeout, float] | None = None
        self.refusal = ""
        self.kind = FaultKind.ADDRESS

    @property
    def public_only(self) -> bool:
        """Whether the hop under way must be at a public address."""
        return self._public_only

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
        self._seen_before = self._seen_public
        address = _literal(host)
        if address is None:
            self._seen_public = self._seen_public or self._blind
            return True
        return self._permits(address)

    def is_to_connect(self, limit: asyncio.Timeout, limit_s: float) -> None:
        """Give the next connection to a name ``limit_s`` seconds, counted from when its lookup begins.

        From then on ``limit`` runs; whoever has entered it stops it when the connection is made. So waiting for a
        thread of SystemResolver does not count.
        """
        self._limit = limit, limit_s

    async def permits_name(self, host: str, port: int, limit_s: float) -> bool:
        """Judge a name which another resolver will look up once more: each of its addresses has to be permitted.

        It may answer that one otherwise; nothing here sees that. Raises OSError, TimeoutError.
        """
        if not self._public_only or is_literal(host):
            return True
        addresses, _ = await self._addresses(host, port, limit_s)
        if not addresses:
            raise OSError(None, f"{host} has no address")
        return all(self._permits(_parsed(text)) for text in addresses)

    async def was_at(self, peer: str, host: str, port: int, limit_s: float) -> None:
        """Count the name under way as private, if it was connected to at a private address that is indeed its own.

        A connection to a private address alone proves nothing: it may be to somebody's proxy.
        """
        if not self._follows_seen or self._seen_before or is_literal(host) or is_public(_parsed(peer)):
            return
        try:
            addresses, _ = await self._addresses(host, port, limit_s)
        except OSError:  # not known here, so it goes on to count as public
            return
        self._seen_public = _parsed(peer) not in map(_parsed, addresses)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of ``host`` that may be connected to; raises OSError where none may."""
        if self._limit is None:
            addresses = await self._resolver.resolve(host, port)
        else:
            limit, limit_s = self._limit
            addresses, took_s = await self._addresses(host, port, limit_s)
            limit.reschedule(asyncio.get_running_loop().time() + limit_s - took_s)
        found = _permitted(host, port, family, addresses, self._permits)
        self.refusal = ""  # one of its addresses was, and another will do
        return found

    async def close(self) -> None:
        """The resolver belongs to the fetcher."""

    async def _addresses(self, host: str, port: int, limit_s: float) -> tuple[Sequence[str], float]:
        if isinstance(self._resolver, SystemResolver):
            return await self._resolver.look_up(host, port, limit_s)
        return await _timed(self._resolver.resolve(host, port), limit_s)

    def _permits(self, address: IPAddress) -> bool:
        public = is_public(address)
        if self._public_only and not public:
            way = "a redirect" if self.kind is FaultKind.REDIRECT_TARGET else "a connection"
            self.refusal = f"{way} to {address}, which is private"
            return False
        self._seen_public = self._seen_public or public
        return True


def _literal(host: str) -> IPAddress | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_literal(host: str) -> bool:
    """Whether a URL's host, without brackets, is an address, which nobody looks up."""
    return _literal(host) is not None


def _parsed(text: str) -> IPAddress:
    """Return an address without its scope: one that has one (fe80::1%eth0) is private with or without it."""
    return ipaddress.ip_address(text.partition("%")[0])


def _permitted(
    host: str,
    port: int,
    family: socket.AddressFamily,
    addresses: Sequence[str],
    permits: Callable[[IPAddress], bool],
) -> list[ResolveResult]:
    """Return those addresses of ``host`` that are permitted, as aiohttp wants them; raises OSError where none is."""
    found = []
    for text in addresses:
        address = _parsed(text)
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
