"""How many requests for files of sites are under way at once, so that slow hosts do not delay the others.

A request is admitted for one hop, and releases all that it holds at the end of that hop. It acquires, in this order:

1. One of two places at its host, for the whole hop. Further requests to that host wait in a line of the host.
2. One of ``max_concurrent`` quick places. Further requests wait in one line for all hosts.

A request in the second line has its place at its host already, and a hop ends by itself (its fetcher has a time limit),
so no two requests wait for each other.

A server that accepts and never answers would hold a quick place until the time limit, and a hundred of them would hold
all. So a request that has taken longer than ``_MOMENT_S`` hands its quick place on, as soon as another one waits for a
place, and counts as slow. Slow requests have a bound of their own, because each holds a socket. At that bound the
request that started first is given up, if that was at least ``_MIN_SLOW_S`` ago: its ``fetch`` is cancelled and comes
to a timeout.

    waits at its host -> waits for a quick place -> quick -> slow -> given up
                                                      |        |         |
                                                      +--------+---------+--> ended

Both lines serve their newest and their oldest waiter in turn. Served by age alone, a healthy host would wait behind a
thousand stalled ones that came before it; newest first alone, the oldest would starve.

A place is granted before its waiter resumes; a waiter that is cancelled in between releases it. There is no timer
unless a request waits.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from politesse._tasks import TaskLimit
from politesse.ports import FaultKind, FetchFault, FetchRequest, FetchResult

if sys.platform != "win32":
    import resource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from politesse.clock import Clock, Timer

_PER_HOST: Final = 2
_MOMENT_S: Final = 0.05  # most robots.txt have come by then
_MIN_SLOW_S: Final = 1.0
_SLOW_FOR_EACH_QUICK: Final = 20  # 2,000 where 100 may be quick


class _Request:
    """A request on its way through ``Admission``.

    Attributes:
        scope: ends its work; entered when it has a place at its host.
        started_mono: when it got its quick place.
        reason: why it was given up; empty if it was not.
    """

    __slots__ = ("reason", "scope", "started_mono")

    def __init__(self) -> None:
        self.scope = TaskLimit()
        self.started_mono = 0.0
        self.reason = ""

    def give_up(self, reason: str) -> None:
        """Cancel its work."""
        if not self.reason:
            self.reason = reason
            self.scope.end_now()


class _Line:
    """Waiters that are served newest and oldest in turn, the newest first."""

    __slots__ = ("_newest_next", "_waiting")

    def __init__(self) -> None:
        self._waiting: OrderedDict[asyncio.Future[None], _Request] = OrderedDict()
        self._newest_next = True

    def join(self, request: _Request, release: Callable[[], None]) -> Awaitable[None]:
        """Add a waiter, and return what it awaits: it ends when ``grant_next`` has chosen the request.

        If the waiter is cancelled after that, it calls ``release``.
        """
        granted = asyncio.get_running_loop().create_future()
        self._waiting[granted] = request
        return self._wait(granted, release)

    def grant_next(self) -> _Request | None:
        """Choose the next request, if there is one, and wake its waiter."""
        while self._waiting:
            granted, request = self._waiting.popitem(last=self._newest_next)
            if not granted.done():  # else it was cancelled
                self._newest_next = not self._newest_next
                granted.set_result(None)
                return request
        return None

    async def _wait(self, granted: asyncio.Future[None], release: Callable[[], None]) -> None:
        try:
            await granted
        except asyncio.CancelledError:
            self._waiting.pop(granted, None)
            if not granted.cancelled():
                release()
            raise

    def __len__(self) -> int:
        return len(self._waiting)


@dataclass(slots=True)
class _Host:
    """The places at one host.

    Attributes:
        taken: how many are taken.
        line: the requests that wait for one; None before the first, which most hosts never see.
    """

    taken: int = 0
    line: _Line | None = None


class Admission:
    """See the module. Belongs to one event loop.

    Args:
        clock: measures how long a request takes.
        max_concurrent: how many requests may be quick at once; positive. Up to twenty times as many may be slow, but no
            more than half of the file descriptors of this process.
    """

    def __init__(self, clock: Clock, *, max_concurrent: int) -> None:
        self._clock = clock
        self._max_quick = max_concurrent
        self._max_slow = max(1, int(min(_SLOW_FOR_EACH_QUICK * max_concurrent, _file_descriptors() / 2)))
        self._hosts: dict[str, _Host] = {}
        self._line = _Line()
        # Both in the order in which they started: the first is the oldest.
        self._quick: OrderedDict[_Request, None] = OrderedDict()
        self._slow: OrderedDict[_Request, None] = OrderedDict()
        self._ending: set[_Request] = set()  # slow and given up: each holds its socket until it has ended
        self._timer: Timer | None = None

    def is_free(self, host: str) -> bool:
        """Return whether a request to a pacing host would start at once."""
        at_host = self._hosts.get(host)
        return not self._line and len(self._quick) < self._max_quick and (at_host is None or at_host.taken < _PER_HOST)

    async def run(
        self, hop: FetchRequest, fetch: Callable[[], Awaitable[FetchResult]], limit_s: float | None = None
    ) -> FetchResult:
        """Return what ``fetch`` returns, called once there are places for it.

        Args:
            hop: the request that it makes.
            fetch: makes it.
            limit_s: how many seconds it may take, the wait for places not counted; None for no limit. If it takes
                longer, or others need its socket, it is cancelled and comes to a fault of kind TIMEOUT.
        """
        request, host = _Request(), hop.origin.pacing_host
        if (granted := self._enter_host(request, host)) is not None:
            await granted
        limit = None
        try:
            with request.scope:
                if (granted := self._enter(request)) is not None:
                    await granted
                try:
                    if limit_s is not None:
                        late = partial(request.give_up, "no answer within the time limit")
                        limit = self._clock.call_later(limit_s, late)
                    return await fetch()
                finally:
                    if limit is not None:
                        limit.cancel()
                    self._leave(request)
        except TimeoutError:
            if not request.scope.expired:
                raise
            return FetchFault(FaultKind.TIMEOUT, request.reason, hop.url)
        finally:
            self._leave_host(host)

    def __repr__(self) -> str:
        slow = len(self._slow) + len(self._ending)
        waiting = len(self._line) + sum(len(host.line) for host in self._hosts.values() if host.line is not None)
        return f"<Admission: {len(self._quick)} quick, {slow} slow, {waiting} waiting>"

    def _enter_host(self, request: _Request, name: str) -> Awaitable[None] | None:
        """Take a place at a host; return what to await for it, None if there is one now."""
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = _Host()
        if host.taken < _PER_HOST:
            host.taken += 1
            return None
        if host.line is None:
            host.line = _Line()
        return host.line.join(request, partial(self._leave_host, name))

    def _leave_host(self, name: str) -> None:
        host = self._hosts[name]
        if host.line is None or host.line.grant_next() is None:  # else the place goes over to that waiter
            host.taken -= 1
            if not host.taken:
                del self._hosts[name]

    def _enter(self, request: _Request) -> Awaitable[None] | None:
        """Take a quick place; return what to await for it, None if there is one now."""
        if not self._line and len(self._quick) < self._max_quick:
            self._start(request)
            return None
        granted = self._line.join(request, partial(self._leave, request))
        self._serve()
        return granted

    def _start(self, request: _Request) -> None:
        request.started_mono = self._clock.monotonic()
        self._quick[request] = None

    def _leave(self, request: _Request) -> None:
        self._quick.pop(request, None)
        self._slow.pop(request, None)
        self._ending.discard(request)
        self._serve()

    def _serve(self) -> None:
        """Grant the free quick places to waiting requests; run again when the next place may be handed on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._line:
            if len(self._quick) >= self._max_quick:
                now_mono = self._clock.monotonic()
                again_mono = self._hand_on(now_mono)
                if again_mono is not None:
                    self._timer = self._clock.call_later(again_mono - now_mono, self._serve)
                    return
                if len(self._quick) >= self._max_quick:
                    return  # a request that was given up makes room when it has ended
            request = self._line.grant_next()
            if request is not None:
                self._start(request)

    def _hand_on(self, now_mono: float) -> float | None:
        """Count the oldest quick request as slow, if it is; return when to try that again, if ever."""
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
        """Give up as many slow requests as there are waiters that could use their places; see ``_hand_on``."""
        for _ in range(min(len(self._line), self._max_quick) - len(self._ending)):
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
    """Return how many this process may have open; infinity if there is no limit."""
    if sys.platform == "win32":
        return float("inf")  # there sockets are none
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return float("inf") if soft == resource.RLIM_INFINITY else soft
