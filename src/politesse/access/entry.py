"""What is known about the robots.txt of one origin now, in the form in which questions are answered from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from politesse.verdict import AccessResult

if TYPE_CHECKING:
    from politesse.access.outcome import Standing, Trouble
    from politesse.origin import Origin
    from politesse.robots import RuleSet

_ENTRY_BYTES: Final = 1_200


class Entry:
    """What is known about one origin, ready for decisions.

    Attributes:
        origin: whose.
        source: the copy, or the lack of one, that it comes from.
        trouble: what the next attempt goes on from.
        confirmed_mono: when the source was got or last confirmed.
        refresh_mono: from when on a question has it asked for again; not after the deadline.
        deadline_mono: from when on it holds no longer.
        rules: the compiled rules, by agent; empty unless the source is SUCCESSFUL.
        used: whether a question was answered by it since the last sweep: recency is noted here, not by order.
    """

    __slots__ = (
        "confirmed_mono",
        "deadline_mono",
        "origin",
        "refresh_mono",
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
        # The only place where the two clocks meet, both read at the moment of judgement: what is stored in wall time
        # is held to in monotonic time, however the wall clock may be set in between.
        self.confirmed_mono = at_mono - max(0.0, held.at_wall - held.source.fetched_wall)
        self.deadline_mono = at_mono + (held.until_wall - held.at_wall)
        self.refresh_mono = min(at_mono + (held.refresh_wall - held.at_wall), self.deadline_mono)

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
