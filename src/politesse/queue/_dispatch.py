"""Takes URLs, hands out those of hosts that are ready, and refuses those that are denied: the core of PoliteQueue.

The parts, in the order of this file; ``_hosts.py`` has the phases of hosts, read it first::

    StallWatch                logs when a queue makes no progress
    TimeSlice                 the time for sorting and refusing; a crawl has another one for its sitemap files
    Patience                  how long to wait; Scrapy uses ``is_fetched_too_late``, too
    RobotsPrefetcher          fetches robots.txt ahead of the workers
    Dispatcher                takes URLs, hands them out and refuses them
    QueueTurn                 the ``async with`` of one turn

Theory of operation. ``hosts`` maps the name of each paced host to its HostQueue, which knows the next URL and the phase
of the host (HostPhase). The hosts that are READY or GIVEN_UP stand in a FIFO line. ``workers`` is a FIFO of tasks that
wait for a turn; when a host enters at the end of the line, one task wakes.

A worker takes the first host, withdraws its next URL and asks the gate for a turn, all in one step. (In a fleet, the
host gets its first turn after a wait in the line of the pacer, which asks Redis meanwhile.) The answer decides:

    a turn                       the URL is handed out; the host waits in the line of the pacer if it has more URLs
    not yet: pace of the host    the URL goes back; the host waits in the line of the pacer, or is given up (Patience)
    not yet: robots.txt unknown  the URL goes back; its origin is blocked during a fetch, the host goes on
    robots.txt unreachable, 429  the URL goes back; its origin is deferred, the host goes on
    denied, deferred too long    the URL is refused; the host goes on

"The host goes on" means that it becomes the first of the line. The queue does not poll: a worker asks for a turn only
after an event at a host. ``try_take`` is one round of a worker, for a caller that must not wait: the request manager of
Crawlee.

A URL is also judged when it is put, if its robots.txt is known. After a fetch of robots.txt, the URLs of its origin are
*sorted* if the file has changed or denies the first URL: each URL is judged, and a denied URL is withdrawn from its
host. A worker refuses a denied URL without a call
of the pacer, so the URL waits for no interval. Sorting ten thousand URLs of an origin takes some 100 ms, so all workers
share one slice of time in which they sort and refuse. So twenty workers block the event loop no longer than one worker.
Sorting is not final: each URL is judged again when it is refused or handed out.

The cost of ``put``, of a turn and of a refusal grows with the logarithm of the number of URLs of the host, and linearly
with the number of its origins. A decision is counted only when a URL is handed out or refused.

After ``close``, the queue accepts no URLs, and the workers finish the queued URLs, including the URLs of deferred
origins. When the gate is closed, ``fail`` cancels all timers and wakes all waiting tasks, which then raise ClosedError.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeAlias
from weakref import WeakSet

from cachetools import LRUCache

from politesse._base.checks import AsyncOnly, check_priority
from politesse._base.tasks import WaitingTasks, current_task, is_ended_with_task, running_loop
from politesse._base.text import counted, shortened
from politesse._cache.outcome import is_fault_of_kind
from politesse._gate.turn import HELD, Turn, held_turns
from politesse._gate.view import AgentView, Judged, publish_granted, try_turn
from politesse.errors import ClosedError, Disallowed, InvalidURL, StoreError, TurnHeld
from politesse.origin import Origin, StrOrURL, url_text
from politesse.ports import FaultKind
from politesse.queue._hosts import (
    ASLEEP,
    IN_LINE,
    LOGGER,
    NO_TRAIL,
    HostEvent,
    HostPhase,
    HostQueue,
    OriginQueue,
    QueuedUrl,
    Trail,
)
from politesse.queue._results import (
    Item,
    Loss,
    QueueClosed,
    QueuedTurn,
    QueueStatistics,
    is_given_up,
    lost_by,
    outside_of_loop,
)
from politesse.verdict import CLOSINGS, WORDS, Bound, NotYet, Reason, Verdict, utc

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterator, Sequence

    from politesse.clock import Clock, Timer
    from politesse.queue._journal import Journal, Row
    from politesse.robots import RuleSet

    Learning: TypeAlias = asyncio.Task[Judged]

_STALL_S: Final = 60.0
_BATCH: Final = 100
_MAX_NAMED: Final = 3
_MAX_SITES: Final = 10_000  # at most this many logged sites are remembered
_SLICE_S: Final = 0.002  # of real time, in one round of the event loop
_AHEAD: Final = 100  # how many origins are fetched before a worker needs them
MAX_FETCHING: Final = 2_500  # more than Admission lets in by default: it gives up stalled servers only if others wait
_SLOW_S: Final = 0.05
_AGAIN_S: Final = 1.0  # a fetch whose task was cancelled is repeated after this pause
_MAX_RELOADING: Final = 20
_LEAST_CLOSINGS: Final = 2  # fewer loads of robots.txt in a row that ended in 429 or 503 do not count as a wait
_CLOSED_BY_FILE: Final = frozenset({Reason.TOO_MANY_REQUESTS, Reason.UNREACHABLE})
_MIN_LOOK_S: Final = 1.0  # a host is not tried more often than this, even with a small ``max_wait_s``
_MIN_DEFERRAL_S: Final = 1.0  # a deferral is at least this long, so that a wall clock that jumps causes no busy loop

CLOSURES: Final = CLOSINGS | {Bound.VISIT_TIME}
"""The bounds by which a site is closed for a time."""

WAITS_OF_SITE: Final = CLOSURES | {Bound.CRAWL_DELAY, Bound.REQUEST_RATE, Bound.ADAPTIVE}
"""The bounds by which a site makes its pages wait."""


@dataclass(slots=True, eq=False, repr=False)
class StallWatch:
    """Logs when a queue makes no progress while a task waits. Each wait runs in a ``with`` block of the StallWatch.

    Theory of operation. A queue is *stalled* if a task waits, but for a minute no URL was put, handed out, done or
    refused. One timer checks for a stall, and only while a task waits. Progress changes the due time, not the timer; a
    timer that fires too early is set again. A stall is logged once: the timer is set again only after progress.

    Args:
        queue: the queue; the time while it is paused does not count.
        clock: the gate's clock.
    """

    _queue: Dispatcher[Any]
    _clock: Clock
    _waiting: int = field(default=0, init=False)
    _since_mono: float = field(default=inf, init=False)  # since when a task has waited without progress
    _timer: Timer | None = field(default=None, init=False)
    _is_logged: bool = field(default=False, init=False)

    def note_progress(self) -> None:
        """Count the time without progress from now, or from the next wait if no task waits."""
        self._since_mono = self._clock.monotonic() if self._waiting else inf
        if self._is_logged:
            self._is_logged = False
            if self._waiting:
                self._watch()

    def __enter__(self) -> None:
        self._waiting += 1
        if self._timer is None:  # otherwise another task waits, so the time without progress is counted already
            self._watch()

    def __exit__(self, *_: object) -> None:
        self._waiting -= 1
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        now_mono = self._clock.monotonic()
        self._since_mono = min(self._since_mono, now_mono)
        if self._timer is None and not self._is_logged:
            self._timer = self._clock.call_later(self._since_mono + _STALL_S - now_mono, self._look)

    def _look(self) -> None:
        self._timer = None
        now_mono = self._clock.monotonic()
        if self._queue.is_paused:
            self._since_mono = now_mono
        if now_mono < self._since_mono + _STALL_S:  # the sum that _watch uses, because a difference may round otherwise
            self._watch()
            return
        self._is_logged = True
        if LOGGER.isEnabledFor(logging.INFO):
            LOGGER.info("no progress for %.0f s: %s", now_mono - self._since_mono, described(self._queue))


class TimeSlice:
    """The time that all workers together may take in one round of the event loop."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: float | None = None

    def is_open(self) -> bool:
        """Whether there is time left in this round; the first call of a round begins it."""
        loop = asyncio.get_running_loop()
        if self._until is None:
            self._until = loop.time() + _SLICE_S  # this is real time, not the clock of the gate
            loop.call_soon(self._end_round)
        return loop.time() < self._until

    def _end_round(self) -> None:
        self._until = None


