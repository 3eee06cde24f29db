"""Compares the clock of a server with the monotonic clock of this process. Pure; times are arguments.

Theory of operation. Redis reads only the wall clock of its machine. This clock may be set, or run too fast. A clock
that is set forward lets intervals and leases end early. So each reading is compared with earlier readings. The server
reads its clock after the call was sent and before the answer came. So these two times bound the offset between both
clocks:

    offset - at most: at - sent_mono    offset - at least: at - received_mono

The narrowest bounds of all readings are kept, and widened by the drift of two good clocks. The drift is calculated for
the time since the earlier call was sent, because the server may have read its clock right after that. A time that is
counted from the answer could be too short, and the clock would seem faster than it is. A reading beyond the bounds has
one of two causes:

* The offset has moved by no more than a tenth of the time that has passed: the clock runs too fast or too slowly, for
  example while chrony corrects it. More drift is allowed from then on. If the clock is fast, ``stretch`` is the factor
  by which intervals are longer on that clock.
* The offset has moved by more: the clock was set.

In both cases an interval or a lease may have ended early, so ``fault`` reports the reading.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_DRIFT: Final = 0.001  # a good clock drifts by this at most: half by its crystal, half by ntpd
_MOST_DRIFT: Final = 0.1  # chrony corrects a clock by 8 % at most
_MARGIN: Final = 1.5  # the factor by which a measured drift is widened
_TOLERANCE_S: Final = 0.01  # smaller shifts are ignored: ``FleetOptions.spacing_s`` adds about this time to an interval


class _Bound(NamedTuple):
    """A bound of the offset, and the monotonic time since which the offset may have drifted."""

    offset_s: float
    since_mono: float

    def at(self, drift: float, now_mono: float) -> float:
        """Return the bound of the offset now; ``drift`` is negative for the least offset."""
        return self.offset_s + drift * max(0.0, now_mono - self.since_mono)


class _Bounds(NamedTuple):
    """The least and the greatest offset."""

    least: _Bound
    most: _Bound


class ServerClock:
    """The offset between the clock of a server and the monotonic clock of this process.

    Attributes:
        stretch: the highest rate of the server's clock, in its seconds for each second of the monotonic clock.
    """

    __slots__ = ("_bounds", "_drift", "_last", "stretch")

    def __init__(self) -> None:
        self._bounds: _Bounds | None = None  # the narrowest bounds of all readings
        self._last: _Bounds | None = None  # the previous reading
        self._drift = _DRIFT
        self.stretch = 1.0

    def forget(self) -> None:
        """Forget the readings, but not how fast the clock runs."""
        self._bounds = None

    def fault(self, at_us: int, sent_mono: float, received_mono: float) -> str:
        """Return a description of the fault that the clock has shown since the earlier readings; empty for none.

        Args:
            at_us: the time of the clock, in microseconds.
            sent_mono: when the call was sent.
            received_mono: when the answer came.
        """
        least, most = _Bound(at_us / 1e6 - received_mono, sent_mono), _Bound(at_us / 1e6 - sent_mono, sent_mono)
        bounds, last, self._last = self._bounds, self._last, _Bounds(least, most)
        if bounds is None or last is None:
            self._bounds = self._last
            return ""
        drift = self._drift  # the next lines are ``_Bound.at``, without its calls: they run for each answer
        lowest_s = bounds.least.offset_s - drift * max(0.0, received_mono - bounds.least.since_mono)
        highest_s = bounds.most.offset_s + drift * max(0.0, received_mono - bounds.most.since_mono)
        shift_s = max(0.0, least.offset_s - highest_s) + min(0.0, most.offset_s - lowest_s)
        if abs(shift_s) > _TOLERANCE_S:
            rate = self._learned_rate(bounds, last, least, most, received_mono)
            if rate:
                return f"its clock runs {abs(rate):.1%} too {'fast' if rate > 0 else 'slowly'}"
            return f"its clock was set {'forward' if shift_s > 0 else 'back'} by {abs(shift_s):.1f} s"
        drifted_s = drift * (received_mono - sent_mono)
        read_least_s, read_most_s = least.offset_s - drifted_s, most.offset_s + drifted_s
        if max(read_least_s, lowest_s) <= min(read_most_s, highest_s):
            self._bounds = _Bounds(
                least if read_least_s >= lowest_s else bounds.least, most if read_most_s <= highest_s else bounds.most
            )
        return ""

    def _learned_rate(self, bounds: _Bounds, last: _Bounds, least: _Bound, most: _Bound, now_mono: float) -> float:
        """Return the share by which the clock is too fast, or 0 if it was set; allow this drift from now on."""
        shift_s, elapsed_s = _shift(bounds, least, most, 0.0, now_mono)
        since_last_s, _ = _shift(last, least, most, _MOST_DRIFT, now_mono)
        if abs(shift_s) > _MOST_DRIFT * elapsed_s or since_last_s:
            return 0.0
        rate = shift_s / elapsed_s
        self._drift = max(self._drift, min(_MOST_DRIFT, _MARGIN * abs(rate)))
        if rate > 0.0:
            self.stretch = max(self.stretch, 1.0 + self._drift)
        return rate


def _shift(before: _Bounds, least: _Bound, most: _Bound, drift: float, now_mono: float) -> tuple[float, float]:
    """Widen earlier bounds by ``drift``; return how far a reading is outside them, and the time passed."""
    if (shift_s := least.offset_s - before.most.at(drift, now_mono)) > 0.0:
        return shift_s, now_mono - before.most.since_mono
    if (shift_s := most.offset_s - before.least.at(-drift, now_mono)) < 0.0:
        return shift_s, now_mono - before.least.since_mono
    return 0.0, 0.0
