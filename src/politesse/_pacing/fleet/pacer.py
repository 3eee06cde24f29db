"""The pacer of a fleet: a start is reserved in Redis once the pacer of this process grants it; see ``__init__``."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from politesse._pacing.fleet.messages import WireLost
from politesse._pacing.fleet.offers import Offers, try_all
from politesse._pacing.fleet.reservation import FleetFetch, FleetPermit, Grant
from politesse._pacing.fleet.reserver import LimitedKeys, Reserver
from politesse._pacing.fleet.scripts import Script
from politesse._pacing.timers import PermitExpiry
from politesse.errors import ClosedError, ConfigurationError, TooFar
from politesse.verdict import Bound, NotYet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from politesse._pacing.fleet.link import FleetLink
    from politesse._pacing.host_state import MemoryOf
    from politesse._pacing.hosts import Hosts, LocalPermit
    from politesse._pacing.pace import PacingOptions
    from politesse._pacing.requests import PacedLine, Permit, TurnRequest
    from politesse.clock import Clock
    from politesse.events import Publisher
    from politesse.status import HostStatus


class FleetPacer:
    """Spaces the requests of all processes that share a Redis; see ``Pacer``.

    Args:
        options: see PacingOptions. A limit of a domain or an address holds for all processes together, too.
        link: the link of this process.
        make: makes the pacer of this process.
        clock: the clocks and the timer.
        publisher: receives TurnExpired.
    """

    def __init__(
        self,
        options: PacingOptions,
        link: FleetLink,
        make: Callable[[PacingOptions], Hosts],
        *,
        clock: Clock,
        publisher: Publisher,
    ) -> None:
        self._own = make(replace(options, max_turn_s=inf))
        self._link = link
        self._clock = clock
        self._scope = f"{options.key}:"
        self._reserver = Reserver(link, self._own, self._scope, clock)
        limits = self._own.limits.items()
        self._limited = {kind: Reserver(link, LimitedKeys(limit), f"{kind}:", clock) for kind, limit in limits}
        self._reservers = [self._reserver, *self._limited.values()]
        self._under_way: dict[FleetPermit, None] = {}
        self._offers = Offers(self.start, clock)
        self._expiry = PermitExpiry(clock, options.max_turn_s, self._under_way.keys, publisher)

    def use(self, options: PacingOptions) -> None:
        """Replace the options."""
        self._expiry.max_turn_s = options.max_turn_s
        self._own.use(replace(options, max_turn_s=inf))

    def remember(self, memory: MemoryOf) -> None:
        """Do nothing: the fleet keeps the states of hosts itself."""

    def under_way(self) -> Sequence[Permit]:
        """Return no permit: the fleet knows the requests under way itself."""
        return ()

    def take_over(self, permits: Iterable[Permit]) -> None:
        """Do nothing; see ``under_way``."""

    def try_start(self, request: TurnRequest, /) -> FleetPermit | NotYet:
        """Return the permit that was kept for a callback; otherwise NotYet, because only Redis grants new permits."""
        self._reserver.check_open()
        if (permit := self._offers.take(request)) is not None:
            return permit
        own = self._own.try_start(request)
        if isinstance(own, NotYet):
            return own
        own.give_back()
        return NotYet(self._clock.wall(), Bound.FLEET)

    async def try_starts(self, requests: Sequence[TurnRequest], /) -> list[FleetPermit | NotYet]:
        """Return a permit for each request that Redis grants now, and NotYet for each other request.

        Requests to different hosts share a round trip. Several requests to one host take a round trip each. No start is
        reserved for later.

        Raises:
            ClosedError: if the pacer is closed.
            ConfigurationError: Redis refuses this client.
        """
        self._reserver.check_open()
        return await try_all(self._try_now, requests)

    async def start(
        self, request: TurnRequest, max_wait_s: float | None = None, instead_of: Permit | None = None, /
    ) -> FleetPermit:
        """Wait in line for a permit, in this process and then in the fleet.

        Raises:
            TooFar: if no permit comes within ``max_wait_s`` seconds; raised at once if that is certain.
            ClosedError: if the pacer is closed.
            WrongEventLoop: if the pacer was first used in another event loop.
            ConfigurationError: Redis refuses this client.
        """
        self._reserver.check_open()
        limit_s = inf if max_wait_s is None else max_wait_s
        deadline_mono = self._clock.monotonic() + limit_s
        place = instead_of.own if isinstance(instead_of, FleetPermit) else None
        again = False
        while True:
            left_s = None if max_wait_s is None else max(0.0, deadline_mono - self._clock.monotonic())
            own = await self._own.start(request, left_s, place)
            try:
                grants = await self._reserve(request, own, deadline_mono, limit_s)
            except BaseException:
                own.give_back()
                raise
            if grants:
                return self._permit(request, own, grants, waited=again)
            own.give_back()
            place, again = own, True

    def when_ready(self, request: TurnRequest, callback: Callable[[], None], /) -> None:
        """Call ``callback`` once: when the fleet has granted ``request``, when the pacer closes, or after an error.

        ``try_start`` or ``try_starts`` then take the permit, or raise the error.
        """
        if self._reserver.is_closed:
            raise ClosedError("the pacer is closed")
        self._offers.wait(request, callback)

    def close_host(self, host: str, until_wall: float, bound_by: Bound, /) -> None:
        """Let no request start at ``host`` before the Unix time ``until_wall``, in any process."""

        def close(key: str) -> None:
            before_s = self._own.backoff_of(key).closed_s
            self._own.close_key(key, until_wall, bound_by)
            self._reserver.report_closing(key, before_s)

        self._own.with_key(host, close)

    async def closed_until(self, host: str, /) -> float | None:
        """Return the Unix time until which ``host`` is closed; None if it is open.

        If Redis is away or refuses this client, return the closure that this process knows.
        """
        key = await self._own.key(host)
        with suppress(WireLost, ConfigurationError):
            await self._link.tried()
            answer = await self._link.ask(Script.CLOSE, self._scope + key, self._link.owner, 0, "", 0, 0, 0)
            self._reserver.learn(key, answer)
        return await self._own.closed_until(host)

    def known_closing(self, host: str, /) -> float | None:
        """Return the Unix time until which ``host`` is closed, as far as this process knows; or None."""
        return self._own.known_closing(host)

    async def start_fetch(self, request: TurnRequest, /, *, made: bool = False) -> FleetFetch:
        """Wait in the line of this process to request a robots.txt; the request counts in all processes."""
        own = await self._own.start_fetch(request, made=made)
        return FleetFetch(own, self._own, [self._reserver, *(self._limited[kind] for kind, _ in own.limits)])

    def hosts(self) -> dict[str, HostStatus]:
        """Return the state of each busy host; a request that waits for other processes counts as waiting."""
        found = dict(self._own.hosts())
        for reservation in [reservation for reserver in self._reservers for reservation in reserver.reserving]:
            if (pace := found.get(reservation.request.host)) is not None:
                found[pace.host] = replace(
                    pace,
                    waiting=pace.waiting + 1,
                    in_flight=max(0, pace.in_flight - 1),
                    held_by="",
                    held_s=0.0,
                    fleet_wait=reservation.not_yet if pace.fleet_wait is None else pace.fleet_wait,
                )
        return found

    def closings(self) -> Mapping[Bound, int]:
        """Return how many busy hosts of this process are closed now, by the reason of the closure."""
        return self._own.closings()

    def lines(self, host: str, /) -> Iterable[PacedLine]:
        """Return the line of ``host`` in this process."""
        return self._own.lines(host)

    def set_limits(self, host: str, min_delay_s: float | None, max_concurrent: int | None, /) -> None:
        """Pace ``host`` by its own limits from now on; None for the options. Raises ConfigurationError."""
        self._own.set_limits(host, min_delay_s, max_concurrent)

    async def aclose(self) -> None:
        """Raise ClosedError in all waiting tasks, call the callbacks of ``when_ready``, and disconnect."""
        if self._reserver.is_closed:
            return
        self._expiry.stop()
        self._offers.give_back_all()
        for reserver in self._reservers:
            await reserver.aclose()
        await self._own.aclose()
        await self._offers.aclose()

    @property
    def waiting(self) -> int:
        """How many requests wait for a permit."""
        return self._own.waiting + sum(len(reserver.reserving) for reserver in self._reservers)

    @property
    def in_flight(self) -> int:
        """How many permits of this process have not ended."""
        return len(self._under_way)

    def __len__(self) -> int:
        """How many hosts are busy."""
        return len(self._own)

    def __repr__(self) -> str:
        return f"<FleetPacer {self._scope}* at {self._link!r}: {self._own!r}>"

    async def _try_now(self, request: TurnRequest) -> FleetPermit | NotYet:
        """Return a permit if Redis grants one at once."""
        if (permit := self._offers.take(request)) is not None:
            return permit
        own = self._own.try_start(request)
        if isinstance(own, NotYet):
            return own
        grants: list[Grant] = []
        answer = NotYet(self._clock.wall(), Bound.QUEUE if self._link.is_up else Bound.FLEET)
        try:
            grants = await self._reserve(request, own, self._clock.monotonic(), 0.0)
        except TooFar as far:
            answer = far.not_yet
        finally:
            if not grants:
                own.give_back()
        return self._permit(request, own, grants) if grants else answer

    async def _reserve(
        self, request: TurnRequest, own: LocalPermit, deadline_mono: float, max_wait_s: float
    ) -> list[Grant]:
        """Reserve a start at the host, then at its domain, then at its address; return no grant if it waits again.

        The order is always the same, so no two requests of the fleet wait for each other.
        """
        keys = [(self._reserver, own.host), *((self._limited[scope.kind], scope.name) for scope in own.scopes)]
        grants: list[Grant] = []
        is_whole = False
        try:
            for reserver, key in keys:
                grant = await reserver.reserve(request._replace(host=key), own, deadline_mono, max_wait_s)
                if grant is None:
                    break
                grants.append(grant)
            else:
                is_whole = all(grant.holds() for grant in grants[:-1])  # the first ones may be void by now
        finally:
            if not is_whole:
                for grant in grants:
                    grant.end(with_request=False)
        return grants if is_whole else []

    def _permit(
        self, request: TurnRequest, own: LocalPermit, grants: Sequence[Grant], *, waited: bool = False
    ) -> FleetPermit:
        permit = FleetPermit(
            own.host,
            request.url,
            own,
            grants,
            self._under_way,
            self._clock.monotonic(),
            waited=waited or own.waited or any(grant.reservation.not_yet is not None for grant in grants),
        )
        self._under_way[permit] = None
        if not self._expiry.is_armed:
            self._expiry.arm()
        return permit
