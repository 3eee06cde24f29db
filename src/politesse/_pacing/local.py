"""The pacer of a single process: lines (``lines.py``), closures, limits, and requests for robots.txt.

Theory of operation. Requests for robots.txt to one host run one at a time. No pause is needed between the first two of
these requests. Further requests wait for the floor: the longer ``min_delay_s`` of the pacer and the gate. Requests for
robots.txt and requests for pages do not wait for each other, with three exceptions. During a closure of the host,
neither kind may start. ``FetchPermit.opened`` begins the interval of pages. After a long idle time, a request for
robots.txt begins this interval, too. The requests for robots.txt of a host stand in one line, first come, first served:

    waits in line -> holds the place -> waits for the floor, unless the host is fresh -> is sent -> leaves the place

A host is fresh while fewer than two requests ended there within the last minute. So two origins of a host (http and
https), or a redirect within the host, need no pause. A line exists while a request is in it. The times of the last two
requests are kept for a minute.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from politesse._pacing.backoff import FETCH_CLOSING
from politesse._pacing.host import NEVER, PacedHost
from politesse._pacing.host_state import BackoffSnapshot
from politesse._pacing.hosts import FRESH_S, Marks
from politesse._pacing.lines import LocalLines
from politesse._pacing.pace import Pace, PacingOptions
from politesse._pacing.permit import NO_HEADERS
from politesse._pacing.reports import LONG_S
from politesse.errors import ClosedError
from politesse.events import LongWait, Publisher
from politesse.ports import PacedLine, TurnRequest
from politesse.verdict import Bound

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from politesse.clock import Clock
    from politesse.status import HostStatus


@dataclass(slots=True, eq=False)
class _FetchLine:
    """The requests for robots.txt to one host. Only one of them may be under way: the request that holds the place.

    Attributes:
        earlier_mono: when the second-to-last request ended.
        ended_mono: when the last request ended.
        waiting: the requests that wait for the place, in order.
        long_wait: whether a long wait was published since the line was empty.
    """

    earlier_mono: float
    ended_mono: float
    waiting: list[asyncio.Future[None]] = field(default_factory=list)
    long_wait: bool = False

    def due_mono(self, floor_s: float) -> float:
        """Return when the next request may start."""
        return min(self.ended_mono + floor_s, self.earlier_mono + FRESH_S)


class FetchLines:
    """The lines for robots.txt of all hosts. Belongs to one event loop.

    Args:
        clock: measures the floor.
        publisher: receives LongWait.
        marks: the marks of the hosts of this and earlier pacers.
    """

    def __init__(self, clock: Clock, publisher: Publisher, marks: Marks) -> None:
        self._clock = clock
        self._publish = publisher.publish
        self._lines: dict[str, _FetchLine] = {}
        self._earlier, self._ended = marks.fetches

    async def enter(self, host: str, url: str, floor_s: float) -> None:
        """Wait until ``url`` may be requested at ``host``, and hold the place until ``leave``."""
        line, now_mono = self._lines.get(host), self._clock.monotonic()
        if line is None:
            ended_mono = self._ended.take(host, now_mono)
            earlier_mono = NEVER if ended_mono == NEVER else self._earlier.take(host, now_mono)
            line = self._lines[host] = _FetchLine(earlier_mono, ended_mono)
        else:
            await self._wait(host, url, line, floor_s)
        try:
            while (wait_s := line.due_mono(floor_s) - self._clock.monotonic()) > 0.0:
                await self._clock.sleep(wait_s)
        except BaseException:
            self._pass_on(host, line)
            raise

    def leave(self, host: str, *, sent: bool) -> None:
        """Free the place: the request has ended, or was not sent."""
        line = self._lines[host]
        if sent:
            line.earlier_mono, line.ended_mono = line.ended_mono, self._clock.monotonic()
        self._pass_on(host, line)

    async def _wait(self, host: str, url: str, line: _FetchLine, floor_s: float) -> None:
        called = asyncio.get_running_loop().create_future()
        line.waiting.append(called)
        wait_s = len(line.waiting) * floor_s
        if wait_s > LONG_S and not line.long_wait:
            line.long_wait = True
            self._publish(LongWait(host, url, wait_s, Bound.FLOOR, ""))
        try:
            await called
        except asyncio.CancelledError:
            if not called.cancelled():  # the request holds the place already
                self._pass_on(host, line)
            raise

    def _pass_on(self, host: str, line: _FetchLine) -> None:
        """Give the place to the next request in line; if no request waits, delete the line."""
        while line.waiting:
            called = line.waiting.pop(0)
            if not called.done():
                called.set_result(None)  # the line stays in the dict, so no new request takes the place first
                return
        del self._lines[host]
        now_mono = self._clock.monotonic()
        for times, at_mono in ((self._earlier, line.earlier_mono), (self._ended, line.ended_mono)):
            if at_mono != NEVER:
                times.keep(host, at_mono, now_mono)


@dataclass(slots=True, eq=False)
class LocalFetch:
    """Permission for one request for robots.txt; see ``politesse.ports.FetchPermit``.

    Attributes:
        pacer: the pacer that granted it.
        host: the name of the paced host.
        url: the URL of the request.
        lines: the lines in which the request holds a place, or None if the request was sent before ``start_fetch`` was
            called.
    """

    pacer: LocalPacer
    host: str
    url: str
    lines: FetchLines | None

    def end(
        self, status: int | None = None, headers: Mapping[str, str] | None = None, elapsed_s: float = 0.0, /
    ) -> None:
        """End the request; its answer may close the host."""
        if self.lines is not None:
            self.lines.leave(self.host, sent=True)
        self.pacer.fetched(self, status, headers or NO_HEADERS, elapsed_s)

    def give_back(self) -> None:
        """End the permit without a request."""
        if self.lines is not None:
            self.lines.leave(self.host, sent=False)

    def opened(self) -> None:
        """Let the next page wait for one interval from now."""
        self.pacer.opened(self)


class LocalPacer(LocalLines):
    """Spaces the requests of this process to each host. Belongs to one event loop.

    Args:
        options: see PacingOptions.
        clock: the clocks and the timer.
        jitter: returns 0 to 1, to spread the requests to a host that was closed.
        publisher: receives HeaderOverruled, HostClosed, HostOpened, LongWait and TurnExpired.
        marks: the marks that earlier pacers of this process have left; None to begin without.
    """

    def __init__(
        self,
        options: PacingOptions | None = None,
        *,
        clock: Clock,
        jitter: Callable[[], float] = random.random,
        publisher: Publisher | None = None,
        marks: Marks | None = None,
    ) -> None:
        publisher, marks = publisher or Publisher(), marks or Marks()
        super().__init__(options or PacingOptions(), clock, jitter, publisher, marks)
        self._fetch_lines = FetchLines(clock, publisher, marks)

    def close_host(self, host: str, until_wall: float, bound_by: Bound, /) -> None:
        """Let no request start at ``host`` before the Unix time ``until_wall``, waiting requests included."""
        now_mono, now_wall = self._monotonic(), self._wall()
        if until_wall > now_wall:
            paced = self._active.get(host, now_mono)
            paced.changes += 1
            paced.backoff.close(now_mono + (until_wall - now_wall), bound_by)
            self._reports.closed(paced, now_mono, now_wall)
            self._advance(paced)

    async def closed_until(self, host: str, /) -> float | None:
        """Wait until ``host`` is recalled; return the Unix time until which it is closed, or None if it is open."""
        paced = self._hosts.get(host)
        if paced is None and not self._closed and (self._recalls is not None or host in self._active.marks.backoffs):
            paced = self._active.get(host, self._monotonic())
            self._advance(paced)
        if paced is not None and self._recalls is not None and not self._closed:
            await self._recalls.ended(paced)
            if self._closed:
                raise ClosedError(f"the pacer was closed while it was recalled what {host} had asked for")
        return self.known_closing(host)

    def known_closing(self, host: str, /) -> float | None:
        """Return the Unix time until which ``host`` is closed, or None if it is open or not recalled yet."""
        paced = self._hosts.get(host)
        closed_s = 0.0 if paced is None else paced.backoff.closing.until_mono - self._monotonic()
        return self._wall() + closed_s if closed_s > 0.0 else None

    async def start_fetch(self, request: TurnRequest, /, *, made: bool = False) -> LocalFetch:
        """Wait in line for the request of a robots.txt; see ``politesse.ports.Pacer``."""
        host, url = request.host, request.url
        if self._closed:
            raise ClosedError(f"the pacer is closed: {url} is not requested")
        if made:
            return LocalFetch(self, host, url, None)
        floor_s = max(self._active.options(host).min_delay_s, request.min_delay_s)
        await self._fetch_lines.enter(host, url, floor_s)
        return LocalFetch(self, host, url, self._fetch_lines)

    def fetched(self, fetch: LocalFetch, status: int | None, headers: Mapping[str, str], elapsed_s: float) -> None:
        """Record an answer to a request for robots.txt. The interval restarts only if the host was idle for long."""
        now_mono, now_wall = self._monotonic(), self._wall()
        host = self._active_host(fetch, now_mono, becomes_active=status in FETCH_CLOSING)
        if host is None:
            self._active.requested(fetch.host, now_mono, again=False)
            return
        if now_mono > host.last_is_known_until(self._active.marks.requested.kept_s):
            host.asked(now_mono)
        if status in FETCH_CLOSING:
            host.changes += 1
            ignored = host.backoff.observe_fetch(headers, elapsed_s, now_mono, now_wall, host.options)
            self._reports.overruled(host.host, ignored)
            self._reports.closed(host, now_mono, now_wall, fetch.url, status)
        self._advance(host)

    def opened(self, fetch: LocalFetch) -> None:
        """Let the next page wait for one interval from now."""
        now_mono = self._monotonic()
        host = self._active_host(fetch, now_mono)
        if host is None:
            self._active.requested(fetch.host, now_mono, again=True)
        else:
            host.asked(now_mono)
            self._advance(host)

    def _active_host(self, fetch: LocalFetch, now_mono: float, *, becomes_active: bool = False) -> PacedHost | None:
        """Return the host of a robots.txt, or None if only the time of the request has to be remembered."""
        if becomes_active or self._recalls is not None:
            return self._active.get(fetch.host, now_mono)
        return self._hosts.get(fetch.host)

    def hosts(self) -> dict[str, HostStatus]:
        """Return the state of each active host, and of each host whose pages wait after a request for robots.txt."""
        now_mono, now_wall = self._monotonic(), self._wall()
        hosts = chain(self._hosts.values(), self._active.resting(now_mono))
        return {host.host: host.snapshot(now_mono, now_wall) for host in hosts}

    def closings(self) -> Counter[Bound]:
        """Return how many hosts are closed now, by the reason of the closure. Any thread may call this."""
        hosts = list(self._hosts.values())  # copied in a single step, so no thread changes the dict meanwhile
        now_mono = self._monotonic()
        closings = (host.backoff.closing for host in hosts)
        return Counter(closing.bound_by for closing in closings if closing.until_mono > now_mono)

    def lines(self, host: str, /) -> tuple[PacedLine]:
        """Return the line of ``host``."""
        paced = self._hosts.get(host)
        options = self._active.options(host) if paced is None else paced.options
        return (PacedLine(self, host, options.max_concurrent),)

    def set_limits(self, host: str, min_delay_s: float | None, max_concurrent: int | None, /) -> None:
        """Set the limits of ``host`` from now on. If a limit is None, the options apply. Raises ConfigurationError."""
        if (paced := self._active.limit(host, min_delay_s, max_concurrent)) is not None:
            self._advance(paced)

    def pace(self, request: TurnRequest, /) -> Pace:
        """Return the interval that is in force for a request; raises ClosedError."""
        now_mono = self._monotonic()
        host, agent = self._enter(request, now_mono)
        return host.start_of(agent, now_mono, self._wall()).pace

    def backoff_of(self, host: str, /) -> BackoffSnapshot:
        """Return the backoff of a host."""
        paced = self._hosts.get(host)
        if paced is None:
            return BackoffSnapshot()
        return paced.backoff.snapshot(self._monotonic(), paced.options)

    def learn(self, host: str, backoff_s: float, fetch_backoff_s: float, refusal_s: float, /) -> None:
        """Adopt the longer backoffs of an active host that another process remembers."""
        paced = self._hosts.get(host)
        if paced is not None:
            paced.changes += 1
            paced.backoff.learn(backoff_s, fetch_backoff_s, refusal_s, self._monotonic())

    def last_mono(self, host: str, /) -> float:
        """Return when ``host`` was last requested; minus infinity if that is unknown."""
        return self._active.last_mono(host)

    def __repr__(self) -> str:
        return f"<LocalPacer: {len(self)} busy hosts, {self.waiting} waiting, {self.in_flight} in flight>"
