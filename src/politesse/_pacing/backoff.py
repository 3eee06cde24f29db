"""The pace and the closings that a host asks for with its answers. Pure; the time is an argument.

Theory of operation. A refusal is a 429 or a 503. A refusal closes the host for our own backoff, or until its
Retry-After if that is later, and never for longer than ``backoff_max_s``. Such a time without requests is a closing.
The backoff is remembered, and changes by this table. Overlapping refusals count once: the refusal of a request that had
started before the last refusal does not double the backoff.

    event                 backoff of pages                            backoff of robots.txt
    the first refusal     first_s = max(backoff_min_s, 4 x interval)  first_s = 60 s
    a further refusal     doubled, to 900 s at most                   doubled, to 3,600 s at most
    an answer to a page   halved; forgotten if below first_s          halved; forgotten if below first_s
    quiet after it opens  forgotten after as long again               forgotten after as long again

    pages at 1 s:  503  503  503  200  503  200  200  200  503
    closed for:    10   20   40        40                  10

The cache fetches robots.txt again when its backoff is over (``_cache/outcome.py``), so that the host is open by then.
This backoff is at least ``backoff_min_s``, and begins with at most six times ``backoff_min_s``.

Any answer to a page also sets the adaptive delay, and may state a quota (RateLimit headers). An answer to robots.txt
does neither: it only closes the host if it is a refusal. The delay follows the smoothed response time of requests in a
row; after a rest that is much longer than the delay, the average begins anew (``rested``).

``politesse._pacing`` says what a new header needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from politesse._base.constants import DAY_S
from politesse._base.text import printable
from politesse._http.freshness import retry_after_s
from politesse._http.ratelimit import QUOTA_FIELDS, quota_fields, remaining_quota
from politesse._pacing.host_state import BackoffRecord
from politesse._pacing.pace import Closing, Pace, PacingOptions, slower
from politesse.verdict import Bound

if TYPE_CHECKING:
    from collections.abc import Mapping


CLOSING: Final = frozenset({429, 503})
"""The statuses that close a host."""
PACE_HEADERS: Final = QUOTA_FIELDS | {"retry-after"}
"""The headers that may slow the pace, in lower case; an answer without them needs no further reading."""

_LONGEST_S: Final = 900.0
_LONGEST_FETCH_S: Final = 3600.0
_SERVER_ERROR: Final = 500
_SMOOTHING: Final = 0.5
_RESTS: Final = 1.1  # a rest of this many delays ends a row of requests; more than 1, as the event loop may be late
_JITTER: Final = 0.1
_PACES: Final = 4.0  # the first backoff is at least this many intervals of the host
_FETCH_S: Final = 60.0
_MOST_TIMES: Final = 6.0
_OPEN: Final = Closing(-inf, Bound.BACKOFF)
_LONG_AGO_S: Final = 30.0 * DAY_S  # stands for minus infinity in a record, whose numbers are finite


@dataclass(frozen=True, slots=True)
class IgnoredHeader:
    """A header that is not obeyed literally, because its value is unreadable, too short or too long.

    Attributes:
        field: the name of the header, in lower case.
        value: the first 100 characters of its value, printable.
        applied_s: how long the host is closed instead, in seconds, or None if the header changes nothing.
    """

    field: str
    value: str
    applied_s: float | None


class BackoffSnapshot(NamedTuple):
    """The backoff of a host at one moment, for other processes of a fleet.

    Attributes:
        pace_s: the interval that the host's answers ask for, in seconds; 0 for none.
        backoff_s: for how long the last refusal of a page would close the host; 0 if no refusal is remembered.
        fetch_backoff_s: the same for refusals of robots.txt.
        closed_s: for how many seconds the host is still closed; 0 if the host is open.
        closed_by: the reason.
    """

    pace_s: float = 0.0
    backoff_s: float = 0.0
    fetch_backoff_s: float = 0.0
    closed_s: float = 0.0
    closed_by: Bound = Bound.BACKOFF


@dataclass(slots=True, eq=False)
class HostBackoff:
    """The memory of a host's answers.

    Attributes:
        closing: until when the host is closed, by the monotonic clock, so that setting the wall clock opens no host
            early.
        backoff_s: for how many seconds the last refusal of a page would close the host; 0 if no refusal is remembered.
        fetch_backoff_s: the same for refusals of robots.txt.
        latency_s: the smoothed response time.
        quota_until_mono: until when the interval of a quota holds.
    """

    closing: Closing = _OPEN
    backoff_s: float = 0.0
    fetch_backoff_s: float = 0.0
    latency_s: float = 0.0
    quota_until_mono: float = -inf
    _quota_interval_s: float = 0.0
    _refused_mono: float = -inf
    _answered: bool = False
    _learnt_mono: float = -inf

    def rested(self, idle_s: float, started_mono: float, options: PacingOptions) -> None:
        """Forget the backoff and the response times if they had become too old before a request started.

        Args:
            idle_s: how long the host had rested before the request.
            started_mono: when the request started.
            options: the bounds.
        """
        if (self.backoff_s or self.fetch_backoff_s) and started_mono >= self._backoff_until_mono:
            self.backoff_s = self.fetch_backoff_s = 0.0
        if idle_s >= _RESTS * options.min_delay_s and idle_s >= _RESTS * self._adaptive_s(options):
            self.latency_s, self._answered = 0.0, False

    def observe(
        self,
        status: int | None,
        headers: Mapping[str, str],
        elapsed_s: float,
        now_mono: float,
        now_wall: float,
        options: PacingOptions,
        jitter: float = 0.0,
        interval_s: float = 0.0,
    ) -> tuple[IgnoredHeader, ...]:
        """Record an answer; return the headers that are not obeyed literally.

        Args:
            status: the status of the answer, or None without an answer.
            headers: the headers of the answer, names in lower case.
            elapsed_s: the response time.
            now_mono: the monotonic time.
            now_wall: the Unix time, for headers with a date.
            options: the bounds.
            jitter: 0 to 1.
            interval_s: the pace; needed for a refusal, and as long as ``backoff_s`` is not 0.
        """
        # A fast refusal or error does not show that the server is fast: 429 and 5xx only lengthen the delay. All other
        # answers may also shorten the delay. A turn without an observed answer may shorten it, too: otherwise the delay
        # of a program that never calls ``observe`` would never fall.
        answered = status is None or (status < _SERVER_ERROR and status not in CLOSING)
        if not self._answered:
            self._answered = answered
            self.latency_s = max(self.latency_s, elapsed_s)
        elif answered or elapsed_s > self.latency_s:
            self.latency_s += _SMOOTHING * (elapsed_s - self.latency_s)
        ignored: tuple[IgnoredHeader, ...] = ()
        if status in CLOSING:
            if self._is_new_refusal(self.backoff_s, elapsed_s, now_mono):
                first_s = _first_s(options, interval_s)
                self.backoff_s = min(max(first_s, 2.0 * self.backoff_s), _longest_s(options, _LONGEST_S))
            spread_s = self.backoff_s * (1.0 + _JITTER * jitter)
            ignored = self._close(headers, self.backoff_s, spread_s, now_mono, now_wall, options)
        elif status is not None and (self.backoff_s or self.fetch_backoff_s):
            self.backoff_s = _halved(self.backoff_s, _first_s(options, interval_s))
            self.fetch_backoff_s = _halved(self.fetch_backoff_s, _first_fetch_s(options))
        return ignored + self._meter(headers, now_mono, now_wall, options) if headers else ignored

    def refuse(
        self, headers: Mapping[str, str], elapsed_s: float, now_mono: float, now_wall: float, options: PacingOptions
    ) -> tuple[IgnoredHeader, ...]:
        """Record a 429 or 503 to a fetch of robots.txt.

        No jitter is added, because the host must be open when robots.txt is fetched again, right after this backoff.
        """
        if self._is_new_refusal(self.fetch_backoff_s, elapsed_s, now_mono):
            doubled_s = max(_first_fetch_s(options), 2.0 * self.fetch_backoff_s)
            self.fetch_backoff_s = min(doubled_s, _longest_s(options, _LONGEST_FETCH_S))
        return self._close(headers, self.fetch_backoff_s, self.fetch_backoff_s, now_mono, now_wall, options)

    def slow(self, pace: Pace, now_mono: float, options: PacingOptions) -> Pace:
        """Return the slowest of ``pace``, the adaptive delay and the quota."""
        adaptive_s = self._adaptive_s(options)
        if adaptive_s > pace.interval_s:
            pace = Pace(adaptive_s, Bound.ADAPTIVE)
        if now_mono < self.quota_until_mono:
            pace = slower(pace, Pace(self._quota_interval_s, Bound.RATE_LIMIT))
        return pace

    def close(self, until_mono: float, bound_by: Bound) -> None:
        """Close the host until ``until_mono``."""
        if until_mono > self.closing.until_mono:
            self.closing = Closing(until_mono, bound_by)

    def learn(self, backoff_s: float, fetch_backoff_s: float, now_mono: float) -> None:
        """Adopt the longer backoffs that another process remembers."""
        self.backoff_s = max(self.backoff_s, backoff_s)
        self.fetch_backoff_s = max(self.fetch_backoff_s, fetch_backoff_s)
        self._learnt_mono = now_mono

    def snapshot(self, now_mono: float, options: PacingOptions) -> BackoffSnapshot:
        """Return a snapshot for the fleet."""
        pace = self.slow(Pace(0.0, Bound.FLOOR), now_mono, options)
        closed_s = max(0.0, self.closing.until_mono - now_mono)
        return BackoffSnapshot(pace.interval_s, self.backoff_s, self.fetch_backoff_s, closed_s, self.closing.bound_by)

    def record(self, now_mono: float) -> BackoffRecord:
        """Return a record of the backoff, with all times as seconds from now."""
        return BackoffRecord(
            closed_s=max(self.closing.until_mono - now_mono, -_LONG_AGO_S),
            closed_by=self.closing.bound_by,
            backoff_s=self.backoff_s,
            fetch_backoff_s=self.fetch_backoff_s,
            refused_s=max(self._refused_mono - now_mono, -_LONG_AGO_S),
            latency_s=self.latency_s,
            answered=self._answered,
            quota_interval_s=self._quota_interval_s,
            quota_s=max(self.quota_until_mono - now_mono, -_LONG_AGO_S),
        )

    def recall(self, record: BackoffRecord, now_mono: float, options: PacingOptions) -> None:
        """Merge the record of an earlier process, aged to now. The stricter value of each field counts."""
        most_s = options.backoff_max_s
        bounded = replace(  # the options of the other process may have permitted longer times
            record,
            closed_s=min(record.closed_s, most_s),
            backoff_s=min(record.backoff_s, _longest_s(options, _LONGEST_S)),
            fetch_backoff_s=min(record.fetch_backoff_s, _longest_s(options, _LONGEST_FETCH_S)),
            refused_s=min(record.refused_s, 0.0),
            latency_s=min(record.latency_s, most_s),
            quota_interval_s=min(record.quota_interval_s, most_s),
            quota_s=min(record.quota_s, most_s),
        )
        known = self.record(now_mono).joined(bounded)
        self.closing = Closing(now_mono + known.closed_s, known.closed_by)
        self.backoff_s, self.fetch_backoff_s = known.backoff_s, known.fetch_backoff_s
        self._refused_mono = now_mono + known.refused_s
        self.latency_s, self._answered = known.latency_s, known.answered
        self._quota_interval_s, self.quota_until_mono = known.quota_interval_s, now_mono + known.quota_s

    def smoothed_s(self, options: PacingOptions) -> float:
        """Return after how many seconds of rest the response times are forgotten."""
        return _RESTS * max(self._adaptive_s(options), options.min_delay_s)

    def _adaptive_s(self, options: PacingOptions) -> float:
        return min(options.adaptive_factor * self.latency_s, options.adaptive_max_s)

    @property
    def is_known(self) -> bool:
        """Whether an answer, a closing or a quota was recorded."""
        return self._answered or self.latency_s > 0.0 or self.remembered_until_mono > -inf

    @property
    def remembered_until_mono(self) -> float:
        """When this object may be forgotten. A refusal is remembered for one more backoff after the host opens."""
        return max(self._backoff_until_mono, self.quota_until_mono)

    @property
    def _backoff_until_mono(self) -> float:
        return max(self.closing.until_mono, self._learnt_mono) + max(self.backoff_s, self.fetch_backoff_s)

    def _is_new_refusal(self, backoff_s: float, elapsed_s: float, now_mono: float) -> bool:
        """Return whether the refused request started after the last refusal, or no refusal is remembered."""
        is_new = not backoff_s or now_mono - elapsed_s > self._refused_mono
        self._refused_mono = now_mono
        return is_new

    def _close(
        self,
        headers: Mapping[str, str],
        backoff_s: float,
        spread_s: float,
        now_mono: float,
        now_wall: float,
        options: PacingOptions,
    ) -> tuple[IgnoredHeader, ...]:
        """Close the host for Retry-After, but at least ``backoff_s``; without the header, for ``spread_s``."""
        asked_s = retry_after_s(headers, now_wall)
        closed_s, bound = (spread_s, Bound.BACKOFF) if asked_s is None else (max(asked_s, backoff_s), Bound.RETRY_AFTER)
        closed_s = min(closed_s, options.backoff_max_s)
        self.close(now_mono + closed_s, bound)
        if asked_s == closed_s or "retry-after" not in headers:
            return ()
        return (IgnoredHeader("retry-after", printable(headers["retry-after"][:100]), closed_s),)

    def _meter(
        self, headers: Mapping[str, str], now_mono: float, now_wall: float, options: PacingOptions
    ) -> tuple[IgnoredHeader, ...]:
        """Spread the rest of a quota over the rest of its time; if it is used up, wait for the next quota."""
        fields = quota_fields(headers)
        if not fields:
            return ()  # nearly all answers have no quota
        quota = remaining_quota(headers, now_wall)
        if quota is None:
            return tuple(IgnoredHeader(field, printable(headers[field][:100]), None) for field in fields)
        remaining, asked_s = quota
        reset_s = min(asked_s, options.backoff_max_s)
        if remaining <= 0:
            self.close(now_mono + reset_s, Bound.RATE_LIMIT)
        else:
            self._quota_interval_s, self.quota_until_mono = reset_s / remaining, now_mono + reset_s
        if reset_s == asked_s:
            return ()
        return tuple(IgnoredHeader(field, printable(headers[field][:100]), reset_s) for field in fields)


def _first_s(options: PacingOptions, interval_s: float) -> float:
    return max(options.backoff_min_s, _PACES * interval_s)


def _first_fetch_s(options: PacingOptions) -> float:
    return max(options.backoff_min_s, min(_FETCH_S, _MOST_TIMES * options.backoff_min_s))


def _halved(backoff_s: float, first_s: float) -> float:
    half_s = 0.5 * backoff_s
    return half_s if half_s >= first_s else 0.0


def _longest_s(options: PacingOptions, longest_s: float) -> float:
    """Return the longest backoff within the bounds of the options."""
    return min(max(longest_s, options.backoff_min_s), options.backoff_max_s)
