"""The pacer of a single process: it drives the hosts, and checks each host when a start may be due.

Theory of operation. ``host.py`` decides who may start. This module holds the clocks, the tasks, and one heap for all
hosts. Each event changes a host first. Then ``_advance`` sets the time of the next check:

    try_start, start, when_ready, end, ... -> the host changes -> _advance -> heap -> timer -> _look_at
    _look_at -> a waiter's turn has come: call it -> the task resumes, and takes its permit
                                                  -> the callback calls try_start within OFFER_S
             -> the host is idle, and nothing about it counts any more: forget it

A permit gets its start time (its stamp) when its waiter takes it, not when the waiter is called: a task may resume
late, and a timer may fire early. If the host was closed in between, the waiter waits again, at its old place.

A turn in one process, from a request to the next request:

    1. ``start`` finds the host and the AgentPace of the request (``_enter``).
    2. If the request may start now and delays no earlier waiter (``PacedHost.may_start``), continue with 6.
    3. Otherwise a Waiter joins the line. ``PacedHost.start_of`` calculates when the first waiter may start.
    4. The heap holds the time of the next check of the host. At that time ``_look_at`` calls the next waiter.
    5. The task resumes in ``_take`` and checks ``may_start`` again. If the request may not start, the task waits again.
    6. ``_grant`` makes the LocalPermit and stamps it. The host is full at ``max_concurrent`` requests.
    7. ``LocalPermit.observe`` records the answer: it may close the host, or change its pace (``backoff.py``).
    8. ``LocalPermit.end`` sets ``last_mono``: the interval counts from now, or from the start if several requests may
       be under way. ``_advance`` sets the time of the next check, for the next waiter.

Requests for robots.txt to one host run one at a time. No pause is needed between the first two of these requests.
Further requests wait for the floor: the longer ``min_delay_s`` of the pacer and the gate. Requests for robots.txt and
requests for pages do not wait for each other, with three exceptions. During a closure of the host, neither kind may
start. ``FetchPermit.opened`` begins the interval of pages. After a long idle time, a request for robots.txt begins this
interval, too. The requests for robots.txt of a host stand in one line, first come, first served:

    waits in line -> holds the place -> waits for the floor, unless the host is fresh -> is sent -> leaves the place

A host is fresh while fewer than two requests ended there within the last minute. So two origins of a host (http and
https), or a redirect within the host, need no pause. A line exists while a request is in it. The times of the last two
requests are kept for a minute.
"""

from __future__ import annotations

import asyncio
import random
from asyncio import Future, _get_running_loop
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain, count
from math import inf
from typing import TYPE_CHECKING, Final

from politesse._pacing.backoff import FETCH_CLOSING
from politesse._pacing.host import NEVER, OFFER_S, PacedHost
from politesse._pacing.host_state import BackoffSnapshot
from politesse._pacing.hosts import FRESH_S, ActiveHosts, Marks, Wakeups
from politesse._pacing.pace import Pace, PacingOptions
from politesse._pacing.permit import NO_HEADERS, AgentPace, LocalPermit, Waiter
from politesse._pacing.recall import Recalls
from politesse._pacing.refusals import is_served
from politesse._pacing.reports import HELD_S, LONG_S, PermitExpiry, Reports
from politesse.errors import ClosedError, TooFar
from politesse.events import LongWait, Publisher
from politesse.ports import PacedLine, TurnRequest
from politesse.verdict import Bound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from politesse._pacing.host_state import MemoryOf
    from politesse.clock import Clock
    from politesse.ports import Permit
    from politesse.status import HostStatus
    from politesse.verdict import NotYet

_SOONER_S: Final = 0.001
"""The next check is not moved for a difference smaller than this."""


@dataclass(slots=True, eq=False)
class _FetchLine:
    """The requests for robots.txt to one host. Only one of them may be under way: the request that holds the place.

    Attributes:
        earlier_mono: when the second-to-last request ended.
        ended_mono: when the last request ended.
        place: held by one request; the others wait for it in their order.
        asked: how many requests hold the place or wait for it.
        long_wait: whether a long wait was published since the line was empty.
    """

    earlier_mono: float
    ended_mono: float
    place: asyncio.Lock = field(default_factory=asyncio.Lock)
    asked: int = 0
    long_wait: bool = False

    def due_mono(self, floor_s: float) -> float:
        """Return when the next request may start."""
        return min(self.ended_mono + floor_s, self.earlier_mono + FRESH_S)


