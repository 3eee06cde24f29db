"""Turns in several scopes at once: a request waits for its host, and for all that share its address or domain.

Theory of operation. What a site says (Crawl-delay, 429, its slowness) binds in the first scope, the key; the others
have a Limit. Each scope has a pacer of its own, whose hosts are the keys of that scope.

Permits are taken in the order of the scopes, always the same, so that no two requests wait for each other, and given
back when a later one fails. A waiter keeps its host permit while it waits for the address or domain permit: no other
request to the same host could start before it. When it has all of them, those that it got first are stamped again. If
one is no longer valid by then, because the host was closed, it gives all back and waits again, at the head of the line.

A turn expires in all scopes at once, ``max_turn_s`` after it was granted in all of them: the permit of a host may be
held for longer than that while it waits for the address. So no scope has a ``max_turn_s`` of its own.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Literal

from politesse._pacing.background import BackgroundStarts
from politesse._pacing.held import turn_in_the_way
from politesse._pacing.held_long import HeldLong
from politesse._pacing.pace import PacingOptions
from politesse._pacing.reports import Reports
from politesse._pacing.scope_port import give_back_all
from politesse._pacing.scopes import ByAddress, ByDomain, ByHost
from politesse._tasks import ends_within
from politesse.errors import ConfigurationError, TooFar, TurnHeld
from politesse.ports import TurnRequest
from politesse.verdict import Bound, NotYet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from politesse._pacing.pace import Limit
    from politesse._pacing.scope_port import ScopePacer, ScopePermit
    from politesse._pacing.scopes import Finder
    from politesse.clock import Clock
    from politesse.events import Publisher
    from politesse.ports import HostPace, PacedLine, Resolver


class ScopedPermit:
    """Permission in all scopes; see ``politesse.ports.Permit``.

    Attributes:
        host: the key.
        url: what is requested; empty if that is unknown.
        started_mono: when it was granted in all scopes.
        waited: whether any scope granted it later than it was requested.
    """

    __slots__ = ("_others", "_permits", "host", "started_mono", "url", "waited")

    def __init__(
        self,
        permits: Sequence[ScopePermit],
        request: TurnRequest,
        others: dict[ScopedPermit, None],
        started_mono: float,
        *,
        waited: bool,
    ) -> None:
        self._permits = permits
        self._others = others
        self.host = request.host
        self.url = request.url
        self.started_mono = started_mono
        self.waited = waited
        others[self] = None

    def observe(self, status: int, headers: Mapping[str, str], /) -> None:
        """Record the answer; it speaks for the key."""
        self._permits[0].observe(status, headers)

    def end(self) -> None:
        """End the request in all scopes."""
        self._others.pop(self, None)
        for permit in self._permits:
            permit.end()

    def expire(self) -> None:
        """End it in all scopes because it was held for too long."""
        self._others.pop(self, None)
        for permit in self._permits:
            permit.expire()

    def give_back(self) -> None:
        """End without a request, in all scopes."""
        self._others.pop(self, None)
        give_back_all(self._permits)

    def renew(self) -> bool:
        """Stamp it again in all scopes; return False if it would not be granted now."""
        return all(permit.renew() for permit in self._permits)

    @property
    def under_way(self) -> bool:
        """Whether it has not ended."""
        return self._permits[0].under_way


class ScopedPacer:
    """Spaces requests by key and by limits; see ``politesse.ports.Pacer``.

    Args:
        options: see PacingOptions.
        make: makes the pacer of a scope, ``key`` of its options; what that is given as a host is the key of the scope.
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
        self._options = options
        self._clock = clock
        self._closed = False
        finders: dict[str, Callable[[], Finder]] = {
            "host": ByHost,
            "domain": ByDomain,
            "address": lambda: ByAddress(resolver, clock, publisher),
        }
        self._under_way: dict[ScopedPermit, None] = {}
        self._held_long: HeldLong[ScopedPermit] = HeldLong(
            clock, options.max_turn_s, self._under_way.keys, Reports(publisher).expire
        )
        self._first = make(replace(options, max_turn_s=inf))
        self._background: BackgroundStarts[ScopedPermit] = BackgroundStarts(self.start, clock)
        self._finders = [finders[options.key]()]
        self._pacers = [self._first]
        limits: tuple[tuple[Literal["address", "domain"], Limit | None], ...] = (
            ("domain", options.domain),
            ("address", options.address),
        )
        for name, limit in limits:
            if limit is not None:
                self._finders.append(finders[name]())
                self._pacers.append(make(_bearing(name, limit)))

    def try_start(self, request: TurnRequest, /) -> ScopedPermit | NotYet:
        """Return permission in all scopes, or when there may be; an unknown address is looked up meanwhile."""
        requests = self._known(request, lambda: None)
        if requests is None:
            return NotYet(self._clock.wall(), Bound.ADDRESS)
        if self.reserving_s and (permit := self._background.take(request)) is not None:
            return permit
        if self.reserving_s and all(pacer.is_ready(part) for pacer, part in zip(self._pacers, requests, strict=True)):
            self._background.begin(request)
        if request in self._background:
            return NotYet(self._clock.wall(), Bound.QUEUE)
        permits: list[ScopePermit] = []
        refusals: list[NotYet] = []
        for pacer, part in zip(self._pacers, requests, strict=True):
            answer = pacer.try_start(part)
            if isinstance(answer, NotYet):
                refusals.append(answer)
            else:
                permits.append(answer)
        if not refusals:
            return self._granted(permits, requests[0], waited=False)
        give_back_all(permits)
        return max(refusals, key=lambda refusal: refusal.not_before)

    async def try_starts(self, requests: Sequence[TurnRequest], /) -> list[ScopedPermit | NotYet]:
        """Return permission in all scopes, or when there may be; each scope is asked for all requests at once."""
        answers: list[ScopedPermit | NotYet] = [NotYet(self._clock.wall(), Bound.ADDRESS)] * len(requests)
        found = {place: self._known(request, lambda: None) for place, request in enumerate(requests)}
        parts = {place: part for place, part in found.items() if part is not None}
        granted: dict[int, list[ScopePermit]] = {place: [] for place in parts}
        try:
            for scope, pacer in enumerate(self._pacers):
                asked = list(granted)
                given = await pacer.try_starts([parts[place][scope] for place in asked])
                for place, answer in zip(asked, given, strict=True):
                    if isinstance(answer, NotYet):
                        answers[place] = answer
                        give_back_all(granted.pop(place))
                    else:
                        granted[place].append(answer)
        except BaseException:
            give_back_all(chain.from_iterable(granted.values()))
            raise
        for place, permits in granted.items():
            if len(permits) == 1 or all(permit.renew() for permit in permits):
                answers[place] = self._granted(permits, parts[place][0], waited=False)
            else:  # closed meanwhile
                give_back_all(permits)
                answers[place] = NotYet(self._clock.wall(), Bound.QUEUE)
        return answers

    async def start(self, request: TurnRequest, max_wait_s: float | None = None, /) -> ScopedPermit:
        """Wait for permission in all scopes. The lookup of an address counts for the wait; it goes on for others."""
        deadline_mono = None if max_wait_s is None else self._clock.monotonic() + max_wait_s
        requests = _parts(request, await self._keys(request.host, max_wait_s))
        if (held := turn_in_the_way(self, request.host)) is not None:  # its address was not known before
            raise TurnHeld(request.url, held_by=held.url)
        again = False
        while True:
            permits: list[ScopePermit] = []
            try:
                for pacer, part in zip(self._pacers, requests, strict=True):
                    left_s = None if deadline_mono is None else max(0.0, deadline_mono - self._clock.monotonic())
                    permits.append(await pacer.start(part, left_s, first=again))
            except BaseException:
                give_back_all(permits)
                raise
            waited = [permit.waited for permit in permits]
            if not any(waited[1:]) or all(permit.renew() for permit in permits):
                return self._granted(permits, requests[0], waited=any(waited) or again)
            give_back_all(permits)
            again = True

    def when_ready(self, request: TurnRequest, callback: Callable[[], None], /) -> None:
        """Call ``callback`` once, when ``request`` may start in all scopes and nothing waits there; or at the close.

        Where a server is asked, that is when all have granted it.
        """
        if request in self._background:
            self._background.begin(request, callback)
        elif self.reserving_s:
            self.when_near(request, lambda: callback() if self._closed else self._background.begin(request, callback))
        else:
            self._watch(request, callback)

    def when_near(self, request: TurnRequest, callback: Callable[[], None], /) -> None:
        """Call ``callback`` once, when it is time to call ``when_ready``, in all scopes; or at the close."""
        if request in self._background:
            self._background.begin(request, callback)
        else:
            self._watch(request, callback)

    def _watch(self, request: TurnRequest, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, when ``request`` may start in all scopes, by what is known here; or at the close."""

        def look() -> None:
            if self._closed or not watch(even_if_ready=False):
                callback()

        def watch(*, even_if_ready: bool) -> bool:
            requests = self._known(request, look)
            if requests is None:
                return True
            places = list(zip(self._pacers, requests, strict=True))
            busy = [(pacer, part) for pacer, part in places if not pacer.is_ready(part)]
            if not busy and not even_if_ready:
                return False
            pacer, part = busy[0] if busy else places[0]
            pacer.when_near(part, look)
            return True

        watch(even_if_ready=True)

    def close_host(self, host: str, until_wall: float, bound_by: Bound, /) -> None:
        """Let nothing start at the key of ``host`` before ``until_wall``."""
        finder = self._finders[0]
        key = finder.known(host)
        if key is not None:
            self._first.close_host(key, until_wall, bound_by)
        elif not self._closed:
            finder.when_found(host, lambda: self.close_host(host, until_wall, bound_by))

    async def closed_until(self, host: str, /) -> float | None:
        """Return the Unix time until which the key of ``host`` is closed; None if it is open."""
        return await self._first.closed_until(await self._finders[0].find(host))

    def count_fetch(
        self,
        host: str,
        origin: str,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        elapsed_s: float = 0.0,
        /,
    ) -> None:
        """Count a robots.txt that was fetched without a permit, in all scopes; its answer speaks for the key."""
        if self._closed:
            return
        request = TurnRequest(host, "", "")
        requests = self._known(request, lambda: self.count_fetch(host, origin, status, headers, elapsed_s))
        if requests is not None:
            first, *others = requests
            self._first.count_fetch(first.host, origin, status, headers, elapsed_s)
            for pacer, part in zip(self._pacers[1:], others, strict=True):
                pacer.count_fetch(part.host, origin)

    def hosts(self) -> dict[str, HostPace]:
        """Return what is known of each busy key, and of each busy domain and address that has a limit.

        What has the name of a key is the key. A request that waits for a limit alone holds its key.
        """
        found: dict[str, HostPace] = {}
        for pacer in reversed(self._pacers):
            found.update(pacer.hosts())
        return found

    def lines(self, host: str, /) -> Iterable[PacedLine]:
        """Return the lines of the keys of ``host`` that are known."""
        for pacer, finder in zip(self._pacers, self._finders, strict=True):
            if (key := finder.known(host)) is not None:
                yield from pacer.lines(key)

    def set_limits(self, host: str, min_delay_s: float | None, max_concurrent: int | None, /) -> None:
        """Pace one host by its own limits; raises ConfigurationError where the key is not the host."""
        check_limits(self._options, host, min_delay_s, max_concurrent)
        if self._options.key == "host":
            self._first.set_limits(host, min_delay_s, max_concurrent)

    def bind(self, gate: object, host: str, options: PacingOptions) -> None:
        """Have the key of ``host`` bound by the options of a gate, before anything that is requested after this."""
        finder = self._finders[0]
        key = finder.known(host)
        if key is not None:
            self._first.bind(gate, key, options)
        elif not self._closed:
            finder.when_found(host, lambda: self.bind(gate, host, options))

    def unbind(self, gate: object) -> None:
        """Have no key bound by the options of a gate any more."""
        self._first.unbind(gate)

    async def aclose(self) -> None:
        """End all lookups, raise ClosedError in all that waits, and call the callbacks of ``when_ready``."""
        self._closed = True
        self._held_long.stop()
        for pacer in self._pacers:
            await pacer.aclose()
        await self._background.aclose()
        for finder in self._finders:
            await finder.aclose()

    @property
    def reserving_s(self) -> float:
        """How long it takes to reserve a start in the slowest scope."""
        return max(pacer.reserving_s for pacer in self._pacers)

    @property
    def waiting(self) -> int:
        """How many requests wait for a permit, in any scope."""
        return sum(pacer.waiting for pacer in self._pacers)

    @property
    def in_flight(self) -> int:
        """How many requests are under way, or are held back by a wider scope alone."""
        return self._first.in_flight

    def __len__(self) -> int:
        """How many keys and limits are busy."""
        return sum(map(len, self._pacers))

    def __repr__(self) -> str:
        return f"<ScopedPacer: {self._pacers!r}>"

    def _granted(self, permits: Sequence[ScopePermit], request: TurnRequest, *, waited: bool) -> ScopedPermit:
        if not self._held_long.is_armed:
            self._held_long.arm()
        return ScopedPermit(permits, request, self._under_way, self._clock.monotonic(), waited=waited)

    async def _keys(self, host: str, max_wait_s: float | None) -> list[str]:
        """Return the key of each scope, looking it up if need be; raises TooFar if that takes too long."""
        finding = [finder.find(host) for finder in self._finders]
        if max_wait_s is None:
            return [await key for key in finding]
        keys = asyncio.gather(*finding)
        if not await ends_within(self._clock, max_wait_s, keys):
            raise TooFar(host, NotYet(self._clock.wall(), Bound.ADDRESS), max_wait_s)
        return keys.result()

    def _known(self, request: TurnRequest, found: Callable[[], None]) -> list[TurnRequest] | None:
        """Return the request to each scope; None where a key has to be looked up, after which ``found`` is called."""
        keys = []
        for finder in self._finders:
            key = finder.known(request.host)
            if key is None:
                finder.when_found(request.host, found)
                return None
            keys.append(key)
        return _parts(request, keys)


def _parts(request: TurnRequest, keys: Sequence[str]) -> list[TurnRequest]:
    """Return the request to each scope: what a site states binds in the first one only."""
    return [request._replace(host=key, pace=None if place else request.pace) for place, key in enumerate(keys)]


def _bearing(scope: Literal["address", "domain"], limit: Limit) -> PacingOptions:
    return PacingOptions(
        key=scope,
        min_delay_s=limit.min_delay_s,
        max_concurrent=limit.max_concurrent,
        adaptive_factor=0.0,
        max_turn_s=inf,
    )


def check_limits(options: PacingOptions, host: str, min_delay_s: float | None, max_concurrent: int | None) -> None:
    """Raise ConfigurationError for limits of one host where hosts are paced by address or domain."""
    if options.key != "host" and (min_delay_s, max_concurrent) != (None, None):
        raise ConfigurationError(
            f"min_delay_s= or max_concurrent= of {host} alone: not with PacingOptions(key={options.key!r})"
        )
