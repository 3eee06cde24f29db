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
from politesse.robots.line import Line, is_void
from politesse.robots.metered import NO_WILDCARDS, Candidate, Meter, Wildcards
from politesse.robots.pattern import is_literal, is_plain, match_form
from politesse.robots.prefixes import PrefixIndex
from politesse.robots.rule_sets.base import NO_RULE_MATCH, ROBOTS_TXT_MATCH, RuleSet, bounded
from politesse.robots.wildcard import wildcard_of
from politesse.verdict import Match, Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.robots.traits import Matching

# Stands for the lack of a matching rule, so that decide compares rules without a test for None: no rule is shorter.
_NO_RULE: Final = Rule(0, "", "", "", allow=True)
_NO_RULE.known_match = NO_RULE_MATCH


class MostSpecificRuleSet(RuleSet):
    """See the module."""

    precedence: ClassVar[str] = "the longest rule that matches decides, and at one length an Allow"

    __slots__ = (
        "_beyond_prefixes",
        "_enclosing",
        "_exact",
        "_floating",
        "_literals",
        "_prefix_rules",
        "_prefixes",
        "_root",
        "_rooted",
        "_rooted_heads",
        "_rules",
        "_wildcards",
    )

    def judge(self, target: str) -> Match:
        """Do as ``RuleSet.judge`` does; wildcards are compared with the query as it was written, too."""
        if is_plain(target) is not None and "/." not in target:
            return self.decide(target)
        normal = self._matching.normalise_target(target)
        written = self._matching.query_as_written(target) if "?" in target else None
        if len(normal) > self._unmetered_octets or (written is not None and len(written) > self._unmetered_octets):
            return self._judge_metered(normal, written, max(target.count("%"), normal.count("%")))
        match = self.decide(normal)
        return match if written is None else self._wildcards_too(written, match)

    def _wildcards_too(self, written: str, match: Match) -> Match:
        best = match.rule or _NO_RULE
        for _, wildcards in self._floating:
            best = _longer(wildcards, written, best)
        return _longer(self._rooted, written, best).match

    def decide(self, target: str) -> Match:
        """Return the match of a target in normal form. The hot path: nothing is allocated."""
        if len(target) > self._unmetered_octets:
            return self.decide_metered(Meter(target))
        best = self._root
        prefixes = self._prefixes
        place = bisect_right(prefixes, target)
        while place:
            place -= 1
            if target.startswith(prefixes[place]):
                best = self._prefix_rules[place]
                break
            place = self._enclosing[place]
        if self._beyond_prefixes:
            if (exact := self._exact.get(target)) is not None and _outranks(exact, best):
                best = exact
            if self._rooted and target.startswith(self._rooted_heads):
                best = _longer(self._rooted, target, best)
            for rare, wildcards in self._floating:
                if rare in target:
                    best = _longer(wildcards, target, best)
        if target == ROBOTS_TXT:
            return ROBOTS_TXT_MATCH  # RFC 9309 2.2.2: /robots.txt is implicitly allowed
        match = best.known_match
        return best.match if match is None else match

    def _judge_metered(self, normal: str, written: str | None, escapes: int) -> Match:
        """Return the match of both forms of a target; the work on its escapes is taken from the budget."""
        meter = Meter(normal, escapes=escapes)
        match = self.decide_metered(meter)
        if written is None:
            return match
        best = match.rule or _NO_RULE
        return self._most_specific(Meter(written, meter.left), best, bound_reached=match.bound_reached)

    def decide_metered(self, meter: Meter) -> Match:
        """Return the match of a target in normal form within the budget; see ``politesse.robots.metered``."""
        target = meter.target
        if target == ROBOTS_TXT:
            return ROBOTS_TXT_MATCH
        place = next(self._literals.starts(target), None)
        best = self._root if place is None else self._prefix_rules[place]
        if (exact := self._exact.get(target)) is not None and _outranks(exact, best):
            best = exact
        return self._most_specific(meter, best)

    def _most_specific(self, meter: Meter, best: Rule, *, bound_reached: bool = False) -> Match:
        """Return the match of the wildcards, and of ``best``, the most specific rule so far."""
        wildcards = self._wildcards
        outranking = wildcards.count_while(lambda rule: _outranks(rule, best))
        place = wildcards.first(meter, outranking)
        if place < outranking:
            best = wildcards.rules[place]
        return bounded(best.match) if bound_reached or meter.exhausted else best.match

    @property
    def rules(self) -> list[Rule]:
        """See ``RuleSet.rules``."""
        return sorted(self._rules, key=attrgetter("line"))

    def reach(self, rule: Rule) -> tuple[str, ...]:
        """See ``RuleSet.reach``."""
        pieces = rule.pattern.removesuffix("$").split("*")
        return tuple(pieces) if rule.pattern.endswith("$") else (*pieces, "")

    def precedes(self, rule: Rule, other: Rule) -> bool:
        """See ``RuleSet.precedes``."""
        if rule.pattern == other.pattern and rule.allow is other.allow:
            return rule.line < other.line
        return _outranks(rule, other)

    def _compile(self, lines: Sequence[Line]) -> tuple[int, Sequence[Rule]]:
        rules = _strongest(lines, self._matching)
        self._rules = tuple(rules.values())
        wildcards: list[Candidate] = []
        literals: dict[str, Rule] = {}
        self._exact: dict[str, Rule] = {}
        for pattern, rule in rules.items():
            form = match_form(pattern) if "*" in pattern or "%" in pattern else pattern
            if not is_literal(form):
                wildcard = wildcard_of(form)
                wildcards.append((wildcard.needle, wildcard, rule))
            elif form.endswith("$"):
                _keep_stronger(self._exact, form[:-1], rule)
            else:
                # Every target starts with "/". The only shorter form is that of a pattern that was all stars.
                _keep_stronger(literals, form or "/", rule)
        self._compile_literals(literals)
        self._compile_wildcards(wildcards)
        self._beyond_prefixes = bool(self._exact or wildcards)
        return self._wildcards.unmetered_octets, self._rules

    def _compile_literals(self, literals: dict[str, Rule]) -> None:
        self._root = literals.pop("/", _NO_RULE)
        self._literals = PrefixIndex(literals)
        self._prefixes, self._enclosing = self._literals.prefixes, self._literals.links  # for decide, to save a call
        self._prefix_rules: list[Rule] = []
        for prefix, link in zip(self._prefixes, self._enclosing, strict=True):
            # "/a*$" has more octets than "/ab", and matches all that it does.
            around = self._prefix_rules[link - 1] if link else self._root
            rule = literals[prefix]
            self._prefix_rules.append(around if _outranks(around, rule) else rule)

    def _compile_wildcards(self, wildcards: list[Candidate]) -> None:
        # Longest first, and at one length an Allow first: the first that matches is the most specific. The pattern
        # counts as it is written, including a trailing star, which matches nothing more.
        wildcards.sort(key=lambda one: (-len(one[2].pattern), not one[2].allow))
        self._wildcards = Wildcards(wildcards) if wildcards else NO_WILDCARDS
        self._rooted = self._wildcards.rooted
        self._floating = self._wildcards.floating
        self._rooted_heads = tuple({wildcard.head for _, wildcard, _ in self._rooted})


