"""The hosts of a LocalPacer: the active hosts, the last requests to idle hosts, and the timer for the next checks."""

from __future__ import annotations

import asyncio
import heapq
from contextlib import suppress
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Final

from politesse._base.constants import DAY_S
from politesse._pacing.backoff import HostBackoff
from politesse._pacing.host import NEVER, PacedHost
from politesse._pacing.pace import PacingOptions, known_limited
from politesse.errors import WrongEventLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from politesse._pacing.permit import LocalPermit
    from politesse.clock import Clock, Timer

FRESH_S: Final = 60.0
"""How long a request for robots.txt counts; see ``FetchLines``."""

_MIN_TIMER_S: Final = 0.001  # one timer serves all hosts that are due within this time
_REMEMBERED_S: Final = 600.0
_MAX_HOSTS: Final = 125_000
_SWEPT_FROM: Final = 500


class ActiveHosts:
    """The active hosts, and the limits that were set for single hosts.

    Args:
        options: the options of all hosts without limits of their own.
        marks: see below.
        begin: called with each host that becomes active.

    Attributes:
        scope: ``"host"``, ``"address"`` or ``"domain"``.
        by_name: maps the names of the active hosts to the hosts.
        marks: the marks of the hosts of this and earlier pacers.
    """

    def __init__(self, options: PacingOptions, marks: Marks, begin: Callable[[PacedHost], None]) -> None:
        self._begin = begin
        self._options_of: dict[str, PacingOptions] = {}
        self.by_name: dict[str, PacedHost] = {}
        self.marks = marks
        self.use(options)

    def use(self, options: PacingOptions) -> None:
        """Replace the options."""
        self._options, self.scope = options, options.key
        self.marks.requested.kept_s = max(self.marks.requested.kept_s, min(options.max_crawl_delay_s, DAY_S))
        for host in self.by_name.values():
            host.limit(self.options(host.host))

    def get(self, name: str, now_mono: float) -> PacedHost:
        """Return a host, and make it active."""
        host = self.by_name.get(name)
        if host is None:
            backoff = self.marks.backoffs.setdefault(name, HostBackoff())
            last_mono = backoff.last_mono = max(self.marks.requested.take(name, now_mono), backoff.last_mono)
            host = self.by_name[name] = PacedHost(name, self.options(name), last_mono, backoff=backoff)
            self._begin(host)
        return host

    def requested(self, name: str, now_mono: float, *, again: bool) -> None:
        """Remember a request to an idle host. If an earlier one still counts, only ``again`` replaces its time."""
        if again or now_mono - self.marks.requested.look_up(name) > self.marks.requested.kept_s:
            self.marks.requested.keep(name, now_mono, now_mono)

    def last_mono(self, name: str) -> float:
        """Return when a host was last requested; minus infinity if that is unknown."""
        host = self.by_name.get(name)
        return self.marks.requested.look_up(name) if host is None else host.last_mono

    def resting(self, now_mono: float) -> Iterator[PacedHost]:
        """Return the idle hosts whose interval after a request for robots.txt is not over yet."""
        longest_s = max(options.min_delay_s for options in (self._options, *self._options_of.values()))
        for name, last_mono in self.marks.requested.since(now_mono - longest_s):
            options = self.options(name)
            if last_mono + options.min_delay_s > now_mono:
                yield PacedHost(name, options, last_mono)

    def options(self, name: str) -> PacingOptions:
        """Return the options of a host, with the limits that were set for it."""
        return self._options_of.get(name, self._options)

    def forget(self, host: PacedHost, now_mono: float) -> None:
        """Make a host idle."""
        self.by_name.pop(host.host, None)
        self.marks.backoffs.pop(host.host, None)
        self.marks.requested.keep(host.host, host.last_mono, now_mono)

    def under_way(self) -> Iterator[LocalPermit]:
        """Return all permits that have not ended."""
        for host in self.by_name.values():
            yield from host.under_way

    def limit(self, name: str, min_delay_s: float | None, max_concurrent: int | None) -> PacedHost | None:
        """Set the limits of a host, and return the host if it is active. If a limit is None, the options apply."""
        options = self._options
        self._options_of.pop(name, None)
        if min_delay_s is not None or max_concurrent is not None:
            options = self._options_of[name] = known_limited(options, min_delay_s, max_concurrent)
        host = self.by_name.get(name)
        if host is not None:
            host.limit(options)
        return host


