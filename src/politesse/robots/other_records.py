"""Sorts the rows of a file that are neither rules nor user-agent lines (RFC 9309 2.2.4, "Other Records").

Such a row neither ends a group nor separates its user-agent lines. A directive binds the crawlers that its group names
above the directive. A Sitemap and a License are for all crawlers, anywhere in the file.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from politesse.robots import crawl_directives
from politesse.robots.line import Line, Quirk
from politesse.robots.preferences import CONTENT_SIGNAL, CONTENT_USAGE, LICENSE
from politesse.usage.vocabulary import is_absolute_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse.robots.line import FieldRow, Span

Item = TypeVar("Item")

DIRECTIVES: Final[dict[str, Callable[[str], crawl_directives.DirectiveValue | None]]] = {
    "crawl-delay": crawl_directives.parse_crawl_delay,
    "request-rate": crawl_directives.parse_request_rate,
    "visit-time": crawl_directives.parse_visit_time,
    "comment": str,
}
"""Parser of the value of each directive; it returns None for an invalid value."""

_USAGE_FIELDS: Final = frozenset({CONTENT_USAGE, CONTENT_SIGNAL, LICENSE})
_number_of = itemgetter(0)
_number_of_line = attrgetter("number")


class OtherRecords:
    """See the module.

    Attributes:
        directives: (row number, typed value).
        usage: lines about the use of content; their values are parsed when a caller first asks about this use.
        sitemaps: the number and the value of each Sitemap line, as a text.
        licenses: License lines with an absolute URL.
        signals: Content-Signals before the first group.
        quirks: quirks by row number that follow from the place or the value of a row.
    """

    __slots__ = ("directives", "licenses", "quirks", "signals", "sitemaps", "usage")

    def __init__(self) -> None:
        self.directives: list[tuple[int, crawl_directives.DirectiveValue]] = []
        self.usage: list[Line] = []
        self.sitemaps: list[str] = []
        self.licenses: list[Line] = []
        self.signals: list[Line] = []
        self.quirks: dict[int, Quirk] = {}

    @property
    def state_usage(self) -> bool:
        """Whether any row is about the use of content."""
        return bool(self.usage or self.licenses or self.signals)

    def directives_in(self, span: Span) -> list[tuple[int, crawl_directives.DirectiveValue]]:
        """Return the directives that bind a crawler."""
        return rows_in(self.directives, span)

    def usage_in(self, span: Span) -> list[Line]:
        """Return the lines about the use of content that bind a crawler."""
        return rows_in(self.usage, span, _number_of_line)

    def add(self, row: FieldRow, *, has_control: bool, stray: Quirk | None) -> None:
        """Add the next row.

        Args:
            row: the row; the dialect reads its field.
            has_control: whether the row has a control character, so that it binds no crawler (RFC 9309 3).
            stray: the quirk for a row outside of groups; None if this row is in a group.
        """
        number, name, value = row
        if name.field == "sitemap":
            self.sitemaps.append(f"{number} {value}")
        elif name.field in _USAGE_FIELDS:
            line = Line(number, name.spelling, name.field, value)
            if has_control or (name.field == LICENSE and is_absolute_url(value) is None):
                self.quirks[number] = Quirk.INVALID_VALUE
            else:
                self._prefer(line, stray)
        elif name.field in DIRECTIVES:
            parsed = DIRECTIVES[name.field](value)
            if stray is not None:
                self.quirks[number] = stray
            elif parsed is None or has_control:
                self.quirks[number] = Quirk.INVALID_VALUE
            else:
                self.directives.append((number, parsed))

    def _prefer(self, line: Line, stray: Quirk | None) -> None:
        """Add a line about the use of content."""
        if line.field == LICENSE:
            self.licenses.append(line)
        elif stray is None:
            self.usage.append(line)
        elif line.field == CONTENT_SIGNAL and stray is Quirk.BEFORE_ANY_GROUP:
            self.signals.append(line)
        else:
            self.quirks[line.number] = stray


def rows_in(rows: list[Item], span: Span, number_of: Callable[[Any], int] = _number_of) -> list[Item]:
    """Return the rows of a span, from all rows of their kind in the order of the file."""
    listed_at, end, *_ = span
    return rows[bisect_left(rows, listed_at, key=number_of) : bisect_left(rows, end, key=number_of)]
