"""The most specific match among the rules of one agent (RFC 9309 2.2.2).

There are three kinds of rule, each with its own way to find the longest that matches:

* Literal prefixes are sorted, and each is linked to the next shorter one that encloses it. The longest that a target
  starts with is the last one that sorts at or before the target, or one of those that enclose it. They are unpacked at
  a question (``politesse.robots.texts``).
* Literals that end in ``$`` are keys of a dict.
* Wildcards are sorted by length, longest first, in two lists: rooted ones, whose head is longer than ``/`` and which
  one ``startswith`` rejects all at once, and floating ones behind ``*`` or ``/*``, each of which one ``in`` rejects.

If the octets of all wildcards times those of the target are too many, the wildcards are compared within a budget
(``politesse.robots.metered``), in one list, the most specific first.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Final

from politesse._constants import ROBOTS_TXT
from politesse._memory import memory_of
from politesse._text import BLANKS
from politesse.origin import MAX_URL_LENGTH
from politesse.robots.metered import NO_WILDCARDS, Meter, Wildcards
from politesse.robots.pattern import is_literal, is_normal, is_plain, match_form, match_normal_url
from politesse.robots.prefixes import enclosing, flat
from politesse.robots.rule_sets.base import ROBOTS_TXT_MATCH, Directives, RuleSet, bounded
from politesse.robots.rule_sets.first_question import WaitingRows
from politesse.robots.rule_table import ALLOW, NO_RULE, NO_RULE_MATCH, RuleTable
from politesse.robots.texts import LAST_UNPACKED, packed
from politesse.robots.wildcard import Wildcard, wildcard_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.robots.line import FieldRow
    from politesse.robots.metered import Batch
    from politesse.robots.traits import Matching
    from politesse.verdict import Match, Rule


_NONE_EXACT: Final[dict[str, int]] = {}  # shared by the files without whole paths
_UNRANKED: Final = b"\x00"  # shared by the files with plain prefixes only: nothing is compared but the end, NO_RULE
_EACH_ITSELF: Final = bytes(range(256))  # shared by the files in which each prefix decides where it is the longest
_NONE_ENCLOSED: Final = bytes(256)  # shared by the files in which no prefix starts with another one
_MOST_FORMS: Final = 250  # of prefixes that are packed: 0.5 ms to unpack
_MOST_FIRST_TARGET: Final = 100  # octets of a target that is decided without tables; see ``WaitingRows.may_wait``
_NOT_BUILT: Final = -1  # no target is as short: each goes the rare way, where the tables are built


class MostSpecificRuleSet(RuleSet):
    """See the module."""

    precedence: ClassVar[str] = "the longest rule that matches decides, and at one length an Allow"

    __slots__ = (
        "_asked",
        "_best",
        "_beyond_prefixes",
        "_count",
        "_enclosing",
        "_exact",
        "_floating",
        "_has_forms",
        "_prefixes",
        "_ranks",
        "_root",
        "_rooted",
        "_rooted_heads",
        "_rows",
        "_table",
        "_wildcards",
    )

    _prefixes: tuple[str, ...] | None  # None while they are packed
    _rows: Sequence[FieldRow] | WaitingRows | None  # None once the tables are built
    _asked: bool  # whether the first question was decided, or tried, without tables

    def _match_text(self, url: str) -> Match:
        """Do as ``RuleSet._match_text`` does, without a second look at escapes in normal form."""
        normal = match_normal_url(url) if url[:1] != "/" and url.isascii() else None
        if normal is not None and "/." not in (target := normal[1]) and len(target) <= MAX_URL_LENGTH:
            return self.decide(target)
        return super()._match_text(url)

    def judge(self, target: str) -> Match:
        """Do as ``RuleSet.judge`` does; wildcards are compared with the query as it was written, too."""
        if is_normal(target):
            return self.decide(target)
        normal = self._matching.normalise_target(target)
        self._built()
        written = self._matching.query_as_written(target) if "?" in target and self._wildcards.needles else None
        if len(normal) > self._unmetered_octets or (written is not None and len(written) > self._unmetered_octets):
            return self._judge_metered(normal, written, max(target.count("%"), normal.count("%")))
        match = self.decide(normal)
        return match if written is None else self._wildcards_too(written, match)

    def _wildcards_too(self, written: str, match: Match) -> Match:
        wildcards, ranks, least, best = self._wildcards, self._ranks, _rank(match), NO_RULE
        for needle, place in zip(wildcards.needles, wildcards.places, strict=True):
            if needle in written and ranks[place] > least and wildcards.at(place).matches(written):
                best, least = place, ranks[place]
        return match if best == NO_RULE else self._table.match(best)

    def decide(self, target: str) -> Match:
        """Return the match of a target in normal form. The hot path: nothing is allocated for a rule that decided."""
        if len(target) > self._unmetered_octets:
            return self._decide_rarely(target)
        prefixes = self._unpack() if (kept := self._prefixes) is None else kept
        place = bisect_right(prefixes, target)
        while place and not target.startswith(prefixes[place - 1]):
            place = self._enclosing[place - 1]
        best = self._best[place - 1] if place else self._root
        if self._beyond_prefixes:
            ranks = self._ranks
            exact = self._exact.get(target)
            if exact is not None and ranks[exact] > ranks[best]:
                best = exact
            if self._rooted_heads and target.startswith(self._rooted_heads):
                best = self._longer(self._rooted, target, best)
            for rare, batch in self._floating:
                if rare in target:
                    best = self._longer(batch, target, best)
        if target == ROBOTS_TXT:
            return ROBOTS_TXT_MATCH  # RFC 9309 2.2.2: /robots.txt is implicitly allowed
        try:
            return self._table.matches[best]
        except KeyError:
            # The pattern is at hand: the first decision of a rule takes a fifth less.
            return self._table.match(best, None if self._has_forms or best >= self._count else prefixes[best])

    def _unpack(self) -> tuple[str, ...]:
        """Return the prefixes as they are compared, from the patterns of the table, which are packed."""
        first = self._table.first(self._count)
        self._prefixes = prefixes = tuple(map(_form, first) if self._has_forms else first)
        LAST_UNPACKED.add(self, prefixes)
        return prefixes

    def pack(self) -> None:
        """Drop the prefixes if they are packed, too."""
        if self._rows is None and self._count and self._table.is_packed:
            self._prefixes = None

    def _longer(self, batch: Batch, target: str, best: int) -> int:
        """Return the place of the first wildcard rule that matches and outranks the one at ``best``, else ``best``."""
        needles, places = batch
        for at, needle in enumerate(needles):
            if needle in target:
                place = places[at]
                if self._ranks[place] > self._ranks[best]:
                    wildcard = self._wildcards.known.get(place) or self._wildcards.at(place)
                    if wildcard.matches(target):
                        return place
        return best

    def _decide_rarely(self, target: str) -> Match:
        """Decide at the first questions, for which the tables are built, and where the work needs a budget."""
        if (rows := self._rows) is None:
            return self.decide_metered(Meter(target))
        if isinstance(rows, WaitingRows) and not self._asked:
            self._asked = True
            if (match := self._decide_by_rows(rows, target)) is not None:
                return match
        self._built()
        return self.decide(target)

    def _decide_by_rows(self, rows: WaitingRows, target: str) -> Match | None:
        """Return the match of a target by tables of the few rows that may match it; None if that does not do.

        It does not where all rules might need a budget, because then the answer may be another one.
        """
        if len(target) > _MOST_FIRST_TARGET:
            return None
        few = rows.that_may_match(target)
        if not few:
            return ROBOTS_TXT_MATCH if target == ROBOTS_TXT else NO_RULE_MATCH
        if any("%" in row[2] for row in few):
            return None
        return MostSpecificRuleSet(few, Directives(), self._matching, self._origin).decide(target)

    def prepare_later(self) -> None:
        """See ``RuleSet``. It saves an eighth of the CPU time of an unknown origin; the second question takes more."""
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

    def _judge_metered(self, normal: str, written: str | None, escapes: int) -> Match:
        """Return the match of both forms of a target; the work on its escapes is taken from the budget."""
        meter = Meter(normal, escapes=escapes)
        match = self.decide_metered(meter)
        if written is None:
            return match
        return self._most_specific(Meter(written, meter.left), match)

    def decide_metered(self, meter: Meter) -> Match:
        """Return the match of a target in normal form within the budget; see ``politesse.robots.metered``."""
        self._built()
        target = meter.target
        if target == ROBOTS_TXT:
            return ROBOTS_TXT_MATCH
        prefixes = self._unpack() if (kept := self._prefixes) is None else kept
        place = bisect_right(prefixes, target)
        while place and not target.startswith(prefixes[place - 1]):
            place = self._enclosing[place - 1]
        best = self._best[place - 1] if place else self._root
        exact = self._exact.get(target)
        if exact is not None and self._ranks[exact] > self._ranks[best]:
            best = exact
        return self._most_specific(meter, self._table.match(best))

    def _most_specific(self, meter: Meter, match: Match) -> Match:
        """Return the match of the wildcards, and of the most specific rule so far."""
        ranks, least = self._ranks, _rank(match)
        outranking = self._wildcards.count_while(lambda place: ranks[place] > least)
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
        self._beyond_prefixes = bool(exact or wildcards)

    def _build_literals(self, prefixes: Sequence[str]) -> None:
        self._count = len(prefixes)
        self._enclosing = enclosing(prefixes)
        if len(prefixes) <= len(_NONE_ENCLOSED) and not any(self._enclosing):
            self._enclosing = _NONE_ENCLOSED
        # The patterns of few rules are not packed, and there are no prefixes to unpack where there are none.
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
            self._wildcards = Wildcards(places, patterns, self._table, _wildcard)
        self._rooted_heads = self._wildcards.heads
        self._rooted = self._wildcards.rooted
        self._floating = self._wildcards.floating

    def _tables_bytes(self) -> int:
        arrays = memory_of(() if self._enclosing is _NONE_ENCLOSED else (self._enclosing,)) + memory_of((self._ranks,))
        best = 0 if self._best is _EACH_ITSELF else memory_of((self._best,))
        exact = memory_of((self._exact, *self._exact)) if self._exact else 0
        wildcards = self._wildcards.weight_bytes if self._wildcards is not NO_WILDCARDS else 0
        if self._prefixes is not None and not self._table.is_packed:  # what is unpacked for a while does not count
            arrays += memory_of((self._prefixes, *set(self._prefixes).difference(self._table.patterns)))
        return arrays + best + exact + wildcards


def _form(pattern: str) -> str:
    """Return a pattern that is a prefix as it is compared."""
    return match_form(pattern) if "*" in pattern or "%" in pattern else pattern


def _wildcard(pattern: str) -> Wildcard:
    return wildcard_of(match_form(pattern))


def _sorted_prefixes(rules: dict[str, FieldRow], forms: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return the patterns that are prefixes, sorted by their forms; those whose form is ``/`` apart, the best first.

    Of patterns with the same form the one that decides comes last, where bisect_right finds it.
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
        value = row[2].strip(BLANKS)
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
