"""The most specific match among the rules of an agent (RFC 9309 2.2.2).

There are three kinds of rule, each with its own way to find the longest that matches:

* Literal prefixes are sorted, and each is linked to the next shorter prefix that encloses it. The longest prefix of
  a target is the last prefix that sorts at or before the target, or encloses that prefix. They are unpacked at
  a question (``politesse.robots.texts``).
* Literals that end in ``$`` are keys of a dict.
* Wildcards are sorted by length, longest first, in two lists: rooted ones, whose head is longer than ``/`` and which
  one ``startswith`` rejects all at once, and floating ones behind ``*`` or ``/*``, each of which one ``in`` rejects.

If the octets of all wildcards times the octets of the target are too many, the wildcards are compared within a budget
(``politesse.robots.metered``), in one list, the most specific first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Final

from politesse._constants import ROBOTS_TXT
from politesse.robots.memory import flat, memory_of
from politesse.robots.metered import NO_WILDCARDS, Meter, Wildcards
from politesse.robots.pattern import is_literal, is_plain, match_form
from politesse.robots.prefixes import enclosing
from politesse.robots.rule_sets.base import LAST_UNPACKED, ROBOTS_TXT_MATCH, Directives, RuleSet, bounded
from politesse.robots.rule_sets.first_question import WaitingRows
from politesse.robots.rule_table import ALLOW, NO_RULE, NO_RULE_MATCH, RuleTable
from politesse.robots.texts import packed
from politesse.robots.wildcard import wildcard_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.robots.line import FieldRow
    from politesse.robots.metered import Batch
    from politesse.robots.traits import Matching
    from politesse.verdict import Match, Rule


_NONE_EXACT: Final[dict[str, int]] = {}  # shared by the files without whole paths
_UNRANKED: Final = b"\x00"  # shared by the files with plain prefixes only: nothing is compared but the end, NO_RULE
_EACH_ITSELF: Final = bytes(range(256))  # shared by the files in which the longest prefix always decides
_NONE_ENCLOSED: Final = bytes(256)  # shared by the files in which no prefix starts with another
_MOST_FORMS: Final = 250  # of prefixes that are packed: 0.5 ms to unpack
_MOST_FIRST_TARGET: Final = 100  # octets of a target that is decided without tables; see ``WaitingRows.may_wait``
_NOT_BUILT: Final = -1  # no target is as short: each goes the rare way, which builds the tables


class MostSpecificRuleSet(RuleSet):
    """See the module."""

    precedence: ClassVar[str] = "the longest rule that matches decides, and at one length an Allow"

    __slots__ = (
        "_asked",
        "_best",
        "_count",
        "_enclosing",
        "_exact",
        "_has_forms",
        "_prefixes",
        "_ranks",
        "_root",
        "_rows",
        "_table",
        "_wildcards",
    )

    _prefixes: tuple[str, ...] | None  # None while they are packed
    _rows: Sequence[FieldRow] | WaitingRows | None  # None once the tables are built
    _asked: bool  # whether the first question was decided, or tried, without tables

    def judge(self, target: str) -> Match:
        """Do as ``RuleSet.judge`` does; wildcards are compared with the query as it was written, too."""
        if is_plain(target) is not None and "/." not in target:
            return self.decide(target)
        normal = self._matching.normalise_target(target)
        self._built()
        written = self._matching.query_as_written(target) if "?" in target and self._wildcards.needles else None
        if len(normal) > self._unmetered_octets or (written is not None and len(written) > self._unmetered_octets):
            meter = Meter(normal, escapes=max(target.count("%"), normal.count("%")))  # which take their part of it
            match = self.decide_metered(meter)
            return match if written is None else self._most_specific(Meter(written, meter.left), match)
        match = self.decide(normal)
        return match if written is None else self._wildcards_too(written, match)

    def _wildcards_too(self, written: str, match: Match) -> Match:
        wildcards, ranks, least, best = self._wildcards, self._ranks, _rank(match), NO_RULE
        for wildcard, place in zip(wildcards.cut, wildcards.places, strict=True):
            if wildcard.needle in written and ranks[place] > least and wildcard.matches(written):
                best, least = place, ranks[place]
        return match if best == NO_RULE else self._table.match(best)

    def decide(self, target: str) -> Match:
        """Return the match of a target in normal form. The hot path."""
        if len(target) > self._unmetered_octets:
            return self._decide_rarely(target)
        if target == ROBOTS_TXT:
            return ROBOTS_TXT_MATCH  # RFC 9309 2.2.2: /robots.txt is implicitly allowed
        prefixes = self._unpack() if (kept := self._prefixes) is None else kept
        best, wildcards = self._literal(prefixes, target), self._wildcards
        if wildcards.heads and target.startswith(wildcards.heads):
            best = self._longer(wildcards.rooted, target, best)
        for rare, batch in wildcards.floating:
            if rare in target:
                best = self._longer(batch, target, best)
        return self._table.match(best, None if self._has_forms or not 0 <= best < self._count else prefixes[best])

    def _literal(self, prefixes: Sequence[str], target: str) -> int:
        """Return the place of the most specific rule without wildcards that matches."""
        place = bisect_right(prefixes, target)
        while place and not target.startswith(prefixes[place - 1]):
            place = self._enclosing[place - 1]
        best = self._best[place - 1] if place else self._root
        exact = self._exact.get(target)
        return best if exact is None or self._ranks[exact] <= self._ranks[best] else exact

    def _unpack(self) -> tuple[str, ...]:
        """Return the prefixes as they are compared, from the patterns of the table, which are packed."""
        first = self._table.first(self._count)
        self._prefixes = prefixes = tuple(map(match_form, first) if self._has_forms else first)
        LAST_UNPACKED.add(self, prefixes)
        return prefixes

    def pack(self) -> None:
        """Drop the prefixes if they are packed, too."""
        if self._rows is None and self._count and self._table.is_packed:
            self._prefixes = None

    def _longer(self, batch: Batch, target: str, best: int) -> int:
        """Return the place of the first wildcard rule that matches and outranks the one at ``best``, else ``best``."""
        needles, indexes = batch
        wildcards, ranks = self._wildcards, self._ranks
        for at, needle in enumerate(needles):
            if needle in target:
                place = wildcards.places[index := indexes[at]]
                if ranks[place] > ranks[best] and wildcards.cut[index].matches(target):
                    return place
        return best

    def _decide_rarely(self, target: str) -> Match:
        """Decide the first questions, and questions that need a budget.

        The first question is decided by tables of the few rows that may match it, unless one of their rules might need
        a budget: the budget may change the answer. Other questions build the tables of all rows.
        """
        if (rows := self._rows) is None:
            return self.decide_metered(Meter(target))
        if isinstance(rows, WaitingRows) and not self._asked:
            self._asked = True
            if len(target) <= _MOST_FIRST_TARGET:
                few = rows.that_may_match(target)
                if not few:
                    return ROBOTS_TXT_MATCH if target == ROBOTS_TXT else NO_RULE_MATCH
                if not any("%" in row[2] for row in few):
                    return MostSpecificRuleSet(few, Directives(), self._matching, self._origin).decide(target)
        self._built()
        return self.decide(target)

    def prepare_later(self) -> None:
        """See ``RuleSet``. It takes an eighth off the CPU time of an unknown origin; the second question takes more."""
        rows = self._rows
        if rows is None or isinstance(rows, WaitingRows) or self._matching.implied_allow is not None:
            self.prepare()
            return
        waiting = WaitingRows(rows)
        if waiting.may_wait:
            self._rows = waiting
            self._weight_bytes = self._beside_rules_bytes() + waiting.weight_bytes
        else:
            self.prepare()

    def decide_metered(self, meter: Meter) -> Match:
        """Return the match of a target in normal form within the budget; see ``politesse.robots.metered``."""
        self._built()
        target = meter.target
        if target == ROBOTS_TXT:
            return ROBOTS_TXT_MATCH
        prefixes = self._unpack() if (kept := self._prefixes) is None else kept
        return self._most_specific(meter, self._table.match(self._literal(prefixes, target)))

    def _most_specific(self, meter: Meter, match: Match) -> Match:
        """Return the match of the wildcards, and of the most specific rule so far."""
        ranks, least = self._ranks, _rank(match)
        outranking = bisect_left(self._wildcards.places, -least, key=lambda place: -ranks[place])
        index = self._wildcards.first(meter, outranking)
        bound_reached = match.bound_reached or meter.exhausted
        if index < outranking:
            match = self._table.match(self._wildcards.places[index])
        return bounded(match) if bound_reached else match

    @property
    def rules(self) -> list[Rule]:
        """See ``RuleSet.rules``."""
        table = self._built()
        return sorted(table.rules(range(len(table))), key=attrgetter("line"))

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

    def _compile(self, rows: Sequence[FieldRow]) -> int:
        self._rows = rows
        self._asked = False
        self._prefixes = None
        return _NOT_BUILT

    def _built(self) -> RuleTable:
        if (rows := self._rows) is not None:
            self._build(_strongest(rows.rows() if isinstance(rows, WaitingRows) else rows, self._matching))
            # Last: a thread that asks meanwhile builds the same tables.
            self._unmetered_octets = self._wildcards.unmetered_octets
            self._rows = None
        return self._table

    def _build(self, rules: dict[str, FieldRow]) -> None:
        # Of most patterns the form is the pattern: they are plain prefixes, and all different.
        others = [pattern for pattern in rules if "*" in pattern or "%" in pattern or pattern[-1] == "$"]
        forms = {pattern: match_form(pattern) or "/" for pattern in others}  # every target starts with "/"
        prefixes, apart = _sorted_prefixes(rules, forms)
        exact = [pattern for pattern in others if is_literal(forms[pattern]) and forms[pattern][-1:] == "$"]
        # Longest first, and at one length an Allow first: the first that matches is the most specific. The pattern
        # counts as it is written, including a trailing star, which matches nothing more.
        wildcards = [pattern for pattern in others if not is_literal(forms[pattern])]
        wildcards.sort(key=lambda pattern: -_octets_and_field(pattern, rules[pattern]))
        rest = [*apart, *exact, *wildcards]
        patterns = [*prefixes, *rest]
        # A form takes as long to make as 20 prefixes to unpack.
        formed = sum(pattern in forms for pattern in prefixes) if others else 0
        self._has_forms = formed > 0
        rows = [rules[pattern] for pattern in patterns]
        self._table = RuleTable(patterns, rows, packed(patterns) if formed <= _MOST_FORMS else None)
        # Plain prefixes are the longer the more specific: nothing is compared but the end, NO_RULE.
        self._ranks = self._table.ranks() if others else _UNRANKED
        self._root = len(prefixes) if apart else NO_RULE
        self._build_literals([forms.get(pattern, pattern) for pattern in prefixes] if others else prefixes)
        self._build_exact([forms[pattern][:-1] for pattern in exact], len(prefixes) + len(apart))
        self._build_wildcards(wildcards, len(patterns) - len(wildcards))

    def _build_literals(self, prefixes: Sequence[str]) -> None:
        self._count = len(prefixes)
        self._enclosing = enclosing(prefixes)
        if len(prefixes) <= len(_NONE_ENCLOSED) and not any(self._enclosing):
            self._enclosing = _NONE_ENCLOSED
        # The patterns of few rules are not packed, and a file may have no prefixes.
        self._prefixes = None if prefixes and self._table.is_packed else tuple(prefixes)
        best = list(range(len(prefixes)))
        ranks = self._ranks
        if ranks is not _UNRANKED:
            for place, link in zip(best, self._enclosing, strict=False):
                # "/a*$" has more octets than "/ab", and matches all that it does.
                around = best[link - 1] if link else self._root
                if ranks[around] > ranks[place]:
                    best[place] = around
        each_itself = best == list(range(len(best))) and len(best) <= len(_EACH_ITSELF)
        self._best = _EACH_ITSELF if each_itself else flat(best)

    def _build_exact(self, paths: Sequence[str], first: int) -> None:
        exact: dict[str, int] = {}
        ranks = self._ranks
        for place, path in enumerate(paths, first):
            # Of two that are the same, the more specific one counts; at one rank the first of the file.
            if path not in exact or ranks[place] > ranks[exact[path]]:
                exact[path] = place
        self._exact = exact or _NONE_EXACT

    def _build_wildcards(self, patterns: Sequence[str], first: int) -> None:
        self._wildcards = NO_WILDCARDS
        if patterns:
            places = range(first, first + len(patterns))
            self._wildcards = Wildcards(places, [wildcard_of(match_form(one)) for one in patterns], self._table)

    def _tables_bytes(self) -> int:
        shared = (_NONE_ENCLOSED, _EACH_ITSELF)
        arrays = memory_of([one for one in (self._enclosing, self._best, self._ranks) if one not in shared])
        exact = memory_of((self._exact, *self._exact, *self._exact.values())) if self._exact else 0
        wildcards = self._wildcards.weight_bytes if self._wildcards.cut else 0  # the empty ones are shared
        if self._prefixes is not None and not self._table.is_packed:  # those that are unpacked for a while do not count
            arrays += memory_of((self._prefixes, *set(self._prefixes).difference(self._table.patterns)))
        return arrays + exact + wildcards


def _sorted_prefixes(rules: dict[str, FieldRow], forms: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return the patterns that are prefixes, sorted by their forms; apart, best first, patterns with the form ``/``.

    Of patterns with the same form the deciding pattern comes last: bisect_right finds it.
    """
    plain = [pattern for pattern in rules if pattern not in forms] if forms else list(rules)
    literal = [pattern for pattern, form in forms.items() if is_literal(form) and form[-1] != "$"]
    if literal:
        order = dict(zip(rules, range(len(rules)), strict=True))
        plain += literal
        plain.sort(key=lambda one: (forms.get(one, one), _octets_and_field(one, rules[one]), -order[one]))
    else:
        plain.sort()
    roots = 0
    while roots < len(plain) and forms.get(plain[roots], plain[roots]) == "/":  # nothing sorts before "/"
        roots += 1
    return plain[roots:], plain[:roots][::-1]


