"""Reserves starts in Redis for the first waiters of this process, and reports the ends of their requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from cachetools import LRUCache

from politesse._base.constants import AGREE_S
from politesse._pacing.fleet.link import HOLD_S
from politesse._pacing.fleet.messages import FleetAnswer, WireLost
from politesse._pacing.fleet.reservation import FleetHostState, Grant, Reservation
from politesse._pacing.fleet.scripts import Script
from politesse._pacing.host_state import BackoffSnapshot
from politesse._pacing.pace import Limit, Pace
from politesse.errors import ClosedError, TooFar
from politesse.verdict import Bound, NotYet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from politesse._pacing.fleet.link import FleetLink
    from politesse._pacing.hosts import Hosts, LocalPermit
    from politesse._pacing.requests import TurnRequest
    from politesse.clock import Clock
    from politesse.status import HostStatus

_COMFORTABLE: Final = 0.25  # if a start uses less than this share of its tolerance, ``patience`` is halved
_AFTER_LEASE_S: Final = 0.01
_MOST_LATE: Final = 10_000


class Reserver:
    """Reserves the starts of one scope.

    Args:
        link: the link of this process.
        own: the pacer of this process, or the keys with a limit.
        scope: the text with which the keys of the scope begin, after the prefix of the fleet.
        clock: the clocks and the timer.

    Attributes:
        reserving: the reservations that wait.
        under_way: the grants whose requests have not yet ended.
        is_closed: whether the pacer is closed.
    """

    def __init__(self, link: FleetLink, own: Hosts | LimitedKeys, scope: str, clock: Clock) -> None:
        self._link = link
        self._own = own
        self._scope = scope
        self._clock = clock
        # Reservations and permits keep the state of their host alive. The state of a host with late starts is kept for
        # longer.
        self._states: WeakValueDictionary[str, FleetHostState] = WeakValueDictionary()
        self._late: LRUCache[str, FleetHostState] = LRUCache(_MOST_LATE)
        self.reserving: dict[Reservation, None] = {}
        self.under_way: dict[Grant, None] = {}
        self.is_closed: bool = False
        link.join(self)

    def check_open(self) -> None:
        """Raise ClosedError if the pacer is closed; ConfigurationError if Redis refuses this client."""
        if self.is_closed:
            raise ClosedError("the pacer is closed")
        self._link.check()

    async def aclose(self) -> None:
        """Give all tickets back, raise ClosedError in all waiting tasks, and leave the link.

        A grant that is not given back would hold up its host for all processes until the lease ends.
        """
        self.is_closed = True
        for reservation in self.reserving:
            self.withdraw(reservation)
        self.wake()
        await self._link.leave(self)

    # Called by the link

    def is_busy(self) -> bool:
        """Return whether a request waits for Redis, or is under way."""
        return bool(self.under_way or self.reserving)

    def wake(self) -> None:
        """Wake all reservations."""
        for reservation in self.reserving:
            reservation.wake()

    def lost(self) -> None:
        """Forget each ``version``, because the next server may have another clock. Wake all reservations."""
        for state in self._states.values():
            state.version = 0
        self.wake()

    def found(self) -> None:
        """Renew the leases of the requests under way, and report the closed and slow hosts again."""
        self.renew(0.0)
        for host, pace in self._own.hosts().items():
            self._report_slow(host)
            if pace.closed_until is not None:
                self.report_closing(host)

    def renew(self, least_s: float) -> None:
        """Renew the leases of requests that may have started ``least_s`` seconds ago or earlier."""
        latest_mono = self._clock.monotonic() - least_s
        lease_us, session = self._link.us_there(self._link.options.lease_s), self._link.roster.session
        for grant in self.under_way:
            reservation = grant.reservation
            if reservation.starts_mono <= latest_mono:  # the lease counts from the granted start
                key, url = self._scope + grant.key, reservation.request.url
                self._link.post(Script.RENEW, key, reservation.ticket, lease_us, url, session)

    def pushed(self, key: str, answer: FleetAnswer) -> None:
        """Handle a message about a key."""
        if not key.startswith(self._scope):
            return
        host = key.removeprefix(self._scope)
        if answer.kind == "closed":
            self.learn(host, answer)
            return
        state = self._states.get(host)
        reservation = None if state is None else state.reservations.get(answer.ticket)
        if reservation is not None:
            reservation.take(answer, self._clock.monotonic())
            reservation.wake()
        elif answer.kind == "granted" and (state is None or answer.ticket not in state.used):  # ticket was withdrawn
            self._give_back(host, answer.ticket)

    # Reservations

    async def reserve(
        self, request: TurnRequest, own: LocalPermit, deadline_mono: float, max_wait_s: float
    ) -> Grant | None:
        """Return a grant if the request may start now; None if it has to go back into its own line.

        Args:
            request: the request; its ``host`` is the key.
            own: the permit of the pacer of this process.
            deadline_mono: until when to wait; infinite for no limit.
            max_wait_s: the longest wait that the caller permits, for the error.
        """
        state = self._states.setdefault(request.host, FleetHostState())
        reservation = Reservation(self._link.ticket(), request, state, deadline_mono, max_wait_s)
        self.reserving[reservation] = None
        state.reservations[reservation.ticket] = reservation
        starts = False
        try:
            async with state.turn:
                starts = await self._granted(reservation, self._own.pace_of(own)) and own.renew()
        finally:
            del self.reserving[reservation], state.reservations[reservation.ticket]
            if starts:
                state.used.add(reservation.ticket)
            else:
                self.withdraw(reservation)
        if not starts:
            return None
        grant = Grant(self, reservation, is_alone=self._own.most(request.host) == 1)
        self.under_way[grant] = None
        return grant

    async def _granted(self, reservation: Reservation, pace: Pace) -> bool:
        """Wait until the request may start now; return False if the host is closed."""
        request = reservation.request
        while True:
            answer = reservation.answer
            if answer is None or self.is_void(reservation):
                answer = await self._ask(reservation, pace)
            now_mono, now_wall = self._clock.monotonic(), self._clock.wall()
            wait_s: float | None = None
            if answer is None:
                # Redis is away, or may not know all requests under way.
                wait_s = self._link.hold_s(pace.interval_s)
                not_yet = NotYet(now_wall + (wait_s or 0.0), Bound.FLEET)
            elif answer.closed_by is not None and self._own.backoff_of(request.host).closed_s:
                return False
            elif answer.kind == "queued":
                not_yet = NotYet(now_wall, Bound.IN_FLIGHT, answer.held_by)
                lease_ended = now_mono >= reservation.starts_mono + _AFTER_LEASE_S
                if lease_ended or self._link.roster.has_dead(answer.holders):
                    reservation.holders, reservation.answer = answer.holders, None
                    continue
            elif (wait_s := reservation.starts_mono - now_mono) > 0.0:
                not_yet = NotYet(now_wall + wait_s, answer.bound(pace.bound_by))
            elif answer.kind == "granted" and self.is_in_time(reservation):
                return True
            else:  # the start is too late, or the answer was ``wait``: ask again
                reservation.answer = None
                continue
            reservation.not_yet = not_yet
            await self._pause(reservation, wait_s, not_yet)

    async def _ask(self, reservation: Reservation, pace: Pace) -> FleetAnswer | None:
        """Reserve a start; return None if Redis is away or came back a moment ago."""
        link, request = self._link, reservation.request
        await link.tried()
        self.check_open()
        if link.hold_s(pace.interval_s) != 0.0:
            return None
        reservation.answer = None
        reservation.asked_mono = self._clock.monotonic()
        reservation.losses = link.losses
        words = self._words(reservation, pace)
        try:
            answer = await link.ask(Script.RESERVE, self._scope + request.host, reservation.ticket, *words)
        except WireLost:
            self.check_open()
            return None
        self.check_open()
        reservation.asked_at_us = answer.at_us
        reservation.take(answer, self._clock.monotonic())
        self.learn(request.host, answer)
        return reservation.answer

    def _words(self, reservation: Reservation, pace: Pace) -> tuple[str | int, ...]:
        """Return the arguments of ``reserve.lua`` after the ticket."""
        options, most = self._link.options, self._own.most(reservation.request.host)
        slack_s = options.slack_s(pace.interval_s)
        tolerance_s = (slack_s or options.max_slack_s) * reservation.state.patience
        if most == 1:  # the next interval counts from the end of this request, even if its start is late
            tolerance_s = max(tolerance_s, options.max_slack_s)
            slack_s = options.spacing_s(pace.interval_s)
        left_s = min(options.lease_s, max(0.0, reservation.deadline_mono - reservation.asked_mono))
        return (
            *map(self._link.us_there, (pace.interval_s, slack_s, tolerance_s)),
            most,
            self._link.us_there(options.lease_s),
            reservation.request.url,
            self._link.us_there(left_s),
            self._link.roster.alive_words(self._link.owner, reservation.holders),
        )

    async def _pause(self, reservation: Reservation, wait_s: float | None, not_yet: NotYet) -> None:
        """Wait for the start or a message; raises TooFar, without a wait if the start is beyond the deadline."""
        now_mono = self._clock.monotonic()
        left_s = reservation.deadline_mono - now_mono
        if left_s <= 0.0 or (wait_s or 0.0) > left_s:
            raise TooFar(reservation.request.host, not_yet, reservation.max_wait_s)
        if wait_s is None:  # wait until a message comes, or the lease of the request under way ends
            wait_s = self._link.options.lease_s
            if reservation.answer is not None:
                wait_s = reservation.starts_mono + _AFTER_LEASE_S - now_mono
        await reservation.pause(self._clock, min(wait_s, left_s))
        self.check_open()

    def is_void(self, reservation: Reservation) -> bool:
        """Return whether the connection was lost, or the host closed, since the last answer."""
        answer = reservation.answer
        return (
            answer is None
            or not self._link.is_up
            or reservation.losses != self._link.losses
            or reservation.state.version > answer.at_us
        )

    def is_in_time(self, reservation: Reservation) -> bool:
        """Return whether a start now is within its tolerance."""
        state, answer = reservation.state, reservation.answer
        late_s = reservation.late_s(self._clock.monotonic(), self._link.clocks.stretch)
        if answer is None or late_s > answer.tolerance_s:
            state.was_late()
            self._late[reservation.request.host] = state
            return False
        if late_s < _COMFORTABLE * answer.tolerance_s:
            state.was_in_time()
        return True

    def holds(self, grant: Grant) -> bool:
        """Return whether a grant that was not used at once still holds."""
        reservation = grant.reservation
        if self.is_void(reservation):
            return False
        if grant.is_alone:  # until its lease ends, no other request starts, so a late start does no harm
            late_s = reservation.late_s(self._clock.monotonic(), self._link.clocks.stretch)
            return late_s <= 0.5 * self._link.options.lease_s
        return self.is_in_time(reservation)

    # Reports

    def answered(self, own: LocalPermit, status: int, headers: Mapping[str, str]) -> None:
        """Record an answer, and close the host for all processes if the answer says so."""
        before_s = self._own.backoff_of(own.host).closed_s
        own.observe(status, headers)
        self.report_closing(own.host, before_s)

    def ended(self, grant: Grant, *, with_request: bool) -> None:
        """Report the end of a request, with the backoff and pace of the host."""
        self.under_way.pop(grant, None)
        reservation = grant.reservation
        if with_request:
            reservation.state.used.discard(reservation.ticket)
            at_us = 0 if reservation.answer is None else reservation.answer.at_us
            snapshot = self._own.backoff_of(grant.key)
            self._post_end(grant.key, reservation.ticket, snapshot, at_us, is_alone=grant.is_alone)
        else:
            self.withdraw(reservation)

    def withdraw(self, reservation: Reservation) -> None:
        """Give an unused ticket back."""
        reservation.state.used.discard(reservation.ticket)
        if reservation.losses >= 0:
            self._give_back(reservation.request.host, reservation.ticket)

    def _give_back(self, host: str, ticket: str) -> None:
        self._link.post(Script.RELEASE, self._scope + host, ticket, "back", 0, -1, 0, 0, 0, 0)

    def count(self, host: str) -> None:
        """Report a request without a ticket, so that the next interval counts from now."""
        self._link.post(Script.RELEASE, self._scope + host, "", "end", 1, -1, 0, 0, 0, 0)

    def learn(self, host: str, answer: FleetAnswer) -> None:
        """Adopt the closures and backoff of a host from other processes."""
        state = self._states.get(host)
        if state is not None and answer.version > state.version:
            state.version = answer.version
            for reservation in state.reservations.values():
                reservation.wake()
        if answer.closed_by is not None and answer.wait_s > self._own.backoff_of(host).closed_s + AGREE_S:
            self._own.close_key(host, self._clock.wall() + answer.wait_s, answer.closed_by)
        if answer.backoff_s or answer.fetch_backoff_s or answer.refusal_s:
            self._own.learn(host, answer.backoff_s, answer.fetch_backoff_s, answer.refusal_s)

    def _report_slow(self, host: str) -> None:
        """If the answers of a host ask for a long interval, let all processes wait for that interval from now on.

        Other processes may not know this interval. After they connect, they only wait for their own interval, and at
        least for ``HOLD_S``.
        """
        snapshot = self._own.backoff_of(host)
        if snapshot.pace_s > HOLD_S:
            self._post_end(host, "", snapshot, 0, is_alone=True)

    def _post_end(self, host: str, ticket: str, snapshot: BackoffSnapshot, at_us: int, *, is_alone: bool) -> None:
        times = map(
            self._link.us_there, (snapshot.pace_s, snapshot.backoff_s, snapshot.fetch_backoff_s, snapshot.refusal_s)
        )
        self._link.post(Script.RELEASE, self._scope + host, ticket, "end", int(is_alone), *times, at_us)

    def report_closing(self, host: str, before_s: float = 0.0) -> None:
        """If the host is now closed for longer than ``before_s``, close it for all processes."""
        snapshot = self._own.backoff_of(host)
        if snapshot.closed_s > before_s + AGREE_S:
            times = snapshot.closed_s, snapshot.backoff_s, snapshot.fetch_backoff_s, snapshot.refusal_s
            closed, *backoffs = map(self._link.us_there, times)
            words = (self._link.owner, closed, snapshot.closed_by.value, *backoffs)
            self._link.post(Script.CLOSE, self._scope + host, *words)


class LimitedKeys:
    """The domains or addresses with a limit, as a Reserver needs them: no answer closes or slows them.

    Args:
        limit: the limit of each of them.
    """

    def __init__(self, limit: Limit) -> None:
        self._limit = limit

    def pace_of(self, own: LocalPermit, /) -> Pace:
        """Return the interval."""
        del own
        return Pace(self._limit.min_delay_s, Bound.FLOOR)

    def most(self, key: str, /) -> int:
        """Return how many requests may be under way at once."""
        del key
        return self._limit.max_concurrent

    def backoff_of(self, key: str, /) -> BackoffSnapshot:
        """Return no backoff."""
        del key
        return BackoffSnapshot()

    def hosts(self) -> Mapping[str, HostStatus]:
        """Return no host: there is nothing to report again."""
        return {}

    def close_key(self, key: str, until_wall: float, bound_by: Bound, /) -> None:
        """Do nothing: only a host is closed."""

    def learn(self, key: str, backoff_s: float, fetch_backoff_s: float, refusal_s: float, /) -> None:
        """Do nothing: only a host backs off."""