def is_fetched_too_late(verdict: Verdict, since_wall: float, max_unreachable_s: float, max_wait_s: float) -> bool:
    """Return whether the next fetch of a robots.txt comes too late to wait for it.

    Args:
        verdict: the reason is UNREACHABLE, TOO_MANY_REQUESTS or USAGE_UNKNOWN; ``not_before`` is the next fetch.
        since_wall: when the wait began.
        max_unreachable_s: how long to wait for an unreachable robots.txt, in seconds.
        max_wait_s: how long to wait for a robots.txt that was answered with 429, or whose host is closed, in seconds.
    """
    most_s = max_wait_s if verdict.reason is Reason.TOO_MANY_REQUESTS else max_unreachable_s
    if verdict.reason is Reason.UNREACHABLE and verdict.source is not None:
        if any(is_fault_of_kind(verdict.source, kind) for kind in (FaultKind.DNS, FaultKind.ADDRESS)):
            return True  # another attempt would hardly end otherwise
        if is_fault_of_kind(verdict.source, FaultKind.HOST_CLOSED):
            most_s = max_wait_s
    return verdict.not_before is not None and verdict.not_before - since_wall > most_s


@dataclass(slots=True, eq=False, repr=False)
class Patience(Generic[Item]):
    """Decides how long to wait, and when to try a host that may have been closed for too long.

    Theory of operation. A site can delay its URLs in two ways. An origin is *deferred* while its robots.txt is
    unreachable or was answered with 429. The verdict names the beginning and the end of that state. The origin is given
    up as soon as the next fetch would come too late. A host *waits* for the pacer, until a closure or an interval ends,
    or a Visit-time begins. The answer of the pacer names the end of the wait. In report mode no origin is deferred, but
    each 429 to its robots.txt closes the host again. So an origin is given up there, too, once this has gone on for
    ``max_wait_s`` and none of its URLs was handed out. Otherwise it could stop the other origins of its host for ever.

    While a host waits in the line of the pacer, another caller may close the host. So each waiting host is watched: if
    the host makes no progress for ``max_wait_s``, a worker tries it. If the worker then finds a closure, the whole time
    since the last progress counts as one wait. An answer that names no closure counts as progress. The wait for other
    requests to the host, of this queue or of other callers, does not count. One timer serves all hosts, in the order of
    their last progress. It is not moved: a timer that fires too early is set again.

    While the queue is paused, no host is tried and no fetch begins. A wait counts from the end of the last pause, if
    that is later than its beginning.

    Args:
        queue: lets a worker try a host.
        clock: the gate's clock.
        max_unreachable_s: for how long robots.txt is fetched again, counted from the first of the consecutive failures.
        max_wait_s: for how long without a break a site may make its pages wait; infinite for no limit.
        max_refusals: how many times in a row a site may refuse this crawler before it is given up.
    """

    _queue: Dispatcher[Item]
    _clock: Clock
    _max_unreachable_s: float
    max_wait_s: float
    _max_refusals: int
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
        waits_since_wall = self._clock.wall() if origin_queue.deferral is None else origin_queue.deferral[0]
        since_wall = source.failing_since_wall
        # Without a time, the verdict is about tdmrep.json. The time of a failure moves on while its host is closed.
        if since_wall is None or is_fault_of_kind(source, FaultKind.HOST_CLOSED):
            since_wall = waits_since_wall
        return not self._is_fetched_too_late(verdict, since_wall)

    def is_closed_too_long(self, origin_queue: OriginQueue[Item], verdict: Verdict) -> bool:
        """Return whether a URL that report mode allows waits too long, because its robots.txt closes the host."""
        if not verdict.allowed or verdict.reason not in _CLOSED_BY_FILE or origin_queue.closings < _LEAST_CLOSINGS:
            return False
        since_wall = None if verdict.source is None else verdict.source.failing_since_wall
        return since_wall is not None and self._is_fetched_too_late(verdict, since_wall)

    def _is_fetched_too_late(self, verdict: Verdict, since_wall: float) -> bool:
        # The store may have kept failures from before the creation of this queue. These do not count as a wait.
        since_wall = max(since_wall, self._started_wall)
        return is_fetched_too_late(verdict, since_wall, self._max_unreachable_s, self.max_wait_s)

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
            self._queue.move(host, HostEvent.LOOK)


