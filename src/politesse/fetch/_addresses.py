"""Looks up host names, and decides to which addresses a fetch may connect.

Theory of operation. A redirect of a public server must not lead to a private server. A check before the connection
would not be safe: the connector resolves the name again, and the name may then have another address (DNS rebinding). So
the guard is the resolver of the connector itself: aiohttp connects only to the addresses that the guard has returned.
Each fetch has its own guard. All fetches share the connector, which finds the guard in the context of the fetch
(``CurrentGuard``). The guard does not see all addresses. Three cases need other checks:

- aiohttp does not resolve IP literals: ``permits_host`` checks the host of each URL first;
- a borrowed connector resolves names itself: ``permits_name`` looks up the target of a redirect with the same resolver,
  and ``was_at`` later checks the address of the redirecting server;
- a proxy resolves names itself: only literals and ``localhost`` can be checked.

Names are looked up in separate threads, so that names that never resolve do not delay other names. getaddrinfo blocks
its thread, for half a minute and more if a name server does not answer, and cannot be cancelled. The executor of the
event loop has few threads, so a few such names would block the lookups of all other names. Here each lookup has its own
thread. Concurrent callers of a name share one lookup and its result.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from aiohttp.abc import AbstractResolver, ResolveResult

from politesse.fetch._aiohttp_internals import given_resolver
from politesse.ports import FaultKind, Resolver

if TYPE_CHECKING:
    from collections.abc import Sequence

    import aiohttp


IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

PrivateAddresses: TypeAlias = Literal["redirects", "deny", "allow"]
"""The refused connections to private addresses: only after a redirect from a public address, all, or none."""

PRIVATE_ADDRESSES: Final = get_args(PrivateAddresses)

# RFC 6890 2.2.2: protocol assignments. One cloud has its metadata service in this network, and some Python versions
# count parts of the network as public. RFC 7526: the withdrawn relays of 6to4. The wire server of Azure has a public
# address, but only Azure's machines reach it.
_NOT_PUBLIC: Final = (
    ipaddress.IPv4Network("192.0.0.0/24"),
    ipaddress.IPv4Network("192.88.99.0/24"),
    ipaddress.IPv4Network("168.63.129.16/32"),
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")  # IANA allocates global unicast addresses from this block
_DOCUMENTATION: Final = ipaddress.IPv6Network("3fff::/20")  # RFC 9637; some Python versions lack it
# RFC 5214 6.1: the interface identifier of ISATAP, followed by the IPv4 address of the tunnel's end. One bit of the
# identifier tells whether the IPv4 address is globally unique.
_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})


_MAX_KNOWN: Final = 1_000  # addresses that are remembered, because many hosts share an address


class _ConnectorResolver:
    """Wraps the resolver of a borrowed connector: the guard and the connector then look names up in the same way."""

    def __init__(self, resolver: AbstractResolver) -> None:
        self._resolver = resolver

    async def resolve(self, host: str, port: int, /) -> Sequence[str]:
        """Return the addresses of ``host``; raises OSError."""
        return [found["host"] for found in await self._resolver.resolve(host, port, socket.AF_UNSPEC)]


def resolver_of(connector: aiohttp.BaseConnector | None) -> Resolver:
    """Return the resolver of a user's connector, or a SystemResolver if the connector has only the default resolver."""
    resolver = given_resolver(connector)
    return SystemResolver() if resolver is None else _ConnectorResolver(resolver)


class OnlyPrivateAddresses(OSError):
    """A host has private addresses only; the message names one of them."""


