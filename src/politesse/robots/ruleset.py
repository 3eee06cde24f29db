"""The rules of one agent, compiled, and the most specific match among them (RFC 9309 2.2.2).

Three kinds of rule, by what it costs to find the longest that matches:

* literal prefixes stand sorted, each linked to the next shorter one that encloses it. The longest that a target
  starts with is the last one that sorts at or before the target, or one of those that enclose it;
* literals that end in ``$`` stand in a dict;
* wildcards stand by length, longest first, in two lists: those rooted in a head of more than ``/``, all of which
  one ``startswith`` rejects, and those that float behind ``*`` or ``/*``, each of which one ``in`` rejects.

Where the octets of all wildcards times those of the target would be too many, they are compared within a budget
(``politesse.robots.metered``), in one list, the most specific first.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Final

from politesse.origin import target_of
from politesse.robots.directives import VERSION_1
from politesse.robots.lexer import Quirk
from politesse.robots.metered import NO_WILDCARDS, Meter, Wildcards
from politesse.robots.pattern import (
    Wildcard,
    is_literal,
    is_plain,
    match_form,
    match_plain_url,
    match_simple_url,
    wildcard_of,
)
from politesse.robots.prefixes import PrefixIndex
from politesse.robots.sitemaps import NO_SITEMAPS
from politesse.robots.timetable import ALWAYS, Timetable
from politesse.usage.model import NOTHING_STATED
from politesse.verdict import WITHOUT_RULE, Match, Reason, Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.origin import Origin
    from politesse.robots.dialect import Dialect, Matching
    from politesse.robots.directives import RequestRate, TimeWindow, Version
    from politesse.robots.lexer import Line
    from politesse.robots.metered import Candidate
    from politesse.robots.preferences import SiteUsage
    from politesse.usage.model import Usage

ROBOTS_TXT: Final = "/robots.txt"

ROBOTS_TXT_MATCH: Final = WITHOUT_RULE[Reason.ROBOTS_TXT]
NO_RULE_MATCH: Final = WITHOUT_RULE[Reason.NO_RULE]
BYTES_PER_RULE: Final = 600  # measured: a Rule, its Match, its strings' headers and its places in the tables

_VOID: Final = frozenset({Quirk.NO_LEADING_SLASH, Quirk.EMPTY_ALLOW, Quirk.CONTROL_CHARACTER})
_BYTES_PER_DIRECTIVE: Final = 250


class Directives:
    """What the merged groups of an agent say beside their rules, in the order of the file."""

    __slots__ = ("comments", "crawl_delays", "request_rates", "sitemap_lines", "usage", "version", "visit_times")

    def __init__(self) -> None:
        self.crawl_delays: list[float] = []
        self.request_rates: list[RequestRate] = []
        self.visit_times: list[TimeWindow] = []
        self.comments: list[str] = []
        self.version: Version = VERSION_1
        self.sitemap_lines = NO_SITEMAPS
        self.usage: SiteUsage | None = None

    def add(self, field: str, value: float | RequestRate | TimeWindow | str) -> None:
        """Take over the typed value of one line."""
        getattr(self, _LISTS[field]).append(value)


_LISTS: Final = {
    "crawl-delay": "crawl_delays",
    "request-rate": "request_rates",
    "visit-time": "visit_times",
    "comment": "comments",
}


class RuleSet:
    """What a robots.txt says to one agent; the longest match decides. Other dialects have rule sets of other kinds.

    Immutable, and a pure function of the file, the dialect and the tokens, so that origins with the same file share it.

    Attributes:
        crawl_delay: the largest Crawl-delay in seconds; None where there is none.
        request_rates: the Request-rates.
        visit_times: the Visit-times.
        timetable: what the two come to at each time of day.
        comments: the Comments, meant for the crawler's operator; untrusted text.
        sitemap_lines: those of the file, which are meant for everybody.
        site_usage: what the file says about the use of content, be it crawlable or not; None where that is nothing.
        weight_bytes: about how much memory it takes.
        precedence: which of several rules that match decides, in words.
    """

    precedence: ClassVar[str] = "the longest rule that matches decides, and at one length an Allow"

    __slots__ = (
        "__weakref__",
        "_beyond_prefixes",
        "_count",
        "_dialect",
        "_enclosing",
        "_exact",
        "_floating",
        "_literals",
        "_matching",
        "_origin",
        "_prefix_rules",
        "_prefixes",
        "_root",
        "_rooted",
        "_rooted_heads",
        "_rules",
        "_unmetered_octets",
        "_version",
        "_wildcards",
        "comments",
        "crawl_delay",
        "request_rates",
        "site_usage",
        "sitemap_lines",
        "timetable",
        "visit_times",
        "weight_bytes",
    )

    def __init__(
        self, lines: Sequence[Line], directives: Directives, dialect: Dialect, origin: Origin | None = None
    ) -> None:
        self._dialect = dialect
        self._matching = dialect.traits.matching
        self.crawl_delay = max(directives.crawl_delays, default=None)
        self.request_rates = tuple(directives.request_rates)
        self.visit_times = tuple(directives.visit_times)
        timed = self.request_rates or self.visit_times
        self.timetable = Timetable(self.request_rates, self.visit_times) if timed else ALWAYS
        self.comments = tuple(directives.comments)
        self.sitemap_lines = directives.sitemap_lines
        self.site_usage = directives.usage
        self._version = directives.version
        self._origin = origin
        self._compile(lines)
        said = len(self.request_rates) + len(self.visit_times) + len(self.comments)
        self.weight_bytes += _BYTES_PER_DIRECTIVE * said + sum(map(len, self.comments))
        self.weight_bytes += self.timetable.weight_bytes
        self.weight_bytes += self.sitemap_lines.weight_bytes
        if self.site_usage is not None:
            self.weight_bytes += self.site_usage.weight_bytes

    def allowed(self, url: str) -> bool:
        """Whether an http(s) URL, or a target that starts with ``/``, may be requested; see ``match``."""
        if (plain := match_plain_url(url)) is not None and "/." not in (target := plain[1]):
            return self.decide(target).allowed  # as match does, one call less
        return self.match(url).allowed

    def match(self, url: str) -> Match:
        """Return whether a URL or target may be requested, and the rule that decided.

        Whose URL it is does not matter here, so the host is not looked at closely. Raises InvalidURL for what has no
        target: no absolute http(s) URL, or one with characters about which clients disagree.
        """
        if (plain := match_plain_url(url)) is not None:
            return self.judge(plain[1])
        if (simple := match_simple_url(url)) is not None:
            return self.judge(simple[1])
        return self.judge(target_of(url))

    def usage(self, url: str) -> Usage | None:
        """Return what the file says about the use of a URL or target; None where it may not be requested.

        Preferences exist for what may be requested only (draft-ietf-aipref-attach 3.4). Raises InvalidURL.
        """
        if not self.match(url).allowed:
            return None
        return NOTHING_STATED if self.site_usage is None else self.site_usage.usage(url)

    def judge(self, target: str) -> Match:
        """Return the match of a request target as it was written; raises InvalidURL."""
        if is_plain(target) is not None and "/." not in target:
            return self.decide(target)
        normal = self._matching.normalise_target(target)
        written = self._matching.query_as_written(target) if "?" in target else None
        if len(normal) > self._unmetered_octets or (written is not None and len(written) > self._unmetered_octets):
            return self._judge_metered(normal, written, max(target.count("%"), normal.count("%")))
        match = self.decide(normal)
        return match if written is None else self._wildcards_too(written, match)

    def _wildcards_too(self, written: str, match: Match) -> Match:
        best = match.rule
        for _, wildcards in self._floating:
            best = _longer(wildcards, written, best)
        best = _longer(self._rooted, written, best)
        return match if best is None else best.match

    def decide(self, target: str) -> Match:  # noqa: C901 - a call less is worth it
        """Return the match of a target in normal form: the hot path; nothing is allocated."""
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
            if (exact := self._exact.get(target)) is not None and (best is None or _outranks(exact, best)):
                best = exact
            if self._rooted and target.startswith(self._rooted_heads):
                best = _longer(self._rooted, target, best)
            for rare, wildcards in self._floating:
                if rare in target:
                    best = _longer(wildcards, target, best)
        if target == ROBOTS_TXT:
            return ROBOTS_TXT_MATCH  # RFC 9309 2.2.2: implicitly allowed
        if best is None:
            return NO_RULE_MATCH
        match = best.known_match
        return best.match if match is None else match

    def _judge_metered(self, normal: str, written: str | None, escapes: int) -> Match:
        """Return the match of both forms of a target; what its escapes took is taken from the budget."""
        meter = Meter(normal, escapes=escapes)
        match = self.decide_metered(meter)
        if written is None:
            return match
        return self._most_specific(Meter(written, meter.left), match.rule, bound_reached=match.bound_reached)

    def decide_metered(self, meter: Meter) -> Match:
        """Return the match of a target in normal form within the budget; see ``metered``."""
        target = meter.target
        if target == ROBOTS_TXT:
            return ROBOTS_TXT_MATCH
        place = next(self._literals.starts(target), None)
        best = self._root if place is None else self._prefix_rules[place]
        if (exact := self._exact.get(target)) is not None and (best is None or _outranks(exact, best)):
            best = exact
        return self._most_specific(meter, best)

    def _most_specific(self, meter: Meter, best: Rule | None, *, bound_reached: bool = False) -> Match:
        """Return the match of the wildcards, and of ``best``, the most specific rule so far."""
        wildcards = self._wildcards
        outranking = wildcards.count_while(lambda rule: best is None or _outranks(rule, best))
        place = wildcards.first(meter, outranking)
        if place < outranking:
            best = wildcards.rules[place]
        if bound_reached or meter.exhausted:
            return bounded_match(best)
        return NO_RULE_MATCH if best is None else best.match

    @property
    def rules(self) -> list[Rule]:
        """The rules in the order of the file; of equal ones the one that counts. Made on demand."""
        return sorted(self._rules, key=attrgetter("line"))

    def reach(self, rule: Rule) -> tuple[str, ...]:
        """Return what a target in normal form has to consist of, from end to end, for ``rule`` to match it.

        That is these pieces, in order, with anything or nothing between each two of them.
        """
        pieces = rule.pattern.removesuffix("$").split("*")
        return tuple(pieces) if rule.pattern.endswith("$") else (*pieces, "")

    def precedes(self, rule: Rule, other: Rule) -> bool:
        """Whether ``other`` decides nothing that ``rule`` matches too."""
        if rule.pattern == other.pattern and rule.allow is other.allow:
            return rule.line < other.line
        return _outranks(rule, other)

    def _compile(self, lines: Sequence[Line]) -> None:
        rules = _strongest(lines, self._matching)
        wildcards: list[tuple[Wildcard, Rule]] = []
        literals: dict[str, Rule] = {}
        self._exact: dict[str, Rule] = {}
        for pattern, rule in rules.items():
            form = match_form(pattern) if "*" in pattern or "%" in pattern else pattern
            if not is_literal(form):
                wildcards.append((wildcard_of(form), rule))
            elif form.endswith("$"):
                _keep_stronger(self._exact, form[:-1], rule)
            else:
                # Every target starts with "/", and nothing is shorter but a pattern that was all stars.
                _keep_stronger(literals, form or "/", rule)
        self._rules = tuple(rules.values())
        self._root = literals.pop("/", None)
        self._literals = PrefixIndex(literals)
        self._prefixes, self._enclosing = self._literals.prefixes, self._literals.links  # for decide, to save a call
        self._prefix_rules: list[Rule] = []
        for prefix, link in zip(self._prefixes, self._enclosing, strict=True):
            # "/a*$" has more octets than "/ab", and matches all that it does.
            around = self._prefix_rules[link - 1] if link else self._root
            rule = literals[prefix]
            self._prefix_rules.append(around if around is not None and _outranks(around, rule) else rule)
        # Longest first, and at one length an Allow first: the first that matches is the most specific.
        # The pattern counts as it is written, with a star that matches nothing more.
        wildcards.sort(key=lambda one: (-len(one[1].pattern), not one[1].allow))
        self._wildcards = Wildcards([(w.needle, w, rule) for w, rule in wildcards]) if wildcards else NO_WILDCARDS
        self._rooted = self._wildcards.rooted
        self._floating = self._wildcards.floating
        self._rooted_heads = tuple({wildcard.head for _, wildcard, _ in self._rooted})
        self._unmetered_octets = self._wildcards.unmetered_octets  # held here as well: each decision looks at it
        self._beyond_prefixes = bool(self._exact or wildcards)
        self._count = len(rules)
        self.weight_bytes = BYTES_PER_RULE * len(rules) + 2 * sum(map(len, rules))

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<RuleSet {self._dialect.value}: {len(self)} rules, crawl_delay={self.crawl_delay}>"


def bounded_match(rule: Rule | None) -> Match:
    """Return the match that ``rule`` decides, or none, where the bound on matching work was reached."""
    reason = Reason.NO_RULE if rule is None else rule.match.reason
    return Match(reason, rule, bound_reached=True)


def is_void(line: Line) -> bool:
    """Whether a line with a value is a rule that matches nothing."""
    return bool(line.quirks) and not _VOID.isdisjoint(line.quirks)


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
    """Of two rules that match the same, keep the one that decides."""
    known = rules.get(text)
    if known is None or _outranks(rule, known):
        rules[text] = rule


def _longer(wildcards: tuple[Candidate, ...], target: str, best: Rule | None) -> Rule | None:
    """Return the first wildcard rule that matches and outranks ``best``, else ``best``."""
    for needle, wildcard, rule in wildcards:
        if needle in target and (best is None or _outranks(rule, best)) and wildcard.matches(target):
            return rule
    return best


def _outranks(rule: Rule, best: Rule) -> bool:
    longer = len(rule.pattern) - len(best.pattern)
    return longer > 0 or (longer == 0 and rule.allow and not best.allow)
