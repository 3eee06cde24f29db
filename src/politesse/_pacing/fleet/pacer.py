"""The pacer of a fleet: a start is reserved in Redis once the pacer of this process grants it; see ``__init__``."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from politesse._pacing.fleet.held_starts import HeldStarts
from politesse._pacing.fleet.messages import WireLost
from politesse._pacing.fleet.permit import FleetPermit
from politesse._pacing.fleet.reserver import Reserver
from politesse._pacing.fleet.scripts import Script
from politesse._pacing.held_long import HeldLong
from politesse._pacing.reports import Reports
from politesse.errors import ConfigurationError, TooFar
from politesse.events import ComponentFailed
from politesse.verdict import Bound, NotYet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from politesse._pacing.fleet.link import FleetLink
    from politesse._pacing.fleet.messages import FleetAnswer
    from politesse._pacing.fleet.reservation import Reservation
    from politesse._pacing.fleet.reserver import ProcessPacer
    from politesse._pacing.pace import PacingOptions
    from politesse._pacing.scope_port import ScopePermit
    from politesse.clock import Clock, Timer
    from politesse.events import Publisher
    from politesse.ports import HostPace, PacedLine, TurnRequest


class FleetPacer:
    """Spaces the requests of all processes that share a Redis; see ``politesse.ports.Pacer``.

    Args:
        options: see PacingOptions. ``key`` names what its hosts are.
        link: the link of this process, which several pacers may share.
        make: makes the pacer of this process.
        clock: the clocks and the timer.
        publisher: receives TurnExpired and ComponentFailed.
    """

    def __init__(
        self,
        options: PacingOptions,
        link: FleetLink,
        make: Callable[[PacingOptions], ProcessPacer],
        *,
        clock: Clock,
        publisher: Publisher,
    ) -> None:
        self._own = make(replace(options, max_turn_s=inf))
        self._link = link
        self._clock = clock
        self._publish = publisher.publish
        self._scope = f"{options.key}:"
        self._reserver = Reserver(link, self._own, self._scope, clock)
        self._held = HeldStarts(self._reserver, self._own, self._permit, clock)
        self._under_way: dict[FleetPermit, None] = {}
        self._held_long: HeldLong[FleetPermit] = HeldLong(
            clock, options.max_turn_s, self._under_way.keys, Reports(publisher).expire
        )
        self._renewal: Timer | None = None
        link.join(self)

    def try_start(self, request: TurnRequest, /) -> FleetPermit | NotYet:
        """Return a permit that was reserved before, or reserve one in the background."""
        self._reserver.check_open()
        if (held := self._held.get(request)) is not None:
            if held.granted is None:
                if held.error is None:
                    return self._unknown()
                self._held.drop(held)
                raise held.error
            if (permit := self._held.take(held)) is not None:
                return permit
        own = self._own.try_start(request)
        if isinstance(own, NotYet):
            return own
        self._held.hold(request, own)
        return self._unknown()

    async def try_starts(self, requests: Sequence[TurnRequest], /) -> list[FleetPermit | NotYet]:
        """Return the permits that there are now, and when there may be the others; they share a round trip.

        A host with several places takes one round trip for each. What is not granted now is not reserved.

        Raises:
            ClosedError: if the pacer is closed.
            ConfigurationError: Redis refuses this client. A key that holds something else is published, and NotYet.
        """
        self._reserver.check_open()
        trying = [asyncio.ensure_future(self._try_now(request)) for request in requests]
        try:
            return [await answer for answer in trying]
        except BaseException:
            for answer in trying:
                answer.cancel()
                answer.add_done_callback(_give_back)
            raise

    async def start(
        self, request: TurnRequest, max_wait_s: float | None = None, /, *, first: bool = False
    ) -> FleetPermit:
        """Wait in line for a permit, in this process and then in the fleet.

        Raises:
            TooFar: if none comes within ``max_wait_s`` seconds; at once where that is known.
            ClosedError: if the pacer is closed.
            WrongEventLoop: in another event loop than that of the first use.
            ConfigurationError: Redis refuses this client, or its key holds something else.
        """
        self._reserver.check_open()
        deadline_mono = None if max_wait_s is None else self._clock.monotonic() + max_wait_s
        again = first
        while True:
            left_s = None if deadline_mono is None else max(0.0, deadline_mono - self._clock.monotonic())
            own = await self._own.start(request, left_s, first=again)
            try:
                reservation = await self._reserver.reserve(request, own, deadline_mono, max_wait_s)
            except BaseException:
                own.give_back()
                raise
            if reservation is not None:
                return self._permit(request, own, reservation, waited=again and not first)
            own.give_back()
            again = True

    def when_ready(self, request: TurnRequest, callback: Callable[[], None], /) -> None:
        """Call ``callback`` once, when a start is reserved for ``request`` and nothing waits; or at the close.

        Where Redis refuses this client it is called soon: ``try_start`` raises that, and who is called may call it.
        """
        if self._reserver.is_refused():
            asyncio.get_running_loop().call_soon(callback)
        else:
            self._held.when_ready(request, callback)

    def when_near(self, request: TurnRequest, callback: Callable[[], None], /) -> None:
        """Call ``callback`` once, so long before ``request`` may start as it takes to reserve that; or at the close.

        Where Redis refuses this client it is called soon, as by ``when_ready``.
        """
        if self._reserver.is_refused():
            asyncio.get_running_loop().call_soon(callback)
        else:
            self._held.when_near(request, callback)

    @property
    def reserving_s(self) -> float:
        """How long Redis mostly takes to answer, in seconds."""
        return self._reserver.trip.most_s

    def is_ready(self, request: TurnRequest, /) -> bool:
        """Return whether it is time to reserve a start, by what is known here, or one is held.

        True if it is closed, or Redis refuses this client: ``try_start`` raises that, and no time will come.
        """
        if self._reserver.is_closed or self._reserver.is_refused():
            return True
        held = self._held.get(request)
        if held is not None and held.granted is not None:
            return True
        return self._own.is_ready(request, ahead_s=self._reserver.ahead_s(request))

    def close_host(self, host: str, until_wall: float, bound_by: Bound, /) -> None:
        """Let nothing start at ``host`` before the Unix time ``until_wall``, in any process."""
        before_s = self._own.heard(host).closed_s
        self._own.close_host(host, until_wall, bound_by)
        self._reserver.report_closing(host, before_s)

    async def closed_until(self, host: str, /) -> float | None:
        """Return the Unix time until which ``host`` is closed; None if it is open.

        Where Redis is away or refuses, as far as this process knows: ``start`` raises then.
        """
        try:
            await self._link.tried()
            answer = await self._link.ask(Script.CLOSE, self._scope + host, self._link.owner, 0, "", 0, 0)
        except (WireLost, ConfigurationError):
            return await self._own.closed_until(host)
        self._reserver.learn(host, answer)
        return await self._own.closed_until(host)

    def count_fetch(
        self,
        host: str,
        origin: str,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        elapsed_s: float = 0.0,
        /,
    ) -> None:
        """Count a robots.txt that was fetched without a permit, in all processes."""
        before_s, asked = self._own.heard(host).closed_s, self._own.asked(host)
        self._own.count_fetch(host, origin, status, headers, elapsed_s)
        if self._own.asked(host) != asked:
            self._reserver.count(host)
        self._reserver.report_closing(host, before_s)

    def hosts(self) -> dict[str, HostPace]:
        """Return what is known here of each busy host; what waits for other processes waits."""
        found = dict(self._own.hosts())
        for reservation, host in self._reserver.reserving.items():
            if (pace := found.get(host)) is not None:
                found[host] = replace(
                    pace,
                    waiting=pace.waiting + 1,
                    in_flight=max(0, pace.in_flight - 1),
                    held_by="",
                    held_s=0.0,
                    fleet_wait=reservation.not_yet if pace.fleet_wait is None else pace.fleet_wait,
                )
        return found

    def lines(self, host: str, /) -> Iterable[PacedLine]:
        """Return the line of ``host`` in this process."""
        return self._own.lines(host)

    def set_limits(self, host: str, min_delay_s: float | None, max_concurrent: int | None, /) -> None:
        """Pace ``host`` by its own limits from now on; None for those of the options. Raises ConfigurationError."""
        self._own.set_limits(host, min_delay_s, max_concurrent)

    def bind(self, gate: object, host: str, options: PacingOptions) -> None:
        """Have ``host`` bound by the options of a gate, beside those of other gates, while it is busy."""
        self._own.bind(gate, host, options)

    def unbind(self, gate: object) -> None:
        """Have no host bound by the options of a gate any more."""
        self._own.unbind(gate)

    async def aclose(self) -> None:
        """Raise ClosedError in all that waits, call the callbacks of ``when_ready``, and disconnect."""
        if self._reserver.is_closed:
            return
        self._reserver.is_closed = True
        self._held_long.stop()
        if self._renewal is not None:
            self._renewal.cancel()
        self._reserver.wake()
        closing = asyncio.ensure_future(self._held.aclose())
        await self._reserver.ended()
        await self._link.leave(self)
        await closing
        await self._own.aclose()

    @property
    def waiting(self) -> int:
        """How many requests wait for a permit."""
        return self._own.waiting + len(self._reserver.reserving)

    @property
    def in_flight(self) -> int:
        """How many permits of this process have not ended."""
        return len(self._under_way)

    def __len__(self) -> int:
        """How many hosts are busy."""
        return len(self._own)

    def __repr__(self) -> str:
        return f"<FleetPacer {self._scope}* at {self._link!r}: {self._own!r}>"

    def pushed(self, key: str, answer: FleetAnswer) -> None:
        """Receive a message of Redis."""
        if key.startswith(self._scope):
            self._reserver.pushed(key.removeprefix(self._scope), answer)

    def lost(self) -> None:
        """Void all grants that are not used yet."""
        self._reserver.lost()

    def found(self) -> None:
        """Make known again what is under way, which hosts are closed, and which are slow."""
        for permit in self._under_way:
            self._reserver.renew(permit)
        for host, pace in self._own.hosts().items():
            self._reserver.report_slow(host)
            if pace.closed_until_wall is not None:
                self._reserver.report_closing(host, 0.0)
        self._reserver.wake()

    def answered(self, permit: FleetPermit, status: int, headers: Mapping[str, str], /) -> None:
        """Record an answer, and close the host for all if it says so."""
        before_s = self._own.heard(permit.host).closed_s
        permit.own.observe(status, headers)
        self._reserver.report_closing(permit.host, before_s)

    def ended(self, permit: FleetPermit, /, *, with_request: bool) -> None:
        """Report an end."""
        self._under_way.pop(permit, None)
        permit.line.users -= 1
        self._reserver.forget(permit.host, permit.line)
        if with_request:
            self._reserver.release(permit)
        else:
            self._reserver.withdraw(permit.host, permit.reservation)

    def holds(self, permit: FleetPermit, /) -> bool:
        """Return whether a request may still start that could not be started at once."""
        reservation = permit.reservation
        if self._reserver.is_void(permit.line, reservation):
            return False
        if permit.is_alone:  # beside it nothing starts, however late it is, as long as its lease holds
            return reservation.late_s(self._clock.monotonic()) <= 0.5 * self._link.options.lease_s
        return self._reserver.is_in_time(permit.line, reservation)

    async def _try_now(self, request: TurnRequest) -> FleetPermit | NotYet:
        """Return a permit if Redis grants one at once."""
        if (held := self._held.get(request)) is not None and (permit := self._held.take(held)) is not None:
            return permit
        own = self._own.try_start(request)
        if isinstance(own, NotYet):
            return own
        reservation, answer = None, self._unknown()
        try:
            reservation = await self._reserver.reserve(request, own, self._clock.monotonic(), 0.0)
        except TooFar as far:
            answer = far.not_yet
        except ConfigurationError as error:
            self._link.check()  # raises what concerns all keys
            self._publish(ComponentFailed(None, "pacer", error))
        finally:
            if reservation is None:
                own.give_back()
        return answer if reservation is None else self._permit(request, own, reservation)

    def _unknown(self) -> NotYet:
        return NotYet(self._clock.wall(), Bound.QUEUE if self._link.is_up else Bound.FLEET)

    def _permit(
        self, request: TurnRequest, own: ScopePermit, reservation: Reservation, *, waited: bool = False
    ) -> FleetPermit:
        line = self._reserver.line(request.host)
        line.users += 1
        self._reserver.starts(line, reservation)
        permit = FleetPermit(
            self,
            request,
            own,
            line,
            reservation,
            self._clock.monotonic(),
            is_alone=self._reserver.most(request.host) == 1,
            waited=waited or own.waited or reservation.has_waited,
        )
        self._under_way[permit] = None
        if not self._held_long.is_armed:
            self._held_long.arm()
        if self._renewal is None:
            self._renew_later()
        return permit

    def _renew_later(self) -> None:
        self._renewal = self._clock.call_later(self._link.options.lease_s / 3.0, self._renew_all)

    def _renew_all(self) -> None:
        """Renew the leases of all that is under way."""
        self._renewal = None
        for permit in self._under_way:
            self._reserver.renew(permit)
        if self._under_way:
            self._renew_later()


def _give_back(answer: asyncio.Future[FleetPermit | NotYet]) -> None:
    """Give back the permit of a request that nobody waits for any more."""
    if not answer.cancelled() and answer.exception() is None and not isinstance(permit := answer.result(), NotYet):
        permit.give_back()
