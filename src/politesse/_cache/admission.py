"""How many requests for files of sites are under way at once, so that slow hosts hold up nobody else.

A request is admitted for one hop and releases all that it holds at the end of that hop. It acquires, in this order:

1. One of two places at its host, for the whole hop. Further requests to that host wait in a line of the host.
2. One of ``max_concurrent`` quick places. Further requests wait in one line for all hosts.

Nobody who waits in the second line waits for the first, and a hop ends by itself (its fetcher has a time limit), so no
two requests wait for each other.

A server that accepts and never answers would hold a quick place until the time limit, and a hundred of them would hold
all. So a request that has taken longer than a moment hands its quick place on, as soon as somebody waits for one, and
counts as slow. Slow requests have a bound of their own, because each holds a socket. At that bound the request that
started first is given up, if that was at least ``_MIN_SLOW_S`` ago: GivenUp is raised within its ``admit``.

    waits at its host -> waits for a quick place -> quick -> slow -> given up
                                                      |        |         |
                                                      +--------+---------+--> ended

Both lines serve their newest and their oldest waiter in turn. Served by age alone, a healthy host would wait behind a
thousand stalled ones that came before it; newest first alone, the oldest would starve.

A place is granted before its waiter resumes; a waiter that is cancelled in between releases it. There is no timer
unless somebody waits.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if sys.platform != "win32":
    import resource

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from politesse.clock import Clock, Timer

_PER_HOST: Final = 2
_MOMENT_S: Final = 0.05  # most robots.txt have come by then
_MIN_SLOW_S: Final = 1.0
_SLOW_FOR_EACH_QUICK: Final = 20  # 2,000 where 100 may be quick


class GivenUp(Exception):
    """A request was given up; the message says why."""


class _Request:
    """A request on its way through ``Admission``.

    Attributes:
        granted: set when it gets what it waits for; None while it has not waited.
        started_mono: when it got its quick place.
        reason: why it was given up; empty if it was not.
    """

    __slots__ = ("_scope", "granted", "reason", "started_mono")

    def __init__(self) -> None:
        self.granted: asyncio.Future[None] | None = None
        self.started_mono = 0.0
        self.reason = ""
        self._scope: asyncio.Timeout | None = None

    @asynccontextmanager
    async def work(self, clock: Clock, limit_s: float | None) -> AsyncGenerator[None, None]:
        """Run the block; raises GivenUp from within it once ``give_up`` was called, or ``limit_s`` is over."""
        scope = asyncio.timeout(None)
        limit = None
        try:
            async with scope:
                self._scope = scope
                if self.reason:  # since it was granted its place, and before it has resumed
                    self._end()
                if limit_s is not None:
                    limit = clock.call_later(limit_s, lambda: self.give_up("no answer within the time limit"))
                yield
        except TimeoutError:
            if scope.expired():
                raise GivenUp(self.reason) from None
            raise
        finally:
            self._scope = None
            if limit is not None:
                limit.cancel()

    def give_up(self, reason: str) -> None:
        """End its work with GivenUp, now or when it begins."""
        if not self.reason:
            self.reason = reason
            self._end()

    def _end(self) -> None:
        if self._scope is not None:
            self._scope.reschedule(asyncio.get_running_loop().time())


class _Line:
    """Waiters that are served newest and oldest in turn, the newest first."""

    __slots__ = ("_newest_next", "_waiting")

    def __init__(self) -> None:
        self._waiting: OrderedDict[_Request, None] = OrderedDict()
        self._newest_next = True

    def join(self, request: _Request) -> asyncio.Future[None]:
        """Add a waiter, and return what it has to await: it ends when ``grant_next`` has chosen it."""
        self._waiting[request] = None
        request.granted = asyncio.get_running_loop().create_future()
        return request.granted

    def grant_next(self) -> _Request | None:
        """Choose the next waiter, if there is one, and wake it."""
        while self._waiting:
            request, _ = self._waiting.popitem(last=self._newest_next)
            if request.granted is not None and not request.granted.done():  # else it was cancelled
                self._newest_next = not self._newest_next
                request.granted.set_result(None)
                return request
        return None

    def left(self, request: _Request) -> bool:
        """Remove a waiter that was cancelled; return whether it had been chosen before."""
        self._waiting.pop(request, None)
        return request.granted is not None and not request.granted.cancelled()

    def __len__(self) -> int:
        return len(self._waiting)


class _Host:
    """The places at one host.

    Attributes:
        taken: how many are taken.
        line: who waits for one.
    """

    __slots__ = ("line", "taken")

    def __init__(self) -> None:
        self.taken = 0
        self.line = _Line()


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

    @asynccontextmanager
    async def admit(self, host: str, limit_s: float | None = None) -> AsyncGenerator[None, None]:
        """Run the block as one request to ``host``, once there are places for it.

        Args:
            host: the pacing host, without scheme and port.
            limit_s: how many seconds the block may take, the wait for places not counted; None for no limit.

        Raises:
            GivenUp: from within the block, if it takes longer than that, or others need its socket.
        """
        request = _Request()
        await self._enter_host(request, host)
        try:
            await self._enter(request)
            try:
                async with request.work(self._clock, limit_s):
                    yield
            finally:
                self._leave(request)
        finally:
            self._leave_host(host)

    def __repr__(self) -> str:
        slow = len(self._slow) + len(self._ending)
        waiting = len(self._line) + sum(len(host.line) for host in self._hosts.values())
        return f"<Admission: {len(self._quick)} quick, {slow} slow, {waiting} waiting>"

    async def _enter_host(self, request: _Request, name: str) -> None:
        host = self._hosts.setdefault(name, _Host())
        if host.taken < _PER_HOST:
            host.taken += 1
            return
        try:
            await host.line.join(request)
        except asyncio.CancelledError:
            if host.line.left(request):
                self._leave_host(name)
            raise

    def _leave_host(self, name: str) -> None:
        host = self._hosts[name]
        if host.line.grant_next() is None:  # else the place goes over to that waiter
            host.taken -= 1
            if not host.taken:
                del self._hosts[name]

    async def _enter(self, request: _Request) -> None:
        if not self._line and len(self._quick) < self._max_quick:
            self._start(request)
            return
        granted = self._line.join(request)
        self._serve()
        try:
            await granted
        except asyncio.CancelledError:
            if self._line.left(request):
                self._leave(request)
            raise

    def _start(self, request: _Request) -> None:
        request.started_mono = self._clock.monotonic()
        self._quick[request] = None

    def _leave(self, request: _Request) -> None:
        self._quick.pop(request, None)
        self._slow.pop(request, None)
        self._ending.discard(request)
        self._serve()

    def _serve(self) -> None:
        """Grant quick places to who waits, as far as there are any; look again when the next may be handed on."""
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
        """Let the oldest quick request count as slow, if it is; return from when on to try that again, if ever."""
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
        """Give up as many slow requests as there are waiters who could use their places; see ``_hand_on``."""
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
    """Return how many this process may have open; infinity where nobody says."""
    if sys.platform == "win32":
        return float("inf")  # there sockets are none
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return float("inf") if soft == resource.RLIM_INFINITY else soft
