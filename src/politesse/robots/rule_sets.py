"""The rules of a robots.txt for one agent: how they are put in order, and which rule decides about a target.

::

    RuleSet                   what callers see
    ├── NativeRuleSet         the compiled core (``native``)
    └── FlatRuleSet           tries its rules one after the other; the first rule that matches decides
        ├── MostSpecificRuleSet     the most specific match decides (RFC9309, KOSTER_2019, GOOGLE)
        ├── FirstMatchRuleSet       in the order of the file (KOSTER_1996, KOSTER_1994)
        │   └── SiteRuleSet         rules may be URLs (PERL)
        └── ConnerRuleSet           explicit paths before paths with stars (CONNER_2)

A FlatRuleSet puts its rules in the order of precedence once, so "the most specific match" is the first match. Nearly
all rules start with a text that the target does not start with: one call skips many of these at once. So also 50,000
rules of a hostile file take little time; ``budget`` bounds the comparisons with wildcards.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from array import array
from itertools import compress
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, TypeVar

from politesse._base.checks import InvalidURL
from politesse._base.constants import ROBOTS_TXT
from politesse.origin import Origin, split, target_of, url_text
from politesse.robots import budget
from politesse.robots.budget import Meter
from politesse.robots.crawl_directives import (
    ALWAYS,
    VERSION_1,
    DirectiveValue,
    RequestRate,
    Timetable,
    TimeWindow,
    Version,
)
from politesse.robots.dialect import Winner
from politesse.robots.line import Line
from politesse.robots.memory import memory_of
from politesse.robots.other_records import SitemapLines
from politesse.robots.pattern import (
    PathPattern,
    cut_at_stars,
    decode_prefix,
    is_plain,
    match_simple_url,
    without_dot_segments,
)
from politesse.verdict import WITHOUT_RULE, Match, Reason, Rule, match_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from politesse.origin import StrOrURL
    from politesse.robots.dialect import Dialect
    from politesse.robots.preferences import SiteUsage
    from politesse.usage.model import Usage

ALLOW: Final = "allow"
NO_RULE_MATCH: Final = WITHOUT_RULE[Reason.NO_RULE]
ROBOTS_TXT_MATCH: Final = WITHOUT_RULE[Reason.ROBOTS_TXT]

_TRIED_AT_ONCE: Final = 50
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")  # RFC 3986 3.1

_Value = TypeVar("_Value", float, RequestRate, TimeWindow, str)

_Flat = tuple[Line, str, PathPattern | str]
"""A rule that was put in order: its line, its path pattern in normal form, and the pattern as it is compared.

