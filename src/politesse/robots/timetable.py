"""Calculates the interval and the permission to visit at each minute of the day, from Request-rates and Visit-times.

A timetable is made once, so that turns need not read the lines again. A file of 500 KiB may have 30,000 such lines, but
a day has only 1,440 minutes: each minute is set once, beginning with the slowest rate.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from politesse._base.constants import DAY_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.robots.crawl_directives import RequestRate, TimeWindow

_MINUTE_S: Final = 60.0
_MINUTES: Final = 1_440
_WHOLE_DAY: Final = (1 << _MINUTES) - 1
_BYTES_OF_A_DAY: Final = 13_000  # the size of a list of minutes, with the minutes of permitted visits
_BYTES_PER_CHANGE: Final = 32


class Timetable:
    """The rates and visits of a day. Times are in UTC; an interval is the seconds between two starts at a rate.

    Args:
        rates: Request-rates of a file.
        visits: Visit-times of the file; without any, visits are permitted at all times.

    Attributes:
        open_minutes: minutes of the day at which a visit is permitted, as bits; bit 0 is the minute after midnight.
        is_timed: whether the time of day matters.
        longest_s: longest interval of all rates, at any time of day; 0 for none.
        weight_bytes: approximate memory that the timetable takes.
    """

    __slots__ = ("_always_s", "_by_minute_s", "_changes", "is_timed", "longest_s", "open_minutes", "weight_bytes")

    def __init__(self, rates: Sequence[RequestRate], visits: Sequence[TimeWindow]) -> None:
        self.longest_s: float = max((rate.interval_s for rate in rates), default=0.0)
        self._always_s = max((rate.interval_s for rate in rates if rate.window is None), default=0.0)
        windows: dict[TimeWindow, float] = {}
        for rate in rates:
            if rate.window is not None:
                windows[rate.window] = max(rate.interval_s, windows.get(rate.window, 0.0))
        self._by_minute_s = _slowest(windows, self._always_s)
        ends = {minute % _MINUTES for window in windows for minute in (window.start, window.end + 1)}
        self._changes = sorted(minute * _MINUTE_S for minute in ends)
        self.open_minutes: int = reduce(or_, map(_minutes_of, set(visits))) if visits else _WHOLE_DAY
        self.is_timed: bool = bool(windows or visits)
        self.weight_bytes: int = _BYTES_OF_A_DAY + _BYTES_PER_CHANGE * len(self._changes) if self.is_timed else 0

    def interval_s(self, wall: float) -> float:
        """Return the interval of the slowest rate that applies at the Unix time ``wall``; 0 for none."""
        return self._by_minute_s[_minute(wall)] if self._by_minute_s else self._always_s

    def next_change(self, wall: float) -> float:
        """Return the Unix time at which the next window of a rate begins or ends; infinite if no rate has one."""
        if not self._changes:
            return float("inf")
        since_midnight_s = wall % DAY_S
        place = bisect_right(self._changes, since_midnight_s)
        # The next change after the last change of today is the first change of tomorrow.
        today = place < len(self._changes)
        return wall + (self._changes[place] if today else self._changes[0] + DAY_S) - since_midnight_s


def next_open(open_minutes: int, wall: float) -> float:
    """Return the first Unix time from ``wall`` on that is in ``open_minutes``; without minutes, a day later."""
    minute = _minute(wall)
    if open_minutes >> minute & 1:
        return wall
    from_now = open_minutes >> minute | open_minutes << (_MINUTES - minute)
    if not from_now:
        return wall + DAY_S
    first = (from_now & -from_now).bit_length() - 1
    return wall - wall % DAY_S + (minute + first) * _MINUTE_S


def _minute(wall: float) -> int:
    return int(wall % DAY_S) // 60


def _minutes_of(window: TimeWindow) -> int:
    """Return the minutes of a window as bits."""
    start, end = 1 << window.start, 2 << window.end
    return end - start if start < end else _WHOLE_DAY ^ (start - end)  # the second case crosses midnight


def _slowest(windows: dict[TimeWindow, float], always_s: float) -> list[float]:
    """Return, for each minute of the day, the longest interval that applies; an empty list without windows."""
    by_minute_s = [always_s] * _MINUTES if windows else []
    free = _WHOLE_DAY
    for window, interval_s in sorted(windows.items(), key=lambda item: -item[1]):
        if interval_s <= always_s or not free:
            break
        filled = free & _minutes_of(window)
        free ^= filled
        while filled:
            minute = filled.bit_length() - 1
            by_minute_s[minute] = interval_s
            filled ^= 1 << minute
    return by_minute_s


ALWAYS: Final = Timetable((), ())
"""Timetable of a file without Request-rates and Visit-times."""
