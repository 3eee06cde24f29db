"""Fetches robots.txt of queued origins ahead of the workers, and again after a deferral; decides how long to wait.

Theory of operation. A blocked origin is in one of three collections. ``unfetched`` is a FIFO of origins whose fetch
has not started. ``fetching`` maps the task of each fetch to its origin; the result of the task is the verdict.
``_deferred`` maps origins whose robots.txt is unreachable, or was answered with 429, to the timer that moves them back
to ``unfetched``. Each step is O(1).

While no worker waits, fetches run only ``_AHEAD`` origins ahead of the workers. This limit also counts each fetched
origin until one of its URLs is handed out or refused. So a long queue does not fetch files long before it needs them.
While a worker waits, all origins are fetched, and the cache bounds how many requests are under way: a thousand servers
that never answer delay no other origin.

If a robots.txt is no longer in memory when its host has its turn, the file is loaded again at once: the limit of
fetches does not apply. After the load, the host is first in line, and its origin holds the file until a URL is handed
out or refused, even if the cache evicts the file. If the load was a fetch, the interval of the host begins anew, and
another load at its end would begin it again. No host is tried while ``_MAX_RELOADING`` files are being loaded. A load
that takes longer than ``_SLOW_S`` delays no host. So a turn costs a few loads at any size of the cache, whatever the
other users of the cache do.

A site can delay its URLs in two ways. An origin is *deferred* while its robots.txt is unreachable or was answered with
429. The verdict names the beginning and the end of that state. The origin is given up as soon as the next fetch would
come too late. A host *waits* for the pacer, until a closure or an interval ends, or a Visit-time begins. The answer of
the pacer names the end of the wait. In report mode no origin is deferred, but each 429 to its robots.txt closes the
host again. So an origin is given up there, too, once this has gone on for ``max_wait_s`` and none of its URLs was
handed out. Otherwise it could stop the other origins of its host for ever.

While a host waits in the line of the pacer, another caller may close the host. So each waiting host is watched: if the
host makes no progress for ``max_wait_s``, a worker tries it. If the worker then finds a closure, the whole time since
the last progress counts as one wait. An answer that names no closure counts as progress. The wait for other requests to
the host, of this queue or of other callers, does not count. One timer serves all hosts, in the order of their last
progress. It is not moved: a timer that fires too early is set again.

While the queue is paused, no host is tried and no fetch begins. A wait counts from the end of the last pause, if that
is later than its beginning.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from politesse._cache.options import is_fault_of_kind
from politesse.ports import FaultKind
from politesse.queue._results import is_given_up
from politesse.verdict import CLOSINGS, Bound, NotYet, Reason, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse._base.tasks import WaitingTasks
    from politesse._gate.permission import Judged
    from politesse._gate.view import AgentView
    from politesse.clock import Clock, Timer
    from politesse.origin import Origin
    from politesse.queue._hosts import HostQueue, OriginQueue

    Learning: TypeAlias = asyncio.Task[Judged]

Item = TypeVar("Item")

_AHEAD: Final = 100
MAX_FETCHING: Final = 2_500  # above the limit of the cache: it gives up stalled servers only while fetches wait
_SLOW_S: Final = 0.05
_AGAIN_S: Final = 1.0  # a fetch whose task was cancelled is repeated after this pause
_MAX_RELOADING: Final = 20
_CLOSINGS: Final = 2  # after as many consecutive loads, the 429 or 503 is what its URLs wait for
_CLOSING: Final = frozenset({Reason.TOO_MANY_REQUESTS, Reason.UNREACHABLE})
_MIN_LOOK_S: Final = 1.0  # a host is not tried more often than this, even with a small ``max_wait_s``
_MIN_DEFERRAL_S: Final = 1.0  # a deferral is at least this long, so that a wall clock that jumps causes no busy loop

CLOSURES: Final = CLOSINGS | {Bound.VISIT_TIME}
WAITS_OF_SITE: Final = CLOSURES | {Bound.CRAWL_DELAY, Bound.REQUEST_RATE, Bound.ADAPTIVE}
"""The bounds by which a site makes its pages wait."""


def is_fetched_too_late(verdict: Verdict, since_wall: float, max_unreachable_s: float, max_wait_s: float) -> bool:
    """Return whether the next fetch of a robots.txt comes too late to wait for it.

    Args:
        verdict: the reason is UNREACHABLE, TOO_MANY_REQUESTS or USAGE_UNKNOWN; ``not_before`` is the next fetch.
        since_wall: when the wait began.
        max_unreachable_s: how long to wait for an unreachable robots.txt, in seconds.
        max_wait_s: how long to wait for a robots.txt that was answered with 429, in seconds.
    """
    kinds = (FaultKind.DNS, FaultKind.ADDRESS) if verdict.reason is Reason.UNREACHABLE else ()
    if verdict.source is not None and any(is_fault_of_kind(verdict.source, kind) for kind in kinds):
        return True  # another attempt would hardly end otherwise
    most_s = max_wait_s if verdict.reason is Reason.TOO_MANY_REQUESTS else max_unreachable_s
    return verdict.not_before is not None and verdict.not_before - since_wall > most_s


@dataclass(slots=True, eq=False, repr=False)
class Patience(Generic[Item]):
    """Decides how long to wait, and when to try a host that may have been closed for too long.

    Args:
        clock: the gate's clock.
        max_unreachable_s: for how long robots.txt is fetched again, counted from the first of the consecutive failures.
        max_wait_s: for how long without a break a site may make its pages wait; infinite for no limit.
        max_refusals: how many times in a row a site may refuse this crawler before it is given up.
        look: lets a worker try a host.
    """

    _clock: Clock
    _max_unreachable_s: float
    max_wait_s: float
    _max_refusals: int
    _look: Callable[[HostQueue[Item]], None]
    _started_wall: float = field(init=False)
    _started_mono: float = field(init=False)
    # The hosts that wait, with the time of their last progress, or of their last look if that was later.
    _watched: OrderedDict[HostQueue[Item], float] = field(default_factory=OrderedDict, init=False)
    _timer: Timer | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Count no wait from before this moment: the queue was created, or a pause has ended."""
        self._started_wall, self._started_mono = self._clock.wall(), self._clock.monotonic()

    def defers(self, origin_queue: OriginQueue[Item], verdict: Verdict) -> bool:
        """Return whether a verdict denies a URL only for a time, and the queue waits for the end of that time."""
        source = verdict.source
        if verdict.allowed or not is_given_up(verdict) or verdict.not_before is None or source is None:
            return False
        since_wall = source.failing_since_wall
        if since_wall is None:  # the verdict is about tdmrep.json
            since_wall = self._clock.wall() if origin_queue.deferred_wall is None else origin_queue.deferred_wall
        # The store may have kept failures from before the creation of this queue. These do not count as a wait.
        since_wall = max(since_wall, self._started_wall)
        return not is_fetched_too_late(verdict, since_wall, self._max_unreachable_s, self.max_wait_s)

    def refuses(self, origin_queue: OriginQueue[Item], verdict: Verdict) -> bool:
        """Return whether a URL with this verdict is refused."""
        return not verdict.allowed and not self.defers(origin_queue, verdict)

    def is_closed_too_long(self, origin_queue: OriginQueue[Item], verdict: Verdict) -> bool:
        """Return whether a URL that report mode allows waits too long, because its robots.txt closes the host."""
        if not verdict.allowed or verdict.reason not in _CLOSING or origin_queue.closings < _CLOSINGS:
            return False
        since_wall = None if verdict.source is None else verdict.source.failing_since_wall
        if since_wall is None:
            return False
        return is_fetched_too_late(
            verdict, max(since_wall, self._started_wall), self._max_unreachable_s, self.max_wait_s
        )

    def waits(self, host: HostQueue[Item], answer: NotYet) -> bool:
        """Return whether to go on waiting for the pacer. If no closure causes the wait, count the wait from now."""
        if answer.refusal is not None and answer.refusal.times >= self._max_refusals:
            return False
        is_closed = answer.bound_by in CLOSURES
        if not is_closed or host.progress_mono is None:
            self.note_progress(host)
        since_mono = max(host.progress_mono or 0.0, self._started_mono)
        left_s = since_mono + self.max_wait_s - self._clock.monotonic()
        return answer.bound_by not in WAITS_OF_SITE or answer.not_before - self._clock.wall() <= left_s

    def watch(self, host: HostQueue[Item]) -> None:
        """Try a waiting host when it has made no progress for too long."""
        if host.progress_mono is None:
            self.note_progress(host)
        if host not in self._watched and self.max_wait_s < inf:
            self._watched[host] = self._clock.monotonic()
            if self._timer is None:
                self._set_timer()

    def note_progress(self, host: HostQueue[Item]) -> None:
        """Count the wait of a host from now."""
        host.progress_mono = self._clock.monotonic()
        if host in self._watched:
            self._watched[host] = host.progress_mono
            self._watched.move_to_end(host)

    def forget(self, host: HostQueue[Item]) -> None:
        """Watch a host no longer: no URL waits there."""
        self._watched.pop(host, None)

    def rest(self) -> None:
        """Cancel the timer: the queue has no more URLs, or hands none out."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        due_mono = next(iter(self._watched.values())) + max(self.max_wait_s, _MIN_LOOK_S)
        self._timer = self._clock.call_later(due_mono - self._clock.monotonic(), self._look_at_first)

    def _look_at_first(self) -> None:
        """Try each host whose time has come."""
        self._timer = None
        now_mono = self._clock.monotonic()
        while self._watched:
            host, since_mono = next(iter(self._watched.items()))
            if now_mono < since_mono + max(self.max_wait_s, _MIN_LOOK_S):
                self._set_timer()
                break
            del self._watched[host]
            self._look(host)


@dataclass(slots=True, eq=False, repr=False)
class RobotsPrefetcher(Generic[Item]):
    """Starts fetches, and reports each origin whose robots.txt was fetched.

    Args:
        agent: fetches and judges; its verdicts are not counted.
        patience: ends deferrals.
        workers: the tasks that wait for a turn; if there are any, all origins are fetched.
        on_known: called with an origin that is no longer blocked, with the verdict and its permission.
        on_failure: called with the error of a fetch.

    Attributes:
        fetching: the origins that are being fetched, by task.
        unfetched: the origins whose fetch has not started.
        is_paused: whether the queue is paused.
    """

    _agent: AgentView
    _patience: Patience[Item]
    _workers: WaitingTasks
    _on_known: Callable[[OriginQueue[Item], Judged], None]
    _on_failure: Callable[[BaseException], None]
    fetching: dict[Learning, OriginQueue[Item]] = field(default_factory=dict, init=False)
    unfetched: deque[OriginQueue[Item]] = field(default_factory=deque, init=False)
    is_paused: bool = field(default=False, init=False)
    _deferred: dict[OriginQueue[Item], Timer] = field(default_factory=dict, init=False)
    _reloading: dict[Learning, Timer] = field(default_factory=dict, init=False)
    _unused: int = field(default=0, init=False)  # the number of origins that are ``prefetched``
    _stopped: bool = field(default=False, init=False)

    @property
    def may_try(self) -> bool:
        """Whether another host may be tried, even if its robots.txt has to be loaded again."""
        return len(self._reloading) < _MAX_RELOADING and not self.is_paused

    @property
    def deferred(self) -> dict[Origin, float]:
        """The deferred origins, with the Unix time at which each deferral ends."""
        return {origin_queue.origin: origin_queue.not_before for origin_queue in self._deferred}

    def add(self, origin_queue: OriginQueue[Item]) -> None:
        """Block an origin until its robots.txt is fetched."""
        origin_queue.blocked = True
        self.unfetched.append(origin_queue)
        self.start_fetches()

    def start_fetches(self, at_least: int = 0) -> None:
        """Start as many fetches as the limits allow; ``_AHEAD`` does not limit the first ``at_least`` fetches."""
        under_way = len(self.fetching)
        wanted = max(MAX_FETCHING if self._workers else at_least, _AHEAD - under_way - self._unused)
        room = min(wanted, MAX_FETCHING - under_way)
        while room > 0 and self.unfetched and not (self._stopped or self.is_paused):
            origin_queue = self.unfetched.popleft()
            origin_queue.blocked = bool(origin_queue.urls)  # the program may have given up its URLs meanwhile
            if origin_queue.blocked:
                room -= 1
                self._fetch(origin_queue)

    def fetch_again(self, origin_queue: OriginQueue[Item]) -> None:
        """Load the robots.txt of an origin again; no limit applies, because the gate is already fetching the file."""
        origin_queue.reloads += 1
        task = self._fetch(origin_queue)
        self._reloading[task] = self._agent.clock.call_later(_SLOW_S, partial(self._end_reload, task))

    def _fetch(self, origin_queue: OriginQueue[Item]) -> Learning:
        origin_queue.blocked = True
        name = f"queue: robots.txt of {origin_queue.origin}"
        # In a new context: the task must not hold the turns of the worker that put the URL.
        learning = self._agent.learn(origin_queue.urls[0].url)
        task = asyncio.get_running_loop().create_task(learning, name=name, context=Context())
        self.fetching[task] = origin_queue
        task.add_done_callback(self._fetched)
        return task

    def _fetched(self, task: Learning) -> None:
        self._end_reload(task)
        origin_queue = self.fetching.pop(task)
        if task.cancelled():  # other code has cancelled the task, or the event loop ends and runs no new task
            self.unfetched.append(origin_queue)
            self._agent.clock.call_later(_AGAIN_S, self.start_fetches)
            return
        error = task.exception()
        if error is not None:
            self._on_failure(error)
        if self._stopped:
            return  # perhaps the gate was closed just after this fetch
        if not origin_queue.urls:  # the program has given them up meanwhile
            origin_queue.blocked = False
            self.start_fetches()
            return
        verdict, _, _ = task.result()
        origin_queue.closings = origin_queue.closings + 1 if verdict.reason in _CLOSING else 0
        is_deferred = self.defer(origin_queue, verdict)
        # The cache may evict the file before a worker has asked, or a failure before the next fetch counts it.
        origin_queue.held = task.result() if is_deferred or origin_queue.reloads else None
        if not is_deferred:
            origin_queue.blocked = False
            self._unused += not origin_queue.prefetched
            origin_queue.prefetched = True
            self._on_known(origin_queue, task.result())
        self.start_fetches()

    def _end_reload(self, task: Learning) -> None:
        timer = self._reloading.pop(task, None)
        if timer is not None:
            timer.cancel()
            self._workers.wake()

    def defer(self, origin_queue: OriginQueue[Item], verdict: Verdict) -> bool:
        """Block an origin until its robots.txt may be fetched again; return False if the verdict is final."""
        not_before = verdict.not_before
        if not_before is None or not self._patience.defers(origin_queue, verdict):
            return False
        now_wall = self._agent.clock.wall()
        origin_queue.not_before, origin_queue.deferred_by = not_before, verdict
        if origin_queue.deferred_wall is None:
            origin_queue.deferred_wall = now_wall
        origin_queue.blocked = True
        wait_s = max(not_before - now_wall, _MIN_DEFERRAL_S)
        self._deferred[origin_queue] = self._agent.clock.call_later(wait_s, partial(self._end_deferral, origin_queue))
        return True

    def forget(self, origin_queue: OriginQueue[Item]) -> None:
        """Defer an origin no longer: its URLs are given up."""
        timer = self._deferred.pop(origin_queue, None)
        if timer is not None:
            timer.cancel()
            origin_queue.blocked, origin_queue.deferred_wall = False, None

    def _end_deferral(self, origin_queue: OriginQueue[Item]) -> None:
        del self._deferred[origin_queue]
        self.add(origin_queue)

    def note_use(self, origin_queue: OriginQueue[Item]) -> None:
        """Count an origin as used: one of its URLs was handed out or refused."""
        self._unused -= origin_queue.prefetched
        origin_queue.prefetched = False
        origin_queue.reloads, origin_queue.held = 0, None
        if self.unfetched:
            self.start_fetches(at_least=1)

    def stop(self) -> None:
        """Cancel the deferrals, and start no more fetches; the fetches under way end with the gate."""
        self._stopped = True
        for timer in self._deferred.values():
            timer.cancel()
        self._deferred.clear()
