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
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from politesse._pacing.backoff import CLOSING
from politesse._pacing.pace import PacingOptions
from politesse._pacing.slot import Permit, Slot, Waiter
from politesse.errors import ClosedError, WrongEventLoop
from politesse.events import Event, Publisher
from politesse.verdict import TooFar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from politesse._pacing.backoff import Overruled
    from politesse.clock import Clock, Timer
    from politesse.robots import RuleSet
    from politesse.verdict import Bound, NotYet

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
        self._slots: dict[str, Slot] = {}
        self._heap: list[tuple[float, int, Slot]] = []
        self._pushes = 0
        self._timer: Timer | None = None
        self._timer_mono = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
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
        return slot.not_yet(now_mono, self._wall())

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

        Raises TooFar if it is known that it will not come within ``max_wait_s``, or if it has not; ClosedError, and
        WrongEventLoop.
        """
        self._check_open(key)
        now_mono = self._monotonic()
        slot = self._slot(key, origin, rules, now_mono)
        if not slot.waiters and self._is_ready(slot, now_mono):
            return self._stamp(slot, now_mono)
        waiter = Waiter(self._own_loop())
        alarm = None
        if max_wait_s is not None:
            if slot.ready_mono - now_mono > max_wait_s:
                self._arm(slot)
                raise TooFar(key, slot.not_yet(now_mono, self._wall()), max_wait_s)
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

        It is no place in line: ``try_start``, which see, tells whether there is leave. Raises ClosedError, and
        WrongEventLoop.
        """
        self._check_open(key)
        self._own_loop()
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
            slot.schedule(now_mono, now_wall)
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
        slot.schedule(now_mono, now_wall)
        self._arm(slot)

    def renew(self, permit: Permit) -> bool:
        """Stamp a permit anew that could not be used at once; False if it would not be given now: give it back."""
        slot = permit.slot
        if slot is None or self._closed:
            return False
        now_mono = self._monotonic()
        if slot.marks == permit.marks:  # else another request has come after it, and counts
            slot.last_mono = permit.before_mono
        slot.schedule(now_mono, self._wall())
        if now_mono < slot.ready_mono:
            return False
        slot.marks += 1
        permit.marks, permit.before_mono = slot.marks, slot.last_mono
        permit.started_mono = slot.last_mono = now_mono
        slot.schedule(now_mono, self._wall())
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
        slot.schedule(self._monotonic(), self._wall())
        self._arm(slot)

    def close(self, key: str, until_wall: float, bound_by: Bound) -> None:
        """Let nothing start at ``key`` before the Unix time ``until_wall``; who waits already waits for that too."""
        slot = self._slots.get(key) or self._new(key)
        now_mono, now_wall = self._monotonic(), self._wall()
        slot.heard(now_mono, now_wall).close(until_wall, bound_by)
        slot.schedule(now_mono, now_wall)
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
        if slot is None or slot.bearing is None:
            return None
        now_wall = self._wall()
        closed_until_wall = slot.heard(self._monotonic(), now_wall).closed_until_wall
        return closed_until_wall if closed_until_wall > now_wall else None

    def spend(
        self, key: str, status: int | None = None, headers: Mapping[str, str] | None = None, elapsed_s: float = 0.0
    ) -> None:
        """Count a request that waited for no turn, as one for robots.txt: the interval to the next starts now.

        Args:
            key: the pacing key.
            status: of the answer: 429 and 503 close the host; None where there was none.
            headers: of the answer, names in lower case.
            elapsed_s: how long it took.
        """
        slot = self._slots.get(key) or self._new(key)
        now_mono, now_wall = self._monotonic(), self._wall()
        slot.last_mono = now_mono
        slot.spent = True
        slot.marks += 1
        if status in CLOSING:
            bearing = slot.heard(now_mono, now_wall)
            # Without jitter: robots.txt is asked for again when its own backoff is over, and is to find the host open.
            self._tell(slot, bearing.refuse(headers or _NO_HEADERS, elapsed_s, now_wall, slot.options, 0.0))
        slot.schedule(now_mono, now_wall)
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
            slot.schedule(self._monotonic(), self._wall())
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
                slot.watchers.pop(0)()

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
        slot: Slot,
        permit: Permit,
        status: int | None,
        headers: Mapping[str, str],
        now_mono: float,
        now_wall: float,
    ) -> None:
        """Let the bearing of the host tell of an answer; the first word on it says how long the host took."""
        bearing = slot.heard(now_mono, now_wall)
        elapsed_s = permit.answered_s
        if elapsed_s is None:
            elapsed_s = permit.answered_s = now_mono - permit.started_mono
        jitter = self._jitter() if status in CLOSING else 0.0
        self._tell(slot, bearing.observe(status, headers, elapsed_s, now_wall, slot.options, jitter))

    def _tell(self, slot: Slot, overruled: Iterable[Overruled]) -> None:
        for header in overruled:
            self._publisher.publish(HeaderOverruled(slot.key, header.field, header.value, header.applied_s))

    def _check_open(self, key: str) -> None:
        if self._closed:
            raise ClosedError(f"a turn at {key} was asked for after the pacer was closed")

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop for whoever is to wait; in another than the first, which has the timer, nobody is woken."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise WrongEventLoop
        return loop

    def _too_far(self, slot: Slot, max_wait_s: float) -> TooFar:
        return TooFar(slot.key, slot.not_yet(self._monotonic(), self._wall()), max_wait_s)

    def _new(self, key: str) -> Slot:
        slot = self._slots[key] = Slot(key, self._options_of.get(key, self._options))
        return slot

    def _slot(self, key: str, origin: str, rules: RuleSet | None, now_mono: float) -> Slot:
        slot = self._slots.get(key)
        if slot is None:
            slot = self._new(key)
        if rules is not None and slot.said.get(origin) is not rules:
            slot.hear(origin, rules)
            slot.schedule(now_mono, self._wall())
            self._arm(slot)  # it may be sooner than those who wait were told
        return slot

    def _is_ready(self, slot: Slot, now_mono: float) -> bool:
        if slot.timed:
            slot.schedule(now_mono, self._wall())
        return now_mono >= slot.ready_mono and slot.in_flight < slot.options.max_concurrent

    def _stamp(self, slot: Slot, now_mono: float) -> Permit:
        slot.marks += 1
        permit = Permit(slot, now_mono)
        slot.in_flight += 1
        slot.spent = False
        # Also where the end will count: several may be allowed at once before that.
        slot.last_mono = now_mono
        if slot.options.max_concurrent > 1:
            slot.schedule(now_mono, self._wall())
        return permit

    def _arm(self, slot: Slot) -> None:
        """See to it that the slot is looked at when its time comes; a full one is looked at when a request ends."""
        if slot.in_flight < slot.options.max_concurrent:
            # A time in the past will do as well: the timer makes it now, and no clock has to be read here.
            self._look_later(slot, slot.ready_mono)

    def _look_later(self, slot: Slot, at_mono: float) -> None:
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
        if self._loop is None:
            with suppress(RuntimeError):  # none is running: then the clock is no event loop's either
                self._loop = asyncio.get_running_loop()
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

    def _look_at(self, slot: Slot, now_mono: float) -> None:
        if slot.timed:
            slot.schedule(now_mono, self._wall())
        if now_mono < slot.ready_mono or slot.in_flight >= slot.options.max_concurrent:
            self._arm(slot)
        elif slot.waiters:
            next(iter(slot.waiters)).wake()
        elif slot.watchers:
            # One at a time: if that one takes the leave, the others would be called in vain.
            slot.watchers.pop(0)()
            self._arm(slot)  # it is forgotten at the last look, unless a request has started
        elif slot.in_flight == 0:
            remembered_s = slot.remembered_s(now_mono, self._wall())
            if remembered_s > 0:
                self._look_later(slot, now_mono + remembered_s)
            else:
                del self._slots[slot.key]
