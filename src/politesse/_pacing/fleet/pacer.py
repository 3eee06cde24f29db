"""The pacer of a fleet: a start is reserved in Redis once the pacer of this process grants it; see ``__init__``."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from politesse._constants import AGREE_S
from politesse._pacing.fleet.messages import WireLost, microseconds
from politesse._pacing.fleet.permit import FleetPermit
from politesse._pacing.fleet.reservation import FleetLine, Reservation
from politesse._pacing.fleet.scripts import Script
from politesse._pacing.held_long import HeldLong
from politesse._pacing.reports import Reports
from politesse._pacing.scope_port import ScopePacer
from politesse.errors import ClosedError, PolitesseError, TooFar
from politesse.verdict import Bound, NotYet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from politesse._pacing.backoff import Heard
    from politesse._pacing.fleet.link import FleetLink
    from politesse._pacing.fleet.messages import FleetAnswer
    from politesse._pacing.pace import Pace, PacingOptions
    from politesse._pacing.scope_port import ScopePermit
    from politesse.clock import Clock, Timer
    from politesse.events import Publisher
    from politesse.ports import HostPace, PacedLine, TurnRequest

_COMFORTABLE: Final = 0.25  # a start that is late by less than this share of what it may be
_MOST_LINES: Final = 10_000


class ProcessPacer(ScopePacer, Protocol):
    """What the pacer of this process can do beside."""

    def pace(self, request: TurnRequest, /) -> Pace:
        """Return the interval that is in force for a request; raises ClosedError."""

    def heard(self, host: str, /) -> Heard:
        """Return what the answers of a host say."""

    def learn(self, host: str, backoff_s: float, fetch_backoff_s: float, /) -> None:
        """Take over longer backoffs of a busy host."""

    def asked(self, host: str, /) -> int:
        """Return how often it was noted that a busy host was asked."""


class _Held:
    """A start that is reserved in the background, for ``try_start`` to take.

    Attributes:
        request: for which.
        own: the permit of the pacer of this process.
        callbacks: to call once it is granted.
        is_watched: whether there were any.
        task: reserves it.
        granted: with what it was granted; None before that.
        timer: gives it back if nobody takes it in time.
    """

    __slots__ = ("callbacks", "granted", "is_watched", "own", "request", "task", "timer")

    def __init__(self, request: TurnRequest, own: ScopePermit) -> None:
        self.is_watched = False
        self.request = request
        self.own = own
        self.callbacks: list[Callable[[], None]] = []
        self.task: asyncio.Task[None] | None = None
        self.granted: Reservation | None = None
        self.timer: Timer | None = None


class FleetPacer:
    """Spaces the requests of all processes that share a Redis; see ``politesse.ports.Pacer``.

    Args:
        options: see PacingOptions. ``key`` names what its hosts are.
        link: the link of this process, which several pacers may share.
        make: makes the pacer of this process.
        clock: the clocks and the timer.
        publisher: receives TurnExpired.
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
        self._scope = f"{options.key}:"
        self._lines: dict[str, FleetLine] = {}
        self._held: dict[tuple[str, str, str], _Held] = {}
        self._reserving: dict[Reservation, str] = {}
        self._under_way: dict[FleetPermit, None] = {}
        self._held_long: HeldLong[FleetPermit] = HeldLong(
            clock, options.max_turn_s, self._under_way.keys, Reports(publisher).expire
        )
        self._renewal: Timer | None = None
        self._closed = False
        link.join(self)

    def try_start(self, request: TurnRequest, /) -> FleetPermit | NotYet:
        """Return a permit that was reserved before, or reserve one in the background."""
        self._check_open()
        held = self._held.get(request[:3])
        if held is not None and request.pace in {None, held.request.pace}:
            if held.granted is None:
                return self._unknown()
            permit = self._take(held)
            if permit is not None:
                return permit
        elif held is not None:
            self._let_go(held)  # another pace is stated now
        own = self._own.try_start(request)
        if isinstance(own, NotYet):
            return own
        self._hold(request, own)
        return self._unknown()

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
        self._check_open()
        deadline_mono = None if max_wait_s is None else self._clock.monotonic() + max_wait_s
        again = first
        while True:
            left_s = None if deadline_mono is None else max(0.0, deadline_mono - self._clock.monotonic())
            own = await self._own.start(request, left_s, first=again)
            try:
                reservation = await self._reserve(request, own, deadline_mono, max_wait_s)
            except BaseException:
                own.give_back()
                raise
            if reservation is not None:
                return self._permit(request, own, reservation, waited=again and not first)
            own.give_back()
            again = True

    def when_ready(self, request: TurnRequest, callback: Callable[[], None], /) -> None:
        """ScriptCall ``callback`` once, when a start is reserved for ``request`` and nothing waits; or at the close."""
        self._check_open()
        held = self._held.get(request[:3])
        if held is not None and held.granted is None:
            held.callbacks.append(callback)
        else:
            self._own.when_ready(request, partial(self._reserve_for, request, callback))

    def is_ready(self, request: TurnRequest, /) -> bool:
        """Return whether a start is reserved, or nothing that is known here delays one; True if it is closed."""
        held = self._held.get(request[:3])
        return (held is not None and held.granted is not None) or self._own.is_ready(request)

    def close_host(self, host: str, until_wall: float, bound_by: Bound, /) -> None:
        """Let nothing start at ``host`` before the Unix time ``until_wall``, in any process."""
        before_s = self._own.heard(host).closed_s
        self._own.close_host(host, until_wall, bound_by)
        self._report_closing(host, before_s)

    async def closed_until(self, host: str, /) -> float | None:
        """Return the Unix time until which ``host`` is closed; None if it is open."""
        try:
            await self._link.tried()
            answer = await self._link.ask(Script.CLOSE, self._scope + host, self._link.owner, 0, "", 0, 0)
        except WireLost:
            return await self._own.closed_until(host)
        self._learn(host, answer)
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
            self._link.post(Script.RELEASE, self._scope + host, "", "end", 1, -1, 0, 0, 0)
        self._report_closing(host, before_s)

    def hosts(self) -> dict[str, HostPace]:
        """Return what is known here of each busy host; what waits for other processes waits."""
        found = dict(self._own.hosts())
        for host in self._reserving.values():
            if (pace := found.get(host)) is not None:
                found[host] = replace(
                    pace, waiting=pace.waiting + 1, in_flight=max(0, pace.in_flight - 1), held_by="", held_s=0.0
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
        if self._closed:
            return
        self._closed = True
        self._held_long.stop()
        if self._renewal is not None:
            self._renewal.cancel()
        self.lost()
        reserving = []
        for held in list(self._held.values()):
            if held.granted is not None:
                self._let_go(held)
            elif held.task is not None:
                reserving.append(held.task)
        await asyncio.sleep(0)  # what was woken gives its ticket back
        await self._link.leave(self)
        await asyncio.gather(*reserving, return_exceptions=True)
        await self._own.aclose()

    @property
    def waiting(self) -> int:
        """How many requests wait for a permit."""
        return self._own.waiting + len(self._reserving)

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
        if not key.startswith(self._scope):
            return
        host = key.removeprefix(self._scope)
        line = self._lines.get(host)
        if answer.kind == "closed":
            self._learn(host, answer)
            return
        reservation = None if line is None else line.reservations.get(answer.ticket)
        if reservation is None:
            if answer.kind == "granted":  # it was withdrawn meanwhile
                self._link.post(Script.RELEASE, key, answer.ticket, "back", 0, -1, 0, 0, 0)
        else:
            reservation.take(answer, self._clock.monotonic())
            reservation.wake()

    def lost(self) -> None:
        """Void all grants that are not used yet."""
        for reservation in self._reserving:
            reservation.wake()

    def found(self) -> None:
        """Make known again what is under way."""
        for permit in self._under_way:
            self._renew(permit)
        for reservation in self._reserving:
            reservation.wake()

    def answered(self, permit: FleetPermit, status: int, headers: Mapping[str, str], /) -> None:
        """Record an answer, and close the host for all if it says so."""
        before_s = self._own.heard(permit.host).closed_s
        permit.own.observe(status, headers)
        self._report_closing(permit.host, before_s)

    def ended(self, permit: FleetPermit, /, *, with_request: bool) -> None:
        """Report an end."""
        self._under_way.pop(permit, None)
        permit.line.users -= 1
        self._forget(permit.host, permit.line)
        if with_request:
            self._release(permit)
        else:
            self._withdraw(permit.host, permit.reservation)

    def holds(self, permit: FleetPermit, /) -> bool:
        """Return whether a request may still start that could not be started at once."""
        reservation = permit.reservation
        if self._is_void(permit.line, reservation):
            return False
        # Beside a request that is alone nothing starts, however late it is.
        return permit.is_alone or self._is_in_time(permit.line, reservation)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the pacer is closed")
        self._link.check()

    def _unknown(self) -> NotYet:
        return NotYet(self._clock.wall(), Bound.QUEUE if self._link.is_up else Bound.FLEET)

    def _line(self, host: str) -> FleetLine:
        line = self._lines.get(host)
        if line is None:
            if len(self._lines) >= _MOST_LINES:
                for idle in [name for name, one in self._lines.items() if not one.users]:
                    del self._lines[idle]
            line = self._lines[host] = FleetLine()
        return line

    def _forget(self, host: str, line: FleetLine) -> None:
        if not line.users and line.patience == 1.0:
            self._lines.pop(host, None)

    def _permit(self, request: TurnRequest, own: ScopePermit, reservation: Reservation, *, waited: bool) -> FleetPermit:
        line = self._line(request.host)
        line.users += 1
        permit = FleetPermit(
            self,
            request,
            own,
            line,
            reservation,
            self._clock.monotonic(),
            is_alone=self._most(request.host) == 1,
            waited=waited or own.waited or reservation.has_waited,
        )
        self._under_way[permit] = None
        if not self._held_long.is_armed:
            self._held_long.arm()
        if self._renewal is None:
            self._renew_later()
        return permit

    def _most(self, host: str) -> int:
        return min(line.max_concurrent for line in self._own.lines(host))

    # A reservation

    async def _reserve(
        self, request: TurnRequest, own: ScopePermit, deadline_mono: float | None, max_wait_s: float | None
    ) -> Reservation | None:
        """Return a reservation with which the request starts now; None if it has to wait in the own line again."""
        line = self._line(request.host)
        line.users += 1
        reservation = Reservation(self._link.ticket(), request.url)
        self._reserving[reservation] = request.host
        line.reservations[reservation.ticket] = reservation
        starts = False
        try:
            async with line.turn:
                starts = await self._granted(request, line, reservation, deadline_mono, max_wait_s) and own.renew()
        finally:
            del self._reserving[reservation], line.reservations[reservation.ticket]
            line.users -= 1
            if not starts:
                self._withdraw(request.host, reservation)
                self._forget(request.host, line)
        return reservation if starts else None

    async def _granted(
        self,
        request: TurnRequest,
        line: FleetLine,
        reservation: Reservation,
        deadline_mono: float | None,
        max_wait_s: float | None,
    ) -> bool:
        """Wait until the request may start now; return False if the host is closed, so that it waits in its line."""
        pace = self._own.pace(request._replace(pace=None))  # what others have stated since counts
        while True:
            now_mono = self._clock.monotonic()
            answer = reservation.answer
            if answer is None or self._is_void(line, reservation):
                answer = await self._ask(request, line, reservation, pace)
                now_mono = self._clock.monotonic()
            if answer is None:  # Redis is away
                wait_s, not_yet = None, NotYet(self._clock.wall(), Bound.FLEET)
            elif answer.closed_by is not None and self._own.heard(request.host).closed_s:
                return False
            elif answer.kind == "queued":
                wait_s, not_yet = None, NotYet(self._clock.wall(), Bound.IN_FLIGHT, answer.held_by)
            elif (wait_s := reservation.starts_mono - now_mono) > 0.0:
                not_yet = NotYet(self._clock.wall() + wait_s, answer.bound(pace.bound_by))
            elif answer.kind == "granted" and self._is_in_time(line, reservation):
                return True
            else:  # late, or its time to be reserved again
                reservation.answer = None
                continue
            reservation.has_waited = True
            await self._pause(reservation, request, wait_s, not_yet, deadline_mono, max_wait_s)

    async def _ask(
        self, request: TurnRequest, line: FleetLine, reservation: Reservation, pace: Pace
    ) -> FleetAnswer | None:
        """Reserve a start; return None if Redis is away."""
        link, options = self._link, self._link.options
        await link.tried()
        self._check_open()
        if not link.is_up:
            return None
        slack_s = options.slack_s(pace.interval_s)
        tolerance_s = (slack_s or options.max_slack_s) * line.patience
        reservation.answer = None
        reservation.asked_mono = self._clock.monotonic()
        reservation.losses = link.losses
        reservation.is_known = True
        times_s = (pace.interval_s, slack_s, tolerance_s)
        try:
            answer = await link.ask(
                Script.RESERVE,
                self._scope + request.host,
                reservation.ticket,
                *map(microseconds, times_s),
                self._most(request.host),
                microseconds(link.hold_s(pace.interval_s)),
                microseconds(options.lease_s),
                " ".join(request.url.split()),  # one line
            )
        except WireLost:
            return None
        self._check_open()
        reservation.asked_at_us = answer.at_us
        reservation.take(answer, self._clock.monotonic())
        self._learn(request.host, answer)
        return reservation.answer

    async def _pause(
        self,
        reservation: Reservation,
        request: TurnRequest,
        wait_s: float | None,
        not_yet: NotYet,
        deadline_mono: float | None,
        max_wait_s: float | None,
    ) -> None:
        """Wait for the start, or a message; raises TooFar, at once if the start is known to come too late."""
        left_s = None if deadline_mono is None else deadline_mono - self._clock.monotonic()
        if left_s is not None and max_wait_s is not None and (left_s <= 0.0 or (wait_s or 0.0) > left_s):
            raise TooFar(request.host, not_yet, max_wait_s)
        longest_s = 0.5 * self._link.options.lease_s
        pause_s = min(longest_s if wait_s is None else wait_s, inf if left_s is None else left_s)
        asked = reservation.answer
        await reservation.pause(self._clock, pause_s)
        self._check_open()
        if wait_s is None and reservation.answer is asked and pause_s == longest_s:
            reservation.answer = None  # no message has come: ask again

    def _is_void(self, line: FleetLine, reservation: Reservation) -> bool:
        """Return whether the connection was lost, or the host closed, since the last answer."""
        answer = reservation.answer
        return (
            answer is None
            or not self._link.is_up
            or reservation.losses != self._link.losses
            or line.version > answer.at_us
        )

    def _is_in_time(self, line: FleetLine, reservation: Reservation) -> bool:
        """Return whether a start now is late by no more than it may be."""
        answer = reservation.answer
        late_s = reservation.late_s(self._clock.monotonic())
        if answer is None or late_s > answer.tolerance_s:
            line.was_late()
            return False
        if late_s < _COMFORTABLE * answer.tolerance_s:
            line.was_in_time()
        return True

    def _withdraw(self, host: str, reservation: Reservation) -> None:
        """Give a ticket back that was not used."""
        if reservation.is_known:
            self._link.post(Script.RELEASE, self._scope + host, reservation.ticket, "back", 0, -1, 0, 0, 0)

    def _release(self, permit: FleetPermit) -> None:
        """Report the end of a request, and what the answers of its host say."""
        heard, answer = self._own.heard(permit.host), permit.reservation.answer
        self._link.post(
            Script.RELEASE,
            self._scope + permit.host,
            permit.reservation.ticket,
            "end",
            int(permit.is_alone),
            *map(microseconds, (heard.pace_s, heard.backoff_s, heard.fetch_backoff_s)),
            0 if answer is None else answer.at_us,
        )

    def _renew(self, permit: FleetPermit) -> None:
        lease = microseconds(self._link.options.lease_s)
        url = " ".join(permit.url.split())
        self._link.post(Script.RENEW, self._scope + permit.host, permit.reservation.ticket, lease, url)

    def _renew_later(self) -> None:
        self._renewal = self._clock.call_later(self._link.options.lease_s / 3.0, self._renew_all)

    def _renew_all(self) -> None:
        """Renew the leases of all that is under way."""
        self._renewal = None
        for permit in self._under_way:
            self._renew(permit)
        if self._under_way:
            self._renew_later()

    def _learn(self, host: str, answer: FleetAnswer) -> None:
        """Take over what other processes have found out about a host."""
        line = self._lines.get(host)
        if line is not None and answer.version > line.version:
            line.version = answer.version
            for reservation in line.reservations.values():
                reservation.wake()
        if answer.backoff_s or answer.fetch_backoff_s:
            self._own.learn(host, answer.backoff_s, answer.fetch_backoff_s)
        if answer.closed_by is not None and answer.wait_s > self._own.heard(host).closed_s + AGREE_S:
            self._own.close_host(host, self._clock.wall() + answer.wait_s, answer.closed_by)

    def _report_closing(self, host: str, before_s: float) -> None:
        """Close the host for all processes if it is closed for longer than before."""
        heard = self._own.heard(host)
        if heard.closed_s > before_s + AGREE_S:
            times_s = (heard.backoff_s, heard.fetch_backoff_s)
            closed = microseconds(heard.closed_s)
            owner = self._link.owner
            self._link.post(
                Script.CLOSE, self._scope + host, owner, closed, heard.closed_by.value, *map(microseconds, times_s)
            )

    # Starts that are reserved in the background

    def _hold(self, request: TurnRequest, own: ScopePermit) -> _Held:
        """Reserve a start for the next ``try_start``."""
        held = self._held[request[:3]] = _Held(request, own)
        held.task = asyncio.get_running_loop().create_task(self._fill(held), name=f"a start at {request.host}")
        return held

    def _reserve_for(self, request: TurnRequest, callback: Callable[[], None]) -> None:
        """Reserve a start, and call back."""
        if self._closed:
            callback()
            return
        own = self._own.try_start(request)
        if isinstance(own, NotYet):
            self._own.when_ready(request, partial(self._reserve_for, request, callback))
        else:
            if (held := self._held.get(request[:3])) is not None:
                self._let_go(held)
            self._hold(request, own).callbacks.append(callback)

    async def _fill(self, held: _Held) -> None:
        request = held.request
        try:
            reservation = await self._reserve(request, held.own, None, None)
        except PolitesseError:  # what calls ``try_start`` is told
            self._drop(held)
            held.own.give_back()
            self._call(held)
            return
        except BaseException:
            held.own.give_back()
            raise
        if reservation is None:
            self._drop(held)
            held.own.give_back()
            for callback in held.callbacks:
                self.when_ready(request, callback)
            return
        held.granted = reservation
        line = self._line(request.host)
        line.users += 1
        answer = reservation.answer
        left_s = 0.0 if answer is None else answer.tolerance_s - reservation.late_s(self._clock.monotonic())
        held.timer = self._clock.call_later(max(left_s, 0.0), partial(self._let_go, held))
        if held.callbacks:
            self._call(held)
            self._let_go(held)

    def _call(self, held: _Held) -> None:
        """ScriptCall the first callback; the others wait again, because the first one may take the start."""
        callbacks, held.callbacks = held.callbacks, []
        held.is_watched = True
        for place, callback in enumerate(callbacks):
            if place and not self._closed:
                self.when_ready(held.request, callback)
            else:
                callback()

    def _drop(self, held: _Held) -> None:
        if self._held.get(held.request[:3]) is held:
            del self._held[held.request[:3]]

    def _take(self, held: _Held) -> FleetPermit | None:
        """Return the permit of a start that was reserved in the background; None if it is void by now."""
        reservation, request = held.granted, held.request
        if reservation is None:
            return None
        self._drop(held)
        held.granted = None
        if held.timer is not None:
            held.timer.cancel()
        line = self._line(request.host)
        line.users -= 1
        if not self._is_void(line, reservation) and self._is_in_time(line, reservation) and held.own.renew():
            return self._permit(request, held.own, reservation, waited=False)
        self._withdraw(request.host, reservation)
        held.own.give_back()
        return None

    def _let_go(self, held: _Held) -> None:
        """Give back a start that nobody has taken in time."""
        self._drop(held)
        reservation, held.granted = held.granted, None
        if reservation is None:
            if held.task is not None and held.task is not asyncio.current_task():
                held.task.cancel()
            return
        if held.timer is not None:
            held.timer.cancel()
        line = self._line(held.request.host)
        line.users -= 1
        if not held.is_watched:
            line.was_late()
        self._withdraw(held.request.host, reservation)
        held.own.give_back()