@dataclass(slots=True, eq=False, repr=False)
class RobotsPrefetcher(Generic[Item]):
    """Fetches robots.txt of queued origins ahead of the workers, and again after a deferral.

    Theory of operation. A blocked origin is in one of three collections. ``unfetched`` is a FIFO of origins whose fetch
    has not started. ``fetching`` maps the task of each fetch to its origin; the result of the task is a Judged.
    ``_deferred`` maps origins whose robots.txt is unreachable, or was answered with 429, to the end of the deferral
    and to the timer that moves them back to ``unfetched``. Each step is O(1).

    While no worker waits, fetches run only ``_AHEAD`` origins ahead of the workers. This limit also counts each fetched
    origin until one of its URLs is handed out or refused. So a long queue does not fetch files long before it needs
    them. While a worker waits, all origins are fetched, and the cache bounds how many requests are under way: a
    thousand servers that never answer delay no other origin.

    If a robots.txt is no longer in memory when its host has its turn, the file is loaded again at once: the limit of
    fetches does not apply. After the load, the host is first in line, and its origin holds the file until a URL is
    handed out or refused, even if the cache evicts the file. If the load was a fetch, the interval of the host begins
    anew, and another load at its end would begin it again. No host is tried while ``_MAX_RELOADING`` files are being
    loaded. A load that takes longer than ``_SLOW_S`` delays no host. So a turn costs a few loads at any size of the
    cache, whatever the other users of the cache do.

    Args:
        queue: is told of each origin that is no longer blocked; if tasks wait for its turns, all origins are fetched.
        agent: fetches and judges; its verdicts are not counted.

    Attributes:
        fetching: the origins that are being fetched, by task.
        unfetched: the origins whose fetch has not started.
    """

    _queue: Dispatcher[Item]
    _agent: AgentView
    fetching: dict[Learning, OriginQueue[Item]] = field(default_factory=dict, init=False)
    unfetched: deque[OriginQueue[Item]] = field(default_factory=deque, init=False)
    _deferred: dict[OriginQueue[Item], tuple[float, Timer]] = field(default_factory=dict, init=False)
    _reloading: dict[Learning, Timer] = field(default_factory=dict, init=False)
    _unused: int = field(default=0, init=False)  # the number of origins that are ``prefetched``

    @property
    def may_try(self) -> bool:
        """Whether another host may be tried, even if its robots.txt has to be loaded again."""
        return len(self._reloading) < _MAX_RELOADING and not self._queue.is_paused

    @property
    def deferred(self) -> dict[Origin, float]:
        """The deferred origins, with the Unix time at which each deferral ends."""
        return {origin_queue.origin: until_wall for origin_queue, (until_wall, _) in self._deferred.items()}

    def add(self, origin_queue: OriginQueue[Item]) -> None:
        """Block an origin until its robots.txt is fetched."""
        origin_queue.blocked = True
        self.unfetched.append(origin_queue)
        self.start_fetches()

    def start_fetches(self, at_least: int = 0) -> None:
        """Start as many fetches as the limits allow; ``_AHEAD`` does not limit the first ``at_least`` fetches."""
        under_way = len(self.fetching)
        wanted = max(MAX_FETCHING if self._queue.workers else at_least, _AHEAD - under_way - self._unused)
        room = min(wanted, MAX_FETCHING - under_way)
        if self._queue.is_paused or self._queue.failure is not None:
            return
        while room > 0 and self.unfetched:
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
            self._queue.fail(error)
        if self._queue.failure is not None:
            return  # perhaps the gate was closed just after this fetch
        origin_queue.blocked = False
        if origin_queue.urls:  # otherwise the program has given them up meanwhile
            verdict, _, _ = task.result()
            origin_queue.closings = origin_queue.closings + 1 if verdict.reason in _CLOSED_BY_FILE else 0
            is_deferred = self.defer(origin_queue, verdict)
            # The cache may evict the file before a worker has asked, or a failure before the next fetch counts it.
            origin_queue.held = task.result() if is_deferred or origin_queue.reloads else None
            if not is_deferred:
                self._unused += not origin_queue.prefetched
                origin_queue.prefetched = True
                self._queue.known(origin_queue, task.result())
        self.start_fetches()

    def _end_reload(self, task: Learning) -> None:
        timer = self._reloading.pop(task, None)
        if timer is not None:
            timer.cancel()
            self._queue.workers.wake()

    def defer(self, origin_queue: OriginQueue[Item], verdict: Verdict) -> bool:
        """Block an origin until its robots.txt may be fetched again; return False if the verdict is final."""
        not_before = verdict.not_before
        if not_before is None or not self._queue.patience.defers(origin_queue, verdict):
            return False
        now_wall = self._agent.clock.wall()
        since_wall = now_wall if origin_queue.deferral is None else origin_queue.deferral[0]
        origin_queue.deferral = since_wall, verdict
        origin_queue.blocked = True
        wait_s = max(not_before - now_wall, _MIN_DEFERRAL_S)
        timer = self._agent.clock.call_later(wait_s, partial(self._end_deferral, origin_queue))
        self._deferred[origin_queue] = not_before, timer
        return True

    def forget(self, origin_queue: OriginQueue[Item]) -> None:
        """Defer an origin no longer: its URLs are given up."""
        if origin_queue in self._deferred:
            self._deferred.pop(origin_queue)[1].cancel()
            origin_queue.blocked, origin_queue.deferral = False, None

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
        """Cancel the deferrals; the fetches under way end with the gate."""
        for _, timer in self._deferred.values():
            timer.cancel()
        self._deferred.clear()


