"""What a pacer keeps of a busy host, and the arithmetic of its next turn; the time is an argument."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from politesse._pacing.backoff import Bearing
from politesse._pacing.pace import rates_hold_until, stated_pace, visit_from
from politesse.verdict import Bound, NotYet

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse._pacing.pace import Pace, PacingOptions
    from politesse.robots import RuleSet

_NEVER: Final = float("-inf")
_LONGEST_REMEMBERED_S: Final = 86_400.0  # a copy of robots.txt holds no longer either (RFC 9309 2.4)


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

    def __init__(self, slot: Slot, started_mono: float) -> None:
        self.key = slot.key
        self.started_mono = started_mono
        self.waited = False
        self.slot: Slot | None = slot
        self.before_mono = slot.last_mono
        self.marks = slot.marks
        self.answered_s: float | None = None
        self.beside: tuple[Permit, ...] = ()

    def redeem(self) -> Slot | None:
        """Return the slot; None from the second time on."""
        slot, self.slot = self.slot, None
        return slot


class Waiter:
    """Somebody in a queue: woken once it is the head and the time has come, and again if that was too early."""

    __slots__ = ("error", "woken")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.woken: asyncio.Future[None] = asyncio.Future(loop=loop)  # told which loop, it need not look for it
        self.error: Exception | None = None

    def wake(self) -> None:
        """Let it look."""
        if not self.woken.done():
            self.woken.set_result(None)

    def fail(self, error: Exception) -> None:
        """Let it raise ``error``, unless it is granted its turn at the same moment."""
        # Beside the future: whoever was woken already, in vain, has to see it too.
        self.error = self.error or error
        self.wake()

    def wait_again(self) -> None:
        """Have it woken once more."""
        self.woken = asyncio.Future(loop=self.woken.get_loop())


class Slot:
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
        self.waiters: OrderedDict[Waiter, None] = OrderedDict()
        self.watchers: list[Callable[[], None]] = []  # a deque takes 600 octets when it is empty

    def hear(self, origin: str, rules: RuleSet) -> None:
        """Let the rules of an origin count from now on."""
        self.said[origin] = rules
        self.stated = None
        said = self.said.values()
        self.rate_stated = any(rules.request_rates for rules in said)
        self.timed = any(rules.timetable.is_timed for rules in said)

    def heard(self, now_mono: float, now_wall: float) -> Bearing:
        """Return what its answers say, as of now; nothing yet where none has come."""
        if self.bearing is None:
            self.bearing = Bearing()
        self.bearing.follow(now_mono, now_wall)
        return self.bearing

    def schedule(self, now_mono: float, now_wall: float) -> None:
        """Work out from when on the next request may start, and what binds that."""
        pace = self.stated
        if pace is None or self.timed:
            # Kept, because most requests end with the rules that the one before ended with.
            pace = self.stated = stated_pace(self.said.values(), now_wall, self.options)
        bearing = self.bearing
        if bearing is not None:
            bearing.follow(now_mono, now_wall)
            pace = bearing.slow(pace, now_wall, self.options, rate_stated=self.rate_stated)
        self.ready_mono, self.bound_by = self.last_mono + pace.interval_s, pace.bound_by
        if self.timed:
            # The pace may be a faster one after that: it is worked out again then.
            self.ready_mono = min(
                self.ready_mono, now_mono + (rates_hold_until(self.said.values(), now_wall) - now_wall)
            )
        if bearing is not None and bearing.closed_until_wall > now_wall:
            opens_mono = now_mono + (bearing.closed_until_wall - now_wall)
            if opens_mono > self.ready_mono:
                self.ready_mono, self.bound_by = opens_mono, bearing.closed_by
        if self.timed:
            # The window has to be open when the request may start, not now.
            start_wall = now_wall + max(0.0, self.ready_mono - now_mono)
            opens_wall = visit_from(self.said.values(), start_wall)
            if opens_wall > start_wall:
                self.ready_mono, self.bound_by = now_mono + (opens_wall - now_wall), Bound.VISIT_TIME

    def remembered_s(self, now_mono: float, now_wall: float) -> float:
        """Return for how long this may not be forgotten, idle as it is; 0 or less where it may be now."""
        remembered_s = 0.0
        if self.bearing is not None:
            self.bearing.follow(now_mono, now_wall)
            remembered_s = self.bearing.remembered_until_wall - now_wall
        if self.spent and not self.said:
            # Its robots.txt was asked for, and nobody has said yet what it asks for: a first page that comes later
            # than the floor still has to wait out the Crawl-delay from then. That may have no bound.
            longest_s = min(self.options.max_crawl_delay_s, _LONGEST_REMEMBERED_S)
            remembered_s = max(remembered_s, self.last_mono + longest_s - now_mono)
        return remembered_s

    def not_yet(self, now_mono: float, now_wall: float) -> NotYet:
        """Return the answer to who cannot start now."""
        wait_s = max(0.0, self.ready_mono - now_mono)
        bound_by = self.bound_by
        if wait_s == 0.0:
            bound_by = Bound.IN_FLIGHT if self.in_flight >= self.options.max_concurrent else Bound.QUEUE
        return NotYet(now_wall + wait_s, bound_by)
