"""How old a record is by both clocks, of this process or of another."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from politesse._cache.record import CLOCK_SKEW_S, Moment, reckoned
from politesse.clock import run_of

if TYPE_CHECKING:
    from politesse._cache.record import Record
    from politesse.clock import Clock


class RecordClock:
    """Both clocks of a cache, as its records need them.

    Args:
        clock: both clocks.

    Attributes:
        run: the run of the monotonic clock: readings of the same run can be compared.
    """

    __slots__ = ("_clock", "_foremost", "run")

    def __init__(self, clock: Clock) -> None:
        self.run = run_of(clock)
        self._clock = clock
        self._foremost: Moment | None = None

    def now(self) -> Moment:
        """Return a reading of both clocks."""
        return Moment(self.run, self._clock.wall(), self._clock.monotonic())

    def reckoned(self, record: Record, now: Moment) -> Record:
        """Return ``record`` as old as it is by the clock that reports more time, its wall times those of ``now``."""
        if record.moment is not None and record.moment.run == self.run:
            return reckoned(record, now)
        # Our monotonic clock does not know how old a record of another process is. But its copy may be older than it
        # seems: by as much as our wall clock is behind the latest one that dated such a copy. That does not hold for
        # its trouble: the next request would come too early.
        ahead = now
        if record.copy is not None and now.wall < record.copy.confirmed_wall <= now.wall + CLOCK_SKEW_S:
            ahead = replace(now, wall=record.copy.confirmed_wall)
        if self._foremost is None or ahead.wall - ahead.mono > self._foremost.wall - self._foremost.mono:
            self._foremost = ahead
        aged = reckoned(replace(record, moment=self._foremost), now)
        return replace(aged, trouble=record.trouble, moment=now)
