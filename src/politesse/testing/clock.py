"""A clock that the test moves."""

from __future__ import annotations

import asyncio
import heapq
from secrets import token_hex
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse.clock import Timer

_QUIET_ROUNDS: Final = 20  # more than any chain of wake-ups takes from one task to the next


class ManualClock:
    """A clock that stands still until it is moved.

    Example:
        >>> clock = ManualClock(wall=1_000.0)
        >>> timer = clock.call_later(5.0, lambda: print(f"called at {clock.monotonic():g} s"))
        >>> clock.advance(60.0)
        called at 5 s
        >>> clock.wall(), clock.monotonic()
        (1060.0, 60.0)

    Args:
        wall: the Unix time to start at.
        autojump: whether to advance by itself to the next timer whenever every task of the event loop waits. A task
            that waits for the network counts as waiting: use it only without a network.

    Attributes:
        run: names this clock.
    """

    def __init__(self, wall: float = 1_800_000_000.0, *, autojump: bool = False) -> None:
        self.run = token_hex(8)
        self._wall = wall
        self._monotonic = 0.0
        self._autojump = autojump
        self._timers: list[tuple[float, int, _ManualTimer]] = []
        self._touches = 0
        self._watching = False

    def wall(self) -> float:
        """Return the Unix time in seconds."""
        return self._wall

    def monotonic(self) -> float:
        """Return the seconds since the clock was made."""
        self._touches += 1
        return self._monotonic

    async def sleep(self, delay_s: float, /) -> None:
        """Return when the clock has been moved on by ``delay_s``."""
        woken = asyncio.get_running_loop().create_future()
        timer = self.call_later(max(0.0, delay_s), lambda: None if woken.done() else woken.set_result(None))
        try:
            await woken
        finally:
            timer.cancel()

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> Timer:
        """Call ``callback`` when the clock has been moved on by ``delay_s``."""
        self._touches += 1
        timer = _ManualTimer(callback)
        heapq.heappush(self._timers, (self._monotonic + delay_s, self._touches, timer))
        if self._autojump and not self._watching:
            self._watching = True
            asyncio.get_running_loop().call_soon(self._watch, self._touches, 0)
        return timer

    def advance(self, seconds: float) -> None:
        """Move both clocks on, and call the timers that become due on the way.

        Args:
            seconds: 0 or more.

        Raises:
            ValueError: ``seconds`` is negative.
        """
        if seconds < 0:
            raise ValueError(f"advance({seconds}): time does not go back")
        until = self._monotonic + seconds
        while self._timers and self._timers[0][0] <= until:
            due, _, timer = heapq.heappop(self._timers)
            self._move_to(max(due, self._monotonic))
            timer.fire()
        self._move_to(until)

    def set_wall(self, wall: float) -> None:
        """Set the wall clock, forward or back, as an administrator may; the monotonic clock is not changed."""
        self._wall = wall

    def _move_to(self, monotonic: float) -> None:
        self._wall += monotonic - self._monotonic
        self._monotonic = monotonic

    def _watch(self, touches: int, quiet: int) -> None:
        """Jump when the clock was not read for some rounds of the event loop: then every task waits."""
        loop = asyncio.get_running_loop()
        quiet = quiet + 1 if touches == self._touches else 0
        if quiet >= _QUIET_ROUNDS:
            quiet = 0
            while self._timers and self._timers[0][2].cancelled:
                heapq.heappop(self._timers)
            if not self._timers:
                self._watching = False
                return
            self.advance(max(0.0, self._timers[0][0] - self._monotonic))
        loop.call_soon(self._watch, self._touches, quiet)

    def __repr__(self) -> str:
        return f"ManualClock(wall={self._wall}, monotonic={self._monotonic})"


class _ManualTimer:
    __slots__ = ("callback", "cancelled")

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def fire(self) -> None:
        if not self.cancelled:
            self.cancelled = True
            self.callback()
