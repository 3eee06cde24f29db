"""What the answers of a host say about the pace that it can stand. Pure; the time is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

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
_MIN_CLOSED_S: Final = 1.0  # "Retry-After: 0" is no licence to hammer; doubled while nothing but refusals comes


@dataclass(frozen=True, slots=True)
class Overruled:
    """A header of an answer that is not obeyed as it stands: it is unreadable or out of range.

    Attributes:
        field: its name, in lower case.
        value: at most 100 characters of it, printable.
        applied_s: how long the host is left alone instead, in seconds; None where it changes nothing.
    """

    field: str
    value: str
    applied_s: float | None


class Bearing:
    """What is remembered of a host's answers.

    Attributes:
        closed_until_wall: the Unix time before which nothing may be requested.
        closed_by: RETRY_AFTER, BACKOFF or RATE_LIMIT.
    """

    __slots__ = (
        "_answered",
        "_closed_s",
        "_failed_wall",
        "_failures",
        "_in_a_row",
        "_latency_s",
        "_offset_s",
        "_quota",
        "_retrieval_s",
        "closed_by",
        "closed_until_wall",
    )

    def __init__(self) -> None:
        self.closed_until_wall = 0.0
        self.closed_by = Bound.BACKOFF
        self._failures = 0
        self._in_a_row = 0
        self._failed_wall = 0.0
        self._closed_s = 0.0  # for how long the last refusal closed it
        self._latency_s = 0.0
        self._retrieval_s = 0.0
        self._answered = False
        self._quota: tuple[float, float] = (0.0, 0.0)
        self._offset_s: float | None = None  # of the wall clock from the monotonic one, when it was read last

    def follow(self, now_mono: float, now_wall: float) -> None:
        """Move its Unix times by as much as the wall clock was set; call it before any other method.

        So only the monotonic clock times a closure: a wall clock that jumps ahead opens no host sooner.
        """
        offset_s = now_wall - now_mono
        if self._offset_s is None:
            self._offset_s = offset_s
        by_s = offset_s - self._offset_s
        if -AGREE_S < by_s < AGREE_S:
            return
        self._offset_s = offset_s
        self.closed_until_wall += by_s
        self._failed_wall += by_s
        interval_s, until_wall = self._quota
        self._quota = (interval_s, until_wall + by_s)

    def observe(
        self,
        status: int | None,
        headers: Mapping[str, str],
        elapsed_s: float,
        now_wall: float,
        options: PacingOptions,
        jitter: float,
    ) -> tuple[Overruled, ...]:
        """Record an answer; return which of its headers are not obeyed as they stand.

        Args:
            status: of the answer; None for none.
            headers: of the answer, names in lower case.
            elapsed_s: how long it took.
            now_wall: the Unix time.
            options: the bounds.
            jitter: 0 to 1.
        """
        # A refusal or an error that comes fast is no sign of a fast server: 429 and 5xx only lengthen the delay. All
        # other answers shorten it as well, and so does a turn of which none was observed: else it would never fall.
        answered = status is None or (status not in CLOSING and status < _SERVER_ERROR)
        if answered or elapsed_s > self._retrieval_s:
            self._retrieval_s = elapsed_s
        if not self._answered:
            self._answered = answered
            self._latency_s = max(self._latency_s, elapsed_s)
        elif answered or elapsed_s > self._latency_s:
            self._latency_s += _SMOOTHING * (elapsed_s - self._latency_s)
        overruled: tuple[Overruled, ...] = ()
        if status in CLOSING:
            overruled = self._close(headers, elapsed_s, now_wall, options, jitter)
        elif status is not None and self._failures:
            self._in_a_row = 0
            if now_wall >= self.closed_until_wall + self._closed_s:
                self._failures = 0  # quiet for as long as it was closed: forgiven
        return overruled + self._meter(headers, now_wall, options) if headers else overruled

    def refuse(
        self, headers: Mapping[str, str], elapsed_s: float, now_wall: float, options: PacingOptions, jitter: float
    ) -> tuple[Overruled, ...]:
        """Record a 429 or 503 to a fetch of robots.txt: the later of Retry-After and our own backoff counts."""
        return self._close(headers, elapsed_s, now_wall, options, jitter, backs_off=True)

    def slow(self, pace: Pace, now_wall: float, options: PacingOptions, *, rate_stated: bool) -> Pace:
        """Return the slower of ``pace`` and what the answers of the host say."""
        adaptive_s = min(options.adaptive_factor * self._latency_s, options.adaptive_max_s)
        if adaptive_s > pace.interval_s:
            pace = Pace(adaptive_s, Bound.ADAPTIVE)
        if options.rule_of_thumb_factor and not rate_stated:
            thumb_s = max(options.rule_of_thumb_factor * self._retrieval_s, options.rule_of_thumb_least_s)
            pace = slower(pace, Pace(thumb_s, Bound.RULE_OF_THUMB))
        interval_s, until_wall = self._quota
        return slower(pace, Pace(interval_s, Bound.RATE_LIMIT)) if now_wall < until_wall else pace

    def close(self, until_wall: float, bound_by: Bound) -> None:
        """Let nothing start before ``until_wall``."""
        if until_wall > self.closed_until_wall:
            self.closed_until_wall = until_wall
            self.closed_by = bound_by

    @property
    def remembered_until_wall(self) -> float:
        """When all of this may be forgotten: a refusal after as much quiet as it had closed the host for."""
        _, quota_until_wall = self._quota
        forgiven_wall = self.closed_until_wall + self._closed_s if self._failures else self.closed_until_wall
        return max(forgiven_wall, quota_until_wall)

    def _close(
        self,
        headers: Mapping[str, str],
        elapsed_s: float,
        now_wall: float,
        options: PacingOptions,
        jitter: float,
        *,
        backs_off: bool = False,
    ) -> tuple[Overruled, ...]:
        # A request that was under way when the host refused the last one belongs to the same refusal.
        if not self._failures or now_wall - elapsed_s > self._failed_wall:
            self._failures += 1
            self._in_a_row += 1
        self._failed_wall = now_wall
        asked_s = retry_after_s(headers, now_wall)
        if asked_s is None:
            closed_s = _doubled(options.backoff_min_s, self._failures) * (1.0 + _JITTER * jitter)
            bound = Bound.BACKOFF
        else:
            least_s = _doubled(_MIN_CLOSED_S, self._in_a_row)
            if backs_off:
                least_s = max(least_s, _doubled(options.backoff_min_s, self._failures))
            closed_s = max(asked_s, least_s)
            bound = Bound.RETRY_AFTER
        closed_s = min(closed_s, options.backoff_max_s)
        self.close(now_wall + closed_s, bound)
        self._closed_s = max(0.0, self.closed_until_wall - now_wall)
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
            self._quota = (reset_s / remaining, now_wall + reset_s)
        if reset_s == asked_s:
            return ()
        return tuple(Overruled(field, printable(headers[field][:100]), reset_s) for field in fields)


def _doubled(least_s: float, times: int) -> float:
    # 0 times: a refusal that was under way may come after an answer that ended the row.
    return least_s * 2.0 ** min(max(times - 1, 0), 32)
