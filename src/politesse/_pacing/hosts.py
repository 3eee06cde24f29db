"""When a host may be requested next, and which request is next: lanes, hosts and scopes. The heart of the pacing.

    Lane   the requests of one agent and floor at one host: their pace, and those that wait, in the order of arrival
    Host   one paced host: its lanes, its requests under way, and its Demand: what its answers ask for
    Scope  a limit for several hosts together: all hosts of a registered domain, or at an address
    Hosts  all of these in one process; it is asked with a TurnRequest, and grants a Permit

Phases. A request is a LocalPermit from the call of ``start`` to its end::

    ASKED    due, nobody in line, room: three comparisons            GRANTED
    ASKED    else, by ``try_start``                                  ENDED at once, with a NotYet
    ASKED    else                                                    WAITING: joins the line of its host
    WAITING  called: the host keeps its place free for it            resumes, and is GRANTED
    WAITING  called, and a change makes the start too early          waits again, at its place in line
    WAITING  cancelled, too late, the pacer is closed                leaves the line; the next one is called
    GRANTED  ``end``, expiry                                         ENDED: the interval counts from now, or from its
                                                                     start if several requests may be under way
    GRANTED  ``give_back``                                           ENDED: no interval follows

    phase of a host  fields that imply it; the first counts  it ends with
    RECALLING        recalling                               the answer of the memory of an earlier process
    FULL             len(under_way) >= most                  an end, a ``give_back``, an expiry, another limit
    CALLED           called                                  the waiter takes its permit, or leaves; a change; OFFER_S
    QUEUED           lanes stand in the lines of scopes      a scope admits it; no waiter is due any more
    CLOSED, SPACED   a lane is due later than now, and no    the timer, a change
                     later waiter may go first
    IDLE             no waiter                               a waiter; or the host is forgotten (``busy_until``)

The rule of changes. Each event that may move a start ends in ``Host.changed``, which tells the memory, reckons all
lanes, takes back a call that has become too early, and lets ``advance`` call the next waiter or set the timer. (With
one request at a time, a start moves no other start before its end.) The short way of ``start``: nobody is in line, the
host has room, and ``Lane.ready_mono`` is over. ``Lane.ready_mono`` is infinite if a start has to be reckoned anew: the
time of day, a quota, a scope or a fleet counts, or the host is being recalled.

The rule of the line. Waiters start in the order of arrival, with one exception: a later waiter may go first if it
delays no earlier one. So its request, and then the interval of the earlier one, must fit into the time before the
earlier one's start (``Start.yields_until_mono``). This has three consequences:

* A waiter with a long Crawl-delay delays the waiters behind it by its own interval, once for each of its requests. No
  later waiter overtakes it.
* While the Visit-time of a waiter is some hours away, later waiters go first, until the window of this waiter is near.
  If the windows of two agents never overlap, each agent gets its own window.
* All waiters of a lane have the same start. So only the first waiter of each lane is looked at.

The rule of scopes. A waiter stands in the line of its host, nowhere else. If a waiter is due, its lane asks its scopes.
If all of them admit it, the waiter is called, and has its place in all of them in the same step. Otherwise the lane,
not the waiter, stands in the lines of all its scopes, until it has called one waiter or has none that is due. So no
scope is held while another one is awaited, a host with thousands of waiters is one waiter at its address, and the hosts
at an address take turns. All lines of scopes have the same order, in which the lanes became due, so no two lanes wait
for each other. A later lane may go first if the earlier one has to wait elsewhere anyway (``Lane.start_elsewhere``).

A waiter is a task, or a callback of ``when_ready``. Callbacks are called by the timer, at the end of a recall, and at
the close; never amid a change. A callback has OFFER_S to take its permit by ``try_start``; then it leaves the line, and
the next waiter is called. If nobody else waits, it keeps its place for longer: while a queue has more ready hosts than
workers, its hosts need not be forgotten and made anew. A permit gets its start time (its stamp) when it is granted, not
when its waiter is called: a task may resume late.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from asyncio import Future
from bisect import insort
from collections import Counter, OrderedDict, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, islice
from math import inf
from operator import itemgetter
from secrets import token_hex
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias
from weakref import ref

from politesse._base.constants import DAY_S
from politesse._base.tasks import running_loop
from politesse._pacing.addresses import Addresses, by_domain
from politesse._pacing.demand import FETCH_CLOSING, Demand
from politesse._pacing.fetch_lines import LONG_S, FetchLines
from politesse._pacing.host_state import HostMemory, HostState
from politesse._pacing.marks import NEVER, LastRequestTimes, Marks
from politesse._pacing.pace import (
    Limit,
    Pace,
    PacingOptions,
    Start,
    bounded,
    known_limited,
    longest_stated_s,
    stated_pace,
)
from politesse._pacing.refusals import PLAIN
from politesse.clock import ends_within, run_of
from politesse.errors import ClosedError, ConfigurationError, StoreError, TooFar, WrongEventLoop
from politesse.events import HeaderOverruled, HostClosed, HostOpened, LongWait, Publisher, TurnExpired
from politesse.status import HostStatus
from politesse.verdict import CLOSINGS, Bound, NotYet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from politesse._pacing.fleet.tickets import Claim, Held, Tickets
    from politesse._pacing.host_state import MemoryOf
    from politesse._pacing.refusals import IgnoredHeader
    from politesse.clock import Clock, Timer
    from politesse.events import Event
    from politesse.ports import Resolver
    from politesse.robots import RuleSet

    Waiter: TypeAlias = "LocalPermit | Watcher"


class TurnRequest(NamedTuple):
    """A request that wants to start. Each turn makes a TurnRequest; a named tuple is cheap to make.

    Attributes:
        host: the host name under which the request is paced, in lower case, without scheme, port and trailing dot.
        origin: the origin of the URL, as text.
        agent: the product tokens whose rules apply, the most specific first, joined by commas.
        pace: the statements of the robots.txt of ``origin`` for ``agent``. If it is None, the earlier statements stay
            in force.
        url: the URL, which is shown to requests that wait for this request; empty if it is unknown.
        min_delay_s: the shortest interval before this request that the gate permits. Gates with different values may
            share a pacer.
        check_lines: raises an error if the request must not wait; or None. Called only by a pacer that ``is_scoped``,
            when the keys of the request are known, and before it may join a line.
    """

    host: str
    origin: str
    agent: str
    pace: RuleSet | None = None
    url: str = ""
    min_delay_s: float = 0.0
    check_lines: Callable[[], None] | None = None


class PacedLine(NamedTuple):
    """A line in which requests wait for a turn: the line of one host, or of all hosts at one address or in one domain.

    Attributes:
        pacer: the pacer that has the line; gates that share a pacer name the same object.
        key: the key of the line in the pacer.
        max_concurrent: how many requests may be under way at once.
    """

    pacer: object
    key: str
    max_concurrent: int


class Permit(Protocol):
    """Permission to make one request now.

    A permit ends once: by ``end`` or ``give_back``, or because it was held for ``PacingOptions.max_turn_s``. Later
    calls have no effect.
    """

    @property
    def waited(self) -> bool:
        """Whether the request had to wait for the permit."""

    @property
    def under_way(self) -> bool:
        """Whether the permit has not ended."""

    def observe(self, status: int, headers: Mapping[str, str], /) -> None:
        """Record the answer while the request is under way. Has no effect after the end.

        Args:
            status: the HTTP status.
            headers: the headers, names in lower case.
        """

    def end(self) -> None:
        """End the request: with ``max_concurrent=1``, the interval before the next request counts from now."""

    def give_back(self) -> None:
        """End the permit without a request: the host was not contacted, so the interval does not begin again."""


OFFER_S: Final = 0.05
"""How long a callback keeps its place at the head of the line after its call, in seconds."""

_ALONE_S: Final = 10.0  # the same if nobody else waits, so long as neither a scope nor a fleet keeps a place for it
_KEPT_S: Final = 1.0  # how long the ticket of a fleet is kept for a callback that has let its OFFER_S pass
_FORGOTTEN_S: Final = 0.1  # an idle host is kept for at least this time, to save timers
_RECALL_S: Final = 0.05  # how long to wait for a host that is being recalled
_AGAIN_S: Final = 1.0  # a look-up of an address that others have cancelled is repeated after this time
_PATIENCE_S: Final = 30.0  # how long a lane lets others go first while a long request is under way in its other scope
_LOOKS: Final = 50  # how many lanes in its line a scope asks in one step
_HELD_S: Final = 5.0  # after this time, a permit counts as held for long if other requests wait for its end
_STALL_S: Final = 1.0  # if a check is late by more than this, the event loop was blocked
_MIN_TIMER_S: Final = 0.001  # one timer serves all hosts that are due within this time
_FEW_ENTRIES: Final = 100  # so many entries of the heap may stay that are no longer valid
_SOONER_S: Final = 0.001  # the next look is not moved for a difference smaller than this
_SAME_S: Final = 1.0  # a closure is not published again if its end moves by less than this
_NO_HEADERS: Final[Mapping[str, str]] = {}
_NOT_RECKONED: Final = Start(inf, Bound.FLOOR, Pace(0.0, Bound.FLOOR), inf)


class LocalPermit:
    """One request to a host, from the wait to the end; see ``Permit`` and the phases of the module.

    Attributes:
        lines: the pacer that granted the permit or has taken it over; None before the grant and after the end.
        lane: the lane of the request.
        paced: the host of the request. A permit that has ended has neither lane nor host, so it keeps no pacer alive.
        host: the name of the host.
        scopes: the scopes in which the request has a place.
        url: the URL of the request; empty if the URL is unknown.
        order: the number of its arrival, which is its place in line.
        waited: whether the request had to wait for the permit.
        joined_mono: when the request joined the line.
        max_wait_s: the longest wait; infinite for no limit.
        answered_s: how long the answer took, in seconds, or None before the answer.
        started_mono: when the permit was stamped.
        tickets: what the fleet has granted for the request; empty without a fleet.
        before_mono: the time of the last request to the host before the stamp.
        marks: the value of ``Host.marks`` right after the stamp.
    """

    __slots__ = (
        "_error",
        "_woken",
        "answered_s",
        "before_mono",
        "host",
        "joined_mono",
        "lane",
        "lines",
        "marks",
        "max_wait_s",
        "order",
        "paced",
        "scopes",
        "started_mono",
        "tickets",
        "url",
        "waited",
    )

    joined_mono: float
    max_wait_s: float
    started_mono: float
    before_mono: float
    marks: int
    scopes: tuple[Scope, ...]
    tickets: Sequence[Held]
    _error: Exception | None

    def __init__(self, lane: Lane, url: str, order: int) -> None:
        self.lane: Lane = lane
        self.paced: Host = lane.host
        self.host: str = lane.host.name
        self.url: str = url
        self.order: int = order
        self.lines: Hosts | None = None
        self.waited: bool = False
        self.answered_s: float | None = None
        self._woken: Future[None] | None = None

    @property
    def under_way(self) -> bool:
        """Whether the permit was granted and has not ended."""
        return self.lines is not None

    async def wait(self, now_mono: float, max_wait_s: float | None) -> None:
        """Wait in line until this request may start; the grant follows in the same step of the event loop."""
        host, lane, hosts = self.paced, self.lane, self.paced.hosts
        self._error, self.joined_mono = None, now_mono
        self.max_wait_s = inf if max_wait_s is None else max_wait_s
        loop = running_loop()
        if loop is None or loop is not hosts.wakeups.loop:
            loop = hosts.wakeups.own_loop()  # before the timer, which nothing would cancel if this raises
        alarm = None if max_wait_s is None else self._alarm(now_mono, max_wait_s)
        hosts.waiting += 1
        try:
            host.join(self, now_mono)
            while True:
                self._woken = loop.create_future()  # before ``advance``, which may call this waiter again
                if host.called is self and not hosts.closed:
                    now_mono = hosts.monotonic()
                    # The task resumes later than it was called. An event that forbids the start takes the call back.
                    # Without an event, the time of day, a quota, a ticket or an earlier lane may forbid it by now.
                    if not (lane.is_volatile or len(host.line) > 1) or host.may_start(self, now_mono):
                        break
                    host.uncall()
                    host.advance(now_mono)
                if self._error is not None:
                    raise self._error  # noqa: TRY301 - it ends the wait
                if not self.waited:
                    self.waited = True
                    if hosts.is_scoped or len(host.under_way) >= host.most or lane.start.ready_mono - now_mono > LONG_S:
                        hosts.report_wait(self, now_mono)
                await self._woken
        except BaseException:
            host.leave(self, hosts.monotonic())
            raise
        finally:
            hosts.waiting -= 1
            if alarm is not None:
                alarm.cancel()

    def _alarm(self, now_mono: float, max_wait_s: float) -> Timer | None:
        """Return the timer that ends the wait; raise TooFar at once if the start is too far away in any case.

        In a fleet, a request that cannot wait waits for one answer of Redis; see ``Host.refuse_late``.
        """
        host = self.paced
        if host.ready_mono(self.lane, now_mono) > now_mono + max_wait_s:
            host.advance(now_mono)  # sets the time to forget a host that is only asked about
            raise self.too_far()
        if host.claim is not None and max_wait_s == 0.0:
            return None
        return host.hosts.clock.call_later(max_wait_s, lambda: self.fail(self.too_far()))

    def wake(self) -> None:
        """Wake the task: its turn has come, or it has to raise its error."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def fail(self, error: Exception) -> None:
        """Let the task raise ``error``, unless it gets its permit at the same moment."""
        # The exception of the future cannot hold the error: if the task was woken already, its future is done. Such a
        # task must also raise the error, unless it may start.
        self._error = self._error or error
        self.wake()

    def too_far(self) -> TooFar:
        """Return the error for this waiter, with the present reason for its wait."""
        host = self.paced
        return TooFar(host.name, host.not_yet(self.lane), self.max_wait_s)

    def observe(self, status: int | None, headers: Mapping[str, str] = _NO_HEADERS, /) -> None:
        """Record an answer, so that a closure stops waiting requests at once; the first call measures its time.

        ``status`` is None if the request ends without an answer.
        """
        hosts = self.lines
        if hosts is None:
            return
        host, demand, is_calm = self.paced, self.paced.demand, False
        now_mono, now_wall = hosts.monotonic(), hosts.wall()
        if self.answered_s is None:
            self.answered_s = now_mono - self.started_mono
            is_calm = demand.rested(self.started_mono - self.before_mono, self.started_mono, host.options)
        if is_calm and not headers and (status is None or status in PLAIN):
            demand.answered(self.answered_s)  # nearly all answers only have a time
        else:
            jitter, interval_s = hosts.jitter(), host.reckon(self.lane, now_mono, now_wall).pace.interval_s
            took_s, options = self.answered_s, host.options
            ignored = demand.observe(status, headers, took_s, now_mono, now_wall, options, jitter, interval_s)
            if ignored:
                hosts.reports.overruled(host.name, ignored)
        if demand.closing.until_mono > now_mono:
            host.changed(now_mono)
            hosts.reports.closed(host, now_mono, now_wall, self.url, status)
        elif len(host.under_way) < host.most or hosts.recalls is not None:
            host.changed(now_mono)  # otherwise the end of the request reckons

    def end(self) -> None:
        """End the request: with ``max_concurrent=1``, the interval before the next request counts from now."""
        if self.lines is not None and self.answered_s is None:
            self.observe(None)  # before ``lines`` goes, because an ended permit observes nothing
        lines, self.lines = self.lines, None
        if lines is not None:
            lines.in_flight -= 1
            host, now_mono = self.paced, lines.monotonic()
            host.under_way.remove(self)
            if host.most == 1:
                host.marks += 1
                host.demand.last_mono = now_mono
            for scope in self.scopes:
                scope.end(self, now_mono)
            if lines.fleet is not None:
                lines.fleet.ended(self.tickets, now_mono, with_request=True)
            del self.paced, self.lane, self.scopes
            host.changed(now_mono)

    def expire(self) -> None:
        """End the permit because it was held for too long. This time is not recorded as a response time."""
        self.answered_s = 0.0
        self.end()

    def give_back(self) -> None:
        """End the permit without a request."""
        lines, self.lines = self.lines, None
        if lines is not None:
            lines.in_flight -= 1
            host = self.paced
            host.under_way.remove(self)
            host.unmark(self)
            for scope in self.scopes:
                scope.give_back(self)
            if lines.fleet is not None:
                lines.fleet.ended(self.tickets, lines.monotonic(), with_request=False)
            del self.paced, self.lane, self.scopes
            host.changed(lines.monotonic())


