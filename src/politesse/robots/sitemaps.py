"""Reads the sitemaps in a robots.txt: any number of absolute URLs, anywhere in the file, for all crawlers. Pure.

sitemaps.org, "Specifying the Sitemap location in your robots.txt file"; RFC 9309 2.2.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from politesse._base.text import has_utf_8
from politesse.errors import InvalidURL
from politesse.origin import split
from politesse.robots.memory import memory_of

MAX_REJECTED: Final = 100
"""How many rejected lines are reported at most."""

_UNFIT: Final = frozenset(" \t\\")


@dataclass(frozen=True, slots=True)
class RejectedSitemap:
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
        listed: a row for each line: its number, a space, and its value.

    Attributes:
        lines: (line number, value) in the order of the file.
        weight_bytes: approximate memory that they take.
    """

    __slots__ = ("_listed",)

    def __init__(self, listed: str) -> None:
        self._listed = listed  # one string, seldom read, takes a third of the memory of a list

    @property
    def values(self) -> list[str]:
        """The values of all lines, including repeated values."""
        return [line.partition(" ")[2] for line in self._listed.split("\n")] if self._listed else []

    @property
    def lines(self) -> tuple[tuple[int, str], ...]:
        """See the class."""
        numbers = [int(line.partition(" ")[0]) for line in self._listed.split("\n")] if self._listed else []
        # Of equal values the first is kept, because it is written last.
        first = dict(zip(reversed(self.values), reversed(numbers), strict=True))
        return tuple(sorted((number, value) for value, number in first.items()))

    @property
    def weight_bytes(self) -> int:
        """See the class."""
        return memory_of((self._listed,))

    def check(self) -> tuple[tuple[str, ...], tuple[RejectedSitemap, ...]]:
        """Return the values that are absolute http(s) URLs, as written, and the other values with their problems."""
        urls: list[str] = []
        rejected: list[RejectedSitemap] = []
        for number, value in self.lines:
            problem = _problem(value)
            if not problem:
                urls.append(value)
            elif len(rejected) < MAX_REJECTED:
                rejected.append(RejectedSitemap(number, value, problem))
        return tuple(urls), tuple(rejected)


def _problem(value: str) -> str:
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
