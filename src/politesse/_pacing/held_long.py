"""Finds the turns that are held for long, with one timer and no work for those that are not.

Theory of operation. The timer is armed when a turn starts, unless it is armed already, and is not touched when one
ends. When it fires, all turns that are under way are looked at, and it is armed again for the first of them that
becomes old, or for the earliest time at which one that has not started yet could: so it fires about once a minute, and
a turn that is over in time costs a look at ``is_armed``. While nothing is under way it is not armed.

    started --- LONG_S -------> ``long`` is called, at each look from then on: what waits for it may want to know
            --- max_turn_s ---> ``expired`` is called: it has to end the turn
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar
from weakref import ref

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from politesse.clock import Clock, Timer

LONG_S: Final = 60.0
"""From how many seconds on a wait is long."""

_MIN_TIMER_S: Final = 0.001


class Held(Protocol):
    """A permit that may expire.

    Attributes:
        host: the pacing host.
        url: what is requested; empty if that is unknown.
        started_mono: when it was stamped.
    """

    host: str
    url: str
    started_mono: float

    @property
    def under_way(self) -> bool:
        """Whether it has not ended."""

    def expire(self) -> None:
        """End it because it was held for too long."""


P = TypeVar("P", bound=Held)


class HeldLong(Generic[P]):
    """Looks at the permits that have not ended.

    Args:
        clock: the monotonic clock and the timer.
        max_turn_s: after how many seconds a permit expires; infinite for never.
        under_way: returns the permits that have not ended.
        expired: called with each permit that is as old as that, and the monotonic time; ends it.
        long: called with each other permit that is at least LONG_S old, and the monotonic time.

    Attributes:
        is_armed: whether there will be a look; else ``arm`` has to be called when a turn starts.
    """

    def __init__(
        self,
        clock: Clock,
        max_turn_s: float,
        under_way: Callable[[], Iterable[P]],
        expired: Callable[[P, float], None],
        long: Callable[[P, float], None] = lambda _permit, _now_mono: None,
    ) -> None:
        self._clock = clock
        self._max_turn_s = max_turn_s
        self._first_s = min(LONG_S, max_turn_s)
        self._under_way = under_way
        self._expired = expired
        self._long = long
        self._timer: Timer | None = None
        self.is_armed = False

    def arm(self, delay_s: float | None = None) -> None:
        """Have a look in ``delay_s`` seconds; None: as soon as a turn that starts now may be old."""
        self.is_armed = True
        delay_s = self._first_s if delay_s is None else max(delay_s, _MIN_TIMER_S)
        self._timer = self._clock.call_later(delay_s, partial(_look, ref(self)))

    def look(self) -> None:
        """Look at all permits."""
        now_mono = self._clock.monotonic()
        permits = list(self._under_way())
        self.is_armed = bool(permits)  # what a callback starts needs no timer of its own
        next_mono = now_mono + self._first_s
        for permit in permits:
            old_mono = permit.started_mono + self._max_turn_s
            if old_mono <= now_mono:
                self._expired(permit, now_mono)
                continue
            long_mono = permit.started_mono + self._first_s
            if long_mono <= now_mono:
                self._long(permit, now_mono)
            next_mono = min(next_mono, long_mono if long_mono > now_mono else old_mono)
        if permits:
            self.arm(next_mono - now_mono)

    def stop(self) -> None:
        """Let nothing expire any more."""
        if self._timer is not None:
            self._timer.cancel()


def _look(held_long: ref[HeldLong[Any]]) -> None:
    # By a weak reference: the timer stays for up to a minute, and must not keep a pacer that is gone.
    alive = held_long()
    if alive is not None:
        alive.look()
