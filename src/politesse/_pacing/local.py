"""Spaces the requests of one process: a FIFO for each busy host, one heap and one timer for all.

Theory of operation. A host is busy, and has a Slot, while a request to it is under way or waits, its interval is not
over, or its answers have to be remembered. After that only the time at which it was last asked is kept (``LastAsked``),
for ten minutes or ``max_crawl_delay_s``, whichever is longer, so that a pace learnt while it is idle binds.

What is stated for an agent binds its own requests (``schedule.py``), but the line is one for all agents of a host, and
nothing overtakes. The head waits for its own interval, and a request of a quicker agent behind it waits for the head:

    line: A (Crawl-delay 10), B (no delay, floor 1 s); the host was asked at 0
    A starts at 10; B starts at 11, 1 s after the end of A

Only the head is ever woken. It is stamped when it resumes, not when it is woken, and the clock is read again then: a
task may be resumed late, and a timer may fire early. A waiter that is cancelled, woken or not, leaves the line, and the
slot is armed for the next one. The slot is changed first, then ``_arm`` looks at what is next in it:

    try_start, start -> permit -> end, give_back -> _arm -> heap -> timer -> _look_at -> wake the head
                                                                                      -> call a watcher
                                                                                      -> forget the host
"""

from __future__ import annotations

import random
from asyncio import _get_running_loop
from typing import TYPE_CHECKING, Final

from politesse._pacing.backoff import CLOSING, Heard
from politesse._pacing.busy import BusyHosts
from politesse._pacing.held_long import LONG_S, HeldLong
from politesse._pacing.pace import PacingOptions
from politesse._pacing.permit import NO_HEADERS, LocalPermit
from politesse._pacing.reports import Reports
from politesse._pacing.slot import NEVER, NO_WATCHERS, Waiter, Watcher
from politesse._pacing.wakeups import Wakeups
from politesse.errors import ClosedError, TooFar
from politesse.events import Publisher
from politesse.ports import PacedLine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from politesse._pacing.pace import Pace
    from politesse._pacing.slot import AgentPace, Slot, Started
    from politesse.clock import Clock, Timer
    from politesse.ports import HostPace, TurnRequest
    from politesse.verdict import Bound, NotYet

_FORGOTTEN_S: Final = 0.1
"""An idle host is forgotten so many seconds after its last request, or after its interval if that is longer.

One timer serves all its requests of that time: without a pace it would be one for each, a sixth of the bytecodes that
PoliteSession adds to a request.
"""


_NOTHING_HEARD: Final = Heard()


