"""The lines of the requests for robots.txt, which wait for each other, but not for pages.

Requests for robots.txt to one host run one at a time. No pause is needed between the first two of these requests.
Further requests wait for the floor: the longer ``min_delay_s`` of the pacer and the gate. Requests for robots.txt and
requests for pages do not wait for each other, with three exceptions. During a closure of the host, neither kind may
start. ``LocalFetch.opened`` begins the interval of pages. After a long idle time, a request for robots.txt begins this
interval, too. The requests for robots.txt of a host stand in one line, first come, first served:

    waits in line -> holds the place -> waits for the floor, unless the host is fresh -> is sent -> leaves the place

A host is fresh while fewer than two requests ended there within the last minute. So two origins of a host (http and
https), or a redirect within the host, need no pause. A line exists while a request is in it. The times of the last two
requests are kept for a minute.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from politesse._pacing.marks import FRESH_S, NEVER, Marks
from politesse.events import LongWait, Publisher
from politesse.verdict import Bound

if TYPE_CHECKING:
    from politesse.clock import Clock

LONG_S: Final = 60.0
"""A wait in line that takes longer than this many seconds is published."""


@dataclass(slots=True, eq=False)
class _FetchLine:
    """The requests for robots.txt to one host. Only one of them may be under way: the request that holds the place.

    Attributes:
        earlier_mono: when the second-to-last request ended.
        ended_mono: when the last request ended.
        place: held by one request; the others wait for it in their order.
        asked: how many requests hold the place or wait for it.
        long_wait: whether a long wait was published since the line was empty.
    """

    earlier_mono: float
    ended_mono: float
    place: asyncio.Lock = field(default_factory=asyncio.Lock)
    asked: int = 0
    long_wait: bool = False


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
        wait_s, is_held = line.asked * floor_s, False
        line.asked += 1
        try:
            if wait_s > LONG_S and not line.long_wait:
                line.long_wait = True
                self._publish(LongWait(host, url, wait_s, Bound.FLOOR, ""))
            is_held = await line.place.acquire()
            # Two requests within a minute need no pause between them.
            while (wait_s := min(line.ended_mono + floor_s, line.earlier_mono + FRESH_S) - self._clock.monotonic()) > 0:
                await self._clock.sleep(wait_s)
        except BaseException:
            self.leave(host, sent=False, is_held=is_held)
            raise

    def leave(self, host: str, *, sent: bool, is_held: bool = True) -> None:
        """Leave the line, and free the place if it ``is_held``: the request has ended, or was not sent."""
        line, now_mono = self._lines[host], self._clock.monotonic()
        if sent:
            line.earlier_mono, line.ended_mono = line.ended_mono, now_mono
        if is_held:
            line.place.release()
        line.asked -= 1
        if line.asked:
            return
        del self._lines[host]
        for times, at_mono in ((self._earlier, line.earlier_mono), (self._ended, line.ended_mono)):
            if at_mono != NEVER:
                times.keep(host, at_mono, now_mono)
