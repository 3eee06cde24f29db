"""Which addresses a redirect may lead to: a public server must not send us to a private one."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Final

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.ports import Resolver

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")  # all that IANA has given out of IPv6
_DOCUMENTATION: Final = ipaddress.IPv6Network("3fff::/20")  # RFC 9637; not every Python knows it


class SystemResolver:
    """The resolver that aiohttp would use: getaddrinfo in a thread, or aiodns where it is installed."""

    async def resolve(self, host: str, port: int, /) -> Sequence[str]:
        """Return the addresses of ``host``; raises OSError."""
        resolver = DefaultResolver()
        try:
            return [found["host"] for found in await resolver.resolve(host, port, socket.AF_UNSPEC)]
        finally:
            await resolver.close()


class AddressGuard(AbstractResolver):
    """Judges every address of one fetch at the moment it is connected to, names in the resolver itself.

    The first hop may go anywhere: whoever crawls ``localhost`` means it. If it went to a public address, no later
    hop may go to a private one. Checking in the resolver leaves no gap between the check and the connection in
    which a name could change its address.

    Args:
        resolver: finds the addresses.
        blind: whether somebody else's resolver finds them instead, so that every name has to count as public.
        lenient: whether every address is permitted.

    Attributes:
        refusal: what was refused and why, as a phrase; empty if nothing was.
    """

    def __init__(self, resolver: Resolver, *, blind: bool = False, lenient: bool = False) -> None:
        self._resolver = resolver
        self._blind = blind
        self._lenient = lenient
        self._public_only = False
        self._seen_public = False
        self.refusal = ""

    def next_hop(self) -> None:
        """From now on the first hop is over."""
        self._public_only = self._seen_public and not self._lenient

    def permits_host(self, host: str) -> bool:
        """Judge a URL's host before it is connected to: aiohttp resolves no literals. A name is judged later."""
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            self._seen_public = self._seen_public or self._blind
            return True
        permitted = self._permits(address)
        if not permitted:
            self._refuse(address)
        return permitted

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of ``host`` that may be connected to; raises OSError where none may."""
        found: list[ResolveResult] = []
        refused: IPAddress | None = None
        for text in await self._resolver.resolve(host, port):
            # A scoped address (fe80::1%eth0) is private with or without its scope.
            address = ipaddress.ip_address(text.partition("%")[0])
            kind = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004
            if not self._permits(address):
                refused = address
            elif family in {socket.AF_UNSPEC, kind}:
                result = ResolveResult(
                    hostname=host, host=text, port=port, family=kind, proto=0, flags=socket.AI_NUMERICHOST
                )
                found.append(result)
        if not found:
            if refused is not None:
                self._refuse(refused)
            raise OSError(None, f"{host} has no address that may be connected to")
        return found

    async def close(self) -> None:
        """The resolver belongs to the fetcher."""

    def _permits(self, address: IPAddress) -> bool:
        public = is_public(address)
        if self._public_only and not public:
            return False
        self._seen_public = self._seen_public or public
        return True

    def _refuse(self, address: IPAddress) -> None:
        self.refusal = f"a redirect from a public address to {address}, which is private"


def is_public(address: IPAddress) -> bool:
    """Whether an address is reachable for everybody, seen through the forms that wrap IPv4 in IPv6."""
    if isinstance(address, ipaddress.IPv6Address):
        wrapped = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            wrapped = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if wrapped is not None:
            return is_public(wrapped)
        if address not in _GLOBAL_UNICAST or address in _DOCUMENTATION:
            return False
    return address.is_global and not address.is_multicast