@dataclass(slots=True, eq=False)
class Watcher:
    """A callback of ``when_ready`` in line.

    Attributes:
        lane: the lane in which the callback waits.
        order: the number of its arrival, which is its place in line.
        callback: called once.
        is_told: whether it was called; it may then take its permit by ``try_start``.
    """

    lane: Lane
    order: int
    callback: Callable[[], None]
    is_told: bool = False


@dataclass(slots=True, eq=False)
class Lane:
    """The requests of one agent and floor at one host, in the same scopes.

    The floor is the least interval that the gate of a request demands.

    Attributes:
        scopes: the domain and the address that the requests count against, if they are limited.
        by_origin: for each requested origin, the pace that its robots.txt stated last.
        timed: the paces in ``by_origin`` if any of them depends on the time of day, otherwise empty.
        longest_s: the longest interval of the paces in ``by_origin``, at any time of day.
        stated: the pace that results from the floor, ``by_origin`` and the options; None until calculated.
        start: when the next request may start, as last reckoned.
        is_volatile: whether the start may move without an event: by the time of day, at the end of a quota, in a fleet.
        ready_mono: when the next request may start by the short way; infinite for the long way.
        waiters: the waiting requests, in order.
        queued_mono: since when the lane stands in the lines of its scopes; None if it does not.
        claims: the claims of the host and of the scopes in a fleet, in this order; empty without a fleet.
        asks_mono: from when on the lane may ask Redis for a start.
        ahead_s: how long before its start it may have a ticket.
    """

    host: Host
    floor_s: float = 0.0
    scopes: tuple[Scope, ...] = ()
    by_origin: dict[str, RuleSet] = field(default_factory=dict)
    timed: tuple[RuleSet, ...] = ()
    longest_s: float = 0.0
    stated: Pace | None = None
    start: Start = _NOT_RECKONED
    is_volatile: bool = False
    ready_mono: float = inf
    waiters: OrderedDict[Waiter, None] = field(default_factory=OrderedDict)
    queued_mono: float | None = None
    claims: tuple[Claim, ...] = ()
    asks_mono: float = inf
    ahead_s: float = 0.0

    def record(self, origin: str, pace: RuleSet) -> None:
        """Record the pace that the robots.txt of an origin states, in place of its earlier pace."""
        self.by_origin[origin] = pace
        statements = self.by_origin.values()
        self.stated = None
        self.timed = tuple(statements) if any(stated.timetable.is_timed for stated in statements) else ()
        self.longest_s = longest_stated_s(statements)

    def enter_scopes(self, now_mono: float) -> bool:
        """Take a place in all scopes at once; or stand in the lines of all of them, and return False."""
        if all(scope.admits(self, now_mono) for scope in self.scopes):
            for scope in self.scopes:
                scope.called = self
                scope.line.pop(self, None)
            self.queued_mono = None
            return True
        if self.queued_mono is None:
            self.queued_mono = now_mono
        for scope in self.scopes:
            scope.line.setdefault(self)
            scope.await_next(now_mono)
        if self.host.hosts.fleet is not None:  # other processes may use the tickets meanwhile
            self.host.hosts.fleet.let_go(self.host, now_mono)
        return False

    def leave_scopes(self) -> None:
        """Leave the lines of the scopes, and let other lanes try: no waiter is due any more, or the host is full."""
        self.queued_mono = None
        for scope in self.scopes:
            scope.line.pop(self, None)
        for scope in self.scopes:
            scope.look_soon()

    def uncall_scopes(self) -> None:
        """Give up the places in the scopes: the waiter that was called has to wait again, or has left."""
        for scope in self.scopes:
            if scope.called is self:
                scope.called = None
                scope.look_soon()

    def start_elsewhere(self, here: Scope, now_mono: float) -> float:
        """Return when this lane, which stands in line ``here``, may start as far as its other scopes tell.

        The result is infinite if that cannot be known: the lane is not first in another line, or a request is under way
        there. A lane that has waited for ``_PATIENCE_S`` ignores such requests, or long requests that overlap would
        starve it.
        """
        start_mono = -inf
        for scope in self.scopes:
            if scope is here:
                continue
            # The line has a first lane: a queued lane stands in the lines of all its scopes.
            if next(iter(scope.line)).host is not self.host:
                return inf
            if scope.called is None and not scope.is_full:
                start_mono = max(start_mono, scope.ready_mono)
            elif self.queued_mono is not None and now_mono < self.queued_mono + _PATIENCE_S:
                return inf
        return start_mono


def _first_order(lane: Lane) -> int:
    return next(iter(lane.waiters)).order


