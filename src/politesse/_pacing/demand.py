"""How the answers of a host close the host and set its pace. Pure; the time is an argument.

Theory of operation. ``refusals.py`` defines what each answer means. A closure is a time without requests. An answer
that means BUSY or REFUSED closes the host for a backoff and up to a tenth more, or for its Retry-After if that is
longer, but never for longer than ``backoff_max_s``. Each column of this table is a separate backoff. Overlapping
answers count once: the backoff is doubled only by answers to requests that started after the last such answer came.

    answer                  BUSY, pages                       BUSY, robots.txt       REFUSED
    the first such answer   max(backoff_min_s, 4 x interval)  60 s                   refused_min_s
    a further such answer   doubled, to 900 s at most         doubled, to 3,600 s    doubled
    other answers to pages  halved; below the first, 0        halved; the same       halved by SUCCESS; the same

    interval 1 s:  503  503  503  200  503  200  200  200  503
    closed for:    10   20   40        40                  10

After the host opens, the three backoffs are remembered for a time that equals the longest, but at most for a day. A
request that starts after this time resets all three to 0.

An ERROR does not halve the backoffs; it doubles the adaptive delay. The third ERROR in a row counts as BUSY. A
Retry-After with any other status also closes the host, but does not set a backoff.

When the backoff of robots.txt is over, the host is open, and the cache fetches robots.txt again
(``_cache/outcome.py``). The first such backoff is 60 s, but at least ``backoff_min_s`` and at most six times
``backoff_min_s``.

Any answer to a page also sets the adaptive delay, and may state a quota (RateLimit headers). An answer to robots.txt
does neither. The adaptive delay is ``adaptive_factor`` times the smoothed response time. After a rest that is longer
than the delay, the average begins anew (``rested``).

``politesse._pacing`` lists the steps to add a header.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, log2
from typing import TYPE_CHECKING, Final

from politesse._base.constants import DAY_S
from politesse._http.freshness import retry_after_s
from politesse._http.ratelimit import quota_fields, remaining_quota
from politesse._pacing.host_state import BackoffRecord
from politesse._pacing.pace import Closing, Pace, PacingOptions, Start, rates_hold_until, slower, visit_from
from politesse._pacing.refusals import (
    IgnoredHeader,
    Meaning,
    described_refusal,
    is_served,
    meaning_of,
    shown,
)
from politesse.verdict import Bound, Refusal

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from politesse.robots import RuleSet

FETCH_CLOSING: Final = frozenset({429, 503})
"""These statuses of robots.txt close the host. The cache does not report a 503 that disallows only its own origin."""

_LONGEST_S: Final = 900.0
_LONGEST_FETCH_S: Final = 3600.0
_LONGEST_REFUSAL_S: Final = 30.0 * DAY_S  # limits the doubled backoff; ``backoff_max_s`` limits the closure
_SMOOTHING: Final = 0.5
_RESTS: Final = 1.1  # after a rest of this many delays, a new average begins; the 0.1 allows for a late event loop
_JITTER: Final = 0.1
_PACES: Final = 4.0  # the first backoff is at least this many intervals of the host
_FETCH_S: Final = 60.0
_ERRORS: Final = 3  # this many consecutive server errors count as BUSY
_MOST_TIMES: Final = 6.0
_OPEN: Final = Closing(-inf, Bound.BACKOFF)
_LONG_AGO_S: Final = 30.0 * DAY_S  # a record holds this in place of an infinite time


@dataclass(slots=True, eq=False)
class Demand:
    """The closure, the backoffs, the response time and the quota that the answers of a host have set.

    Attributes:
        closing: the end of the closure, by the monotonic clock. A change of the wall clock cannot open the host early.
        backoff_s: the backoff of pages, after answers that mean BUSY, in seconds; 0 for none.
        fetch_backoff_s: the backoff of robots.txt, after answers of 429 and 503, in seconds; 0 for none.
        refusal_s: the backoff after answers that mean REFUSED, in seconds; 0 for none.
        latency_s: the smoothed response time.
        quota_until_mono: until when the interval of a quota holds.
        last_mono: when the host was last requested, for the next pacer of the process; see ``Marks``.
    """

    closing: Closing = _OPEN
    backoff_s: float = 0.0
    fetch_backoff_s: float = 0.0
    refusal_s: float = 0.0
    latency_s: float = 0.0
    quota_until_mono: float = -inf
    last_mono: float = -inf
    _quota_interval_s: float = 0.0
    _refused_mono: float = -inf
    _refused_by: str = ""
    _denials: int = 0
    _denials_until_mono: float = -inf
    _errors: int = 0
    _answered: bool = False
    _learnt_mono: float = -inf

    def rested(self, idle_s: float, started_mono: float, options: PacingOptions) -> bool:
        """When a request starts, forget the backoffs, denials and response times that are too old by then.

        Args:
            idle_s: how long the host had rested before the request.
            started_mono: when the request started.
            options: the bounds.

        Returns:
            Whether nothing is left but the response time: a PLAIN answer then changes nothing else.
        """
        if (self.backoff_s or self.fetch_backoff_s or self.refusal_s) and started_mono >= self._backoff_until_mono:
            self.backoff_s = self.fetch_backoff_s = self.refusal_s = 0.0
        if self._denials and started_mono >= self._denials_until_mono:
            self._denials = 0
        adaptive_s = min(options.adaptive_factor * self.latency_s, options.adaptive_max_s)
        if idle_s >= _RESTS * options.min_delay_s and idle_s >= _RESTS * adaptive_s:
            self.latency_s, self._answered = 0.0, False
        return not (self.backoff_s or self.fetch_backoff_s or self.refusal_s or self._denials or self._errors)

    def answered(self, elapsed_s: float, *, is_served: bool = True) -> None:
        """Record a response time.

        A fast refusal or error does not show that the server is fast: without ``is_served`` the time only lengthens the
        delay. A turn that ended without an answer may also shorten the delay. Otherwise the delay would never shrink in
        a program that never calls ``observe``.
        """
        if not self._answered:
            self._answered = is_served
            self.latency_s = max(self.latency_s, elapsed_s)
        elif is_served or elapsed_s > self.latency_s:
            self.latency_s += _SMOOTHING * (elapsed_s - self.latency_s)

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
            interval_s: the interval of the request.
        """
        self.answered(elapsed_s, is_served=status is None or is_served(status))
        if status is None:
            return ()
        meaning = self._meaning(status, headers, now_mono, options)
        backoff_s, bound_by = 0.0, Bound.RETRY_AFTER
        if meaning is Meaning.BUSY:
            first_s, longest_s = _first_s(options, interval_s), _longest_s(options, _LONGEST_S)
            self.backoff_s = self._doubled(self.backoff_s, first_s, longest_s, now_mono - elapsed_s, now_mono)
            backoff_s, bound_by = self.backoff_s, Bound.BACKOFF
        elif meaning is Meaning.REFUSED:
            times = options.refused_min_s, _LONGEST_REFUSAL_S, now_mono - elapsed_s, now_mono
            self.refusal_s = self._doubled(self.refusal_s, *times)
            self._refused_by = described_refusal(status, headers)
            backoff_s, bound_by = self.refusal_s, Bound.REFUSED
        elif meaning is Meaning.ERROR and options.adaptive_factor:
            delay_s = min(2.0 * interval_s, options.adaptive_max_s)
            self.latency_s = max(self.latency_s, delay_s / options.adaptive_factor)
        elif meaning is not Meaning.ERROR:
            self._halve(meaning, options, interval_s)
        if not backoff_s and not headers:
            return ()
        own = Pace(backoff_s * (1.0 + _JITTER * jitter), bound_by)
        ignored = self._close(headers, backoff_s, own, now_mono, now_wall, options)
        return ignored + self._meter(headers, now_mono, now_wall, options) if headers else ignored

    def _meaning(self, status: int, headers: Mapping[str, str], now_mono: float, options: PacingOptions) -> Meaning:
        """Return the meaning of an answer, which the errors and denials before it may change."""
        meaning = meaning_of(status, headers)
        if meaning is Meaning.ERROR:
            self._errors += 1
            return Meaning.BUSY if self._errors >= _ERRORS else Meaning.ERROR
        if meaning is not Meaning.BUSY:
            self._errors = 0
        if meaning is Meaning.SUCCESS:
            self._denials = 0
        elif meaning is Meaning.DENIED:
            self._denials += 1
            self._denials_until_mono = now_mono + options.refused_min_s
            if self.refusal_s > 0.0 or self._denials >= options.refused_after:
                return Meaning.REFUSED
        return meaning

    def _doubled(
        self, backoff_s: float, first_s: float, longest_s: float, started_mono: float, now_mono: float
    ) -> float:
        """Return a backoff after an answer that sets or doubles it, and record the time of the answer.

        An answer to a request that started before a backoff was last set does not double the backoff.
        """
        is_new = not backoff_s or started_mono > self._refused_mono
        self._refused_mono = now_mono
        return min(max(first_s, 2.0 * backoff_s), longest_s) if is_new else backoff_s

    def _halve(self, meaning: Meaning, options: PacingOptions, interval_s: float) -> None:
        self.backoff_s = _halved(self.backoff_s, _first_s(options, interval_s))
        self.fetch_backoff_s = _halved(self.fetch_backoff_s, _first_fetch_s(options))
        if meaning is Meaning.SUCCESS:
            self.refusal_s = _halved(self.refusal_s, options.refused_min_s)

    def observe_fetch(
        self, headers: Mapping[str, str], now_mono: float, now_wall: float, options: PacingOptions
    ) -> tuple[IgnoredHeader, ...]:
        """Record a 429 or 503 to a request for robots.txt.

        No jitter is added: robots.txt is fetched again right after this backoff, and the host must be open by then.
        """
        first_s, longest_s = _first_fetch_s(options), _longest_s(options, _LONGEST_FETCH_S)
        # A host gets one such request at a time, so each began after the answer to the one before.
        self.fetch_backoff_s = min(max(first_s, 2.0 * self.fetch_backoff_s), longest_s)
        own = Pace(self.fetch_backoff_s, Bound.BACKOFF)
        return self._close(headers, self.fetch_backoff_s, own, now_mono, now_wall, options)

    def start(
        self, pace: Pace, timed: Collection[RuleSet], now_mono: float, now_wall: float, options: PacingOptions
    ) -> Start:
        """Return when a request may start, at the slowest of ``pace``, the adaptive delay and the quota.

        Args:
            pace: the interval before this request that is stated for ``now_wall``.
            timed: all statements for the agent of this request if any of them depends on the time of day; otherwise
                empty.
            now_mono: the monotonic time.
            now_wall: the Unix time.
            options: the bounds.
        """
        adaptive_s = min(options.adaptive_factor * self.latency_s, options.adaptive_max_s)
        if adaptive_s > pace.interval_s:
            pace = Pace(adaptive_s, Bound.ADAPTIVE)
        if now_mono < self.quota_until_mono:
            pace = slower(pace, Pace(self._quota_interval_s, Bound.RATE_LIMIT))
        ready_mono, bound_by = self.last_mono + pace.interval_s, pace.bound_by
        if timed:
            ready_mono = min(ready_mono, now_mono + (rates_hold_until(timed, now_wall) - now_wall))
        if ready_mono < self.closing.until_mono > now_mono:
            ready_mono, bound_by = self.closing
        if timed:
            start_wall = now_wall + max(0.0, ready_mono - now_mono)
            opens_wall = visit_from(timed, start_wall)
            if opens_wall > start_wall:
                ready_mono, bound_by = now_mono + (opens_wall - now_wall), Bound.VISIT_TIME
        return Start(ready_mono, bound_by, pace, ready_mono - 2.0 * pace.interval_s)

    def close(self, until_mono: float, bound_by: Bound) -> None:
        """Close the host until ``until_mono``."""
        if until_mono > self.closing.until_mono:
            self.closing = Closing(until_mono, bound_by)

    def learn(self, backoff_s: float, fetch_backoff_s: float, refusal_s: float, now_mono: float) -> None:
        """Adopt the longer backoffs that another process remembers."""
        self.backoff_s = max(self.backoff_s, backoff_s)
        self.fetch_backoff_s = max(self.fetch_backoff_s, fetch_backoff_s)
        self.refusal_s = max(self.refusal_s, refusal_s)
        self._learnt_mono = now_mono

    def interval_s(self, now_mono: float, options: PacingOptions) -> float:
        """Return the interval that the host's answers ask for, in seconds; 0 for none."""
        return self.start(Pace(0.0, Bound.FLOOR), (), now_mono, 0.0, options).pace.interval_s

    def refusal(self, options: PacingOptions) -> Refusal | None:
        """Return the number of consecutive refusals, with the status and headers of the last refusal; or None."""
        if not self.refusal_s:
            return None
        return Refusal(1 + max(0, round(log2(self.refusal_s / options.refused_min_s))), self._refused_by)

    def record(self, now_mono: float) -> BackoffRecord:
        """Return a record of the backoff, with all times as seconds from now."""
        return BackoffRecord(
            closed_s=max(self.closing.until_mono - now_mono, -_LONG_AGO_S),
            closed_by=self.closing.bound_by,
            backoff_s=self.backoff_s,
            fetch_backoff_s=self.fetch_backoff_s,
            refusal_s=self.refusal_s,
            refused_s=max(self._refused_mono - now_mono, -_LONG_AGO_S),
            latency_s=self.latency_s,
            answered=self._answered,
            quota_interval_s=self._quota_interval_s,
            quota_s=max(self.quota_until_mono - now_mono, -_LONG_AGO_S),
        )

    def recall(self, record: BackoffRecord, now_mono: float, options: PacingOptions) -> None:
        """Merge the record of an earlier process, adjusted to now. The stricter value of each field counts."""
        most_s = options.backoff_max_s
        bounded = replace(  # the options of the other process may have permitted longer times
            record,
            closed_s=min(record.closed_s, most_s),
            backoff_s=min(record.backoff_s, _longest_s(options, _LONGEST_S)),
            fetch_backoff_s=min(record.fetch_backoff_s, _longest_s(options, _LONGEST_FETCH_S)),
            refusal_s=min(record.refusal_s, _LONGEST_REFUSAL_S),
            refused_s=min(record.refused_s, 0.0),
            latency_s=min(record.latency_s, most_s),
            quota_interval_s=min(record.quota_interval_s, most_s),
            quota_s=min(record.quota_s, most_s),
        )
        known = self.record(now_mono).joined(bounded)
        self.closing = Closing(now_mono + known.closed_s, known.closed_by)
        self.backoff_s, self.fetch_backoff_s, self.refusal_s = known.backoff_s, known.fetch_backoff_s, known.refusal_s
        self._refused_mono = now_mono + known.refused_s
        self.latency_s, self._answered = known.latency_s, known.answered
        self._quota_interval_s, self.quota_until_mono = known.quota_interval_s, now_mono + known.quota_s

    def smoothed_s(self, options: PacingOptions) -> float:
        """Return how long a host must rest until its response times are forgotten, in seconds."""
        adaptive_s = min(options.adaptive_factor * self.latency_s, options.adaptive_max_s)
        return _RESTS * max(adaptive_s, options.min_delay_s)

    @property
    def is_known(self) -> bool:
        """Whether an answer, a quota or a closure was recorded."""
        return self._answered or self.latency_s > 0.0 or self.remembered_until_mono > -inf

    @property
    def remembered_until_mono(self) -> float:
        """When this object may be forgotten: all backoffs, the quota and the denials have become too old by then."""
        return max(self._backoff_until_mono, self.quota_until_mono, self._denials_until_mono)

    @property
    def _backoff_until_mono(self) -> float:
        longest_s = max(self.backoff_s, self.fetch_backoff_s, self.refusal_s)
        return max(self.closing.until_mono, self._learnt_mono) + min(longest_s, DAY_S)

    def _close(
        self,
        headers: Mapping[str, str],
        backoff_s: float,
        own: Pace,
        now_mono: float,
        now_wall: float,
        options: PacingOptions,
    ) -> tuple[IgnoredHeader, ...]:
        """Close the host for the longer of Retry-After and ``backoff_s``, or for ``own`` if there is no Retry-After."""
        asked_s = retry_after_s(headers, now_wall) if headers else None
        closed_s, bound_by = own
        if asked_s is not None:
            closed_s = max(asked_s, backoff_s)
            bound_by = bound_by if bound_by is Bound.REFUSED else Bound.RETRY_AFTER
        closed_s = min(closed_s, options.backoff_max_s)
        if closed_s > 0.0:
            self.close(now_mono + closed_s, bound_by)
        if asked_s == closed_s or "retry-after" not in headers:
            return ()
        return (IgnoredHeader("retry-after", shown(headers["retry-after"]), closed_s or None, asked_s),)

    def _meter(
        self, headers: Mapping[str, str], now_mono: float, now_wall: float, options: PacingOptions
    ) -> tuple[IgnoredHeader, ...]:
        """Spread the remaining requests of a quota over its remaining time. If none remain, close the host."""
        fields = quota_fields(headers)
        if not fields:
            return ()  # most answers have no quota
        quota = remaining_quota(headers, now_wall)
        if quota is None:
            return tuple(IgnoredHeader(field, shown(headers[field]), None) for field in fields)
        remaining, asked_s = quota
        reset_s = min(asked_s, options.backoff_max_s)
        if remaining < 1:  # a part of a request is no request
            self.close(now_mono + reset_s, Bound.RATE_LIMIT)
        else:
            self._quota_interval_s, self.quota_until_mono = reset_s / remaining, now_mono + reset_s
        if reset_s == asked_s:
            return ()
        return tuple(IgnoredHeader(field, shown(headers[field]), reset_s, asked_s) for field in fields)


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
