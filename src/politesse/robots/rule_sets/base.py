"""RuleSet, the base class of the objects that find the deciding rule for a URL, and the directives of an agent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from sys import getsizeof
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, TypeVar

from politesse.origin import Origin, StrOrURL, target_of, url_text
from politesse.robots.crawl_directives import (
    ALWAYS,
    VERSION_1,
    DirectiveValue,
    RequestRate,
    Timetable,
    TimeWindow,
    Version,
)
from politesse.robots.memory import memory_of
from politesse.robots.other_records import SitemapLines
from politesse.robots.pattern import is_plain, match_simple_url
from politesse.usage.model import NOTHING_STATED, Usage
from politesse.verdict import WITHOUT_RULE, Match, Reason, Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.robots.line import FieldRow
    from politesse.robots.preferences import SiteUsage
    from politesse.robots.rule_table import RuleTable
    from politesse.robots.traits import Matching

ROBOTS_TXT_MATCH: Final = WITHOUT_RULE[Reason.ROBOTS_TXT]

_BYTES_PER_DIRECTIVE: Final = 136  # of a rate without its window, or of a window; measured in CPython 3.11

_Value = TypeVar("_Value", float, RequestRate, TimeWindow, str)


class Directives(NamedTuple):
    """The directives, sitemaps and preferences that belong to the rules of an agent.

    Attributes:
        values: typed values of the directives, in the order of the file.
        version: the version of the standard in which the groups are written.
        sitemaps: the Sitemap lines of the file, as a text; see ``SitemapLines``.
        usage: preferences about the use of content, or None.
    """

    values: Sequence[DirectiveValue] = ()
    version: Version = VERSION_1
    sitemaps: str = ""
    usage: SiteUsage | None = None


class RuleSet(ABC):
    r"""The rules of a robots.txt for one agent. ``RobotsTxt.rules_for`` returns the subclass that the dialect needs.

    A rule set is immutable, and depends only on the file, the dialect and the tokens, so origins with the same file
    share it. ``pickle`` copies it for a process pool or a cache on disk.

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

    precedence: ClassVar[str]

    __slots__ = (
        "__weakref__",
        "_matching",
        "_sitemaps",
        "_weight_bytes",
        "comments",
        "crawl_delay",
        "request_rates",
        "site_usage",
        "timetable",
        "visit_times",
    )

    def __init__(self, directives: Directives, matching: Matching) -> None:
        self._matching = matching
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
        windows = len(self.visit_times) + sum([rate.window is not None for rate in self.request_rates])
        return (
            getsizeof(self)
            + _BYTES_PER_DIRECTIVE * (len(self.request_rates) + windows)
            + memory_of((self.comments, *self.comments))
            + self.sitemap_lines.weight_bytes
            + self.timetable.weight_bytes
            + (0 if self.site_usage is None else self.site_usage.weight_bytes)
        )

    @property
    def sitemap_lines(self) -> SitemapLines:
        """See the class."""
        return SitemapLines(self._sitemaps)

    @property
    def weight_bytes(self) -> int:
        """See the class."""
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
    def reach(self, rule: Rule) -> tuple[str, ...]:
        """Return the pieces of a rule's pattern, in order.

        ``rule`` matches each target in normal form that consists of the pieces, with any text between two pieces.
        """

    @abstractmethod
    def precedes(self, rule: Rule, other: Rule) -> bool:
        """Whether ``other`` never decides about a target that ``rule`` matches."""

    @abstractmethod
    def _rules_bytes(self) -> int:
        """Return about how much memory the rules take."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rules."""

    def __repr__(self) -> str:
        return f"<RuleSet {self._matching.dialect}: {len(self)} rules, crawl_delay={self.crawl_delay}>"


class TableRuleSet(RuleSet):
    """A rule set whose tables are made in Python.

    Args:
        rows: the rules, in the order of the file.
        directives: the other lines.
        matching: how paths are compared.
        origin: the origin of the file, or None if unknown.
    """

    __slots__ = ("_origin", "_table", "_version")

    def __init__(
        self, rows: Sequence[FieldRow], directives: Directives, matching: Matching, origin: Origin | None = None
    ) -> None:
        super().__init__(directives, matching)
        self._origin = origin
        self._version = directives.version
        self._table = self._compile(rows)

    def judge(self, target: str) -> Match:
        """See ``RuleSet.judge``."""
        if is_plain(target) is not None and "/." not in target:
            return self.decide(target)
        return self.decide(self._matching.normalise_target(target))

    @abstractmethod
    def decide(self, target: str) -> Match:
        """Return the match of a target in normal form."""

    @abstractmethod
    def _compile(self, rows: Sequence[FieldRow]) -> RuleTable:
        """Build the tables that ``decide`` needs, and return all rules."""

    @abstractmethod
    def _tables_bytes(self) -> int:
        """Return about how much memory the tables of ``decide`` take."""

    def _rules_bytes(self) -> int:
        return self._table.weight_bytes + self._tables_bytes()

    def __len__(self) -> int:
        return len(self._table)


def _of_kind(kind: type[_Value], values: Sequence[DirectiveValue]) -> tuple[_Value, ...]:
    return tuple([value for value in values if isinstance(value, kind)])
