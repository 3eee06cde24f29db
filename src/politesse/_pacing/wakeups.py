"""One heap for all hosts of a LocalPacer, and as a rule one timer."""

from __future__ import annotations

import asyncio
import heapq
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final

from politesse.errors import WrongEventLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse._pacing.slot import Slot
    from politesse.clock import Clock, Timer

_MIN_TIMER_S: Final = 0.001  # one timer serves all hosts whose time comes within it


class Wakeups:
    """Has each slot looked at when its time comes. An entry of the heap is valid while ``armed_mono`` names its time.

    A timer is set when something is due sooner than the soonest timer. The later ones stay, for what is due then: a
    timer that is cancelled and set again costs three times as much, because the event loop keeps it until its time.

    Args:
        clock: the monotonic clock and the timer.
        look: called with a slot whose time has come, and the monotonic time.

    Attributes:
        loop: the event loop of the timer; None before it is known.
    """

    def __init__(self, clock: Clock, look: Callable[[Slot, float], None]) -> None:
        self._clock = clock
        self._look = look
        self._heap: list[tuple[float, int, Slot]] = []
        self._pushes = 0
        self._timers: list[tuple[float, Timer]] = []  # with their times, the soonest last
        self._soonest_mono = inf
        self.loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False

    def look_at(self, slot: Slot, at_mono: float) -> None:
        """Have a slot looked at, at a time sooner than it is armed for; a time in the past will do."""
        if self._stopped:
            return
        slot.armed_mono = at_mono
        self._pushes += 1
        heapq.heappush(self._heap, (at_mono, self._pushes, slot))
        if at_mono < self._soonest_mono:
            self._set_timer(at_mono)

    def own_loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop; raise WrongEventLoop if the timer belongs to another one."""
        loop = asyncio.get_running_loop()
        if self.loop is None:
            self.loop = loop
        elif self.loop is not loop:
            raise WrongEventLoop
        return loop

    def stop(self) -> None:
        """Have nothing looked at any more."""
        self._stopped = True
        for _, timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._heap.clear()

    def _set_timer(self, at_mono: float) -> None:
        if self.loop is None:
            with suppress(RuntimeError):  # none is running: then the clock is no event loop's either
                self.loop = asyncio.get_running_loop()
        delay_s = max(at_mono - self._clock.monotonic(), _MIN_TIMER_S)
        self._timers.append((at_mono, self._clock.call_later(delay_s, self._on_timer)))
        self._soonest_mono = at_mono

    def _on_timer(self) -> None:
        timers = self._timers
        timers.pop()
        self._soonest_mono = timers[-1][0] if timers else inf
        now_mono = self._clock.monotonic()
        heap = self._heap
        while heap and heap[0][0] <= now_mono:
            at_mono, _, slot = heapq.heappop(heap)
            if slot.armed_mono == at_mono:  # else another entry took its place
                slot.armed_mono = None
                self._look(slot, now_mono)
        if heap and heap[0][0] < self._soonest_mono:
            self._set_timer(heap[0][0])
