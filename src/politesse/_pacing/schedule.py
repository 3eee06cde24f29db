"""When the next request of one agent to one host may start, and what binds that. Pure; the time is an argument.

Theory of operation. Two sorts of facts meet here, and they are kept apart:

* What is of the host binds every request to it: when it was last asked (``last_mono``), until when it is closed (429,
  503, Retry-After), and how slow its answers say that it is (adaptive delay, quota).
* What the robots.txt files state binds the agent for which they state it: Crawl-delay, Request-rate, Visit-time. It
  comes with each request.

The interval before a request is the slowest of the crawler's own floor, what is stated for the agent of *that* request,
and what the answers of the host say. It counts from the last request of any agent. So what is stated for one agent
neither loosens nor tightens the interval of another.

A closure or a window of a Visit-time does not lengthen the interval; the request starts when the interval is over and
both permit it. The window must be open when the request starts, not now. Where a Request-rate has a window, the
interval may become shorter when the window ends: the schedule is worked out again then, so it never names a later time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from politesse._pacing.pace import rates_hold_until, visit_from
from politesse.verdict import Bound

if TYPE_CHECKING:
    from collections.abc import Collection

    from politesse._pacing.pace import Pace
    from politesse.ports import StatedPace


class Closure(NamedTuple):
    """Until when a host is closed.

    Attributes:
        until_wall: the Unix time; in the past if it is open.
        bound_by: RETRY_AFTER, BACKOFF or RATE_LIMIT.
    """

    until_wall: float
    bound_by: Bound


class Start(NamedTuple):
    """When a request may start.

    Attributes:
        ready_mono: by the monotonic clock; in the past if it may start now.
        bound_by: what binds that.
    """

    ready_mono: float
    bound_by: Bound


def earliest_start(
    last_mono: float,
    pace: Pace,
    closure: Closure | None,
    timed: Collection[StatedPace],
    now_mono: float,
    now_wall: float,
) -> Start:
    """Return when a request may start.

    Args:
        last_mono: when the host was last asked; minus infinity for never.
        pace: the interval before this request, worked out for ``now_wall``.
        closure: of the host; None for none.
        timed: the statements for the agent of this request, if the time of day matters to any; else empty.
        now_mono: the monotonic time.
        now_wall: the Unix time.
    """
    ready_mono, bound_by = last_mono + pace.interval_s, pace.bound_by
    if timed:
        ready_mono = min(ready_mono, now_mono + (rates_hold_until(timed, now_wall) - now_wall))
    if closure is not None and closure.until_wall > now_wall:
        opens_mono = now_mono + (closure.until_wall - now_wall)
        if opens_mono > ready_mono:
            ready_mono, bound_by = opens_mono, closure.bound_by
    if timed:
        start_wall = now_wall + max(0.0, ready_mono - now_mono)
        opens_wall = visit_from(timed, start_wall)
        if opens_wall > start_wall:
            ready_mono, bound_by = now_mono + (opens_wall - now_wall), Bound.VISIT_TIME
    return Start(ready_mono, bound_by)
