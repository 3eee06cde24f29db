"""Fetches robots.txt of queued origins ahead of the workers, and again after a deferral.

Theory of operation. An origin that is blocked is in one of three places. ``_unfetched`` is a FIFO of origins for which
no fetch was started. ``_fetching`` maps the task of each fetch to its origin; the task ends with the verdict.
``_deferred`` maps origins whose robots.txt is unreachable, or was answered with 429, to the timer that moves them back
to ``_unfetched``. Each step is O(1).

At most ``max_fetching`` fetches are recent. A fetch that takes longer than ``_RECENT_S`` is not counted any more: a
thousand servers that accept connections and never answer would otherwise delay every other origin by their timeouts.
While no worker waits, fetches run only ``max_fetching`` origins ahead of the workers: origins that were fetched, but
had no URL handed out or refused since, are counted too. A long queue then does not fetch today what it needs tomorrow.

A robots.txt that is no longer in memory when it is the turn of its host is loaded again, whatever the limits are, and
the host is first when it is there. No host is tried while ``_MAX_RELOADING`` are being loaded. If one is evicted again
before its host is tried, the cache holds fewer than that: then no host is tried until this one is there. A load that
takes longer than ``_RECENT_S`` holds nobody up. So a turn costs a few loads, whatever the size of the cache is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from politesse._gate.agent import Agent
    from politesse.clock import Timer
    from politesse.origin import Origin
    from politesse.queue.hosts import OriginQueue
    from politesse.queue.patience import Patience
    from politesse.queue.waiting import WaitingTasks
    from politesse.verdict import Verdict

Item = TypeVar("Item")

_RECENT_S: Final = 0.05  # most sites answer within it; 1,000 that do not are passed in half a second
_AGAIN_S: Final = 1.0  # after a fetch whose task was cancelled
_MAX_RELOADING: Final = 20
_MAX_SLOW: Final = 10_000  # a task and a fetch each: some 100 MB, and at 30 s for each 300 new ones a second
_MIN_DEFERRAL_S: Final = 1.0  # a wall clock that jumped must not turn a deferral into a busy loop


class RobotsPrefetcher(Generic[Item]):
    """Starts fetches, and reports each origin whose robots.txt is known.

    Args:
        agent: fetches and judges; no verdict is counted.
        patience: ends deferrals.
        workers: those that wait for a turn; while there are any, as many origins as allowed are fetched.
        max_fetching: how many recent fetches there may be; positive.
        on_known: called with an origin that is no longer blocked, and the verdict.
        on_failure: called with an error that a fetch raised.
    """

    def __init__(
        self,
        agent: Agent,
        patience: Patience[Item],
        workers: WaitingTasks,
        max_fetching: int,
        on_known: Callable[[OriginQueue[Item], Verdict], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._agent = agent
        self._patience = patience
        self._clock = agent.clock
        self._workers = workers
        self._max_fetching = max_fetching
        self._on_known = on_known
        self._on_failure = on_failure
        self._unfetched: deque[OriginQueue[Item]] = deque()
        self._fetching: dict[asyncio.Task[Verdict], OriginQueue[Item]] = {}
        self._recent: dict[asyncio.Task[Verdict], Timer] = {}
        self._deferred: dict[OriginQueue[Item], Timer] = {}
        self._reloading: set[asyncio.Task[Verdict]] = set()
        self._unused = 0  # how many origins are ``prefetched``
        self._stopped = False

    @property
    def fetching(self) -> int:
        """How many origins are being fetched."""
        return len(self._fetching)

    @property
    def may_reload(self) -> bool:
        """Whether another host may be tried, which may have to be loaded again."""
        reloading = self._reloading
        return not reloading or (
            len(reloading) < _MAX_RELOADING and all(self._fetching[task].reloads == 1 for task in reloading)
        )

    @property
    def deferred(self) -> Mapping[Origin, float]:
        """The origins that wait for the end of a deferral, and the Unix times at which it ends."""
        return {origin_queue.origin: origin_queue.not_before for origin_queue in self._deferred}

    def add(self, origin_queue: OriginQueue[Item]) -> None:
        """Block an origin until its robots.txt is known."""
        origin_queue.blocked = True
        self._unfetched.append(origin_queue)
        self.start_fetches()

    def start_fetches(self, at_least: int = 0) -> None:
        """Start as many fetches as the limits allow; ``at_least`` so many where only the workers' pace forbids it."""
        slow = len(self._fetching) - len(self._recent)
        room = self._max_fetching - len(self._recent) - max(0, slow - _MAX_SLOW)
        if not self._workers:
            room = min(room, max(at_least, room - self._unused))
        while room > 0 and self._unfetched:
            room -= 1
            self._fetch(self._unfetched.popleft())

    def fetch_again(self, origin_queue: OriginQueue[Item]) -> None:
        """Fetch the robots.txt of an origin whose turn it is, whatever the limits are: the gate fetches it already."""
        origin_queue.reloads += 1
        self._reloading.add(self._fetch(origin_queue))

    def _fetch(self, origin_queue: OriginQueue[Item]) -> asyncio.Task[Verdict]:
        origin_queue.blocked = True
        name = f"queue: robots.txt of {origin_queue.origin}"
        task = asyncio.get_running_loop().create_task(self._agent.learn(origin_queue.urls[0].url), name=name)
        self._fetching[task] = origin_queue
        self._recent[task] = self._clock.call_later(_RECENT_S, partial(self._found_slow, task))
        task.add_done_callback(self._fetched)
        return task

    def defer(self, origin_queue: OriginQueue[Item], verdict: Verdict) -> bool:
        """Block an origin until its robots.txt may be fetched again; return False if the verdict is to be applied."""
        not_before = verdict.not_before
        if not_before is None or not self._patience.defers(origin_queue, verdict):
            return False
        now_wall = self._clock.wall()
        if not_before != origin_queue.not_before:  # equal: the wall clock was set forward, and nothing was fetched
            origin_queue.not_before = not_before
            origin_queue.deferrals += 1
        if origin_queue.deferred_wall is None:
            origin_queue.deferred_wall = now_wall
        origin_queue.blocked = True
        wait_s = max(not_before - now_wall, _MIN_DEFERRAL_S)
        self._deferred[origin_queue] = self._clock.call_later(wait_s, partial(self._end_deferral, origin_queue))
        return True

    def note_use(self, origin_queue: OriginQueue[Item]) -> None:
        """Count an origin as used: one of its URLs was handed out or refused."""
        self._unused -= origin_queue.prefetched
        origin_queue.prefetched = False
        origin_queue.reloads = 0

    def stop(self) -> None:
        """Cancel the deferrals, and start no more fetches from now on; those under way end with the gate."""
        self._stopped = True
        for timer in self._deferred.values():
            timer.cancel()
        self._deferred.clear()

    def _found_slow(self, task: asyncio.Task[Verdict]) -> None:
        del self._recent[task]
        self._end_reload(task)
        self._go_on()

    def _go_on(self) -> None:
        if not self._stopped:
            self.start_fetches()

    def _fetched(self, task: asyncio.Task[Verdict]) -> None:
        self._end_reload(task)
        origin_queue = self._fetching.pop(task)
        timer = self._recent.pop(task, None)
        if timer is not None:
            timer.cancel()
        if task.cancelled():  # by somebody else, or by the end of the event loop: then a new task would never run
            self._unfetched.append(origin_queue)
            self._clock.call_later(_AGAIN_S, self._go_on)
            return
        error = task.exception()
        if error is not None:
            self._on_failure(error)
        if self._stopped:
            return  # the gate may also have been closed just after this fetch
        verdict = task.result()
        if not self.defer(origin_queue, verdict):
            origin_queue.blocked = False
            self._unused += not origin_queue.prefetched
            origin_queue.prefetched = True
            self._on_known(origin_queue, verdict)
        self.start_fetches()

    def _end_reload(self, task: asyncio.Task[Verdict]) -> None:
        if task in self._reloading:
            self._reloading.remove(task)
            self._workers.wake()

    def _end_deferral(self, origin_queue: OriginQueue[Item]) -> None:
        del self._deferred[origin_queue]
        self.add(origin_queue)
