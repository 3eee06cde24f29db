"""Reads the rows of a file that are neither rules nor user-agent lines (RFC 9309 2.2.4, "Other Records"). Pure.

Such a row neither ends a group nor separates the user-agent lines of a group. A directive binds only the crawlers that
are named above it in its group. Sitemap, License and Clean-param are for all crawlers, anywhere in the file:

* Sitemap: any number of absolute URLs (sitemaps.org, "Specifying the Sitemap location in your robots.txt file").
* ``Clean-param: p0[&p1&p2&..&pn] [path]`` tells Yandex the query parameters that do not change a page (Yandex
  Webmaster, "Clean-param directive"). A Clean-param does not restrict access, but saves requests for identical pages.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from politesse._base.checks import InvalidURL
from politesse._base.text import has_utf_8
from politesse.origin import split, url_text
from politesse.robots import crawl_directives
from politesse.robots.line import CONTENT_SIGNAL, CONTENT_USAGE, LICENSE, Quirk
from politesse.robots.memory import memory_of
from politesse.robots.pattern import cut_at_stars, normalise_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from politesse.origin import StrOrURL
    from politesse.robots.line import Line, Span

_CLEAN_PARAM: Final = "clean-param"
MAX_REJECTED: Final = 100
"""How many rejected lines are reported at most."""
_UNFIT: Final = frozenset(" \t\\")
_USAGE_FIELDS: Final = frozenset({CONTENT_USAGE, CONTENT_SIGNAL, LICENSE})


Listed = TypeVar("Listed")


class _CleanParam(NamedTuple):
    names: frozenset[str]
    matches: Callable[[str], bool]


class CleanParams:
    """The Clean-param lines of a file.

    >>> from politesse import RobotsTxt
    >>> params = RobotsTxt.parse("Clean-param: sid&ref /shop").clean_params
    >>> params.canonical("https://example.com/shop/1?id=7&sid=x")
    'https://example.com/shop/1?id=7'

    Args:
        lines: all lines of a robots.txt.
    """

    __slots__ = ("_params",)

    def __init__(self, lines: Iterable[Line]) -> None:
        parsed = (_parse_clean_param(line.value) for line in lines if line.name.lower() == _CLEAN_PARAM)
        self._params = tuple(param for param in parsed if param is not None)

    def __len__(self) -> int:
        return len(self._params)

    def canonical(self, url: StrOrURL) -> str:
        """Return ``url`` without the parameters that do not change the page; other parameters keep their order.

        Names of parameters are compared as they are written. The time is at most proportional to the octets of all
        lines times the octets of ``url``.

        Args:
            url: absolute URL, or target that starts with ``/``; its fragment is kept.

        Raises:
            TypeError: ``url`` is neither a str nor a yarl.URL.
        """
        url = url_text(url)
        whole, hash_, fragment = url.partition("#")
        before, question, query = whole.partition("?")
        if not question or not self._params:
            return url
        path = "/" + before.partition("://")[2].partition("/")[2] if "://" in before else before
        meaningless = frozenset[str]().union(*(param.names for param in self._params if param.matches(path)))
        kept = [pair for pair in query.split("&") if pair.partition("=")[0] not in meaningless]
        return before + ("?" + "&".join(kept) if kept else "") + hash_ + fragment


def _parse_clean_param(value: str) -> _CleanParam | None:
    names, *paths = value.split(maxsplit=1)[:2] or [""]
    known = frozenset(name for name in names.split("&") if name)
    pattern = normalise_pattern(paths[0].strip()) if paths else "/"
    return _CleanParam(known, cut_at_stars(pattern).matches) if known else None


class RejectedSitemap(NamedTuple):
    """A Sitemap line whose value is not an absolute http(s) URL.

    >>> RejectedSitemap(line=3, value="/sitemap.xml", problem="has no scheme").line
    3

    Attributes:
        line: line number, from 1.
        value: value as written; untrusted, and perhaps not printable.
        problem: a phrase that describes the problem.
    """

    line: int
    value: str
    problem: str


class SitemapLines:
    """The Sitemap lines of a file, each value once. A line is validated on demand, because few callers read the lines.

    Args:
        listed: one row for each line, with the line number, a space, and the value.

    Attributes:
        lines: (line number, value) in the order of the file.
        weight_bytes: approximate memory that the lines take.
    """

    __slots__ = ("_listed",)

    def __init__(self, listed: str) -> None:
        self._listed = listed  # one string takes a third of the memory of a list

    @property
    def values(self) -> list[str]:
        """The values of all lines, including repeated values."""
        return [value for _, value in self._all()]

    @property
    def lines(self) -> tuple[tuple[int, str], ...]:
        """See the class."""
        first: dict[str, int] = {}
        for number, value in self._all():
            first.setdefault(value, int(number))
        return tuple((number, value) for value, number in first.items())

    def _all(self) -> list[list[str]]:
        return [line.split(" ", 1) for line in self._listed.split("\n")] if self._listed else []

    @property
    def weight_bytes(self) -> int:
        """See the class."""
        return memory_of((self._listed,))

    def check(self) -> tuple[tuple[str, ...], tuple[RejectedSitemap, ...]]:
        """Return the values that are absolute http(s) URLs, as written, and the other values with their problems."""
        urls: list[str] = []
        rejected: list[RejectedSitemap] = []
        for number, value in self.lines:
            problem = _problem_of(value)
            if not problem:
                urls.append(value)
            elif len(rejected) < MAX_REJECTED:
                rejected.append(RejectedSitemap(number, value, problem))
        return tuple(urls), tuple(rejected)


def _problem_of(value: str) -> str:
    """Return the problem of a value; empty for a URL that can be requested."""
    if not value:
        return "is empty"
    if not _UNFIT.isdisjoint(value):
        return "holds a blank or a backslash, which no URL does (RFC 3986 2)"
    if not has_utf_8(value):
        return "holds octets that are not UTF-8; percent-encode them"
    try:
        split(value)
    except InvalidURL as error:
        return error.problem
    return ""


DIRECTIVES: Final[dict[str, Callable[[str], crawl_directives.DirectiveValue | None]]] = {
    "crawl-delay": crawl_directives.parse_crawl_delay,
    "request-rate": crawl_directives.parse_request_rate,
    "visit-time": crawl_directives.parse_visit_time,
    "comment": str,
}
"""Parser of the value of each directive; it returns None for an invalid value."""

_number_of: Callable[[Line], int] = attrgetter("number")


class OtherRecords:
    """See the module.

    Attributes:
        directives: lines with a valid value, and the value.
        usage: lines about the use of content; ``SiteUsage`` parses their values.
        sitemaps: the number and the value of each Sitemap line, as a text.
        licenses: License lines with an absolute URL.
        signals: Content-Signals before the first group.
    """

    __slots__ = ("directives", "licenses", "signals", "sitemaps", "usage")

    def __init__(self) -> None:
        self.directives: list[tuple[Line, crawl_directives.DirectiveValue]] = []
        self.usage: list[Line] = []
        self.sitemaps: list[str] = []
        self.licenses: list[Line] = []
        self.signals: list[Line] = []

    def directives_in(self, span: Span) -> list[tuple[Line, crawl_directives.DirectiveValue]]:
        """Return the directives that bind a crawler, with their typed values."""
        return _within(self.directives, span, _number_of_directive) if self.directives else []

    def add(self, line: Line, *, stray: Quirk | None) -> None:
        """Add the next line, or its quirk.

        Args:
            line: a line with a field that the dialect reads.
            stray: the quirk for a line outside of groups; None if this line is in a group.
        """
        field = line.field
        has_control = bool(line.quirks) and Quirk.CONTROL_CHARACTER in line.quirks  # RFC 9309 3: it binds no crawler
        if field == "sitemap":
            self.sitemaps.append(f"{line.number} {line.value}")
        elif field in _USAGE_FIELDS:
            from politesse.usage.vocabulary import is_absolute_url  # noqa: PLC0415 - few files state preferences

            if has_control or (field == LICENSE and is_absolute_url(line.value) is None):
                line.quirks += (Quirk.INVALID_VALUE,)
            elif field == LICENSE:
                self.licenses.append(line)
            elif stray is None:
                self.usage.append(line)
            elif field == CONTENT_SIGNAL and stray is Quirk.BEFORE_ANY_GROUP:
                self.signals.append(line)
            else:
                line.quirks += (stray,)
        elif field in DIRECTIVES:
            if stray is not None:
                line.quirks += (stray,)
            elif has_control or (value := DIRECTIVES[field](line.value)) is None:
                line.quirks += (Quirk.INVALID_VALUE,)
            else:
                self.directives.append((line, value))


def lines_in(lines: list[Line], span: Span) -> list[Line]:
    """Return those lines that are in a span. The given lines must be in the order of the file."""
    return _within(lines, span, _number_of)


def _within(listed: list[Listed], span: Span, number_of: Callable[[Listed], int]) -> list[Listed]:
    listed_at, end, *_ = span
    return listed[bisect_left(listed, listed_at, key=number_of) : bisect_left(listed, end, key=number_of)]


def _number_of_directive(directive: tuple[Line, object]) -> int:
    return directive[0].number