class Marks:
    """What a process remembers of the hosts of a scope. The next pacer goes on with it.

    An active host writes its last request into its HostBackoff, which is here from the start. So the close of a pacer
    needs no step, and a pacer that was never closed leaves its marks as well.

    Attributes:
        requested: the last requests to idle hosts; ``kept_s`` grows with the longest Crawl-delay of the options.
        fetches: the second-to-last and the last requests for robots.txt.
        backoffs: the backoff of each host that is active, or was active when its pacer closed.
    """

    def __init__(self) -> None:
        self.requested: LastRequestTimes = LastRequestTimes(_REMEMBERED_S)
        self.fetches: tuple[LastRequestTimes, LastRequestTimes] = LastRequestTimes(FRESH_S), LastRequestTimes(FRESH_S)
        self.backoffs: dict[str, HostBackoff] = {}
        self._swept_from = _SWEPT_FROM

    def sweep(self, now_mono: float) -> None:
        """Forget the backoffs that are too old; an active host may lose its mark, but not its backoff."""
        if len(self.backoffs) < self._swept_from:
            return  # otherwise each of many pacers, one after the other, would look at the hosts of all others
        for name, backoff in list(self.backoffs.items()):
            if max(backoff.last_mono + self.requested.kept_s, backoff.remembered_until_mono) <= now_mono:
                self.backoffs.pop(name, None)
        self._swept_from = max(_SWEPT_FROM, 2 * len(self.backoffs))


class LastRequestTimes:
    """The times of the last requests to idle hosts. Each takes 55 to 85 octets besides the host name, and no timer.

    The times are in two dicts. After ``kept_s``, or when the younger dict is full, the younger dict replaces the older
    dict. So a time is kept for ``kept_s`` to twice ``kept_s``, for up to 250,000 hosts.

    Args:
        kept_s: how long a time counts, in seconds.
    """

    __slots__ = ("_older", "_since_mono", "_younger", "kept_s")

    def __init__(self, kept_s: float) -> None:
        self.kept_s: float = kept_s
        self._younger: dict[str, float] = {}
        self._older: dict[str, float] = {}
        self._since_mono = NEVER

    def keep(self, host: str, last_mono: float, now_mono: float) -> None:
        """Remember when a host was last requested."""
        if now_mono - self._since_mono >= self.kept_s or len(self._younger) >= _MAX_HOSTS:
            self._older = self._younger if now_mono - self._since_mono < 2.0 * self.kept_s else {}
            self._younger, self._since_mono = {}, now_mono
        self._younger[host] = last_mono

    def since(self, from_mono: float) -> list[tuple[str, float]]:
        """Return the hosts that were requested after a moment, and when each was last requested."""
        times = chain(self._older.copy().items(), self._younger.copy().items())  # another thread may share them
        return [(host, last_mono) for host, last_mono in times if last_mono > from_mono]

    def look_up(self, host: str) -> float:
        """Return when a host was last requested; minus infinity if that is unknown."""
        return self._younger.get(host, self._older.get(host, NEVER))

    def take(self, host: str, now_mono: float) -> float:
        """Return when a host was last requested, and forget it; minus infinity if that is unknown."""
        last_mono = self._younger.pop(host, None)
        if last_mono is None:
            last_mono = self._older.pop(host, NEVER)
        return last_mono if now_mono - last_mono <= self.kept_s else NEVER


class Wakeups:
    """Checks each host at its time. An entry of the heap is valid while its time equals the host's ``armed_mono``.

    A timer is set when a host is due before the soonest timer. If the host is due now, the check runs in the next step
    of the event loop. Later timers are not cancelled: cancelling a timer and setting another costs three times as much,
    because the event loop keeps a cancelled timer until its time. No timer is set for an entry that is no longer valid.

    Args:
        clock: the monotonic clock and the timer.
        look: called with a host whose time has come, and the monotonic time.

    Attributes:
        loop: the event loop of the timer, or None before the first use.
    """

    def __init__(self, clock: Clock, look: Callable[[PacedHost, float], None]) -> None:
        self._clock = clock
        self._look = look
        self._heap: list[tuple[float, int, PacedHost]] = []
        self._pushes = 0
        self._timers: list[tuple[float, Timer]] = []  # the timers with their times, the soonest last
        self._soonest_mono = inf
        self.loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False

    def look_at(self, host: PacedHost, at_mono: float) -> None:
        """Check a host at ``at_mono``, which is before its armed time and may be in the past."""
        if self._stopped:
            return
        host.armed_mono = at_mono
        self._pushes += 1
        heapq.heappush(self._heap, (at_mono, self._pushes, host))
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
        """Cancel all checks."""
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
            at_mono, _, host = heapq.heappop(heap)
            if host.armed_mono == at_mono:  # otherwise a later entry has replaced this entry
                host.armed_mono = None
                self._look(host, now_mono)
        if heap and heap[0][0] < self._soonest_mono:
            self._set_timer(heap[0][0])