class FetchLines:
    """The lines for robots.txt of all hosts. Belongs to one event loop.

    Args:
        clock: measures the floor.
        publisher: receives LongWait.
        marks: the marks of the hosts of this and earlier pacers.
    """

    def __init__(self, clock: Clock, publisher: Publisher, marks: Marks) -> None:
        self._clock = clock
        self._publish = publisher.publish
        self._lines: dict[str, _FetchLine] = {}
        self._earlier, self._ended = marks.fetches

    async def enter(self, host: str, url: str, floor_s: float) -> None:
        """Wait until ``url`` may be requested at ``host``, and hold the place until ``leave``."""
        line, now_mono = self._lines.get(host), self._clock.monotonic()
        if line is None:
            ended_mono = self._ended.take(host, now_mono)
            earlier_mono = NEVER if ended_mono == NEVER else self._earlier.take(host, now_mono)
            line = self._lines[host] = _FetchLine(earlier_mono, ended_mono)
        wait_s = line.asked * floor_s
        line.asked += 1
        try:
            if wait_s > LONG_S and not line.long_wait:
                line.long_wait = True
                self._publish(LongWait(host, url, wait_s, Bound.FLOOR, ""))
            await line.place.acquire()
            try:
                while (wait_s := line.due_mono(floor_s) - self._clock.monotonic()) > 0.0:
                    await self._clock.sleep(wait_s)
            except BaseException:
                line.place.release()
                raise
        except BaseException:
            self._left(host, line)
            raise

    def leave(self, host: str, *, sent: bool) -> None:
        """Free the place: the request has ended, or was not sent."""
        line = self._lines[host]
        if sent:
            line.earlier_mono, line.ended_mono = line.ended_mono, self._clock.monotonic()
        line.place.release()
        self._left(host, line)

    def _left(self, host: str, line: _FetchLine) -> None:
        """Count a request that has left the line, and delete the line if it was the last."""
        line.asked -= 1
        if line.asked:
            return
        del self._lines[host]
        now_mono = self._clock.monotonic()
        for times, at_mono in ((self._earlier, line.earlier_mono), (self._ended, line.ended_mono)):
            if at_mono != NEVER:
                times.keep(host, at_mono, now_mono)


@dataclass(slots=True, eq=False)
class LocalFetch:
    """Permission for one request for robots.txt; see ``politesse.ports.FetchPermit``.

    Attributes:
        pacer: the pacer that granted it.
        host: the name of the paced host.
        url: the URL of the request.
        lines: the lines in which the request holds a place, or None if the request was sent before ``start_fetch`` was
            called.
    """

    pacer: LocalPacer
    host: str
    url: str
    lines: FetchLines | None

    def end(
        self, status: int | None = None, headers: Mapping[str, str] | None = None, elapsed_s: float = 0.0, /
    ) -> None:
        """End the request; its answer may close the host."""
        if self.lines is not None:
            self.lines.leave(self.host, sent=True)
        self.pacer.fetched(self, status, headers or NO_HEADERS, elapsed_s)

    def give_back(self) -> None:
        """End the permit without a request."""
        if self.lines is not None:
            self.lines.leave(self.host, sent=False)

    def opened(self) -> None:
        """Let the next page wait for one interval from now."""
        self.pacer.opened(self)