def _strongest(lines: Sequence[Line], matching: Matching) -> dict[str, Rule]:
    """Return one rule for each pattern in normal form: the first line that has it, an Allow before a Disallow."""
    normalise = matching.normalise_pattern
    rules: dict[str, Rule] = {}
    for line in lines:
        if not line.value or (line.quirks and is_void(line)):
            continue  # an empty Disallow restricts nothing and cancels nothing
        pattern = normalise(line.value)
        allow = line.field == "allow"
        known = rules.get(pattern)
        if known is None or (allow and not known.allow):
            # RFC 9309 2.2.2: equivalent rules, the Allow counts.
            rules[pattern] = Rule(line.number, line.name, line.value, pattern, allow=allow)
    if matching.implied_allow is not None:
        for rule in [rule for rule in rules.values() if rule.allow]:
            implied = matching.implied_allow(rule.pattern)
            if implied is not None and (implied not in rules or not rules[implied].allow):
                rules[implied] = Rule(rule.line, rule.field, rule.value, implied, allow=True)
    return rules


def _keep_stronger(rules: dict[str, Rule], text: str, rule: Rule) -> None:
    """Of two rules that match the same targets, keep the one that decides."""
    known = rules.get(text)
    if known is None or _outranks(rule, known):
        rules[text] = rule


def _longer(wildcards: tuple[Candidate, ...], target: str, best: Rule) -> Rule:
    """Return the first wildcard rule that matches and outranks ``best``, otherwise ``best``."""
    for needle, wildcard, rule in wildcards:
        if needle in target and _outranks(rule, best) and wildcard.matches(target):
            return rule
    return best


def _outranks(rule: Rule, best: Rule) -> bool:
    """Whether ``rule`` is more specific (RFC 9309 2.2.2: the most octets; of equivalent rules the Allow)."""
    longer = len(rule.pattern) - len(best.pattern)
    return longer > 0 or (longer == 0 and rule.allow and not best.allow)