class Dispatcher(Generic[Item]):
    """Keeps the queued URLs of each host and the waiting tasks, and hands out the URLs; see the module.

    Args:
        agent: fetches, judges and grants turns; a decision is counted with each turn and each refusal.
        on_disallowed, max_unreachable_s, max_wait_s, max_refusals, journal, retry_failed, maxsize: see PoliteQueue.

    Attributes:
        hosts: maps the name of each paced host to its queue. A host is listed while it has URLs, or while tasks wait
            for room there.
        line: the hosts that are ready.
        workers: the tasks that wait for a turn.
        size: how many URLs wait.
        closed: whether the queue accepts no more URLs.
        under_way: the URLs whose turns are under way. The key is the number of the URL.
        patience: decides how long to wait.
        robots: fetches robots.txt ahead.
        is_paused: whether no host is tried and no fetch begins, until ``resume``.
        failure: the error after which no more turns come; None before it.
        stalls: logs when the queue makes no progress.
        refused: how many URLs were refused.
        given_up: how many of the refused URLs were given up; see ``is_given_up``.
        consumers: the tasks that have taken a turn.
        admit: returns whether the running crawl has not seen a URL, and marks it as seen; None without a crawl.
        note_refusal: lets the running crawl count a URL that is refused, with the time of the last progress of its
            host; None without a crawl.
        journal: records each change; None for no journal.
    """

    def __init__(
        self,
        agent: AgentView,
        on_disallowed: Callable[[Item | str, Verdict], object] | None,
        max_unreachable_s: float | None,
        max_wait_s: float | None,
        max_refusals: int,
        journal: str | os.PathLike[str] | None,
        retry_failed: bool = False,  # noqa: FBT001, FBT002 - a private class
        maxsize: int = 0,
    ) -> None:
        self._agent = agent
        self.stalls: StallWatch = StallWatch(self, agent.clock)
        self.hosts: dict[str, HostQueue[Item]] = {}
        self._in_turn: dict[str, HostQueue[Item]] = {}  # hosts without URLs that have turns under way
        self.workers: WaitingTasks = WaitingTasks()
        self.line: deque[HostQueue[Item]] = deque()
        unreachable_s = inf if max_unreachable_s is None else max_unreachable_s
        wait_s = inf if max_wait_s is None else max_wait_s
        self.patience: Patience[Item] = Patience(self, agent.clock, unreachable_s, wait_s, max_refusals)
        self.robots: RobotsPrefetcher[Item] = RobotsPrefetcher(self, agent)
        self.is_paused: bool = False
        self.failure: BaseException | None = None
        self._long_s = min(wait_s, agent.state.pacing.max_crawl_delay_s)  # a longer pace may be too slow
        self._on_disallowed = on_disallowed
        self._maxsize = maxsize
        self._denied: deque[QueuedUrl[Item]] = deque()
        self._abandoned: deque[QueuedUrl[Item]] = deque()  # given up by the program; a few at a time become denied
        self._gave_up = False
        self._unsorted: deque[tuple[OriginQueue[Item], Iterator[QueuedUrl[Item]]]] = deque()
        self.refused: int = 0
        self.given_up: int = 0
        self._logged: LRUCache[Origin, None] = LRUCache(_MAX_SITES)  # sites given up and logged, until they answer
        self._time_slice = TimeSlice()  # all workers share this time to sort and refuse URLs
        self._puts = 0
        self.size: int = 0
        self.under_way: dict[int, str] = {}
        self.closed: bool = False
        self.consumers: WeakSet[asyncio.Task[object] | None] = WeakSet()
        self.admit: Callable[[str], bool] | None = None
        self.note_refusal: Callable[[Verdict, float], None] | None = None
        self._finished = asyncio.Event()
        self._finished.set()
        agent.state.when_closed(self.fail)
        self.journal: Journal | None = None
        if journal is not None:
            from politesse.queue._journal import Journal  # noqa: PLC0415 - loads sqlite3, seldom needed

            self.journal = Journal(journal, retry_failed, self._resume, self.fail)
            agent.state.closed_with.add(self.journal.aclose)

    async def join(self) -> None:
        """Wait until no URL is waiting or under way. Raises the same errors as ``PoliteQueue.join``."""
        await self.ready()
        if not self._finished.is_set():
            with self.stalls:
                await self._finished.wait()
        if self.size or self.under_way:
            self.raise_failure()

    def resume(self) -> None:
        """Hand out URLs again."""
        if self.is_paused:
            self.is_paused = False
            self.patience.start()
            self.stalls.note_progress()
            self.robots.start_fetches()
            self.workers.wake()  # a worker that gets a turn wakes the next one

    def give_up(self, key: str, reason: str) -> int:
        """Refuse all URLs that wait at a host, soon, and return how many they are."""
        host = self.hosts.get(key)
        if host is None:
            return 0
        host.given_up, self._gave_up = (self._puts, reason), True
        for origin_queue in host.origins.values():
            self._abandoned.extend(origin_queue.urls)
            origin_queue.urls.clear()
            self.robots.forget(origin_queue)
        self._deny_abandoned()
        self.workers.wake()
        return host.size

    def _deny_abandoned(self) -> None:
        """Fill ``_denied``, so that it is empty only if ``_abandoned`` is: the URLs of a host may be a million."""
        while self._abandoned and len(self._denied) < _BATCH:
            queued = self._abandoned.popleft()
            if not queued.withdrawn:  # otherwise it has left the heap before
                queued.withdrawn = True
                self._denied.append(queued)

    def _progress_wall(self, host: HostQueue[Item]) -> float:
        """Return the Unix time at which a host last had a turn or was found open; now, if it has not waited since."""
        now_mono = self._agent.clock.monotonic()
        since_mono = now_mono if host.progress_mono is None else host.progress_mono
        return self._agent.clock.wall() - (now_mono - since_mono)

    def left_at(self, host: HostQueue[Item]) -> Iterator[Loss]:
        """Yield the URLs that wait until their site opens: of each origin that is deferred, and of a closed host."""
        rest = host.size
        for origin_queue in host.origins.values():
            if origin_queue.size and origin_queue.deferral is not None:
                since_wall, verdict = origin_queue.deferral
                rest -= origin_queue.size
                yield lost_by(verdict, since_wall, origin_queue.size)
        closure = self._agent.pacer.closure(host.key)
        if closure is None:
            closure = host.closure  # perhaps a Visit-time
        if rest and closure is not None and closure.not_before > self._agent.clock.wall():
            detail = f"{closure.refusal}; until" if closure.refusal is not None else "until"
            since_wall = self._progress_wall(host)
            yield Loss(host.key, rest, closure.bound_by, f"{detail} {utc(closure.not_before)}", since_wall)

    async def refuse_given_up(self) -> None:
        """After ``give_up``, refuse what no worker has refused yet: a crawl has ended before."""
        while self._gave_up and self._denied and self.failure is None:
            self._refuse_some()
            await asyncio.sleep(0)
        self._gave_up = False

    def close(self) -> None:
        """Accept no more URLs; the workers finish the queued URLs."""
        self.closed = True
        for host in self.hosts.values():
            host.putters.wake_all()
        self.workers.wake_all()

    async def aclose(self) -> None:
        """Stop handing out URLs, and close the journal."""
        self.closed = True
        if self.failure is None:
            self.fail(QueueClosed(f"the queue was closed, with {counted(self.size, 'URL')} left in it"))
        if self.journal is not None:
            await self.journal.aclose()
            self._agent.state.closed_with.discard(self.journal.aclose)

    def left(self) -> list[QueuedUrl[Item]]:
        """Return the URLs that wait, in the order of ``put``."""
        heaps = [origin_queue.urls for host in self.hosts.values() for origin_queue in host.origins.values()]
        heaps.append([*self._abandoned])
        competing = [queued for urls in heaps for queued in urls if not queued.withdrawn]
        # The dict drops duplicates: a URL that was withdrawn from a heap and put back may be in the heap twice.
        left = {queued.number: queued for queued in (*competing, *self._denied)}
        return [left[number] for number in sorted(left)]

    async def ready(self) -> None:
        """Resume the URLs of the journal before the first use; raises as ``raise_failure`` and ``Journal.ready`` do."""
        if self.journal is not None:
            if not self.journal.is_open:
                self.raise_failure()
            await self.journal.ready()

    async def flush(self) -> None:
        """Wait until the journal has written all changes; raises StoreError."""
        if self.journal is not None:
            await self.journal.flush()

    def _resume(self, rows: Sequence[Row], last: int) -> None:
        """Queue the remaining URLs of an earlier run. New URLs get numbers above ``last``."""
        self.raise_failure()
        for number, url, item, priority, trail in rows:
            self._puts = number - 1  # ``add`` then gives the URL the number of its row
            self.add(Origin.of(url), url, item, priority, trail, is_resumed=True)
        self._puts = last

    async def put(self, url: StrOrURL, item: Item | None, priority: float, trail: Trail = NO_TRAIL) -> bool:
        """Queue a URL when its host has room, and return whether the URL is new; see ``PoliteQueue.put``."""
        text, origin = self._checked(url, item, priority)
        if self.journal is not None:
            await self.journal.ready()
            if self.journal.ignores(text, by_worker=self._is_consumer()):
                return False
        while (host := self._full_host(origin)) is not None:
            try:
                with self.stalls:
                    await host.putters.wait()
            finally:
                self.forget_if_idle(host)
        if is_new := not self._is_seen(text):
            self.add(origin, text, item, priority, trail)
        await self.flush()
        return is_new

    def put_nowait(self, url: StrOrURL, item: Item | None, priority: float) -> None:
        """Queue a URL without waiting; see ``PoliteQueue.put_nowait``."""
        text, origin = self._checked(url, item, priority)
        if self.journal is not None:
            self.journal.check_open()
            if self.journal.ignores(text, by_worker=self._is_consumer()):
                return
        if self._full_host(origin) is not None:
            raise asyncio.QueueFull(f"{self._maxsize} URLs wait at {origin.pacing_host} already")
        if not self._is_seen(text):
            self.add(origin, text, item, priority)

    def _checked(self, url: StrOrURL, item: Item | None, priority: float) -> tuple[str, Origin]:
        """Return a URL as text, and its origin; raise for an invalid argument, or if the queue accepts no URLs."""
        text = url_text(url)
        check_priority(priority)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidURL(text, "holds a lone surrogate, which has no UTF-8 form") from None
        origin = self._agent.checked_origin(text)
        if self.journal is not None:
            self.journal.check(item, priority)
        self._check_open(origin)
        return text, origin

    def _full_host(self, origin: Origin) -> HostQueue[Item] | None:
        """Return the host of ``origin`` if it has no room, else None; raise if the queue accepts no URLs."""
        self._check_open(origin)
        host = self.hosts.get(origin.pacing_host)
        # A consumer never waits for room, because only consumers make room.
        if host is None or not 0 < self._maxsize <= host.size or self._is_consumer():
            return None
        return host

    def _check_open(self, origin: Origin) -> None:
        """Raise if the queue accepts no URLs."""
        if running_loop() is None:
            raise outside_of_loop()
        self.raise_failure()
        if self.closed:
            raise QueueClosed(f"a URL of {origin} was put after the queue was closed")

    def _is_consumer(self) -> bool:
        """Return whether this task has taken a turn of this queue, or the code runs within a turn."""
        return bool(held_turns()) or current_task() in self.consumers

    def _is_seen(self, url: str) -> bool:
        """Return whether the running crawl has seen ``url``; if not, mark it as seen. False without a crawl."""
        return self.admit is not None and not self.admit(url)

    def add(
        self,
        origin: Origin,
        url: str,
        item: Item | None,
        priority: float,
        trail: Trail = NO_TRAIL,
        *,
        instead_of: QueuedUrl[Item] | None = None,
        is_resumed: bool = False,
    ) -> None:
        """Queue a URL.

        Args:
            origin: the origin of the URL.
            url: see ``PoliteQueue.put``.
            item: see ``PoliteQueue.put``.
            priority: see ``PoliteQueue.put``.
            trail: how a crawl came to this URL.
            instead_of: the URL that is replaced in the journal, because it is put back or redirects here.
            is_resumed: whether the journal has the URL already.
        """
        key = origin.pacing_host
        host = self.hosts.get(key)
        if host is None:
            host = self.hosts[key] = self._in_turn.pop(key) if key in self._in_turn else HostQueue(key)
        origin_queue = host.origins.get(origin)
        if origin_queue is None:
            origin_queue = host.origins[origin] = OriginQueue(host, origin)
        self._puts += 1
        host.size += 1
        origin_queue.size += 1
        self.size += 1
        queued = QueuedUrl(priority, self._puts, url, item, origin_queue, trail)
        self.stalls.note_progress()
        if self.failure is None:
            self._finished.clear()
            self._enter(queued)
        else:
            origin_queue.add(queued)  # after a failure, a crawl puts back its URLs, so that ``left`` returns them
        if self.journal is not None and not is_resumed:
            self.journal.added(queued, instead_of)

    def _enter(self, queued: QueuedUrl[Item]) -> None:
        """Let a URL compete for turns, or mark it to be refused."""
        origin_queue = queued.origin_queue
        judged = self._agent.judged(queued.url)
        verdict = None if judged is None else judged[0]
        if verdict is not None and not verdict.allowed and not self.patience.defers(origin_queue, verdict):
            self._denied.append(queued)
            self.workers.wake()
            return
        origin_queue.add(queued)
        if verdict is None:
            origin_queue.sorted_by = None
            if len(origin_queue.urls) == 1 and not origin_queue.blocked:  # after ``give_up`` it may be blocked already
                self.robots.add(origin_queue)
        host = origin_queue.host
        if host.phase not in ASLEEP:
            return  # the host waits for another event already, or is in the line
        if origin_queue.blocked:
            host.on(HostEvent.BLOCKED)
        elif host.is_watched or (host.turns and host.phase is HostPhase.EMPTY and verdict is not None):
            host.on(HostEvent.KNOWN)
            # While a turn is under way, the host probably has to wait.
            self._watch(origin_queue, None if judged is None else judged[1].pace)
        else:
            self.move(host, HostEvent.URL_PUT)

    def known(self, origin_queue: OriginQueue[Item], judged: Judged) -> None:
        """Let an origin compete for turns, after its robots.txt was fetched."""
        host, (verdict, permission, copy) = origin_queue.host, judged
        file = None if copy is None else copy.rules.digest or None
        is_denied = not verdict.allowed or self.patience.is_closed_too_long(origin_queue, verdict)
        if is_denied or file != origin_queue.sorted_by:
            origin_queue.sorted_by = file
            self._unsorted.append((origin_queue, _each_of(origin_queue)))
            self.workers.wake()
        origin_queue.may_wait_long = permission.longest_s > self._long_s
        may_wait = is_denied or origin_queue.may_wait_long
        if origin_queue.reloads and not host.is_watched:
            self.move(host, HostEvent.LOOK, first=True)  # in front, because the cache may soon evict robots.txt again
            self.workers.wake()
        elif may_wait and not host.is_watched:
            self.move(host, HostEvent.LOOK)
        elif host.phase in ASLEEP:
            host.on(HostEvent.KNOWN)
            self._watch(origin_queue, permission.pace)  # the host probably has to wait for its interval after the fetch

    def _remove(self, queued: QueuedUrl[Item]) -> None:
        """Stop counting a URL that was withdrawn."""
        host = queued.origin_queue.host
        host.size -= 1
        queued.origin_queue.size -= 1
        self.size -= 1
        self.robots.note_use(queued.origin_queue)
        if host.putters:
            host.putters.wake()
        if not host.size:
            self.forget_if_idle(host)
        if self.closed and not self.size:
            self.workers.wake_all()

    def forget_if_idle(self, host: HostQueue[Item]) -> None:
        """Drop a host without URLs and without tasks that wait for room; it may come back while it has turns."""
        if not host.size and not host.putters and self.hosts.get(host.key) is host:
            del self.hosts[host.key]
            if host.turns:
                self._in_turn[host.key] = host
            self.patience.forget(host)

    def _finish_if_done(self) -> None:
        if not self.size and not self.under_way:
            if not self.hosts:  # otherwise tasks wait for room there, and put the next URLs
                self.patience.rest()
            self._finished.set()

    def move(self, host: HostQueue[Item], event: HostEvent, *, first: bool = False) -> None:
        """Move a host outside the line to its next phase: to UNKNOWN or EMPTY if the host has no next URL.

        Args:
            host: the host.
            event: see HostPhase.
            first: whether the host enters the line in front, for the current worker or after a reload of its
                robots.txt.
        """
        if host.phase in IN_LINE:
            return
        if host.head() is None:
            has_urls = host.size and any(queue.urls for queue in host.origins.values())
            event = HostEvent.BLOCKED if has_urls else HostEvent.EMPTIED
        if not host.on(event):
            return
        if first:
            self.line.appendleft(host)
        else:
            self.line.append(host)
            self.workers.wake()

    def _watch(self, origin_queue: OriginQueue[Item], pace: RuleSet | None = None) -> None:
        """Let the pacer report when a turn at the origin is due; try the host again if the report takes too long.

        Args:
            origin_queue: the origin.
            pace: what its robots.txt states; None if a turn was asked for since the fetch.
        """
        host = origin_queue.host
        if self.failure is not None:
            return
        self.patience.watch(host)
        if not host.is_watched:
            host.is_watched = True
            self._agent.when_ready(origin_queue.origin, partial(self._due, host), pace)

    def _due(self, host: HostQueue[Item]) -> None:
        host.is_watched = False
        self.move(host, HostEvent.DUE)

    def fail(self, error: BaseException) -> None:
        """Wake all waiting tasks, because no more turns will come."""
        self.failure = self.failure or error
        self.robots.stop()
        self.patience.rest()
        for host in self.hosts.values():
            host.putters.wake_all()
        self.workers.wake_all()
        self._finished.set()

    def raise_failure(self) -> None:
        """Raise ClosedError after ``fail``, and WrongEventLoop in another event loop than the gate's."""
        self._agent.state.check_loop()
        if isinstance(self.failure, StoreError | QueueClosed):
            raise type(self.failure)(str(self.failure)) from self.failure
        if self.failure is not None:
            raise ClosedError(f"the gatekeeper gives no more turns, with {self.size} URLs queued") from self.failure

    async def take(self) -> tuple[Turn, QueuedUrl[Item]]:
        """Wait for a turn. Raises the same errors as ``PoliteQueue.turn``."""
        since_mono = self._agent.clock.monotonic()
        if self.journal is not None:
            await self.ready()
        if self._agent.state.loop is not running_loop():
            self._agent.state.check_loop()
        try:
            while True:
                taken = self.try_take()
                if taken is not None:
                    if self._agent.state.publisher.subscribers:
                        publish_granted(self._agent, taken[0], since_mono=since_mono)
                    return taken
                if self.closed and not self.size:
                    raise QueueClosed("the queue was closed, and nothing is left in it")
                if self.is_ready():
                    await asyncio.sleep(0)  # a long run of refusals must not starve the loop
                else:
                    if HELD.get() and held_turns():
                        self._refuse_to_wait_for_itself()
                    with self.stalls:
                        await self.workers.wait()
        finally:
            # One task wakes at each event. This one has its turn, or was cancelled: the next one does the rest.
            if self.line or self._denied or self._unsorted:
                self.workers.wake()

    def try_take(self) -> tuple[Turn, QueuedUrl[Item]] | None:
        """Return a turn if a host grants a turn now, else None; also sort and refuse some URLs.

        Raises the same errors as ``PoliteQueue.turn``.
        """
        if self.failure is not None:
            self.raise_failure()
        if self._denied:
            self._refuse_some()
        taken = self._ask_some() if self.line else None
        if taken is None and self._unsorted and not (self.line and self.robots.may_try):
            self._sort_some()
        return taken

    def is_ready(self) -> bool:
        """Return whether ``try_take`` has something to do now; if not, fetch each robots.txt that is needed."""
        if self._denied or self._unsorted or (self.line and self.robots.may_try):
            return True
        if self.robots.unfetched:
            self.robots.start_fetches(at_least=MAX_FETCHING)
        return False

    def _refuse_to_wait_for_itself(self) -> None:
        """Raise TurnHeld if the current task holds the turns of all hosts with URLs, and so might wait for ever."""
        queues = [queue for host in self.hosts.values() for queue in host.origins.values() if queue.urls]
        held = [turn for queue in queues if (turn := self._agent.blocking_turn(queue.host.key)) is not None]
        if held and len(held) == len(queues):
            raise TurnHeld(queues[0].urls[0].url, held_by=held[0].url)

    def _refuse_some(self) -> None:
        """Refuse as many of the denied URLs as the slice of time allows."""
        for _ in range(_BATCH):
            if not self._denied or not self._time_slice.is_open():
                break
            queued = self._denied.popleft()
            if self._abandoned:
                self._deny_abandoned()
            verdict = self._denial(queued)
            if verdict is None:  # the URL is no longer denied
                self._enter(queued)
            else:
                self._refuse(queued, verdict)

    def _sort_some(self) -> None:
        """Withdraw as many denied URLs as the slice of time allows."""
        while self._unsorted and self._time_slice.is_open():
            origin_queue, rest = self._unsorted[0]
            for queued in rest:
                if origin_queue.blocked:  # the origin is sorted again after its robots.txt was fetched
                    break
                if not queued.withdrawn and self._denial(queued) is not None:
                    origin_queue.withdraw(queued)
                    self._denied.append(queued)
                if not self._time_slice.is_open():
                    return
            self._unsorted.popleft()

    def _denial(self, queued: QueuedUrl[Item]) -> Verdict | None:
        """Return the verdict by which a URL is refused now; None if it is allowed, deferred or not yet judged."""
        given_up = queued.origin_queue.host.given_up
        if given_up is not None and queued.number <= given_up[0]:
            return self._agent.given_up(queued.url, given_up[1])
        judged = self._agent.judged(queued.url)
        verdict = None if judged is None else judged[0]
        if verdict is None:
            return None
        if self.patience.is_closed_too_long(queued.origin_queue, verdict):
            until_wall = verdict.not_before or self._agent.clock.wall()
            return self._agent.given_up(queued.url, NotYet(until_wall, Bound.ROBOTS_TXT))
        return None if verdict.allowed or self.patience.defers(queued.origin_queue, verdict) else verdict

    def _ask_some(self) -> tuple[Turn, QueuedUrl[Item]] | None:
        """Return the first turn that a host grants; None if no host may be asked, or the slice of time is over.

        At least one host is tried, even if refusals have used up the slice of time.
        """
        while self.line and self.robots.may_try:
            host = self.line.popleft()
            host.on(HostEvent.ASKED)
            queued = host.head()
            if queued is None:  # the URLs of the host were refused meanwhile
                self.move(host, HostEvent.REFUSED)
                continue
            answer = self._ask(queued)
            if isinstance(answer, Turn):
                self._hand_out(queued, answer)
                return answer, queued
            self._settle(queued, answer)
            if not self._time_slice.is_open():
                break
        return None

    def _ask(self, queued: QueuedUrl[Item]) -> Turn | NotYet | Verdict:
        """Ask for the turn of a URL; withdraw the URL if it gets one."""
        origin_queue = queued.origin_queue
        origin_queue.withdraw(queued)  # first: a subscriber to the gate's events may put a URL that comes before it
        answer: Turn | NotYet | Verdict | None = None
        try:
            judged, held = self._agent.judged(queued.url), origin_queue.held
            if judged is None and held is not None and self._agent.still_holds(queued.url, held):
                # tdmrep.json was evicted. If its load took the turn of the host, another load would do so again.
                judged = held
            if judged is not None:
                origin_queue.may_wait_long = judged[1].longest_s > self._long_s
            answer = try_turn(self._agent, queued.url, judged)
        except Disallowed as disallowed:
            answer = disallowed.verdict
        finally:
            if not isinstance(answer, Turn):
                origin_queue.add(queued)
            if answer is None:  # the gate is closed, or Redis refuses this client
                self.move(origin_queue.host, HostEvent.REFUSED, first=True)
        return answer

    def _settle(self, queued: QueuedUrl[Item], answer: NotYet | Verdict) -> None:
        """Act on an answer of the gate without a turn; the table of the module lists the answers."""
        origin_queue, host = queued.origin_queue, queued.origin_queue.host
        if isinstance(answer, Verdict):
            if self.robots.defer(origin_queue, answer):
                self.move(host, HostEvent.REFUSED, first=True)
            else:
                self._refuse(queued, answer, HostEvent.REFUSED)
        elif answer.bound_by is Bound.ROBOTS_TXT:
            self.robots.fetch_again(origin_queue)
            self.move(host, HostEvent.REFUSED, first=True)
        elif self.patience.waits(host, answer):
            if answer.bound_by in CLOSURES:
                host.closure = answer
            self.move(host, HostEvent.SHUT if answer.bound_by in CLOSURES else HostEvent.NOT_YET)
            self._watch(origin_queue)
        else:
            self._refuse(queued, self._agent.given_up(queued.url, answer), HostEvent.TOO_LONG)

    def _hand_out(self, queued: QueuedUrl[Item], turn: Turn) -> None:
        """Count a URL as handed out; its host waits in the line of the pacer if it has more URLs."""
        origin_queue, host = queued.origin_queue, queued.origin_queue.host
        origin_queue.closings = 0
        self._agent.counted(turn.verdict)
        if origin_queue.deferral is not None or self.given_up:  # without ``given_up``, no site was logged
            self._note_answer(queued)
        self.under_way[queued.number] = queued.url
        if self.journal is not None:
            self.journal.handed_out(queued)
        self.stalls.note_progress()
        host.turns += 1
        self._remove(queued)
        if not host.size:
            host.on(HostEvent.EMPTIED)
        elif host.head() is None:
            self.move(host, HostEvent.EMPTIED)  # BLOCKED, if the other URLs wait for their robots.txt
        else:
            self.patience.note_progress(host)
            self._watch(origin_queue)

    def _refuse(self, queued: QueuedUrl[Item], verdict: Verdict, event: HostEvent | None = None) -> None:
        """Count a URL as done without a request, and move its host on if the URL was first in line."""
        host = queued.origin_queue.host
        self.stalls.note_progress()
        if event is not None:
            queued.origin_queue.withdraw(queued)
        if verdict.reason is not Reason.TOO_SLOW:  # ``turn_request`` has already counted TOO_SLOW for the origin
            self._agent.counted(verdict)
        self.refused += 1
        if is_given_up(verdict):
            self._give_up(queued.origin_queue, verdict)
        else:
            self._note_answer(queued)
        self._remove(queued)
        if event is not None:
            self.move(host, event, first=True)
        try:
            if self._on_disallowed is not None:
                self._on_disallowed(queued.url if queued.item is None else queued.item, verdict)
        finally:
            if self.journal is not None:
                self.journal.ended(queued)  # the journal notes the end after the URLs that on_disallowed has put
            if self.note_refusal is not None:
                self.note_refusal(verdict, self._progress_wall(host))
            self._finish_if_done()

    def _note_answer(self, queued: QueuedUrl[Item]) -> None:
        """End the deferrals of an origin, because its robots.txt was answered."""
        queued.origin_queue.deferral = None
        if self._logged:
            self._logged.pop(queued.origin_queue.origin, None)

    def _give_up(self, origin_queue: OriginQueue[Item], verdict: Verdict) -> None:
        """Count a URL that the queue gives up, and log its site."""
        self.given_up += 1
        origin, urls = origin_queue.origin, origin_queue.size
        if origin in self._logged:
            return
        self._logged[origin] = None
        fault = "" if verdict.source is None or verdict.reason is not Reason.UNREACHABLE else verdict.source.fault
        detail = fault or verdict.note
        why = f"{WORDS[verdict.reason]}: {detail}" if detail else WORDS[verdict.reason]
        many = f"{counted(urls, 'URL')} {'is' if urls == 1 else 'are'}"
        LOGGER.warning("gave up %s: %s; %s not requested", origin, shortened(why), many)

    def note_end(self, turn: Turn, queued: QueuedUrl[Item], *, is_broken_off: bool = False) -> None:
        """Count the end of a turn, note it in the journal, and move its host on.

        Args:
            turn: the turn that has ended.
            queued: its URL.
            is_broken_off: whether the turn ended because its task ended; the journal then keeps the URL.
        """
        del self.under_way[queued.number]
        if self.journal is not None:
            if is_broken_off:
                self.journal.keep(queued)
            self.journal.ended(queued)
        self.stalls.note_progress()
        if not self.size:
            self._finish_if_done()
        host = queued.origin_queue.host
        host.turns -= 1
        if not host.turns:
            self._in_turn.pop(host.key, None)
        if self.hosts.get(host.key) is not host or self.failure is not None:
            return
        self.patience.note_progress(host)
        if turn.may_close or queued.origin_queue.may_wait_long:
            self.move(host, HostEvent.LOOK)  # a worker then finds out whether the next URL waits too long


