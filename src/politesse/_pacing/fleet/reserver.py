"""Reserves starts in Redis for the heads of the lines of this process, and keeps what it has heard of each host."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from politesse._constants import AGREE_S
from politesse._pacing.fleet.link import HOLD_S
from politesse._pacing.fleet.messages import WireLost, microseconds
from politesse._pacing.fleet.reservation import FleetLine, Reservation, Trip
from politesse._pacing.fleet.scripts import Script
from politesse._pacing.scope_port import ScopePacer
from politesse.errors import ClosedError, ConfigurationError, TooFar
from politesse.verdict import Bound, NotYet

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse._pacing.backoff import Heard
    from politesse._pacing.fleet.link import FleetLink
    from politesse._pacing.fleet.messages import FleetAnswer
    from politesse._pacing.fleet.permit import FleetPermit
    from politesse._pacing.pace import Pace
    from politesse._pacing.scope_port import ScopePermit
    from politesse.clock import Clock
    from politesse.ports import TurnRequest

_COMFORTABLE: Final = 0.25  # a start that is late by less than this share of what it may be
_MOST_LINES: Final = 10_000
_MOST_ENDS: Final = 10_000  # that are remembered


class ProcessPacer(ScopePacer, Protocol):
    """What the pacer of this process can do beside."""

    def try_start(self, request: TurnRequest, /, *, ahead_s: float = 0.0) -> ScopePermit | NotYet:
        """See Pacer; the permit may come ``ahead_s`` early, and is for ``renew`` to make valid."""

    def when_ready(self, request: TurnRequest, callback: Callable[[], None], /, *, ahead_s: float = 0.0) -> None:
        """See Pacer; the call may come ``ahead_s`` early."""

    def is_ready(self, request: TurnRequest, /, *, ahead_s: float = 0.0) -> bool:
        """See ScopePacer; it may be ``ahead_s`` early."""

    def pace(self, request: TurnRequest, /) -> Pace:
        """Return the interval that is in force for a request; raises ClosedError."""

    def heard(self, host: str, /) -> Heard:
        """Return what the answers of a host say."""

    def learn(self, host: str, backoff_s: float, fetch_backoff_s: float, /) -> None:
        """Take over longer backoffs of a busy host."""

    def asked(self, host: str, /) -> int:
        """Return how often it was noted that a busy host was asked."""


class Reserver:
    """Reserves starts, for one scope.

    Args:
        link: the link of this process.
        own: the pacer of this process.
        scope: what the keys of the scope begin with, after the prefix of the fleet.
        clock: the clocks and the timer.

    Attributes:
        reserving: the reservations that wait, with their hosts.
        trip: how long Redis takes to answer a reservation.
        is_closed: whether the pacer is closed.
    """

    def __init__(self, link: FleetLink, own: ProcessPacer, scope: str, clock: Clock) -> None:
        self._link = link
        self._own = own
        self._scope = scope
        self._clock = clock
        self._lines: dict[str, FleetLine] = {}
        self._ends: dict[str, tuple[str, float]] = {}  # the last one in this process, by host: its ticket, and when
        self.reserving: dict[Reservation, str] = {}
        self.trip = Trip()
        self.is_closed = False
        self._all_ended = asyncio.Event()

    def check_open(self) -> None:
        """Raise ClosedError if the pacer is closed; ConfigurationError if Redis refuses this client."""
        if self.is_closed:
            raise ClosedError("the pacer is closed")
        self._link.check()

    def is_refused(self) -> bool:
        """Return whether Redis refuses this client; raises ClosedError if the pacer is closed."""
        try:
            self.check_open()
        except ConfigurationError:
            return True
        return False

    def wake(self) -> None:
        """Have all that wait look what has changed."""
        for reservation in self.reserving:
            reservation.wake()

    async def ended(self) -> None:
        """Wait until all that was being reserved at the close has given its ticket back, as long as Redis may take.

        Otherwise what Redis grants meanwhile would keep its host from all others until its lease is over.
        """
        if self.reserving:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._link.options.timeout_s):
                    await self._all_ended.wait()

    def lost(self) -> None:
        """Void all answers. When a host was closed counts from the next ones: they may be by another clock."""
        for line in self._lines.values():
            line.version = 0
        self._ends.clear()
        self.wake()

    def pushed(self, host: str, answer: FleetAnswer) -> None:
        """Take a message about a host."""
        if answer.kind == "closed":
            self.learn(host, answer)
            return
        line = self._lines.get(host)
        reservation = None if line is None else line.reservations.get(answer.ticket)
        if reservation is not None:
            reservation.take(answer, self._clock.monotonic(), self._end_mono(host, answer))
            reservation.wake()
        elif answer.kind == "granted" and (line is None or answer.ticket not in line.used):  # withdrawn meanwhile
            self._give_back(host, answer.ticket)

    def line(self, host: str) -> FleetLine:
        """Return what is known of a host."""
        line = self._lines.get(host)
        if line is None:
            if len(self._lines) >= _MOST_LINES:
                for idle in [name for name, one in self._lines.items() if not one.users]:
                    del self._lines[idle]
            line = self._lines[host] = FleetLine()
        return line

    def forget(self, host: str, line: FleetLine) -> None:
        """Let go of a line that has no user."""
        if not line.users and line.patience == 1.0:
            self._lines.pop(host, None)

    def most(self, host: str) -> int:
        """Return how many requests may be under way to a host at once."""
        return min(line.max_concurrent for line in self._own.lines(host))

    def ahead_s(self, request: TurnRequest) -> float:
        """Return how long before its interval is over a start has to be reserved, so that its grant is here in time.

        Redis adds a slack to the interval, which covers most trips.
        """
        slack_s = self._link.options.slack_s(self._own.pace(request).interval_s)
        return max(0.0, self.trip.most_s - slack_s)

    async def reserve(
        self, request: TurnRequest, own: ScopePermit, deadline_mono: float | None, max_wait_s: float | None
    ) -> Reservation | None:
        """Return a reservation with which the request starts now; None if it has to wait in the own line again."""
        line = self.line(request.host)
        line.users += 1
        reservation = Reservation(self._link.ticket(), request.url)
        self.reserving[reservation] = request.host
        line.reservations[reservation.ticket] = reservation
        starts = False
        try:
            async with line.turn:
                starts = await self._granted(request, line, reservation, deadline_mono, max_wait_s) and own.renew()
        finally:
            del self.reserving[reservation], line.reservations[reservation.ticket]
            line.users -= 1
            if starts:
                line.used.add(reservation.ticket)
            else:
                self.withdraw(request.host, reservation)
                self.forget(request.host, line)
            if self.is_closed and not self.reserving:
                self._all_ended.set()
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
            answer = reservation.answer
            if answer is None or self.is_void(line, reservation):
                answer = await self._ask(request, line, reservation, pace, deadline_mono)
            now_mono, now_wall = self._clock.monotonic(), self._clock.wall()
            wait_s: float | None = None
            if answer is None:
                # Redis is away, or it may not know yet what is under way.
                wait_s = self._link.hold_s(pace.interval_s) if self._link.is_up else None
                not_yet = NotYet(now_wall + (wait_s or 0.0), Bound.FLEET)
            elif answer.closed_by is not None and self._own.heard(request.host).closed_s:
                return False
            elif answer.kind == "queued":
                not_yet = NotYet(now_wall, Bound.IN_FLIGHT, answer.held_by)
            elif (wait_s := reservation.starts_mono - now_mono) > 0.0:
                not_yet = NotYet(now_wall + wait_s, answer.bound(pace.bound_by))
            elif answer.kind == "granted" and self.is_in_time(line, reservation):
                return True
            else:  # late, or its time to be reserved again
                reservation.answer = None
                continue
            reservation.has_waited = True
            reservation.not_yet = not_yet
            await self._pause(reservation, request, wait_s, not_yet, deadline_mono, max_wait_s)

    async def _ask(
        self,
        request: TurnRequest,
        line: FleetLine,
        reservation: Reservation,
        pace: Pace,
        deadline_mono: float | None,
    ) -> FleetAnswer | None:
        """Reserve a start; return None if Redis is away, or was until a moment ago."""
        link, options = self._link, self._link.options
        await link.tried()
        self.check_open()
        if not link.is_up or link.hold_s(pace.interval_s):
            return None
        slack_s = options.slack_s(pace.interval_s)
        tolerance_s = (slack_s or options.max_slack_s) * line.patience
        if self.most(request.host) == 1:  # the next one waits for its end, and is no later for a start that may be late
            tolerance_s = max(tolerance_s, options.max_slack_s)
        reservation.answer = None
        reservation.asked_mono = self._clock.monotonic()
        reservation.losses = link.losses
        reservation.is_known = True
        left_s = options.lease_s
        if deadline_mono is not None:
            left_s = min(left_s, max(0.0, deadline_mono - reservation.asked_mono))
        times_s = (pace.interval_s, slack_s, tolerance_s)
        try:
            answer = await link.ask(
                Script.RESERVE,
                self._scope + request.host,
                reservation.ticket,
                *map(microseconds, times_s),
                self.most(request.host),
                microseconds(options.lease_s),
                " ".join(request.url.split()),  # one line
                microseconds(left_s),
            )
        except WireLost:
            self.check_open()
            return None
        self.check_open()
        self.trip.took(self._clock.monotonic() - reservation.asked_mono)
        reservation.asked_at_us = answer.at_us
        reservation.take(answer, self._clock.monotonic(), self._end_mono(request.host, answer))
        self.learn(request.host, answer)
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
        self.check_open()
        if wait_s is None and reservation.answer is asked and pause_s == longest_s:
            reservation.answer = None  # no message has come: ask again

    def is_void(self, line: FleetLine, reservation: Reservation) -> bool:
        """Return whether the connection was lost, or the host closed, since the last answer."""
        answer = reservation.answer
        return (
            answer is None
            or not self._link.is_up
            or reservation.losses != self._link.losses
            or line.version > answer.at_us
        )

    def is_in_time(self, line: FleetLine, reservation: Reservation) -> bool:
        """Return whether a start now is late by no more than it may be."""
        answer = reservation.answer
        if answer is None or reservation.late_s(self._clock.monotonic()) > answer.tolerance_s:
            line.was_late()
            return False
        return True

    def starts(self, line: FleetLine, reservation: Reservation) -> None:
        """Note by how much the start that is made now is late."""
        answer = reservation.answer
        if answer is not None and reservation.late_s(self._clock.monotonic()) < _COMFORTABLE * answer.tolerance_s:
            line.was_in_time()

    def withdraw(self, host: str, reservation: Reservation) -> None:
        """Give a ticket back that was not used."""
        self._end_use(host, reservation)
        if reservation.is_known:
            self._give_back(host, reservation.ticket)

    def _end_use(self, host: str, reservation: Reservation) -> None:
        line = self._lines.get(host)
        if line is not None:
            line.used.discard(reservation.ticket)

    def _give_back(self, host: str, ticket: str) -> None:
        self._link.post(Script.RELEASE, self._scope + host, ticket, "back", 0, -1, 0, 0, 0)

    def count(self, host: str) -> None:
        """Count a request without a ticket."""
        self._link.post(Script.RELEASE, self._scope + host, "", "end", 1, -1, 0, 0, 0)

    def release(self, permit: FleetPermit) -> None:
        """Report the end of a request, and what the answers of its host say."""
        self._end_use(permit.host, permit.reservation)
        if permit.is_alone and self._link.is_up and permit.reservation.losses == self._link.losses:
            self._note_end(permit.host, permit.reservation.ticket)
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

    def _note_end(self, host: str, ticket: str) -> None:
        """Note when a request has ended, before that is sent."""
        self._ends.pop(host, None)
        if len(self._ends) >= _MOST_ENDS:
            del self._ends[next(iter(self._ends))]
        self._ends[host] = ticket, self._clock.monotonic()

    def _end_mono(self, host: str, answer: FleetAnswer) -> float:
        """Return when the request ended whose end is all that binds a grant; infinite if this process does not know."""
        ticket, end_mono = self._ends.get(host, ("", inf))
        return end_mono if answer.kind == "granted" and answer.ended == ticket else inf

    def renew(self, permit: FleetPermit) -> None:
        """Have a request count as under way for longer."""
        lease = microseconds(self._link.options.lease_s)
        url = " ".join(permit.url.split())
        self._link.post(Script.RENEW, self._scope + permit.host, permit.reservation.ticket, lease, url)

    def learn(self, host: str, answer: FleetAnswer) -> None:
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

    def report_slow(self, host: str) -> None:
        """Have all processes wait out the interval that the answers of a host ask for, from now on, if it is long.

        Those that have not asked it do not know that interval, and wait for no longer than ``HOLD_S`` and their own.
        """
        heard = self._own.heard(host)
        if heard.pace_s > HOLD_S:
            times_s = (heard.pace_s, heard.backoff_s, heard.fetch_backoff_s)
            self._link.post(Script.RELEASE, self._scope + host, "", "end", 1, *map(microseconds, times_s), 0)

    def report_closing(self, host: str, before_s: float) -> None:
        """Close the host for all processes if it is closed for longer than before."""
        heard = self._own.heard(host)
        if heard.closed_s > before_s + AGREE_S:
            times_s = (heard.backoff_s, heard.fetch_backoff_s)
            closed = microseconds(heard.closed_s)
            owner = self._link.owner
            self._link.post(
                Script.CLOSE, self._scope + host, owner, closed, heard.closed_by.value, *map(microseconds, times_s)
            )
