"""Crawl-delay, Request-rate, Visit-time and Robot-version: parsers that return a typed value, or None."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from politesse._base.constants import DAY_S

_UNIT_S: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_YEAR_S: Final = 365 * DAY_S  # a longer delay counts as a mistake: no crawl lasts so long

# No valid value is longer; the bound also limits how long the patterns below can backtrack over blanks.
_MAX_VALUE: Final = 100

# Ten digits of seconds are 300 years. More digits make no sense, and would make int() and float() slow.
_DELAY = re.compile(r"(?:[0-9]{1,10}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})")
_HHMM = r"([01][0-9]|2[0-3])([0-5][0-9])"
_WINDOW_TEXT = rf"{_HHMM}[ \t]*(?:-|[ \t])[ \t]*{_HHMM}"
_WINDOW = re.compile(_WINDOW_TEXT)
_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(?:\.([0-9]{1,4}))?")
_RATE = re.compile(rf"([0-9]{{1,10}})[ \t]*/[ \t]*([0-9]{{1,10}})[ \t]*([smhdSMHD]?)(?:[ \t]+{_WINDOW_TEXT})?")


@dataclass(frozen=True, slots=True)
class TimeWindow:
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
        minute = int(wall % DAY_S) // 60
        if self.start <= self.end:
            return self.start <= minute <= self.end
        return minute >= self.start or minute <= self.end

    def __str__(self) -> str:
        return f"{self.start // 60:02}{self.start % 60:02}-{self.end // 60:02}{self.end % 60:02}"


@dataclass(frozen=True, slots=True)
class RequestRate:
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
    matched = _WINDOW.fullmatch(value) if len(value) <= _MAX_VALUE else None
    return None if matched is None else _window(*matched.groups())


def parse_request_rate(value: str) -> RequestRate | None:
    """Parse ``Request-rate``: ``N/T[s|m|h|d] [window]``; neither N nor T may be 0 (Conner 2.0), T/N at most a year."""
    matched = _RATE.fullmatch(value) if len(value) <= _MAX_VALUE else None
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
    """Parse ``Robot-version``: ``2.0.0``, or ``2.0`` as in later texts (Conner 2.0)."""
    matched = _VERSION.fullmatch(value)
    return None if matched is None else (int(matched[1]), int(matched[2]), int(matched[3] or 0))


def _window(*digits: str) -> TimeWindow:
    hour, minute, last_hour, last_minute = map(int, digits)
    return TimeWindow(hour * 60 + minute, last_hour * 60 + last_minute)
