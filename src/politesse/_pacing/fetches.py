"""Requests for robots.txt to one host run one at a time. After the first two, the floor separates them.

Theory of operation. Requests for robots.txt and requests for pages do not wait for each other. They share only the
closings of the host and ``FetchPermit.opened``. The requests for robots.txt of a host stand in one line, first come,
first served:

    waits in line -> holds the place -> waits for the floor, unless the host is fresh -> is sent -> leaves the place

A host is fresh while fewer than two requests started there within the last minute: its http and https origins, or a
redirect within the host, need no pause. A line exists while a request is in it. The times of the last two requests are
kept for a minute.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from politesse._pacing.host import NEVER
from politesse._pacing.hosts import LastRequestTimes
from politesse._pacing.permit import NO_HEADERS
from politesse._pacing.reports import LONG_S
from politesse.events import LongWait
from politesse.verdict import Bound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from politesse._pacing.local import LocalPacer
    from politesse.clock import Clock
    from politesse.events import Publisher

_FRESH_S: Final = 60.0


@dataclass(slots=True, eq=False)
class _FetchLine:
    """The requests for robots.txt to one host, one of which holds the place.

    Attributes:
        earlier_mono: when the last request but one ended.
        ended_mono: when the last request ended.
        waiting: the requests in line, behind the request that holds the place.
        long_wait: whether a long wait was published since the line was empty.
    """

    earlier_mono: float
    ended_mono: float
    waiting: list[asyncio.Future[None]] = field(default_factory=list)
    long_wait: bool = False

    def due_mono(self, floor_s: float) -> float:
        """Return when the next request may start."""
        return min(self.ended_mono + floor_s, self.earlier_mono + _FRESH_S)


class FetchLines:
    """The lines for robots.txt of all hosts. Belongs to one event loop.

    Args:
        clock: measures the floor.
        publisher: receives LongWait.
    """

    def __init__(self, clock: Clock, publisher: Publisher) -> None:
        self._clock = clock
        self._publish = publisher.publish
        self._lines: dict[str, _FetchLine] = {}
        self._earlier = LastRequestTimes(_FRESH_S)
        self._ended = LastRequestTimes(_FRESH_S)

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
        """Give the place to the next in line; forget an empty line."""
        while line.waiting:
            called = line.waiting.pop(0)
            if not called.done():
                called.set_result(None)  # the line is not removed, so no other request can take the place first
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
        host: the pacing host.
        url: the URL of the request.
        lines: the lines in which the request holds a place, or None if the request was made before.
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
