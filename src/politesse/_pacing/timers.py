"""The timers of a pacer: one heap for all its hosts and scopes."""

from __future__ import annotations

import asyncio
import heapq
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from politesse.errors import WrongEventLoop

if TYPE_CHECKING:
    from politesse.clock import Clock, Timer

MIN_TIMER_S: Final = 0.001
"""One timer serves all hosts that are due within this many seconds."""

_FEW_ENTRIES: Final = 100  # so many entries may stay that are no longer valid
_SOONER_S: Final = 0.001  # the next look is not moved for a difference smaller than this


class Timed(Protocol):
    """What is looked at when its time has come: a host or a scope.

    Attributes:
        armed_mono: the time of its valid entry in the heap; None without an entry.
    """

    armed_mono: float | None

    def on_time(self, now_mono: float) -> None:
        """Do what is due."""


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
        self._heap: list[tuple[float, int, Timed]] = []
        self._most_entries = _FEW_ENTRIES
        self._pushes = 0
        self._timers: list[tuple[float, Timer]] = []  # the timers with their times, the soonest last
        self._soonest_mono = inf
        self.loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False

    def look_at(self, timed: Timed, at_mono: float) -> None:
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
            delay_s = max(delay_s, MIN_TIMER_S)
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
