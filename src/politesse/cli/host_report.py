"""What a gatekeeper knows of a host, as ``politesse check --host`` prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from politesse._text import printable
from politesse.verdict import utc

if TYPE_CHECKING:
    from politesse.status import HostStatus, RobotsStatus
    from politesse.verdict import NotYet


def host_lines(status: HostStatus) -> list[str]:
    """Return what is known of a host as text: the host, then one fact per line, with all remote text made printable."""
    held = f"{status.in_flight} under way, {status.waiting} waiting"
    if status.held_by:
        held += f", the oldest for {status.held_s:.0f} s: {printable(status.held_by)}"
    lines = [
        f"host: {printable(status.host)}",
        f"  pace:   every {status.interval_s:g} s, by {status.bound_by}",
        f"  next:   not before {utc(status.not_before)}",
        f"  turns:  {held}",
    ]
    if status.fleet_wait is not None:
        lines.append(f"  fleet:  {status.fleet_wait}")
    if status.closed_until is not None:
        lines.append(f"  closed: until {utc(status.closed_until)}, by {status.closed_by}")
    for robots in status.robots:
        lines.append(f"  robots.txt: {robots.origin}, {robots}")
        if robots.next_fetch is not None:
            lines.append(f"  fetched again: after {utc(robots.next_fetch)}")
    return lines


def host_record(status: HostStatus) -> dict[str, Any]:
    """Return what is known of a host as ``--json`` prints it.

    ::

        host          the name, without scheme and port
        interval_s    the interval between two requests, in seconds
        bound_by      what sets it: a value of politesse.Bound, as in "crawl-delay"
        not_before    the next request may start at this time
        closed_until  the end of what a 429 or 503 has demanded; or null
        closed_by     what that was; or null
        waiting       how many requests wait for a turn
        in_flight     how many turns are under way
        held_by       the URL of the oldest turn, or ""
        held_s        for how long that has been under way, in seconds
        robots        [{origin, result, status, fault, age_s, fetching, next_fetch}], for each origin of the host
        fleet_wait    {not_before, bound_by, held_by}: what the first request that waits waits for in the fleet; or null

    Times are ISO 8601 in UTC.
    """
    return {
        "host": status.host,
        "interval_s": status.interval_s,
        "bound_by": status.bound_by,
        "not_before": utc(status.not_before),
        "closed_until": None if status.closed_until is None else utc(status.closed_until),
        "closed_by": status.closed_by,
        "waiting": status.waiting,
        "in_flight": status.in_flight,
        "held_by": status.held_by,
        "held_s": round(status.held_s, 3),
        "robots": [_robots_record(robots) for robots in status.robots],
        "fleet_wait": None if status.fleet_wait is None else _wait_record(status.fleet_wait),
    }


def _wait_record(not_yet: NotYet) -> dict[str, Any]:
    return {"not_before": utc(not_yet.not_before), "bound_by": not_yet.bound_by, "held_by": not_yet.held_by}


def _robots_record(robots: RobotsStatus) -> dict[str, Any]:
    return {
        "origin": str(robots.origin),
        "result": robots.result,
        "status": robots.status,
        "fault": robots.fault,
        "age_s": round(robots.age_s, 3),
        "fetching": robots.fetching,
        "next_fetch": None if robots.next_fetch is None else utc(robots.next_fetch),
    }
