"""The keys of a host in each scope (host, registered domain, address), and the permits of a request in all scopes.

An address is kept for an hour. If the address of a host cannot be found, the name of the host is its key for a minute.
No other host has this key.
"""

from __future__ import annotations

import asyncio
import ipaddress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from cachetools import TLRUCache

from politesse._base.tasks import is_ended_from_outside
from politesse._base.text import described, needing
from politesse._pacing.permit import LocalPermit, give_back_all
from politesse.errors import ClosedError, ConfigurationError
from politesse.events import AddressNotFound, Publisher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from publicsuffixlist import PublicSuffixList

    from politesse._pacing.fleet.reservation import FleetPermit
    from politesse.clock import Clock
    from politesse.ports import FetchPermit, Resolver

    ScopePermit: TypeAlias = LocalPermit | FleetPermit

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


@dataclass(slots=True, eq=False)
class ScopedPermit:
    """Permission in all scopes; see ``politesse.ports.Permit``.

    Attributes:
        host: the key in the first scope.
        url: the URL of the request; empty if it is unknown.
        parts: the permits of the scopes, in their order.
        started_mono: when all scopes had granted their permits.
        waited: whether the request had to wait in any scope.
        others: all permits of the pacer that have not ended, as the keys of a dict.
    """

    host: str
    url: str
    parts: Sequence[ScopePermit]
    started_mono: float
    waited: bool
    others: dict[ScopedPermit, None]

    def observe(self, status: int, headers: Mapping[str, str], /) -> None:
        """Record the answer in the first scope."""
        self.parts[0].observe(status, headers)

    def end(self) -> None:
        """End the request in all scopes."""
        self.others.pop(self, None)
        for permit in self.parts:
            permit.end()

    def expire(self) -> None:
        """End the permit in all scopes because it was held for too long."""
        self.others.pop(self, None)
        for permit in self.parts:
            permit.expire()

    def give_back(self) -> None:
        """End the permit in all scopes, without a request."""
        self.others.pop(self, None)
        give_back_all(self.parts)

    def renew(self) -> bool:
        """Stamp the permit again in all scopes; return False if it would not be granted now."""
        return all(permit.renew() for permit in self.parts)

    @property
    def under_way(self) -> bool:
        """Whether the permit has not ended."""
        return self.parts[0].under_way


class ScopedFetch(NamedTuple):
    """Permission for the request of a robots.txt: its permits in all scopes; see ``politesse.ports.FetchPermit``."""

    permits: Sequence[FetchPermit]

    def end(
        self, status: int | None = None, headers: Mapping[str, str] | None = None, elapsed_s: float = 0.0, /
    ) -> None:
        """End the request; its answer counts in the first scope."""
        first, *others = self.permits
        first.end(status, headers, elapsed_s)
        for permit in others:
            permit.end()

    def give_back(self) -> None:
        """End the permit without a request."""
        self.permits[0].give_back()

    def opened(self) -> None:
        """Let the next page wait for one interval from now, in all scopes."""
        for permit in self.permits:
            permit.opened()


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
