"""The state machine of a paced host: the line, the requests under way, the next start. Pure; time is an argument.

Theory of operation. A host is in one phase at a time. After each event, ``LocalPacer`` asks ``next_look_mono`` when to
check the host again. The phases are:

    phase      it ends when
    RECALLING  the memory of an earlier process answers
    FULL       a request ends, is given back or expires; or max_concurrent is raised
    CALLED     the called waiter takes its permit, has to wait again, or leaves; a callback leaves after OFFER_S
    CLOSED     the host opens again
    SPACED     the interval is over, or a window of the day begins; robots.txt states another pace; a limit changes
    IDLE       a request comes, or the host is forgotten: soon, or with a backoff after up to a day (``busy_until``)

    request -> waits in line -> called -> granted (under way) -> end, give_back, expiry

No field names the phase: ``recalling``, ``under_way``, ``called`` and the start of the first waiter determine it.

Tasks in ``start`` and callbacks of ``when_ready`` stand in one line. Waiters start in the order of arrival, with one
exception: a later waiter may go first *if it does not delay an earlier waiter*. So the later request, and after it the
interval of the earlier waiter, must fit into the time until the earlier waiter may start (``Start.yields_until_mono``).
This rule has three consequences:

* A waiter with a long Crawl-delay delays the waiters behind it by its own interval, once for each of its requests. No
  later waiter overtakes it.
* While the Visit-time of a waiter is some hours away, later waiters go first, until the window of this waiter is near.
  If the windows of two agents never overlap, each agent gets its own window.
* All waiters with the same agent and floor have the same start. So only the first of them is checked (``firsts``).

If a task has to judge its URL again, it may give its permit back. Then it joins the line again with its old ``order``,
and so keeps its place. A callback has OFFER_S to take its permit by ``try_start``. After that time the callback leaves
the line, and the next waiter is called.
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Final

from politesse._pacing.backoff import HostBackoff
from politesse._pacing.pace import PacingOptions, Start, bounded, earliest_start, stated_pace
from politesse._pacing.permit import AgentPace, LocalPermit, Waiter
from politesse.status import HostStatus
from politesse.verdict import CLOSINGS, Bound, NotYet

if TYPE_CHECKING:
    from politesse.ports import TurnRequest

NEVER: Final = float("-inf")

OFFER_S: Final = 0.05
"""How long a callback keeps its place at the head of the line after its call, in seconds."""

_FORGOTTEN_S: Final = 0.1  # an idle host is kept for at least this time, to save timers
_RECALL_S: Final = 0.05  # how long to wait for a host that is being recalled
_ORDER: Final = attrgetter("order")


@dataclass(slots=True, eq=False)
class PacedHost:
    """A host that has requests under way or in line, or had a request not long ago.

    Attributes:
        host: the name of the host.
        options: the options of the pacer, with the limits that were set for this host.
        last_mono: the end of the last request, or its start if several may be under way. A fetch of robots.txt counts
            if it opened its site, or if no other request is remembered.
        agents: the pace of each agent that has requested a turn. The key is the agent's name and its floor: the least
            interval that the gate demands.
        backoff: the pace and the closures that the host's answers ask for.
        under_way: the permits that have not ended, the oldest first.
        is_full: whether as many requests are under way as are allowed at once.
        marks: how many requests have set ``last_mono`` so far.
        changes: how many events so far may have moved the start of a request. A start that was calculated before the
            last change is void.
        noted: the value of ``changes`` when the memory last noted the host.
        recalling: whether the state from an earlier process is being read.
        waiting: how many waiters are in line.
        firsts: the first waiter of each agent, in order.
        called: the waiter that was called, or None.
        called_mono: when that waiter was called.
        armed_mono: the time of the host's valid entry in the heap, or None without an entry.
        closed_mono: the end of the closure that the last HostClosed reported; minus infinity if a turn was granted
            since.
        long_wait: the cause of the LongWait that was published last, or None.
    """

    host: str
    options: PacingOptions
    last_mono: float
    agents: dict[tuple[str, float], AgentPace] = field(default_factory=dict)
    backoff: HostBackoff = field(default_factory=HostBackoff)
    under_way: list[LocalPermit] = field(default_factory=list)
    is_full: bool = False
    marks: int = 0
    changes: int = 0
    noted: int = 0
    recalling: bool = False
    waiting: int = 0
    firsts: list[Waiter] = field(default_factory=list)
    called: Waiter | None = None
    called_mono: float = NEVER
    armed_mono: float | None = None
    closed_mono: float = NEVER
    long_wait: Bound | None = None

    @property
    def held_by(self) -> str:
        """The URL whose request has to end before another can start; empty if the host has room."""
        return self.under_way[0].url if self.under_way and self.is_full else ""

    @property
    def head(self) -> Waiter | None:
        """The first task in line, or None without a task."""
        return next((waiter for waiter in self.line() if waiter.callback is None), None) if self.waiting else None

    def agent_pace(self, request: TurnRequest) -> AgentPace:
        """Return the pace that binds a request, after recording the statements of its robots.txt."""
        key = request.agent, request.min_delay_s
        agent = self.agents.get(key)
        if agent is None:
            agent = self.agents[key] = AgentPace(request.min_delay_s)
        if request.pace is not None:
            agent.record(request.origin, request.pace)
        self.changes += 1
        return agent

    def limit(self, options: PacingOptions) -> None:
        """Replace the options."""
        self.options = options
        self.is_full = len(self.under_way) >= options.max_concurrent
        self.changes += 1
        for agent in self.agents.values():
            agent.stated = None

    # When a request may start

    def start_of(self, agent: AgentPace, now_mono: float, now_wall: float) -> Start:
        """Return when the next request of an agent may start, and which source binds it."""
        if agent.start is not None and agent.changes == self.changes:
            return agent.start
        pace, backoff, timed = agent.stated, self.backoff, agent.timed
        if pace is None or timed:
            pace = agent.stated = stated_pace(agent.by_origin.values(), now_wall, self.options, agent.floor_s)
        pace = backoff.slow(pace, now_mono, self.options)
        start = earliest_start(self.last_mono, pace, backoff.closing, timed, now_mono, now_wall)
        # Do not keep a start that depends on the time of day, or on the end of a quota.
        agent.start = start if not timed and now_mono >= backoff.quota_until_mono else None
        agent.changes = self.changes
        return start

    def may_start(self, agent: AgentPace, order: int, now_mono: float, now_wall: float) -> bool:
        """Return whether a request may start now: it is due, the host has room, and no earlier waiter is delayed."""
        if self.is_full or self.recalling or self.start_of(agent, now_mono, now_wall).ready_mono > now_mono:
            return False
        for waiter in self.firsts:
            if waiter.order >= order:
                break
            if self.start_of(waiter.agent, now_mono, now_wall).yields_until_mono <= now_mono:
                return False
        return True

    def next_waiter(self, now_mono: float, now_wall: float) -> tuple[Waiter | None, float]:
        """Return the waiter that may start now, or None, and the time of the next check."""
        look_mono = inf
        for waiter in self.firsts:
            start = self.start_of(waiter.agent, now_mono, now_wall)
            if start.ready_mono <= now_mono:
                return waiter, now_mono
            look_mono = min(look_mono, start.ready_mono)
            if start.yields_until_mono <= now_mono:
                break
        return None, look_mono

    def next_look_mono(self, kept_s: float, now_mono: float, now_wall: float) -> float:
        """Return when a host with room has to be checked if nothing changes until then; infinite for never."""
        if self.called is not None:
            # A task that was called checks the host itself. A callback might never call ``try_start``.
            return inf if self.called.callback is None else self.called_mono + OFFER_S
        if self.waiting:
            return self.next_waiter(now_mono, now_wall)[1]
        return max(self.busy_until(kept_s, now_mono, now_wall), self.last_mono + _FORGOTTEN_S)

    def not_yet(self, agent: AgentPace, now_mono: float, now_wall: float) -> NotYet:
        """Return when a request that has to wait may start: at its own time, or at that of an earlier waiter."""
        ready_mono, bound_by, pace, _ = self.start_of(agent, now_mono, now_wall)
        if self.recalling and bound_by not in CLOSINGS:  # an earlier gate may have left a closure
            return NotYet(now_wall + _RECALL_S, Bound.STORE)
        if self.under_way and self.options.max_concurrent == 1 and ready_mono <= self.last_mono + pace.interval_s:
            ready_mono = now_mono  # the interval will count from the end of the request under way
        for waiter in self.firsts:
            start = self.start_of(waiter.agent, now_mono, now_wall)
            if start.yields_until_mono <= now_mono and start.ready_mono > ready_mono:
                ready_mono, bound_by = start.ready_mono, start.bound_by
        wait_s = max(0.0, ready_mono - now_mono)
        if wait_s == 0.0:
            bound_by = Bound.IN_FLIGHT if self.is_full else Bound.QUEUE
        refusal = self.backoff.refusal(self.options) if bound_by is Bound.REFUSED else None
        return NotYet(now_wall + wait_s, bound_by, self.held_by, refusal)

    # The line

    def join(self, waiter: Waiter) -> None:
        """Put a waiter into the line, at the place that its ``order`` states."""
        waiters, self.waiting = waiter.agent.waiters, self.waiting + 1
        if waiters and next(reversed(waiters)).order < waiter.order:
            waiters[waiter] = None
        elif not waiters:
            waiters[waiter] = None
            insort(self.firsts, waiter, key=_ORDER)
        else:  # a waiter that joins again keeps its old place
            self.firsts.remove(next(iter(waiters)))
            waiter.agent.waiters = OrderedDict.fromkeys(sorted((*waiters, waiter), key=_ORDER))
            insort(self.firsts, next(iter(waiter.agent.waiters)), key=_ORDER)

    def leave(self, waiter: Waiter) -> None:
        """Take a waiter out of the line."""
        waiters, self.waiting = waiter.agent.waiters, self.waiting - 1
        del waiters[waiter]
        if waiter in self.firsts:
            self.firsts.remove(waiter)
            if waiters:
                insort(self.firsts, next(iter(waiters)), key=_ORDER)
        if self.called is waiter:
            self.called = None

    def line(self) -> list[Waiter]:
        """Return all waiters, the first one first."""
        return sorted((waiter for first in self.firsts for waiter in first.agent.waiters), key=_ORDER)

    # Requests under way

    def stamp(self, permit: LocalPermit, now_mono: float) -> None:
        """Record the start of a request in its permit, and in ``last_mono``, from which the next interval counts."""
        self.marks += 1
        self.changes += 1
        permit.before_mono, permit.marks = self.last_mono, self.marks
        permit.started_mono = self.last_mono = self.backoff.last_mono = now_mono

    def grant(self, permit: LocalPermit, now_mono: float) -> None:
        """Count a request as under way, and stamp its permit."""
        self.under_way.append(permit)
        self.is_full = len(self.under_way) >= self.options.max_concurrent
        self.stamp(permit, now_mono)

    def end(self, permit: LocalPermit, now_mono: float) -> None:
        """End a request. With one request at a time, the interval counts from now on."""
        self.under_way.remove(permit)
        self.is_full = len(self.under_way) >= self.options.max_concurrent
        if self.options.max_concurrent == 1:
            self.asked(now_mono)

    def give_back(self, permit: LocalPermit) -> None:
        """End a permit that was not used for a request."""
        self.under_way.remove(permit)
        self.is_full = len(self.under_way) >= self.options.max_concurrent
        self.unmark(permit)

    def unmark(self, permit: LocalPermit) -> None:
        """Take back the stamp of a permit that was not used for a request."""
        self.changes += 1
        if self.marks == permit.marks:  # otherwise a later request has set ``last_mono``
            self.last_mono = self.backoff.last_mono = permit.before_mono
            self.marks -= 1

    def asked(self, now_mono: float) -> None:
        """Let the interval before the next request count from now."""
        self.last_mono = self.backoff.last_mono = now_mono
        self.marks += 1
        self.changes += 1

    # How long a host is remembered

    @property
    def longest_s(self) -> float:
        """The longest interval of any agent at any time of day."""
        agents, options = self.agents.values(), self.options
        stated_s = bounded(max([agent.longest_s for agent in agents], default=0.0), options)
        return max([options.min_delay_s, stated_s, *(agent.floor_s for agent in agents)])

    def last_is_known_until(self, kept_s: float) -> float:
        """Return until when ``last_mono`` counts: for ``kept_s``, or for twice the longest interval if that is longer.

        One interval would be too short. A page may be due right after this interval, and need a new fetch of
        robots.txt. This fetch must not count as the first request to the host.
        """
        return self.last_mono + max(kept_s, 2.0 * self.longest_s)

    def busy_until(self, kept_s: float, now_mono: float, now_wall: float) -> float:
        """Return until when an idle host must be kept: its pace, a backoff or a Visit-time still counts.

        When the host is forgotten, only ``last_mono`` is remembered, for ``kept_s``. So a host whose ``last_mono``
        counts for longer is kept, too.
        """
        longest_s = self.longest_s
        rest_s = max(longest_s, self.backoff.smoothed_s(self.options))
        until_mono = max(self.last_mono + rest_s, self.backoff.remembered_until_mono)
        for agent in self.agents.values():  # a Visit-time may let an agent wait for longer
            until_mono = max(until_mono, self.start_of(agent, now_mono, now_wall).ready_mono)
        return max(until_mono, self.last_mono + 2.0 * longest_s) if 2.0 * longest_s > kept_s else until_mono

    def forget_open_windows(self, now_mono: float, now_wall: float) -> None:
        """Forget idle agents whose Visit-time has begun. Otherwise a host with disjoint windows is never forgotten."""
        for name, agent in list(self.agents.items()):
            opens_s = self.start_of(agent, now_mono, now_wall).ready_mono - now_mono
            if agent.timed and opens_s <= _FORGOTTEN_S and len(self.agents) > 1:
                del self.agents[name]

    def snapshot(self, now_mono: float, now_wall: float) -> HostStatus:
        """Return the state of the host, with the pace of the agent whose next request may start last."""
        paces = []
        for agent in self.agents.values() or (AgentPace(),):
            start = self.start_of(agent, now_mono, now_wall)
            paces.append((start.ready_mono, *start.pace))
        ready_mono, interval_s, bound_by = max(paces, key=itemgetter(0, 1))
        closed_until_mono, closed_by = self.backoff.closing
        is_closed, holder = closed_until_mono > now_mono, self.under_way[0] if self.under_way else None
        return HostStatus(
            self.host,
            interval_s,
            bound_by,
            not_before=now_wall + max(0.0, ready_mono - now_mono),
            closed_until=now_wall + (closed_until_mono - now_mono) if is_closed else None,
            closed_by=closed_by if is_closed else None,
            waiting=self.waiting,
            in_flight=len(self.under_way),
            held_by=holder.url if holder is not None else "",
            held_s=now_mono - holder.started_mono if holder is not None else 0.0,
            refusal=self.backoff.refusal(self.options),
        )
