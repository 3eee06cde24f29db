"""Decides by the rules of Conner 2.0: explicit paths, paths with wildcards, and their precedence.

A rule set of version 1 follows the standard of 1994: a target is denied if it starts with the path of any Disallow. In
version 2 a path without ``*`` is explicit and matches only itself; a path with ``*`` has to match the whole target. An
explicit Allow precedes every Disallow, and every Disallow precedes an Allow with wildcards. If no rule matches a
target, the target is denied in two cases: the group has an Allow with wildcards, or it has an Allow and no Disallow.
Otherwise the target is allowed.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

from politesse._base.constants import ROBOTS_TXT
from politesse.robots.budget import Wildcards
from politesse.robots.crawl_directives import VERSION_1
from politesse.robots.line import rule_quirks
from politesse.robots.matchers import FirstPrefix, Wildcard
from politesse.robots.memory import memory_of
from politesse.robots.pattern import decode_prefix
from politesse.robots.rule_sets.base import ROBOTS_TXT_MATCH, TableRuleSet
from politesse.robots.rule_table import ALLOW, NO_RULE, NO_RULE_MATCH, RuleTable
from politesse.verdict import Match, Reason, Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.robots.line import FieldRow


class ConnerRuleSet(TableRuleSet):
    """The rules of Conner 2.0; see the module. The cost of wildcards is bounded; see ``politesse.robots.budget``."""

    precedence: ClassVar[str] = (
        "in version 2 an Allow without * goes before every Disallow, and a Disallow before an Allow with *"
    )

    __slots__ = ("_explicit", "_first_general", "_otherwise", "_wildcards")

    def decide(self, target: str) -> Match:
        """See ``TableRuleSet.decide``."""
        if target == ROBOTS_TXT:
            return ROBOTS_TXT_MATCH
        if (general := self._first_general.find(target)) != NO_RULE:
            return self._table.match(general)
        if (explicit := self._explicit.get(target)) is not None:
            return self._table.match(explicit)
        places = self._wildcards.places
        index, bound_reached = self._wildcards.first((target,), len(places))
        if index < len(places):
            return self._table.match(places[index], bound_reached=bound_reached)
        return replace(self._otherwise, bound_reached=True) if bound_reached else self._otherwise

    @property
    def rules(self) -> list[Rule]:
        """See ``RuleSet.rules``; if an Allow and a Disallow have the same path without ``*``, the Allow counts."""
        general = range(len(self._table)) if self._is_general else ()
        places = [*general, *self._explicit.values(), *self._wildcards.places]
        return sorted(self._table.rules(places), key=attrgetter("line"))

    def reach(self, rule: Rule) -> tuple[str, ...]:
        """See ``RuleSet.reach``; in version 1 a rule matches every target that starts with its path."""
        return (rule.pattern, "") if self._is_general else tuple(rule.pattern.split("*"))

    def precedes(self, rule: Rule, other: Rule) -> bool:
        """See ``RuleSet.precedes``.

        Even a rule that never decides affects the targets that no rule matches: an Allow may deny them, and a Disallow
        may allow them.
        """
        alike = rule.pattern == other.pattern or self._is_general or ("*" in rule.pattern and "*" in other.pattern)
        closes = rule.allow and rule.pattern != other.pattern
        return rule.allow is other.allow and alike and not closes and rule.line < other.line

    @property
    def _is_general(self) -> bool:
        return self._version[0] == VERSION_1[0]

    def _compile(self, rows: Sequence[FieldRow]) -> RuleTable:
        leading, general = self._matching.leading, self._is_general
        normalise = decode_prefix if general else self._matching.normalise_pattern
        rules: dict[tuple[str, str], FieldRow] = {}  # only the first of equal rules
        for row in rows:
            field, value = row[1].field, row[2]
            if value and not rule_quirks(field, value, leading) and not (general and field == ALLOW):
                rules.setdefault((normalise(value), field), row)
        patterns = [pattern for pattern, _ in rules]
        table = RuleTable(patterns, rules.values())
        self._first_general = FirstPrefix(patterns if general else ())
        places = range(0 if general else len(table))
        allows = [place for place in places if table.allows(place)]
        denials = [place for place in places if not table.allows(place)]
        self._explicit = {patterns[at]: at for at in (*denials, *allows) if "*" not in patterns[at]}
        # Every Disallow with a star precedes every Allow with a star.
        starred = [at for at in (*denials, *allows) if "*" in patterns[at]]
        cut = [Wildcard(f"{patterns[at]}$") for at in starred]
        self._wildcards = Wildcards(starred, cut, list(map(table.allows, starred)))
        closing = [at for at in allows if "*" in patterns[at]] or ([] if denials else allows)
        self._otherwise = Match(Reason.NOT_ALLOWED, table.match(closing[0]).rule) if closing else NO_RULE_MATCH
        return table

    def _tables_bytes(self) -> int:
        explicit = memory_of((self._explicit, *self._explicit.values()))
        return self._first_general.weight_bytes + explicit + self._wildcards.weight_bytes
