"""How a host bears up: what its answers say about the pace it can stand. Pure; the time is an argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from politesse.access.freshness import retry_after_s
from politesse.pacing.pace import Pace, slower
from politesse.pacing.ratelimit import remaining_quota
from politesse.verdict import Bound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from politesse.pacing.pace import PacingOptions

_CLOSING: Final = frozenset({429, 503})
_SMOOTHING: Final = 0.5
_JITTER: Final = 0.1
_MIN_CLOSED_S: Final = 1.0  # "Retry-After: 0" is no licence to hammer


class Bearing:
    """What is remembered of a host's answers.

    Attributes:
        closed_until_wall: the Unix time before which nothing may be requested.
        closed_by: RETRY_AFTER, BACKOFF or RATE_LIMIT.
    """

    __slots__ = (
        "_failed_wall",
        "_failures",
        "_latency_s",
        "_quota",
        "_retrieval_s",
        "_worked",
        "closed_by",
        "closed_until_wall",
    )

    def __init__(self) -> None:
        self.closed_until_wall = 0.0
        self.closed_by = Bound.BACKOFF
        self._failures = 0
        self._failed_wall = 0.0
        self._latency_s = 0.0
        self._retrieval_s = 0.0
        self._worked = False
        self._quota: tuple[float, float] = (0.0, 0.0)

    def observe(
        self,
        status: int | None,
        headers: Mapping[str, str],
        elapsed_s: float,
        now_wall: float,
        options: PacingOptions,
        jitter: float,
    ) -> None:
        """Take in an answer: ``headers`` with lower-case names, ``status`` None for none; ``jitter`` is 0 to 1."""
        # An error that comes fast is no fast server: only answers that did their work may shorten the delay.
        worked = status is not None and 200 <= status <= 399  # noqa: PLR2004
        if worked or elapsed_s > self._retrieval_s:
            self._retrieval_s = elapsed_s
        if not self._worked:
            self._worked = worked
            self._latency_s = max(self._latency_s, elapsed_s)
        elif worked or elapsed_s > self._latency_s:
            self._latency_s += _SMOOTHING * (elapsed_s - self._latency_s)
        if status in _CLOSING:
            self._close(retry_after_s(headers, now_wall), elapsed_s, now_wall, options, jitter)
        elif self._failures and now_wall >= self.closed_until_wall + self._last_closed_s():
            self._failures = 0  # quiet for as long as it was closed: forgiven
        if headers:
            self._meter(headers, now_wall, options)

    def slow(self, pace: Pace, now_wall: float, options: PacingOptions, *, rate_stated: bool) -> Pace:
        """Return ``pace``, or what the host's answers ask for if that is slower."""
        adaptive_s = options.adaptive_factor * self._latency_s
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
        """When all of this may be forgotten: a failure after as much quiet as it had closed the host for."""
        _, quota_until_wall = self._quota
        forgiven_wall = self.closed_until_wall + self._last_closed_s() if self._failures else self.closed_until_wall
        return max(forgiven_wall, quota_until_wall)

    def _close(
        self, asked_s: float | None, elapsed_s: float, now_wall: float, options: PacingOptions, jitter: float
    ) -> None:
        # What was under way already when the host said so the last time is the same refusal, not the next one.
        if not self._failures or now_wall - elapsed_s >= self._failed_wall:
            self._failures += 1
        self._failed_wall = now_wall
        backoff_s = min(options.backoff_min_s * 2.0 ** min(self._failures - 1, 32), options.backoff_max_s)
        if asked_s is None:
            closed_s, bound = backoff_s * (1.0 + _JITTER * jitter), Bound.BACKOFF
        else:
            closed_s, bound = max(asked_s, _MIN_CLOSED_S), Bound.RETRY_AFTER
        self.close(now_wall + min(closed_s, options.backoff_max_s), bound)

    def _last_closed_s(self) -> float:
        return max(0.0, self.closed_until_wall - self._failed_wall)

    def _meter(self, headers: Mapping[str, str], now_wall: float, options: PacingOptions) -> None:
        """Spread what is left of a quota over what is left of its time; wait for the next one if nothing is."""
        quota = remaining_quota(headers, now_wall)
        if quota is None:
            return
        remaining, reset_s = quota
        reset_s = min(reset_s, options.backoff_max_s)
        if remaining <= 0:
            self.close(now_wall + reset_s, Bound.RATE_LIMIT)
        else:
            self._quota = (reset_s / remaining, now_wall + reset_s)
