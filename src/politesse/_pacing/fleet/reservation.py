"""One reservation of a start at Redis, and the permit that it becomes when the request starts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from politesse._pacing.fleet.messages import FleetAnswer
    from politesse._pacing.fleet.reserver import Reserver
    from politesse._pacing.hosts import Hosts, LocalPermit
    from politesse.clock import Clock
    from politesse.ports import FetchPermit, TurnRequest
    from politesse.verdict import NotYet

_PATIENCE: Final = 2.0
_MOST_PATIENCE: Final = 4096.0


@dataclass(slots=True, eq=False, weakref_slot=True)
class FleetHostState:
    """The state of a host at Redis, as this process knows it.

    Attributes:
        version: when the host was closed last, by the time of Redis, as far as this process knows.
        patience: the tolerance of a start is its slack times this factor. The factor is doubled after each start that
            exceeded its tolerance.
        turn: a lock. A reservation holds it from its first call to Redis until it is granted or given up.
        reservations: maps the tickets of waiting reservations to the reservations.
        used: the tickets of granted requests that have not ended.
    """

    version: int = 0
    patience: float = 1.0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def was_late(self) -> None:
        """Double the time by which starts may be late, up to a limit."""
        self.patience = min(self.patience * _PATIENCE, _MOST_PATIENCE)

    def was_in_time(self) -> None:
        """Halve the time by which starts may be late, down to the slack."""
        self.patience = max(self.patience / _PATIENCE, 1.0)


@dataclass(slots=True, eq=False)
class Reservation:
    """A ticket, and the last answer of Redis to it.

    Attributes:
        ticket: the name of the reservation at Redis.
        request: the request that wants to start.
        state: the state of its host.
        deadline_mono: until when it waits; infinite for no limit.
        max_wait_s: the longest wait that its caller permits.
        answer: the last answer; None before the first answer, and once the last answer is void.
        holders: the owners and sessions of the requests that the reservation has waited for.
        asked_mono: when the last call was sent.
        asked_at_us: the time of Redis when it answered that call.
        starts_mono: when the wait of the last answer ends. Depending on the answer, the request starts then, the ticket
            is reserved again, or the first lease of another request ends.
        losses: how many times the connection had been lost when the last call was sent; -1 before the first call, when
            Redis cannot know the ticket.
        not_yet: the reason for the wait; None if the reservation has only waited for the answer.
    """

    ticket: str
    request: TurnRequest
    state: FleetHostState
    deadline_mono: float = inf
    max_wait_s: float = inf
    answer: FleetAnswer | None = None
    holders: str = ""
    asked_mono: float = 0.0
    asked_at_us: int = 0
    starts_mono: float = 0.0
    losses: int = -1
    not_yet: NotYet | None = None
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, answer: FleetAnswer, now_mono: float) -> None:
        """Accept an answer or a message, unless a newer one came before: two connections deliver in any order."""
        if self.answer is None or answer.at_us >= self.answer.at_us:
            self.answer = answer
            self.starts_mono = now_mono + answer.wait_s

    def wake(self) -> None:
        """Let the waiting task check its answer at once."""
        self._woken.set()

    async def pause(self, clock: Clock, wait_s: float) -> None:
        """Wait until ``wake`` is called, for at most ``wait_s`` seconds."""
        self._woken.clear()
        timer = clock.call_later(max(wait_s, 0.0), self.wake)
        try:
            await self._woken.wait()
        finally:
            timer.cancel()

    def late_s(self, now_mono: float, stretch: float) -> float:
        """Return how late a start now is at most, in seconds; see ``ServerClock`` for ``stretch``.

        Redis reads its clock after the call was sent. So the time since the call is at least the time since that
        reading.
        """
        answer = self.answer
        if answer is None:
            return inf
        passed_there_s = (answer.at_us - self.asked_at_us) / 1e6 + answer.wait_s
        return (now_mono - self.asked_mono) * stretch - passed_there_s


@dataclass(slots=True, eq=False)
class FleetPermit:
    """Permission of a fleet for one request; see ``politesse.ports.Permit``.

    Attributes:
        reserver: the reserver that reserved the start; None after the end.
        host: the name of the paced host.
        url: the URL of the request; empty if the URL is unknown.
        own: the permit of the pacer of this process.
        reservation: the reservation that was granted.
        started_mono: when the permit was granted.
        is_alone: whether the host permits only one request at a time, so that the interval counts from the end of the
            request.
        waited: whether the request had to wait for the permit.
    """

    reserver: Reserver | None
    host: str
    url: str
    own: LocalPermit
    reservation: Reservation
    started_mono: float
    is_alone: bool
    waited: bool

    def observe(self, status: int, headers: Mapping[str, str], /) -> None:
        """Record the answer while the request is under way."""
        if self.reserver is not None:
            self.reserver.answered(self, status, headers)

    def end(self) -> None:
        """End the request: with ``max_concurrent=1``, the interval before the next request counts from now."""
        self._end(self.own.end)

    def expire(self) -> None:
        """End the permit because it was held for too long."""
        self._end(self.own.expire)

    def give_back(self) -> None:
        """End the permit without a request."""
        self._end(self.own.give_back, with_request=False)

    @property
    def under_way(self) -> bool:
        """Whether the permit has not ended."""
        return self.reserver is not None

    def renew(self) -> bool:
        """Stamp the permit again if it could not be used at once; return False if it would not be granted now."""
        return self.reserver is not None and self.reserver.holds(self) and self.own.renew()

    def _end(self, end_own: Callable[[], None], *, with_request: bool = True) -> None:
        reserver, self.reserver = self.reserver, None
        if reserver is not None:
            end_own()
            reserver.ended(self, with_request=with_request)


@dataclass(slots=True, eq=False)
class FleetFetch:
    """Permission for the request of a robots.txt; see ``politesse.ports.FetchPermit``."""

    _permit: FetchPermit
    _host: str
    _own: Hosts
    _reserver: Reserver

    def end(
        self, status: int | None = None, headers: Mapping[str, str] | None = None, elapsed_s: float = 0.0, /
    ) -> None:
        """End the request. If the answer closes the host, close the host for all processes."""
        before_s, last_mono = self._own.backoff_of(self._host).closed_s, self._own.last_mono(self._host)
        self._permit.end(status, headers, elapsed_s)
        if self._own.last_mono(self._host) != last_mono:
            self._reserver.count(self._host)
        self._reserver.report_closing(self._host, before_s)

    def give_back(self) -> None:
        """End the permit without a request."""
        self._permit.give_back()

    def opened(self) -> None:
        """Let the next page wait for one interval from now, in all processes."""
        self._permit.opened()
        self._reserver.count(self._host)
