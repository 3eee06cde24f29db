"""One heap and one timer for all hosts of a LocalPacer."""

from __future__ import annotations

import asyncio
import heapq
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from politesse.errors import WrongEventLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse._pacing.slot import Slot
    from politesse.clock import Clock, Timer

_MIN_TIMER_S: Final = 0.001  # one timer serves all hosts whose time comes within it


class Wakeups:
    """Has each slot looked at when its time comes. An entry of the heap is valid while ``armed_mono`` names its time.

    Args:
        clock: the monotonic clock and the timer.
        look: called with a slot whose time has come, and the monotonic time.
    """

    def __init__(self, clock: Clock, look: Callable[[Slot, float], None]) -> None:
        self._clock = clock
        self._look = look
        self._heap: list[tuple[float, int, Slot]] = []
        self._pushes = 0
        self._timer: Timer | None = None
        self._timer_mono = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False

    def look_at(self, slot: Slot, at_mono: float) -> None:
        """Have a slot looked at, at a time sooner than it is armed for; a time in the past will do."""
        if self._stopped:
            return
        slot.armed_mono = at_mono
        self._pushes += 1
        heapq.heappush(self._heap, (at_mono, self._pushes, slot))
        if self._timer is None or at_mono < self._timer_mono:
            self._set_timer()

    def own_loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop; raise WrongEventLoop if the timer belongs to another one."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise WrongEventLoop
        return loop

    def stop(self) -> None:
        """Have nothing looked at any more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._heap.clear()

    def _set_timer(self) -> None:
        if not self._heap:
            return
        at_mono = self._heap[0][0]
        if self._timer is not None:
            if self._timer_mono <= at_mono:
                return
            self._timer.cancel()
        self._timer_mono = at_mono
        if self._loop is None:
            with suppress(RuntimeError):  # none is running: then the clock is no event loop's either
                self._loop = asyncio.get_running_loop()
        delay_s = max(at_mono - self._clock.monotonic(), _MIN_TIMER_S)
        self._timer = self._clock.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_mono = self._clock.monotonic()
        heap = self._heap
        while heap and heap[0][0] <= now_mono:
            at_mono, _, slot = heapq.heappop(heap)
            if slot.armed_mono == at_mono:  # else another entry took its place
                slot.armed_mono = None
                self._look(slot, now_mono)
        self._set_timer()
