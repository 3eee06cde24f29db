"""Parses Crawl-delay, Request-rate, Visit-time and Robot-version, and makes timetables.

A parser returns a typed value, or None for an invalid value.

A timetable has, for each minute of the day, the interval and whether a visit is permitted. A rule set makes its
timetable once, so that a turn does not evaluate the lines again. A file of 500 KiB may have 30,000 such lines, but a
day has only 1,440 minutes. So each minute gets the slowest of its rates.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import reduce
from operator import attrgetter, itemgetter, or_
from typing import TYPE_CHECKING, Final, NamedTuple

from politesse._base.constants import DAY_S
from politesse.robots.memory import memory_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNIT_S: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_YEAR_S: Final = 365 * DAY_S  # a longer delay counts as a mistake: no crawl lasts so long

# No valid value is longer; the bound also limits how long the patterns below can backtrack over blanks.
_MAX_VALUE: Final = 100

# Ten digits of seconds are 300 years. More digits make no sense, and would make int() and float() slow.
_DELAY = re.compile(r"(?:[0-9]{1,10}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})")
# The other patterns are compiled at their first use, because few files need them.
_HHMM: Final = r"([01][0-9]|2[0-3])([0-5][0-9])"
_WINDOW: Final = rf"{_HHMM}[ \t]*(?:-|[ \t])[ \t]*{_HHMM}"
_VERSION: Final = r"([0-9]{1,4})\.([0-9]{1,4})(?:\.([0-9]{1,4}))?"
_RATE: Final = rf"([0-9]{{1,10}})[ \t]*/[ \t]*([0-9]{{1,10}})[ \t]*([smhdSMHD]?)(?:[ \t]+{_WINDOW})?"
_MINUTE_S: Final = 60.0
_MINUTES: Final = 1_440
_WHOLE_DAY: Final = (1 << _MINUTES) - 1


class TimeWindow(NamedTuple):
    """A time of day in UTC, from the start of a minute to the end of a minute.

    >>> night = TimeWindow(start=22 * 60, end=5 * 60 + 59)
    >>> str(night), night.contains(wall=0.0), night.contains(wall=12 * 3600.0)
    ('2200-0559', True, False)

    Attributes:
        start: minutes since midnight, 0 to 1439.
        end: minutes since midnight, 0 to 1439, inclusive; smaller than ``start`` if the window crosses midnight.
    """

    start: int
    end: int

    def contains(self, wall: float) -> bool:
        """Whether the Unix time ``wall`` is in the window."""
        return bool(_minutes_of(self) >> _minute(wall) & 1)

    def __str__(self) -> str:
        return f"{self.start // 60:02}{self.start % 60:02}-{self.end // 60:02}{self.end % 60:02}"


class RequestRate(NamedTuple):
    """At most ``documents`` requests in any ``period_s`` seconds (Conner 2.0, Request-rate).

    >>> RequestRate(documents=1, period_s=5).interval_s
    5.0

    Attributes:
        documents: at least 1.
        period_s: at least 1 second.
        window: time of day in which the rate applies, or None for always.
    """

    documents: int
    period_s: int
    window: TimeWindow | None = None

    @property
    def interval_s(self) -> float:
        """The mean time between the starts of two requests at this rate, in seconds."""
        return self.period_s / self.documents


DirectiveValue = float | RequestRate | TimeWindow | str
"""Value of a Crawl-delay, Request-rate, Visit-time or Comment."""


def parse_crawl_delay(value: str) -> float | None:
    """Parse ``Crawl-delay``: seconds, fractions allowed, 0 to a year of 365 days."""
    if _DELAY.fullmatch(value) is None:
        return None
    delay_s = float(value)
    return delay_s if delay_s <= _YEAR_S else None


def parse_visit_time(value: str) -> TimeWindow | None:
    """Parse ``Visit-time``: ``HHMM-HHMM`` or ``HHMM HHMM``, UTC (Conner 2.0)."""
    matched = re.fullmatch(_WINDOW, value) if len(value) <= _MAX_VALUE else None
    return None if matched is None else _window(*matched.groups())


def parse_request_rate(value: str) -> RequestRate | None:
    """Parse ``Request-rate``: ``N/T[s|m|h|d] [window]`` (Conner 2.0).

    Neither N nor T may be 0. T/N may be at most a year.
    """
    matched = re.fullmatch(_RATE, value) if len(value) <= _MAX_VALUE else None
    if matched is None:
        return None
    documents = int(matched[1])
    period_s = int(matched[2]) * _UNIT_S[matched[3].lower()]
    if documents == 0 or period_s == 0:
        return None
    rate = RequestRate(documents, period_s, _window(*matched.groups()[3:]) if matched[4] else None)
    return rate if rate.interval_s <= _YEAR_S else None


Version = tuple[int, int, int]
"""Major version, minor version, revision; an odd minor version is experimental (Conner 2.0, Robot-version)."""

VERSION_1: Final[Version] = (1, 0, 0)
"""Version of a rule set without a Robot-version."""


def parse_robot_version(value: str) -> Version | None:
    """Parse ``Robot-version``: ``2.0.0``, or the short form ``2.0`` of later texts (Conner 2.0)."""
    matched = re.fullmatch(_VERSION, value)
    return None if matched is None else (int(matched[1]), int(matched[2]), int(matched[3] or 0))


def _window(*digits: str) -> TimeWindow:
    hour, minute, last_hour, last_minute = map(int, digits)
    return TimeWindow(hour * 60 + minute, last_hour * 60 + last_minute)


class Timetable:
    """The request rates and the permitted visits of a day. Times are in UTC; intervals are seconds from start to start.

    Args:
        rates: Request-rates of a file.
        visits: Visit-times of the file; without any, visits are permitted at all times.

    Attributes:
        open_minutes: minutes of the day at which a visit is permitted, as bits; bit 0 is the minute after midnight.
        is_timed: whether the time of day matters.
        longest_s: longest interval of all rates, at any time of day; 0 without rates.
        weight_bytes: approximate memory that the timetable takes.
    """

    __slots__ = ("_always_s", "_by_minute_s", "_changes", "is_timed", "longest_s", "open_minutes", "weight_bytes")

    def __init__(self, rates: Sequence[RequestRate], visits: Sequence[TimeWindow]) -> None:
        in_order = sorted(rates, key=attrgetter("interval_s"))
        slowest = {rate.window: rate.interval_s for rate in in_order}  # the slowest is the last, and stays
        self.longest_s: float = max(slowest.values(), default=0.0)
        self._always_s = slowest.get(None, 0.0)
        windows = {window: interval_s for window, interval_s in slowest.items() if window is not None}
        self._by_minute_s = _slowest(windows, self._always_s)
        ends = {minute % _MINUTES for window in windows for minute in (window.start, window.end + 1)}
        changes = sorted(minute * _MINUTE_S for minute in ends)
        self._changes = [*changes, *(change + DAY_S for change in changes[:1])]  # the last is the first of tomorrow
        self.open_minutes: int = reduce(or_, map(_minutes_of, set(visits))) if visits else _WHOLE_DAY
        self.is_timed: bool = bool(windows or visits)
        intervals = {id(interval_s): interval_s for interval_s in self._by_minute_s}.values()
        lists = (self._by_minute_s, *intervals, self._changes, *self._changes)
        self.weight_bytes: int = memory_of((*lists, self.open_minutes)) if self.is_timed else 0

    def interval_s(self, wall: float) -> float:
        """Return the interval of the slowest rate that applies at the Unix time ``wall``; 0 if no rate applies."""
        return self._by_minute_s[_minute(wall)] if self._by_minute_s else self._always_s

    def next_change(self, wall: float) -> float:
        """Return the Unix time at which the next window of a rate begins or ends; infinite without windows."""
        if not self._changes:
            return float("inf")
        since_midnight_s = wall % DAY_S
        return wall + self._changes[bisect_right(self._changes, since_midnight_s)] - since_midnight_s


def next_open(open_minutes: int, wall: float) -> float:
    """Return the first Unix time in ``open_minutes``, not before ``wall``; ``wall`` plus a day if no minute is open."""
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
    return end - start if start < end else _WHOLE_DAY ^ (start - end)  # otherwise the window crosses midnight


def _slowest(windows: dict[TimeWindow, float], always_s: float) -> list[float]:
    """Return, for each minute of the day, the longest interval that applies; an empty list without windows."""
    by_minute_s = [always_s] * _MINUTES if windows else []
    for window, interval_s in sorted(windows.items(), key=itemgetter(1)):  # the slowest is the last, and stays
        if interval_s > always_s:
            start, end = window.start, window.end + 1
            for first, after in [(start, end)] if start < end else [(start, _MINUTES), (0, end)]:
                by_minute_s[first:after] = [interval_s] * (after - first)
    return by_minute_s


ALWAYS: Final = Timetable((), ())
"""Timetable of a file without Request-rates and Visit-times."""
