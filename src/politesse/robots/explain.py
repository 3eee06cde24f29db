"""Why a robots.txt allows a URL, or does not: the groups, every rule that matched, the one that decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from politesse.robots.crawl_directives import VERSION_1
from politesse.robots.line import NO_QUIRKS, Quirk
from politesse.robots.rule_sets.base import Directives, RuleSet
from politesse.verdict import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.robots.crawl_directives import Version
    from politesse.robots.document import RobotsTxt
    from politesse.robots.group import Group
    from politesse.robots.line import Line
    from politesse.verdict import Match, Rule


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a file came to its answer.

    Attributes:
        groups: those that bind the crawler, in the order of the file; empty where none does.
        matches: the rules of these groups that match, in the order of the file; ``len(rule.pattern)`` is the length
            of each in octets.
        match: the answer, with the rule that decided.
        ended_by: the empty Disallow that ended the trial before a rule decided, where a dialect has that; else None.
        precedence: which of several rules that match decides, in words.
    """

    groups: tuple[Group, ...]
    matches: tuple[Rule, ...]
    match: Match
    ended_by: Line | None
    precedence: str

    @property
    def winner(self) -> Rule | None:
        """The rule that decided; None where none did."""
        return self.match.rule

    @property
    def quirks(self) -> tuple[Quirk, ...]:
        """What was unusual about the decision: MATCHING_BOUND where the winner was not compared, or others were not."""
        return (Quirk.MATCHING_BOUND,) if self.match.bound_reached else NO_QUIRKS


def explain(robots: RobotsTxt, url: str, agent: str | Sequence[str]) -> Explanation:
    """Tell how ``robots`` judges a URL or target for a crawler; raises InvalidURL.

    ``agent`` is as in ``RobotsTxt.rules_for``, ConfigurationError included. It is for people: each rule is compiled and
    compared by itself, which takes seconds where file and URL are both hostile, so keep it off an event loop. The
    answer is that of a decision, bound included.
    """
    groups = robots.groups_for(agent)
    rules = robots.rules_for(agent)
    match = rules.match(url)
    matches: list[Rule] = []
    for group in groups:
        for line in group.rules:
            alone = compiled_alone(robots, line, group.version).match(url)
            if alone.rule is not None and alone.reason is not Reason.NOT_ALLOWED:
                matches.append(alone.rule)
    ended_by = ending_line(robots, groups) if match.reason is Reason.NO_RULE else None
    return Explanation(tuple(groups), tuple(matches), match, ended_by, rules.precedence)


def compiled_alone(robots: RobotsTxt, line: Line, version: Version = VERSION_1) -> RuleSet:
    """Return the rules that one line of a file stands for: none, one, or in some dialects two."""
    directives = Directives()
    directives.version = version
    return robots.dialect.traits.rule_set([line], directives, robots.dialect.traits.matching, robots.origin)


def ending_line(robots: RobotsTxt, groups: Sequence[Group]) -> Line | None:
    """Return the first empty Disallow of the groups, where a dialect lets it end the trial; else None."""
    if not robots.dialect.traits.matching.empty_disallow_ends:
        return None
    empty = (line for group in groups for line in group.rules if not line.value and line.field == "disallow")
    return next(empty, None)
