"""The timers of a pacer: one heap for all hosts, and the ends of permits that were held for too long."""

from __future__ import annotations

import asyncio
import heapq
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from politesse._pacing.reports import HELD_S
from politesse.errors import WrongEventLoop
from politesse.events import Publisher, TurnExpired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from politesse._pacing.hosts import Host, LocalPermit, Scope
    from politesse.clock import Clock, Timer

_MIN_TIMER_S: Final = 0.001  # one timer serves all hosts that are due within this time
_FEW_ENTRIES: Final = 100  # so many entries may stay that are no longer valid
_SOONER_S: Final = 0.001  # the next look is not moved for a difference smaller than this


class Wakeups:
    """Looks at each host and scope at its time. An entry of the heap is valid while its time equals ``armed_mono``.

    A timer is set when a host is due before the soonest timer. If the host is due now, it is looked at in the next step
    of the event loop. Later timers are not cancelled: cancelling a timer and setting another costs three times as much,
    because the event loop keeps a cancelled timer until its time. No timer is set for an entry that is no longer valid.

    Args:
        clock: the monotonic clock and the timer.

    Attributes:
        loop: the event loop of the timer, or None before the first use.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Host | Scope]] = []
        self._most_entries = _FEW_ENTRIES
        self._pushes = 0
        self._timers: list[tuple[float, Timer]] = []  # the timers with their times, the soonest last
        self._soonest_mono = inf
        self.loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False

    def look_at(self, timed: Host | Scope, at_mono: float) -> None:
        """Look at a host or scope at ``at_mono``, which may be in the past; unless it is looked at before."""
        if self._stopped or (timed.armed_mono is not None and at_mono >= timed.armed_mono - _SOONER_S):
            return
        timed.armed_mono = at_mono
        self._pushes += 1
        heap = self._heap
        heapq.heappush(heap, (at_mono, self._pushes, timed))
        if len(heap) > self._most_entries:  # keep one entry of each host and scope: others pile up before their time
            heap[:] = {id(entry[2]): entry for entry in heap if entry[2].armed_mono == entry[0]}.values()
            heapq.heapify(heap)
            self._most_entries = 2 * len(heap) + _FEW_ENTRIES
        if at_mono < self._soonest_mono:
            self._set_timer(at_mono)

    def own_loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop; raise WrongEventLoop if the timer belongs to another loop."""
        loop = asyncio.get_running_loop()
        if self.loop is None:
            self.loop = loop
        elif self.loop is not loop:
            raise WrongEventLoop
        return loop

    def stop(self) -> None:
        """Cancel all looks."""
        self._stopped = True
        for _, timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._heap.clear()

    def _set_timer(self, at_mono: float) -> None:
        if self.loop is None:
            with suppress(RuntimeError):  # if no event loop is running, this clock works without a loop
                self.loop = asyncio.get_running_loop()
        delay_s = at_mono - self._clock.monotonic()
        if delay_s > 0.0:
            delay_s = max(delay_s, _MIN_TIMER_S)
        self._timers.append((at_mono, self._clock.call_later(delay_s, self._on_timer)))
        self._soonest_mono = at_mono

    def _on_timer(self) -> None:
        timers = self._timers
        timers.pop()
        self._soonest_mono = timers[-1][0] if timers else inf
        now_mono = self._clock.monotonic()
        heap = self._heap
        while heap and (heap[0][0] <= now_mono or heap[0][2].armed_mono != heap[0][0]):
            at_mono, _, timed = heapq.heappop(heap)
            if timed.armed_mono == at_mono:  # otherwise a later entry has replaced this entry
                timed.armed_mono = None
                timed.on_time(now_mono)
        if heap and heap[0][0] < self._soonest_mono:
            self._set_timer(heap[0][0])


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class PermitExpiry:
    """Checks the age of the permits that have not ended.

    A new permit arms the timer unless it is armed already. The end of a permit does not touch the timer. When the timer
    fires, every permit that has not ended is checked. Then the timer is armed again for the time at which the next
    permit reaches ``HELD_S`` or ``max_turn_s``, but at most ``HELD_S`` later. So the timer fires every few seconds
    while a permit is under way, and a short request only reads ``is_armed``.

        started --- HELD_S -------> each further check calls ``long``, which publishes the wait of other requests
                --- max_turn_s ---> ``expire`` is called, which ends the permit

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
    _under_way: Callable[[], Iterable[LocalPermit]]
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
