"""Turns in several scopes at once: a request waits for its host, and for all hosts that share its address or domain.

Theory of operation. The statements and answers of a site (Crawl-delay, 429, slow responses) count only in the first
scope, which is the ``key`` of the options. Each other scope has only a Limit. Each scope has its own pacer, whose hosts
are the keys of that scope. Only the key of an address needs a lookup.

Permits are taken in one order: the key, then the limit of the domain, then the limit of the address. The order is
always the same, so no two requests wait for each other. If a later scope fails, all permits are given back. While a
waiter waits for the permit of the domain or address, it keeps its host permit. This delays nobody, because another
request to the same host would have to wait for the same permits. When the waiter has all permits, the earlier permits
are stamped again. A permit may be void by then, because the host was closed or its limit was lowered. Then the waiter
gives all permits back and waits again, at its old places in the lines.

    request -> host line -> host permit -> domain line -> domain permit -> address line -> all permits -> start
                   ^                                                                        one is void: again
                   +------------------------------------------------------------------------+

``try_start`` returns a permit if all scopes have one at once. For a callback of ``when_ready``, a task calls ``start``
(``offers.py``), so that tasks and callbacks stand in the same lines.

A turn expires in all scopes at once, ``max_turn_s`` after all of them granted it. While a request waits for the
address, it may hold the permit of its host for longer than that. So the pacers of the scopes have no ``max_turn_s``.

``Hosts`` does the same for one process, and holds no scope while it waits for another.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from itertools import zip_longest
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from politesse._pacing.addresses import Addresses, by_domain
from politesse._pacing.fleet.offers import Offers, try_all
from politesse._pacing.hosts import LocalPermit, give_back_all
from politesse._pacing.pace import PacingOptions, limited
from politesse._pacing.timers import PermitExpiry
from politesse.clock import Clock, ends_within
from politesse.errors import ClosedError, TooFar
from politesse.verdict import Bound, NotYet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from politesse._pacing.fleet.pacer import FleetPacer
    from politesse._pacing.fleet.reservation import FleetPermit
    from politesse._pacing.host_state import MemoryOf
    from politesse._pacing.hosts import Hosts
    from politesse.events import Publisher
    from politesse.ports import FetchPermit, PacedLine, Permit, Resolver, TurnRequest
    from politesse.status import HostStatus

    ScopePacer: TypeAlias = Hosts | FleetPacer
    ScopePermit: TypeAlias = LocalPermit | FleetPermit


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


class _Scope(NamedTuple):
    """A scope: its pacer, and a function from a host to its key, which returns None before a lookup."""

    pacer: ScopePacer
    known: Callable[[str], str | None]


class ScopedPacer:
    """Spaces the requests to each host, address or domain, as the options demand; see ``politesse.ports.Pacer``.

    Args:
        options: see PacingOptions.
        make: makes the pacer of a scope from options whose ``key`` is the scope. Each host of this pacer is a key of
            the scope.
        clock: the clocks and the timer.
        resolver: finds the addresses of hosts.
        publisher: receives AddressNotFound and TurnExpired.
    """

    def __init__(
        self,
        options: PacingOptions,
        make: Callable[[PacingOptions], ScopePacer],
        *,
        clock: Clock,
        resolver: Resolver,
        publisher: Publisher,
    ) -> None:
        self._clock = clock
        self._closed = False
        self._under_way: dict[ScopedPermit, None] = {}
        self._expiry = PermitExpiry(clock, options.max_turn_s, self._under_way.keys, publisher)
        self._offers = Offers(self.start, clock)
        self._addresses = Addresses(resolver, clock, publisher)

        def scope(options: PacingOptions) -> _Scope:
            known: Callable[[str], str | None] = str  # the host is its own key
            if options.key != "host":
                known = self._addresses.known if options.key == "address" else by_domain()
            return _Scope(make(replace(options, max_turn_s=inf)), known)

        self._scopes = [scope(options)]
        self._first = self._scopes[0].pacer
        others = PacingOptions(key="domain", adaptive_factor=0.0), PacingOptions(key="address", adaptive_factor=0.0)
        for of_scope, limit in zip(others, (options.domain, options.address), strict=True):
            if limit is not None:
                self._scopes.append(scope(limited(of_scope, limit.min_delay_s, limit.max_concurrent)))

    def use(self, options: PacingOptions) -> None:
        """Replace the options of the key."""
        self._expiry.max_turn_s = options.max_turn_s
        self._first.use(replace(options, max_turn_s=inf))

    def remember(self, memory: MemoryOf) -> None:
        """From now on keep the states of all scopes."""
        for scope in self._scopes:
            scope.pacer.remember(memory)

    def under_way(self) -> Sequence[Permit]:
        """Return all permits that have not ended."""
        return list(self._under_way)

    def take_over(self, permits: Iterable[Permit]) -> None:
        """Go on with the permits of an earlier pacer, which is closed."""
        taken = [permit for permit in permits if isinstance(permit, ScopedPermit)]
        for scope, parts in zip(self._scopes, zip(*(permit.parts for permit in taken), strict=True), strict=False):
            scope.pacer.take_over(parts)
        for permit in taken:
            permit.others = self._under_way
            self._under_way[permit] = None
        self._expiry.look()

    def try_start(self, request: TurnRequest, /) -> ScopedPermit | NotYet:
        """Return a permit of all scopes, or NotYet; begin a lookup if the address is unknown."""
        parts = self._known_parts(request)
        if parts is None:
            return NotYet(self._clock.wall(), Bound.ADDRESS)
        if (permit := self._offers.take(request)) is not None:
            return permit
        permits: list[ScopePermit] = []
        refusals: list[NotYet] = []
        for scope, part in zip(self._scopes, parts, strict=True):
            answer = scope.pacer.try_start(part)
            if isinstance(answer, NotYet):
                refusals.append(answer)
            else:
                permits.append(answer)
        if not refusals:
            return self._granted(permits, parts[0], waited=False)
        give_back_all(permits)
        return max(refusals, key=attrgetter("not_before"))

    async def try_starts(self, requests: Sequence[TurnRequest], /) -> list[ScopedPermit | NotYet]:
        """Return a permit of all scopes, or NotYet, for each request."""
        return await try_all(self._try_now, requests)

    async def start(
        self, request: TurnRequest, max_wait_s: float | None = None, instead_of: Permit | None = None, /
    ) -> ScopedPermit:
        """Wait for a permit of all scopes. If the wait fails, a lookup of an address still goes on."""
        deadline_mono = None if max_wait_s is None else self._clock.monotonic() + max_wait_s
        parts = await self._parts(request, max_wait_s)
        if request.check_lines is not None:  # the address may have been unknown at the first check
            request.check_lines()
        places: Sequence[ScopePermit] = instead_of.parts if isinstance(instead_of, ScopedPermit) else ()
        again = False
        while True:
            permits: list[ScopePermit] = []
            try:
                for scope, part, place in zip_longest(self._scopes, parts, places):
                    left_s = None if deadline_mono is None else max(0.0, deadline_mono - self._clock.monotonic())
                    permits.append(await scope.pacer.start(part, left_s, place))
            except BaseException:
                give_back_all(permits)
                raise
            waited = [permit.waited for permit in permits]
            if not any(waited[1:]) or all(permit.renew() for permit in permits):
                return self._granted(permits, parts[0], waited=any(waited) or again)
            give_back_all(permits)
            places, again = permits, True

    def when_ready(self, request: TurnRequest, callback: Callable[[], None], /) -> None:
        """Call ``callback`` once, when all scopes have granted ``request``, or when the pacer closes."""
        if self._closed:
            raise ClosedError("the pacer is closed")
        self._offers.wait(request, callback)

    def close_host(self, host: str, until_wall: float, bound_by: Bound, /) -> None:
        """Let no request start at the key of ``host`` before ``until_wall``."""
        key = self._scopes[0].known(host)
        if key is not None:
            self._first.close_host(key, until_wall, bound_by)
        elif not self._closed:
            lookup = self._addresses.lookup(host)
            lookup.add_done_callback(lambda _: self.close_host(host, until_wall, bound_by))

    async def closed_until(self, host: str, /) -> float | None:
        """Return the Unix time until which the key of ``host`` is closed, or None if it is open."""
        return await self._first.closed_until(self._scopes[0].known(host) or await self._addresses.find(host))

    def known_closing(self, host: str, /) -> float | None:
        """Return the Unix time until which the key of ``host`` is closed; None if the key is open or unknown."""
        key = self._scopes[0].known(host)
        return None if key is None else self._first.known_closing(key)

    async def start_fetch(self, request: TurnRequest, /, *, made: bool = False) -> ScopedFetch:
        """Wait in the line of the key to request a robots.txt; the request counts in all scopes.

        All keys are looked up before the request. Otherwise a page could be granted before the request counts in all
        scopes.
        """
        first, *others = await self._parts(request, None)
        permits: list[FetchPermit] = [await self._first.start_fetch(first, made=made)]
        try:
            for scope, part in zip(self._scopes[1:], others, strict=True):
                permits.append(await scope.pacer.start_fetch(part, made=True))
        except BaseException:
            permits[0].give_back()  # otherwise the requests behind this request would wait for ever
            raise
        return ScopedFetch(permits)

    def hosts(self) -> dict[str, HostStatus]:
        """Return the state of each busy key, and of each busy domain and address with a limit.

        If a key and a domain or address have the same name, the result holds the state of the key. A request that
        waits only for a domain or address already holds the permit of its key.
        """
        return {name: pace for scope in reversed(self._scopes) for name, pace in scope.pacer.hosts().items()}

    def closings(self) -> Mapping[Bound, int]:
        """Return how many keys are closed now, by the reason of the closure."""
        return self._first.closings()

    def lines(self, host: str, /) -> Iterable[PacedLine]:
        """Return the line of each key of ``host``, except for an address that was not looked up yet."""
        for scope in self._scopes:
            if (key := scope.known(host)) is not None:
                yield from scope.pacer.lines(key)

    def set_limits(self, host: str, min_delay_s: float | None, max_concurrent: int | None, /) -> None:
        """Pace one host by its own limits; only if the key is the host."""
        self._first.set_limits(host, min_delay_s, max_concurrent)

    async def aclose(self) -> None:
        """End all lookups, raise ClosedError in all waiting tasks, and call the callbacks of ``when_ready``."""
        self._closed = True
        self._expiry.stop()
        for scope in self._scopes:
            await scope.pacer.aclose()
        await self._addresses.aclose()
        await self._offers.aclose()  # comes last, because the tasks of the offers may wait for an address

    @property
    def waiting(self) -> int:
        """How many requests wait for a permit, in any scope."""
        return sum(scope.pacer.waiting for scope in self._scopes)

    @property
    def in_flight(self) -> int:
        """How many requests are under way, or have the permit of their key and wait only for a limit."""
        return self._first.in_flight

    def __len__(self) -> int:
        """How many keys, and how many addresses and domains with a limit, are busy."""
        return sum(len(scope.pacer) for scope in self._scopes)

    def __repr__(self) -> str:
        return f"<ScopedPacer: {[scope.pacer for scope in self._scopes]!r}>"

    async def _try_now(self, request: TurnRequest) -> ScopedPermit | NotYet:
        """Return a permit of all scopes if each scope grants it without a wait."""
        parts = self._known_parts(request)
        if parts is None:
            return NotYet(self._clock.wall(), Bound.ADDRESS)
        if (permit := self._offers.take(request)) is not None:
            return permit
        permits: list[ScopePermit] = []
        try:
            for scope, part in zip(self._scopes, parts, strict=True):
                [answer] = await scope.pacer.try_starts([part])
                if isinstance(answer, NotYet):
                    give_back_all(permits)
                    return answer
                permits.append(answer)
        except BaseException:
            give_back_all(permits)
            raise
        if len(permits) == 1 or all(permit.renew() for permit in permits):
            return self._granted(permits, parts[0], waited=False)
        give_back_all(permits)  # the host was closed meanwhile
        return NotYet(self._clock.wall(), Bound.QUEUE)

    def _granted(self, permits: Sequence[ScopePermit], request: TurnRequest, *, waited: bool) -> ScopedPermit:
        if not self._expiry.is_armed:
            self._expiry.arm()
        now_mono = self._clock.monotonic()
        permit = ScopedPermit(request.host, request.url, permits, now_mono, waited, self._under_way)
        self._under_way[permit] = None
        return permit

    async def _parts(self, request: TurnRequest, max_wait_s: float | None) -> list[TurnRequest]:
        """Return the request for each scope, after a lookup if necessary; raises TooFar if the lookup is too slow."""
        while (parts := self._known_parts(request)) is None:
            finding = asyncio.ensure_future(self._addresses.find(request.host))
            if max_wait_s is None:
                await finding
            elif not await ends_within(self._clock, max_wait_s, finding):
                raise TooFar(request.host, NotYet(self._clock.wall(), Bound.ADDRESS), max_wait_s)
        return parts

    def _known_parts(self, request: TurnRequest) -> list[TurnRequest] | None:
        """Return the request for each scope; begin a lookup and return None if the address is unknown.

        The floor and the statements of a site count in the first scope only. Each other scope has its Limit.
        """
        keys = [key for scope in self._scopes if (key := scope.known(request.host)) is not None]
        if len(keys) < len(self._scopes):
            self._addresses.lookup(request.host)
            return None
        shared = request._replace(pace=None, min_delay_s=0.0)
        return [(shared if place else request)._replace(host=key) for place, key in enumerate(keys)]