class LocalPacer:
    """Spaces the requests of this process, host by host. Belongs to one event loop.

    Args:
        options: see PacingOptions.
        clock: the clocks and the timer.
        jitter: returns 0 to 1, to spread the requests to a host that was closed.
        publisher: receives HeaderOverruled, HostClosed, HostOpened, LongWait and TurnExpired.
        recall: called with the new slot of a host of which nothing is known; see RememberingPacer.
    """

    def __init__(
        self,
        options: PacingOptions | None = None,
        *,
        clock: Clock,
        jitter: Callable[[], float] = random.random,
        publisher: Publisher | None = None,
        recall: Callable[[Slot], None] | None = None,
    ) -> None:
        options = options or PacingOptions()
        self._clock = clock
        self._monotonic, self._wall = clock.monotonic, clock.wall
        self._jitter = jitter
        self._reports = Reports(publisher or Publisher())
        self._busy = BusyHosts(options, recall)
        self._slots = self._busy.slots
        self._held_long: HeldLong[Started] = HeldLong(
            clock, options.max_turn_s, self._busy.under_way, self._reports.expire, self._look_behind
        )
        self._wakeups = Wakeups(clock, self._look_at)
        self._closed = False

    reserving_s = 0.0

    def try_start(self, request: TurnRequest, /, *, ahead_s: float = 0.0) -> LocalPermit | NotYet:
        """Return a permit, or when there may be one. Never waits; raises ClosedError.

        With ``ahead_s`` the permit may come so much early, and is for ``LocalPermit.renew`` to make valid in its time.
        """
        now_mono = self._monotonic()
        slot, agent = self._enter(request, now_mono)
        if slot.head is None and self._is_ready(slot, agent, now_mono, ahead_s):
            return self._stamp(slot, agent, request.url, now_mono)
        self._arm(slot)
        return self._not_yet(slot, agent)

    async def try_starts(self, requests: Sequence[TurnRequest], /) -> list[LocalPermit | NotYet]:
        """Return what ``try_start`` does for each request; it has nothing to wait for. Raises ClosedError."""
        return [self.try_start(request) for request in requests]

    async def start(
        self, request: TurnRequest, max_wait_s: float | None = None, /, *, first: bool = False
    ) -> LocalPermit:
        """Wait in line for a permit; with ``first`` at the head of the line.

        Raises:
            TooFar: if none comes within ``max_wait_s`` seconds; at once where that is known.
            ClosedError: if the pacer is closed.
            WrongEventLoop: in another event loop than that of the first use.
        """
        now_mono = self._monotonic()
        slot, agent = self._enter(request, now_mono)
        if slot.head is None and self._is_ready(slot, agent, now_mono):
            return self._stamp(slot, agent, request.url, now_mono)
        waiter, alarm = self._join(slot, agent, request.url, max_wait_s, now_mono, first=first)
        permit = None
        try:
            # Not in a method of its own: a frame more would cost every task that is resumed.
            while permit is None:
                await waiter.woken
                permit = self._granted(slot, waiter)
            return permit
        finally:
            slot.leave(waiter)
            if alarm is not None:
                alarm.cancel()
            if permit is None or slot.options.max_concurrent > 1:
                self._arm(slot)  # for the next one, whether this one was woken or not

    def when_ready(self, request: TurnRequest, callback: Callable[[], None], /, *, ahead_s: float = 0.0) -> None:
        """Call ``callback`` once, when ``request`` may start and nothing waits, or ``ahead_s`` before that."""
        slot, agent = self._enter(request, self._monotonic())
        self._wakeups.own_loop()
        if slot.watchers is NO_WATCHERS:
            slot.watchers = []  # an empty deque takes 600 octets
        slot.watchers.append(Watcher(agent, callback, ahead_s))
        self._arm(slot)

    when_near = when_ready

    def is_ready(self, request: TurnRequest, /, *, ahead_s: float = 0.0) -> bool:
        """Return whether a request may start now, or within ``ahead_s``; True if the pacer is closed."""
        if self._closed:
            return True
        now_mono = self._monotonic()
        slot, agent = self._enter(request, now_mono)
        self._arm(slot)
        return slot.head is None and self._is_ready(slot, agent, now_mono, ahead_s)

    def close_host(self, host: str, until_wall: float, bound_by: Bound, /) -> None:
        """Let nothing start at ``host`` before the Unix time ``until_wall``; requests that wait included."""
        now_mono, now_wall = self._monotonic(), self._wall()
        if until_wall > now_wall:
            slot = self._busy.slot(host, now_mono)
            slot.heard(now_mono, now_wall).close(until_wall, bound_by)
            self._reports.closed(slot, now_mono, now_wall)
            self._arm(slot)

    async def closed_until(self, host: str, /) -> float | None:
        """Return the Unix time until which ``host`` is closed; None if it is open."""
        slot = self._slots.get(host)
        return None if slot is None else slot.closed_until(self._monotonic(), self._wall())

    def count_fetch(
        self,
        host: str,
        origin: str,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        elapsed_s: float = 0.0,
        /,
    ) -> None:
        """Count a robots.txt that was fetched without a permit; see ``politesse.ports.Pacer``."""
        now_mono = self._monotonic()
        slot = self._busy.slot(host, now_mono)
        self._busy.count_fetch(slot, origin, now_mono)
        if status in CLOSING:
            now_wall = self._wall()
            overruled = slot.heard(now_mono, now_wall).refuse(headers or NO_HEADERS, elapsed_s, now_wall, slot.options)
            self._reports.overruled(slot.host, overruled)
            self._reports.closed(slot, now_mono, now_wall, f"{origin}/robots.txt", status)
        self._arm(slot)

    def hosts(self) -> dict[str, HostPace]:
        """Return what is known here of each busy host."""
        now_mono, now_wall = self._monotonic(), self._wall()
        return {host: slot.snapshot(now_mono, now_wall) for host, slot in self._slots.items()}

    def lines(self, host: str, /) -> tuple[PacedLine]:
        """Return the line of ``host``."""
        slot = self._slots.get(host)
        options = self._busy.options(host) if slot is None else slot.options
        return (PacedLine(self, host, options.max_concurrent),)

    def set_limits(self, host: str, min_delay_s: float | None, max_concurrent: int | None, /) -> None:
        """Pace ``host`` by its own limits from now on; None for those of the options. Raises ConfigurationError."""
        if (slot := self._busy.limit(host, min_delay_s, max_concurrent)) is not None:
            self._arm(slot)

    def bind(self, gate: object, host: str, options: PacingOptions) -> None:
        """Have ``host`` bound by the options of a gate, beside those of other gates, while it is busy."""
        slot = self._busy.slot(host, self._monotonic())
        if self._busy.bind(slot, gate, options):
            self._arm(slot)

    def unbind(self, gate: object) -> None:
        """Have no host bound by the options of a gate any more."""
        for slot in self._slots.values():
            if self._busy.bind(slot, gate, None):
                self._arm(slot)

    def pace(self, request: TurnRequest, /) -> Pace:
        """Return the interval that is in force for a request; raises ClosedError."""
        slot, agent = self._enter(request, self._monotonic())
        return slot.pace_of(agent, self._wall())

    def heard(self, host: str, /) -> Heard:
        """Return what the answers of a host say."""
        slot = self._slots.get(host)
        if slot is None or slot.bearing is None:
            return _NOTHING_HEARD
        now_mono, now_wall = self._monotonic(), self._wall()
        return slot.heard(now_mono, now_wall).heard(now_wall, slot.options)

    def learn(self, host: str, backoff_s: float, fetch_backoff_s: float, /) -> None:
        """Take over longer backoffs of a busy host, which another process remembers."""
        slot = self._slots.get(host)
        if slot is not None:
            slot.heard(self._monotonic(), self._wall()).learn(backoff_s, fetch_backoff_s)

    def asked(self, host: str, /) -> int:
        """Return how often it was noted that a busy host was asked; 0 for an idle one."""
        slot = self._slots.get(host)
        return 0 if slot is None else slot.marks

    async def aclose(self) -> None:
        """Raise ClosedError in all that waits, and call the callbacks of ``when_ready``."""
        self._closed = True
        self._wakeups.stop()
        self._held_long.stop()
        for slot in self._slots.values():
            for waiter in slot.line():
                waiter.fail(ClosedError(f"the pacer was closed during the wait for a turn at {slot.host}"))
            while slot.watchers:
                slot.watchers.pop(0)[1]()

    @property
    def waiting(self) -> int:
        """How many requests wait for a permit."""
        return sum(slot.waiting for slot in self._slots.values())

    @property
    def in_flight(self) -> int:
        """How many permits have not ended."""
        return sum(slot.in_flight for slot in self._slots.values())

    def __len__(self) -> int:
        """How many hosts are busy."""
        return len(self._slots)

    def __repr__(self) -> str:
        return f"<LocalPacer: {len(self)} busy hosts, {self.waiting} waiting, {self.in_flight} in flight>"

    def answered(self, permit: LocalPermit, slot: Slot, status: int | None, headers: Mapping[str, str]) -> None:
        """Record an answer; the first call measures how long it took."""
        now_mono = self._monotonic()
        elapsed_s = permit.answered_s
        if elapsed_s is None:
            elapsed_s = permit.answered_s = now_mono - permit.started_mono
        bearing = slot.bearing
        if not headers and status not in CLOSING and bearing is not None and bearing.is_calm:
            slot.ready_for = None
            bearing.time(status, elapsed_s)
        else:
            self._heard(permit, slot, status, headers, elapsed_s, now_mono)
        if slot.in_flight < slot.options.max_concurrent:  # else it is armed at the end
            self._arm(slot)

    def _heard(
        self,
        permit: LocalPermit,
        slot: Slot,
        status: int | None,
        headers: Mapping[str, str],
        elapsed_s: float,
        now_mono: float,
    ) -> None:
        """Record what an answer says beside the time that it took."""
        now_wall = self._wall()
        bearing = slot.heard(now_mono, now_wall)
        jitter = interval_s = 0.0  # they count for a closing only, and take time
        if status in CLOSING or bearing.backoff_s:
            jitter, interval_s = self._jitter(), slot.pace_of(permit.agent, now_wall).interval_s
        overruled = bearing.observe(status, headers, elapsed_s, now_wall, slot.options, jitter, interval_s)
        if overruled:
            self._reports.overruled(slot.host, overruled)
        if bearing.closed_until_wall > now_wall:
            self._reports.closed(slot, now_mono, now_wall, permit.url, status)

    def ended(self, permit: LocalPermit, slot: Slot) -> None:
        """End a request."""
        if permit.answered_s is None:
            self.answered(permit, slot, None, NO_HEADERS)
        if slot.in_flight == 1:  # as ``BusyHosts.end``, without the call
            slot.holder, slot.in_flight, slot.ready_for = None, 0, None
        else:
            self._busy.end(slot, permit)
        if slot.options.max_concurrent == 1:
            slot.last_mono = self._monotonic()
            slot.marks += 1
        self._arm(slot)

    def given_back(self, permit: LocalPermit, slot: Slot) -> None:
        """Take back a permit with which no request was made."""
        self._busy.end(slot, permit)
        slot.unmark(permit)
        self._arm(slot)

    def renewed(self, permit: LocalPermit, slot: Slot) -> bool:
        """Stamp a permit again; return False if it would not be granted now."""
        if self._closed:
            return False
        now_mono = self._monotonic()
        slot.unmark(permit)
        if now_mono < self._ready_mono(slot, permit.agent):
            return False
        permit.before_mono = slot.last_mono
        slot.stamp(permit, now_mono)
        return True

    def _enter(self, request: TurnRequest, now_mono: float) -> tuple[Slot, AgentPace]:
        """Return the slot of a request, and what is stated for its agent; raises ClosedError."""
        if self._closed:
            raise ClosedError(f"the pacer is closed: there is no turn at {request.host}")
        host, origin, name, pace, _ = request
        slot = self._slots.get(host)
        if slot is None:
            slot = self._busy.slot(host, now_mono)
        slot.only_fetched = False
        agent = slot.agents.get(name)
        if agent is None or (pace is not None and agent.by_origin.get(origin) is not pace):
            agent = slot.state(request)
            if slot.waiting or slot.watchers:
                self._arm(slot)  # the head may start sooner than it is armed for
        return slot, agent

    def _ready_mono(self, slot: Slot, agent: AgentPace) -> float:
        """Return from when on a request of an agent may start; ``slot.bound_by`` then says what binds that."""
        if slot.ready_for is not agent or agent.timed:
            slot.schedule(agent, self._monotonic(), self._wall())
        return slot.ready_mono

    def _is_ready(self, slot: Slot, agent: AgentPace, now_mono: float, ahead_s: float = 0.0) -> bool:
        # As ``_ready_mono``, without the call and the clock.
        if (slot.ready_for is not agent or agent.timed) and not slot.schedule_calm(agent):
            slot.schedule(agent, now_mono, self._wall())
        return now_mono + ahead_s >= slot.ready_mono and slot.in_flight < slot.options.max_concurrent

    def _not_yet(self, slot: Slot, agent: AgentPace) -> NotYet:
        """Return the answer to a request that cannot start now: its own time, or that of the head if it is later."""
        ready_mono, bound_by = self._ready_mono(slot, agent), slot.bound_by
        if (head := slot.head) is not None and head.agent is not agent:
            head_mono = self._ready_mono(slot, head.agent)
            if head_mono > ready_mono:
                ready_mono, bound_by = head_mono, slot.bound_by
        return slot.not_yet(ready_mono, bound_by, self._monotonic(), self._wall())

    def _stamp(self, slot: Slot, agent: AgentPace, url: str, now_mono: float) -> LocalPermit:
        slot.marks += 1
        permit = LocalPermit(self, slot, agent, url, now_mono)
        if slot.in_flight == 0:
            slot.holder, slot.in_flight = permit, 1
        else:
            self._busy.start_beside(slot, permit)
            slot.in_flight += 1
        # Also where the end will count: several may be allowed at once before that.
        slot.last_mono = now_mono
        if slot.options.max_concurrent > 1:
            slot.ready_for = None
        if slot.closed_mono != NEVER:
            self._reports.opened(slot)
        if not self._held_long.is_armed:
            self._held_long.arm()
        return permit

    def _join(
        self, slot: Slot, agent: AgentPace, url: str, max_wait_s: float | None, now_mono: float, *, first: bool
    ) -> tuple[Waiter, Timer | None]:
        """Put a request into the line; raises TooFar if it is known that its time comes too late."""
        loop = _get_running_loop()
        if loop is None or loop is not self._wakeups.loop:  # mostly, the call is saved
            loop = self._wakeups.own_loop()
        waiter = Waiter(agent, url, now_mono, loop)
        alarm = None
        if max_wait_s is not None:
            if self._ready_mono(slot, agent) - now_mono > max_wait_s:
                self._arm(slot)
                raise TooFar(slot.host, self._not_yet(slot, agent), max_wait_s)
            # The error says what binds at the moment at which it is raised.
            alarm = self._clock.call_later(
                max_wait_s, lambda: waiter.fail(TooFar(slot.host, self._not_yet(slot, agent), max_wait_s))
            )
        slot.join(waiter, first=first)
        if slot.head is waiter:
            self._arm(slot)
        if slot.holder is not None and slot.holder.started_mono + LONG_S <= now_mono:
            self._look_behind(slot.holder, now_mono)
        if (slot.ready_for is not agent or agent.timed) and not slot.schedule_calm(agent):
            slot.schedule(agent, self._monotonic(), self._wall())
        if (wait_s := slot.ready_mono - now_mono) > LONG_S:
            self._reports.waits(slot, waiter, wait_s, slot.bound_by)
        return waiter, alarm

    def _granted(self, slot: Slot, waiter: Waiter) -> LocalPermit | None:
        """Return the permit of a waiter that was woken; None if it has to wait again."""
        now_mono = self._monotonic()
        agent = waiter.agent
        if slot.ready_for is not agent or agent.timed:  # here and in ``_look_at`` as ``_is_ready``, without the call
            slot.schedule(agent, now_mono, self._wall())
        if (
            now_mono >= slot.ready_mono
            and slot.in_flight < slot.options.max_concurrent
            and slot.head is waiter
            and not self._closed
        ):
            permit = self._stamp(slot, agent, waiter.url, now_mono)
            permit.waited = True
            waited_s = now_mono - waiter.joined_mono
            if waited_s > LONG_S or slot.long_wait is not None:
                self._reports.waited(slot, waiter, waited_s)
            return permit
        if waiter.error is not None:
            raise waiter.error
        waiter.wait_again()
        self._arm(slot)
        return None

    def _arm(self, slot: Slot) -> None:
        """Have the slot looked at when the time of what is next has come; a full one is looked at after an end."""
        if slot.in_flight >= slot.options.max_concurrent:
            return
        # A time in the past will do as well: the timer makes it now, and no clock has to be read here.
        if (head := slot.head) is not None:
            agent = head.agent
            if (slot.ready_for is not agent or agent.timed) and not slot.schedule_calm(agent):
                slot.schedule(agent, self._monotonic(), self._wall())
            at_mono = slot.ready_mono
        elif slot.watchers:
            at_mono = min(self._ready_mono(slot, agent) - ahead_s for agent, _, ahead_s in slot.watchers)
        else:
            at_mono = slot.last_mono + max(slot.longest_s, _FORGOTTEN_S)
        armed_mono = slot.armed_mono
        if armed_mono is None or at_mono < armed_mono:  # mostly, the call is saved
            self._wakeups.look_at(slot, at_mono)

    def _look_at(self, slot: Slot, now_mono: float) -> None:
        if (head := slot.head) is not None:
            agent = head.agent
            if slot.ready_for is not agent or agent.timed:
                slot.schedule(agent, now_mono, self._wall())
            if now_mono >= slot.ready_mono and slot.in_flight < slot.options.max_concurrent:
                if not head.woken.done():  # as ``Waiter.wake``, without the call
                    head.woken.set_result(None)
            else:
                self._look_behind(slot.holder, now_mono)
                self._arm(slot)
        elif slot.watchers:
            self._call_watcher(slot, now_mono)
        elif slot.in_flight == 0:
            until_mono = slot.busy_until(self._busy.kept_s, now_mono, self._wall())
            if until_mono > now_mono:
                self._wakeups.look_at(slot, until_mono)
            else:
                self._busy.forget(slot, now_mono)

    def _call_watcher(self, slot: Slot, now_mono: float) -> None:
        """Call one watcher that is ready: if it takes the permit, the others would be called in vain."""
        for place, (agent, callback, ahead_s) in enumerate(slot.watchers):
            if self._is_ready(slot, agent, now_mono, ahead_s):
                del slot.watchers[place]
                callback()
                break
        self._arm(slot)  # the host is forgotten at the last look, unless a request has started

    def _look_behind(self, holder: Started | None, now_mono: float) -> None:
        """Have a long wait behind a request that is under way for long published: now, or in its time."""
        slot = None if holder is None else self._slots.get(holder.host)
        again_mono = None if slot is None else self._reports.held(slot, now_mono)
        if slot is not None and again_mono is not None and (slot.armed_mono is None or again_mono < slot.armed_mono):
            self._wakeups.look_at(slot, again_mono)
