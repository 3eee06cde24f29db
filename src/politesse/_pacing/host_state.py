"""The state of a host, in a form that outlives its process. Pure; the time is an argument.

Theory of operation. A state describes a host at one moment. All its times are seconds from that moment, so that a
process with another clock can read them. The reader calculates how much time has passed since that moment:

    the reader's clocks           the time that has passed
    the same monotonic clock      by the monotonic clock: a change of the wall clock has no effect
    another monotonic clock       by the wall clock
    a wall clock that is behind   zero: the state counts as new. The reader notes it again, so this happens only once

A request that was under way may have ended at any later time, so it counts as ended now.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse.verdict import Bound

SEVERAL: Final = ""
_WRITTEN_LATER_S: Final = 60.0  # a state is stored within this time after it was noted, unless a clock was set


@dataclass(frozen=True, slots=True)
class BackoffRecord:
    """The backoff of a host at one moment. All times are seconds from that moment, negative in the past.

    Attributes:
        closed_s: how long the host is closed, in seconds.
        closed_by: one of CLOSINGS.
        backoff_s: the backoff of pages; 0 for none.
        fetch_backoff_s: the backoff of robots.txt; 0 for none.
        refused_s: the time of the last answer that set a backoff.
        latency_s: the smoothed response time.
        answered: whether an answer other than 429 and 5xx has set the response time, or a turn ended without an answer.
        quota_interval_s: the interval between two requests that a quota permits.
        quota_s: how long until the reset of the quota, in seconds.
        refusal_s: the backoff of answers that mean REFUSED; 0 for none.
    """

    closed_s: float
    closed_by: Bound
    backoff_s: float
    fetch_backoff_s: float
    refused_s: float
    latency_s: float
    answered: bool
    quota_interval_s: float
    quota_s: float
    refusal_s: float = 0.0

    @property
    def binds(self) -> bool:
        """Whether the host is closed, or a quota sets its interval."""
        return self.closed_s > 0.0 or self.quota_s > 0.0

    def later(self, passed_s: float) -> BackoffRecord:
        """Return the record as it is some seconds later."""
        return replace(
            self,
            closed_s=self.closed_s - passed_s,
            refused_s=self.refused_s - passed_s,
            quota_s=self.quota_s - passed_s,
        )

    def joined(self, other: BackoffRecord) -> BackoffRecord:
        """Merge two records of the same moment. The stricter value of each field counts."""
        closed = max(self, other, key=lambda answers: answers.closed_s)
        quota = max(self, other, key=lambda answers: (answers.quota_s > 0.0, answers.quota_interval_s))
        return BackoffRecord(
            closed_s=closed.closed_s,
            closed_by=closed.closed_by,
            backoff_s=max(self.backoff_s, other.backoff_s),
            fetch_backoff_s=max(self.fetch_backoff_s, other.fetch_backoff_s),
            refused_s=max(self.refused_s, other.refused_s),
            latency_s=max(self.latency_s, other.latency_s),
            answered=self.answered or other.answered,
            quota_interval_s=quota.quota_interval_s,
            quota_s=quota.quota_s,
            refusal_s=max(self.refusal_s, other.refusal_s),
        )


@dataclass(frozen=True, slots=True)
class HostState:
    """The state of a host at one moment.

    Attributes:
        noted_by: the name of the pacer that has noted the state; SEVERAL if states of several pacers were joined.
        run: the name of the run of the monotonic clock; see ``politesse.clock.Clock``.
        wall: the Unix time of the moment.
        mono: the monotonic time of the moment.
        asked_s: how many seconds ago the host was requested last, or None for never.
        under_way: whether a request was under way.
        answers: the backoff that the answers of the host have set, or None without answers.
        answers_s: how many seconds after the moment ``answers`` may be forgotten if the host is idle.
    """

    noted_by: str
    run: str
    wall: float
    mono: float
    asked_s: float | None = None
    under_way: bool = False
    answers: BackoffRecord | None = None
    answers_s: float = 0.0

    def passed_s(self, run: str, now_wall: float, now_mono: float) -> float:
        """Return how many seconds have passed since the moment; 0 if the moment is in the future of the wall clock.

        In that case the wall clock was ahead at that moment, or is behind now. A closed host then stays closed for its
        full time from now on. So the host opens late rather than early; ``backoff_max_s`` bounds the delay.
        """
        return max(0.0, now_mono - self.mono if run == self.run else now_wall - self.wall)

    def since_s(self, earlier: HostState) -> float:
        """Return the seconds from ``earlier`` to this state; negative if this state was noted first, but stored later.

        The result is 0 if a clock was set in between.
        """
        since_s = self.mono - earlier.mono if self.run == earlier.run else self.wall - earlier.wall
        return since_s if since_s > -_WRITTEN_LATER_S else 0.0

    def is_ahead(self, run: str, now_wall: float) -> bool:
        """Return whether the moment is in the future, so that the state has to be noted anew."""
        return run != self.run and self.wall > now_wall

    def asked_ago_s(self, passed_s: float, max_turn_s: float) -> float | None:
        """Return how many seconds ago the host was last requested, or None for never.

        A request that was under way at the moment counts as the last request. It counts as made now, or ``max_turn_s``
        after the moment if that is earlier.
        """
        if self.under_way:
            return max(0.0, passed_s - max_turn_s)
        return None if self.asked_s is None else self.asked_s + passed_s

    def answers_after(self, passed_s: float) -> BackoffRecord | None:
        """Return the backoff after some seconds, or None if it may be forgotten by then."""
        if self.answers is None or (passed_s >= self.answers_s and not self.under_way):
            return None
        return self.answers.later(passed_s)


def joined(ours: HostState, theirs: HostState, passed_s: float) -> HostState:
    """Return our state, merged with those parts of another process's state that still apply.

    A merged state has SEVERAL as ``noted_by``. If it had the name of our pacer, our next write would replace it, and
    lose the parts of the other process.

    Args:
        ours: the state now.
        theirs: the stored state that ours will replace.
        passed_s: the seconds from ``theirs`` to ``ours``.
    """
    noted_by, asked_s = ours.noted_by, ours.asked_s
    if theirs.asked_s is not None and (asked_s is None or theirs.asked_s + passed_s < asked_s):
        noted_by, asked_s = SEVERAL, max(0.0, theirs.asked_s + passed_s)
    answers, answers_s = ours.answers, ours.answers_s
    present = theirs.answers_after(passed_s)
    if present is not None and present.binds:
        noted_by, answers = SEVERAL, present if answers is None else answers.joined(present)
        answers_s = max(answers_s, theirs.answers_s - passed_s)
    return replace(ours, noted_by=noted_by, asked_s=asked_s, answers=answers, answers_s=answers_s)


MemoryOf: TypeAlias = "Callable[[str], HostMemory | None]"
"""A function that returns the memory of a scope: host, address or domain."""


class HostMemory(Protocol):
    """Keeps the states of hosts for longer than this process. Each memory is for one scope: host, address or domain."""

    async def recall(self, key: str, /) -> HostState | None:
        """Return the state of a host, or None if it has none. The call ends within a time limit.

        Raises:
            StoreError: if the state cannot be read. The caller does not have to publish the error.
        """

    def note(self, key: str, take: Callable[[], HostState], /) -> None:
        """Keep the state that ``take`` returns. The memory calls ``take`` later, once for several notes of a host."""