A prefix is compared as a text."""


class Directives(NamedTuple):
    """What belongs to the rules of an agent beside them.

    Attributes:
        values: typed values of the directives, in the order of the file.
        version: the version of the standard in which the groups are written.
        sitemaps: the Sitemap lines of the file, as a text; see ``SitemapLines``.
        usage: preferences about the use of content, or None.
        origin: the origin of the file, or None if unknown.
    """

    values: Sequence[DirectiveValue] = ()
    version: Version = VERSION_1
    sitemaps: str = ""
    usage: SiteUsage | None = None
    origin: Origin | None = None


class RuleSet(ABC):
    r"""The rules of a robots.txt for one agent. ``RobotsTxt.rules_for`` returns the subclass that the dialect needs.

    A rule set is immutable, and depends only on the file, the dialect and the tokens, so origins with the same file
    share it. ``pickle`` copies it for a process pool, or for a cache on disk of the same version of politesse.

    >>> from politesse import RobotsTxt
    >>> rules = RobotsTxt.parse("User-agent: *\nDisallow: /private\nCrawl-delay: 5").rules_for("examplebot")
    >>> rules.allowed("https://example.com/private/page"), rules.allowed("/public"), rules.crawl_delay
    (False, True, 5.0)
    >>> rules.match("/private/page").rule
    <Rule line 2: 'Disallow: /private'>

    Attributes:
        crawl_delay: largest Crawl-delay in seconds, or None.
        request_rates: all Request-rates.
        visit_times: all Visit-times.
        timetable: the rate and the permission to visit at each time of day, from ``request_rates`` and ``visit_times``.
        comments: values of all Comment lines, addressed to the crawler's operator; untrusted text.
        sitemap_lines: Sitemap lines of the file, which address all crawlers.
        site_usage: the file's statements about the use of content, including content that may not be crawled; None
            without statements.
        weight_bytes: approximate memory that the rule set takes.
        precedence: a sentence that explains which of several matching rules decides.
    """

    precedence: ClassVar[str] = "the longest rule that matches decides, and at one length an Allow"

    __slots__ = (
        "__weakref__",
        "_dialect",
        "_sitemaps",
        "_weight_bytes",
        "comments",
        "crawl_delay",
        "request_rates",
        "site_usage",
        "timetable",
        "visit_times",
    )

    def __init__(self, directives: Directives, dialect: Dialect) -> None:
        self._dialect = dialect
        self.crawl_delay: float | None = None
        self.request_rates: tuple[RequestRate, ...] = ()
        self.visit_times: tuple[TimeWindow, ...] = ()
        self.comments: tuple[str, ...] = ()
        self.timetable: Timetable = ALWAYS
        if directives.values:  # most files have none
            self._obey(directives.values)
        self._sitemaps = directives.sitemaps
        self.site_usage: SiteUsage | None = directives.usage
        self._weight_bytes = 0

    def _obey(self, values: Sequence[DirectiveValue]) -> None:
        self.crawl_delay = max(_of_kind(float, values), default=None)
        self.request_rates = _of_kind(RequestRate, values)
        self.visit_times = _of_kind(TimeWindow, values)
        self.comments = _of_kind(str, values)
        if self.request_rates or self.visit_times:
            self.timetable = Timetable(self.request_rates, self.visit_times)

    def _beside_rules_bytes(self) -> int:
        windows = [*self.visit_times, *(rate.window for rate in self.request_rates if rate.window is not None)]
        values = [piece for value in (*self.request_rates, *windows) for piece in (value, *value)]
        parts = (self.request_rates, self.visit_times, self.comments, *self.comments, self._sitemaps)
        usage_bytes = 0 if self.site_usage is None else self.site_usage.weight_bytes
        return memory_of((self, *parts, *values)) + self.timetable.weight_bytes + usage_bytes

    @property
    def sitemap_lines(self) -> SitemapLines:
        """See the class."""
        return SitemapLines(self._sitemaps)

    @property
    def weight_bytes(self) -> int:
        """See the class. It is reckoned once, which takes some 50 ms for a hostile file."""
        if not self._weight_bytes:
            self._weight_bytes = self._rules_bytes() + self._beside_rules_bytes()
        return self._weight_bytes

    def allowed(self, url: StrOrURL) -> bool:
        """Whether an http(s) URL, or a target that starts with ``/``, may be requested.

        Raises:
            InvalidURL, TypeError: see ``match``.
        """
        return self.match(url).allowed

    def match(self, url: StrOrURL) -> Match:
        """Return whether a URL or target may be requested, and the rule that decided.

        The host of a URL does not matter here, and is not validated.

        Raises:
            InvalidURL: ``url`` is neither an absolute http(s) URL nor a target, or has characters that clients send in
                different ways.
            TypeError: ``url`` is neither a str nor a yarl.URL.
        """
        text = url_text(url)
        simple = match_simple_url(text)
        return self.judge(target_of(text) if simple is None else simple[1])

    def usage(self, url: StrOrURL) -> Usage | None:
        """Return the preferences about the use of a URL or target, or None if it may not be requested.

        draft-ietf-aipref-attach 3.4: preferences apply only to pages that may be requested.

        Raises:
            InvalidURL, TypeError: see ``match``.
        """
        from politesse.usage.model import NOTHING_STATED  # noqa: PLC0415 - few programs ask for preferences

        url = url_text(url)
        if not self.match(url).allowed:
            return None
        return NOTHING_STATED if self.site_usage is None else self.site_usage.usage(url)

    @abstractmethod
    def judge(self, target: str) -> Match:
        """Return the match of a request target; ``target`` is the text as written.

        Raises:
            InvalidURL: see ``match``.
        """

    @property
    @abstractmethod
    def rules(self) -> list[Rule]:
        """The rules in the order of the file, without repetitions of equal rules. Made on demand."""

    @abstractmethod
    def alone(self, rule: Rule) -> RuleSet:
        """Return a rule set that has only one of the ``rules``, and those that it implies."""

    def reach(self, rule: Rule) -> tuple[str, ...]:
        """Return the pieces of a rule's pattern, in order.

        ``rule`` matches each target in normal form that consists of the pieces, with any text between two pieces.
        """
        pieces = rule.pattern.removesuffix("$").split("*")
        return tuple(pieces) if rule.pattern.endswith("$") else (*pieces, "")

    def precedes(self, rule: Rule, other: Rule) -> bool:
        """Whether ``other`` never decides about a target that ``rule`` matches."""
        if rule.pattern == other.pattern and rule.allow is other.allow:
            return rule.line < other.line
        return (len(rule.pattern), rule.allow) > (len(other.pattern), other.allow)

    @abstractmethod
    def _rules_bytes(self) -> int:
        """Return about how much memory the rules take."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rules."""

    def __repr__(self) -> str:
        return f"<RuleSet {self._dialect.value}: {len(self)} rules, crawl_delay={self.crawl_delay}>"