@dataclass(slots=True, eq=False)
class Host:
    """A host that has requests under way or in line, or had a request not long ago.

    Attributes:
        name: the key under which the host is paced: its name, its address or its domain.
        options: the options of the pacer, with the limits that were set for this host.
        most: how many requests may be under way at once.
        demand: the pace and the closures that the host's answers ask for, and the time of the last request. A fetch of
            robots.txt counts as a request if it opened its site, or if no other request is remembered.
        lanes: the lanes, by agent, floor and scopes.
        line: the lanes with waiters, in the order of their first waiters.
        under_way: the permits that have not ended, the oldest first.
        called: the waiter that was called, or None.
        called_mono: when the callback that was called last was told.
        marks: how many requests have set the time of the last request so far.
        recalling: whether the state from an earlier process is being read.
        armed_mono: the time of its valid entry in the heap of Wakeups; None without an entry.
        closed_mono: the end of the closure that the last HostClosed reported; minus infinity if a turn was granted
            since.
        long_wait: the cause of the LongWait that was published last, or None.
        claim: what this process wants and has in its fleet for this host; None without a fleet.
        asker: the lane that asks Redis for a start, or has its tickets; or None.
    """

    hosts: Hosts
    name: str
    options: PacingOptions
    demand: Demand
    lanes: dict[tuple[object, ...], Lane] = field(default_factory=dict)
    line: list[Lane] = field(default_factory=list)
    under_way: list[LocalPermit] = field(default_factory=list)
    called: Waiter | None = None
    called_mono: float = NEVER
    marks: int = 0
    recalling: bool = False
    armed_mono: float | None = None
    closed_mono: float = NEVER
    long_wait: Bound | None = None
    claim: Claim | None = None
    asker: Lane | None = None
    most: int = field(init=False)

    def __post_init__(self) -> None:
        self.most = self.options.max_concurrent

    # Changes

    def reckon(self, lane: Lane, now_mono: float, now_wall: float) -> Start:
        """Reckon when the next request of a lane may start, and which source binds it."""
        demand, timed, stated = self.demand, lane.timed, lane.stated
        if stated is None or timed:
            stated = lane.stated = stated_pace(lane.by_origin.values(), now_wall, self.options, lane.floor_s)
        start = lane.start = demand.start(stated, timed, now_mono, now_wall, self.options)
        lane.is_volatile = bool(timed) or now_mono < demand.quota_until_mono
        if self.hosts.fleet is not None:
            # This sets ``start``, ``is_volatile``, ``asks_mono`` and ``ahead_s`` of the lane, too.
            start = self.hosts.fleet.delayed(lane, start, now_mono, now_wall)
        lane.ready_mono = inf if lane.is_volatile or lane.scopes or self.recalling else start.ready_mono
        return start

    def changed(self, now_mono: float, *, is_noted: bool = True) -> None:
        """After an event that may have moved a start: reckon all lanes, and call the next waiter.

        A call that has become too early is taken back. If the event ``is_noted``, the memory learns of it.
        """
        hosts, now_wall, called = self.hosts, self.hosts.wall(), self.called
        if hosts.recalls is not None and is_noted and not self.recalling:
            hosts.recalls.note(self)
        if hosts.fleet is not None and self.demand.closing.until_mono > now_mono:
            hosts.fleet.note(self)
        for lane in self.lanes.values():
            self.reckon(lane, now_mono, now_wall)
        if (
            called is not None
            and not (isinstance(called, Watcher) and called.is_told)  # ``try_start`` asks whether it may still start
            and (self.recalling or called.lane.start.ready_mono > now_mono or len(self.under_way) >= self.most)
        ):
            self.uncall()
        if self.line or self.armed_mono is None:  # an idle host needs a timer, to be forgotten
            self.advance(now_mono)

    def uncall(self) -> None:
        """The waiter that was called has to wait again, at its place."""
        called, self.called = self.called, None
        if called is not None:
            called.lane.uncall_scopes()

    def limit(self, options: PacingOptions, now_mono: float) -> None:
        """Replace the options."""
        self.options, self.most = options, options.max_concurrent
        if self.claim is not None:
            self.claim.most = self.most
        for lane in self.lanes.values():
            lane.stated = None
        self.changed(now_mono)

    def lane(self, request: TurnRequest, key: tuple[object, ...], scopes: tuple[Scope, ...], now_mono: float) -> Lane:
        """Return the lane of a request, after recording the statements of its robots.txt."""
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = Lane(self, request.min_delay_s, scopes)
            if self.claim is not None:
                lane.claims = self.claim, *(scope.claim for scope in scopes if scope.claim is not None)
            for scope in scopes:
                scope.users += 1
        if request.pace is not None:
            lane.record(request.origin, request.pace)
        self.reckon(lane, now_mono, self.hosts.wall())
        if self.line:
            self.changed(now_mono, is_noted=False)  # with the new pace, a waiter may be allowed to start sooner
        return lane

    # The line

    def join(self, waiter: Waiter, now_mono: float) -> None:
        """Put a waiter into line, at the place that its ``order`` states."""
        lane, waiters, called = waiter.lane, waiter.lane.waiters, self.called
        if waiters and next(reversed(waiters)).order > waiter.order:  # a waiter that joins again keeps its old place
            lane.waiters = OrderedDict.fromkeys(sorted((*waiters, waiter), key=lambda each: each.order))
            self.line.sort(key=_first_order)
        else:
            waiters[waiter] = None
            if not self.line:
                self.line.append(lane)
            elif len(waiters) == 1:
                insort(self.line, lane, key=_first_order)
        if called is None:
            # Behind another waiter of its lane, it starts no sooner. A full host calls its next waiter at an end.
            if next(iter(lane.waiters)) is waiter and (len(self.under_way) < self.most or self.hosts.is_scoped):
                self.advance(now_mono)
        elif isinstance(called, LocalPermit):
            if called.order > waiter.order:  # a waiter that joins again goes first
                self.uncall()
                self.advance(now_mono)
        elif called.is_told:  # if it was alone in line until now, it lapses sooner from now on
            if self._lapses_mono(called) <= now_mono:
                self.leave(called, now_mono)
            else:
                self.hosts.wakeups.look_at(self, self._lapses_mono(called))

    def take(self, waiter: Waiter) -> None:
        """Take a waiter out of the line; its place in the scopes stays."""
        lane = waiter.lane
        del lane.waiters[waiter]
        if self.called is waiter:
            self.called = None
        if not lane.waiters:
            self.line.remove(lane)
            if lane.queued_mono is not None:
                lane.leave_scopes()
        elif len(self.line) > 1:
            self.line.sort(key=_first_order)  # the next waiter of the lane came later than that waiter

    def leave(self, waiter: Waiter, now_mono: float) -> None:
        """A waiter leaves the line without a permit."""
        if waiter in waiter.lane.waiters:
            if self.called is waiter:
                self.uncall()
            self.take(waiter)
            self.advance(now_mono)

    def refuse_late(self, ready_mono: float) -> None:
        """Raise TooFar in the tasks whose wait has to end before ``ready_mono``, and in those that cannot wait."""
        for lane in self.line:
            for waiter in lane.waiters:
                if isinstance(waiter, LocalPermit) and (
                    not waiter.max_wait_s or ready_mono > waiter.joined_mono + waiter.max_wait_s
                ):
                    waiter.fail(waiter.too_far())

    def may_start(self, waiter: Waiter, now_mono: float) -> bool:
        """Return whether a waiter that was called may start: it is due, has room, and delays no earlier waiter."""
        if self.recalling or len(self.under_way) >= self.most:
            return False
        now_wall = self.hosts.wall()
        for lane in self.line:
            start = self.reckon(lane, now_mono, now_wall)
            if lane is waiter.lane:
                is_due = start.ready_mono <= now_mono and next(iter(lane.waiters)) is waiter
                return is_due and (self.hosts.fleet is None or self.hosts.fleet.may_use(lane, now_mono))
            if start.yields_until_mono <= now_mono:
                return False
        return False

    def advance(self, now_mono: float, *, tells: bool = False) -> None:
        """Call the waiter that may start now, or set the time of the next look; amid a change, tell no callback."""
        if self.recalling:
            return
        called = self.called
        if called is not None:
            if isinstance(called, Watcher) and called.is_told:  # it might never take its permit
                self.hosts.wakeups.look_at(self, self._lapses_mono(called))
        elif self.line:
            self.called = waiter = self._first_due(now_mono)
            if isinstance(waiter, LocalPermit):
                waiter.wake()
            elif waiter is not None and tells:
                self._tell(waiter, now_mono)
            elif waiter is not None:
                self.hosts.wakeups.look_at(self, now_mono)  # the caller is in the middle of a change
        else:
            if self.claim is not None and self.hosts.fleet is not None:
                self.hosts.fleet.let_go(self, now_mono)
            if self.armed_mono is None and not self.under_way:  # an idle host is looked at only to forget it
                self.hosts.wakeups.look_at(self, self.demand.last_mono + _FORGOTTEN_S)

    def _first_due(self, now_mono: float) -> Waiter | None:
        """Return the waiter that may start now; otherwise set the time of the next look, and return None."""
        hosts, fleet, look_mono, due = self.hosts, self.hosts.fleet, inf, None
        is_full = len(self.under_way) >= self.most
        if is_full and fleet is None and not hosts.is_scoped:
            return None  # the end of a request comes first
        for lane in () if is_full else self.line:
            start = self.reckon(lane, now_mono, hosts.wall()) if lane.is_volatile else lane.start
            due_mono = start.ready_mono if fleet is None else lane.asks_mono
            if due_mono <= now_mono:
                has_places = not lane.scopes or lane.enter_scopes(now_mono)
                if not has_places or (fleet is not None and not fleet.admits(lane, now_mono)):
                    return None  # the scopes or the fleet let it try again
                due = next(iter(lane.waiters))
                break
            look_mono = min(look_mono, due_mono)
            if start.yields_until_mono <= now_mono:  # a later request would delay this one
                break
        if hosts.is_scoped:
            self._leave_scopes()
        if due is None:
            if fleet is not None:
                fleet.let_go(self, now_mono)
            if look_mono < inf:
                hosts.wakeups.look_at(self, look_mono)
        return due

    def _leave_scopes(self) -> None:
        """Stand in no scope: no lane is due, or one is called."""
        for lane in self.line:
            if lane.queued_mono is not None:
                lane.leave_scopes()

    def on_time(self, now_mono: float) -> None:
        """Do what is due: tell a callback, let it lapse, call the next waiter, or forget the host."""
        hosts, called = self.hosts, self.called
        if isinstance(called, Watcher):
            if not called.is_told:
                self._tell(called, now_mono)
                return
            if self._lapses_mono(called) <= now_mono:
                self.uncall()
                self.take(called)
        if self.line:
            if hosts.is_scoped or len(self.under_way) >= self.most:
                hosts.look_behind(self, now_mono)
            self.advance(now_mono, tells=True)
        elif not self.under_way and not self.recalling and self.called is None:
            self._forget_open_windows(now_mono)
            # A callback has let its OFFER_S pass, and may still come for its ticket.
            if self.asker is not None and hosts.fleet is not None:
                if now_mono < self.called_mono + _KEPT_S:
                    hosts.wakeups.look_at(self, self.called_mono + _KEPT_S)
                    return
                hosts.fleet.let_go(self, now_mono)
            if (kept_mono := max(self.busy_until(now_mono), self.demand.last_mono + _FORGOTTEN_S)) > now_mono:
                hosts.wakeups.look_at(self, kept_mono)
            else:
                hosts.forget(self, now_mono)

    def _tell(self, called: Watcher, now_mono: float) -> None:
        """Call a callback, which then has OFFER_S to take its permit."""
        called.is_told, self.called_mono = True, now_mono
        called.callback()
        if self.called is called:
            self.hosts.wakeups.look_at(self, self._lapses_mono(called))
        else:
            self.advance(now_mono)

    def _lapses_mono(self, called: Watcher) -> float:
        """Return until when a callback that was told keeps its place."""
        is_alone = len(self.line) == len(called.lane.waiters) == 1 and not called.lane.scopes and self.claim is None
        return self.called_mono + (_ALONE_S if is_alone else OFFER_S)

    # Requests under way

    def grant(self, permit: LocalPermit, now_mono: float) -> None:
        """Let a request start now."""
        hosts = self.hosts
        permit.lines, permit.scopes = hosts, permit.lane.scopes
        self.under_way.append(permit)
        demand = self.demand
        self.marks += 1
        permit.before_mono, permit.marks = demand.last_mono, self.marks
        permit.started_mono = demand.last_mono = now_mono
        for scope in permit.scopes:
            scope.start(permit, now_mono)
        if hosts.fleet is not None:
            permit.tickets = hosts.fleet.use(permit, now_mono)
        hosts.in_flight += 1
        # The memory notes each start. Otherwise, with one request at a time, its end is soon enough to reckon.
        if self.most > 1 or hosts.recalls is not None:
            self.changed(now_mono)
        if self.closed_mono != NEVER:
            hosts.reports.opened(self)
        if not hosts.expiry.is_armed:
            hosts.expiry.arm()

    def unmark(self, permit: LocalPermit) -> None:
        """Take back the stamp of a permit that was not used for a request."""
        if self.marks == permit.marks:  # otherwise a later request has set the time of the last one
            self.demand.last_mono = permit.before_mono
            self.marks -= 1

    def restart_interval(self, now_mono: float) -> None:
        """Let the interval before the next request count from now."""
        self.marks += 1
        self.demand.last_mono = now_mono
        self.changed(now_mono)

    # Explanations, made when somebody asks

    @property
    def last_mono(self) -> float:
        """When the host was last requested; minus infinity for never."""
        return self.demand.last_mono

    @property
    def is_full(self) -> bool:
        """Whether as many requests are under way as are allowed at once."""
        return len(self.under_way) >= self.most

    @property
    def holder(self) -> LocalPermit | None:
        """The permit that has to end before another request can start; None if the host and its scopes have room."""
        if self.is_full:
            return self.under_way[0]
        full = (scope for lane in self.line for scope in lane.scopes if lane.queued_mono is not None and scope.is_full)
        return next((next(iter(scope.under_way)) for scope in full), None)

    @property
    def waiting(self) -> int:
        """How many waiters are in line, without a callback that was told: its turn waits for it."""
        is_told = isinstance(self.called, Watcher) and self.called.is_told
        return sum(len(lane.waiters) for lane in self.line) - is_told

    @property
    def head(self) -> LocalPermit | None:
        """The first task in line, or None without a task."""
        return next((waiter for waiter in self.in_order() if isinstance(waiter, LocalPermit)), None)

    def in_order(self) -> list[Waiter]:
        """Return all waiters, the first one first."""
        return sorted((waiter for lane in self.line for waiter in lane.waiters), key=lambda waiter: waiter.order)

    def ready_mono(self, lane: Lane, now_mono: float) -> float:
        """Return when a request may start, by the host and by its scopes."""
        start = self.reckon(lane, now_mono, self.hosts.wall())
        return max([start.ready_mono, *(scope.ready_mono for scope in lane.scopes)])

    def not_yet(self, lane: Lane) -> NotYet:
        """Return when a request that has to wait may start: at its own time, or at that of an earlier waiter."""
        # In this order: if the process pauses between the readings, the time is too early, and the caller asks once
        # more. A time that is too late could exceed the ``max_wait_s`` of a caller that would get its turn in time.
        now_wall, now_mono = self.hosts.wall(), self.hosts.monotonic()
        ready_mono, bound_by, pace, _ = self.reckon(lane, now_mono, now_wall)
        if self.recalling and bound_by not in CLOSINGS:  # an earlier gate may have left a closure
            return NotYet(now_wall + _RECALL_S, Bound.STORE)
        if self.under_way and self.most == 1 and ready_mono <= self.demand.last_mono + pace.interval_s:
            ready_mono = now_mono  # the interval will count from the end of the request under way
        for earlier in self.line:
            start = self.reckon(earlier, now_mono, now_wall)
            if start.yields_until_mono <= now_mono and start.ready_mono > ready_mono:
                ready_mono, bound_by = start.ready_mono, start.bound_by
        held_by = self.under_way[0].url if self.is_full else ""
        wait_s = max(0.0, ready_mono - now_mono)
        if wait_s == 0.0:
            bound_by = Bound.IN_FLIGHT if self.is_full else Bound.QUEUE
        for scope in lane.scopes:
            if (scope_s := scope.ready_mono - now_mono) > wait_s:
                wait_s, bound_by, held_by = scope_s, Bound.FLOOR, ""
            elif wait_s == 0.0 and scope.is_full and not self.is_full:
                bound_by, held_by = Bound.IN_FLIGHT, next(iter(scope.under_way)).url
        refusal = self.demand.refusal(self.options) if bound_by is Bound.REFUSED else None
        not_yet = NotYet(now_wall + wait_s, bound_by, held_by, refusal)
        return not_yet if self.hosts.fleet is None else self.hosts.fleet.explained(not_yet, lane, now_wall)

    def snapshot(self, now_mono: float) -> HostStatus:
        """Return the state of the host, with the pace of the lane whose next request may start last."""
        paces, now_wall = [], self.hosts.wall()
        for lane in self.lanes.values() or (Lane(self),):
            start = self.reckon(lane, now_mono, now_wall)
            paces.append((start.ready_mono, *start.pace))
        ready_mono, interval_s, bound_by = max(paces, key=itemgetter(0, 1))
        closed_until_mono, closed_by = self.demand.closing
        is_closed, holder = closed_until_mono > now_mono, self.under_way[0] if self.under_way else None
        return HostStatus(
            self.name,
            interval_s,
            bound_by,
            not_before=now_wall + max(0.0, ready_mono - now_mono),
            closed_until=now_wall + (closed_until_mono - now_mono) if is_closed else None,
            closed_by=closed_by if is_closed else None,
            waiting=self.waiting,
            in_flight=len(self.under_way),
            held_by=holder.url if holder is not None else "",
            held_s=now_mono - holder.started_mono if holder is not None else 0.0,
            refusal=self.demand.refusal(self.options),
            fleet_wait=self.hosts.fleet.wait_of(self, now_mono) if self.hosts.fleet is not None else None,
        )

    # How long a host is remembered

    @property
    def longest_s(self) -> float:
        """The longest interval of any lane at any time of day."""
        lanes, options = self.lanes.values(), self.options
        stated_s = bounded(max([lane.longest_s for lane in lanes], default=0.0), options)
        return max([options.min_delay_s, stated_s, *(lane.floor_s for lane in lanes)])

    def last_is_known_until(self, kept_s: float) -> float:
        """Return until when the last request counts: for ``kept_s``, or for twice the longest interval if that is more.

        One interval would be too short. A page may be due right after this interval, and need a new fetch of
        robots.txt. This fetch must not count as the first request to the host.
        """
        return self.demand.last_mono + max(kept_s, 2.0 * self.longest_s)

    def busy_until(self, now_mono: float) -> float:
        """Return until when an idle host must be kept: its pace, a backoff or a Visit-time still counts.

        When the host is forgotten, only the time of its last request is remembered, for ``kept_s`` of the marks. So a
        host whose last request counts for longer is kept, too.
        """
        demand, now_wall, longest_s = self.demand, self.hosts.wall(), self.longest_s
        rest_s = max(longest_s, demand.smoothed_s(self.options))
        until_mono = max(demand.last_mono + rest_s, demand.remembered_until_mono)
        for lane in self.lanes.values():
            if lane.timed or self.claim is not None:  # a Visit-time or the fleet may let it wait for longer
                until_mono = max(until_mono, self.reckon(lane, now_mono, now_wall).ready_mono)
        if 2.0 * longest_s > self.hosts.marks.requested.kept_s:
            until_mono = max(until_mono, demand.last_mono + 2.0 * longest_s)
        return until_mono

    def _forget_open_windows(self, now_mono: float) -> None:
        """Forget idle lanes whose Visit-time has begun. Otherwise a host with disjoint windows is never forgotten."""
        timed = [key for key, lane in self.lanes.items() if lane.timed]
        for key in timed if len(self.lanes) > 1 else ():
            opens_s = self.reckon(self.lanes[key], now_mono, self.hosts.wall()).ready_mono - now_mono
            if opens_s <= _FORGOTTEN_S and len(self.lanes) > 1:
                self.forget_lane(key)

    def forget_lane(self, key: tuple[object, ...]) -> None:
        """Forget a lane without waiters."""
        for scope in self.lanes.pop(key).scopes:
            scope.users -= 1
            scope.look_soon()

    def adopt(self, state: HostState | None, passed_s: float | None, now_mono: float) -> None:
        """Add the state of an earlier process, None for no state; ``passed_s`` is its age, None if it is unreadable."""
        demand = self.demand
        if passed_s is None:
            demand.last_mono = now_mono  # a fault never makes a request too early: it counts as requested just now
        elif state is not None:
            asked_ago_s = state.asked_ago_s(passed_s, self.options.max_turn_s)
            if asked_ago_s is not None:
                demand.last_mono = max(demand.last_mono, now_mono - asked_ago_s)
            record = state.answers_after(passed_s)
            if record is not None:
                demand.recall(record, now_mono, self.options)

    def state(self, of: HostState) -> HostState:
        """Return ``of``, which has the process and the time, with the state of this host filled in."""
        demand = self.demand
        return replace(
            of,
            asked_s=None if demand.last_mono == NEVER else of.mono - demand.last_mono,
            under_way=self.most == 1 and bool(self.under_way),
            answers=demand.record(of.mono) if demand.is_known else None,
            answers_s=max(0.0, self.busy_until(of.mono) - of.mono),
        )