class PublicResolver(AbstractResolver):
    """A resolver that returns only public addresses, for the connector that fetches pages.

    ``aiohttp.TCPConnector(resolver=PublicResolver())`` resolves names to their public addresses only. aiohttp does not
    resolve IP literals. So use the resolver together with ``FetchOptions(private_addresses="deny")``: the gate then
    denies URLs with a private IP literal.

    >>> import asyncio
    >>> from politesse.testing import ScriptedResolver
    >>> resolver = PublicResolver(ScriptedResolver({"inside.example": ["127.0.0.1"]}))
    >>> asyncio.run(resolver.resolve("inside.example"))
    Traceback (most recent call last):
    OSError: [Errno None] inside.example has no address that may be connected to

    Args:
        resolver: finds the addresses; the default is the system's resolver.
    """

    def __init__(self, resolver: Resolver | None = None) -> None:
        self._resolver = resolver or SystemResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the public addresses of ``host``.

        Raises:
            OSError: ``host`` has no public address.
        """
        return await self._guard().resolve(host, port, family)

    async def public_addresses(self, host: str, port: int) -> list[str]:
        """Return the public addresses of a name or an IP literal, for a client that connects to addresses.

        Raises:
            OSError: ``host`` has no public address.
        """
        guard = self._guard()
        try:
            if guard.permits_host(host):
                return [host] if is_literal(host) else [found["host"] for found in await guard.resolve(host, port)]
        except OSError:
            if not guard.refusal:
                raise
        raise OnlyPrivateAddresses(guard.refusal)

    async def close(self) -> None:
        """Do nothing, because the resolver belongs to the caller."""

    def _guard(self) -> AddressGuard:
        return AddressGuard(self._resolver, private_addresses="deny")


class AddressGuard(AbstractResolver):
    """Checks every address of a fetch; see the module.

    By default the first request may go to any address, so that a crawler can request ``localhost``. The redirect of a
    server at a public address must not lead to a private address.

    Args:
        resolver: finds the addresses.
        blind: whether a foreign resolver, not ``resolver``, finds the addresses to connect to. Every name then counts
            as public, until ``was_at`` finds that the server of the name has a private address.
        private_addresses: see PrivateAddresses.
        lookup_s: how many seconds a lookup may take; None for no limit.

    Attributes:
        refusal: the refused connection and the reason, as a phrase; empty without a refusal.
        kind: the FaultKind of a refusal.
        public_only: whether the fetch must go to a public address.
    """

    def __init__(
        self,
        resolver: Resolver,
        *,
        blind: bool = False,
        private_addresses: PrivateAddresses = "redirects",
        lookup_s: float | None = None,
    ) -> None:
        self._resolver = resolver
        self._blind = blind
        self._follows_seen = private_addresses == "redirects"
        self.public_only = private_addresses == "deny"
        self._seen_public = False
        self._seen_before = False  # the value of ``_seen_public`` before the fetch
        self._lookup_s = lookup_s
        self.refusal = ""
        self.kind = FaultKind.ADDRESS

    def after_public(self) -> None:
        """Check the target of a redirect that a server at a public address has sent."""
        self.kind = FaultKind.REDIRECT_TARGET
        self._seen_public = self._seen_before = True
        if self._follows_seen:
            self.public_only = True

    @property
    def private(self) -> bool | None:
        """Whether this and all earlier hops went to private addresses; None if a foreign resolver found the address."""
        if not self._seen_public:
            return True
        return None if self._blind else False

    def permits_host(self, host: str) -> bool:
        """Check the host of a URL if it is an IP literal, which aiohttp does not resolve. Names are checked later."""
        if not is_literal(host):
            self._seen_public = self._seen_public or self._blind
            return True
        return self._permits(*_known(host))

    async def permits_name(self, host: str, port: int) -> bool:
        """Check a name before a foreign resolver looks it up: all addresses of the name must be permitted.

        The guard does not notice if the foreign resolver finds another address.

        Raises:
            OSError: the name has no address, or the lookup failed; TimeoutError after ``lookup_s``.
        """
        if not self.public_only or is_literal(host):
            return True
        addresses = await self._addresses(host, port)
        if not addresses:
            raise OSError(None, f"{host} has no address")
        return all(self._permits(*_known(text)) for text in addresses)

    async def was_at(self, peer: str, host: str, port: int) -> None:
        """Count the current name as private if the peer's address is private and belongs to the name.

        A private peer is not enough, because the peer may be a proxy.
        """
        if not self._follows_seen or self._seen_before or is_literal(host) or _known(peer)[1]:
            return
        try:
            addresses = await self._addresses(host, port)
        except OSError:  # this machine cannot resolve the name, which still counts as public
            return
        self._seen_public = _known(peer) not in map(_known, addresses)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the permitted addresses of ``host``.

        Raises:
            OSError: ``host`` has no permitted address, or the lookup failed; TimeoutError after ``lookup_s``.
        """
        found = []
        for text in await self._addresses(host, port):
            address, public = _known(text)
            kind = socket.AF_INET if isinstance(address, ipaddress.IPv4Address) else socket.AF_INET6
            if self._permits(address, public) and (family == socket.AF_UNSPEC or family == kind):  # noqa: PLR1714 - no hashes
                found.append(
                    ResolveResult(
                        hostname=host, host=text, port=port, family=kind, proto=0, flags=socket.AI_NUMERICHOST
                    )
                )
        if not found:
            raise OSError(None, f"{host} has no address that may be connected to")
        self.refusal = ""  # at least one address is permitted
        return found

    async def close(self) -> None:
        """Do nothing, because the resolver belongs to the fetcher."""

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        if isinstance(self._resolver, SystemResolver):
            # the limit does not include the wait for a thread
            return await self._resolver.look_up(host, self._lookup_s)
        async with asyncio.timeout(self._lookup_s):
            return await self._resolver.resolve(host, port)

    def _permits(self, address: IPAddress, public: bool) -> bool:  # noqa: FBT001 - the parts of ``_known``
        if self.public_only and not public:
            way = "a redirect" if self.kind is FaultKind.REDIRECT_TARGET else "a connection"
            self.refusal = f"{way} to {address}, which is private"
            return False
        self._seen_public = self._seen_public or public
        return True


