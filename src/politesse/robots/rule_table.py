"""The rules of one agent in flat arrays: a Rule and its Match are made when it first decides, as most never do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from politesse._memory import memory_of
from politesse._text import BLANKS
from politesse.robots.prefixes import flat
from politesse.verdict import WITHOUT_RULE, Match, Reason, Rule

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from politesse.robots.line import FieldRow

ALLOW: Final = "allow"
NO_RULE: Final = -1
"""Place of the lack of a rule, which every rule outranks."""
NO_RULE_MATCH: Final = WITHOUT_RULE[Reason.NO_RULE]

_USUAL_NAMES: Final = 4  # of most files: the usual spellings are shared by all files
_AS_IT_IS: Final[dict[int, str]] = {}  # shared by the files whose values are all in normal form


class RuleTable:
    """Rules of one agent, each at a place from 0 on.

    Args:
        patterns: path patterns in normal form.
        rows: row of each.

    Attributes:
        patterns: the same, by place.
        matches: known matches by place; behind them, at NO_RULE, the one without a rule.
    """

    __slots__ = ("_names", "_numbers", "_values", "matches", "patterns")

    def __init__(self, patterns: Iterable[str], rows: Collection[FieldRow]) -> None:
        self.patterns = tuple(patterns)
        self._numbers = flat([row[0] for row in rows])
        self._names = tuple([row[1] for row in rows])
        spelled = tuple([row[2].strip(BLANKS) for row in rows])
        self._values = _AS_IT_IS if spelled == self.patterns else self._differing(spelled)
        self.matches: list[Match | None] = [None] * len(self.patterns)
        self.matches.append(NO_RULE_MATCH)

    def _differing(self, values: Iterable[str]) -> dict[int, str]:
        pairs = zip(values, self.patterns, strict=True)
        return {place: value for place, (value, pattern) in enumerate(pairs) if value != pattern}

    def __len__(self) -> int:
        return len(self.patterns)

    def allows(self, place: int) -> bool:
        """Whether the rule at ``place`` is an Allow."""
        return self._names[place].field == ALLOW

    def match(self, place: int) -> Match:
        """Return the match where the rule at ``place`` decides, always the same one; at NO_RULE, that of no rule."""
        match = self.matches[place]
        if match is None:
            name, pattern = self._names[place], self.patterns[place]
            value = self._values.get(place, pattern)
            rule = Rule(self._numbers[place], name.spelling, value, pattern, allow=name.field == ALLOW)
            match = self.matches[place] = rule.match
        return match

    def rules(self, places: Iterable[int]) -> list[Rule]:
        """Return the rules at ``places``."""
        return [rule for place in places if (rule := self.match(place).rule) is not None]

    def ranks(self) -> Sequence[int]:
        """Return, by place, how specific each rule is: by octets, at one length an Allow first; 0 at NO_RULE."""
        named = zip(self.patterns, self._names, strict=True)
        ranks = [2 * len(pattern) + (name.field == ALLOW) for pattern, name in named]
        ranks.append(0)
        return flat(ranks)

    @property
    def weight_bytes(self) -> int:
        """Approximate memory that the rules take, as long as they do not decide."""
        arrays = memory_of((self, self.patterns, self._names, self._numbers, self.matches))
        spelled = memory_of((self._values, *self._values.values())) if self._values else 0
        names = list({id(name): name for name in self._names}.values())[_USUAL_NAMES:]
        return arrays + memory_of(self.patterns) + spelled + sum([memory_of((name, *name[:1])) for name in names])