@dataclass(slots=True, eq=False)
class Scope:
    """A limit for all hosts of a domain, or at an address. Its waiters are lanes, each with a waiter that is due.

    Attributes:
        kind: ``"domain"`` or ``"address"``; ``name`` is the domain or the address.
        kept: the times of the last requests to scopes that were forgotten.
        recalls: recalls the scopes of this kind from an earlier process; or None.
        under_way: the permits that have not ended, the oldest first, with the time of the last request before each.
        last_mono: the end of the last request, or its start if several may be under way.
        line: the lanes that wait, in the order in which they became due.
        called: the lane whose waiter was called and has not started yet, or None.
        users: how many lanes have this scope; without any it is forgotten once it is due.
        recalling: whether the state from an earlier process is being read.
        armed_mono: the time of its valid entry in the heap of Wakeups; None without an entry.
        claim: what this process wants and has in its fleet for this scope; None without a fleet.
    """

    hosts: Hosts
    kind: str
    name: str
    limit: Limit
    kept: LastRequestTimes
    recalls: Recalls | None
    under_way: dict[LocalPermit, float] = field(default_factory=dict)
    line: OrderedDict[Lane, None] = field(default_factory=OrderedDict)
    called: Lane | None = None
    users: int = 0
    recalling: bool = False
    armed_mono: float | None = None
    claim: Claim | None = None
    last_mono: float = field(init=False)

    def __post_init__(self) -> None:
        now_mono = self.hosts.monotonic()
        self.last_mono = self.kept.take(self.name, now_mono)
        self.hosts.wakeups.look_at(self, max(self.ready_mono, now_mono + _FORGOTTEN_S))
        if self.recalls is not None:
            self.recalls.begin(self)

    @property
    def ready_mono(self) -> float:
        """When the next request may start if there is room."""
        ready_mono = self.last_mono + self.limit.min_delay_s
        return ready_mono if self.claim is None else max(ready_mono, self.claim.wait_mono)

    @property
    def is_full(self) -> bool:
        """Whether as many requests are under way as are allowed at once."""
        return len(self.under_way) >= self.limit.max_concurrent

    def admits(self, lane: Lane, now_mono: float) -> bool:
        """Return whether a request may start now: it is due, there is room, and no earlier lane is delayed."""
        if self.called is lane:
            return True  # it has its place, and waits for the fleet
        if self.called is not None or self.recalling or self.is_full or self.ready_mono > now_mono:
            return False
        for earlier in islice(self.line, _LOOKS):
            if earlier.host is lane.host:  # the order of the lanes of a host is that of its line
                return True
            # Twice, as in ``Start.yields_until_mono``: a request up to one interval long, then the interval after it.
            if earlier.start_elsewhere(self, now_mono) - 2.0 * self.limit.min_delay_s <= now_mono:
                return False
        return len(self.line) < _LOOKS  # lanes that were not looked at may be earlier ones that this lane delays

    def await_next(self, now_mono: float) -> None:
        """Set a timer for the line if only the interval keeps it waiting; other waits end with a call of the line."""
        if self.called is None and not self.is_full and self.ready_mono > now_mono:
            self.hosts.wakeups.look_at(self, self.ready_mono)

    def advance(self, now_mono: float) -> None:
        """Let the lanes in line try, the first one first."""
        for lane in list(islice(self.line, _LOOKS)):
            if self.called is not None or self.recalling or self.is_full or self.ready_mono > now_mono:
                break
            if lane in self.line:  # an earlier step of this loop may have taken it out
                lane.host.advance(now_mono)
        if self.line:
            self.await_next(now_mono)

    def on_time(self, now_mono: float) -> None:
        """Let the lanes in line try, or forget a scope that is not used."""
        self.advance(now_mono)
        if not self.users and not self.under_way and not self.recalling:
            if self.ready_mono > now_mono:
                self.hosts.wakeups.look_at(self, self.ready_mono)
            else:
                del self.hosts.by_kind[self.kind, self.name]
                self.kept.keep(self.name, self.last_mono, now_mono)
                if self.claim is not None and self.hosts.fleet is not None:
                    self.hosts.fleet.forget(self.claim)

    def look_soon(self) -> None:
        """Let the lanes in line try in the next step: the caller is in the middle of a change."""
        if self.line or not self.users:  # a scope without users is looked at to forget it
            self.hosts.wakeups.look_at(self, self.hosts.monotonic())

    def start(self, permit: LocalPermit, now_mono: float) -> None:
        """Count a request as under way."""
        self.called = None
        self.under_way[permit] = self.last_mono
        self.last_mono = now_mono
        if self.recalls is not None:
            self.recalls.note(self)
        if self.line and not self.is_full:
            self.look_soon()

    def end(self, permit: LocalPermit, now_mono: float) -> None:
        """End a request. With one request at a time, the interval counts from now on."""
        del self.under_way[permit]
        if self.limit.max_concurrent == 1:
            self.restart_interval(now_mono)
        if self.ready_mono > now_mono:
            self.await_next(now_mono)
        else:
            self.look_soon()

    def give_back(self, permit: LocalPermit) -> None:
        """End a permit that was not used for a request."""
        before_mono = self.under_way.pop(permit)
        if self.last_mono == permit.started_mono:  # otherwise a later request has set the time
            self.last_mono = before_mono
        self.look_soon()

    def restart_interval(self, now_mono: float) -> None:
        """Let the interval before the next request count from now."""
        self.last_mono = now_mono
        if self.recalls is not None:
            self.recalls.note(self)

    def fetched(self, now_mono: float) -> bool:
        """Count a request for robots.txt if no other request is remembered; return whether it counts."""
        counts = now_mono > self.last_mono + max(self.kept.kept_s, 2.0 * self.limit.min_delay_s)
        if counts:
            self.restart_interval(now_mono)
        return counts

    def snapshot(self, now_mono: float) -> HostStatus:
        """Return the state of the scope."""
        holder = next(iter(self.under_way), None)
        return HostStatus(
            self.name,
            self.limit.min_delay_s,
            Bound.FLOOR,
            not_before=self.hosts.wall() + max(0.0, self.ready_mono - now_mono),
            waiting=len(self.line),
            in_flight=len(self.under_way),
            held_by="" if holder is None else holder.url,
            held_s=0.0 if holder is None else now_mono - holder.started_mono,
        )

    def adopt(self, state: HostState | None, passed_s: float | None, now_mono: float) -> None:
        """Add the time of the last request in an earlier process; a state that could not be read counts as one now."""
        asked_ago_s = 0.0 if passed_s is None else None
        if state is not None and passed_s is not None:
            asked_ago_s = state.asked_ago_s(passed_s, self.hosts.options.max_turn_s)
        if asked_ago_s is not None:
            self.last_mono = max(self.last_mono, now_mono - asked_ago_s)

    def state(self, of: HostState) -> HostState:
        """Return the time of the last request at the moment of ``of``, which names the process and the clock."""
        is_under_way = self.limit.max_concurrent == 1 and bool(self.under_way)
        return replace(
            of, asked_s=None if self.last_mono == NEVER else of.mono - self.last_mono, under_way=is_under_way
        )


