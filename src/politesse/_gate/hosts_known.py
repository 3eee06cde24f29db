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
from politesse._pacing.pace import slower, stated_pace, visit_from
from politesse.status import HostStatus, RobotsStatus
from politesse.verdict import CLOSED, Bound

if TYPE_CHECKING:
    from collections.abc import Container, Generator, Iterable, Iterator

    from politesse._cache.outcome import Copy
    from politesse._gate.state import GateState
    from politesse._pacing.shared import GateShare
    from politesse.origin import Origin
    from politesse.robots import RuleSet


def hosts_known(state: GateState, agent: str) -> dict[str, HostStatus]:
    """Return the status of each host, with its pace for ``agent``; busy hosts come first."""
    known = KnownHosts(state, agent)
    for _ in known.find():
        pass
    statuses = known.statuses(known.names(resting=True))
    return {status.host: status for status in statuses if status is not None}


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

    def statuses(self, names: Iterable[str], *, robots: bool = True) -> Iterator[HostStatus | None]:
        """Yield the present status of each of these hosts, after None for each of its origins; see ``find``.

        A host that is not known is idle. It takes half the time without ``robots``.
        """
        for host in names:
            yield (yield from self._status(host, robots=robots))

    def _status(self, host: str, *, robots: bool) -> Generator[None, None, HostStatus]:
        """Return the status of a host with the slower of two paces: of the pacer, and of the robots.txt of the host."""
        state, entries, fetching = self._state, self._state.cache.entries, self._state.cache.flights
        now_mono, now_wall = now = state.clock.monotonic(), state.clock.wall()
        known = state.pacer.host(host) or HostStatus(host, 0.0, Bound.FLOOR, now_wall)
        options = state.pacer.options_of.get(host, state.pacing)
        stated, since_s, is_open = stated_pace((), now_wall, options), inf, False
        timed: list[RuleSet] = []
        openings: list[float] = []
        files: list[RobotsStatus] = []
        for key, origin in self.origins.get(host, {}).items():
            copy = entries.get(key)
            if copy is not None:
                since_s = min(since_s, copy.age_s(now_mono, now_wall))
                rules = copy.rules.get(self._agent)
                if rules is not None:
                    stated = slower(stated, stated_pace((rules,), now_wall, options))
                    if rules.timetable.is_timed:
                        timed.append(rules)
                source = copy.source
                if source.of_host or (source.result in CLOSED and not state.reports):
                    openings.append(source.not_before or now_wall)
                else:
                    is_open = True
                if robots:
                    open_wall = known.closed_until or now_wall  # robots.txt is not fetched while its host is closed
                    files.append(_robots(copy, now, open_wall, fetching))
            elif robots and key in fetching:
                files.append(RobotsStatus(origin, fetching=True))
            yield

        status = replace(known, robots=tuple(files)) if files else known
        if stated.interval_s > known.interval_s:
            # The pacer learns this pace with the first turn. Until then it counts from the fetch of robots.txt.
            next_wall = max(known.not_before, now_wall - since_s + stated.interval_s)
            status = replace(status, interval_s=stated.interval_s, bound_by=stated.bound_by, not_before=next_wall)
        # If no origin of the host is open, its next request is for the robots.txt that may be fetched first.
        open_wall = max(visit_from(timed, now_wall), now_wall if is_open else min(openings, default=now_wall))
        return status if open_wall <= status.not_before else replace(status, not_before=open_wall)


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
