"""The status of each host, from all parts of a gate.

The pacer knows the busy hosts, and the cache knows the hosts with a cached robots.txt. The first turn of an agent at a
host tells the pacer which pace robots.txt states for this agent. Before that turn, the pace comes from the rules in the
cache.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING

from politesse._base.text import printable
from politesse._pacing.pace import stated_pace, visit_from
from politesse.status import HostStatus, RobotsStatus
from politesse.verdict import CLOSED, Bound

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from politesse._cache.outcome import Copy
    from politesse._gate.state import GateState
    from politesse._pacing.shared import GateShare
    from politesse.origin import Origin


def hosts_known(state: GateState, agent: str) -> dict[str, HostStatus]:
    """Return the status of each host, with its pace for ``agent``; busy hosts come first."""
    known = KnownHosts(state, agent)
    for _ in known.find():
        pass
    return {status.host: status for status in known.statuses(known.names(resting=True))}


class KnownHosts:
    """The hosts of a gate, read in small steps: first all steps of ``find``, then ``statuses``.

    Args:
        state: the parts of the gate.
        agent: the agent whose pace counts.

    Attributes:
        origins: the origins of each host whose robots.txt is known or is being fetched.
    """

    def __init__(self, state: GateState, agent: str) -> None:
        self._state = state
        self._agent = agent
        self.origins: defaultdict[str, dict[str, Origin]] = defaultdict(dict)

    def find(self) -> Iterator[None]:
        """Find the origins of each host, one in each step."""
        cache = self._state.cache
        for copy in list(cache.entries.values()):
            self.origins[copy.origin.pacing_host][copy.origin.text] = copy.origin
            yield
        for key, flight in cache.flights.items():
            self.origins[flight.origin.pacing_host][key] = flight.origin

    def names(self, *, resting: bool = False) -> list[str]:
        """Return the names of the hosts, busy hosts first; for ``resting`` see ``Hosts.names``."""
        return list(dict.fromkeys([*self._state.pacer.names(resting=resting), *self.origins]))

    def statuses(self, names: Iterable[str], *, robots: bool = True) -> Iterator[HostStatus]:
        """Yield the present status of each of these hosts; it takes half the time without ``robots``.

        A host that is not known is idle.
        """
        state, fetching = self._state, self._state.cache.flights
        entries = state.cache.entries
        for host in names:
            now = state.clock.monotonic(), state.clock.wall()
            origins = self.origins.get(host, {})
            copies = [copy for key in origins if (copy := entries.get(key)) is not None]
            known = state.pacer.host(host) or HostStatus(host, 0.0, Bound.FLOOR, now[1])
            pace = _pace(state, self._agent, known, copies, now)
            if robots:
                open_wall = pace.closed_until or now[1]  # robots.txt is not fetched while its host is closed
                files = [_robots(copy, now, open_wall, fetching) for copy in copies]
                unknown = [origin for key, origin in origins.items() if key in fetching and key not in entries]
                files += [RobotsStatus(origin, fetching=True) for origin in unknown]
                pace = replace(pace, robots=tuple(files))
            yield pace


def held_longest(pacer: GateShare) -> str:
    """Return a text about the turns under way and the waits, to append to a phrase; empty if there are none.

    The text names the number of turns, the oldest turn, and the number of requests that wait for the Redis of a fleet.
    """
    paces = pacer.hosts().values()
    waits_for_redis = any(pace.fleet_wait is not None and pace.fleet_wait.bound_by is Bound.FLEET for pace in paces)
    away = f", {pacer.waiting} waiting for the Redis of the fleet" if waits_for_redis else ""
    holders = [pace for pace in paces if pace.in_flight]
    if not holders:
        return away
    holder = max(holders, key=attrgetter("held_s"))
    held = f"{printable(holder.host)} held by {printable(holder.held_by)} for {holder.held_s:.0f} s"
    return f", {pacer.in_flight} turns under way, {pacer.waiting} waiting, {held}{away}"


def _robots(copy: Copy, now: tuple[float, float], open_wall: float, fetching: Container[str]) -> RobotsStatus:
    source = copy.source
    return RobotsStatus(
        copy.origin,
        source.result,
        source.status,
        source.fault,
        age_s=max(0.0, copy.age_s(*now)),
        fetching=str(copy.origin) in fetching,
        next_fetch=max(now[1] + copy.due_in_s(*now), open_wall),
        size=copy.rules.size if copy.rules else None,
    )


def _pace(state: GateState, agent: str, known: HostStatus, copies: list[Copy], now: tuple[float, float]) -> HostStatus:
    """Return the status of a host with the slower of two paces: of the pacer, and of the robots.txt of its origins."""
    options, (_, now_wall) = state.pacer.options_of.get(known.host, state.pacing), now
    rules = [copy.rules[agent] for copy in copies if agent in copy.rules]
    stated, open_wall = stated_pace(rules, now_wall, options), visit_from(rules, now_wall)
    if stated.interval_s > known.interval_s:
        # The pacer learns this pace with the first turn. Until then the interval counts from the fetch of robots.txt.
        since_s = min((copy.age_s(*now) for copy in copies), default=inf)
        next_wall = max(known.not_before, now_wall - since_s + stated.interval_s)
        known = replace(known, interval_s=stated.interval_s, bound_by=stated.bound_by, not_before=next_wall)
    # If no origin of the host is open, its next request is for the robots.txt that may be fetched first.
    sources = [copy.source for copy in copies]
    if all(source.of_host or (source.result in CLOSED and not state.reports) for source in sources):
        open_wall = max(open_wall, min([source.not_before or now_wall for source in sources], default=now_wall))
    return known if open_wall <= known.not_before else replace(known, not_before=open_wall)
