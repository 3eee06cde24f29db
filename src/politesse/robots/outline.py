"""Finds the groups and the rules of a crawler in one pass over the rows of a file (RFC 9309 2.2.1).

Most files are read only for the rules of a crawler, and most of their rows are never used again. So the outline keeps
each rule as a row, and a rule set compiles only the rows of the crawler. Rows with the same spelling of a field share
one FieldName. The outline stores other records, and quirks that depend on the place of a row, by row number. RobotsTxt
makes lines from the text at the first access, and adds these quirks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from politesse.robots.agents import EVERYBODY
from politesse.robots.crawl_directives import VERSION_1, Version, parse_robot_version
from politesse.robots.lexer import fields_of, records, rows_of
from politesse.robots.line import NO_END, Group, Quirk
from politesse.robots.other_records import DIRECTIVES, OtherRecords, rows_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from politesse.origin import Origin
    from politesse.robots.dialect import Traits
    from politesse.robots.line import FieldRow, Line, Span
    from politesse.robots.rule_sets import Directives, RuleSet


class Outline:
    """The groups of a file, and its other records.

    Args:
        traits: the traits of the dialect.
        control: numbers of rows with a control character.

    Attributes:
        others: records that are neither rules nor user-agent lines.
        starts: the number of the first row of each group.
        names: maps each name, in lower case, to the numbers of its user-agent lines.
        quirks: maps row numbers to quirks that follow from the place or the value of the row.
    """

    def __init__(self, traits: Traits, control: Collection[int]) -> None:
        self._traits = traits
        self._grouping = traits.grouping
        self._control = control
        self.others: OtherRecords = OtherRecords()
        self.quirks: dict[int, Quirk] = self.others.quirks
        self.starts: list[int] = []
        self.names: dict[str, list[int]] = {}
        self._versions: list[Version] = []
        self._heads: list[tuple[int, str]] = []
        self._rules: list[FieldRow] = []
        self._has_unnamed = False

    def binding(self, tokens: Iterable[str]) -> Sequence[Span]:
        """Return the groups for the first of ``tokens`` that any group names; otherwise the groups for ``*``."""
        grouping, means = self._grouping, self._grouping.names
        for token in filter(None, tokens):
            # Each name is compared once, even if many groups have it.
            names = [name for name in self.names if name != EVERYBODY and means(name, token)] if means else [token]
            if found := grouping.named(self._naming(names)):
                return found
        # RFC 9309 2.2.1: "If no matching group exists, crawlers MUST obey the group with a user-agent line with the
        # "*" value, if present."
        return grouping.everybody(self._naming([EVERYBODY]))

    def _naming(self, names: Iterable[str]) -> list[Span]:
        """Return the groups with any of the names, in the order of the file. A span starts at the first such name."""
        found: dict[int, Span] = {}
        for number, alike in sorted((number, name) for name in names for number in self.names.get(name, ())):
            group = self.group_at(number)
            if group not in found:
                found[group] = number, self._end(group), alike, self._versions[group]
        return list(found.values())

    @property
    def sitemaps(self) -> str:
        """One row for each Sitemap line, with the line number, a space, and the value."""
        return "\n".join(self.others.sitemaps)

    def group_at(self, number: int) -> int:
        """Return the index of the group of a row."""
        return bisect_right(self.starts, number) - 1

    def rule_set(self, found: Sequence[Span], directives: Directives, origin: Origin | None) -> RuleSet:
        """Return the compiled rules of groups. A rule with a control character binds no crawler (RFC 9309 3)."""
        rows = [row for span in found for row in rows_in(self._rules, span) if row[0] not in self._control]
        return self._traits.rule_set(rows, directives, self._traits.matching, origin)

    def group(self, group: int, lines: Mapping[int, Line]) -> Group:
        """Return a group with its lines; ``lines`` maps numbers to lines."""
        whole = self.starts[group], self._end(group), "", VERSION_1
        heads = rows_in(self._heads, whole)
        agents: dict[str, int] = {}
        listed: list[int] = []  # the number of the first line of each agent
        for number, name in heads:
            if name and name not in agents:
                agents[name] = len(agents)
                listed.append(number)
        return Group(
            agents,
            [lines[number] for number, _ in heads if number],
            [lines[row[0]] for row in rows_in(self._rules, whole)],
            [(bisect_left(listed, at), lines[at], value) for at, value in self.others.directives_in(whole)],
            [(bisect_left(listed, line.number), lines[line.number]) for line in self.others.usage_in(whole)],
            self._versions[group],
        )

    def read(self, rows: Iterable[FieldRow]) -> None:
        """Read the rows of a record, or of a whole file if blank lines do not end records."""
        grouping = self._grouping
        rules, fields = grouping.rules, self._traits.syntax.fields
        inside = False  # whether a rule belongs to a group
        row_ended = False  # whether the next user-agent line starts a group
        headed = True  # whether a Robot-version on the next line is misplaced
        for row in rows:
            number, name, value = row
            field = name.field
            if field in rules:
                # RFC 9309 2.2.2: rules before the first user-agent line are ignored.
                inside = inside or self._is_unnamed(number)
                if inside:
                    self._rules.append(row)
                row_ended = headed = True
            elif field == "user-agent":
                # RFC 9309 2.1: a group ends only at a user-agent line that follows a rule.
                if not inside or row_ended:
                    self._start(number)
                inside, row_ended, headed = True, False, False
                self._versions[-1] = VERSION_1  # a Robot-version follows the last user-agent line
                self._name(number, grouping.name(value))
            elif field == "robot-version" and grouping.versioned:
                self._set_version(number, value, misplaced=headed or not inside)
                headed = True
            elif field:
                # RFC 9309 2.2.4: "Parsing of other records MUST NOT interfere with the parsing of explicitly defined
                # records": such a row neither ends nor starts a group.
                if field in fields:
                    stray = None if inside else self._stray()
                    self.others.add(row, has_control=number in self._control, stray=stray)
                headed = headed or field in DIRECTIVES
                row_ended = row_ended or grouping.any_field_is_a_rule or self._is_usage_rule(row)

    def _end(self, group: int) -> int:
        return self.starts[group + 1] if group + 1 < len(self.starts) else NO_END

    def _start(self, number: int) -> None:
        self.starts.append(number)
        self._versions.append(VERSION_1)

    def _is_unnamed(self, number: int) -> bool:
        """Whether a rule outside of named groups belongs to the unnamed group. Otherwise the rule binds no crawler.

        The unnamed group has the rules before the first user-agent line, if such rules bind crawlers in the dialect.
        """
        everybody = self._grouping.before_any_agent
        if everybody and not self.starts:
            self._has_unnamed = True
            self._start(0)
            for name in everybody:
                self._name(0, name)
        if self._has_unnamed and len(self.starts) == 1:
            return True  # there was no user-agent line yet
        self.quirks[number] = self._stray()
        return False

    def _name(self, number: int, name: str) -> None:
        if not name or number in self._control:
            self.quirks[number] = Quirk.NAMES_NOBODY
            name = ""
        else:
            self.names.setdefault(name, []).append(number)
        self._heads.append((number, name))

    def _set_version(self, number: int, value: str, *, misplaced: bool) -> None:
        version = parse_robot_version(value)
        if misplaced:
            self.quirks[number] = Quirk.MISPLACED_VERSION
        elif version is None:
            self.quirks[number] = Quirk.INVALID_VALUE
        else:
            self._versions[-1] = version

    def _stray(self) -> Quirk:
        """Return the quirk of a row that should be in a group, but is not."""
        return Quirk.OUTSIDE_GROUP if self.starts else Quirk.BEFORE_ANY_GROUP

    def _is_usage_rule(self, row: FieldRow) -> bool:
        """Whether a row is a rule about the use of content: it has a value, and no control character.

        Any other row is ignored. If it counted as a rule, it would end the run of user-agent lines, and the rules below
        it would not bind the crawlers above it.
        """
        number, name, value = row
        return name.field in self._grouping.usage_rules and bool(value) and number not in self._control


def outline_of(text: str, traits: Traits) -> Outline:
    """Return the outline of a decoded file."""
    syntax = traits.syntax
    rows = rows_of(text, syntax)
    outline = Outline(traits, rows.control)
    records_of = records(rows.texts) if syntax.blank_lines else [(0, len(rows.texts))]
    for start, end in records_of:
        outline.read(fields_of(rows.texts[start:end], start + 1, syntax))
    return outline
