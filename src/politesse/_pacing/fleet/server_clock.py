"""Compares the clock of a server with the monotonic clock of this process. Pure; times are arguments.

Theory of operation. Redis has only the time of the wall clock of its machine, which may be set, or run too fast. A
clock that is set forward lets intervals and leases end early. So each reading is compared with earlier readings. The
server reads its clock after the call was sent and before the answer came. This bounds the offset between both clocks:

    offset - at most: at - sent_mono    offset - at least: at - received_mono

The narrowest bounds of all readings are kept, and widened by the drift of two good clocks. A reading beyond them means
one of two things:

* The offset has moved by no more than a tenth of the time that has passed: the clock runs too fast or too slowly, for
  example while chrony corrects it. More drift is allowed from then on. If the clock is fast, ``stretch`` is the factor
  by which intervals are longer on that clock.
* The offset has moved by more: the clock was set.

In both cases an interval or a lease may have ended early, so ``fault`` reports the reading.
"""

from __future__ import annotations

from math import inf
from typing import Final

_DRIFT: Final = 0.001  # the sum of two equal parts: the drift of a crystal, and the correction by ntpd
_MOST_DRIFT: Final = 0.1  # chrony corrects a clock by 8 % at most
_MARGIN: Final = 1.5  # the factor by which a measured drift is widened
_TOLERANCE_S: Final = 0.01  # starts are spaced by their interval and this time

_Reading = tuple[float, float, float]  # the least and the greatest offset, and the time of the reading


class ServerClock:
    """The offset between the clock of a server and the monotonic clock of this process.

    Attributes:
        stretch: the highest rate of the server's clock, in its seconds for each second of the monotonic clock.
    """

    __slots__ = ("_bounds", "_drift", "_last", "stretch")

    def __init__(self) -> None:
        self._bounds: tuple[float, float, float] | None = None  # least and greatest offset, time of the reading
        self._last = (0.0, 0.0, 0.0)  # the previous reading
        self._drift = _DRIFT
        self.stretch = 1.0

    def forget(self) -> None:
        """Forget the readings, but not how fast the clock runs."""
        self._bounds = None

    def fault(self, at_us: int, sent_mono: float, received_mono: float) -> str:
        """Return the fault of the clock since the earlier readings; empty for none.

        Args:
            at_us: the time of the clock, in microseconds.
            sent_mono: when the call was sent; minus infinity if that is unknown.
            received_mono: when the answer came.
        """
        reading = (at_us / 1e6 - received_mono, at_us / 1e6 - sent_mono, received_mono)
        bounds, last = self._bounds, self._last
        if bounds is None:
            self._bounds = self._last = reading
            return ""
        if sent_mono > -inf:
            self._last = reading
        shift_s = _shift_s(reading, bounds, self._drift)
        if abs(shift_s) > _TOLERANCE_S:
            rate = self._learned_rate(reading, bounds, last)
            if rate:
                return f"its clock runs {abs(rate):.1%} too {'fast' if rate > 0 else 'slowly'}"
            return f"its clock was set {'forward' if shift_s > 0 else 'back'} by {abs(shift_s):.1f} s"
        drift_s = self._drift * max(0.0, received_mono - bounds[2])
        least_s, most_s = max(reading[0], bounds[0] - drift_s), min(reading[1], bounds[1] + drift_s)
        if least_s <= most_s:
            self._bounds = least_s, most_s, received_mono
        return ""

    def _learned_rate(self, reading: _Reading, bounds: _Reading, last: _Reading) -> float:
        """Return how much too fast the clock runs, as a share, and allow for it from now on; 0 if the clock was set."""
        elapsed_s, shift_s = reading[2] - bounds[2], _shift_s(reading, bounds, 0.0)
        if abs(shift_s) > _MOST_DRIFT * elapsed_s or _shift_s(reading, last, _MOST_DRIFT):
            return 0.0
        rate = shift_s / elapsed_s
        self._drift = max(self._drift, min(_MOST_DRIFT, _MARGIN * abs(rate)))
        if rate > 0.0:
            self.stretch = max(self.stretch, 1.0 + self._drift)
        return rate


def _shift_s(reading: _Reading, before: _Reading, drift: float) -> float:
    """Return how far a reading lies outside the bounds of the reading before it, widened by the drift since then."""
    drift_s = drift * max(0.0, reading[2] - before[2])
    if reading[0] > before[1] + drift_s:
        return reading[0] - before[1] - drift_s
    if reading[1] < before[0] - drift_s:
        return reading[1] - before[0] + drift_s
    return 0.0


class ServerClocks:
    """The clocks of a server, or of the nodes of a cluster."""

    def __init__(self) -> None:
        self._by_number: dict[int, ServerClock] = {}

    def forget(self) -> None:
        """Forget the readings of all clocks."""
        for clock in self._by_number.values():
            clock.forget()

    def fault(self, number: int, at_us: int, sent_mono: float, received_mono: float) -> str:
        """Return the fault of the server clock with this number; see ``ServerClock``."""
        return self._by_number.setdefault(number, ServerClock()).fault(at_us, sent_mono, received_mono)

    @property
    def stretch(self) -> float:
        """The ``stretch`` of the fastest clock; see ``ServerClock``."""
        return max((clock.stretch for clock in self._by_number.values()), default=1.0)