class FlatRuleSet(RuleSet):
    """A rule set that tries its rules in Python, in the order of precedence; see the module.

    Args:
        lines: the rules, in the order of the file; none of them is void.
        directives: the other lines.
        dialect: the dialect of the file.
    """

    __slots__ = ("_columns", "_origin", "_otherwise", "_parts", "_patterns", "_version")

    def __init__(self, lines: Sequence[Line], directives: Directives, dialect: Dialect) -> None:
        super().__init__(directives, dialect)
        self._origin = directives.origin
        self._version = directives.version
        self._otherwise = NO_RULE_MATCH
        rules = self._in_order(lines)
        # Columns take a third of the memory of an object for each rule.
        self._columns = (
            array("I", [line.number for line, _, _ in rules]),
            tuple([line.name for line, _, _ in rules]),
            tuple([line.value for line, _, _ in rules]),
            tuple([path for _, path, _ in rules]),
            bytes([line.field == ALLOW for line, _, _ in rules]),
        )
        self._parts = [_part(rules[at : at + _TRIED_AT_ONCE]) for at in range(0, len(rules), _TRIED_AT_ONCE)]
        self._patterns = {at: one for at, (_, _, one) in enumerate(rules) if isinstance(one, PathPattern)}

    @abstractmethod
    def _in_order(self, lines: Sequence[Line]) -> list[_Flat]:
        """Return the rules that can match a target, in the order of precedence."""

    def judge(self, target: str) -> Match:
        """See ``RuleSet.judge``; wildcards are also compared with the query as it was written."""
        is_normal = is_plain(target) is not None and "/." not in target
        forms = (target,) if is_normal else self._dialect.traits.matching.form.of_target(target)
        if forms[0] == ROBOTS_TXT:
            return ROBOTS_TXT_MATCH  # RFC 9309 2.2.2: "The /robots.txt URI is implicitly allowed."
        place, bound_reached = self._first(forms)
        if place is not None:
            return match_at(self, place, bool(self._columns[-1][place]), bound_reached)
        # RFC 9309 2.2.2: "If no match is found ..., the URI is allowed."
        otherwise = self._otherwise
        return Match(otherwise.reason, otherwise.rule, bound_reached=True) if bound_reached else otherwise

    def _first(self, forms: tuple[str, ...]) -> tuple[int | None, bool]:
        """Return the place of the first rule that matches a target, and whether the budget was exceeded."""
        meter, allows = Meter(forms, budget.BUDGET), self._columns[-1]
        for place in self._candidates(meter):
            pattern = self._patterns.get(place)
            if pattern is None or (not pattern.segments and pattern.matches(forms[0])):
                return place, meter.exhausted  # a prefix or a literal costs nothing
            if not pattern.segments:
                continue
            if not meter.exhausted and meter.matches(pattern):
                return place, False
            if meter.exhausted and not allows[place] and meter.may_match(pattern):
                return place, True  # an undecided Disallow counts as matching
        return None, meter.exhausted

    def _candidates(self, meter: Meter) -> Iterator[int]:
        """Yield the places of the rules with whose heads a target starts, in the order of precedence."""
        target, other = meter.forms[0], meter.forms[-1]
        longest = max(len(target), len(other))
        for number, (heads, counts, least) in enumerate(self._parts):
            # Most parts are skipped here: one call compares all their heads.
            if longest < least or not (target.startswith(heads) or (other is not target and other.startswith(heads))):
                continue
            places: Iterator[tuple[int, str]] = enumerate(heads, number * _TRIED_AT_ONCE)
            if meter.exhausted:
                places = compress(places, counts)  # an undecided Allow does not count
            for place, head in places:
                # Only a head that ends within an escape may fit only the other form.
                if target.startswith(head) or (other is not target and other.startswith(head)):
                    yield place

    def rule_at(self, place: int) -> Rule:
        """See ``FindsRule``."""
        numbers, names, values, paths, allows = self._columns
        return Rule(numbers[place], names[place], values[place], paths[place], allow=bool(allows[place]))

    @property
    def rules(self) -> list[Rule]:
        """See ``RuleSet.rules``."""
        return sorted(map(self.rule_at, range(len(self))), key=attrgetter("line"))

    def alone(self, rule: Rule) -> RuleSet:
        """See ``RuleSet.alone``."""
        return type(self)([line_of(rule)], Directives(version=self._version, origin=self._origin), self._dialect)

    def _rules_bytes(self) -> int:
        _, names, values, paths, _ = self._columns
        parts = [piece for part in self._parts for piece in (part, *part, *part[0])]
        patterns = [piece for place, pattern in self._patterns.items() for piece in (place, *pattern.pieces)]
        lists = (self._columns, *self._columns, self._parts, self._patterns)
        return memory_of((*lists, *names, *values, *paths, *parts, *patterns))

    def __len__(self) -> int:
        return len(self._columns[-1])


