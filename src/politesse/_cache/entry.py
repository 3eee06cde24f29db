"""What is known about one file of a site now, in the form in which questions are answered from it."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final

from politesse._constants import AGREE_S, ROBOTS_TXT
from politesse.verdict import AccessResult, Grounds

if TYPE_CHECKING:
    from politesse._cache.outcome import Standing
    from politesse._cache.record import Record, Trouble
    from politesse.origin import Origin
    from politesse.robots import RuleSet
    from politesse.verdict import Source

# Measured with tracemalloc over 3,000 origins, without the texts of the source: the weights sum up to 6 % more than
# entries and rules take.
_ENTRY_BYTES: Final = 860
_FILE_RULES_BYTES: Final = 280
_NO_RULES: Final[dict[str, RuleSet]] = {}
_NO_GROUNDS: Final = Grounds("", None, 0.0, None)
_CLOSED: Final = frozenset({AccessResult.UNREACHABLE, AccessResult.TOO_MANY_REQUESTS})


class FileEntry:
    """What is known about one file, and until when on both clocks.

    The clock that reaches a moment first decides: a wall clock may be set back, and a monotonic one stands still while
    the machine sleeps. But the wait for the next attempt is timed by the monotonic clock alone: a wall clock that jumps
    ahead is no reason to fetch sooner.

    Attributes:
        origin: whose.
        path: which file.
        source: the copy, or the lack of one, that it comes from.
        record: from which the next attempt goes on where the store has none; None if there is nothing to go on from.
        confirmed_mono: when the source was fetched or last confirmed.
        confirmed_wall: the same moment.
        refresh_mono: from when on a question has the file fetched again; not after the deadline.
        refresh_wall: likewise.
        deadline_mono: when it ceases to hold.
        deadline_wall: likewise.
        own_bytes: about how much memory it takes, without what it shares with other entries.
        used: second-chance bit of the eviction, set on every hit.
    """

    __slots__ = (
        "confirmed_mono",
        "confirmed_wall",
        "deadline_mono",
        "deadline_wall",
        "origin",
        "own_bytes",
        "path",
        "record",
        "refresh_mono",
        "refresh_wall",
        "source",
        "used",
    )

    def __init__(
        self, origin: Origin, path: str, held: Standing, record: Record | None, at_mono: float, *, own_bytes: int
    ) -> None:
        self.origin = origin
        self.path = path
        self.source = held.source
        self.record = record
        self.own_bytes = own_bytes
        self.used = False
        # Both clocks were read at the same moment.
        self.confirmed_wall = held.source.fetched_wall
        self.confirmed_mono = at_mono - (held.at_wall - held.source.fetched_wall)
        self.deadline_mono = at_mono + (held.until_wall - held.at_wall)
        self.deadline_wall = inf if held.source.result in _CLOSED else held.until_wall
        self.refresh_mono = min(at_mono + (held.refresh_wall - held.at_wall), self.deadline_mono)
        self.refresh_wall = (
            self.deadline_wall if self.trouble is not None else min(held.refresh_wall, self.deadline_wall)
        )

    @property
    def trouble(self) -> Trouble | None:
        """The failures since the source was fetched, as noted in the record; the next attempt counts on from there."""
        return None if self.record is None else self.record.trouble

    @property
    def weight_bytes(self) -> int:
        """About how much memory it takes, with what it shares."""
        return self.own_bytes

    def take_up(self) -> int:
        """Count it as kept; return about how many bytes more are in memory for it."""
        return self.own_bytes

    def let_go(self) -> int:
        """Count it as no longer kept; return about how many bytes become free."""
        return self.own_bytes

    def holds(self, now_mono: float, now_wall: float) -> bool:
        """Return whether it still holds."""
        return now_mono < self.deadline_mono and now_wall < self.deadline_wall

    def is_due(self, now_mono: float, now_wall: float) -> bool:
        """Return whether the file is to be fetched again."""
        return now_mono >= self.refresh_mono or now_wall >= self.refresh_wall

    def due_in_s(self, now_mono: float, now_wall: float) -> float:
        """Return in how many seconds the file is to be fetched again; 0 if that is due."""
        return max(0.0, min(self.refresh_mono - now_mono, self.refresh_wall - now_wall))

    def age_s(self, now_mono: float, now_wall: float) -> float:
        """Return the seconds since the source was fetched or last confirmed."""
        return max(now_mono - self.confirmed_mono, now_wall - self.confirmed_wall)

    def set_back(self, now_mono: float, now_wall: float) -> None:
        """Move its wall times back by as much as the wall clock was set back, so that they can be compared with it."""
        by_s = self.age_s(now_mono, now_wall) - (now_wall - self.confirmed_wall)
        if by_s < AGREE_S:
            return
        source = self.source
        moved = replace(
            source,
            fetched_wall=source.fetched_wall - by_s,
            fresh_until_wall=source.fresh_until_wall - by_s,
            not_before=None if source.not_before is None else source.not_before - by_s,
            failing_since_wall=None if source.failing_since_wall is None else source.failing_since_wall - by_s,
        )
        self.set_source(moved)
        self.confirmed_wall -= by_s
        self.refresh_wall -= by_s
        self.deadline_wall -= by_s

    def set_source(self, source: Source) -> None:
        """Replace the source, the only way to do so."""
        self.source = source

    def answers(self, agent: str) -> bool:
        """Return whether questions of ``agent`` can be answered from it; any, unless a subclass says otherwise."""
        del agent
        return True

    @property
    def agents(self) -> frozenset[str]:
        """The agents whose answers a fetch has to renew."""
        return frozenset()


class FileRules:
    """The compiled rules of one file, for all origins that have the same file: many have one word for word.

    Args:
        digest: see below.
        known: by digest, the rules of all files of which an entry is kept.

    Attributes:
        digest: of the file; where it says something else to each site, of file and site.
        by_agent: the rules by agent; more come when another agent asks.
        weight_bytes: about how much memory they take.
        entries: how many entries are kept that have them. They count once, with the first of these.
    """

    __slots__ = ("_known", "by_agent", "digest", "entries", "weight_bytes")

    def __init__(self, digest: bytes, known: dict[bytes, FileRules]) -> None:
        self.digest = digest
        self._known = known
        self.by_agent: dict[str, RuleSet] = {}
        self.weight_bytes = _FILE_RULES_BYTES
        self.entries = 0

    def add(self, compiled: dict[str, RuleSet]) -> int:
        """Add rules of agents that have none yet; return about how many bytes more are in memory for kept entries."""
        before_bytes = self.weight_bytes
        for agent, rule_set in compiled.items():
            if self.by_agent.setdefault(agent, rule_set) is rule_set:
                self.weight_bytes += rule_set.weight_bytes
        return self.weight_bytes - before_bytes if self.entries else 0

    def take_up(self) -> int:
        """Count one entry more; return about how many bytes more are in memory for it."""
        self.entries += 1
        if self.entries > 1:
            return 0
        self._known[self.digest] = self
        return self.weight_bytes

    def let_go(self) -> int:
        """Count one entry less; return about how many bytes become free."""
        self.entries -= 1
        if self.entries:
            return 0
        if self._known.get(self.digest) is self:
            del self._known[self.digest]
        return self.weight_bytes


class Entry(FileEntry):
    """What is known about the robots.txt of one origin, ready for decisions.

    Attributes:
        file_rules: those of its file; None unless the source is SUCCESSFUL.
        rules: the same by agent, one attribute nearer; empty without a file.
        grounds: of verdicts for the agent with which ``turn_to`` was called last; those of no agent before.
        deciding: the rules of that agent; None before. The hot path finds both without a dict.
        is_unpaced: whether neither these rules nor the answer with its robots.txt say anything about the pace.
    """

    __slots__ = ("deciding", "file_rules", "grounds", "is_unpaced", "rules")

    def __init__(
        self, origin: Origin, held: Standing, record: Record, file_rules: FileRules | None, at_mono: float
    ) -> None:
        own_bytes = _ENTRY_BYTES + len(held.source.final_url) + len(held.source.fault)
        # An entry does not keep the file, so it remembers only the failures.
        failures = None if record.trouble is None else replace(record, copy=None)
        super().__init__(origin, ROBOTS_TXT, held, failures, at_mono, own_bytes=own_bytes)
        self.file_rules = file_rules
        self.rules = _NO_RULES if file_rules is None else file_rules.by_agent
        self.grounds = _NO_GROUNDS
        self.deciding: RuleSet | None = None
        self.is_unpaced = False

    def turn_to(self, agent: str) -> RuleSet | None:
        """Return the rules of ``agent``; keep them and what its verdicts rest on at hand. None if there are none."""
        rules = self.rules.get(agent)
        if rules is not None:
            self.grounds = Grounds(agent, self.source, self.confirmed_mono, rules.site_usage)
            self.deciding = rules
            self.is_unpaced = not (self.source.of_host or rules.crawl_delay is not None or rules.request_rates)
        return rules

    def set_source(self, source: Source) -> None:
        """See FileEntry; what verdicts rest on changes with it."""
        super().set_source(source)
        self.grounds = _NO_GROUNDS

    @property
    def weight_bytes(self) -> int:
        """About how much memory it takes, with its rules."""
        return self.own_bytes if self.file_rules is None else self.own_bytes + self.file_rules.weight_bytes

    def take_up(self) -> int:
        """See FileEntry; rules that another kept entry has count with that one."""
        return self.own_bytes if self.file_rules is None else self.own_bytes + self.file_rules.take_up()

    def let_go(self) -> int:
        """See FileEntry; rules count until the last entry that has them is let go."""
        return self.own_bytes if self.file_rules is None else self.own_bytes + self.file_rules.let_go()

    def answers(self, agent: str) -> bool:
        """Return whether questions of ``agent`` can be answered from it."""
        return agent in self.rules or self.source.result is not AccessResult.SUCCESSFUL

    @property
    def agents(self) -> frozenset[str]:
        """The agents whose rules it has."""
        return frozenset(self.rules)

    def __repr__(self) -> str:
        return f"<Entry {self.origin}: {self.source.result}, rules for {sorted(self.rules)}>"
