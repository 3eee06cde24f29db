"""One reservation of a start at Redis, and the permit that it becomes when the request starts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from politesse._pacing.fetch_lines import LocalFetch
    from politesse._pacing.fleet.messages import FleetAnswer
    from politesse._pacing.fleet.reserver import Reserver
    from politesse._pacing.hosts import Hosts, LocalPermit
    from politesse._pacing.requests import TurnRequest
    from politesse.clock import Clock
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
class Grant:
    """A reservation that was granted at one key: a host, a domain or an address.

    Attributes:
        reserver: the reserver that reserved the start.
        reservation: the reservation.
        is_alone: whether the key permits only one request at a time, so that the interval counts from the end of the
            request.
    """

    reserver: Reserver
    reservation: Reservation
    is_alone: bool

    @property
    def key(self) -> str:
        """The key."""
        return self.reservation.request.host

    def holds(self) -> bool:
        """Return whether the grant still holds, although it was not used at once."""
        return self.reserver.holds(self)

    def end(self, *, with_request: bool = True) -> None:
        """Report the end of the request, or give the ticket back."""
        self.reserver.ended(self, with_request=with_request)


@dataclass(slots=True, eq=False)
class FleetPermit:
    """Permission of a fleet for one request; see ``Permit``.

    Attributes:
        host: the name of the paced host.
        url: the URL of the request; empty if the URL is unknown.
        own: the permit of the pacer of this process.
        grants: what Redis has granted: at the host first, then at its domain and its address; empty after the end.
        others: the permits that have not ended.
        started_mono: when the permit was granted.
        waited: whether the request had to wait for the permit.
    """

    host: str
    url: str
    own: LocalPermit
    grants: Sequence[Grant]
    others: dict[FleetPermit, None]
    started_mono: float
    waited: bool

    def observe(self, status: int, headers: Mapping[str, str], /) -> None:
        """Record the answer while the request is under way."""
        if self.grants:
            self.grants[0].reserver.answered(self.own, status, headers)

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
        return bool(self.grants)

    def renew(self) -> bool:
        """Stamp the permit again if it could not be used at once; return False if it would not be granted now."""
        return self.under_way and all(grant.holds() for grant in self.grants) and self.own.renew()

    def _end(self, end_own: Callable[[], None], *, with_request: bool = True) -> None:
        grants, self.grants = self.grants, ()
        if grants:
            self.others.pop(self, None)
            end_own()
            for grant in grants:
                grant.end(with_request=with_request)


@dataclass(slots=True, eq=False)
class FleetFetch:
    """Permission for the request of a robots.txt; see ``FetchPermit``.

    Attributes:
        own: the permit of the pacer of this process.
        hosts: that pacer.
        reservers: the reserver of the host, and those of its domain and address.
    """

    own: LocalFetch
    hosts: Hosts
    reservers: Sequence[Reserver]

    def end(
        self, status: int | None = None, headers: Mapping[str, str] | None = None, elapsed_s: float = 0.0, /
    ) -> None:
        """End the request. If the answer closes the host, close the host for all processes."""
        before_s, asked = self.hosts.backoff_of(self.own.host).closed_s, self.hosts.asked(self.own)
        self.own.end(status, headers, elapsed_s)
        for (key, reserver), before, after in zip(self._keys(), asked, self.hosts.asked(self.own), strict=True):
            if after != before:
                reserver.count(key)
        self.reservers[0].report_closing(self.own.host, before_s)

    def give_back(self) -> None:
        """End the permit without a request."""
        self.own.give_back()

    def opened(self) -> None:
        """Let the next page wait for one interval from now, in all processes."""
        self.own.opened()
        for key, reserver in self._keys():
            reserver.count(key)

    def _keys(self) -> Iterable[tuple[str, Reserver]]:
        """Return the key and the reserver of the host, its domain and its address."""
        return zip([self.own.host, *(name for _, name in self.own.limits)], self.reservers, strict=True)