class Wakeups:
    """Looks at each host and scope at its time. An entry of the heap is valid while its time equals ``armed_mono``.

    A timer is set when a host is due before the soonest timer. If the host is due now, it is looked at in the next step
    of the event loop. Later timers are not cancelled: cancelling a timer and setting another costs three times as much,
    because the event loop keeps a cancelled timer until its time. No timer is set for an entry that is no longer valid.

    Args:
        clock: the monotonic clock and the timer.

    Attributes:
        loop: the event loop of the timer, or None before the first use.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Host | Scope]] = []
        self._most_entries = _FEW_ENTRIES
        self._pushes = 0
        self._timers: list[tuple[float, Timer]] = []  # the timers with their times, the soonest last
        self._soonest_mono = inf
        self.loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False

    def look_at(self, timed: Host | Scope, at_mono: float) -> None:
        """Look at a host or scope at ``at_mono``, which may be in the past; unless it is looked at before."""
        if self._stopped or (timed.armed_mono is not None and at_mono >= timed.armed_mono - _SOONER_S):
            return
        timed.armed_mono = at_mono
        self._pushes += 1
        heap = self._heap
        heapq.heappush(heap, (at_mono, self._pushes, timed))
        if len(heap) > self._most_entries:  # keep one entry of each host and scope: others pile up before their time
            heap[:] = {id(entry[2]): entry for entry in heap if entry[2].armed_mono == entry[0]}.values()
            heapq.heapify(heap)
            self._most_entries = 2 * len(heap) + _FEW_ENTRIES
        if at_mono < self._soonest_mono:
            self._set_timer(at_mono)

    def own_loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop; raise WrongEventLoop if the timer belongs to another loop."""
        loop = asyncio.get_running_loop()
        if self.loop is None:
            self.loop = loop
        elif self.loop is not loop:
            raise WrongEventLoop
        return loop

    def stop(self) -> None:
        """Cancel all looks."""
        self._stopped = True
        for _, timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._heap.clear()

    def _set_timer(self, at_mono: float) -> None:
        if self.loop is None:
            with suppress(RuntimeError):  # if no event loop is running, this clock works without a loop
                self.loop = asyncio.get_running_loop()
        delay_s = at_mono - self._clock.monotonic()
        if delay_s > 0.0:
            delay_s = max(delay_s, _MIN_TIMER_S)
        self._timers.append((at_mono, self._clock.call_later(delay_s, self._on_timer)))
        self._soonest_mono = at_mono

    def _on_timer(self) -> None:
        timers = self._timers
        timers.pop()
        self._soonest_mono = timers[-1][0] if timers else inf
        now_mono = self._clock.monotonic()
        heap = self._heap
        while heap and (heap[0][0] <= now_mono or heap[0][2].armed_mono != heap[0][0]):
            at_mono, _, timed = heapq.heappop(heap)
            if timed.armed_mono == at_mono:  # otherwise a later entry has replaced this entry
                timed.armed_mono = None
                timed.on_time(now_mono)
        if heap and heap[0][0] < self._soonest_mono:
            self._set_timer(heap[0][0])


class Recalls:
    """Recalls hosts and scopes from the memory of an earlier process, and notes changes in that memory.

    Theory of operation. A host that is new to this process is recalled before any request starts there. During the
    recall the host is in the phase RECALLING: requests wait in line, and ``try_start`` answers NotYet.

        new host -> RECALLING -> recalled:        its state is added to the host
                              -> failed, or late: the host counts as requested just now

    At the end of a recall, the callbacks of the host are called even if no request may start there yet. The owner of a
    callback may then give up a host that is closed for a long time. Each change of a host is noted in the memory. A
    note costs little, because the memory reads the state later, once for several notes.

    Args:
        memory: keeps the states of hosts.
        clock: the clocks.
        kept_s: how long a host counts as recalled, in seconds.
        recalled: called with each host whose recall has ended.

    Attributes:
        is_closed: whether no host is recalled any more.
    """

    def __init__(
        self,
        memory: Callable[[], HostMemory | None],
        clock: Clock,
        kept_s: float,
        recalled: Callable[[Host | Scope], None],
    ) -> None:
        self._memory = memory
        self._clock = clock
        self._recalled = recalled
        self._name = token_hex(8)
        self._run = run_of(clock)
        self._under_way: dict[Host | Scope, asyncio.Task[None]] = {}
        self._since_mono = clock.monotonic()
        self._known = LastRequestTimes(kept_s)  # the hosts that were recalled and not requested since
        self.is_closed: bool = False

    def begin(self, host: Host | Scope) -> None:
        """Begin to recall a host, unless it is known; no request starts there before the end of the recall."""
        now_mono = self._clock.monotonic()
        known_mono = self._known.take(host.name, now_mono)
        if known_mono != NEVER:
            self._known.keep(host.name, known_mono, now_mono)
        if self.is_closed or known_mono != NEVER or host.last_mono > self._since_mono:
            return  # after the close, only the end of an earlier fetch can still make a host active
        loop = asyncio.get_running_loop()
        host.recalling = True
        self._under_way[host] = task = loop.create_task(self._recall(host), name=f"recall of {host.name}")
        # A task that is cancelled before its first step runs no code, not even ``finally``. So the callback calls
        # ``_end``.
        task.add_done_callback(lambda _: self._end(host, None, None))

    async def ended(self, host: Host | Scope) -> None:
        """Wait until a host is recalled."""
        if (recall := self._under_way.get(host)) is not None:
            await asyncio.wait((recall,))  # a cancelled waiter does not cancel the recall

    def note(self, host: Host | Scope) -> None:
        """Tell the memory that the state of a host has changed. The memory reads the state later."""
        if (memory := self._memory()) is not None:
            memory.note(host.name, partial(self._state, host))

    def close(self) -> None:
        """End all recalls."""
        self.is_closed = True
        for task in self._under_way.values():
            task.cancel()

    async def _recall(self, host: Host | Scope) -> None:
        state, passed_s = None, None
        try:
            memory = self._memory()
            state = None if memory is None else await memory.recall(host.name)
            clock = self._clock
            passed_s = 0.0 if state is None else state.passed_s(self._run, clock.wall(), clock.monotonic())
        except StoreError:
            pass  # the memory has published the error, and ``passed_s`` is None
        finally:
            self._end(host, state, passed_s)  # this also runs after an error: the host must not wait for ever

    def _end(self, host: Host | Scope, state: HostState | None, passed_s: float | None) -> None:
        """Add the state to a host, once. If the state could not be read, the host counts as requested now."""
        if self._under_way.pop(host, None) is None:
            return
        host.recalling = False
        if self.is_closed:
            return
        now_mono = self._clock.monotonic()
        self._known.keep(host.name, now_mono, now_mono)
        host.adopt(state, passed_s, now_mono)
        if state is not None and state.is_ahead(self._run, self._clock.wall()):
            self.note(host)  # otherwise the next restart would close the host for the full time again
        self._recalled(host)

    def _state(self, host: Host | Scope) -> HostState:
        """Return the state of a host now."""
        return host.state(HostState(self._name, self._run, self._clock.wall(), self._clock.monotonic()))


