"""The rules of an agent in the compiled core (``politesse._native``), with the decisions of ``most_specific``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from politesse._base.match import match_of_rule
from politesse.origin import StrOrURL, url_text
from politesse.robots.rule_sets.base import ROBOTS_TXT_MATCH, Directives
from politesse.robots.rule_sets.most_specific import MostSpecific
from politesse.robots.rule_table import NO_RULE_MATCH
from politesse.verdict import Match, Reason, Rule

if TYPE_CHECKING:
    from politesse._native._core import DecidingRule, Rules
    from politesse.robots.traits import Matching

_BOUND_REACHED, _ROBOTS_TXT, _OTHER = -1, -4, -6  # _native/module.c; OTHER: the target needs another reader


class NativeRuleSet(MostSpecific):
    """The rules in the compiled core; see the module.

    Args:
        rules: the compiled rules.
        directives: the other lines of the agent.
        matching: how paths are compared.
    """

    __slots__ = ("_rules",)

    def __init__(self, rules: Rules, directives: Directives, matching: Matching) -> None:
        super().__init__(directives, matching)
        self._rules = rules

    def allowed(self, url: StrOrURL) -> bool:
        """See ``RuleSet.allowed``."""
        allowed = self._rules.allows(url if isinstance(url, str) else url_text(url))
        return self.match(url).allowed if allowed is None else allowed

    def match(self, url: StrOrURL) -> Match:
        """See ``RuleSet.match``."""
        decided = self._rules.decide(url if isinstance(url, str) else url_text(url))
        return super().match(url) if decided == _OTHER else _match(decided)

    def judge(self, target: str) -> Match:
        """See ``RuleSet.judge``; wildcards are also compared with the query as it was written."""
        decided = self._rules.decide(target)
        if decided == _OTHER:
            normal = self._matching.normalise_target(target)
            written = self._matching.query_as_written(target) if "?" in target else None
            decided = self._rules.decide_normal(normal, written)
        return _match(decided)

    @property
    def rules(self) -> list[Rule]:
        """See ``RuleSet.rules``."""
        return [rule for listed in self._rules.listed() if (rule := _match(listed).rule) is not None]

    def _rules_bytes(self) -> int:
        return self._rules.octets()

    def __len__(self) -> int:
        return len(self._rules)


def _match(decided: int | DecidingRule) -> Match:
    if isinstance(decided, int):
        if decided == _ROBOTS_TXT:
            return ROBOTS_TXT_MATCH
        return Match(Reason.NO_RULE, bound_reached=True) if decided == _BOUND_REACHED else NO_RULE_MATCH
    return match_of_rule(*decided)
