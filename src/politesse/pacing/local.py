"""Whose turn it is in one process: a queue for each busy host, one heap and one timer for all.

A host that nobody waits for and whose interval is over has no state. A slot is stamped when its waiter resumes, not
when it is woken, and the clock is read again then: a task may be resumed late, and a timer may fire early. Only the
head of a queue is ever woken. A waiter that is cancelled, woken or not, leaves the queue, and whoever is next is seen
to.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from politesse.errors import ClosedError, TooFar
from politesse.events import Event, Publisher
from politesse.pacing.backoff import CLOSING, Bearing
from politesse.pacing.pace import PacingOptions, rates_hold_until, stated_pace, visit_from
from politesse.verdict import Bound, NotYet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from politesse.clock import Clock, Timer
    from politesse.pacing.pace import Pace
    from politesse.robots import RuleSet

_NEVER: Final = float("-inf")
_MIN_TIMER_S: Final = 0.001  # one timer sees to all hosts whose time comes within it
_NO_HEADERS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class HeaderOverruled(Event):
    """A Retry-After or RateLimit header is not obeyed as it stands: it cannot be read, or cannot be meant.

    Attributes:
        host: the pacing key of who sent it.
        field: its name, in lower case.
        value: at most 100 characters of it, printable.
        applied_s: how long the host is left alone instead, in seconds; None where it changes nothing.
    """

    host: str
    field: str
    value: str
    applied_s: float | None


class Permit:
    """Leave for one request to one host; under way until it is finished or given back.

    Attributes:
        key: the pacing key.
        started_mono: when it was stamped.
        before_mono: the ``last_mono`` of its slot before that.
        marks: those of its slot, its own included.
        waited: whether that was later than it was asked for.
        slot: whose; None once it is over.
        answered_s: after how many seconds the answer came; None until it is known.
        beside: those that were taken along with it, in wider scopes.
    """

    __slots__ = ("answered_s", "before_mono", "beside", "key", "marks", "slot", "started_mono", "waited")

    def __init__(self, slot: _Slot, started_mono: float) -> None:
        self.key = slot.key
        self.started_mono = started_mono
        self.waited = False
        self.slot: _Slot | None = slot
        self.before_mono = slot.last_mono
        self.marks = slot.marks
        self.answered_s: float | None = None
        self.beside: tuple[Permit, ...] = ()

    def redeem(self) -> _Slot | None:
        """Return the slot; None from the second time on."""
        slot, self.slot = self.slot, None
        return slot


class _Waiter:
    """Somebody in a queue: woken once it is the head and the time has come, and again if that was too early."""

    __slots__ = ("error", "woken")

    def __init__(self) -> None:
        self.woken: asyncio.Future[None] = asyncio.Future()
        self.error: Exception | None = None

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)

    def fail(self, error: Exception) -> None:
        # Beside the future: whoever was woken already, in vain, has to see it too.
        self.error = self.error or error
        self.wake()

    def wait_again(self) -> None:
        self.woken = asyncio.Future()


class _Slot:
    """A busy host.

    Attributes:
        key: the pacing key.
        options: those of the pacer, or those set for this host.
        said: the rules of each of its origins that has asked for a turn.
        rate_stated: whether these state a Request-rate.
        stated: the pace that these and the options state, at whatever time of day; None until it is asked for.
        bearing: what its answers say; None before the first.
        in_flight: how many requests are under way.
        last_mono: the end of the last request, or the start of it where several may be under way.
        marks: how often ``last_mono`` was set, to know who did last.
        ready_mono: from when on the next may start, as far as the interval and a closure go.
        bound_by: what binds that.
        spent: whether the last request was one that waited for no turn.
        timed: whether the time of day may change it.
        armed_mono: the time of its entry in the heap that counts; None for none.
        waiters: in the order in which they came.
        watchers: whom to call, one after the other, when it is ready and nobody waits.
    """

    __slots__ = (
        "armed_mono",
        "bearing",
        "bound_by",
        "in_flight",
        "key",
        "last_mono",
        "marks",
        "options",
        "rate_stated",
        "ready_mono",
        "said",
        "spent",
        "stated",
        "timed",
        "waiters",
        "watchers",
    )

    def __init__(self, key: str, options: PacingOptions) -> None:
        self.key = key
        self.options = options
        self.said: dict[str, RuleSet] = {}
        self.stated: Pace | None = None
        self.rate_stated = False
        self.bearing: Bearing | None = None
        self.in_flight = 0
        self.last_mono = _NEVER
        self.marks = 0
        self.ready_mono = _NEVER
        self.bound_by = Bound.FLOOR
        self.spent = False
        self.timed = False
        self.armed_mono: float | None = None
        self.waiters: OrderedDict[_Waiter, None] = OrderedDict()
        self.watchers: deque[Callable[[], None]] = deque()


class LocalPacer:
    """Spaces the requests of this process, host by host. Belongs to one event loop.

    Args:
        options: see PacingOptions.
        clock: the clocks and the timer.
        jitter: returns 0 to 1, to spread what a host that was closed gets when it opens.
        publisher: hears of HeaderOverruled.
    """

    def __init__(
        self,
        options: PacingOptions | None = None,
        *,
        clock: Clock,
        jitter: Callable[[], float] = random.random,
        publisher: Publisher | None = None,
    ) -> None:
        self._options = options or PacingOptions()
        self._clock = clock
        self._monotonic = clock.monotonic
        self._wall = clock.wall
        self._jitter = jitter
        self._publisher = publisher or Publisher()
        self._options_of: dict[str, PacingOptions] = {}
        self._slots: dict[str, _Slot] = {}
        self._heap: list[tuple[float, int, _Slot]] = []
        self._pushes = 0
        self._timer: Timer | None = None
        self._timer_mono = 0.0
        self._closed = False

    def try_start(self, key: str, origin: str, rules: RuleSet | None) -> Permit | NotYet:
        """Return leave to start a request now, or when that may be. Waits for nothing.

        Args:
            key: the pacing key, as a host.
            origin: whose page is to be requested.
            rules: what its robots.txt says; None where that is not known, which changes nothing.

        Raises ClosedError.
        """
        self._check_open(key)
        now_mono = self._monotonic()
        slot = self._slot(key, origin, rules, now_mono)
        if not slot.waiters and self._is_ready(slot, now_mono):
            return self._stamp(slot, now_mono)
        self._arm(slot)
        return self._not_yet(slot, now_mono)

    async def start(  # noqa: C901 - in one piece: a frame more would cost every task that is resumed
        self,
        key: str,
        origin: str,
        rules: RuleSet | None,
        max_wait_s: float | None = None,
        *,
        again: bool = False,
    ) -> Permit:
        """Wait in line for leave to start a request; see ``try_start``. With ``again`` at the head of the line.

        Raises TooFar if it is known that it will not come within ``max_wait_s``, or if it has not; and ClosedError.
        """
        self._check_open(key)
        now_mono = self._monotonic()
        slot = self._slot(key, origin, rules, now_mono)
        if not slot.waiters and self._is_ready(slot, now_mono):
            return self._stamp(slot, now_mono)
        waiter = _Waiter()
        alarm = None
        if max_wait_s is not None:
            if slot.ready_mono - now_mono > max_wait_s:
                self._arm(slot)
                raise TooFar(key, self._not_yet(slot, now_mono), max_wait_s)
            # The words of the error are those of the moment at which it is raised.
            alarm = self._clock.call_later(max_wait_s, lambda: waiter.fail(self._too_far(slot, max_wait_s)))
        waiters = slot.waiters
        if not waiters:
            self._arm(slot)  # else it was seen to when the first of them came
        waiters[waiter] = None
        if again:
            waiters.move_to_end(waiter, last=False)
        started = False
        try:
            while True:
                await waiter.woken
                now_mono = self._monotonic()
                if not self._closed and next(iter(waiters)) is waiter and self._is_ready(slot, now_mono):
                    started = True
                    permit = self._stamp(slot, now_mono)
                    permit.waited = True
                    return permit
                if waiter.error is not None:
                    raise waiter.error
                waiter.wait_again()
                self._arm(slot)
        finally:
            del waiters[waiter]
            if alarm is not None:
                alarm.cancel()
            if not started or slot.options.max_concurrent > 1:
                self._arm(slot)  # woken or not, whoever is next is seen to

    def when_ready(self, key: str, origin: str, rules: RuleSet | None, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, when a request may start at ``key`` and nobody waits for it; or at the close.

        It is no place in line: ``try_start``, which see, tells whether there is leave. Raises ClosedError.
        """
        self._check_open(key)
        slot = self._slot(key, origin, rules, self._monotonic())
        slot.watchers.append(callback)
        self._arm(slot)

    def observe(self, permit: Permit, status: int, headers: Mapping[str, str] | None = None) -> None:
        """Take in the answer while the request is still under way: who waits is held back at once if it says so.

        Args:
            permit: what the request was started with; once it is over, this has no effect.
            status: of the answer.
            headers: of the answer, names in lower case.
        """
        slot = permit.slot
        if slot is not None:
            now_mono, now_wall = self._monotonic(), self._wall()
            self._hear(slot, permit, status, headers or _NO_HEADERS, now_mono, now_wall)
            self._schedule(slot, now_mono, now_wall)
            self._arm(slot)

    def finish(self, permit: Permit, status: int | None = None, headers: Mapping[str, str] | None = None) -> None:
        """End a request: the interval to the next counts from now. Doing so twice has no effect.

        Args:
            permit: what it was started with.
            status: of the answer; None where there was none, or it was observed before.
            headers: of the answer, names in lower case.
        """
        slot = permit.redeem()
        if slot is None:
            return
        now_mono, now_wall = self._monotonic(), self._wall()
        slot.in_flight -= 1
        if slot.options.max_concurrent == 1:
            slot.last_mono = now_mono
            slot.marks += 1
        if status is not None or permit.answered_s is None:
            self._hear(slot, permit, status, headers or _NO_HEADERS, now_mono, now_wall)
        self._schedule(slot, now_mono, now_wall)
        self._arm(slot)

    def renew(self, permit: Permit) -> bool:
        """Stamp a permit anew that could not be used at once; False if it would not be given now: give it back."""
        slot = permit.slot
        if slot is None or self._closed:
            return False
        now_mono = self._monotonic()
        if slot.marks == permit.marks:  # else another request has come after it, and counts
            slot.last_mono = permit.before_mono
        self._schedule(slot, now_mono)
        if now_mono < slot.ready_mono:
            return False
        slot.marks += 1
        permit.marks, permit.before_mono = slot.marks, slot.last_mono
        permit.started_mono = slot.last_mono = now_mono
        self._schedule(slot, now_mono)
        return True

    def give_back(self, permit: Permit) -> None:
        """End a permit with which nothing was requested: it has cost the host nothing. Twice has no effect."""
        slot = permit.redeem()
        if slot is None:
            return
        slot.in_flight -= 1
        if slot.marks == permit.marks:  # else another request has come after it
            slot.last_mono = permit.before_mono
            slot.marks -= 1
        self._schedule(slot, self._monotonic())
        self._arm(slot)

    def close(self, key: str, until_wall: float, bound_by: Bound) -> None:
        """Let nothing start at ``key`` before the Unix time ``until_wall``; who waits already waits for that too."""
        slot = self._slots.get(key) or self._new(key)
        if slot.bearing is None:
            slot.bearing = Bearing()
        slot.bearing.close(until_wall, bound_by)
        self._schedule(slot, self._monotonic())
        self._arm(slot)

    def is_ready(self, key: str) -> bool:
        """Whether a request may start at ``key`` now; also when the pacer is closed."""
        slot = self._slots.get(key)
        if slot is None or self._closed:
            return True
        return not slot.waiters and self._is_ready(slot, self._monotonic())

    async def closed_until(self, key: str) -> float | None:
        """Return the Unix time until which the host has asked to be left alone; None if it has not."""
        slot = self._slots.get(key)
        if slot is None or slot.bearing is None or slot.bearing.closed_until_wall <= self._wall():
            return None
        return slot.bearing.closed_until_wall

    def spend(self, key: str) -> None:
        """Count a request that waited for no turn, as one for robots.txt: the interval to the next starts now."""
        slot = self._slots.get(key) or self._new(key)
        now_mono = self._monotonic()
        slot.last_mono = now_mono
        slot.spent = True
        slot.marks += 1
        self._schedule(slot, now_mono)
        self._arm(slot)

    def set_options(self, key: str, options: PacingOptions | None) -> None:
        """Pace one host by options of its own from now on; None for those of the pacer."""
        if options is None:
            self._options_of.pop(key, None)
        else:
            self._options_of[key] = options
        if (slot := self._slots.get(key)) is not None:
            slot.options = options or self._options
            slot.stated = None
            self._schedule(slot, self._monotonic())
            self._arm(slot)

    async def aclose(self) -> None:
        """Tell everybody who waits that no turn will come: ClosedError."""
        self._closed = True
        for slot in self._slots.values():
            for waiter in slot.waiters:
                waiter.fail(ClosedError(f"the pacer was closed while a turn at {slot.key} was waited for"))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._heap.clear()
        for slot in self._slots.values():
            while slot.watchers:
                slot.watchers.popleft()()

    @property
    def waiting(self) -> int:
        """How many wait for a turn."""
        return sum(len(slot.waiters) for slot in self._slots.values())

    @property
    def in_flight(self) -> int:
        """How many requests are under way."""
        return sum(slot.in_flight for slot in self._slots.values())

    def __len__(self) -> int:
        """How many hosts are busy."""
        return len(self._slots)

    def __repr__(self) -> str:
        return f"<LocalPacer: {len(self)} busy hosts, {self.waiting} waiting, {self.in_flight} in flight>"

    def _hear(
        self,
        slot: _Slot,
        permit: Permit,
        status: int | None,
        headers: Mapping[str, str],
        now_mono: float,
        now_wall: float,
    ) -> None:
        """Let the bearing of the host tell of an answer; the first word on it says how long the host took."""
        bearing = slot.bearing
        if bearing is None:
            bearing = slot.bearing = Bearing()
        elapsed_s = permit.answered_s
        if elapsed_s is None:
            elapsed_s = permit.answered_s = now_mono - permit.started_mono
        jitter = self._jitter() if status in CLOSING else 0.0
        for overruled in bearing.observe(status, headers, elapsed_s, now_wall, slot.options, jitter):
            event = HeaderOverruled(slot.key, overruled.field, overruled.value, overruled.applied_s)
            self._publisher.publish(event)

    def _check_open(self, key: str) -> None:
        if self._closed:
            raise ClosedError(f"a turn at {key} was asked for after the pacer was closed")

    def _too_far(self, slot: _Slot, max_wait_s: float) -> TooFar:
        return TooFar(slot.key, self._not_yet(slot, self._monotonic()), max_wait_s)

    def _new(self, key: str) -> _Slot:
        slot = self._slots[key] = _Slot(key, self._options_of.get(key, self._options))
        return slot

    def _slot(self, key: str, origin: str, rules: RuleSet | None, now_mono: float) -> _Slot:
        slot = self._slots.get(key)
        if slot is None:
            slot = self._new(key)
        if rules is not None and slot.said.get(origin) is not rules:
            slot.said[origin] = rules
            slot.stated = None
            slot.rate_stated = any(said.request_rates for said in slot.said.values())
            slot.timed = any(
                said.visit_times or any(rate.window is not None for rate in said.request_rates)
                for said in slot.said.values()
            )
            self._schedule(slot, now_mono)
            self._arm(slot)  # it may be sooner than those who wait were told
        return slot

    def _is_ready(self, slot: _Slot, now_mono: float) -> bool:
        if slot.timed:
            self._schedule(slot, now_mono)
        return now_mono >= slot.ready_mono and slot.in_flight < slot.options.max_concurrent

    def _stamp(self, slot: _Slot, now_mono: float) -> Permit:
        slot.marks += 1
        permit = Permit(slot, now_mono)
        slot.in_flight += 1
        slot.spent = False
        # Also where the end will count: several may be allowed at once before that.
        slot.last_mono = now_mono
        if slot.options.max_concurrent > 1:
            self._schedule(slot, now_mono)
        return permit

    def _schedule(self, slot: _Slot, now_mono: float, now_wall: float | None = None) -> None:
        """Work out from when on the next request may start, and what binds that."""
        if now_wall is None:
            now_wall = self._wall()
        pace = slot.stated
        if pace is None or slot.timed:
            # Kept, because most requests end with the rules that the one before ended with.
            pace = slot.stated = stated_pace(slot.said.values(), now_wall, slot.options)
        bearing = slot.bearing
        if bearing is not None:
            pace = bearing.slow(pace, now_wall, slot.options, rate_stated=slot.rate_stated)
        slot.ready_mono, slot.bound_by = slot.last_mono + pace.interval_s, pace.bound_by
        if slot.timed:
            # The pace may be a faster one after that: it is worked out again then.
            slot.ready_mono = min(
                slot.ready_mono, now_mono + (rates_hold_until(slot.said.values(), now_wall) - now_wall)
            )
        if bearing is not None and bearing.closed_until_wall > now_wall:
            opens_mono = now_mono + (bearing.closed_until_wall - now_wall)
            if opens_mono > slot.ready_mono:
                slot.ready_mono, slot.bound_by = opens_mono, bearing.closed_by
        if slot.timed:
            # The window has to be open when the request may start, not now.
            start_wall = now_wall + max(0.0, slot.ready_mono - now_mono)
            opens_wall = visit_from(slot.said.values(), start_wall)
            if opens_wall > start_wall:
                slot.ready_mono, slot.bound_by = now_mono + (opens_wall - now_wall), Bound.VISIT_TIME

    def _not_yet(self, slot: _Slot, now_mono: float) -> NotYet:
        wait_s = max(0.0, slot.ready_mono - now_mono)
        bound_by = slot.bound_by
        if wait_s == 0.0:
            bound_by = Bound.IN_FLIGHT if slot.in_flight >= slot.options.max_concurrent else Bound.QUEUE
        return NotYet(self._wall() + wait_s, bound_by)

    def _arm(self, slot: _Slot) -> None:
        """See to it that the slot is looked at when its time comes; a full one is looked at when a request ends."""
        if slot.in_flight < slot.options.max_concurrent:
            # A time in the past will do as well: the timer makes it now, and no clock has to be read here.
            self._look_later(slot, slot.ready_mono)

    def _look_later(self, slot: _Slot, at_mono: float) -> None:
        armed_mono = slot.armed_mono
        if self._closed or (armed_mono is not None and armed_mono <= at_mono):
            return
        slot.armed_mono = at_mono
        self._pushes += 1
        heapq.heappush(self._heap, (at_mono, self._pushes, slot))
        if self._timer is None or at_mono < self._timer_mono:
            self._set_timer()

    def _set_timer(self) -> None:
        if not self._heap:
            return
        at_mono = self._heap[0][0]
        if self._timer is not None:
            if self._timer_mono <= at_mono:
                return
            self._timer.cancel()
        self._timer_mono = at_mono
        delay_s = max(at_mono - self._monotonic(), _MIN_TIMER_S)
        self._timer = self._clock.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_mono = self._monotonic()
        heap = self._heap
        while heap and heap[0][0] <= now_mono:
            at_mono, _, slot = heapq.heappop(heap)
            if slot.armed_mono == at_mono:  # else another entry took its place
                slot.armed_mono = None
                self._look_at(slot, now_mono)
        self._set_timer()

    def _look_at(self, slot: _Slot, now_mono: float) -> None:
        if slot.timed:
            self._schedule(slot, now_mono)
        if now_mono < slot.ready_mono or slot.in_flight >= slot.options.max_concurrent:
            self._arm(slot)
        elif slot.waiters:
            next(iter(slot.waiters)).wake()
        elif slot.watchers:
            # One at a time: if that one takes the leave, the others would be called in vain.
            slot.watchers.popleft()()
            self._arm(slot)  # it is forgotten at the last look, unless a request has started
        elif slot.in_flight == 0:
            remembered_s = 0.0 if slot.bearing is None else slot.bearing.remembered_until_wall - self._wall()
            if slot.spent and not slot.said:
                # Its robots.txt was asked for, and nobody has said yet what it asks for: a first page that comes later
                # than the floor still has to wait out the Crawl-delay from then.
                remembered_s = max(remembered_s, slot.last_mono + slot.options.max_crawl_delay_s - now_mono)
            if remembered_s > 0:
                self._look_later(slot, now_mono + remembered_s)
            else:
                del self._slots[slot.key]