def _each_of(origin_queue: OriginQueue[Item]) -> Iterator[QueuedUrl[Item]]:
    """Yield the URLs of an origin from a copy of its heap, which is made when the iteration begins."""
    yield from origin_queue.urls.copy()


def statistics_of(queue: Dispatcher[Item]) -> QueueStatistics:
    """Return the current counts."""
    return QueueStatistics(
        queued=queue.size,
        hosts=len(queue.hosts),
        ready=len(queue.line),
        asking=len(queue.robots.fetching),
        deferred=len(queue.robots.deferred),
        under_way=len(queue.under_way),
        waiting=len(queue.workers),
        refused=queue.refused,
        given_up=queue.given_up,
        deferred_until_wall=min(queue.robots.deferred.values(), default=None),
        resumed=0 if queue.journal is None else queue.journal.resumed,
    )


def described(queue: Dispatcher[Item]) -> str:
    """Return the current counts in words, for ``repr`` and the log."""
    held, deferred = statistics_of(queue), queue.robots.deferred
    origins = str(next(iter(deferred))) if held.deferred == 1 else counted(held.deferred, "origin")
    until = held.deferred_until_wall
    waiting = {key: len(host.putters) for key, host in queue.hosts.items() if host.putters}
    puts = sum(waiting.values())
    return (
        f"<PoliteQueue: {held.queued:,} queued at {counted(held.hosts, 'host')}{_named(queue.hosts)}, "
        f"{held.ready:,} ready, {held.under_way:,} under way{_named(queue.under_way.values())}, "
        f"{counted(held.waiting, 'worker')} waiting"
        + (f", {puts} {'put waits' if puts == 1 else 'puts wait'} for room{_named(waiting)}" if puts else "")
        + (f", {origins} deferred until {utc(until)}" if until is not None else "")
        + (f", {held.resumed:,} resumed" if held.resumed else "")
        + (", paused" if queue.is_paused else "")
        + (", closed>" if queue.closed else ">")
    )