def _octets_and_field(pattern: str, row: FieldRow) -> int:
    """Return how specific a rule is, as ``RuleTable.ranks`` does."""
    return 2 * len(pattern) + (row[1].field == ALLOW)


def _rank(match: Match) -> int:
    """Return how specific the rule of a match is, as ``RuleTable.ranks`` does."""
    rule = match.rule
    return 0 if rule is None else 2 * len(rule.pattern) + rule.allow


def _strongest(rows: Sequence[FieldRow], matching: Matching) -> dict[str, FieldRow]:
    """Return one row for each pattern in normal form: the first that has it, an Allow before a Disallow."""
    normalise, leading = matching.normalise_pattern, matching.leading
    rules: dict[str, FieldRow] = {}
    for row in rows:
        value = row[2]
        if not value.startswith(leading):
            continue  # RFC 9309 2.2; an empty Disallow restricts nothing and cancels nothing
        pattern = value if is_plain(value) is not None else normalise(value)
        known = rules.get(pattern)
        if known is None or (row[1].field == ALLOW and known[1].field != ALLOW):
            rules[pattern] = row  # RFC 9309 2.2.2: of equivalent rules, the Allow counts
    if matching.implied_allow is not None:
        for pattern, row in [(pattern, row) for pattern, row in rules.items() if row[1].field == ALLOW]:
            implied = matching.implied_allow(pattern)
            if implied is not None and (implied not in rules or rules[implied][1].field != ALLOW):
                rules[implied] = row
    return rules