class Reports:
    """Publishes each event about a host once.

    Args:
        publisher: receives the events.
    """

    def __init__(self, publisher: Publisher) -> None:
        self.publish: Callable[[Event], None] = publisher.publish
        self._stalled_mono = NEVER

    def overruled(self, host: str, headers: Iterable[IgnoredHeader]) -> None:
        """Publish the headers of an answer that are not obeyed literally."""
        for header in headers:
            self.publish(HeaderOverruled(host, header.field, header.value, header.applied_s, header.asked_s))

    def closed(self, host: Host, now_mono: float, now_wall: float, url: str = "", status: int | None = None) -> None:
        """Publish that a host is closed, unless a closure with about the same end was published."""
        closed_until_mono, bound_by = host.demand.closing
        if closed_until_mono <= now_mono or closed_until_mono - host.closed_mono < _SAME_S:
            return
        # Rounded, because the difference of two times may lack a part of a microsecond of a closure of 900 s.
        closed_s, host.closed_mono = round(closed_until_mono - now_mono, 6), closed_until_mono
        url = "" if status is None else url
        refusal = host.demand.refusal(host.options) if bound_by is Bound.REFUSED else None
        self.publish(HostClosed(host.name, now_wall + closed_s, bound_by, closed_s, url, status, refusal))
        if host.head is not None and closed_s > LONG_S:
            self.waits(host, host.head, closed_s, bound_by)

    def opened(self, host: Host) -> None:
        """Publish that a host that was closed is open again."""
        host.closed_mono = NEVER
        self.publish(HostOpened(host.name))

    def waits(self, host: Host, waiter: LocalPermit, wait_s: float, bound_by: Bound) -> None:
        """Publish a long wait, unless the last wait that was published for the host has the same cause."""
        if host.long_wait is not bound_by:
            host.long_wait = bound_by
            holder = host.holder
            held_by = "" if holder is None else holder.url
            self.publish(LongWait(host.name, waiter.url, wait_s, bound_by, held_by))

    def waited(self, host: Host, waiter: LocalPermit, waited_s: float) -> None:
        """Publish a long wait at its end if none was published before. After a short wait, forget the last cause."""
        if waited_s <= (_HELD_S if host.long_wait is Bound.IN_FLIGHT else LONG_S):
            host.long_wait = None
        elif host.long_wait is None:
            self.waits(host, waiter, waited_s, Bound.QUEUE)

    def held(self, host: Host, now_mono: float) -> float | None:
        """Publish a wait of _HELD_S for a held permit. If the wait is shorter so far, return when to check again.

        While a program blocks its event loop, its requests cannot end. So the time counts from the end of the block;
        otherwise the wait at every host would be published after the block.
        """
        head, holder = host.head, host.holder
        if head is None or holder is None:
            return None
        due_mono = max(holder.started_mono, head.joined_mono, self._stalled_mono) + _HELD_S
        if now_mono >= due_mono + _STALL_S and now_mono >= self._stalled_mono + _HELD_S + _STALL_S:
            self._stalled_mono = now_mono
            return now_mono + _HELD_S
        if now_mono < due_mono:
            return due_mono
        self.waits(host, head, now_mono - head.joined_mono, Bound.IN_FLIGHT)
        return None


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class PermitExpiry:
    """Checks the age of the permits that have not ended.

    A new permit arms the timer unless it is armed already. The end of a permit does not touch the timer. When the timer
    fires, every permit that has not ended is checked. Then the timer is armed again for the time at which the next
    permit reaches ``_HELD_S`` or ``max_turn_s``, but at most ``_HELD_S`` later. So the timer fires every few seconds
    while a permit is under way, and a short request only reads ``is_armed``.

        started --- _HELD_S ------> each further check calls ``long``, which publishes the wait of other requests
                --- max_turn_s ---> ``expire`` is called, which ends the permit

    Args:
        clock: the monotonic clock and the timer.
        max_turn_s: how long a permit may last before it expires, in seconds; infinite for no limit.
        under_way: returns the permits that have not ended.
        publisher: receives TurnExpired.
        long: called with a permit and the monotonic time, for each permit that is older than _HELD_S and does not
            expire.

    Attributes:
        max_turn_s: may be changed at any time.
        is_armed: whether the timer is set; if not, call ``arm`` when a turn starts.
    """

    _clock: Clock
    max_turn_s: float
    _under_way: Callable[[], Iterable[LocalPermit]]
    _publisher: Publisher
    _long: Callable[[LocalPermit, float], None]
    _timer: Timer | None = field(default=None, init=False)
    is_armed: bool = field(default=False, init=False)

    def arm(self, delay_s: float | None = None) -> None:
        """Set the timer to ``delay_s`` seconds; by default, until a permit that starts now has to be checked."""
        self.is_armed = True
        delay_s = min(_HELD_S, self.max_turn_s) if delay_s is None else max(delay_s, _MIN_TIMER_S)
        self._timer = self._clock.call_later(delay_s, partial(_look_at_permits, ref(self)))

    def look(self) -> None:
        """Check all permits."""
        now_mono = self._clock.monotonic()
        permits = list(self._under_way())
        self.is_armed = bool(permits)  # a permit that a callback takes now must not set a second timer
        next_mono = now_mono + min(_HELD_S, self.max_turn_s)
        for permit in permits:
            old_mono = permit.started_mono + self.max_turn_s
            if old_mono <= now_mono:
                if permit.under_way:  # otherwise a subscriber to an event above has ended the permit
                    permit.expire()
                    self._publisher.publish(TurnExpired(permit.host, permit.url, now_mono - permit.started_mono))
                continue
            long_mono = permit.started_mono + min(_HELD_S, self.max_turn_s)
            if long_mono <= now_mono:
                self._long(permit, now_mono)
            next_mono = min(next_mono, long_mono if long_mono > now_mono else old_mono)
        if permits:
            self.arm(next_mono - now_mono)

    def stop(self) -> None:
        """Stop the timer: no permit expires any more."""
        if self._timer is not None:
            self._timer.cancel()


def _look_at_permits(expiry: ref[PermitExpiry]) -> None:
    # A weak reference: the timer may run for another minute, and must not keep an unused pacer alive.
    alive = expiry()
    if alive is not None:
        alive.look()


@dataclass(slots=True, eq=False)
class LocalFetch:
    """Permission for one request for robots.txt.

    Attributes:
        pacer: the pacer that granted it.
        host: the name of the paced host.
        url: the URL of the request.
        lines: the lines in which the request holds a place, or None if the request was sent before ``start_fetch`` was
            called.
        limits: the kind and name of each domain and address with a limit, in which the request counts.
    """

    pacer: Hosts
    host: str
    url: str
    lines: FetchLines | None
    limits: Sequence[tuple[str, str]] = ()

    def end(self, status: int | None = None, headers: Mapping[str, str] | None = None, /) -> None:
        """End the request; its answer may close the host."""
        if self.lines is not None:
            self.lines.leave(self.host, sent=True)
        self.pacer.fetched(self, status, headers or {})

    def give_back(self) -> None:
        """End the permit without a request."""
        if self.lines is not None:
            self.lines.leave(self.host, sent=False)

    def opened(self) -> None:
        """Let the next page wait for one interval from now."""
        self.pacer.opened(self)


