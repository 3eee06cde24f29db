"""The rules of one agent in flat arrays: a Rule and its Match are made when it first decides, as most never do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from politesse._memory import memory_of
from politesse._text import BLANKS
from politesse.robots.prefixes import flat
from politesse.robots.texts import PackedTexts
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

_NONE_KNOWN: Final = {NO_RULE: NO_RULE_MATCH}  # shared by the tables of which no rule has decided


class RuleTable:
    """Rules of one agent, each at a place from 0 on.

    Args:
        patterns: path patterns in normal form, by place.
        rows: row of each.
        packed: the same patterns packed, to be kept instead; None for none.

    Attributes:
        patterns: the patterns that are kept.
        matches: known matches by place; at NO_RULE, the one without a rule. Another dict once a rule has decided.
    """

    __slots__ = ("_name_of", "_names", "_numbers", "_values", "matches", "patterns")

    def __init__(self, patterns: Iterable[str], rows: Collection[FieldRow], packed: PackedTexts | None = None) -> None:
        given = tuple(patterns)
        self.patterns: Sequence[str] | PackedTexts = given if packed is None else packed
        self._numbers = flat([row[0] for row in rows])
        names = {id(row[1]): row[1] for row in rows}  # by identity: to hash a name costs as much as all the rest
        places = dict(zip(names, range(len(names)), strict=True))
        self._names = tuple(names.values())
        self._name_of = flat([places[id(row[1])] for row in rows])
        spelled = tuple([row[2].strip(BLANKS) for row in rows])
        self._values = _AS_IT_IS if spelled == given else _differing(spelled, given)
        self.matches = _NONE_KNOWN

    def __len__(self) -> int:
        return len(self.patterns)

    @property
    def is_packed(self) -> bool:
        """Whether the patterns are packed."""
        return isinstance(self.patterns, PackedTexts)

    def first(self, count: int) -> Sequence[str]:
        """Return the patterns of the first ``count`` rules."""
        return self.patterns.first(count) if isinstance(self.patterns, PackedTexts) else self.patterns[:count]

    def allows(self, place: int) -> bool:
        """Whether the rule at ``place`` is an Allow."""
        return self._names[self._name_of[place]].field == ALLOW

    def match(self, place: int, pattern: str | None = None) -> Match:
        """Return the match where the rule at ``place`` decides, always the same one; at NO_RULE, that of no rule.

        Args:
            place: of the rule.
            pattern: its pattern where the caller has it; None to have it unpacked.
        """
        match = self.matches.get(place)
        if match is None:
            name = self._names[self._name_of[place]]
            if pattern is None:
                pattern = self.patterns[place]
            value = self._values.get(place, pattern)
            rule = Rule(self._numbers[place], name.spelling, value, pattern, allow=name.field == ALLOW)
            if self.matches is _NONE_KNOWN:
                self.matches = dict(_NONE_KNOWN)
            match = self.matches[place] = rule.match
        return match

    def rules(self, places: Iterable[int]) -> list[Rule]:
        """Return the rules at ``places``."""
        return [rule for place in places if (rule := self.match(place).rule) is not None]

    def ranks(self) -> Sequence[int]:
        """Return, by place, how specific each rule is: by octets, at one length an Allow first; 0 at NO_RULE."""
        allows = [name.field == ALLOW for name in self._names]
        ranks = [2 * len(pattern) + allows[name] for pattern, name in zip(self.patterns, self._name_of, strict=True)]
        ranks.append(0)
        return flat(ranks)

    @property
    def weight_bytes(self) -> int:
        """Approximate memory that the rules take, as long as they do not decide."""
        patterns = self.patterns
        texts = patterns.weight_bytes if isinstance(patterns, PackedTexts) else memory_of((patterns, *patterns))
        arrays = memory_of((self, self._names, self._name_of, self._numbers))
        spelled = memory_of((self._values, *self._values.values())) if self._values else 0
        return texts + arrays + spelled + sum([memory_of((name, *name[:1])) for name in self._names[_USUAL_NAMES:]])


def _differing(values: Iterable[str], patterns: Iterable[str]) -> dict[int, str]:
    pairs = zip(values, patterns, strict=True)
    return {place: value for place, (value, pattern) in enumerate(pairs) if value != pattern}
