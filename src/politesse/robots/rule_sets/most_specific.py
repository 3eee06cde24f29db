"""Finds the most specific match among the rules of an agent (RFC 9309 2.2.2).

Three kinds of rules have their own tables, in which the best match is found:

* Literal prefixes are sorted, and each prefix has a link to the longest other prefix with which it starts
  (``PrefixIndex``).
* Literals that end in ``$`` are keys of a dict.
* Wildcards are compared one after the other, the most specific first, within a budget (``budget``). Wildcards that rank
  below the best literal are not compared.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

from politesse._base.constants import ROBOTS_TXT
from politesse.robots.budget import Wildcards
from politesse.robots.matchers import PrefixIndex, wildcard_of
from politesse.robots.memory import flat, memory_of
from politesse.robots.pattern import is_literal, is_plain, match_form
from politesse.robots.rule_sets.base import ROBOTS_TXT_MATCH, RuleSet, TableRuleSet
from politesse.robots.rule_table import ALLOW, NO_RULE, RuleTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.robots.line import FieldRow
    from politesse.robots.traits import Matching
    from politesse.verdict import Match, Rule


class MostSpecific(RuleSet):
    """The base class of the rule sets in which the most specific match decides."""

    precedence: ClassVar[str] = "the longest rule that matches decides, and at one length an Allow"

    __slots__ = ()

    def reach(self, rule: Rule) -> tuple[str, ...]:
        """See ``RuleSet.reach``."""
        pieces = rule.pattern.removesuffix("$").split("*")
        return tuple(pieces) if rule.pattern.endswith("$") else (*pieces, "")

    def precedes(self, rule: Rule, other: Rule) -> bool:
        """See ``RuleSet.precedes``."""
        if rule.pattern == other.pattern and rule.allow is other.allow:
            return rule.line < other.line
        longer = len(rule.pattern) - len(other.pattern)
        return longer > 0 or (longer == 0 and rule.allow and not other.allow)


class MostSpecificRuleSet(TableRuleSet, MostSpecific):
    """The reference implementation; see the module."""

    __slots__ = ("_best", "_exact", "_prefixes", "_ranks", "_wildcards")

    def judge(self, target: str) -> Match:
        """See ``RuleSet.judge``; wildcards are also compared with the query as it was written."""
        if is_plain(target) is not None and "/." not in target:
            return self.decide(target)
        normal = self._matching.normalise_target(target)
        written = self._matching.query_as_written(target) if "?" in target and len(self._wildcards) else None
        return self._most_specific((normal,) if written is None else (normal, written))

    def decide(self, target: str) -> Match:
        """See ``TableRuleSet.decide``."""
        return self._most_specific((target,))

    def _most_specific(self, forms: Sequence[str]) -> Match:
        """Return the match of a target; ``forms`` has its normal form, and its form with the query as written."""
        target, ranks, wildcards = forms[0], self._ranks, self._wildcards
        if target == ROBOTS_TXT:
            return ROBOTS_TXT_MATCH  # RFC 9309 2.2.2: /robots.txt is implicitly allowed
        longest = self._prefixes.longest(target)
        best = NO_RULE if longest < 0 else self._best[longest]
        exact = self._exact.get(target, NO_RULE)
        if ranks[exact] > ranks[best]:
            best = exact
        bound_reached = False
        if wildcards.places:
            # RFC 9309 2.2.2: the match with the most octets decides; of an equivalent Allow and Disallow, the Allow
            # decides.
            outranking = bisect_left(wildcards.places, -ranks[best], key=lambda place: -ranks[place])
            index, bound_reached = wildcards.first(forms, outranking)
            if index < outranking:
                best = wildcards.places[index]
        return self._table.match(best, bound_reached=bound_reached)

    @property
    def rules(self) -> list[Rule]:
        """See ``RuleSet.rules``."""
        return sorted(self._table.rules(range(len(self._table))), key=attrgetter("line"))

    def _compile(self, rows: Sequence[FieldRow]) -> RuleTable:
        rules = _strongest(rows, self._matching)
        table = RuleTable(rules, rules.values())
        self._ranks = ranks = table.ranks()
        prefixes: dict[str, int] = {}
        exact: dict[str, int] = {}
        wildcards: list[tuple[int, str]] = []
        for place, pattern in enumerate(rules):
            literals, form = prefixes, pattern
            if is_plain(pattern) is None:
                form = match_form(pattern)
                if not is_literal(form):
                    wildcards.append((place, form))
                    continue
                if form[-1:] == "$":
                    literals, form = exact, form[:-1]
            # "/a*" and "/a" have the same form. The pattern with the higher rank is kept; if the ranks are equal, the
            # first pattern is kept.
            known = literals.get(form)
            if known is None or ranks[place] > ranks[known]:
                literals[form] = place
        self._prefixes = PrefixIndex(prefixes)
        # A shorter prefix may rank higher: "/a*$" has the form "/a", but more octets than "/ab".
        self._best = flat(self._prefixes.best([prefixes[one] for one in self._prefixes.prefixes], ranks))
        self._exact = exact
        rows_of = list(rules.values())
        wildcards.sort(key=lambda one: (-ranks[one[0]], rows_of[one[0]][0]))
        places = flat([place for place, _ in wildcards])
        cut = [wildcard_of(form) for _, form in wildcards]
        self._wildcards = Wildcards(places, cut, list(map(table.allows, places)))
        return table

    def _tables_bytes(self) -> int:
        exact = memory_of((self._exact, *self._exact, *self._exact.values()))
        return memory_of((self._best, self._ranks)) + exact + self._prefixes.weight_bytes + self._wildcards.weight_bytes


def _strongest(rows: Sequence[FieldRow], matching: Matching) -> dict[str, FieldRow]:
    """Return a row for each pattern in normal form: the first Allow with the pattern, otherwise the first Disallow."""
    normalise, leading = matching.normalise_pattern, matching.leading
    rules: dict[str, FieldRow] = {}
    for row in rows:
        value = row[2]
        if not value.startswith(leading):
            continue  # RFC 9309 2.2; an empty Disallow has no effect
        pattern = normalise(value)
        known = rules.get(pattern)
        if known is None or (row[1].field == ALLOW and known[1].field != ALLOW):
            rules.pop(pattern, None)  # the new entry goes to the end, in the order of the rows
            rules[pattern] = row  # RFC 9309 2.2.2: of equivalent rules, the Allow counts
    if matching.implied_allow is not None:
        for pattern, row in [(pattern, row) for pattern, row in rules.items() if row[1].field == ALLOW]:
            implied = matching.implied_allow(pattern)
            if implied is not None and (implied not in rules or rules[implied][1].field != ALLOW):
                rules.pop(implied, None)
                rules[implied] = row
    return rules
