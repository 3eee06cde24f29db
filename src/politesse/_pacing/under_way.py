"""The requests of a pacer that are under way, and one timer for all of them.

Theory of operation. Permits are kept in the order in which they started, which is the order in which they become old.
So the timer is armed for the oldest alone, and not touched when that ends: it fires at most once a minute, finds that
nothing is due, and is armed for what is the oldest then. A permit costs an entry in a dict, and no timer.

    started --- LONG_S --> ``long`` is called: what waits for it may want to know
            --- max_turn_s --> ``expired`` is called: it has to end the permit
"""

from __future__ import annotations

from functools import partial
from itertools import islice, takewhile
from math import isinf
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar
from weakref import ref

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse.clock import Clock, Timer

LONG_S: Final = 60.0
"""From how many seconds on a wait is long."""

_MIN_TIMER_S: Final = 0.001


class _Stamped(Protocol):
    """What has started.

    Attributes:
        started_mono: when.
    """

    started_mono: float


P = TypeVar("P", bound=_Stamped)


class UnderWay(Generic[P]):
    """The permits that have not ended, the oldest first.

    Args:
        clock: the monotonic clock and the timer.
        max_turn_s: after how many seconds a permit expires; infinite for never.
        expired: called with each permit that is as old as that, and the monotonic time; ends it.
        long: called with each permit that is LONG_S old, and the monotonic time.
    """

    def __init__(
        self,
        clock: Clock,
        max_turn_s: float,
        expired: Callable[[P, float], None],
        long: Callable[[P, float], None] = lambda _permit, _now_mono: None,
    ) -> None:
        self._clock = clock
        self._expired = expired
        self._long = long
        self._ages_s = (min(LONG_S, max_turn_s), max_turn_s)
        self._young: dict[P, None] = {}
        self._old: dict[P, None] = {}
        self._timer: Timer | None = None

    def add(self, permit: P) -> None:
        """Add a permit that was stamped now."""
        self._young[permit] = None
        if self._timer is None:
            self._set_timer()

    def remove(self, permit: P) -> None:
        """Remove a permit that has ended."""
        if self._young.pop(permit, self) is not None:  # it is a set in order: each value is None
            self._old.pop(permit, None)

    def stop(self) -> None:
        """Let nothing expire any more."""
        if self._timer is not None:
            self._timer.cancel()

    def __len__(self) -> int:
        """How many permits have not ended."""
        return len(self._young) + len(self._old)

    def _set_timer(self) -> None:
        """Arm the timer for the first permit that becomes old, if there is any."""
        due = [
            permit.started_mono + age_s
            for permits, age_s in zip((self._young, self._old), self._ages_s, strict=True)
            for permit in islice(permits, 1)
        ]
        at_mono = min(due, default=float("inf"))
        if not isinf(at_mono):
            delay_s = max(at_mono - self._clock.monotonic(), _MIN_TIMER_S)
            self._timer = self._clock.call_later(delay_s, partial(_call, ref(self)))

    def on_timer(self) -> None:
        """Look at what has become old."""
        self._timer = None
        now_mono = self._clock.monotonic()
        long_s, max_turn_s = self._ages_s
        for permit in list(takewhile(lambda young: young.started_mono + long_s <= now_mono, self._young)):
            del self._young[permit]
            self._old[permit] = None
            self._long(permit, now_mono)
        for permit in list(takewhile(lambda old: old.started_mono + max_turn_s <= now_mono, self._old)):
            self._expired(permit, now_mono)
        if self._timer is None:
            self._set_timer()


def _call(under_way: ref[UnderWay[Any]]) -> None:
    # By a weak reference: the timer stays for up to a minute, and must not keep a pacer that is gone.
    alive = under_way()
    if alive is not None:
        alive.on_timer()
