"""When a request may start, as a table."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import pytest

from politesse._pacing.pace import Pace
from politesse._pacing.schedule import Closure, Start, earliest_start
from politesse.verdict import Bound
from tests.support.pacing import at, rules

if TYPE_CHECKING:
    from politesse.robots import RuleSet

FLOOR = Pace(1.0, Bound.FLOOR)
SLOW = Pace(10.0, Bound.CRAWL_DELAY)
HOURLY = Pace(3600.0, Bound.REQUEST_RATE)
NOON = at("1200")
OPEN_AT_13 = rules("Visit-time: 1300-1359")
OPEN_TILL_12 = rules("Visit-time: 1100-1200")
RATE_TILL_1230 = rules("Request-rate: 1/1h 1100-1229")
NOW_MONO = 1000.0


@pytest.mark.parametrize(
    ("last_mono", "pace", "closure", "timed", "expected"),
    [
        # The interval counts from the last request, and the pace is that of the request.
        (-inf, FLOOR, None, [], (-inf, Bound.FLOOR)),
        (1000.0, FLOOR, None, [], (1001.0, Bound.FLOOR)),
        (1000.0, SLOW, None, [], (1010.0, Bound.CRAWL_DELAY)),
        (500.0, SLOW, None, [], (510.0, Bound.CRAWL_DELAY)),
        # A closure binds if it ends later; it adds nothing to the interval.
        (1000.0, SLOW, Closure(NOON + 5.0, Bound.BACKOFF), [], (1010.0, Bound.CRAWL_DELAY)),
        (1000.0, SLOW, Closure(NOON + 60.0, Bound.BACKOFF), [], (1060.0, Bound.BACKOFF)),
        (-inf, FLOOR, Closure(NOON + 60.0, Bound.RETRY_AFTER), [], (1060.0, Bound.RETRY_AFTER)),
        (1000.0, SLOW, Closure(NOON, Bound.BACKOFF), [], (1010.0, Bound.CRAWL_DELAY)),
        (1000.0, SLOW, Closure(NOON - 60.0, Bound.BACKOFF), [], (1010.0, Bound.CRAWL_DELAY)),
        # A window must be open when the request starts, not now.
        (-inf, FLOOR, None, [OPEN_AT_13], (1000.0 + 3600.0, Bound.VISIT_TIME)),
        (1000.0, SLOW, None, [OPEN_TILL_12], (1010.0, Bound.CRAWL_DELAY)),
        (1000.0, Pace(90.0, Bound.CRAWL_DELAY), None, [OPEN_TILL_12], (1000.0 + 23 * 3600.0, Bound.VISIT_TIME)),
        (-inf, FLOOR, Closure(NOON + 7200.0, Bound.BACKOFF), [OPEN_AT_13], (1000.0 + 25 * 3600.0, Bound.VISIT_TIME)),
        (-inf, FLOOR, Closure(NOON + 3700.0, Bound.BACKOFF), [OPEN_AT_13], (1000.0 + 3700.0, Bound.BACKOFF)),
        # All statements of an agent have to permit a visit.
        (-inf, FLOOR, None, [OPEN_AT_13, rules("Visit-time: 1330-1400")], (1000.0 + 5400.0, Bound.VISIT_TIME)),
        # A rate with a window is worked out again when the window ends.
        (1000.0, HOURLY, None, [RATE_TILL_1230], (1000.0 + 1800.0, Bound.REQUEST_RATE)),
        (-inf, HOURLY, None, [RATE_TILL_1230], (-inf, Bound.REQUEST_RATE)),
        (-3000.0, HOURLY, None, [RATE_TILL_1230], (600.0, Bound.REQUEST_RATE)),
    ],
)
def test_earliest_start(
    last_mono: float, pace: Pace, closure: Closure | None, timed: list[RuleSet], expected: tuple[float, Bound]
) -> None:
    assert earliest_start(last_mono, pace, closure, timed, NOW_MONO, NOON) == Start(*expected)
