"""Explains why a robots.txt allows or disallows a URL: the groups, the matching rules, and the deciding rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from politesse.origin import url_text
from politesse.robots.crawl_directives import VERSION_1, Version
from politesse.robots.line import NO_QUIRKS, Line, Quirk, is_void
from politesse.robots.rule_sets import RULE_SETS, Directives, RuleSet
from politesse.verdict import Match, Reason, Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.origin import StrOrURL
    from politesse.robots.document import RobotsTxt
    from politesse.robots.line import Group


@dataclass(frozen=True, slots=True)
class Explanation:
    r"""How a robots.txt decides about a URL.

    >>> from politesse import RobotsTxt
    >>> robots = RobotsTxt.parse("User-agent: *\nDisallow: /a\nAllow: /a/b")
    >>> explanation = explain(robots, "/a/b/c", "examplebot")
    >>> explanation.matches, explanation.winner
    ((<Rule line 2: 'Disallow: /a'>, <Rule line 3: 'Allow: /a/b'>), <Rule line 3: 'Allow: /a/b'>)

    Attributes:
        groups: the groups for the crawler, in the order of the file; empty if no group applies.
        matches: the rules of these groups that match the URL, in the order of the file. ``len(rule.pattern)`` is the
            length of a rule in octets.
        match: the answer, with the rule that decided.
        ended_by: the empty Disallow at which the dialect stopped its search for a rule, so that the URL is allowed;
            otherwise None.
        precedence: a sentence that explains which of several matching rules decides.
    """

    groups: tuple[Group, ...]
    matches: tuple[Rule, ...]
    match: Match
    ended_by: Line | None
    precedence: str

    @property
    def winner(self) -> Rule | None:
        """The rule that decided, or None."""
        return self.match.rule

    @property
    def quirks(self) -> tuple[Quirk, ...]:
        """The quirks of the decision: MATCHING_BOUND if rules were not compared because of the bound, else none.

        The bound limits the matching work. A Disallow that was not compared counts as matching, so it may be the
        winner.
        """
        return (Quirk.MATCHING_BOUND,) if self.match.bound_reached else NO_QUIRKS


def explain(robots: RobotsTxt, url: StrOrURL, agent: str | Sequence[str]) -> Explanation:
    """Explain how ``robots`` decides about a URL or target for a crawler.

    Each rule is compiled and compared alone, which takes seconds if both file and URL are hostile: do not call this on
    an event loop. ``RuleSet.match`` gives the same answer, including the bound on matching work.

    Args:
        robots: the file.
        url: absolute http(s) URL, or target that starts with ``/``.
        agent: see ``RobotsTxt.rules_for``.

    Raises:
        InvalidURL: see ``RuleSet.match``.
        TypeError: ``url`` is neither a str nor a yarl.URL.
        ConfigurationError: see ``RobotsTxt.rules_for``.
    """
    url = url_text(url)
    groups = robots.groups_for(agent)
    rules = robots.rules_for(agent)
    match = rules.match(url)
    alone = [compiled_alone(robots, line, group.version).match(url) for group in groups for line in group.rules]
    matches = tuple(one.rule for one in alone if one.rule is not None and one.reason is not Reason.NOT_ALLOWED)
    ended_by = ending_line(robots, groups) if match.reason is Reason.NO_RULE else None
    return Explanation(tuple(groups), matches, match, ended_by, rules.precedence)


def compiled_alone(robots: RobotsTxt, line: Line, version: Version = VERSION_1) -> RuleSet:
    """Return a rule set for one line of a file.

    The rule set has at most one rule, or two in a dialect with implied rules.
    """
    lines = [] if is_void(line) else [line]
    return RULE_SETS[robots.dialect.traits.winner](
        lines, Directives(version=version, origin=robots.origin), robots.dialect
    )


def matching_alone(rules: RuleSet, url: StrOrURL, most: int) -> list[tuple[Rule, bool]]:
    """Return the first ``most`` rules of a compiled file, each with whether it alone matches a URL or target.

    The same time limits apply as for ``explain``. Raises InvalidURL.
    """
    found = [(rule, rules.alone(rule).match(url)) for rule in rules.rules[:most]]
    return [(rule, alone.rule is not None and alone.reason is not Reason.NOT_ALLOWED) for rule, alone in found]


def ending_line(robots: RobotsTxt, groups: Sequence[Group]) -> Line | None:
    """Return the first empty Disallow of the groups if the dialect tries no rule after it; otherwise None."""
    if not robots.dialect.traits.matching.empty_disallow_ends:
        return None
    empty = (line for group in groups for line in group.rules if not line.value and line.field == "disallow")
    return next(empty, None)
