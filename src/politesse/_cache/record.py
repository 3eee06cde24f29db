"""The record of a file: the last definite answer, and the failures since then. Pure.

The times of a record are readings of the wall clock. A wall clock may be set, and a monotonic clock may stop while the
machine sleeps, so the clock that shows more elapsed time counts. If the wall clock was set back, the times of a record
are moved back by the same time before the record is judged (``ClockCorrection``). If the clock was set forward, the
record counts as older.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from politesse._base.constants import AGREE_S
from politesse.ports import Validators
from politesse.verdict import AccessResult

CLOCK_SKEW_S: Final = 300.0
"""The seconds by which the clock of the writer may be ahead of the clock of the reader."""

_STRICTNESS: Final = {"redirects": 1, "deny": 2}  # the values of FetchOptions.private_addresses


@dataclass(frozen=True, slots=True)
class FetchConditions:
    """The settings of this crawler on which the answer to a request depends.

    Attributes:
        user_agent: the User-Agent of requests for robots.txt.
        max_body_bytes: the fetcher's limit of a body; 0 if the fetcher does not report it.
        private_addresses: see FetchOptions; empty if the fetcher does not report it.
        excuses_faults: whether the fetcher reports a fault as a missing file.
    """

    user_agent: str = ""
    max_body_bytes: int = 0
    private_addresses: str = ""
    excuses_faults: bool = False

    def permit(self, copy: Copy) -> bool:
        """Return whether a copy, perhaps of another process, could have been fetched under these conditions."""
        return (
            copy.user_agent in ("", self.user_agent)
            and (copy.cut_bytes is None or copy.cut_bytes >= self.max_body_bytes)
            and _STRICTNESS.get(copy.private_addresses, 0) >= _STRICTNESS.get(self.private_addresses, 0)
        )


# No code changes a Copy or a Trouble. The classes are not frozen, because each answer makes an instance of both, and a
# frozen instance takes twice the time to make.
@dataclass(slots=True)
class Copy:
    """The last definite answer.

    Attributes:
        result: SUCCESSFUL, UNAVAILABLE or FORBIDDEN.
        status: the HTTP status; after too many redirects, the status of the last redirect.
        final_url: the URL of the answer, after redirects.
        body: the file; empty unless SUCCESSFUL.
        etag: the ETag header, or empty.
        last_modified: the Last-Modified header, or empty.
        confirmed_wall: when the answer came, or a 304 last confirmed it.
        lifetime_s: how long after ``confirmed_wall`` the copy is fresh, in seconds.
        fault: the fault that became this copy, in words; else empty.
        user_agent: the User-Agent of the request, if the answer varies by it; else empty.
        cut_bytes: the limit at which the body was cut; None if the body is complete.
        private_addresses: see FetchConditions.
        faults_read: ``AccessPolicy.faults_read``, if a fault became this copy; else empty.
        content_type: the Content-Type header; empty unless SUCCESSFUL.
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

    user_agent: str = ""
    cut_bytes: int | None = None
    private_addresses: str = ""
    faults_read: str = ""
    content_type: str = ""

    @property
    def fresh_until_wall(self) -> float:
        """The end of the copy's freshness."""
        return self.confirmed_wall + self.lifetime_s


