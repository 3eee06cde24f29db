"""Publishes long waits and closed hosts, and ends permits that were held for too long.

Theory of operation. A new permit arms the timer unless it is armed already. The end of a permit does not touch the
timer. When the timer fires, every permit that has not ended is checked. Then the timer is armed again for the time at
which the next permit reaches ``HELD_S`` or ``max_turn_s``, but at most ``HELD_S`` later. So the timer fires every few
seconds while a permit is under way, and a short request only reads ``is_armed``.

    started --- HELD_S -------> each further check calls ``long``, which publishes the wait of other requests
            --- max_turn_s ---> ``expired`` is called, and has to end the permit
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import ref

from politesse._pacing.host import NEVER, PacedHost
from politesse.events import HeaderOverruled, HostClosed, HostOpened, LongWait, Publisher, TurnExpired
from politesse.verdict import Bound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from politesse._pacing.fleet.reservation import FleetPermit
    from politesse._pacing.permit import LocalPermit, Waiter
    from politesse._pacing.refusals import IgnoredHeader
    from politesse._pacing.scoped import ScopedPermit
    from politesse.clock import Clock, Timer

    Held: TypeAlias = FleetPermit | LocalPermit | ScopedPermit

LONG_S: Final = 60.0
"""A wait in line that takes longer than this many seconds is published."""

HELD_S: Final = 5.0
"""After this many seconds, a permit counts as held for long if other requests wait for its end."""

_MIN_TIMER_S: Final = 0.001

_STALL_S: Final = 1.0  # if a check is late by more than this, the event loop was blocked
_SAME_S: Final = 1.0  # a closure is not published again if its end moves by less than this


class Reports:
    """Publishes each event about a host once.

    Args:
        publisher: receives the events.
    """

    def __init__(self, publisher: Publisher) -> None:
        self.publish = publisher.publish
        self._stalled_mono = NEVER

    def overruled(self, host: str, headers: Iterable[IgnoredHeader]) -> None:
        """Publish the headers of an answer that are not obeyed literally."""
        for header in headers:
            self.publish(HeaderOverruled(host, header.field, header.value, header.applied_s, header.asked_s))

    def closed(
        self, host: PacedHost, now_mono: float, now_wall: float, url: str = "", status: int | None = None
    ) -> None:
        """Publish that a host is closed, unless a closure with about the same end was published."""
        closed_until_mono, bound_by = host.backoff.closing
        if closed_until_mono <= now_mono or closed_until_mono - host.closed_mono < _SAME_S:
            return
        # Rounded, because the difference of two times may lack a part of a microsecond of a closure of 900 s.
        closed_s, host.closed_mono = round(closed_until_mono - now_mono, 6), closed_until_mono
        url = "" if status is None else url
        refusal = host.backoff.refusal(host.options) if bound_by is Bound.REFUSED else None
        self.publish(HostClosed(host.host, now_wall + closed_s, bound_by, closed_s, url, status, refusal))
        if host.head is not None and closed_s > LONG_S:
            self.waits(host, host.head, closed_s, bound_by)

    def opened(self, host: PacedHost) -> None:
        """Publish that a host that was closed is open again."""
        host.closed_mono = NEVER
        self.publish(HostOpened(host.host))

    def waits(self, host: PacedHost, waiter: Waiter, wait_s: float, bound_by: Bound) -> None:
        """Publish a long wait, unless the last wait that was published for the host has the same cause."""
        if host.long_wait is not bound_by:
            host.long_wait = bound_by
            self.publish(LongWait(host.host, waiter.url, wait_s, bound_by, host.held_by))

    def waited(self, host: PacedHost, waiter: Waiter, waited_s: float) -> None:
        """Publish a long wait at its end if none was published before. After a short wait, forget the last cause."""
        if waited_s <= (HELD_S if host.long_wait is Bound.IN_FLIGHT else LONG_S):
            host.long_wait = None
        elif host.long_wait is None:
            self.waits(host, waiter, waited_s, Bound.QUEUE)

    def held(self, host: PacedHost, now_mono: float) -> float | None:
        """Publish a wait of HELD_S for a held permit. If the wait is shorter so far, return when to check again.

        While a program blocks its event loop, its requests cannot end. So the time counts from the end of the block;
        otherwise the wait at every host would be published after the block.
        """
        head = host.head
        if head is None or not host.is_full:
            return None
        due_mono = max(host.under_way[0].started_mono, head.joined_mono, self._stalled_mono) + HELD_S
        if now_mono >= due_mono + _STALL_S and now_mono >= self._stalled_mono + HELD_S + _STALL_S:
            self._stalled_mono = now_mono
            return now_mono + HELD_S
        if now_mono < due_mono:
            return due_mono
        self.waits(host, head, now_mono - head.joined_mono, Bound.IN_FLIGHT)
        return None


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class PermitExpiry:
    """Checks the age of the permits that have not ended.

    Args:
        clock: the monotonic clock and the timer.
        max_turn_s: how long a permit may last before it expires, in seconds; infinite for no limit.
        under_way: returns the permits that have not ended.
        publisher: receives TurnExpired.
        long: called with a permit and the monotonic time, for each permit that is older than HELD_S and does not
            expire.

    Attributes:
        max_turn_s: may be changed at any time.
        is_armed: whether the timer is set; if not, call ``arm`` when a turn starts.
    """

    _clock: Clock
    max_turn_s: float
    _under_way: Callable[[], Iterable[Held]]
    _publisher: Publisher
    _long: Callable[[Any, float], None] = lambda _permit, _now_mono: None
    _timer: Timer | None = field(default=None, init=False)
    is_armed: bool = field(default=False, init=False)

    def arm(self, delay_s: float | None = None) -> None:
        """Set the timer to ``delay_s`` seconds; by default, until a permit that starts now has to be checked."""
        self.is_armed = True
        delay_s = min(HELD_S, self.max_turn_s) if delay_s is None else max(delay_s, _MIN_TIMER_S)
        self._timer = self._clock.call_later(delay_s, partial(_look, ref(self)))

    def look(self) -> None:
        """Check all permits."""
        now_mono = self._clock.monotonic()
        permits = list(self._under_way())
        self.is_armed = bool(permits)  # a permit that a callback takes now must not set a second timer
        next_mono = now_mono + min(HELD_S, self.max_turn_s)
        for permit in permits:
            old_mono = permit.started_mono + self.max_turn_s
            if old_mono <= now_mono:
                if permit.under_way:  # otherwise a subscriber to an event above has ended the permit
                    permit.expire()
                    self._publisher.publish(TurnExpired(permit.host, permit.url, now_mono - permit.started_mono))
                continue
            long_mono = permit.started_mono + min(HELD_S, self.max_turn_s)
            if long_mono <= now_mono:
                self._long(permit, now_mono)
            next_mono = min(next_mono, long_mono if long_mono > now_mono else old_mono)
        if permits:
            self.arm(next_mono - now_mono)

    def stop(self) -> None:
        """Stop the timer: no permit expires any more."""
        if self._timer is not None:
            self._timer.cancel()


def _look(expiry: ref[PermitExpiry]) -> None:
    # A weak reference: the timer may run for another minute, and must not keep an unused pacer alive.
    alive = expiry()
    if alive is not None:
        alive.look()
