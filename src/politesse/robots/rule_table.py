"""The rules of an agent in flat arrays. A Rule and its Match are made only when the rule decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from politesse.robots.line import usual_spellings
from politesse.robots.memory import flat, memory_of
from politesse.verdict import WITHOUT_RULE, Match, Reason, Rule, match_of_rule

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from politesse.robots.line import FieldRow

ALLOW: Final = "allow"
NO_RULE: Final = -1
"""Stands for no rule in place of an index; every rule outranks it."""
NO_RULE_MATCH: Final = WITHOUT_RULE[Reason.NO_RULE]

_AS_IT_IS: Final[dict[int, str]] = {}  # all files whose values are in normal form share this dict


class RuleTable:
    """The rules of an agent. The place of a rule is its index, from 0 on.

    Args:
        patterns: the path pattern of each rule, in normal form.
        rows: the row of each rule.

    Attributes:
        patterns: the path patterns.
    """

    __slots__ = ("_name_of", "_names", "_numbers", "_values", "patterns")

    def __init__(self, patterns: Iterable[str], rows: Collection[FieldRow]) -> None:
        self.patterns: tuple[str, ...] = tuple(patterns)
        self._numbers = flat([row[0] for row in rows])
        names = {id(row[1]): row[1] for row in rows}  # identity is the key, because hashing names would double the time
        places = dict(zip(names, range(len(names)), strict=True))
        self._names = tuple(names.values())
        self._name_of = flat([places[id(row[1])] for row in rows])
        spelled = tuple([row[2] for row in rows])
        self._values = _AS_IT_IS if spelled == self.patterns else _differing(spelled, self.patterns)

    def __len__(self) -> int:
        return len(self.patterns)

    def allows(self, place: int) -> bool:
        """Whether the rule at ``place`` is an Allow."""
        return self._names[self._name_of[place]].field == ALLOW

    def match(self, place: int, *, bound_reached: bool = False) -> Match:
        """Return the Match of a decision by the rule at ``place``. If ``place`` is NO_RULE, the Match has no rule."""
        if place == NO_RULE:
            return Match(Reason.NO_RULE, bound_reached=True) if bound_reached else NO_RULE_MATCH
        name, pattern = self._names[self._name_of[place]], self.patterns[place]
        value = self._values.get(place, pattern)
        return match_of_rule(self._numbers[place], name.spelling, value, pattern, name.field == ALLOW, bound_reached)

    def rules(self, places: Iterable[int]) -> list[Rule]:
        """Return the rules at ``places``."""
        return [rule for place in places if (rule := self.match(place).rule) is not None]

    def ranks(self) -> Sequence[int]:
        """Return the rank of each rule; the last item is 0, the rank of NO_RULE.

        A rule with more octets ranks higher. Of rules with the same length, an Allow ranks higher.
        """
        allows = [name.field == ALLOW for name in self._names]
        ranks = [2 * len(pattern) + allows[name] for pattern, name in zip(self.patterns, self._name_of, strict=True)]
        ranks.append(0)
        return flat(ranks)

    @property
    def weight_bytes(self) -> int:
        """Approximate memory that the rules take before any rule has decided."""
        texts = memory_of((self.patterns, *self.patterns))
        arrays = memory_of((self, self._names, self._name_of, self._numbers))
        spelled = memory_of((self._values, *self._values, *self._values.values())) if self._values else 0
        # All files share the names with usual spellings, so these do not count.
        unusual = [name for name in self._names if name.spelling not in usual_spellings(name.field)]
        return texts + arrays + spelled + sum([memory_of((name, name.spelling)) for name in unusual])


def _differing(values: Iterable[str], patterns: Iterable[str]) -> dict[int, str]:
    pairs = zip(values, patterns, strict=True)
    return {place: value for place, (value, pattern) in enumerate(pairs) if value != pattern}
