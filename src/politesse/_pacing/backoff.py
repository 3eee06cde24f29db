"""What the answers of a host say about the pace that it can stand. Pure; the time is an argument.

Theory of operation. A refusal is a 429 or a 503. It closes the host for our own backoff, or until its Retry-After if
that is later, and never for longer than ``backoff_max_s``. The backoff is remembered and changes by this table; what is
refused while it was under way at the last refusal is the same refusal, and doubles nothing:

    what happens          backoff of pages                            backoff of robots.txt
    the first refusal     first_s = max(backoff_min_s, 4 x interval)  first_s = 60 s
    a further refusal     doubled, to 900 s at most                   doubled, to 3,600 s at most
    an answer to a page   halved; forgotten if below first_s          halved; forgotten if below first_s
    quiet after it opens  forgotten after as long again               forgotten after as long again

    pages at 1 s:  503  503  503  200  503  200  200  200  503
    closed for:    10   20   40        40                  10

The one of robots.txt is what the cache waits for before it fetches the file again (``_cache/outcome.py``), so that the
host opens when it is fetched. It moves with ``backoff_min_s``: once to six times that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isnan, nan
from typing import TYPE_CHECKING, Final, NamedTuple

from politesse._constants import AGREE_S
from politesse._http.freshness import retry_after_s
from politesse._http.ratelimit import quota_fields, remaining_quota
from politesse._pacing.pace import Pace, slower
from politesse._text import printable
from politesse.verdict import Bound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from politesse._pacing.pace import PacingOptions

CLOSING: Final = frozenset({429, 503})
"""The statuses that close a host."""

_SERVER_ERROR: Final = 500
_SMOOTHING: Final = 0.5
_JITTER: Final = 0.1
_PACES: Final = 4.0  # our own backoff is at least so many intervals
_LONGEST_S: Final = 900.0
_FETCH_S: Final = 60.0
_FETCH_LONGEST_S: Final = 3600.0
_MOST_TIMES: Final = 6.0


@dataclass(frozen=True, slots=True)
class Overruled:
    """A header of an answer that is not obeyed as it stands: it is unreadable, too short or too long.

    Attributes:
        field: its name, in lower case.
        value: at most 100 characters of it, printable.
        applied_s: how long the host is left alone instead, in seconds; None where it changes nothing.
    """

    field: str
    value: str
    applied_s: float | None


class Heard(NamedTuple):
    """What the answers of a host say, for other processes that pace it.

    Attributes:
        pace_s: the interval that they ask for, in seconds; 0 for none.
        backoff_s: for how long the last refusal of a page would close it; 0 if none is remembered.
        fetch_backoff_s: the same of robots.txt.
        closed_s: for how many seconds it is still closed; 0 if it is open.
        closed_by: by what.
    """

    pace_s: float = 0.0
    backoff_s: float = 0.0
    fetch_backoff_s: float = 0.0
    closed_s: float = 0.0
    closed_by: Bound = Bound.BACKOFF


@dataclass(frozen=True, slots=True)
class Answers:
    """What a host's answers say, at one moment. All times are seconds from that moment on, in the past negative.

    Attributes:
        closed_s: for how long nothing may be requested.
        closed_by: RETRY_AFTER, BACKOFF or RATE_LIMIT.
        backoff_s: the backoff of pages; 0 for none.
        fetch_backoff_s: the backoff of robots.txt; 0 for none.
        refused_s: when the last refusal came.
        latency_s: the smoothed response time.
        retrieval_s: how long the last retrieval took.
        answered: whether any answer was neither a refusal nor an error.
        quota_interval_s: the interval over which a quota is spread.
        quota_s: for how long that holds.
    """

    closed_s: float
    closed_by: Bound
    backoff_s: float
    fetch_backoff_s: float
    refused_s: float
    latency_s: float
    retrieval_s: float
    answered: bool
    quota_interval_s: float
    quota_s: float

    @property
    def binds(self) -> bool:
        """Whether the host is closed, or a quota is spread."""
        return self.closed_s > 0.0 or self.quota_s > 0.0

    def later(self, passed_s: float) -> Answers:
        """Return the same when some seconds have passed."""
        return replace(
            self,
            closed_s=self.closed_s - passed_s,
            refused_s=self.refused_s - passed_s,
            quota_s=self.quota_s - passed_s,
        )

    def joined(self, other: Answers) -> Answers:
        """Return what both say of one moment: of each part, what binds for longer."""
        closed = max(self, other, key=lambda answers: answers.closed_s)
        quota = max(self, other, key=lambda answers: (answers.quota_s > 0.0, answers.quota_interval_s))
        return Answers(
            closed_s=closed.closed_s,
            closed_by=closed.closed_by,
            backoff_s=max(self.backoff_s, other.backoff_s),
            fetch_backoff_s=max(self.fetch_backoff_s, other.fetch_backoff_s),
            refused_s=max(self.refused_s, other.refused_s),
            latency_s=max(self.latency_s, other.latency_s),
            retrieval_s=max(self.retrieval_s, other.retrieval_s),
            answered=self.answered or other.answered,
            quota_interval_s=quota.quota_interval_s,
            quota_s=quota.quota_s,
        )

    def bounded(self, options: PacingOptions) -> Answers:
        """Return the same within the bounds of the options, which those of another process may have exceeded."""
        longest_s = options.backoff_max_s
        return replace(
            self,
            closed_s=min(self.closed_s, longest_s),
            backoff_s=min(self.backoff_s, _longest_s(options, _LONGEST_S)),
            fetch_backoff_s=min(self.fetch_backoff_s, _longest_s(options, _FETCH_LONGEST_S)),
            refused_s=min(self.refused_s, 0.0),
            latency_s=min(self.latency_s, longest_s),
            retrieval_s=min(self.retrieval_s, longest_s),
            quota_interval_s=min(self.quota_interval_s, longest_s),
            quota_s=min(self.quota_s, longest_s),
        )


class Bearing:
    """What is remembered of a host's answers.

    Attributes:
        closed_until_wall: the Unix time before which nothing may be requested.
        closed_by: RETRY_AFTER, BACKOFF or RATE_LIMIT.
        backoff_s: for how long the last refusal of a page would close it, in seconds; 0 if none is remembered.
        is_calm: whether there was no refusal and no quota yet: then it says nothing that the wall clock ends.
        latency_s: the smoothed response time.
        offset_s: of the wall clock from the monotonic one, when ``follow`` read them last; NaN before. While the two
            differ by less than AGREE_S more or less than that, ``follow`` has no effect.
    """

    __slots__ = (
        "_answered",
        "_fetch_backoff_s",
        "_quota",
        "_refused_wall",
        "_retrieval_s",
        "backoff_s",
        "closed_by",
        "closed_until_wall",
        "is_calm",
        "latency_s",
        "offset_s",
    )

    def __init__(self) -> None:
        self.closed_until_wall = 0.0
        self.closed_by = Bound.BACKOFF
        self.backoff_s = 0.0
        self._fetch_backoff_s = 0.0
        self._refused_wall = 0.0
        self.latency_s = 0.0
        self._retrieval_s = 0.0
        self._answered = False
        self._quota: tuple[float, float] = (0.0, 0.0)
        self.is_calm = True
        self.offset_s = nan

    def follow(self, now_mono: float, now_wall: float) -> None:
        """Move its Unix times by as much as the wall clock was set; call it before any other method.

        So only the monotonic clock times a closure: a wall clock that jumps ahead opens no host sooner.
        """
        offset_s = now_wall - now_mono
        if isnan(self.offset_s):
            self.offset_s = offset_s
        by_s = offset_s - self.offset_s
        if -AGREE_S < by_s < AGREE_S:
            return
        self.offset_s = offset_s
        self.closed_until_wall += by_s
        self._refused_wall += by_s
        interval_s, until_wall = self._quota
        self._quota = (interval_s, until_wall + by_s)

    def observe(
        self,
        status: int | None,
        headers: Mapping[str, str],
        elapsed_s: float,
        now_wall: float,
        options: PacingOptions,
        jitter: float = 0.0,
        interval_s: float = 0.0,
    ) -> tuple[Overruled, ...]:
        """Record an answer; return which of its headers are not obeyed as they stand.

        Args:
            status: of the answer; None for none.
            headers: of the answer, names in lower case.
            elapsed_s: how long it took.
            now_wall: the Unix time.
            options: the bounds.
            jitter: 0 to 1.
            interval_s: the pace; needed for a refusal, and as long as ``backoff_s`` is not 0.
        """
        self.time(status, elapsed_s)
        overruled: tuple[Overruled, ...] = ()
        if status in CLOSING:
            if self._is_new_refusal(self.backoff_s, elapsed_s, now_wall):
                first_s = _first_s(options, interval_s)
                self.backoff_s = min(max(first_s, 2.0 * self.backoff_s), _longest_s(options, _LONGEST_S))
            spread_s = self.backoff_s * (1.0 + _JITTER * jitter)
            overruled = self._close(headers, self.backoff_s, spread_s, now_wall, options)
        elif status is not None and (self.backoff_s or self._fetch_backoff_s):
            self.backoff_s = _halved(self.backoff_s, _first_s(options, interval_s))
            self._fetch_backoff_s = _halved(self._fetch_backoff_s, _first_fetch_s(options))
        return overruled + self._meter(headers, now_wall, options) if headers else overruled

    def time(self, status: int | None, elapsed_s: float) -> None:
        """Record how long an answer took: all that ``observe`` does while it is calm, unless the answer changes that.

        Args:
            status: of the answer; None for none.
            elapsed_s: how long it took.
        """
        # A refusal or an error that comes fast is no sign of a fast server: 429 and 5xx only lengthen the delay. All
        # other answers shorten it as well, and so does a turn of which none was observed: else it would never fall.
        answered = status is None or (status < _SERVER_ERROR and status not in CLOSING)
        if answered or elapsed_s > self._retrieval_s:
            self._retrieval_s = elapsed_s
        if not self._answered:
            self._answered = answered
            self.latency_s = max(self.latency_s, elapsed_s)
        elif answered or elapsed_s > self.latency_s:
            self.latency_s += _SMOOTHING * (elapsed_s - self.latency_s)

    def refuse(
        self, headers: Mapping[str, str], elapsed_s: float, now_wall: float, options: PacingOptions
    ) -> tuple[Overruled, ...]:
        """Record a 429 or 503 to a fetch of robots.txt.

        Without jitter: robots.txt is fetched again when its own backoff is over, and the host must be open then.
        """
        if self._is_new_refusal(self._fetch_backoff_s, elapsed_s, now_wall):
            doubled_s = max(_first_fetch_s(options), 2.0 * self._fetch_backoff_s)
            self._fetch_backoff_s = min(doubled_s, _longest_s(options, _FETCH_LONGEST_S))
        return self._close(headers, self._fetch_backoff_s, self._fetch_backoff_s, now_wall, options)

    def slow(self, pace: Pace, now_wall: float, options: PacingOptions, *, rate_stated: bool) -> Pace:
        """Return the slower of ``pace`` and what the answers of the host say."""
        adaptive_s = min(options.adaptive_factor * self.latency_s, options.adaptive_max_s)
        if adaptive_s > pace.interval_s:
            pace = Pace(adaptive_s, Bound.ADAPTIVE)
        if options.rule_of_thumb_factor and not rate_stated:
            thumb_s = max(options.rule_of_thumb_factor * self._retrieval_s, options.rule_of_thumb_least_s)
            pace = slower(pace, Pace(thumb_s, Bound.RULE_OF_THUMB))
        interval_s, until_wall = self._quota
        return slower(pace, Pace(interval_s, Bound.RATE_LIMIT)) if now_wall < until_wall else pace

    def close(self, until_wall: float, bound_by: Bound) -> None:
        """Let nothing start before ``until_wall``."""
        self.is_calm = False
        if until_wall > self.closed_until_wall:
            self.closed_until_wall = until_wall
            self.closed_by = bound_by

    def learn(self, backoff_s: float, fetch_backoff_s: float) -> None:
        """Take over longer backoffs, which another process remembers."""
        self.is_calm = False
        self.backoff_s = max(self.backoff_s, backoff_s)
        self._fetch_backoff_s = max(self._fetch_backoff_s, fetch_backoff_s)

    def heard(self, now_wall: float, options: PacingOptions) -> Heard:
        """Return what the answers say as of now."""
        pace = self.slow(Pace(0.0, Bound.FLOOR), now_wall, options, rate_stated=True)
        closed_s = max(0.0, self.closed_until_wall - now_wall)
        return Heard(pace.interval_s, self.backoff_s, self._fetch_backoff_s, closed_s, self.closed_by)

    def answers(self, now_wall: float) -> Answers:
        """Return all of this, as seconds from now on."""
        quota_interval_s, quota_until_wall = self._quota
        return Answers(
            closed_s=self.closed_until_wall - now_wall,
            closed_by=self.closed_by,
            backoff_s=self.backoff_s,
            fetch_backoff_s=self._fetch_backoff_s,
            refused_s=self._refused_wall - now_wall,
            latency_s=self.latency_s,
            retrieval_s=self._retrieval_s,
            answered=self._answered,
            quota_interval_s=quota_interval_s,
            quota_s=quota_until_wall - now_wall,
        )

    def recall(self, answers: Answers, now_wall: float, options: PacingOptions) -> None:
        """Add what an earlier process has noted, as of now: of each part, what binds for longer."""
        self.is_calm = False
        known = self.answers(now_wall).joined(answers.bounded(options))
        self.closed_until_wall, self.closed_by = now_wall + known.closed_s, known.closed_by
        self.backoff_s, self._fetch_backoff_s = known.backoff_s, known.fetch_backoff_s
        self._refused_wall = now_wall + known.refused_s
        self.latency_s, self._retrieval_s = known.latency_s, known.retrieval_s
        self._answered = known.answered
        self._quota = (known.quota_interval_s, now_wall + known.quota_s)

    @property
    def remembered_until_wall(self) -> float:
        """When all of this may be forgotten: a refusal after as much quiet as the backoff took."""
        _, quota_until_wall = self._quota
        return max(self.closed_until_wall + max(self.backoff_s, self._fetch_backoff_s), quota_until_wall)

    def _is_new_refusal(self, backoff_s: float, elapsed_s: float, now_wall: float) -> bool:
        """Return whether the request of a refusal has started after the last refusal, or none is remembered."""
        is_new = not backoff_s or now_wall - elapsed_s > self._refused_wall
        self._refused_wall = now_wall
        return is_new

    def _close(
        self, headers: Mapping[str, str], backoff_s: float, spread_s: float, now_wall: float, options: PacingOptions
    ) -> tuple[Overruled, ...]:
        """Close for Retry-After, but ``backoff_s`` at least; without one for ``spread_s``."""
        asked_s = retry_after_s(headers, now_wall)
        closed_s, bound = (spread_s, Bound.BACKOFF) if asked_s is None else (max(asked_s, backoff_s), Bound.RETRY_AFTER)
        closed_s = min(closed_s, options.backoff_max_s)
        self.close(now_wall + closed_s, bound)
        if asked_s == closed_s or "retry-after" not in headers:
            return ()
        return (Overruled("retry-after", printable(headers["retry-after"][:100]), closed_s),)

    def _meter(self, headers: Mapping[str, str], now_wall: float, options: PacingOptions) -> tuple[Overruled, ...]:
        """Spread the rest of a quota over the rest of its time; wait for the next quota if nothing is left."""
        fields = quota_fields(headers)
        if not fields:
            return ()  # nearly every answer
        quota = remaining_quota(headers, now_wall)
        if quota is None:
            return tuple(Overruled(field, printable(headers[field][:100]), None) for field in fields)
        remaining, asked_s = quota
        reset_s = min(asked_s, options.backoff_max_s)
        if remaining <= 0:
            self.close(now_wall + reset_s, Bound.RATE_LIMIT)
        else:
            self.is_calm = False
            self._quota = (reset_s / remaining, now_wall + reset_s)
        if reset_s == asked_s:
            return ()
        return tuple(Overruled(field, printable(headers[field][:100]), reset_s) for field in fields)


def _first_s(options: PacingOptions, interval_s: float) -> float:
    return max(options.backoff_min_s, _PACES * interval_s)


def _first_fetch_s(options: PacingOptions) -> float:
    return max(options.backoff_min_s, min(_FETCH_S, _MOST_TIMES * options.backoff_min_s))


def _longest_s(options: PacingOptions, longest_s: float) -> float:
    return min(max(longest_s, options.backoff_min_s), options.backoff_max_s)


def _halved(backoff_s: float, first_s: float) -> float:
    half_s = 0.5 * backoff_s
    return half_s if half_s >= first_s else 0.0
