"""Rows in, groups out, in one pass and without lines: which rules and directives bind which crawler (RFC 9309 2.2.1).

Most files are read for the rules of one crawler, and most of their rows are never looked at again. So a rule is kept
as the row that it is, with one shared name for all rows that spell the field alike, and the rules of a crawler are
made from its rows alone. A quirk that follows from the place of a row is noted by the number of the row. Lines are
made from the text when they are first read, and take their quirks from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from politesse._text import BLANKS
from politesse.robots import crawl_directives
from politesse.robots.group import GroupRows
from politesse.robots.lexer import blank_lines, fields_of, rows_of
from politesse.robots.line import Line, Quirk
from politesse.robots.preferences import CONTENT_SIGNAL, CONTENT_USAGE, LICENSE
from politesse.usage.vocabulary import is_absolute_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from politesse.robots.line import FieldRow
    from politesse.robots.traits import Grouping, Syntax

_DIRECTIVES: Final[dict[str, Callable[[str], crawl_directives.DirectiveValue | None]]] = {
    "crawl-delay": crawl_directives.parse_crawl_delay,
    "request-rate": crawl_directives.parse_request_rate,
    "visit-time": crawl_directives.parse_visit_time,
    "comment": str,
}
_USAGE_FIELDS: Final = frozenset({CONTENT_USAGE, CONTENT_SIGNAL, LICENSE})


class Outline:
    """The groups of a file, and what it says to everybody.

    Args:
        text: the decoded file.
        syntax: how its rows are read.
        grouping: which of them belong together.

    Attributes:
        groups: groups in the order of the file, not merged.
        groups_of: for each name on a user-agent line, the groups that have it.
        listed: (row number, value) of all Sitemap lines.
        sitemaps: values of those without control characters.
        licenses: License lines with an absolute URL.
        signals: Content-Signals before the first group.
        states_usage: whether any line is about the use of content.
        quirks: what the place of a row, or its value, adds to the quirks of the row itself, by row number.
    """

    def __init__(self, text: str, syntax: Syntax, grouping: Grouping) -> None:
        self._syntax = syntax
        self._grouping = grouping
        self.groups: list[GroupRows] = []
        self.groups_of: dict[str, list[GroupRows]] = {}
        self.listed: list[tuple[int, str]] = []
        self.sitemaps: list[str] = []
        self.licenses: list[Line] = []
        self.signals: list[Line] = []
        self.states_usage = False
        self.quirks: dict[int, Quirk] = {}
        self._unnamed: GroupRows | None = None
        rows = rows_of(text, self._syntax)
        self._control = rows.control
        if self._syntax.blank_lines:
            for start, end in _between_blanks(rows.texts):
                self._read(self._fields(rows.texts[start:end], start + 1))
        else:
            self._read(self._fields(rows.texts, 1))
        if self._control:
            self._set_void_apart()

    def _fields(self, texts: Sequence[str], first: int) -> Iterator[FieldRow]:
        # A field that the dialect does not read says nothing, unless it ends a run of user-agent lines. One in thirty
        # robots.txt is a web page: its rows are a quarter of the time of reading the corpus.
        return fields_of(texts, first, self._syntax, known_only=not self._grouping.any_field_is_a_rule)

    def _read(self, rows: Iterator[FieldRow]) -> None:
        """Read the rows of one record."""
        grouping = self._grouping
        rules = grouping.rules
        group: GroupRows | None = None
        row_ended = False  # whether the next user-agent line starts a group
        headed = True  # whether a Robot-version on the next line is misplaced
        for row in rows:
            field = row[1].field
            if field in rules:
                # RFC 9309 2.2.2: rules before the first user-agent line are ignored.
                if group is not None or (group := self._outside(row[0])) is not None:
                    group.rules.append(row)
                row_ended = headed = True
            elif field == "user-agent":
                # RFC 9309 2.1: a group ends only at a user-agent line that follows a rule.
                if group is None or row_ended:
                    group = self._start()
                row_ended = headed = False
                if grouping.versioned:
                    group.version = crawl_directives.VERSION_1  # a Robot-version has to follow the last user-agent line
                self._name(group, row)
            elif field:
                headed = self._say(group, row, headed=headed)
                row_ended = row_ended or grouping.any_field_is_a_rule or self._is_usage_rule(row)

    def _start(self) -> GroupRows:
        group = GroupRows(len(self.groups))
        self.groups.append(group)
        return group

    def _outside(self, number: int) -> GroupRows | None:
        """Return the group of a rule that is in no group, None if the rule binds no crawler."""
        everybody = self._grouping.before_any_agent
        if everybody and not self.groups:
            self._unnamed = self._start()
            for place, name in enumerate(everybody):
                self._unnamed.agents[name] = place
                self.groups_of[name] = [self._unnamed]
        if self.groups and self.groups[-1] is self._unnamed:
            return self._unnamed  # there was no user-agent line yet
        self.quirks[number] = self._stray()
        return None

    def _name(self, group: GroupRows, row: FieldRow) -> None:
        number, _, value = row
        group.heads.append(number)
        name = self._grouping.name(value.strip(BLANKS))
        if not name or number in self._control:
            self.quirks[number] = Quirk.NAMES_NOBODY
            return
        agents = group.agents
        if name not in agents:
            agents[name] = len(agents)
            self.groups_of.setdefault(name, []).append(group)

    def _say(self, group: GroupRows | None, row: FieldRow, *, headed: bool) -> bool:
        """Record a row that is neither a rule nor a user-agent line.

        RFC 9309 2.2.4: such a record neither ends a group nor separates its user-agent lines.

        Returns:
            Whether a Robot-version on the next line is misplaced.
        """
        number, name, value = row[0], row[1], row[2].strip(BLANKS)
        if name.field == "sitemap":
            self.listed.append((number, value))
            if number not in self._control:
                self.sitemaps.append(value)
        elif name.field in _USAGE_FIELDS:
            if name.field in self._syntax.fields:
                self._prefer(group, Line(number, name.spelling, name.field, value))
        elif (parse := _DIRECTIVES.get(name.field)) is not None:
            self._direct(group, number, parse(value))
            return True
        elif name.field == "robot-version" and self._grouping.versioned:
            version = crawl_directives.parse_robot_version(value)
            if headed or group is None:
                self.quirks[number] = Quirk.MISPLACED_VERSION
            elif version is None:
                self.quirks[number] = Quirk.INVALID_VALUE
            else:
                group.version = version
            return True
        return headed

    def _prefer(self, group: GroupRows | None, line: Line) -> None:
        """Record a line about the use of content; its value is parsed at the first question about it."""
        if line.number in self._control or (line.field == LICENSE and is_absolute_url(line.value) is None):
            self.quirks[line.number] = Quirk.INVALID_VALUE
            return
        if line.field == LICENSE:
            self.licenses.append(line)
        elif group is not None:
            group.prefer(line)
        elif line.field == CONTENT_SIGNAL and not self.groups:
            self.signals.append(line)
        else:
            self.quirks[line.number] = self._stray()
            return
        self.states_usage = True

    def _direct(self, group: GroupRows | None, number: int, value: crawl_directives.DirectiveValue | None) -> None:
        if group is None:
            self.quirks[number] = self._stray()
        elif value is None or number in self._control:
            self.quirks[number] = Quirk.INVALID_VALUE
        else:
            group.direct(number, value)

    def _stray(self) -> Quirk:
        """Return the quirk of a row that belongs in a group and is in none."""
        return Quirk.OUTSIDE_GROUP if self.groups else Quirk.BEFORE_ANY_GROUP

    def _is_usage_rule(self, row: FieldRow) -> bool:
        """Whether a row is a rule about the use of content. A row without a valid value is not.

        Otherwise it would end the row of user-agent lines, and the rules of RFC 9309 below would not bind those above
        it.
        """
        number, name, value = row
        return name.field in self._grouping.usage_rules and bool(value.strip(BLANKS)) and number not in self._control

    def _set_void_apart(self) -> None:
        """Take the rules with control characters from those that are compiled (RFC 9309 3)."""
        for group in self.groups:
            group.void = [row[0] for row in group.rules if row[0] in self._control]
            group.rules = [row for row in group.rules if row[0] not in self._control]


def _between_blanks(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield, as indexes of rows, where the records start and end that blank lines separate."""
    start = 0
    for blank in blank_lines(texts):
        if blank - 1 > start:
            yield start, blank - 1
        start = blank
    if len(texts) > start:
        yield start, len(texts)