def _part(rules: Sequence[_Flat]) -> tuple[tuple[str, ...], bytes, int]:
    """Return the texts with which targets have to start, whether each rule counts if it is undecided, and a length.

    All rules count but an Allow with stars. No shorter target matches any of the rules.
    """
    heads = [pattern if isinstance(pattern, str) else pattern.head for _, _, pattern in rules]
    counts = [isinstance(one, str) or not one.segments or line.field != ALLOW for line, _, one in rules]
    least = min(len(one) if isinstance(one, str) else one.octets for _, _, one in rules)
    return tuple(heads), bytes(counts), least


def line_of(rule: Rule) -> Line:
    """Return the line of a rule."""
    return Line(rule.line, rule.field, ALLOW if rule.allow else "disallow", rule.value)


class MostSpecificRuleSet(FlatRuleSet):
    """The most specific match decides: the reference for the compiled core (RFC 9309 2.2.2)."""

    __slots__ = ()

    def _in_order(self, lines: Sequence[Line]) -> list[_Flat]:
        found: dict[str, Line] = {}
        for line in lines:
            if line.value:  # RFC 9309 2.2: an empty Disallow has no effect
                _add(found, self._dialect.traits.matching.normalise_pattern(line.value), line)
        if self._dialect.traits.matching.implied_allow is not None:
            for path, line in [(path, line) for path, line in found.items() if line.field == ALLOW]:
                implied = self._dialect.traits.matching.implied_allow(path)
                if implied is not None:
                    _add(found, implied, line)
        return sorted([(line, path, _cut(path)) for path, line in found.items()], key=_specific)


def _add(found: dict[str, Line], path: str, line: Line) -> None:
    known = found.get(path)
    # RFC 9309 2.2.2: "If an allow rule and a disallow rule are equivalent, then the allow rule SHOULD be used."
    if known is None or (line.field == ALLOW and known.field != ALLOW):
        found.pop(path, None)  # so that the rules stay in the order of the lines that count
        found[path] = line


def _cut(path: str) -> PathPattern | str:
    """Return a path pattern as it is compared; a prefix stays a text, because nearly all patterns are prefixes."""
    if is_plain(path) is not None:
        return path
    pattern = cut_at_stars(path)
    return pattern if pattern.segments or pattern.anchored else pattern.head


def _specific(rule: _Flat) -> tuple[int, bool, int, int, int]:
    """Sort the most specific rule first."""
    line, path, pattern = rule
    # RFC 9309 2.2.2: "The most specific match is the match that has the most octets."
    least = -len(path), line.field != ALLOW
    # The standard leaves open which of several equally specific rules is named. Here, as in the compiled core, it is a
    # prefix, then a path with an anchor, then the first wildcard.
    if isinstance(pattern, str):
        return (*least, 0, -len(pattern), line.number)
    return (*least, 2, 0, line.number) if pattern.segments else (*least, 1, 0, line.number)


class FirstMatchRuleSet(FlatRuleSet):
    """The first rule whose path is a prefix of the target decides (draft-koster-robots-00 3.2.2)."""

    precedence: ClassVar[str] = "the first rule that matches decides"

    __slots__ = ()

    def reach(self, rule: Rule) -> tuple[str, ...]:
        """See ``RuleSet.reach``; a rule matches every target that starts with its path."""
        return (rule.pattern, "")

    def precedes(self, rule: Rule, other: Rule) -> bool:
        """See ``RuleSet.precedes``."""
        return rule.line < other.line

    def _in_order(self, lines: Sequence[Line]) -> list[_Flat]:
        found: dict[str, Line] = {}
        for line in lines:
            if not line.value and self._dialect.traits.matching.empty_disallow_ends:
                break  # the empty path is a prefix of every target, so no later rule is reached
            if path := self._path(line.value):
                found.setdefault(self._dialect.traits.matching.normalise_pattern(path), line)
        return [(line, path, path) for path, line in found.items()]

    def _path(self, value: str) -> str:
        """Return the path of a rule from its value; empty without a path."""
        return value


