r"""The differences between two robots.txt: rules, directives, and decisions about URLs.

>>> from politesse import RobotsTxt
>>> before = RobotsTxt.parse("User-agent: *\nDisallow: /a\nDisallow: /b")
>>> after = RobotsTxt.parse("User-agent: *\nDisallow: /a\nAllow: /b")
>>> [change] = RobotsDiff(before, after).changes()
>>> change.subject, change.before.text, change.after.text
('/b', 'Disallow: /b', 'Allow: /b')
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from politesse.origin import StrOrURL
    from politesse.robots.document import RobotsTxt
    from politesse.robots.line import Line
    from politesse.robots.rule_sets import RuleSet
    from politesse.verdict import Match, Rule

_MOZILLA: Final = "mozilla"  # names no crawler
_USAGE: Final = ("content-usage", "content-signal")
_PLAIN = re.compile(r"(/(?![/.])|[\w?=&;,:@~.+-])*", re.ASCII)  # no wildcard, escape or dot segment


@dataclass(frozen=True, slots=True)
class FileStatement:
    """A statement that one of the two files makes.

    Attributes:
        text: a rule, the values of a directive, or an answer with its reason.
        line: the number of the line of a rule, or None.
    """

    text: str
    line: int | None = None

    def __str__(self) -> str:
        return self.text if self.line is None else f"{self.text} (line {self.line})"


@dataclass(frozen=True, slots=True)
class RobotsChange:
    """A difference between two files.

    Attributes:
        kind: ``"rule"``, ``"directive"`` or ``"decision"``.
        agents: the product tokens for which the files differ in this way; empty for all crawlers.
        subject: the path pattern in normal form, the field of the directive, or the URL.
        before: the statement of the earlier file, or None.
        after: the statement of the later file, or None.
        has_effect: whether the change may alter an answer or a pace. For a rule, it is False only if both files
            certainly give the same answers about all URLs.
        times: how often a past decision was made; 1 for any other change.
    """

    kind: str
    agents: tuple[str, ...]
    subject: str
    before: FileStatement | None
    after: FileStatement | None
    has_effect: bool = True
    times: int = 1

    def __str__(self) -> str:
        mark = "+" if self.before is None else "-" if self.after is None else "!"
        subject = "" if self.kind == "rule" else f"{self.subject}: "
        sides = " -> ".join(str(side) for side in (self.before, self.after) if side is not None)
        note = "" if self.has_effect else " (no effect)"
        return f"{mark} {subject}{sides}{note if self.times == 1 else f' ({self.times} times)'}"


class RobotsDiff:
    """Compares two files for the crawlers that they name, and for all other crawlers (``*``).

    Args:
        before: the earlier file.
        after: the later file.
        agents: the product tokens of the crawlers to compare the files for; by default, ``*`` and the crawlers that the
            files name.

    Raises:
        ConfigurationError: see ``RobotsTxt.rules_for``.
    """

    def __init__(self, before: RobotsTxt, after: RobotsTxt, agents: Sequence[str] = ()) -> None:
        self._files = before, after
        groups = [*before.groups, *after.groups]
        named = [name for group in groups for name in group.agents if name and not name.startswith(_MOZILLA)]
        alike: dict[tuple[bytes, bytes], list[str]] = {}
        for name in dict.fromkeys(agents or ["*", *named]):
            alike.setdefault((before.binding(name), after.binding(name)), []).append(name)
        self._rules = [
            (tuple(names), before.rules_for(names[0]), after.rules_for(names[0])) for names in alike.values()
        ]

    def changes(self) -> Iterator[RobotsChange]:
        """Yield the rules and directives that differ. Order and repetitions of rules do not matter."""
        for agents, before, after in self._rules:
            yield from _rule_changes(agents, before, after)
            one, other = (
                _directives(rules, robots.usage_lines_for(agents[0]) if rules.site_usage else ())
                for rules, robots in zip((before, after), self._files, strict=True)
            )
            yield from _directive_changes(agents, one, other)
        lists = ({"sitemap": set(robots.sitemaps), "license": set(robots.licenses)} for robots in self._files)
        yield from _directive_changes((), *lists)

    def decisions(self, url: StrOrURL) -> Iterator[RobotsChange]:
        """Yield a change for each set of crawlers for which the files decide differently about a URL or target.

        Raises:
            InvalidURL: see ``RuleSet.match``.
        """
        for agents, before, after in self._rules:
            one, other = before.match(url), after.match(url)
            if one.allowed is not other.allowed:
                yield RobotsChange("decision", agents, str(url), answer_of(one), answer_of(other))


def _rule_changes(agents: tuple[str, ...], before: RuleSet, after: RuleSet) -> Iterator[RobotsChange]:
    old, new = ({rule.pattern: rule for rule in rules.rules} for rules in (before, after))
    patterns = old | new
    # The longest pattern that matches a target decides. Without wildcards, each shorter pattern that matches the target
    # is a prefix of the longest pattern. So the longest pattern itself, taken as a target, gets the same decision, and
    # it suffices to try all patterns as targets.
    is_plain = all(map(_PLAIN.fullmatch, patterns))
    has_effect = not is_plain or any(before.allowed(pattern) is not after.allowed(pattern) for pattern in patterns)
    for pattern in sorted(patterns, key=lambda pattern: patterns[pattern].line):
        one, other = old.get(pattern), new.get(pattern)
        if one is None or other is None or one.allow is not other.allow:
            yield RobotsChange("rule", agents, pattern, _statement(one), _statement(other), has_effect)


def _directives(rules: RuleSet, usage: Iterable[Line]) -> dict[str, set[str]]:
    """Return the values of each directive that apply to a crawler."""
    rates = [(f"{rate.documents}/{rate.period_s}", rate.window) for rate in rules.request_rates]
    return {
        "crawl-delay": set() if rules.crawl_delay is None else {f"{rules.crawl_delay:g}"},
        "request-rate": {rate if window is None else f"{rate} {window}" for rate, window in rates},
        "visit-time": set(map(str, rules.visit_times)),
    } | {field: {line.value for line in usage if line.field == field} for field in _USAGE}


def _directive_changes(
    agents: tuple[str, ...], before: dict[str, set[str]], after: dict[str, set[str]]
) -> Iterator[RobotsChange]:
    for field, values in before.items():
        if values != after[field]:
            one, other = (
                FileStatement(", ".join(sorted(found))) if found else None for found in (values, after[field])
            )
            yield RobotsChange("directive", agents, field, one, other)


def _statement(rule: Rule | None) -> FileStatement | None:
    return None if rule is None else FileStatement(str(rule), rule.line)


def answer_of(match: Match) -> FileStatement:
    """Return the answer about a URL, with the rule that decided."""
    word = "allowed" if match.allowed else "disallowed"
    return FileStatement(word) if match.rule is None else FileStatement(f"{word}, {match.rule}", match.rule.line)
