"""What hosts have in common: the address they are served from, the domain they are registered under.

Each finder tells the key of a host in one scope. Keys that take a lookup are kept for an hour; a host whose address
cannot be found is a key of its own for a minute, because nothing is known to bear its load together with others.
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import TYPE_CHECKING, Final, Protocol

from cachetools import TLRUCache

from politesse._tasks import is_ended_from_outside
from politesse._text import described, needs_extra
from politesse.errors import ClosedError, ConfigurationError
from politesse.events import AddressNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from politesse.clock import Clock
    from politesse.events import Publisher
    from politesse.ports import Resolver

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_LOOKUP_S: Final = 10.0
_KEPT_S: Final = 3_600.0
_RETRY_S: Final = 60.0
_MAX_HOSTS: Final = 100_000
_HTTPS_PORT: Final = 443


class Finder(Protocol):
    """Tells by which key a host is paced in one scope."""

    def known(self, host: str, /) -> str | None:
        """Return the key if it is known now."""

    async def find(self, host: str, /) -> str:
        """Return the key; raises ClosedError."""

    def when_found(self, host: str, callback: Callable[[], None], /) -> None:
        """Have a key looked up that is not known, and call ``callback`` from the event loop; also at the close."""

    async def aclose(self) -> None:
        """End all lookups."""


class ByHost:
    """The host itself."""

    def known(self, host: str, /) -> str:
        """Return the host."""
        return host

    async def find(self, host: str, /) -> str:
        """Return the host."""
        return self.known(host)

    def when_found(self, host: str, callback: Callable[[], None], /) -> None:  # noqa: ARG002 - nothing to look up
        """Call ``callback``."""
        callback()

    async def aclose(self) -> None:
        """Nothing is to be ended."""


class ByDomain(ByHost):
    """The registered domain of a host by the Public Suffix List; an address, or a suffix itself, is its own.

    Raises ConfigurationError where the extra ``psl`` is not installed.
    """

    def __init__(self) -> None:
        try:
            from publicsuffixlist import PublicSuffixList  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ConfigurationError(needs_extra("pacing by domain", "psl")) from error
        self._suffixes = PublicSuffixList()

    def known(self, host: str, /) -> str:
        """Return the registered domain."""
        if _literal(host) is not None:
            return host
        return self._suffixes.privatesuffix(host) or host


class ByAddress:
    """The lowest address of a host, IPv4 before IPv6; one lookup at a time for each host.

    Args:
        resolver: finds the addresses.
        clock: how long they are kept goes by its monotonic time.
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

    def known(self, host: str, /) -> str | None:
        """Return the address if it is known now."""
        literal = _literal(host)
        if literal is not None:
            return str(literal)
        found = self._found.get(host)
        return None if found is None else found[0]

    async def find(self, host: str, /) -> str:
        """Return the address, looking it up if need be; raises ClosedError."""
        known = self.known(host)
        if known is not None:
            return known
        while True:
            lookup = self._lookup(host)
            await asyncio.wait({lookup})  # so that a waiter who is cancelled harms no other
            if not lookup.cancelled():
                return lookup.result()
            if self._closed:
                raise ClosedError(f"the gatekeeper was closed while the address of {host} was looked up")

    def when_found(self, host: str, callback: Callable[[], None], /) -> None:
        """Have the address looked up, and call ``callback``."""
        self._lookup(host).add_done_callback(lambda _: callback())

    async def aclose(self) -> None:
        """End all lookups."""
        self._closed = True
        lookups = list(self._lookups.values())
        for lookup in lookups:
            lookup.cancel()
        await asyncio.gather(*lookups, return_exceptions=True)

    def _lookup(self, host: str) -> asyncio.Task[str]:
        if self._closed:
            raise ClosedError(f"the address of {host} was requested after the gatekeeper was closed")
        lookup = self._lookups.get(host)
        if lookup is None:
            lookup = asyncio.get_running_loop().create_task(self._resolve(host), name=f"address of {host}")
            self._lookups[host] = lookup
            lookup.add_done_callback(lambda _: self._lookups.pop(host, None))
        return lookup

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
            # A user's resolver may raise anything. It is published, and the host is paced by its name.
            self._publisher.publish(AddressNotFound(host, described(error)))
            address, kept_s = host, _RETRY_S
        self._found[host] = (address, kept_s)
        return address


def _lowest(addresses: Sequence[str]) -> str:
    """Return the lowest of several addresses, so that hosts that share all of theirs share the key."""
    found = [_unwrapped(ipaddress.ip_address(address.partition("%")[0])) for address in addresses]
    return str(min(found, key=lambda address: (address.version, int(address))))


def _literal(host: str) -> IPAddress | None:
    try:
        return _unwrapped(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return None


def _unwrapped(address: IPAddress) -> IPAddress:
    return getattr(address, "ipv4_mapped", None) or address