class Hosts:
    """Spaces the requests of this process to each host. Belongs to one event loop.

    Args:
        options: see PacingOptions.
        clock: the clocks and the timer.
        jitter: returns 0 to 1, to spread the requests to a host that was closed.
        publisher: receives AddressNotFound, HeaderOverruled, HostClosed, HostOpened, LongWait and TurnExpired.
        marks: returns the marks that earlier pacers of this process have left in a scope: host, address or domain. None
            to begin without.
        resolver: finds the addresses of hosts. Without one, each name is a key, and no address or domain is limited.
        fleet: the tickets of this process, if a fleet of processes shares the pace; or None.

    Attributes:
        by_name: maps the names of the active hosts to the hosts.
        waiting: how many tasks wait for a permit; callbacks do not count.
        in_flight: how many permits have not ended.
        closed: whether the pacer is closed.
        is_scoped: whether addresses or domains are paced, too.
        limits: the limit of each domain, of each address; the keys are ``"domain"`` and ``"address"``.
    """

    def __init__(
        self,
        options: PacingOptions | None = None,
        *,
        clock: Clock,
        jitter: Callable[[], float] = random.random,
        publisher: Publisher | None = None,
        marks: Callable[[str], Marks] | None = None,
        resolver: Resolver | None = None,
        fleet: Tickets | None = None,
    ) -> None:
        self.options: PacingOptions = options or PacingOptions()
        self.fleet: Tickets | None = fleet
        publisher = publisher or Publisher()
        self.clock: Clock = clock
        self.monotonic: Callable[[], float] = clock.monotonic
        self.wall: Callable[[], float] = clock.wall
        self.reports: Reports = Reports(publisher)
        of_none: defaultdict[str, Marks] = defaultdict(Marks)
        self._marks_of: Callable[[str], Marks] = marks or of_none.__getitem__
        self.marks: Marks = self._marks_of(self.options.key)
        self.marks.sweep(clock.monotonic())
        self.recalls: Recalls | None = None
        self.wakeups: Wakeups = Wakeups(clock)
        self.expiry: PermitExpiry = PermitExpiry(
            clock, self.options.max_turn_s, self.under_way, publisher, self._look_behind_permit
        )
        self.waiting: int = 0
        self.in_flight: int = 0
        self.closed: bool = False
        self.jitter = jitter
        self._orders = count()
        self.by_name: dict[str, Host] = {}
        self._options_of: dict[str, PacingOptions] = {}
        self._fetch_lines = FetchLines(clock, publisher, self.marks)
        self.is_scoped: bool = resolver is not None and self.options.is_scoped
        self._is_by_address = self.is_scoped and self.options.key == "address"
        self.limits: dict[str, Limit] = {}
        self.by_kind: dict[tuple[str, str], Scope] = {}
        self._memory: MemoryOf | None = None
        self._recalls_of: dict[str, Recalls] = {}
        self._looking_up: dict[object, Callable[[], None]] = {}  # callbacks whose address is not known yet
        if self.is_scoped and resolver is not None:
            self._addresses = Addresses(resolver, clock, publisher)
            limits = {"domain": self.options.domain, "address": self.options.address}
            self.limits = {kind: limit for kind, limit in limits.items() if limit is not None}
            kinds = {self.options.key, *self.limits}
            self._needs_address = "address" in kinds
            self._domain_of = by_domain() if "domain" in kinds else str
        self._keep_marks()
        if fleet is not None:
            fleet.hosts = self

    def use(self, options: PacingOptions) -> None:
        """Replace the options of all hosts without limits of their own."""
        self.options = options
        self.expiry.max_turn_s = options.max_turn_s
        self._keep_marks()
        for host in list(self.by_name.values()):
            host.limit(self._options(host.name), self.monotonic())

    def _keep_marks(self) -> None:
        kept = self.marks.requested
        kept.kept_s = max(kept.kept_s, min(self.options.max_crawl_delay_s, DAY_S))

    def remember(self, memory: MemoryOf) -> None:
        """From now on keep the states of hosts in a memory, and recall each host before it is requested again."""
        if self._memory is None and self.fleet is None:  # a fleet keeps the states of hosts itself
            self._memory = memory
            kept_s = self.marks.requested.kept_s
            self.recalls = Recalls(partial(memory, self.options.key), self.clock, kept_s, self._recalled)
            for kind in self.limits:
                kept_s = self._marks_of(kind).requested.kept_s
                self._recalls_of[kind] = Recalls(partial(memory, kind), self.clock, kept_s, self._recalled)
            for host in self.by_name.values():
                self._recall(host)

    # Requests for pages

    async def start(
        self, request: TurnRequest, max_wait_s: float | None = None, instead_of: Permit | None = None, /
    ) -> LocalPermit:
        """Wait in line for a permit. The place in line is that of ``instead_of``, a permit that was given back, if any.

        Raises:
            TooFar: if no permit comes within ``max_wait_s`` seconds; raised at once if that is certain.
            ClosedError: if the pacer is closed.
            WrongEventLoop: if the pacer was first used in another event loop.
        """
        if self.fleet is not None:
            self.fleet.link.check()
        if self.is_scoped:
            max_wait_s = await self._look_up(request, max_wait_s)
        now_mono = self.monotonic()
        lane = self._lane(request, now_mono)
        host = lane.host
        order = instead_of.order if isinstance(instead_of, LocalPermit) else next(self._orders)
        permit = LocalPermit(lane, request.url, order)
        if lane.ready_mono > now_mono or host.line or len(host.under_way) >= host.most:
            await permit.wait(now_mono, max_wait_s)
            now_mono = self.monotonic()
            host.take(permit)
            host.grant(permit, now_mono)
            if permit.waited:
                waited_s = now_mono - permit.joined_mono
                if waited_s > LONG_S or host.long_wait is not None:
                    self.reports.waited(host, permit, waited_s)
            return permit
        host.grant(permit, now_mono)
        return permit

    def try_start(self, request: TurnRequest, /) -> LocalPermit | NotYet:
        """Return a permit, or a NotYet with the time to ask again. Never waits; raises ClosedError.

        In a fleet, only a callback that was called, or a request of ``Host.asker``, gets one: Redis is not asked here.
        """
        if self.fleet is not None:
            self.fleet.link.check()
        if self.is_scoped and not self._knows(request.host):
            return NotYet(self.wall(), Bound.ADDRESS)
        now_mono = self.monotonic()
        lane = self._lane(request, now_mono)
        host, called = lane.host, lane.host.called
        if len(host.under_way) >= host.most or (lane.start.ready_mono > now_mono and not lane.is_volatile):
            host.advance(now_mono)  # as in ``LocalPermit._alarm``
            return host.not_yet(lane)
        permit = LocalPermit(lane, request.url, next(self._orders))
        if lane.ready_mono <= now_mono and not host.line:
            host.grant(permit, now_mono)
            return permit
        if isinstance(called, Watcher) and called.is_told and called.lane is lane:
            # If it is alone in line and not volatile, the checks above are enough.
            is_alone = len(host.line) == len(lane.waiters) == 1 and not (lane.is_volatile or host.recalling)
            if not is_alone and not host.may_start(called, now_mono):  # because of a change since the call
                host.leave(called, now_mono)
                return host.not_yet(lane)
            host.take(called)
        else:
            # To join the line shows whether the permit would be called now: it may go before waiters that it does not
            # delay. In a fleet, a request cannot wait here for Redis to be asked.
            if self.fleet is None or host.asker is lane:
                host.join(permit, now_mono)
            if host.called is not permit:
                host.leave(permit, now_mono)
                return host.not_yet(lane) if self.fleet is None or host.line else self.fleet.unasked(lane)
            host.take(permit)
        host.grant(permit, now_mono)
        return permit

    async def try_starts(self, requests: Sequence[TurnRequest], /) -> list[LocalPermit | NotYet]:
        """Return the answer of ``try_start`` to each request, without a wait in line; raises ClosedError.

        In a fleet this waits for one answer of Redis to each request. Requests to different hosts share a round trip.
        """
        if self.fleet is None:
            return list(map(self.try_start, requests))
        self.fleet.link.check()
        of_host: defaultdict[str, list[int]] = defaultdict(list)
        for place, request in enumerate(requests):
            of_host[request.host].append(place)
        answers: dict[int, LocalPermit | NotYet] = {}

        async def try_in_order(places: Iterable[int]) -> None:
            for place in places:
                answer = self.try_start(requests[place])
                if isinstance(answer, NotYet) and answer.bound_by is Bound.FLEET:
                    try:
                        answer = await self.start(requests[place], 0.0)
                    except TooFar as far:
                        answer = far.not_yet
                answers[place] = answer

        tries = [asyncio.ensure_future(try_in_order(places)) for places in of_host.values()]
        try:
            for each in tries:
                await each
        except BaseException:  # the caller was cancelled, or a try failed: no permit may be lost
            for each in tries:
                each.cancel()
            try:
                await asyncio.gather(*tries, return_exceptions=True)
            finally:  # the caller may be cancelled once more
                give_back_all(answers.values())
            raise
        return [answers[place] for place in range(len(requests))]

    def when_ready(self, request: TurnRequest, callback: Callable[[], None], /) -> None:
        """Call ``callback`` once, when ``request`` may start and is first in line, or when the pacer closes."""
        loop = running_loop()
        if self.closed or loop is None or loop is not self.wakeups.loop:
            self._check_open(request)
            loop = self.wakeups.own_loop()
        if self.fleet is not None:
            try:
                self.fleet.link.check()
            except ConfigurationError:
                loop.call_soon(callback)  # it asks for its permit, which raises the error
                return
        if self.is_scoped and not self._knows(request.host):
            self._call_later(request, callback)
            return
        now_mono = self.monotonic()
        lane = self._lane(request, now_mono)
        lane.host.join(Watcher(lane, next(self._orders), callback), now_mono)

    async def aclose(self) -> None:
        """Raise ClosedError in all waiting tasks, and call the callbacks of ``when_ready``."""
        if self.closed:
            return
        self.closed = True  # first, so that no callback below gets a permit or joins a line
        self.wakeups.stop()
        self.expiry.stop()
        for recalls in (self.recalls, *self._recalls_of.values()):
            if recalls is not None:
                recalls.close()
        self.end_waits(lambda name: ClosedError(f"the pacer was closed during the wait for a turn at {name}"))
        if self.fleet is not None:
            await self.fleet.aclose()
        if self.is_scoped:
            await self._addresses.aclose()
            for callback in list(self._looking_up.values()):
                callback()

    def end_waits(self, error_at: Callable[[str], Exception]) -> None:
        """Raise an error in all tasks that wait, and call the callbacks; ``error_at`` gets the name of the host."""
        for host in list(self.by_name.values()):
            for waiter in host.in_order():
                if isinstance(waiter, LocalPermit):
                    waiter.fail(error_at(host.name))
                elif not waiter.is_told:
                    waiter.is_told = True
                    host.leave(waiter, self.monotonic())
                    waiter.callback()

    # Requests for robots.txt

    async def start_fetch(self, request: TurnRequest, /, *, made: bool = False) -> LocalFetch:
        """Wait in line for the request of a robots.txt; if it was ``made`` already, only count it.

        All keys are looked up before the request. Otherwise a page could be granted before the request counts in all
        scopes.
        """
        name, url = request.host, request.url
        if self.is_scoped:
            await self._look_up(request, None)
        if self.closed:
            self._check_open(request)
        key, limits = (self._key(name), self._scope_keys(name)) if self.is_scoped else (name, [])
        if made:
            return LocalFetch(self, key, url, None, limits)
        floor_s = max(self._options(key).min_delay_s, request.min_delay_s)
        await self._fetch_lines.enter(key, url, floor_s)
        fetch = LocalFetch(self, key, url, self._fetch_lines, limits)
        if self.closed:
            fetch.give_back()
            self._check_open(request)
        return fetch

    def fetched(self, fetch: LocalFetch, status: int | None, headers: Mapping[str, str]) -> None:
        """Record an answer to a request for robots.txt. The interval restarts only if the host was idle for long."""
        now_mono, requested, key = self.monotonic(), self.marks.requested, f"{self.options.key}:{fetch.host}"
        for kind, name in fetch.limits:
            if self._scope(kind, name).fetched(now_mono) and self.fleet is not None:
                self.fleet.count(f"{kind}:{name}", now_mono)
        host = self._active_host(fetch, becomes_active=status in FETCH_CLOSING)
        if host is None:
            if now_mono - requested.look_up(fetch.host) > requested.kept_s:  # an earlier request still counts otherwise
                requested.keep(fetch.host, now_mono, now_mono)
                if self.fleet is not None:
                    self.fleet.count(key, now_mono)
            return
        if now_mono > host.last_is_known_until(requested.kept_s):
            host.restart_interval(now_mono)
            if self.fleet is not None:
                self.fleet.count(key, now_mono)
        if status in FETCH_CLOSING:
            now_wall = self.wall()
            ignored = host.demand.observe_fetch(headers, now_mono, now_wall, host.options)
            host.changed(now_mono)
            self.reports.overruled(host.name, ignored)
            self.reports.closed(host, now_mono, now_wall, fetch.url, status)

    def opened(self, fetch: LocalFetch) -> None:
        """Let the next page wait for one interval from now."""
        now_mono, host = self.monotonic(), self._active_host(fetch)
        for kind, name in fetch.limits:
            self._scope(kind, name).restart_interval(now_mono)
            if self.fleet is not None:
                self.fleet.count(f"{kind}:{name}", now_mono)
        if host is None:
            self.marks.requested.keep(fetch.host, now_mono, now_mono)
        else:
            host.restart_interval(now_mono)
        if self.fleet is not None:
            self.fleet.count(f"{self.options.key}:{fetch.host}", now_mono)

    def _active_host(self, fetch: LocalFetch, *, becomes_active: bool = False) -> Host | None:
        """Return the host of a robots.txt, or None if only the time of the request has to be remembered."""
        if becomes_active or self.recalls is not None:
            return self._host(fetch.host, self.monotonic())
        return self.by_name.get(fetch.host)

    # Closures and limits

    def close_host(self, host: str, until_wall: float, bound_by: Bound, /) -> None:
        """Let no request start at ``host`` before the Unix time ``until_wall``, waiting requests included."""
        self.with_key(host, lambda key: self.close_key(key, until_wall, bound_by))

    def with_key(self, host: str, call: Callable[[str], None]) -> None:
        """Call a function with the key of a host: now, or when its address is known."""
        if not self._is_by_address or self._addresses.known(host) is not None:
            call(self._key(host))
        elif not self.closed:
            self._addresses.lookup(host).add_done_callback(lambda _: self.with_key(host, call))

    def close_key(self, key: str, until_wall: float, bound_by: Bound, /) -> None:
        """Close the host with a key; see ``close_host``."""
        now_mono, now_wall = self.monotonic(), self.wall()
        if until_wall > now_wall:
            paced = self._host(key, now_mono)
            paced.demand.close(now_mono + (until_wall - now_wall), bound_by)
            paced.changed(now_mono)
            self.reports.closed(paced, now_mono, now_wall)

    async def key(self, host: str) -> str:
        """Return the key under which a host is paced, after a look-up of its address if necessary."""
        if self._is_by_address:
            await self._addresses.find(host)
        return self._key(host)

    async def closed_until(self, host: str, /) -> float | None:
        """Wait until ``host`` is recalled; return the Unix time until which it is closed, or None if it is open."""
        key = await self.key(host) if self._is_by_address else self._key(host)
        was_open = not self.closed  # if the pacer closes during the wait below, that raises; None would mean "open"
        if self.fleet is not None:
            with suppress(ConfigurationError):  # of a Redis that refuses this client: what this process knows counts
                await self.fleet.asked(f"{self.options.key}:{key}")
        paced, left = self.by_name.get(key), self.marks.demands.get(key)
        is_closed = left is not None and left.closing.until_mono > self.monotonic()  # by an earlier pacer
        if paced is None and was_open and (self.recalls is not None or is_closed):
            paced = self._host(key, self.monotonic())
            paced.advance(self.monotonic())
        if paced is not None and self.recalls is not None and was_open:
            await self.recalls.ended(paced)
            if self.recalls.is_closed:
                raise ClosedError(f"the pacer was closed before it had recalled what {key} had asked for")
        closure = self.closure(host)
        return None if closure is None else closure.not_before

    def closure(self, host: str, /) -> NotYet | None:
        """Return until when and why ``host`` is closed, or None if it is open or not recalled yet."""
        if self._is_by_address and self._addresses.known(host) is None:
            return None
        paced = self.by_name.get(self._key(host) if self.is_scoped else host)
        if paced is None or (closed_s := paced.demand.closing.until_mono - self.monotonic()) <= 0.0:
            return None
        bound_by = paced.demand.closing.bound_by
        refusal = paced.demand.refusal(paced.options) if bound_by is Bound.REFUSED else None
        return NotYet(self.wall() + closed_s, bound_by, refusal=refusal)

    def closings(self) -> Counter[Bound]:
        """Return how many hosts are closed now, by the reason of the closure. Any thread may call this."""
        hosts = list(self.by_name.values())  # copied in a single step, so no thread changes the dict meanwhile
        now_mono = self.monotonic()
        closings = (host.demand.closing for host in hosts)
        return Counter(closing.bound_by for closing in closings if closing.until_mono > now_mono)

    def set_limits(self, host: str, min_delay_s: float | None, max_concurrent: int | None, /) -> None:
        """Set the limits of ``host`` from now on. If a limit is None, the options apply. Raises ConfigurationError."""
        self._options_of.pop(host, None)
        if min_delay_s is not None or max_concurrent is not None:
            self._options_of[host] = known_limited(self.options, min_delay_s, max_concurrent)
        paced = self.by_name.get(host)
        if paced is not None:
            paced.limit(self._options(host), self.monotonic())

    def _options(self, name: str) -> PacingOptions:
        """Return the options of a host, with the limits that were set for it."""
        return self._options_of.get(name, self.options)

    # What other parts ask

    def hosts(self) -> dict[str, HostStatus]:
        """Return the state of each active host, and of each host whose pages wait after a request for robots.txt.

        The result has busy domains and addresses with a limit, too. If one of them has the same name as a host, the
        result has the state of the host.
        """
        names = dict.fromkeys(self.names(resting=True))
        return {name: status for name in names if (status := self.host(name)) is not None}

    def names(self, *, resting: bool = False) -> list[str]:
        """Return the names of the busy domains and addresses, of the active hosts, and perhaps of ``resting`` hosts.

        The pages of a resting host wait after a request for robots.txt. All names that are remembered are searched for
        these hosts, which takes 10 ms for 100,000 names.
        """
        busy, now_mono = [*(name for _, name in self.by_kind), *self.by_name], self.monotonic()
        if not resting:
            return busy
        longest_s = max(options.min_delay_s for options in (self.options, *self._options_of.values()))
        requested = self.marks.requested.since(now_mono - longest_s)
        return busy + [name for name, last_mono in requested if last_mono + self._options(name).min_delay_s > now_mono]

    def host(self, name: str) -> HostStatus | None:
        """Return the state of one of the hosts that ``hosts`` has; None for another name."""
        now_mono, host = self.monotonic(), self.by_name.get(name)
        if host is None:
            options, last_mono = self._options(name), self.marks.requested.look_up(name)
            if last_mono + options.min_delay_s <= now_mono:  # else its pages wait after a request for robots.txt
                scopes = (self.by_kind.get((kind, name)) for kind in self.limits)
                return next((scope.snapshot(now_mono) for scope in scopes if scope is not None), None)
            host = Host(self, name, options, Demand(last_mono=last_mono))
        return host.snapshot(now_mono)

    def lines(self, host: str, /) -> Iterable[PacedLine]:
        """Return the line of ``host``, and those of its domain and address if they are limited and known."""
        is_known = not (self.is_scoped and self._needs_address) or self._addresses.known(host) is not None
        lines = []
        if is_known or not self._is_by_address:
            key = self._key(host)
            lines.append(PacedLine(self, key, self._options(key).max_concurrent))
        for kind, limit in self.limits.items():
            if is_known or kind != "address":
                lines.append(PacedLine(self, f"{kind} {self._key_of(kind, host)}", limit.max_concurrent))
        return lines

    def learn(self, key: str, backoff_s: float, fetch_backoff_s: float, refusal_s: float, /) -> None:
        """Adopt the longer backoffs of an active host that another process remembers."""
        paced = self.by_name.get(key)
        if paced is not None:
            paced.demand.learn(backoff_s, fetch_backoff_s, refusal_s, self.monotonic())
            paced.changed(self.monotonic())

    def under_way(self) -> list[LocalPermit]:
        """Return all permits that have not ended."""
        return [permit for host in self.by_name.values() for permit in host.under_way]

    def take_over(self, permits: Iterable[Permit]) -> None:
        """Go on with the permits of an earlier pacer, which is closed; their hosts become active here."""
        now_mono = self.monotonic()
        for permit in permits:
            if isinstance(permit, LocalPermit) and permit.lines is not None:
                left, host = permit.paced, self._host(permit.host, now_mono)
                left.under_way.remove(permit)
                host.under_way.append(permit)
                host.marks = max(host.marks, left.marks)  # or ``unmark`` could take a later stamp for the permit's
                permit.lines.in_flight -= 1
                self.in_flight += 1
                scopes = [self._scope(scope.kind, scope.name) for scope in permit.scopes]
                for scope in scopes:
                    scope.last_mono = max(scope.last_mono, permit.started_mono)
                for earlier, scope in zip(permit.scopes, scopes, strict=True):
                    scope.under_way[permit] = earlier.under_way.pop(permit)
                # ``lane`` stays that of the earlier pacer: it is only asked for the stated pace, when an answer comes.
                permit.lines, permit.paced, permit.scopes = self, host, tuple(scopes)
                host.changed(now_mono)
        self.expiry.look()

    def __len__(self) -> int:
        """How many hosts are active, and how many addresses and domains with a limit."""
        return len(self.by_name) + len(self.by_kind)

    def __repr__(self) -> str:
        return f"<Hosts: {len(self)} busy, {self.waiting} waiting, {self.in_flight} in flight>"

    # Called by hosts, lanes and permits

    def forget(self, host: Host, now_mono: float) -> None:
        """Drop an idle host; the marks keep the time of its last request."""
        self.by_name.pop(host.name, None)
        self.marks.demands.pop(host.name, None)
        self.marks.requested.keep(host.name, host.demand.last_mono, now_mono)
        for key in list(host.lanes):
            host.forget_lane(key)
        if host.claim is not None and self.fleet is not None:
            self.fleet.forget(host.claim)
        if host.closed_mono != NEVER:
            self.reports.opened(host)  # last: a subscriber may take a turn, which needs a host that is known

    def report_wait(self, permit: LocalPermit, now_mono: float) -> None:
        """Publish a long wait that begins: behind a request that is held for long, or for a time that is far away."""
        host = permit.paced
        holder = host.holder
        if holder is not None and holder.started_mono + _HELD_S <= now_mono:
            self.look_behind(host, now_mono)
        wait_s = host.ready_mono(permit.lane, now_mono) - now_mono
        if wait_s > LONG_S:
            self.reports.waits(host, permit, wait_s, host.not_yet(permit.lane).bound_by)

    def look_behind(self, host: Host, now_mono: float) -> None:
        """Publish a long wait behind a request under way: now, or when the wait has become long."""
        again_mono = self.reports.held(host, now_mono)
        if again_mono is not None:
            self.wakeups.look_at(host, again_mono)

    def _look_behind_permit(self, permit: LocalPermit, now_mono: float) -> None:
        waiting = {lane.host for scope in permit.scopes for lane in scope.line}
        for host in (permit.paced, *waiting - {permit.paced}):
            self.look_behind(host, now_mono)

    # Hosts, lanes and keys

    def _check_open(self, request: TurnRequest) -> None:
        if self.closed:
            raise ClosedError(f"the pacer is closed: there is no turn for {request.url or request.host}")

    def _lane(self, request: TurnRequest, now_mono: float) -> Lane:
        """Return the lane of a request whose keys are known; raises ClosedError."""
        if self.closed:
            self._check_open(request)
        key: tuple[object, ...] = request.agent, request.min_delay_s
        scopes: tuple[Scope, ...] = ()
        if self.is_scoped:
            scopes = tuple(self._scope(kind, name) for kind, name in self._scope_keys(request.host))
            host, key = self._host(self._key(request.host), now_mono), (*key, scopes)
        else:
            host = self.by_name.get(request.host) or self._host(request.host, now_mono)
        lane, pace = host.lanes.get(key), request.pace
        if lane is None or (pace is not None and lane.by_origin.get(request.origin) is not pace):
            return host.lane(request, key, scopes, now_mono)
        return lane

    def _host(self, key: str, now_mono: float) -> Host:
        """Return a host, and make it active."""
        host = self.by_name.get(key)
        if host is None:
            options, demand = self._options(key), self.marks.demands.setdefault(key, Demand())
            demand.rested(now_mono - demand.last_mono, now_mono, options)  # an earlier pacer may have left it long ago
            demand.last_mono = max(self.marks.requested.take(key, now_mono), demand.last_mono)
            host = self.by_name[key] = Host(self, key, options, demand)
            if self.fleet is not None:
                host.claim = self.fleet.claim(f"{self.options.key}:{key}", host)
            if demand.closing.until_mono > NEVER:
                self.reports.closed(host, now_mono, self.wall())  # a closure that an earlier pacer has left
            self._recall(host)
            host.changed(now_mono)
        return host

    def _recall(self, host: Host) -> None:
        if self.recalls is not None:
            self.recalls.begin(host)
            host.changed(self.monotonic(), is_noted=False)  # while it is recalled, no lane may start by the short way

    def _recalled(self, host: Host | Scope) -> None:
        """After the recall of a host, refuse tasks that would wait too long, and call callbacks that have to wait."""
        now_mono, now_wall = self.monotonic(), self.wall()
        if isinstance(host, Scope):
            host.advance(now_mono)
            return
        self.reports.closed(host, now_mono, now_wall)
        called = []
        for waiter in host.in_order():
            ready_mono = host.reckon(waiter.lane, now_mono, now_wall).ready_mono
            if isinstance(waiter, Watcher):
                if ready_mono > now_mono and not waiter.is_told:
                    waiter.is_told = True
                    host.take(waiter)
                    called.append(waiter.callback)
            elif ready_mono > waiter.joined_mono + waiter.max_wait_s:
                waiter.fail(TooFar(host.name, host.not_yet(waiter.lane), waiter.max_wait_s))
        host.changed(now_mono, is_noted=bool(host.line) or host.demand.closing.until_mono > now_mono)
        if host.line:
            host.on_time(now_mono)  # at once: a timer would delay each host by a millisecond
        for callback in called:  # last: a callback may take a turn, which must not happen amid a change
            callback()

    def _scope(self, kind: str, name: str) -> Scope:
        scope = self.by_kind.get((kind, name))
        if scope is None:
            requested, recalls = self._marks_of(kind).requested, self._recalls_of.get(kind)
            scope = self.by_kind[kind, name] = Scope(self, kind, name, self.limits[kind], requested, recalls)
            if self.fleet is not None:
                scope.claim = self.fleet.claim(f"{kind}:{name}", scope)
        return scope

    def _scope_keys(self, name: str) -> list[tuple[str, str]]:
        """Return the kind and key of each scope of a host whose address is known."""
        return [(kind, self._key_of(kind, name)) for kind in self.limits]

    def _key(self, name: str) -> str:
        """Return the key under which a host is paced."""
        return self._key_of(self.options.key, name) if self.is_scoped else name

    def _key_of(self, kind: str, name: str) -> str:
        if kind == "domain":
            return self._domain_of(name)
        return name if kind == "host" else self._addresses.known(name) or name

    def _knows(self, name: str) -> bool:
        """Return whether the address of a host is known, if it is needed; begin a look-up otherwise."""
        if not self._needs_address or self._addresses.known(name) is not None:
            return True
        if self.closed:
            raise ClosedError(f"the pacer is closed: there is no turn at {name}")
        self._addresses.lookup(name)
        return False

    async def _look_up(self, request: TurnRequest, max_wait_s: float | None) -> float | None:
        """Look up the address of a request; return the rest of ``max_wait_s``. Raises TooFar and ClosedError."""
        deadline_mono = None if max_wait_s is None else self.monotonic() + max_wait_s
        while not self._knows(request.host):
            finding = asyncio.ensure_future(self._addresses.find(request.host))
            if deadline_mono is None:
                await finding
            elif not await ends_within(self.clock, max(0.0, deadline_mono - self.monotonic()), finding):
                raise TooFar(request.host, NotYet(self.wall(), Bound.ADDRESS), max_wait_s or 0.0)
        if request.check_lines is not None:  # the address may have been unknown at the first check
            request.check_lines()
        return None if deadline_mono is None else max(0.0, deadline_mono - self.monotonic())

    def _call_later(self, request: TurnRequest, callback: Callable[[], None]) -> None:
        """Let a callback join the line once the address of its host is known."""
        place = object()
        self._looking_up[place] = callback

        def known(lookup: asyncio.Task[str] | None = None) -> None:
            if self.closed or self._looking_up.get(place) is None:
                return  # ``aclose`` calls it
            # Other code has cancelled the look-up. A timer, because if the event loop is ending, a new task never runs.
            if lookup is not None and lookup.cancelled():
                self.clock.call_later(_AGAIN_S, known)
                return
            del self._looking_up[place]
            self.when_ready(request, callback)

        self._addresses.lookup(request.host).add_done_callback(known)


def give_back_all(answers: Iterable[Permit | NotYet]) -> None:
    """Give back all permits in a list of answers."""
    for answer in answers:
        if not isinstance(answer, NotYet):
            answer.give_back()