@dataclass(slots=True)
class Trouble:
    """The consecutive failures since the last definite answer.

    Attributes:
        result: UNREACHABLE, TOO_MANY_REQUESTS, or UNAVAILABLE while an older copy is used in its place.
        status: the HTTP status; None without a response.
        final_url: the URL that failed.
        fault: the failure, as a phrase.
        since_wall: when the first of the consecutive failures happened.
        last_wall: when the last of these failures happened.
        failures: the number of consecutive failures, from 1.
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


@dataclass(slots=True)
class Moment:
    """Both clocks, read together.

    Attributes:
        run: the run of the monotonic clock: only readings of the same run can be compared.
        wall: the Unix time.
        mono: seconds since an arbitrary moment.
    """

    run: str
    wall: float
    mono: float


def is_before(moment: Moment | None, other: Moment | None) -> bool:
    """Return whether ``moment`` was before ``other``; None is before any moment.

    The moments of two runs are compared by the wall clock.
    """
    if moment is None or other is None:
        return other is not None
    return moment.mono < other.mono if moment.run == other.run else moment.wall < other.wall


class Record(NamedTuple):
    """The record of a file.

    Attributes:
        copy: the last definite answer.
        trouble: the failures since then, or None.
        moment: both clocks at a moment when the wall times of ``copy`` and ``trouble`` were right.
    """

    copy: Copy | None
    trouble: Trouble | None
    moment: Moment | None = None

    @property
    def validators(self) -> Validators | None:
        """The validators of the copy for a conditional request, or None."""
        copy = self.copy
        if copy is None or copy.result is not AccessResult.SUCCESSFUL or not (copy.etag or copy.last_modified):
            return None
        return Validators(copy.final_url, copy.etag, copy.last_modified)


class ClockCorrection:
    """Corrects the ages of records with both clocks, including the records of other processes.

    Args:
        started: both clocks at the start of this process.
    """

    __slots__ = ("_foremost",)

    def __init__(self, started: Moment) -> None:
        self._foremost = started  # when our wall clock was furthest ahead of the monotonic clock

    def corrected(self, record: Record, now: Moment) -> Record:
        """Return ``record`` with wall times corrected for ``now``; the clock that shows more elapsed time counts."""
        if record.moment is not None and record.moment.run == now.run:
            return _corrected(record, record.moment, now)
        # Our monotonic clock cannot measure the age of another process's record. But its copy may be older than it
        # seems: our wall clock may be behind the clock that dated the copy. The trouble stays unchanged, or the next
        # request would come too early.
        ahead = now
        if record.copy is not None and now.wall < record.copy.confirmed_wall <= now.wall + CLOCK_SKEW_S:
            ahead = replace(now, wall=record.copy.confirmed_wall)
        if ahead.wall - ahead.mono > self._foremost.wall - self._foremost.mono:
            self._foremost = ahead
        return _corrected(record, self._foremost, now)._replace(trouble=record.trouble, moment=now)


def _corrected(record: Record, then: Moment, now: Moment) -> Record:
    """Return ``record`` with wall times corrected for ``now``; its times were right at ``then``."""
    set_back_s = (now.mono - then.mono) - (now.wall - then.wall)
    if set_back_s < AGREE_S:
        return record
    copy, trouble = record.copy, record.trouble
    if copy is not None:
        copy = replace(copy, confirmed_wall=copy.confirmed_wall - set_back_s)
    return Record(copy, None if trouble is None else earlier(trouble, set_back_s), now)


def earlier(trouble: Trouble, by_s: float) -> Trouble:
    """Return ``trouble`` with all its times moved back by ``by_s`` seconds."""
    return replace(
        trouble,
        since_wall=trouble.since_wall - by_s,
        last_wall=trouble.last_wall - by_s,
        retry_wall=trouble.retry_wall - by_s,
    )


def believed(record: Record, now_wall: float) -> Record:
    """Return ``record`` without the parts that are dated in the future.

    The writer's clock was ahead, so such parts would stay valid too long. Parts that are ahead by up to
    ``CLOCK_SKEW_S`` count as dated now. If the trouble is removed, the copy is removed, too, because the time at which
    its renewal failed is unknown.
    """
    copy, trouble = record.copy, record.trouble
    if (copy is None or copy.confirmed_wall <= now_wall) and (trouble is None or trouble.last_wall <= now_wall):
        return record  # true for nearly all records
    latest_wall = now_wall + CLOCK_SKEW_S
    if copy is not None and copy.confirmed_wall > now_wall:
        copy = replace(copy, confirmed_wall=now_wall) if copy.confirmed_wall <= latest_wall else None
    if trouble is not None and trouble.last_wall > now_wall:
        if trouble.last_wall > latest_wall:
            return Record(None, None, record.moment)
        trouble = earlier(trouble, trouble.last_wall - now_wall)
    return Record(copy, trouble, record.moment)