def _named(names: Collection[str]) -> str:
    """Return up to three names in brackets, escaped and shortened; an empty string without names."""
    shown = [shortened(name) for name in islice(names, _MAX_NAMED)]
    more = ["..."] if len(names) > _MAX_NAMED else []
    return f" ({', '.join(shown + more)})" if shown else ""


class QueueTurn(AsyncOnly, AbstractAsyncContextManager[QueuedTurn[Item], None], Generic[Item]):
    """The wait for one turn of a queue: ``async with`` waits, enters the turn, and ends it.

    Args:
        dispatcher: hands out the turns.
    """

    __slots__ = ("_dispatcher", "_is_used", "_taken")

    def __init__(self, dispatcher: Dispatcher[Item]) -> None:
        self._dispatcher = dispatcher
        self._is_used = False
        self._taken: tuple[Turn, QueuedUrl[Item]] | None = None

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report the mistake

        def __await__(self) -> NoReturn:
            raise TypeError("a turn of a queue needs 'async with queue.turn() as turn'")

    async def __aenter__(self) -> QueuedTurn[Item]:
        if self._is_used:
            raise RuntimeError("this turn was waited for already: call turn() for each 'async with'")
        self._is_used = True
        self._dispatcher.consumers.add(current_task())
        turn, queued = self._taken = await self._dispatcher.take()
        return QueuedTurn(turn.__enter__(), queued.item)

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        taken, self._taken = self._taken, None
        if taken is not None:
            turn, queued = taken
            is_broken_off = exc is not None and is_ended_with_task(exc, asyncio.current_task())
            try:
                turn.end()
            finally:
                self._dispatcher.note_end(turn, queued, is_broken_off=is_broken_off)
