"""What is known about the robots.txt of one origin now, in the form in which questions are answered from it."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final

from politesse._cache.outcome import earlier
from politesse._constants import AGREE_S
from politesse.verdict import AccessResult

if TYPE_CHECKING:
    from politesse._cache.outcome import Standing, Trouble
    from politesse.origin import Origin
    from politesse.robots import RuleSet

_ENTRY_BYTES: Final = 1_200
_CLOSED: Final = frozenset({AccessResult.UNREACHABLE, AccessResult.TOO_MANY_REQUESTS})


class Entry:
    """What is known about one origin, ready for decisions.

    Its moments are named on both clocks, and the one that comes first counts: a wall clock may be set back, and a
    monotonic one stands still while the machine sleeps. But what closes a site until it is asked again is timed by the
    monotonic clock alone: a wall clock that jumps ahead is no reason to ask sooner.

    Attributes:
        origin: whose.
        source: the copy, or the lack of one, that it comes from.
        trouble: what the next attempt goes on from.
        confirmed_mono: when the source was got or last confirmed.
        confirmed_wall: the same moment.
        refresh_mono: from when on a question has it asked for again; not after the deadline.
        refresh_wall: likewise.
        deadline_mono: from when on it holds no longer.
        deadline_wall: likewise.
        rules: the compiled rules, by agent; empty unless the source is SUCCESSFUL.
        used: whether a question was answered by it since the last sweep: recency is noted here, not by order.
    """

    __slots__ = (
        "confirmed_mono",
        "confirmed_wall",
        "deadline_mono",
        "deadline_wall",
        "origin",
        "refresh_mono",
        "refresh_wall",
        "rules",
        "source",
        "trouble",
        "used",
    )

    def __init__(
        self, origin: Origin, held: Standing, trouble: Trouble | None, rules: dict[str, RuleSet], at_mono: float
    ) -> None:
        self.origin = origin
        self.source = held.source
        self.trouble = trouble
        self.rules = rules
        self.used = False
        # Both clocks were read at the moment of judgement.
        self.confirmed_wall = held.source.fetched_wall
        self.confirmed_mono = at_mono - (held.at_wall - held.source.fetched_wall)
        self.deadline_mono = at_mono + (held.until_wall - held.at_wall)
        self.deadline_wall = inf if held.source.result in _CLOSED else held.until_wall
        self.refresh_mono = min(at_mono + (held.refresh_wall - held.at_wall), self.deadline_mono)
        self.refresh_wall = self.deadline_wall if trouble is not None else min(held.refresh_wall, self.deadline_wall)

    def holds(self, now_mono: float, now_wall: float) -> bool:
        """Whether it holds still."""
        return now_mono < self.deadline_mono and now_wall < self.deadline_wall

    def is_due(self, now_mono: float, now_wall: float) -> bool:
        """Whether it is to be asked for again."""
        return now_mono >= self.refresh_mono or now_wall >= self.refresh_wall

    def age_s(self, now_mono: float, now_wall: float) -> float:
        """Return the seconds since the source was got or last confirmed."""
        return max(now_mono - self.confirmed_mono, now_wall - self.confirmed_wall)

    def set_back(self, now_mono: float, now_wall: float) -> None:
        """Move its Unix times back by as much as the wall clock was set back: what they say is said in its terms."""
        by_s = self.age_s(now_mono, now_wall) - (now_wall - self.confirmed_wall)
        if by_s < AGREE_S:
            return
        source = self.source
        self.source = replace(
            source,
            fetched_wall=source.fetched_wall - by_s,
            fresh_until_wall=source.fresh_until_wall - by_s,
            not_before=None if source.not_before is None else source.not_before - by_s,
        )
        self.trouble = None if self.trouble is None else earlier(self.trouble, by_s)
        self.confirmed_wall -= by_s
        self.refresh_wall -= by_s
        self.deadline_wall -= by_s

    def answers(self, agent: str) -> bool:
        """Whether questions of ``agent`` can be answered from it."""
        return agent in self.rules or self.source.result is not AccessResult.SUCCESSFUL

    @property
    def weight_bytes(self) -> int:
        """About how much memory it takes; rules that origins share count for each."""
        words = len(self.source.final_url) + len(self.source.fault)
        return _ENTRY_BYTES + words + sum(rules.weight_bytes for rules in self.rules.values())

    def __repr__(self) -> str:
        return f"<Entry {self.origin}: {self.source.result}, rules for {sorted(self.rules)}>"
