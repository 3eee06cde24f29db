"""Limits how many requests for files of sites are under way at once, so that slow hosts do not delay fast hosts.

A place is the right to have a request under way. A request takes a place for one hop. Each request starts in one of the
``max_concurrent`` quick places. Requests that find no free place wait in one line for all hosts. A waiting request may
hold the turn of its host. Each hop ends within the time limit of its fetcher, so two requests never wait for each other
for ever.

A server that accepts a connection and never answers would hold a quick place until the time limit. A hundred such
servers would hold all places. So a request that has taken longer than ``_MOMENT_S`` loses its quick place if another
request waits. The request then counts as slow. The number of slow requests is limited, too, because each holds a
socket. At that limit, the slow request that started first is given up if it started at least ``_MIN_SLOW_S`` ago: its
``work`` is cancelled.

    waits for a quick place -> quick -> slow -> given up
                                 |        |         |
                                 +--------+---------+--> ended

Free places go to the newest and to the oldest waiter alternately. If the oldest always came first, a healthy host would
wait behind a thousand stalled hosts that came earlier. If the newest always came first, the oldest would starve.

A place is granted before its waiter resumes. If the waiter is cancelled before it resumes, it releases its place. A
timer runs only while a request waits.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast

if sys.platform != "win32":
    import resource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from politesse.clock import Clock, Timer

Result = TypeVar("Result")

_MOMENT_S: Final = 0.05  # most fetches of robots.txt end within this time
_MIN_SLOW_S: Final = 1.0
_SLOW_FOR_EACH_QUICK: Final = 20  # 2,000 slow requests if 100 may be quick


@dataclass(slots=True, eq=False)
class _Request:
    """A request on its way through ``Admission``.

    Attributes:
        task: makes the request.
        granted: the future that is done when the request gets its quick place; None if the request did not wait.
        started_mono: when the request got its quick place.
        reason: why the request was given up; empty if the request was not given up.
    """

    task: asyncio.Task[object]
    granted: asyncio.Future[None] | None = None
    started_mono: float = 0.0
    reason: str = ""

    def give_up(self, reason: str) -> None:
        """Cancel the request."""
        if not self.reason:
            self.reason = reason
            self.task.cancel()


class GivenUp(TimeoutError):
    """The request took too long, or another request needed its connection."""


class Admission:
    """Limits the requests; see the module. Belongs to one event loop.

    Args:
        clock: measures the time of a request.
        max_concurrent: how many requests may be quick at once; positive. Up to twenty times as many may be slow, but no
            more than half of the file descriptors of this process.
    """

    def __init__(self, clock: Clock, *, max_concurrent: int) -> None:
        self._clock = clock
        self._max_quick = max_concurrent
        self._max_slow = max(1, int(min(_SLOW_FOR_EACH_QUICK * max_concurrent, _file_descriptors() / 2)))
        # Each dict is in the order in which the requests came or started: the oldest is first.
        self._waiting: OrderedDict[_Request, None] = OrderedDict()
        self._newest_next = True
        self._quick: OrderedDict[_Request, None] = OrderedDict()
        self._slow: OrderedDict[_Request, None] = OrderedDict()
        self._ending: set[_Request] = set()  # slow requests that were given up; each keeps its socket until it ends
        self._timer: Timer | None = None

    async def run(self, work: Callable[[bool], Awaitable[Result]], limit_s: float | None = None) -> Result:
        """Wait for a place, and hold it while ``work`` makes one request; return the result.

        Args:
            work: makes the request; it is called with True if the request has waited for its place, else False.
            limit_s: how many seconds ``work`` may take; None for no limit.

        Raises:
            GivenUp: ``work`` took longer than ``limit_s``, or another request needed its socket. In both cases ``work``
                was cancelled.
        """
        # An asyncio.timeout would do the same, but cost each request ten calls.
        request, limit = _Request(cast("asyncio.Task[object]", asyncio.current_task())), None
        cancelling, is_given_up = request.task.cancelling(), False
        try:
            try:
                if len(self._quick) < self._max_quick:
                    request.started_mono = self._clock.monotonic()
                    self._quick[request] = None
                else:
                    await self._wait(request)
                if limit_s is not None:
                    late = partial(request.give_up, "no answer within the time limit")
                    limit = self._clock.call_later(limit_s, late)
                return await work(request.granted is not None)
            finally:
                if limit is not None:
                    limit.cancel()
                if request in self._quick:
                    del self._quick[request]
                else:
                    self._waiting.pop(request, None)
                    self._slow.pop(request, None)
                    self._ending.discard(request)
                if self._waiting or self._timer is not None:
                    self._serve()
                if request.reason:  # otherwise only the outside has cancelled the task
                    is_given_up = request.task.uncancel() <= cancelling
        except (asyncio.CancelledError, TimeoutError):
            if not is_given_up:
                raise
            raise GivenUp(request.reason) from None

    def __repr__(self) -> str:
        slow = len(self._slow) + len(self._ending)
        return f"<Admission: {len(self._quick)} quick, {slow} slow, {len(self._waiting)} waiting>"

    async def _wait(self, request: _Request) -> None:
        request.granted = asyncio.get_running_loop().create_future()
        self._waiting[request] = None
        self._serve()
        await request.granted

    def _serve(self) -> None:
        """Grant the free quick places to waiting requests, and set a timer for when the next place may become free."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            if len(self._quick) >= self._max_quick:
                now_mono = self._clock.monotonic()
                again_mono = self._hand_on(now_mono)
                if again_mono is not None:
                    self._timer = self._clock.call_later(again_mono - now_mono, self._serve)
                    return
                if len(self._quick) >= self._max_quick:
                    return  # requests that were given up make room when they end
            request, _ = self._waiting.popitem(last=self._newest_next)
            if request.granted is not None and not request.granted.done():  # a done future means a cancelled request
                self._newest_next = not self._newest_next
                request.granted.set_result(None)
                request.started_mono = self._clock.monotonic()
                self._quick[request] = None

    def _hand_on(self, now_mono: float) -> float | None:
        """Move the oldest quick request to the slow requests if it is late; return when to try again, or None."""
        oldest = next(iter(self._quick))
        slow_mono = oldest.started_mono + _MOMENT_S
        if now_mono < slow_mono:
            return slow_mono
        if len(self._slow) + len(self._ending) < self._max_slow:
            del self._quick[oldest]
            self._slow[oldest] = None
            return None
        return self._give_up(now_mono)

    def _give_up(self, now_mono: float) -> float | None:
        """Give up as many slow requests as waiters need; return when to try again, or None."""
        for _ in range(min(len(self._waiting), self._max_quick) - len(self._ending)):
            if not self._slow:
                break
            oldest = next(iter(self._slow))
            old_mono = oldest.started_mono + _MIN_SLOW_S
            if now_mono < old_mono:
                return old_mono
            del self._slow[oldest]
            self._ending.add(oldest)
            oldest.give_up(f"no answer within {now_mono - oldest.started_mono:.1f} s, and others need its connection")
        return None


def _file_descriptors() -> float:
    """Return how many file descriptors this process may have open; infinity if there is no limit."""
    if sys.platform == "win32":
        return float("inf")  # on Windows, sockets are not file descriptors
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return float("inf") if soft == resource.RLIM_INFINITY else soft
