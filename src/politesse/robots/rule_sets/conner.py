"""The rules of Conner 2.0: matches of whole paths, explicit or with wildcards, and their precedence.

A rule set of version 1 follows the standard of 1994: any Disallow that a target starts with denies. In version 2 a
path without ``*`` is explicit and matches itself only; one with ``*`` has to match the whole target. An explicit Allow
precedes every Disallow, and every Disallow precedes an Allow with wildcards. A target that no rule matches is denied if
there is an Allow with wildcards, or an Allow and no Disallow; otherwise it is allowed.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

from politesse._constants import ROBOTS_TXT
from politesse.robots.crawl_directives import VERSION_1
from politesse.robots.line import Line, is_void
from politesse.robots.metered import Candidate, Meter, Wildcards
from politesse.robots.pattern import decode_prefix
from politesse.robots.prefixes import FirstPrefix
from politesse.robots.rule_sets.base import NO_RULE_MATCH, ROBOTS_TXT_MATCH, RuleSet, bounded
from politesse.robots.wildcard import Wildcard
from politesse.verdict import Match, Reason, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class ConnerRuleSet(RuleSet):
    """See the module. The cost of the wildcards of version 2 is bounded as in ``politesse.robots.metered``."""

    precedence: ClassVar[str] = (
        "in version 2 an Allow without * goes before every Disallow, and a Disallow before an Allow with *"
    )

    __slots__ = ("_allowing", "_denying", "_explicit", "_first_general", "_general", "_otherwise", "_wildcards_in_turn")

    def decide(self, target: str) -> Match:
        """Return the match of a target in normal form."""
        if len(target) > self._unmetered_octets:
            return self.decide_metered(Meter(target))
        if target == ROBOTS_TXT:
            return ROBOTS_TXT_MATCH
        if (general := self._first_general.find(target)) is not None:
            return general.match
        if (explicit := self._explicit.get(target)) is not None:
            return explicit.match
        if (rule := _first(self._denying, target) or _first(self._allowing, target)) is not None:
            return rule.match
        return self._otherwise

    def decide_metered(self, meter: Meter) -> Match:
        """Return the match of a target in normal form within the budget; see ``politesse.robots.metered``."""
        if meter.target == ROBOTS_TXT:
            return ROBOTS_TXT_MATCH
        if (explicit := self._explicit.get(meter.target)) is not None:
            return explicit.match
        for wildcards in self._wildcards_in_turn:
            place = wildcards.first(meter, len(wildcards.rules))
            if place < len(wildcards.rules):
                rule = wildcards.rules[place]
                return bounded(rule.match) if meter.exhausted else rule.match
        return bounded(self._otherwise) if meter.exhausted else self._otherwise

    @property
    def rules(self) -> list[Rule]:
        """See ``RuleSet.rules``; of an Allow and a Disallow of one path without ``*``, the Allow counts."""
        wildcards = [rule for _, _, rule in (*self._denying, *self._allowing)]
        return sorted([*self._general, *self._explicit.values(), *wildcards], key=attrgetter("line"))

    def reach(self, rule: Rule) -> tuple[str, ...]:
        """See ``RuleSet.reach``; in version 1 a rule matches every target that starts with its path."""
        return (rule.pattern, "") if self._is_general else tuple(rule.pattern.split("*"))

    def precedes(self, rule: Rule, other: Rule) -> bool:
        """See ``RuleSet.precedes``.

        An Allow that never matches still closes the rest of the site, and a Disallow that never does may open it.
        """
        alike = rule.pattern == other.pattern or self._is_general or ("*" in rule.pattern and "*" in other.pattern)
        closes = rule.allow and rule.pattern != other.pattern
        return rule.allow is other.allow and alike and not closes and rule.line < other.line

    @property
    def _is_general(self) -> bool:
        return self._version[0] == VERSION_1[0]

    def _compile(self, lines: Sequence[Line]) -> tuple[int, Sequence[Rule]]:
        said = [line for line in lines if line.value and not is_void(line)]
        if self._is_general:
            rules = _rules([line for line in said if line.field == "disallow"], decode_prefix)
        else:
            rules = _rules(said, self._matching.normalise_pattern)
        self._general = tuple(rules) if self._is_general else ()
        allows = [] if self._is_general else [rule for rule in rules if rule.allow]
        denials = [] if self._is_general else [rule for rule in rules if not rule.allow]
        self._explicit = {rule.pattern: rule for rule in (*denials, *allows) if "*" not in rule.pattern}
        self._denying = _with_wildcards(denials)
        self._allowing = _with_wildcards(allows)
        closing = [rule for _, _, rule in self._allowing] or ([] if denials else allows)
        self._otherwise = Match(Reason.NOT_ALLOWED, closing[0]) if closing else NO_RULE_MATCH
        self._first_general = FirstPrefix(self._general)
        self._wildcards_in_turn = (Wildcards(self._denying), Wildcards(self._allowing))
        return min(wildcards.unmetered_octets for wildcards in self._wildcards_in_turn) // 2, rules


def _rules(lines: Sequence[Line], normalise: Callable[[str], str]) -> list[Rule]:
    """Return the rules in the order of the file; of equal ones only the first."""
    rules: dict[tuple[str, bool], Rule] = {}
    for line in lines:
        pattern, allow = normalise(line.value), line.field == "allow"
        rules.setdefault((pattern, allow), Rule(line.number, line.name, line.value, pattern, allow=allow))
    return list(rules.values())


def _with_wildcards(rules: Sequence[Rule]) -> tuple[Candidate, ...]:
    wildcards = [(Wildcard(f"{rule.pattern}$"), rule) for rule in rules if "*" in rule.pattern]
    return tuple((wildcard.needle, wildcard, rule) for wildcard, rule in wildcards)


def _first(candidates: tuple[Candidate, ...], target: str) -> Rule | None:
    for needle, wildcard, rule in candidates:
        if needle in target and wildcard.matches(target):
            return rule
    return None
