"""The keys by which hosts are paced together: their registered domain, and their address.

An address is kept for an hour. If the address of a host cannot be found, the name of the host is its key for a minute.
No other host has this key.
"""

from __future__ import annotations

import asyncio
import ipaddress
from functools import cache
from typing import TYPE_CHECKING, Final

from cachetools import TLRUCache

from politesse._base.tasks import is_ended_from_outside
from politesse._base.text import described, needing
from politesse.errors import ClosedError, ConfigurationError
from politesse.events import AddressNotFound, Publisher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from publicsuffixlist import PublicSuffixList

    from politesse.clock import Clock
    from politesse.ports import Resolver

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_LOOKUP_S: Final = 10.0
_KEPT_S: Final = 3_600.0
_RETRY_S: Final = 60.0
_MAX_HOSTS: Final = 100_000
_HTTPS_PORT: Final = 443


def by_domain() -> Callable[[str], str]:
    """Return a function from a host to its registered domain by the Public Suffix List, and from an address to itself.

    Raises:
        ConfigurationError: the extra ``psl`` is not installed.
    """
    with needing("pacing by domain", "psl", ConfigurationError):
        from publicsuffixlist import PublicSuffixList  # noqa: PLC0415 - an extra
    suffixes = _read_once(PublicSuffixList)
    return lambda host: host if _literal(host) is not None else suffixes.privatesuffix(host) or host


@cache
def _read_once(suffix_list: type[PublicSuffixList]) -> PublicSuffixList:
    """Return the Public Suffix List. All pacers share it, because reading it takes a tenth of a second."""
    return suffix_list()


class Addresses:
    """The lowest address of each host, IPv4 before IPv6; one lookup at a time for each host.

    Args:
        resolver: finds the addresses.
        clock: its monotonic time limits how long addresses are kept.
        publisher: receives AddressNotFound.
    """

    def __init__(self, resolver: Resolver, clock: Clock, publisher: Publisher) -> None:
        self._resolver = resolver
        self._publisher = publisher
        self._found: TLRUCache[str, tuple[str, float]] = TLRUCache(
            _MAX_HOSTS, lambda _, found, now_mono: now_mono + found[1], timer=clock.monotonic
        )
        self._lookups: dict[str, asyncio.Task[str]] = {}
        self._closed = False

    def known(self, host: str) -> str | None:
        """Return the known address, or None before a lookup."""
        literal = _literal(host)
        if literal is not None:
            return str(literal)
        found = self._found.get(host)
        return None if found is None else found[0]

    async def find(self, host: str) -> str:
        """Return the address, after a lookup if it is not known; raises ClosedError."""
        known = self.known(host)
        if known is not None:
            return known
        while True:
            lookup = self.lookup(host)
            await asyncio.wait({lookup})  # cancelling one caller must not end the lookup for other callers
            if not lookup.cancelled():
                return lookup.result()
            if self._closed:
                raise ClosedError(f"the gatekeeper was closed while the address of {host} was looked up")

    def lookup(self, host: str) -> asyncio.Task[str]:
        """Return the task that looks up an address; raises ClosedError."""
        if self._closed:
            raise ClosedError(f"the address of {host} was requested after the gatekeeper was closed")
        lookup = self._lookups.get(host)
        if lookup is None:
            lookup = asyncio.get_running_loop().create_task(self._resolve(host), name=f"address of {host}")
            self._lookups[host] = lookup
            lookup.add_done_callback(lambda _: self._lookups.pop(host, None))
        return lookup

    async def aclose(self) -> None:
        """End all lookups."""
        self._closed = True
        lookups = list(self._lookups.values())
        for lookup in lookups:
            lookup.cancel()
        await asyncio.gather(*lookups, return_exceptions=True)

    async def _resolve(self, host: str) -> str:
        task = asyncio.current_task()
        try:
            async with asyncio.timeout(_LOOKUP_S):
                address, kept_s = _lowest(await self._resolver.resolve(host, _HTTPS_PORT)), _KEPT_S
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if is_ended_from_outside(error, task):
                raise
            # A user's resolver may raise anything. The error is published, and the host is paced by its name.
            self._publisher.publish(AddressNotFound(host, described(error)))
            address, kept_s = host, _RETRY_S
        self._found[host] = (address, kept_s)
        return address


def _lowest(addresses: Sequence[str]) -> str:
    """Return the lowest of several addresses, so that hosts with the same addresses have the same key."""
    found = [_unwrapped(ipaddress.ip_address(address.partition("%")[0])) for address in addresses]
    return str(min(found, key=lambda address: (address.version, int(address))))


def _literal(host: str) -> IPAddress | None:
    try:
        return _unwrapped(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return None


def _unwrapped(address: IPAddress) -> IPAddress:
    return getattr(address, "ipv4_mapped", None) or address
