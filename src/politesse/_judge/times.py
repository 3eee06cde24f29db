"""The times of a host that still matter to the judge: answers that opened a site, and Retry-Afters."""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from typing import Final

NEVER: Final = float("-inf")
_MAX_TIMES: Final = 64  # above this length, a history drops the times that no longer matter


@dataclass(slots=True, eq=False)
class Times:
    """A history of times, sorted. If the history is long, ``last`` drops all times before its result."""

    times: list[float] = field(default_factory=list)

    def add(self, time: float) -> None:
        """Add a time, unless it is NaN."""
        if time == time:  # noqa: PLR0124 - NaN
            insort(self.times, time)

    def remove(self, time: float) -> bool:
        """Remove a time, and return whether it was there."""
        found = time in self.times
        if found:
            self.times.remove(time)
        return found

    def last(self, at: float) -> float:
        """Return the last time up to ``at``; NEVER if there is none."""
        place = bisect_right(self.times, at)
        if place > _MAX_TIMES:
            del self.times[: place - 1]
            place = 1
        return self.times[place - 1] if place else NEVER


@dataclass(slots=True, eq=False)
class Closings:
    """The Retry-Afters that bind one kind of request (for pages, or for robots.txt) at a host.

    Attributes:
        until: the latest end of the Retry-Afters that ``take`` has removed from ``recent``.
        recent: the other Retry-Afters: when each was received, its end, and whether a request of this kind received it.
    """

    until: float = NEVER
    recent: list[tuple[float, float, bool]] = field(default_factory=list)

    def take(self, at: float) -> float:
        """Move the Retry-Afters received up to ``at`` into ``until``.

        Returns:
            The latest end of those moved Retry-Afters that answered requests of this kind; NEVER if there are none.
        """
        of_this_kind = NEVER
        while self.recent and self.recent[0][0] <= at:
            _, until, is_own = self.recent.pop(0)
            self.until = max(self.until, until)
            if is_own:
                of_this_kind = max(of_this_kind, until)
        return of_this_kind
