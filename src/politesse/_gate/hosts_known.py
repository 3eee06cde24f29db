"""What the parts of a gate know of each host, put together."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from politesse._pacing.pace import stated_pace
from politesse.host_status import HostStatus, RobotsStatus

if TYPE_CHECKING:
    from politesse._cache.entry import Entry
    from politesse._gate.state import GateState
    from politesse.ports import HostPace


def hosts_known(state: GateState) -> dict[str, HostStatus]:
    """Return what is known of each host: those that the pacer has at work, and those of which robots.txt is known."""
    cache, now_mono, now_wall = state.cache, state.clock.monotonic(), state.clock.wall()
    fetching = cache.being_fetched
    robots: defaultdict[str, list[RobotsStatus]] = defaultdict(list)
    entries: defaultdict[str, list[Entry]] = defaultdict(list)
    for key, entry in cache.entries.items():
        host, source = entry.origin.pacing_host, entry.source
        entries[host].append(entry)
        robots[host].append(
            RobotsStatus(
                entry.origin,
                source.result,
                source.status,
                source.fault,
                age_s=max(0.0, entry.age_s(now_mono, now_wall)),
                fetching=key in fetching,
                next_fetch=now_wall + entry.due_in_s(now_mono, now_wall),
            )
        )
    for origin in fetching.values():
        if str(origin) not in cache.entries:
            robots[origin.pacing_host].append(RobotsStatus(origin, fetching=True))
    paces = state.pacer.hosts()
    hosts = [*paces, *(host for host in robots if host not in paces)]
    return {
        host: _status(paces[host], robots[host])
        if host in paces
        else _idle_status(state, host, entries[host], robots[host], now_wall)
        for host in hosts
    }


def _status(pace: HostPace, robots: list[RobotsStatus]) -> HostStatus:
    return HostStatus(
        pace.host,
        pace.interval_s,
        pace.bound_by,
        pace.not_before_wall,
        pace.closed_until_wall,
        pace.closed_by,
        pace.waiting,
        pace.in_flight,
        pace.held_by,
        pace.held_s,
        tuple(robots),
    )


def _idle_status(
    state: GateState, host: str, entries: list[Entry], robots: list[RobotsStatus], now_wall: float
) -> HostStatus:
    """Return the status of a host that the pacer does not know: what its files state for the gate's own agent."""
    policy = state.policies.get(host)
    options = state.pacing if policy is None else policy.pacing(state.pacing)
    rules = [entry.rules[state.own_name] for entry in entries if state.own_name in entry.rules]
    pace = stated_pace(rules, now_wall, options)
    return HostStatus(host, pace.interval_s, pace.bound_by, now_wall, robots=tuple(robots))
