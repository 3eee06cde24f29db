"""The most specific match among the rules of one agent (RFC 9309 2.2.2).

There are three kinds of rule, each with its own way to find the longest that matches:

* Literal prefixes are sorted, and each is linked to the next shorter one that encloses it. The longest that a target
  starts with is the last one that sorts at or before the target, or one of those that enclose it.
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
from politesse.robots.metered import NO_WILDCARDS, Candidate, Meter, Wildcards
from politesse.robots.pattern import is_literal, is_normal, is_plain, match_form, match_normal_url
from politesse.robots.prefixes import PrefixIndex, flat
from politesse.robots.rule_sets.base import ROBOTS_TXT_MATCH, Directives, RuleSet, bounded
from politesse.robots.rule_sets.first_question import rows_that_may_match
from politesse.robots.rule_table import ALLOW, NO_RULE, NO_RULE_MATCH, RuleTable
from politesse.robots.wildcard import wildcard_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.robots.line import FieldRow
    from politesse.robots.traits import Matching
    from politesse.verdict import Match, Rule


_NONE_EXACT: Final[dict[str, int]] = {}  # shared by the files without whole paths
_UNRANKED: Final = b"\x00"  # shared by the files with plain prefixes only: nothing is compared but the end, NO_RULE
_NOT_BUILT: Final = -1  # no target is as short: each goes the rare way, where the tables are built
_ROW_BYTES: Final = 150  # measured with tracemalloc; without the characters of its value
# Only files and first targets within these do without tables. At these, the wildcards of a file of 8 KiB take less than
# a third of the budget of a decision, and the tables no more than three times the memory of the rows.
_MOST_ROWS: Final = 500
_MOST_STARS_A_ROW: Final = 2
_MOST_TARGET: Final = 100


class MostSpecificRuleSet(RuleSet):
    """See the module."""

    precedence: ClassVar[str] = "the longest rule that matches decides, and at one length an Allow"

    __slots__ = (
        "_best",
        "_beyond_prefixes",
        "_enclosing",
        "_exact",
        "_floating",
        "_literals",
        "_matches",
        "_prefixes",
        "_ranks",
        "_root",
        "_rooted",
        "_rooted_heads",
        "_rows",
        "_table",
        "_waits",
        "_wildcards",
    )

    _waits: bool  # whether the tables wait for the second question

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
        written = self._matching.query_as_written(target) if "?" in target and self._wildcards.candidates else None
        if len(normal) > self._unmetered_octets or (written is not None and len(written) > self._unmetered_octets):
            return self._judge_metered(normal, written, max(target.count("%"), normal.count("%")))
        match = self.decide(normal)
        return match if written is None else self._wildcards_too(written, match)

    def _wildcards_too(self, written: str, match: Match) -> Match:
        ranks, least, best = self._ranks, _rank(match), NO_RULE
        for needle, wildcard, place in self._wildcards.candidates:
            if needle in written and ranks[place] > least and wildcard.matches(written):
                best, least = place, ranks[place]
        return match if best == NO_RULE else self._table.match(best)

    def decide(self, target: str) -> Match:
        """Return the match of a target in normal form. The hot path: nothing is allocated for a rule that decided."""
        if len(target) > self._unmetered_octets:
            return self._decide_rarely(target)
        best = self._root
        prefixes = self._prefixes
        place = bisect_right(prefixes, target)
        while place:
            place -= 1
            if target.startswith(prefixes[place]):
                best = self._best[place]
                break
            place = self._enclosing[place]
        if self._beyond_prefixes:
            ranks = self._ranks
            if (exact := self._exact.get(target)) is not None and ranks[exact] > ranks[best]:
                best = exact
            if self._rooted and target.startswith(self._rooted_heads):
                best = _longer(self._rooted, target, ranks, best)
            for rare, wildcards in self._floating:
                if rare in target:
                    best = _longer(wildcards, target, ranks, best)
        if target == ROBOTS_TXT:
            return ROBOTS_TXT_MATCH  # RFC 9309 2.2.2: /robots.txt is implicitly allowed
        match = self._matches[best]
        return self._table.match(best) if match is None else match

    def _decide_rarely(self, target: str) -> Match:
        """Decide at the first question, at the second one, for which the tables are built, and within a budget."""
        rows = self._rows
        if rows is None:
            return self.decide_metered(Meter(target))
        if self._waits:
            self._waits = False
            match = self._decide_by_rows(rows, target)
            if match is not None:
                return match
        self._built()
        return self.decide(target)

    def _decide_by_rows(self, rows: Sequence[FieldRow], target: str) -> Match | None:
        """Return the match of a target by tables of the few rows that may match it; None if that does not do.

        It does not where all rules might need a budget, because then the answer may be another one.
        """
        if len(target) > _MOST_TARGET:
            return None
        few = rows_that_may_match(rows, target)
        if not few:
            return ROBOTS_TXT_MATCH if target == ROBOTS_TXT else NO_RULE_MATCH
        if any("%" in row[2] for row in few):
            return None
        return MostSpecificRuleSet(few, Directives(), self._matching, self._origin).decide(target)

    def prepare_later(self) -> None:
        """See ``RuleSet``."""
        rows = self._rows or ()
        text = "".join([row[2] for row in rows])
        is_usual = len(rows) <= _MOST_ROWS and text.count("*") <= _MOST_STARS_A_ROW * len(rows) and text.isascii()
        if not is_usual or self._matching.implied_allow is not None:
            self.prepare()
        else:
            self._waits = True
            self._weight_bytes = self._beside_rules_bytes() + len(text) + _ROW_BYTES * len(rows)

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
        place = next(self._literals.starts(target), None)
        best = self._root if place is None else self._best[place]
        exact = self._exact.get(target)
        if exact is not None and self._ranks[exact] > self._ranks[best]:
            best = exact
        return self._most_specific(meter, self._table.match(best))

    def _most_specific(self, meter: Meter, match: Match) -> Match:
        """Return the match of the wildcards, and of the most specific rule so far."""
        candidates, ranks, least = self._wildcards.candidates, self._ranks, _rank(match)
        outranking = self._wildcards.count_while(lambda place: ranks[place] > least)
        index = self._wildcards.first(meter, outranking)
        bound_reached = match.bound_reached or meter.exhausted
        if index < outranking:
            match = self._table.match(candidates[index][2])
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
        self._rows: Sequence[FieldRow] | None = rows
        self._waits = False
        return _NOT_BUILT

    def _built(self) -> RuleTable:
        if (rows := self._rows) is not None:
            self._build(_strongest(rows, self._matching))
            # Last: a thread that asks meanwhile builds the same tables.
            self._unmetered_octets = self._wildcards.unmetered_octets
            self._rows = None
        return self._table

    def _build(self, rules: dict[str, FieldRow]) -> None:
        self._table = table = RuleTable(rules, rules.values())
        self._matches = table.matches  # for decide, to save a call
        literals = dict(zip(rules, range(len(rules)), strict=True))
        exact: dict[str, int] = {}
        wildcards: list[Candidate] = []
        others = [pattern for pattern in rules if "*" in pattern or "%" in pattern or pattern[-1] == "$"]
        # Of two rules that match the same targets, the one that decides is kept. Plain prefixes are all different.
        self._ranks = ranks = table.ranks() if others else _UNRANKED
        for pattern in others:
            place, form = literals.pop(pattern), match_form(pattern)
            if not is_literal(form):
                wildcard = wildcard_of(form)
                wildcards.append((wildcard.needle, wildcard, place))
            elif form[-1:] == "$":
                _keep_stronger(exact, form[:-1], place, ranks)
            else:
                # Every target starts with "/". The only shorter form is that of a pattern that was all stars.
                _keep_stronger(literals, form or "/", place, ranks)
        self._exact = exact or _NONE_EXACT
        self._build_literals(literals)
        self._build_wildcards(wildcards)
        self._beyond_prefixes = bool(exact or wildcards)

    def _build_literals(self, literals: dict[str, int]) -> None:
        ranks = self._ranks
        self._root = literals.pop("/", NO_RULE)
        self._literals = PrefixIndex(literals)
        self._prefixes, self._enclosing = self._literals.prefixes, self._literals.links  # for decide, to save a call
        best = [literals[prefix] for prefix in self._prefixes]
        if ranks is not _UNRANKED:
            for index, link in enumerate(self._enclosing):
                # "/a*$" has more octets than "/ab", and matches all that it does.
                around = best[link - 1] if link else self._root
                if ranks[around] > ranks[best[index]]:
                    best[index] = around
        self._best = flat(best)

    def _build_wildcards(self, wildcards: list[Candidate]) -> None:
        # Longest first, and at one length an Allow first: the first that matches is the most specific. The pattern
        # counts as it is written, including a trailing star, which matches nothing more.
        ranks = self._ranks
        wildcards.sort(key=lambda one: -ranks[one[2]])
        self._wildcards = Wildcards(wildcards, self._table) if wildcards else NO_WILDCARDS
        self._rooted = self._wildcards.rooted
        self._floating = self._wildcards.floating
        self._rooted_heads = tuple({wildcard.head for _, wildcard, _ in self._rooted})

    def _tables_bytes(self) -> int:
        exact = memory_of((self._exact, *self._exact)) if self._exact else 0
        return self._literals.weight_bytes + memory_of((self._best, self._ranks)) + exact + self._wildcards.weight_bytes


def _keep_stronger(places: dict[str, int], text: str, place: int, ranks: Sequence[int]) -> None:
    known = places.get(text)
    # At one rank the first one of the file counts, and its place is the smaller one.
    if known is None or (ranks[place], -place) > (ranks[known], -known):
        places[text] = place


def _longer(wildcards: tuple[Candidate, ...], target: str, ranks: Sequence[int], best: int) -> int:
    """Return the place of the first wildcard rule that matches and outranks the one at ``best``, otherwise ``best``."""
    for needle, wildcard, place in wildcards:
        if needle in target and ranks[place] > ranks[best] and wildcard.matches(target):
            return place
    return best


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