class LocalPacer:
    """Spaces the requests of this process to each host. Belongs to one event loop.

    Args:
        options: see PacingOptions.
        clock: the clocks and the timer.
        jitter: returns 0 to 1, to spread the requests to a host that was closed.
        publisher: receives HeaderOverruled, HostClosed, HostOpened, LongWait and TurnExpired.
        marks: the marks that earlier pacers of this process have left; None to begin without.

    Attributes:
        waiting: how many tasks wait for a permit; callbacks do not count.
        in_flight: how many permits have not ended.
    """

    def __init__(
        self,
        options: PacingOptions | None = None,
        *,
        clock: Clock,
        jitter: Callable[[], float] = random.random,
        publisher: Publisher | None = None,
        marks: Marks | None = None,
    ) -> None:
        options, publisher, marks = options or PacingOptions(), publisher or Publisher(), marks or Marks()
        self._clock = clock
        self._monotonic, self._wall = clock.monotonic, clock.wall
        self._jitter = jitter
        self._reports = Reports(publisher)
        marks.sweep(clock.monotonic())
        self._active = ActiveHosts(options, marks, self._begin)
        self._hosts = self._active.by_name
        self._recalls: Recalls | None = None
        self._expiry = PermitExpiry(
            clock,
            options.max_turn_s,
            self._active.under_way,
            publisher,
            lambda permit, now_mono: self._look_behind(permit.paced, now_mono),
        )
        self._wakeups = Wakeups(clock, self._look_at)
        self._orders = count()
        self._closed = False
        self.waiting: int = 0
        self.in_flight: int = 0
        self._fetch_lines = FetchLines(clock, publisher, marks)

    def use(self, options: PacingOptions) -> None:
        """Replace the options."""
        self._expiry.max_turn_s = options.max_turn_s
        self._active.use(options)
        for host in self._hosts.values():
            self._advance(host)

    def remember(self, memory: MemoryOf) -> None:
        """From now on keep the states of hosts in a memory, and recall each host before it is requested again."""
        if self._recalls is None:
            kept = memory(self._active.scope)
            self._recalls = Recalls(kept, self._clock, self._active.marks.requested.kept_s, self._recalled)
            for host in self._hosts.values():
                self._recalls.begin(host)

    def under_way(self) -> Sequence[Permit]:
        """Return all permits that have not ended."""
        return list(self._active.under_way())

    def take_over(self, permits: Iterable[Permit]) -> None:
        """Go on with the permits of an earlier pacer, which is closed; their hosts become active here."""
        for permit in permits:
            if isinstance(permit, LocalPermit) and permit.lines is not None:
                left, host = permit.paced, self._active.get(permit.host, self._monotonic())
                left.under_way.remove(permit)
                host.under_way.append(permit)
                host.marks = max(host.marks, left.marks)
                host.limit(host.options)
                permit.lines.in_flight -= 1
                self.in_flight += 1
                permit.lines, permit.paced = self, host
        self._expiry.look()

    def try_start(self, request: TurnRequest, /) -> LocalPermit | NotYet:
        """Return a permit, or a NotYet with the time to ask again. Never waits; raises ClosedError."""
        now_mono, now_wall = self._monotonic(), self._wall()
        host, agent = self._enter(request, now_mono)
        called, order = host.called, next(self._orders)
        if called is not None and called.callback is not None and called.agent is agent:
            order = called.order
            host.leave(called)
        if host.may_start(agent, order, now_mono, now_wall):
            return self._grant(host, agent, request.url, now_mono, order)
        self._advance(host)
        return host.not_yet(agent, now_mono, now_wall)

    async def try_starts(self, requests: Sequence[TurnRequest], /) -> list[LocalPermit | NotYet]:
        """Return the answer of ``try_start`` to each request. Never waits; raises ClosedError."""
        return list(map(self.try_start, requests))

    async def start(
        self, request: TurnRequest, max_wait_s: float | None = None, instead_of: Permit | None = None, /
    ) -> LocalPermit:
        """Wait in line for a permit; see ``politesse.ports.Pacer``.

        Raises:
            TooFar: if no permit comes within ``max_wait_s`` seconds; raised at once if that is certain.
            ClosedError: if the pacer is closed.
            WrongEventLoop: if the pacer was first used in another event loop.
        """
        now_mono, now_wall = self._monotonic(), self._wall()
        host, agent = self._enter(request, now_mono)
        order = instead_of.order if isinstance(instead_of, LocalPermit) else next(self._orders)
        if host.may_start(agent, order, now_mono, now_wall):
            return self._grant(host, agent, request.url, now_mono, order)
        waiter = Waiter(order, agent, request.url, now_mono)
        alarm = None
        if max_wait_s is not None:
            waiter.max_wait_s = max_wait_s
            if host.start_of(agent, now_mono, now_wall).ready_mono > now_mono + max_wait_s:
                self._advance(host)
                raise self._too_far(host, waiter)
            alarm = self._clock.call_later(max_wait_s, lambda: waiter.fail(self._too_far(host, waiter)))
        self._wait(host, waiter, now_mono, now_wall)
        permit = None
        try:
            # This loop has no method of its own, because each task that resumes would pay for the extra frame.
            while permit is None:
                await waiter.woken  # type: ignore[misc] # set by ``_wait``
                permit = self._take(host, waiter)
            return permit
        finally:
            host.leave(waiter)
            self.waiting -= 1
            if alarm is not None:
                alarm.cancel()
            if permit is None or host.options.max_concurrent > 1:
                self._advance(host)  # another waiter may be due now

    def when_ready(self, request: TurnRequest, callback: Callable[[], None], /) -> None:
        """Call ``callback`` once, when ``request`` may start and is first in line, or when the pacer closes."""
        now_mono = self._monotonic()
        host, agent = self._enter(request, now_mono)
        self._wakeups.own_loop()
        waiter = Waiter(next(self._orders), agent, request.url, now_mono)
        waiter.callback = callback
        host.join(waiter)
        self._advance(host)

    async def aclose(self) -> None:
        """Raise ClosedError in all waiting tasks, and call the callbacks of ``when_ready``."""
        self._closed = True
        self._wakeups.stop()
        self._expiry.stop()
        if self._recalls is not None:
            self._recalls.close()
        for host in self._hosts.values():
            for waiter in host.line():
                if waiter.callback is None:
                    waiter.fail(ClosedError(f"the pacer was closed during the wait for a turn at {host.host}"))
                elif waiter is not host.called:
                    host.leave(waiter)
                    waiter.callback()

    def __len__(self) -> int:
        """How many hosts are active."""
        return len(self._hosts)

    def close_host(self, host: str, until_wall: float, bound_by: Bound, /) -> None:
        """Let no request start at ``host`` before the Unix time ``until_wall``, waiting requests included."""
        now_mono, now_wall = self._monotonic(), self._wall()
        if until_wall > now_wall:
            paced = self._active.get(host, now_mono)
            paced.changes += 1
            paced.backoff.close(now_mono + (until_wall - now_wall), bound_by)
            self._reports.closed(paced, now_mono, now_wall)
            self._advance(paced)

    async def closed_until(self, host: str, /) -> float | None:
        """Wait until ``host`` is recalled; return the Unix time until which it is closed, or None if it is open."""
        paced = self._hosts.get(host)
        if paced is None and not self._closed and (self._recalls is not None or host in self._active.marks.backoffs):
            paced = self._active.get(host, self._monotonic())
            self._advance(paced)
        if paced is not None and self._recalls is not None and not self._closed:
            await self._recalls.ended(paced)
            if self._closed:
                raise ClosedError(f"the pacer was closed while it was recalled what {host} had asked for")
        return self.known_closing(host)

    def known_closing(self, host: str, /) -> float | None:
        """Return the Unix time until which ``host`` is closed, or None if it is open or not recalled yet."""
        paced = self._hosts.get(host)
        closed_s = 0.0 if paced is None else paced.backoff.closing.until_mono - self._monotonic()
        return self._wall() + closed_s if closed_s > 0.0 else None

    async def start_fetch(self, request: TurnRequest, /, *, made: bool = False) -> LocalFetch:
        """Wait in line for the request of a robots.txt; see ``politesse.ports.Pacer``."""
        host, url = request.host, request.url
        if self._closed:
            raise ClosedError(f"the pacer is closed: {url} is not requested")
        if made:
            return LocalFetch(self, host, url, None)
        floor_s = max(self._active.options(host).min_delay_s, request.min_delay_s)
        await self._fetch_lines.enter(host, url, floor_s)
        return LocalFetch(self, host, url, self._fetch_lines)

    def fetched(self, fetch: LocalFetch, status: int | None, headers: Mapping[str, str], elapsed_s: float) -> None:
        """Record an answer to a request for robots.txt. The interval restarts only if the host was idle for long."""
        now_mono, now_wall = self._monotonic(), self._wall()
        host = self._active_host(fetch, now_mono, becomes_active=status in FETCH_CLOSING)
        if host is None:
            self._active.requested(fetch.host, now_mono, again=False)
            return
        if now_mono > host.last_is_known_until(self._active.marks.requested.kept_s):
            host.asked(now_mono)
        if status in FETCH_CLOSING:
            host.changes += 1
            ignored = host.backoff.observe_fetch(headers, elapsed_s, now_mono, now_wall, host.options)
            self._reports.overruled(host.host, ignored)
            self._reports.closed(host, now_mono, now_wall, fetch.url, status)
        self._advance(host)

    def opened(self, fetch: LocalFetch) -> None:
        """Let the next page wait for one interval from now."""
        now_mono = self._monotonic()
        host = self._active_host(fetch, now_mono)
        if host is None:
            self._active.requested(fetch.host, now_mono, again=True)
        else:
            host.asked(now_mono)
            self._advance(host)

    def _active_host(self, fetch: LocalFetch, now_mono: float, *, becomes_active: bool = False) -> PacedHost | None:
        """Return the host of a robots.txt, or None if only the time of the request has to be remembered."""
        if becomes_active or self._recalls is not None:
            return self._active.get(fetch.host, now_mono)
        return self._hosts.get(fetch.host)

    def hosts(self) -> dict[str, HostStatus]:
        """Return the state of each active host, and of each host whose pages wait after a request for robots.txt."""
        now_mono, now_wall = self._monotonic(), self._wall()
        hosts = chain(self._hosts.values(), self._active.resting(now_mono))
        return {host.host: host.snapshot(now_mono, now_wall) for host in hosts}

    def closings(self) -> Counter[Bound]:
        """Return how many hosts are closed now, by the reason of the closure. Any thread may call this."""
        hosts = list(self._hosts.values())  # copied in a single step, so no thread changes the dict meanwhile
        now_mono = self._monotonic()
        closings = (host.backoff.closing for host in hosts)
        return Counter(closing.bound_by for closing in closings if closing.until_mono > now_mono)

    def lines(self, host: str, /) -> tuple[PacedLine]:
        """Return the line of ``host``."""
        paced = self._hosts.get(host)
        options = self._active.options(host) if paced is None else paced.options
        return (PacedLine(self, host, options.max_concurrent),)

    def set_limits(self, host: str, min_delay_s: float | None, max_concurrent: int | None, /) -> None:
        """Set the limits of ``host`` from now on. If a limit is None, the options apply. Raises ConfigurationError."""
        if (paced := self._active.limit(host, min_delay_s, max_concurrent)) is not None:
            self._advance(paced)

    def pace(self, request: TurnRequest, /) -> Pace:
        """Return the interval that is in force for a request; raises ClosedError."""
        now_mono = self._monotonic()
        host, agent = self._enter(request, now_mono)
        return host.start_of(agent, now_mono, self._wall()).pace

    def backoff_of(self, host: str, /) -> BackoffSnapshot:
        """Return the backoff of a host."""
        paced = self._hosts.get(host)
        if paced is None:
            return BackoffSnapshot()
        return paced.backoff.snapshot(self._monotonic(), paced.options)

    def learn(self, host: str, backoff_s: float, fetch_backoff_s: float, refusal_s: float, /) -> None:
        """Adopt the longer backoffs of an active host that another process remembers."""
        paced = self._hosts.get(host)
        if paced is not None:
            paced.changes += 1
            paced.backoff.learn(backoff_s, fetch_backoff_s, refusal_s, self._monotonic())

    def last_mono(self, host: str, /) -> float:
        """Return when ``host`` was last requested; minus infinity if that is unknown."""
        return self._active.last_mono(host)

    def __repr__(self) -> str:
        return f"<LocalPacer: {len(self)} busy hosts, {self.waiting} waiting, {self.in_flight} in flight>"

    # Called by the permits

    def answered(self, permit: LocalPermit, status: int | None, headers: Mapping[str, str]) -> None:
        """Record an answer; the first call measures the response time."""
        host, now_mono, now_wall = permit.paced, self._monotonic(), self._wall()
        backoff, elapsed_s = host.backoff, permit.answered_s
        if elapsed_s is None:
            elapsed_s = permit.answered_s = now_mono - permit.started_mono
            backoff.rested(permit.started_mono - permit.before_mono, permit.started_mono, host.options)
        jitter = interval_s = 0.0  # most answers do not need these values
        if (status is not None and not is_served(status)) or backoff.is_remembered:
            jitter, interval_s = self._jitter(), host.start_of(permit.agent, now_mono, now_wall).pace.interval_s
        ignored = backoff.observe(status, headers, elapsed_s, now_mono, now_wall, host.options, jitter, interval_s)
        host.changes += 1
        if ignored:
            self._reports.overruled(host.host, ignored)
        if backoff.closing.until_mono > now_mono:
            self._reports.closed(host, now_mono, now_wall, permit.url, status)
        elif host.is_full:
            return  # ``_advance`` is called again when the request ends
        self._advance(host)

    def ended(self, permit: LocalPermit) -> None:
        """End a request."""
        host = permit.paced
        if permit.answered_s is None:
            self.answered(permit, None, NO_HEADERS)
        host.end(permit, self._monotonic())
        self.in_flight -= 1
        self._advance(host)

    def given_back(self, permit: LocalPermit) -> None:
        """Take back a permit that was not used for a request."""
        host = permit.paced
        host.give_back(permit)
        self.in_flight -= 1
        self._advance(host)

    def renewed(self, permit: LocalPermit) -> bool:
        """Stamp a permit again; return False if it would not be granted now."""
        host, now_mono = permit.paced, self._monotonic()
        host.unmark(permit)
        start = host.start_of(permit.agent, now_mono, self._wall())
        if self._closed or now_mono < start.ready_mono or len(host.under_way) > host.options.max_concurrent:
            return False
        host.stamp(permit, now_mono)
        return True

    # Drives the hosts

    def _enter(self, request: TurnRequest, now_mono: float) -> tuple[PacedHost, AgentPace]:
        """Return the host of a request, and the pace that binds it; raises ClosedError."""
        if self._closed:
            raise ClosedError(f"the pacer is closed: there is no turn at {request.host}")
        host = self._hosts.get(request.host)
        if host is None:
            host = self._active.get(request.host, now_mono)
        agent = host.agents.get((request.agent, request.min_delay_s))
        pace = request.pace
        if agent is None or (pace is not None and agent.by_origin.get(request.origin) is not pace):
            agent = host.agent_pace(request)
            if host.waiting:
                self._advance(host)  # with the new pace of the origin, a waiter may be allowed to start sooner
        return host, agent

    def _grant(self, host: PacedHost, agent: AgentPace, url: str, now_mono: float, order: int) -> LocalPermit:
        permit = LocalPermit(self, host, agent, url, order)
        host.grant(permit, now_mono)
        self.in_flight += 1
        if self._recalls is not None:
            self._recalls.note(host)
        if host.closed_mono != NEVER:
            self._reports.opened(host)
        if not self._expiry.is_armed:
            self._expiry.arm()
        return permit

    def _wait(self, host: PacedHost, waiter: Waiter, now_mono: float, now_wall: float) -> None:
        """Put a task into the line."""
        loop = _get_running_loop()
        if loop is None or loop is not self._wakeups.loop:
            loop = self._wakeups.own_loop()
        waiter.woken = Future(loop=loop)
        host.join(waiter)
        self.waiting += 1
        if host.waiting == 1 or len(host.firsts) > 1:
            self._advance(host)
        if host.is_full and host.under_way[0].started_mono + HELD_S <= now_mono:
            self._look_behind(host, now_mono)
        start = host.start_of(waiter.agent, now_mono, now_wall)
        if (wait_s := start.ready_mono - now_mono) > LONG_S:
            self._reports.waits(host, waiter, wait_s, start.bound_by)

    def _take(self, host: PacedHost, waiter: Waiter) -> LocalPermit | None:
        """Return the permit of a task that was woken, or None if it has to wait again."""
        now_mono, now_wall = self._monotonic(), self._wall()
        if not self._closed and host.may_start(waiter.agent, waiter.order, now_mono, now_wall):
            permit = self._grant(host, waiter.agent, waiter.url, now_mono, waiter.order)
            permit.waited = True
            waited_s = now_mono - waiter.joined_mono
            if waited_s > LONG_S or host.long_wait is not None:
                self._reports.waited(host, waiter, waited_s)
            return permit
        if waiter.error is not None:
            raise waiter.error
        waiter.woken = Future(loop=self._wakeups.loop)
        if host.called is waiter:
            host.called = None
        self._advance(host)
        return None

    def _advance(self, host: PacedHost) -> None:
        """Let the memory note a host that has changed, and set the time of the next check of the host."""
        if host.recalling:
            return
        if self._recalls is not None and host.noted != host.changes:
            self._recalls.note(host)
        if host.is_full:
            return  # the end of a request will set the time
        armed_mono = host.armed_mono
        if armed_mono is not None and not host.waiting:
            return  # an idle host is checked only to forget it
        at_mono = host.next_look_mono(self._active.marks.requested.kept_s, self._monotonic(), self._wall())
        if at_mono < inf and (armed_mono is None or at_mono < armed_mono - _SOONER_S):
            self._wakeups.look_at(host, at_mono)

    def _look_at(self, host: PacedHost, now_mono: float) -> None:
        now_wall, called = self._wall(), host.called
        if called is not None and called.callback is not None and host.called_mono + OFFER_S <= now_mono:
            host.leave(called)
        if host.waiting:
            if host.is_full or host.recalling:
                self._look_behind(host, now_mono)
            elif host.called is None and (waiter := host.next_waiter(now_mono, now_wall)[0]) is not None:
                host.called, host.called_mono = waiter, now_mono
                if waiter.callback is None:
                    waiter.wake()
                else:
                    waiter.callback()
            if host.called is None or host.called.callback is not None:
                self._advance(host)
        elif not host.under_way and not host.recalling:
            host.forget_open_windows(now_mono, now_wall)
            if host.busy_until(self._active.marks.requested.kept_s, now_mono, now_wall) > now_mono:
                self._advance(host)
            else:
                self._active.forget(host, now_mono)
                if host.closed_mono != NEVER:
                    self._reports.opened(host)  # last: a subscriber may take a turn, which needs a host that is known

    def _look_behind(self, host: PacedHost, now_mono: float) -> None:
        """Publish a long wait behind a request under way: now, or when the wait has become long."""
        again_mono = self._reports.held(host, now_mono)
        if again_mono is not None and (host.armed_mono is None or again_mono < host.armed_mono):
            self._wakeups.look_at(host, again_mono)

    def _too_far(self, host: PacedHost, waiter: Waiter) -> TooFar:
        """Return the error for a waiter, with the present reason for its wait."""
        not_yet = host.not_yet(waiter.agent, self._monotonic(), self._wall())
        return TooFar(host.host, not_yet, waiter.max_wait_s)

    def _begin(self, host: PacedHost) -> None:
        """Publish a closure that an earlier pacer has left, and recall the host."""
        if host.backoff.closing.until_mono > NEVER:
            self._reports.closed(host, self._monotonic(), self._wall())
        if self._recalls is not None:
            self._recalls.begin(host)

    def _recalled(self, host: PacedHost) -> None:
        """After the recall of a host, refuse tasks that would wait too long, and call callbacks that have to wait."""
        now_mono, now_wall = self._monotonic(), self._wall()
        self._reports.closed(host, now_mono, now_wall)
        called = []
        for waiter in host.line():
            ready_mono = host.start_of(waiter.agent, now_mono, now_wall).ready_mono
            if waiter.callback is not None and ready_mono > now_mono:
                host.leave(waiter)
                called.append(waiter.callback)
            elif ready_mono > waiter.joined_mono + waiter.max_wait_s:
                waiter.fail(self._too_far(host, waiter))
        self._look_at(host, now_mono)  # check at once: a timer would delay each host by a millisecond
        for callback in called:
            callback()
