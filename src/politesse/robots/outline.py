"""Rows in, groups out, in one pass and without lines: which rules and directives bind which crawler (RFC 9309 2.2.1).

Most files are read for the rules of a crawler, and most of their rows are never looked at again. So a rule is kept
as the row that it is, with one shared name for all rows that spell the field alike, and the rules of a crawler are
made from its rows alone. A quirk that follows from the place of a row is noted by the number of the row. Lines are
made from the text when they are first read, and take their quirks from there.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from politesse.robots import crawl_directives
from politesse.robots.lexer import fields_of, records, rows_of
from politesse.robots.line import Group, GroupMatch, Line, Quirk
from politesse.robots.preferences import CONTENT_SIGNAL, CONTENT_USAGE, LICENSE
from politesse.usage.vocabulary import is_absolute_url

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from politesse.robots.line import FieldRow
    from politesse.robots.traits import Grouping, Syntax

Item = TypeVar("Item")

_DIRECTIVES: Final[dict[str, Callable[[str], crawl_directives.DirectiveValue | None]]] = {
    "crawl-delay": crawl_directives.parse_crawl_delay,
    "request-rate": crawl_directives.parse_request_rate,
    "visit-time": crawl_directives.parse_visit_time,
    "comment": str,
}
_USAGE_FIELDS: Final = frozenset({CONTENT_USAGE, CONTENT_SIGNAL, LICENSE})


class Runs(Generic[Item]):
    """Items of all groups in one list: a file may have 20,000 groups, and the collector visits each list of its own.

    Args:
        starts: for each group, the index of its first item in each kind of runs.
        kind: which of these.

    Attributes:
        all: the items, in the order of the file.
    """

    __slots__ = ("_kind", "_starts", "all")

    def __init__(self, starts: Sequence[tuple[int, ...]], kind: int) -> None:
        self.all: list[Item] = []
        self._starts = starts
        self._kind = kind

    def of(self, group: int) -> list[Item]:
        """Return the items of a group."""
        return self.all[self._starts[group][self._kind] : self.end(group)]

    def end(self, group: int) -> int:
        """Return the index behind the last item of a group."""
        return self._starts[group + 1][self._kind] if group + 1 < len(self._starts) else len(self.all)

    def group_at(self, index: int) -> int:
        """Return the group of an item."""
        return bisect_right(self._starts, index, key=itemgetter(self._kind)) - 1


class Outline:
    """The groups of a file, and the lines that address all crawlers.

    Args:
        syntax: how rows are read.
        grouping: which of them belong together.
        control: numbers of rows with a control character.

    Attributes:
        versions: version of the standard, by group.
        names: names on user-agent lines, in lower case.
        heads: row numbers of the user-agent lines.
        rules: rows of the rules.
        directives: (number of names before, row number, typed value). A directive binds the names before it.
        usage: (number of names before, line) about the use of content; likewise.
        listed: (row number, value) of all Sitemap lines.
        sitemaps: values of those without control characters.
        licenses: License lines with an absolute URL.
        signals: Content-Signals before the first group.
        states_usage: whether any line is about the use of content.
        quirks: quirks by row number that follow from the place or the value of a row.
    """

    def __init__(self, syntax: Syntax, grouping: Grouping, control: Collection[int]) -> None:
        self._syntax = syntax
        self._grouping = grouping
        self.versions: list[crawl_directives.Version] = []
        self._starts: list[tuple[int, ...]] = []
        self.names: Runs[str] = Runs(self._starts, 0)
        self.heads: Runs[int] = Runs(self._starts, 1)
        self.rules: Runs[FieldRow] = Runs(self._starts, 2)
        self.directives: Runs[tuple[int, int, crawl_directives.DirectiveValue]] = Runs(self._starts, 3)
        self.usage: Runs[tuple[int, Line]] = Runs(self._starts, 4)
        self.listed: list[tuple[int, str]] = []
        self.sitemaps: list[str] = []
        self.licenses: list[Line] = []
        self.signals: list[Line] = []
        self.states_usage = False
        self.quirks: dict[int, Quirk] = {}
        self._has_unnamed = False
        self._control = control

    def naming(self, alike: Collection[str]) -> list[GroupMatch]:
        """Return the groups that have any of some names, in the order of the file, with the first of these."""
        found: dict[int, GroupMatch] = {}
        for place in [place for place, name in enumerate(self.names.all) if name in alike]:
            group = self.names.group_at(place)
            if group not in found:
                found[group] = GroupMatch(group, place, self.versions[group])
        return list(found.values())

    def rules_of(self, group: int) -> list[FieldRow]:
        """Return the rules of a group, without rules that hold a control character (RFC 9309 3)."""
        rules = self.rules.of(group)
        return [row for row in rules if row[0] not in self._control] if self._control else rules

    def group(self, group: int, lines: Mapping[int, Line]) -> Group:
        """Return a group as lines, by their numbers."""
        agents: dict[str, int] = {}
        count = [0]  # of different names, by the number of all names
        for name in self.names.of(group):
            agents.setdefault(name, len(agents))
            count.append(len(agents))
        first = self.names.end(group) - len(count) + 1
        return Group(
            agents,
            [lines[number] for number in self.heads.of(group)],
            [lines[row[0]] for row in self.rules.of(group)],
            [(count[before - first], lines[number], value) for before, number, value in self.directives.of(group)],
            [(count[before - first], lines[line.number]) for before, line in self.usage.of(group)],
            self.versions[group],
        )

    def read(self, rows: Iterable[FieldRow]) -> None:
        """Read the rows of a record."""
        grouping = self._grouping
        rules, add = grouping.rules, self.rules.all.append
        inside = False  # whether a rule belongs to a group
        row_ended = False  # whether the next user-agent line starts a group
        headed = True  # whether a Robot-version on the next line is misplaced
        for row in rows:
            field = row[1].field
            if field in rules:
                # RFC 9309 2.2.2: rules before the first user-agent line are ignored.
                inside = inside or self._is_unnamed(row[0])
                if inside:
                    add(row)
                row_ended = headed = True
            elif field == "user-agent":
                # RFC 9309 2.1: a group ends only at a user-agent line that follows a rule.
                if not inside or row_ended:
                    self._start()
                inside, row_ended, headed = True, False, False
                self.versions[-1] = crawl_directives.VERSION_1  # a Robot-version follows the last user-agent line
                self._name(row)
            elif field:
                headed = self._say(row, inside=inside, headed=headed)
                row_ended = row_ended or grouping.any_field_is_a_rule or self._is_usage_rule(row)

    def _start(self) -> None:
        self.versions.append(crawl_directives.VERSION_1)
        runs = len(self.names.all), len(self.heads.all), len(self.rules.all)
        self._starts.append((*runs, len(self.directives.all), len(self.usage.all)))

    def _is_unnamed(self, number: int) -> bool:
        """Whether a rule in no group belongs to the group before any user-agent line; if not, it binds no crawler."""
        everybody = self._grouping.before_any_agent
        if everybody and not self.versions:
            self._has_unnamed = True
            self._start()
            self.names.all += everybody
        if self._has_unnamed and len(self.versions) == 1:
            return True  # no user-agent line came yet
        self.quirks[number] = self._stray()
        return False

    def _name(self, row: FieldRow) -> None:
        number, _, value = row
        self.heads.all.append(number)
        name = self._grouping.name(value)
        if not name or number in self._control:
            self.quirks[number] = Quirk.NAMES_NOBODY
        else:
            self.names.all.append(name)

    def _say(self, row: FieldRow, *, inside: bool, headed: bool) -> bool:
        """Record a row that is neither a rule nor a user-agent line.

        RFC 9309 2.2.4: such a record neither ends a group nor separates its user-agent lines.

        Returns:
            Whether a Robot-version on the next line is misplaced.
        """
        number, name, value = row
        if name.field == "sitemap":
            self.listed.append((number, value))
            if number not in self._control:
                self.sitemaps.append(value)
        elif name.field in _USAGE_FIELDS:
            if name.field in self._syntax.fields:
                self._prefer(Line(number, name.spelling, name.field, value), inside=inside)
        elif (parse := _DIRECTIVES.get(name.field)) is not None:
            self._direct(number, parse(value), inside=inside)
            return True
        elif name.field == "robot-version" and self._grouping.versioned:
            version = crawl_directives.parse_robot_version(value)
            if headed or not inside:
                self.quirks[number] = Quirk.MISPLACED_VERSION
            elif version is None:
                self.quirks[number] = Quirk.INVALID_VALUE
            else:
                self.versions[-1] = version
            return True
        return headed

    def _prefer(self, line: Line, *, inside: bool) -> None:
        """Record a line about the use of content; its value is parsed at the first question about it."""
        if line.number in self._control or (line.field == LICENSE and is_absolute_url(line.value) is None):
            self.quirks[line.number] = Quirk.INVALID_VALUE
            return
        if line.field == LICENSE:
            self.licenses.append(line)
        elif inside:
            self.usage.all.append((len(self.names.all), line))
        elif line.field == CONTENT_SIGNAL and not self.versions:
            self.signals.append(line)
        else:
            self.quirks[line.number] = self._stray()
            return
        self.states_usage = True

    def _direct(self, number: int, value: crawl_directives.DirectiveValue | None, *, inside: bool) -> None:
        if not inside:
            self.quirks[number] = self._stray()
        elif value is None or number in self._control:
            self.quirks[number] = Quirk.INVALID_VALUE
        else:
            self.directives.all.append((len(self.names.all), number, value))

    def _stray(self) -> Quirk:
        """Return the quirk of a row that belongs in a group and is in none."""
        return Quirk.OUTSIDE_GROUP if self.versions else Quirk.BEFORE_ANY_GROUP

    def _is_usage_rule(self, row: FieldRow) -> bool:
        """Whether a row is a rule about the use of content. A row without a valid value is not.

        Otherwise it would end the row of user-agent lines, and the rules of RFC 9309 below would not bind those above
        it.
        """
        number, name, value = row
        return name.field in self._grouping.usage_rules and bool(value) and number not in self._control


def outline_of(text: str, syntax: Syntax, grouping: Grouping) -> Outline:
    """Return the outline of a decoded file."""
    rows = rows_of(text, syntax)
    outline = Outline(syntax, grouping, rows.control)
    # A field that the dialect does not read says nothing, unless it ends a run of user-agent lines. One in thirty
    # robots.txt is a web page: its rows are a quarter of the time of reading the corpus.
    known_only = not grouping.any_field_is_a_rule
    records_of = records(rows.texts) if syntax.blank_lines else [(0, len(rows.texts))]
    for start, end in records_of:
        outline.read(fields_of(rows.texts[start:end], start + 1, syntax, known_only=known_only))
    return outline