class CurrentGuard(AbstractResolver):
    """The resolver of the shared connector; it passes each call to the guard of the present fetch."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses that the guard of the fetch permits.

        Raises:
            OSError: see ``AddressGuard.resolve``.
            LookupError: no fetch is under way in this context, so no guard can permit an address.
        """
        return await GUARD.get().resolve(host, port, family)

    async def close(self) -> None:
        """Do nothing, because each guard belongs to its fetch."""


GUARD: Final[ContextVar[AddressGuard]] = ContextVar("politesse.fetch.guard")
"""The guard of the fetch that is under way in this context."""


def is_literal(host: str) -> bool:
    """Whether ``host`` is an IP literal; IPv6 literals are given without their brackets."""
    if ":" not in host and not host[-1:].isdigit():
        return False  # a short cut for most hosts: an IPv4 address ends with a digit
    try:
        _known(host)
    except ValueError:
        return False
    return True


def is_private_literal(host: str) -> bool:
    """Whether the host of an origin is an IP literal that is not public."""
    literal = host.strip("[]")
    return is_literal(literal) and not _known(literal)[1]


@lru_cache(_MAX_KNOWN)
def _known(text: str) -> tuple[IPAddress, bool]:
    """Return an address without its scope (``%eth0`` in ``fe80::1%eth0``), and whether the address is public."""
    address = ipaddress.ip_address(text.partition("%")[0] if ":" in text else text)
    return address, is_public(address)