class SiteRuleSet(FirstMatchRuleSet):
    """A FirstMatchRuleSet whose rules may be URLs, absolute or relative to robots.txt (WWW::RobotRules, ``parse``).

    A rule with a URL of another site is ignored. If the origin of the file is unknown, each URL is judged as if the
    file came from the site of that URL. A target without a site is compared with the rules of all sites.
    """

    __slots__ = ("_said",)

    def __init__(self, lines: Sequence[Line], directives: Directives, dialect: Dialect) -> None:
        super().__init__(lines, directives, dialect)
        # The lines are stored, because ``match`` compiles the rules again for the site of each URL.
        unknown = directives.origin is None and any(_has_authority(line.value) for line in lines)
        self._said = (lines, directives) if unknown else None

    def match(self, url: StrOrURL) -> Match:
        """See ``RuleSet.match``."""
        url = url_text(url)
        if self._said is None or url[:1] == "/":
            return super().match(url)
        (lines, directives), (origin, target) = self._said, split(url)
        return type(self)(lines, directives._replace(origin=origin), self._dialect).judge(target)

    def _rules_bytes(self) -> int:
        lines = () if self._said is None else self._said[0]
        return super()._rules_bytes() + memory_of((lines, *lines, *[line.number for line in lines]))

    def _path(self, value: str) -> str:
        if value[:1] == "/" and value[:2] != "//":
            return value
        if not _has_authority(value):
            return _relative(value)
        site = self._origin
        try:
            named, target = split(value if value[:2] != "//" else f"{site.scheme if site else 'http'}:{value}")
        except InvalidURL:
            return ""
        return target if site is None or named == site else ""


def _has_authority(value: str) -> bool:
    scheme = _SCHEME.match(value)
    return value.startswith("//", scheme.end() if scheme is not None else 0)


def _relative(value: str) -> str:
    """Return the path of a relative reference in robots.txt; empty for a reference with a scheme."""
    if _SCHEME.match(value) is not None:
        return ""
    path, question, query = value.partition("?")
    return (without_dot_segments(f"/{path}") if path else ROBOTS_TXT) + question + query


class ConnerRuleSet(FlatRuleSet):
    """The rules of Conner 2.0: explicit paths, paths with stars, and their precedence.

    A rule set of version 1 follows the standard of 1994: a target is denied if it starts with the path of any Disallow.
    In version 2 a path without ``*`` is explicit and matches only itself; a path with ``*`` has to match the whole
    target. An explicit Allow precedes every Disallow, and every Disallow precedes an Allow with stars. If no rule
    matches a target, the target is denied in two cases: the group has an Allow with stars, or it has an Allow and no
    Disallow. Otherwise the target is allowed.
    """

    precedence: ClassVar[str] = (
        "in version 2 an Allow without * goes before every Disallow, and a Disallow before an Allow with *"
    )

    __slots__ = ()

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

    def _in_order(self, lines: Sequence[Line]) -> list[_Flat]:
        normalise = decode_prefix if self._is_general else self._dialect.traits.matching.normalise_pattern
        found: dict[tuple[str, str], Line] = {}  # only the first of equal rules
        for line in lines:
            if line.value:
                found.setdefault((normalise(line.value), line.field), line)
        denials = [(path, line) for (path, field), line in found.items() if field != ALLOW]
        if self._is_general:
            return [(line, path, path) for path, line in denials]
        allows = [(path, line) for (path, field), line in found.items() if field == ALLOW]
        explicit = dict([*allows, *((path, line) for path, line in denials if (path, ALLOW) not in found)])
        starred = [(path, line) for path, line in (*denials, *allows) if "*" in path]
        closing = [(path, line) for path, line in allows if "*" in path] or ([] if denials else allows)
        if closing:
            path, line = closing[0]
            self._otherwise = Match(Reason.NOT_ALLOWED, Rule(line.number, line.name, line.value, path, allow=True))
        in_order = (*((path, line) for path, line in explicit.items() if "*" not in path), *starred)
        return [(line, path, PathPattern(f"{path}$")) for path, line in in_order]


def _of_kind(kind: type[_Value], values: Sequence[DirectiveValue]) -> tuple[_Value, ...]:
    return tuple([value for value in values if isinstance(value, kind)])


RULE_SETS: Final[Mapping[Winner, Callable[[Sequence[Line], Directives, Dialect], FlatRuleSet]]] = {
    Winner.MOST_SPECIFIC: MostSpecificRuleSet,
    Winner.FIRST: FirstMatchRuleSet,
    Winner.FIRST_OF_SITE: SiteRuleSet,
    Winner.EXPLICIT: ConnerRuleSet,
}
"""Compiles the rules of an agent."""
