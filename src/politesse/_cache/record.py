"""What is kept about one file of a site: the last answer that settled something, and what has gone wrong since. Pure.

Its times are readings of the wall clock. A wall clock may be set, and a monotonic one may stand still while the machine
sleeps, so the one that reports more time counts. Before a record is judged, its times are moved back by as much as the
wall clock was set back since (``Reckoning``). If it was set forward, they are as old as it says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from politesse._constants import AGREE_S
from politesse.ports import Validators
from politesse.verdict import AccessResult

CLOCK_SKEW_S: Final = 300.0
"""By how many seconds the clock that dated a record may be ahead of the one that it is read by."""


@dataclass(frozen=True, slots=True)
class Copy:
    """The last answer that settled something.

    Attributes:
        result: SUCCESSFUL, UNAVAILABLE or FORBIDDEN.
        status: its HTTP status; of the last redirect, where there were too many.
        final_url: where it came from.
        body: the file; empty unless SUCCESSFUL.
        etag: validator, or empty.
        last_modified: validator, or empty.
        confirmed_wall: when it came, or was last confirmed by a 304.
        lifetime_s: for how long from then on it is fresh.
        fault: why there is no file, where a fault settled it; else empty.
    """

    result: AccessResult
    status: int | None
    final_url: str
    body: bytes
    etag: str
    last_modified: str
    confirmed_wall: float
    lifetime_s: float
    fault: str = ""

    @property
    def fresh_until_wall(self) -> float:
        """The end of its freshness."""
        return self.confirmed_wall + self.lifetime_s


@dataclass(frozen=True, slots=True)
class Trouble:
    """The failures in a row since the last answer that settled something.

    Attributes:
        result: UNREACHABLE, TOO_MANY_REQUESTS, or UNAVAILABLE where a copy counts for more.
        status: the HTTP status, None where none came.
        final_url: where it happened.
        fault: what happened, as a phrase.
        since_wall: when the first of the failures in a row happened.
        last_wall: when the last one did.
        failures: how many in a row, from 1.
        retry_wall: when to fetch again.
    """

    result: AccessResult
    status: int | None
    final_url: str
    fault: str
    since_wall: float
    last_wall: float
    failures: int
    retry_wall: float


@dataclass(frozen=True, slots=True)
class Moment:
    """Both clocks, read together.

    Attributes:
        run: of the monotonic clock: only readings of the same run can be compared.
        wall: the Unix time.
        mono: seconds since an arbitrary moment.
    """

    run: str
    wall: float
    mono: float


@dataclass(frozen=True, slots=True)
class Record:
    """All that is known about one file; at least one part is there.

    Attributes:
        copy: the last answer that settled something.
        trouble: the failures since; None for none.
        moment: both clocks at a time when the wall times above were right; None in records of older versions.
    """

    copy: Copy | None
    trouble: Trouble | None
    moment: Moment | None = None

    @property
    def validators(self) -> Validators | None:
        """The validators of the copy, for a conditional request; None if it has none."""
        copy = self.copy
        if copy is None or copy.result is not AccessResult.SUCCESSFUL or not (copy.etag or copy.last_modified):
            return None
        return Validators(copy.final_url, copy.etag, copy.last_modified)


class Reckoning:
    """Finds out how old records are by both clocks, those of this process and of others.

    Args:
        run: the run of the monotonic clock of this process.
    """

    __slots__ = ("_foremost", "_run")

    def __init__(self, run: str) -> None:
        self._run = run
        self._foremost: Moment | None = None

    def reckoned(self, record: Record, now: Moment) -> Record:
        """Return ``record`` as old as it is by the clock that reports more time, its wall times those of ``now``."""
        if record.moment is not None and record.moment.run == self._run:
            return _reckoned(record, record.moment, now)
        # Our monotonic clock does not know how old a record of another process is. But its copy may be older than it
        # seems: by as much as our wall clock is behind the latest one that dated such a copy. That does not hold for
        # its trouble: the next request would come too early.
        ahead = now
        if record.copy is not None and now.wall < record.copy.confirmed_wall <= now.wall + CLOCK_SKEW_S:
            ahead = replace(now, wall=record.copy.confirmed_wall)
        if self._foremost is None or ahead.wall - ahead.mono > self._foremost.wall - self._foremost.mono:
            self._foremost = ahead
        return replace(_reckoned(record, self._foremost, now), trouble=record.trouble, moment=now)


def _reckoned(record: Record, then: Moment, now: Moment) -> Record:
    """Return ``record``, right at ``then``, with the wall times of ``now``."""
    set_back_s = (now.mono - then.mono) - (now.wall - then.wall)
    if set_back_s < AGREE_S:
        return record
    copy, trouble = record.copy, record.trouble
    if copy is not None:
        copy = replace(copy, confirmed_wall=copy.confirmed_wall - set_back_s)
    return Record(copy, None if trouble is None else earlier(trouble, set_back_s), now)


def earlier(trouble: Trouble, by_s: float) -> Trouble:
    """Return ``trouble`` with all its times earlier."""
    return replace(
        trouble,
        since_wall=trouble.since_wall - by_s,
        last_wall=trouble.last_wall - by_s,
        retry_wall=trouble.retry_wall - by_s,
    )


def believed(record: Record, now_wall: float) -> Record:
    """Return ``record`` without the parts that are dated in the future.

    They would hold for as long as the clock that dated them was ahead. Up to ``CLOCK_SKEW_S`` they count as dated now.
    """
    copy, trouble = record.copy, record.trouble
    if (copy is None or copy.confirmed_wall <= now_wall) and (trouble is None or trouble.last_wall <= now_wall):
        return record  # nearly always
    latest_wall = now_wall + CLOCK_SKEW_S
    if copy is not None and copy.confirmed_wall > now_wall:
        copy = replace(copy, confirmed_wall=now_wall) if copy.confirmed_wall <= latest_wall else None
    if trouble is not None and trouble.last_wall > now_wall:
        trouble = earlier(trouble, trouble.last_wall - now_wall) if trouble.last_wall <= latest_wall else None
    return Record(copy, trouble, record.moment)
