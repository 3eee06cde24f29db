"""Finds the groups and the rules of a crawler in one pass over the lines of a file (RFC 9309 2.2.1).

Most files are read only for the rules of a crawler. So the outline keeps only the lines that may bind a crawler, and a
rule set compiles only the rules of its crawler. Lines get the quirks that follow from their place or their value.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from politesse.robots.agents import EVERYBODY
from politesse.robots.crawl_directives import VERSION_1, Version, parse_robot_version
from politesse.robots.line import NO_END, Group, Line, Quirk, is_void, rule_quirks
from politesse.robots.other_records import DIRECTIVES, OtherRecords, lines_in
from politesse.robots.rule_sets import RULE_SETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from politesse.robots.dialect import Dialect
    from politesse.robots.line import Span
    from politesse.robots.rule_sets import Directives, RuleSet


class Outline:
    """The groups of a file, and its other records.

    Args:
        lines: the lines of the file, and None for each blank row.
        dialect: the dialect of the file.

    Attributes:
        others: records that are neither rules nor user-agent lines.
        sitemaps: one row for each Sitemap line, with the line number, a space, and the value.
        starts: the number of the first row of each group.
        names: maps each name, in lower case, to the numbers of its user-agent lines.
    """

    def __init__(self, lines: Iterable[Line | None], dialect: Dialect) -> None:
        self._dialect = dialect
        self._grouping = dialect.traits.grouping
        self.others: OtherRecords = OtherRecords()
        self.starts: list[int] = []
        self.names: dict[str, list[int]] = {}
        self._versions: list[Version] = []
        self._heads: list[Line] = []
        self._rules: list[Line] = []
        self._read(lines)
        self.sitemaps: str = "\n".join(self.others.sitemaps)

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

    def group_at(self, number: int) -> int:
        """Return the index of the group of a row."""
        return bisect_right(self.starts, number) - 1

    def rule_set(self, found: Sequence[Span], directives: Directives) -> RuleSet:
        """Return the compiled rules of groups."""
        lines = [line for span in found for line in lines_in(self._rules, span) if not is_void(line)]
        return RULE_SETS[self._dialect.traits.winner](lines, directives, self._dialect)

    def group(self, group: int) -> Group:
        """Return a group with its lines."""
        whole = self.starts[group], self._end(group), "", VERSION_1
        heads = lines_in(self._heads, whole)
        first: dict[str, int] = {}  # the number of the first line of each agent
        for line in heads:
            if Quirk.NAMES_NOBODY not in line.quirks:
                first.setdefault(self._grouping.name(line.value), line.number)
        listed = list(first.values())
        return Group(
            {name: place for place, name in enumerate(first)},
            [line for line in heads if line.number],
            lines_in(self._rules, whole),
            [(bisect_left(listed, line.number), line, value) for line, value in self.others.directives_in(whole)],
            [(bisect_left(listed, line.number), line) for line in lines_in(self.others.usage, whole)],
            self._versions[group],
        )

    def _read(self, lines: Iterable[Line | None]) -> None:
        grouping, syntax = self._grouping, self._dialect.traits.syntax
        inside = False  # whether a rule belongs to a group
        row_ended = False  # whether the next user-agent line starts a group
        headed = True  # whether a Robot-version on the next line is misplaced
        for line in lines:
            if line is None:
                if syntax.blank_lines:
                    inside, row_ended, headed = False, False, True
                continue
            field = line.field
            if field in grouping.rules:
                inside = self._add_rule(line, inside=inside)
                row_ended = headed = True
            elif field == "user-agent":
                # RFC 9309 2.1: a group ends only at a user-agent line that follows a rule.
                if not inside or row_ended:
                    self._start(line.number)
                inside, row_ended, headed = True, False, False
                self._versions[-1] = VERSION_1  # a Robot-version follows the last user-agent line
                self._name(line)
            elif field == "robot-version" and grouping.versioned:
                self._set_version(line, misplaced=headed or not inside)
                headed = True
            elif field:
                # RFC 9309 2.2.4: "Parsing of other records MUST NOT interfere with the parsing of explicitly defined
                # records": such a row neither ends nor starts a group.
                if field in syntax.fields:
                    self.others.add(line, stray=None if inside else self._stray())
                headed = headed or field in DIRECTIVES
                row_ended = row_ended or grouping.any_field_is_a_rule or self._is_usage_rule(line)

    def _end(self, group: int) -> int:
        return self.starts[group + 1] if group + 1 < len(self.starts) else NO_END

    def _start(self, number: int) -> None:
        self.starts.append(number)
        self._versions.append(VERSION_1)

    def _add_rule(self, line: Line, *, inside: bool) -> bool:
        """Add a rule; return whether it belongs to a group, so that it binds crawlers.

        The rules before the first user-agent line make an unnamed group, if they bind crawlers in the dialect.
        """
        if self._grouping.unnamed_group and not self.starts:
            self._start(0)
            self._name(Line(0, "", "user-agent", EVERYBODY))
        inside = inside or self.starts == [0]  # there was no user-agent line yet
        if inside:
            self._rules.append(line)
        else:  # RFC 9309 2.2.2: rules before the first user-agent line are ignored
            line.quirks += (self._stray(),)
        line.quirks += rule_quirks(line.field, line.value, self._dialect.traits.matching.leading)
        return inside

    def _name(self, line: Line) -> None:
        name = self._grouping.name(line.value)
        if not name or Quirk.CONTROL_CHARACTER in line.quirks:
            line.quirks += (Quirk.NAMES_NOBODY,)
        else:
            self.names.setdefault(name, []).append(line.number)
        self._heads.append(line)

    def _set_version(self, line: Line, *, misplaced: bool) -> None:
        version = parse_robot_version(line.value)
        if misplaced:
            line.quirks += (Quirk.MISPLACED_VERSION,)
        elif version is None:
            line.quirks += (Quirk.INVALID_VALUE,)
        else:
            self._versions[-1] = version

    def _stray(self) -> Quirk:
        """Return the quirk of a row that should be in a group, but is not."""
        return Quirk.OUTSIDE_GROUP if self.starts else Quirk.BEFORE_ANY_GROUP

    def _is_usage_rule(self, line: Line) -> bool:
        """Whether a row is a rule about the use of content: it has a value, and no control character.

        Any other row is ignored. If it counted as a rule, it would end the run of user-agent lines, and the rules below
        it would not bind the crawlers above it.
        """
        is_valid = bool(line.value) and Quirk.CONTROL_CHARACTER not in line.quirks
        return is_valid and line.field in self._grouping.usage_rules