def is_public(address: IPAddress) -> bool:
    """Whether an address is globally reachable.

    An IPv6 address that embeds a private IPv4 address is private, too.
    """
    if isinstance(address, ipaddress.IPv4Address):
        reserved = address.is_multicast or any(address in network for network in _NOT_PUBLIC)
        return address.is_global and not reserved
    # For 6to4, only the embedded address decides, because Python versions disagree about the 6to4 address.
    embedded = address.ipv4_mapped or address.sixtofour or (_last_32_bits(address) if address in _NAT64 else None)
    if embedded is not None:
        return is_public(embedded)
    if (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP and not is_public(_last_32_bits(address)):
        return False
    return address in _GLOBAL_UNICAST and address not in _DOCUMENTATION and address.is_global


def _last_32_bits(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address:
    return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)


_MAX_THREADS: Final = 256

_WITHOUT_SCOPE: Final = 3  # the parts of an IPv6 socket address before its scope: host, port, flow


class _Lookup:
    """A name that is looked up.

    The futures of a lookup cannot be cancelled: each caller waits through a future of its own event loop.

    Attributes:
        callers: how many callers wait.
        begun: a future that is done once a thread has started the lookup.
        found: a future with the addresses.
    """

    __slots__ = ("begun", "callers", "found", "host")

    def __init__(self, host: str) -> None:
        self.host = host
        self.callers = 0
        self.begun: Future[None] = Future()
        self.found: Future[list[str]] = Future()
        self.begun.set_running_or_notify_cancel()
        self.found.set_running_or_notify_cancel()


class SystemResolver:
    """The system's resolver: getaddrinfo, with a separate thread for each name.

    Concurrent callers of a name share one lookup. At most 256 names are looked up at once. Other names wait
    in a queue, first in, first out; a name without callers leaves the queue. Names that never resolve delay other names
    only if they occupy all threads. A hanging lookup occupies its thread until the system gives up, even without
    callers. The threads are daemons, so they do not delay the exit of the interpreter. Several event loops may share an
    instance.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads = 0
        self._lookups: dict[str, _Lookup] = {}
        self._queue: OrderedDict[str, _Lookup] = OrderedDict()

    async def resolve(self, host: str, port: int, /) -> Sequence[str]:
        """Return the addresses of ``host``.

        Raises:
            OSError: ``host`` has no addresses, or the lookup failed.
        """
        del port
        return await self.look_up(host, None)

    async def look_up(self, host: str, limit_s: float | None) -> Sequence[str]:
        """Return the addresses of ``host``.

        Args:
            host: a name.
            limit_s: the time limit of the lookup, in seconds. Waiting for a thread does not count.

        Raises:
            OSError: the name does not exist, or the system has no threads left; TimeoutError after ``limit_s``.
            UnicodeError: ``host`` is not a valid name.
        """
        lookup = self._join(host)
        try:
            if not lookup.begun.done():
                await asyncio.wrap_future(lookup.begun)
            async with asyncio.timeout(limit_s):
                return await asyncio.wrap_future(lookup.found)
        finally:
            self._leave(lookup)

    def _join(self, host: str) -> _Lookup:
        with self._lock:
            lookup = self._lookups.get(host)
            if lookup is None:
                lookup = _Lookup(host)
                if not self._start(lookup):
                    self._queue[host] = lookup
                self._lookups[host] = lookup
            lookup.callers += 1
        return lookup

    def _leave(self, lookup: _Lookup) -> None:
        with self._lock:
            lookup.callers -= 1
            if not lookup.callers and not lookup.begun.done():
                del self._queue[lookup.host], self._lookups[lookup.host]

    def _start(self, lookup: _Lookup) -> bool:
        """Start a lookup if a thread is available; return whether it has started."""
        if self._threads >= _MAX_THREADS:
            return False
        try:
            threading.Thread(target=self._work, args=(lookup,), name="politesse-dns", daemon=True).start()
        except RuntimeError as error:  # the system has no threads left
            if not self._threads:
                raise OSError(f"no thread is available to look up {lookup.host}: {error}") from error
            return False
        self._threads += 1
        lookup.begun.set_result(None)
        return True

    def _work(self, first: _Lookup) -> None:
        """Look up a name, and then the names in the queue. Runs in a thread."""
        lookup: _Lookup | None = first
        while lookup is not None:
            try:
                found = _ask_system(lookup.host)
            except Exception as error:  # noqa: BLE001 - raised again in each caller
                following = self._finish(lookup)
                lookup.found.set_exception(error)
            else:
                following = self._finish(lookup)
                lookup.found.set_result(found)
            lookup = following

    def _finish(self, lookup: _Lookup) -> _Lookup | None:
        """Remove a lookup that has ended; return the next lookup from the queue, or None if this thread is to end."""
        with self._lock:
            del self._lookups[lookup.host]
            if not self._queue:
                self._threads -= 1
                return None
            _, following = self._queue.popitem(last=False)
            following.begun.set_result(None)
            return following


def _ask_system(host: str) -> list[str]:
    """Return the addresses of ``host`` in the order of RFC 6724; blocks."""
    # AI_ADDRCONFIG selects the address families that this machine uses, as in aiohttp. On some systems, localhost
    # cannot be resolved with this flag.
    flags = 0 if host.rstrip(".").lower() == "localhost" else socket.AI_ADDRCONFIG
    found = []
    for family, _, _, _, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=flags):
        if family == socket.AF_INET:
            found.append(str(address[0]))
        elif family == socket.AF_INET6:
            text = str(address[0])
            scope_id = address[3] if len(address) > _WITHOUT_SCOPE else 0
            if scope_id and "%" not in text:  # RFC 4007 11: <address>%<zone>
                text = socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0]
            found.append(text)
    return found
