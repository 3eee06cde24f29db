"""For how long the state of a site may hold its URLs back before they are given up, in seconds.

Theory of operation. Two things hold URLs back. An origin is *deferred* while its robots.txt is unreachable or was
answered with 429; the verdict says since when and until when. It is given up as soon as that would be too late: nothing
waits for a fetch that comes after the end of the patience. A host *waits* for the pacer: for a closure, a Visit-time,
an interval. What the pacer answers to a try says until when.

A host may also be closed while it waits, by a caller that is not the queue. ``_waiting`` holds each host that has made
progress since it was looked at last, in the order of that progress, and one timer has the first of them looked at when
``max_wait_s`` are over. A look is a try like any other. If it finds a closure, the whole time since the last progress
counts: the host was held back at a stretch. If it finds none, that is progress. What other requests to the host take,
of this queue or of others, counts for nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from politesse._cache.outcome import is_fault_of_kind
from politesse.ports import FaultKind
from politesse.verdict import Bound, NotYet, Reason, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse.clock import Clock, Timer
    from politesse.queue.hosts import HostQueue, OriginQueue

Item = TypeVar("Item")

_MIN_LOOK_S: Final = 1.0  # a small ``max_wait_s`` must not turn the looks into a busy loop
_DEFERRING: Final = frozenset({Reason.UNREACHABLE, Reason.TOO_MANY_REQUESTS, Reason.USAGE_UNKNOWN})
_GIVING_UP: Final = _DEFERRING | {Reason.WAIT_TOO_LONG}
_CLOSURES: Final = frozenset({Bound.RETRY_AFTER, Bound.BACKOFF, Bound.RATE_LIMIT, Bound.VISIT_TIME})
_INTERVALS: Final = frozenset({Bound.CRAWL_DELAY, Bound.REQUEST_RATE, Bound.RULE_OF_THUMB, Bound.ADAPTIVE})


class Limits(NamedTuple):
    """For how long is waited.

    Attributes:
        max_unreachable_s: for how long after the first failure in a row robots.txt is fetched again.
        max_wait_s: for how long at a stretch a site may make its pages wait; infinite for no limit.
        max_deferrals: how often in a row an origin is deferred, in place of both; None for no such count.
    """

    max_unreachable_s: float
    max_wait_s: float
    max_deferrals: int | None


class Patience(Generic[Item]):
    """Says what is waited for, and has hosts looked at that may have been closed for too long.

    Args:
        clock: the gate's clock.
        limits: see Limits.
        look: has a host tried.
    """

    def __init__(self, clock: Clock, limits: Limits, look: Callable[[HostQueue[Item]], None]) -> None:
        self.limits = limits
        self._clock = clock
        self._look = look
        self._started_wall = clock.wall()
        self._waiting: OrderedDict[str, HostQueue[Item]] = OrderedDict()
        self._timer: Timer | None = None

    def defers(self, origin_queue: OriginQueue[Item], verdict: Verdict) -> bool:
        """Return whether a verdict denies only for now, and its end is waited for."""
        not_before, source = verdict.not_before, verdict.source
        if verdict.allowed or verdict.reason not in _DEFERRING or not_before is None or source is None:
            return False
        if self.limits.max_deferrals is not None:
            return not_before == origin_queue.not_before or origin_queue.deferrals < self.limits.max_deferrals
        if verdict.reason is Reason.UNREACHABLE and is_fault_of_kind(source, FaultKind.DNS):
            return False
        most_s = self.limits.max_wait_s if verdict.reason is Reason.TOO_MANY_REQUESTS else self.limits.max_unreachable_s
        since_wall = source.failing_since_wall
        if since_wall is None:  # of tdmrep.json
            since_wall = self._clock.wall() if origin_queue.deferred_wall is None else origin_queue.deferred_wall
        # Failures that an earlier process has met, and the store has kept, are not this queue's wait.
        return not_before - max(since_wall, self._started_wall) <= most_s

    def refuses(self, origin_queue: OriginQueue[Item], verdict: Verdict) -> bool:
        """Return whether a URL with this verdict is refused."""
        return not verdict.allowed and not self.defers(origin_queue, verdict)

    def waits(self, host: HostQueue[Item], answer: NotYet) -> bool:
        """Return whether the end of a wait for the pacer is waited for; that no closure holds the host is progress."""
        now_mono = self._clock.monotonic()
        if answer.bound_by not in _CLOSURES or host.progress_mono is None:
            self.note_progress(host)
            waited_s = 0.0
        else:
            waited_s = now_mono - host.progress_mono
        of_site = answer.bound_by in _CLOSURES or answer.bound_by in _INTERVALS
        return not of_site or waited_s + answer.not_before - self._clock.wall() <= self.limits.max_wait_s

    def watch(self, host: HostQueue[Item]) -> None:
        """Have a host that waits for the pacer looked at when it has made no progress for too long."""
        if host.key not in self._waiting:
            self.note_progress(host)

    def note_progress(self, host: HostQueue[Item]) -> None:
        """Count the wait of a host from now on."""
        host.progress_mono = self._clock.monotonic()
        if self.limits.max_wait_s < inf:
            self._waiting[host.key] = host
            self._waiting.move_to_end(host.key)
            if self._timer is None:
                self._set_timer()

    def forget(self, host: HostQueue[Item]) -> None:
        """Have a host looked at no more: nothing waits there."""
        self._waiting.pop(host.key, None)
        if not self._waiting:
            self.stop()

    def stop(self) -> None:
        """Have no host looked at any more."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        first = next(iter(self._waiting.values()))
        wait_s = self._due_mono(first) - self._clock.monotonic()
        self._timer = self._clock.call_later(max(wait_s, _MIN_LOOK_S), self._look_at_due)

    def _look_at_due(self) -> None:
        self._timer = None
        now_mono = self._clock.monotonic()
        while self._waiting:
            host = next(iter(self._waiting.values()))
            if self._due_mono(host) > now_mono:
                self._set_timer()
                break
            del self._waiting[host.key]  # until it makes progress
            self._look(host)

    def _due_mono(self, host: HostQueue[Item]) -> float:
        return (host.progress_mono or 0.0) + self.limits.max_wait_s


def is_given_up(verdict: Verdict) -> bool:
    """Return whether a URL was refused because of a wait, and not because it is known to be disallowed."""
    return verdict.reason in _GIVING_UP
