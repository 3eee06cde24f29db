"""What a pacer knows of a host, in a form that outlives its process. Pure; the time is an argument.

Theory of operation. A state is taken at one moment, and all its times are seconds from that moment, so that it can be
read by another clock. How much time has passed since is found out when it is read:

    read by                    the time passed
    the same run of the clock  by the monotonic clock: a wall clock that was set changes nothing
    another run                by the wall clock
    a clock that is behind     none: the state counts as taken now, and is noted anew, so that it binds once more only

A request that was under way may have ended at any time since, so it counts as ended now.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse._pacing.backoff import Answers

SEVERAL: Final = ""
_WRITTEN_LATER_S: Final = 60.0  # a state waits for its store for a few seconds; more is a clock that was set


@dataclass(frozen=True, slots=True)
class HostState:
    """What is known of a host at one moment.

    Attributes:
        noted_by: names the pacer that has noted it; SEVERAL if it holds what another one has noted, too.
        run: names the run of the monotonic clock; see ``politesse.clock.Clock``.
        wall: the Unix time of the moment.
        mono: its monotonic time.
        asked_s: for how many seconds the host had not been asked; None if it never was.
        under_way: whether a request was under way.
        answers: what its answers say; None for nothing.
        answers_s: for how many seconds from the moment these bind an idle host.
    """

    noted_by: str
    run: str
    wall: float
    mono: float
    asked_s: float | None = None
    under_way: bool = False
    answers: Answers | None = None
    answers_s: float = 0.0

    def passed_s(self, run: str, now_wall: float, now_mono: float) -> float:
        """Return how many seconds have passed since the moment; 0 where the wall clock says that it is still to come.

        The clock was ahead then, or is behind now. A closure holds for its full length from now on: it opens too late
        rather than too soon, and that is bounded by ``backoff_max_s``.
        """
        return max(0.0, now_mono - self.mono if run == self.run else now_wall - self.wall)

    def since_s(self, earlier: HostState) -> float:
        """Return how many seconds ``earlier`` was noted before this; negative if this waited for its store meanwhile.

        As in ``passed_s``, it is 0 where a clock was set.
        """
        since_s = self.mono - earlier.mono if self.run == earlier.run else self.wall - earlier.wall
        return since_s if since_s > -_WRITTEN_LATER_S else 0.0

    def is_ahead(self, run: str, now_wall: float) -> bool:
        """Return whether the moment is still to come, so that what is left of it has to be noted anew."""
        return run != self.run and self.wall > now_wall

    def asked_ago_s(self, passed_s: float, max_turn_s: float) -> float | None:
        """Return how many seconds ago the host was last asked; None for never.

        A request that was under way has ended now, or ``max_turn_s`` after the moment if that was sooner.
        """
        if self.under_way:
            return max(0.0, passed_s - max_turn_s)
        return None if self.asked_s is None else self.asked_s + passed_s

    def answers_after(self, passed_s: float) -> Answers | None:
        """Return what the answers say when some seconds have passed; None if that may be forgotten by then."""
        if self.answers is None or (passed_s >= self.answers_s and not self.under_way):
            return None
        return self.answers.later(passed_s)


def joined(ours: HostState, theirs: HostState, passed_s: float) -> HostState:
    """Return our state, with what another process has noted and still binds: nothing that it says gets lost.

    A state that holds some of theirs is one of SEVERAL. Otherwise we would take it for our own when we replace it, and
    not join it again.

    Args:
        ours: the state now.
        theirs: the one that ours is to replace.
        passed_s: how many seconds theirs was noted before.
    """
    noted_by, asked_s = ours.noted_by, ours.asked_s
    if theirs.asked_s is not None and (asked_s is None or theirs.asked_s + passed_s < asked_s):
        noted_by, asked_s = SEVERAL, max(0.0, theirs.asked_s + passed_s)
    answers, answers_s = ours.answers, ours.answers_s
    told = theirs.answers_after(passed_s)
    if told is not None and told.binds:
        noted_by, answers = SEVERAL, told if answers is None else answers.joined(told)
        answers_s = max(answers_s, theirs.answers_s - passed_s)
    return replace(ours, noted_by=noted_by, asked_s=asked_s, answers=answers, answers_s=answers_s)


class HostMemory(Protocol):
    """Keeps the states of hosts for longer than this process. Each belongs to one scope: host, address or domain."""

    async def recall(self, key: str, /) -> HostState | None:
        """Return the state of a host; None if it has none. It ends within a time limit.

        Raises:
            StoreError: if the state cannot be read. That was published, if it has to be.
        """

    def note(self, key: str, take: Callable[[], HostState], /) -> None:
        """Have the state of a host kept that ``take`` returns; it is called later, once for several notes."""
