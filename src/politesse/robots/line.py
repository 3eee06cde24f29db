"""The lines of the lexer, their groups, and the quirks of lines, files and decisions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from politesse.robots.crawl_directives import DirectiveValue, Version


class Quirk(StrEnum):
    """A leniency of the parser, or an ignored fault; recorded so that lint and explain can report it.

    >>> from politesse import RobotsTxt
    >>> RobotsTxt.parse("Disallow: /before/any/group").lines[0].quirks
    (<Quirk.BEFORE_ANY_GROUP: 'before-any-group'>,)
    """

    BYTE_ORDER_MARK = "byte-order-mark"
    """The file starts with a UTF-8 byte order mark, a part of this mark, or the mark of a wrong encoding: skipped."""
    TRANSCODED = "transcoded"
    """The byte order mark means UTF-16 or UTF-32: the file is read in that encoding (RFC 9309 2.2.2, MAY)."""
    LOOKS_LIKE_HTML = "looks-like-html"
    """The file starts like a web page; valid lines are still read."""
    MISSPELLED_FIELD = "misspelled-field"
    """A misspelled field name, read as the name that was meant."""
    MISSING_COLON = "missing-colon"
    """Two words without a colon, the first of which is a field name: read as if they had a colon."""
    NO_SEPARATOR = "no-separator"
    """A line without a colon that cannot be read like a line with MISSING_COLON: it is ignored."""
    ODD_BLANK = "odd-blank"
    """A no-break space or a byte order mark around the field or the value, as in pasted files: read as a blank."""
    CONTROL_CHARACTER = "control-character"
    """A control character, which no path or token may contain: the line binds no crawler (RFC 9309 3)."""
    BEFORE_ANY_GROUP = "before-any-group"
    """A rule or directive before the first user-agent line: it binds no crawler (RFC 9309 2.2.2)."""
    OUTSIDE_GROUP = "outside-group"
    """A rule or directive after the blank line that ended its record, in a dialect in which blank lines end records: it
    binds no crawler."""
    NO_LEADING_SLASH = "no-leading-slash"
    """A path pattern that starts with neither ``/`` nor ``*``: it matches no target (RFC 9309 2.2)."""
    EMPTY_ALLOW = "empty-allow"
    """An Allow without a path: it is ignored."""
    NAMES_NOBODY = "names-nobody"
    """A user-agent line without a product token: it names no crawler."""
    INVALID_VALUE = "invalid-value"
    """A directive with an invalid value: it is ignored."""
    MISPLACED_VERSION = "misplaced-version"
    """A Robot-version that does not directly follow the user-agent lines: it is ignored (Conner 2.0)."""
    LINE_CUT = "line-cut"
    """A line that exceeds the length that the dialect reads: the rest of it is ignored."""
    MATCHING_BOUND = "matching-bound"
    """A decision reached the bound on its matching work. Each Disallow that was not compared counts as matching, and no
    such Allow does. This is a quirk of a decision, not of a line."""
    FILE_CUT = "file-cut"
    """A file that exceeds the length that the dialect reads: the rest of it is ignored."""


CONTENT_USAGE: Final = "content-usage"
CONTENT_SIGNAL: Final = "content-signal"
LICENSE: Final = "license"

NO_QUIRKS: Final[tuple[Quirk, ...]] = ()

NO_END: Final = 0xFFFF_FFFF
"""The end of the last group, larger than any line number."""

_VOID: Final = frozenset({Quirk.NO_LEADING_SLASH, Quirk.EMPTY_ALLOW, Quirk.CONTROL_CHARACTER})


@dataclass(slots=True, eq=False, repr=False)
class Line:
    r"""A line of a robots.txt that is not blank and not only a comment.

    >>> from politesse import RobotsTxt
    >>> RobotsTxt.parse("User-agent: *\nDissallow: /private # a comment").lines
    [<Line 1: 'User-agent': '*'>, <Line 2: 'Dissallow': '/private' misspelled-field>]

    Attributes:
        number: line number, from 1.
        name: field name as written, without surrounding blanks.
        field: the field that the name stands for, in lower case; empty without a field.
        value: the text after the colon, without comment and surrounding blanks.
        quirks: quirks of the line: those of its text, then those that follow from its place or its value.
    """

    number: int
    name: str
    field: str
    value: str
    quirks: tuple[Quirk, ...] = NO_QUIRKS

    def __repr__(self) -> str:
        quirks = "".join(f" {quirk}" for quirk in self.quirks)
        return f"<Line {self.number}: {self.name!r}: {self.value!r}{quirks}>"


class AgentLine(NamedTuple):
    """A line, and the user-agent name to which it applies; the name is empty for all crawlers."""

    agent: str
    line: Line


def rule_quirks(field: str, value: str, leading: tuple[str, ...]) -> tuple[Quirk, ...]:
    """Return the quirks of the value of a rule, in a dialect whose paths start with ``leading``."""
    if value.startswith(leading) or (not value and field != "allow"):
        return NO_QUIRKS
    return (Quirk.NO_LEADING_SLASH if value else Quirk.EMPTY_ALLOW,)


def is_void(line: Line) -> bool:
    """Whether a rule with a value matches no target, because of a quirk of its line."""
    return bool(line.quirks) and not _VOID.isdisjoint(line.quirks)


Span = tuple[int, int, str, Version]
"""The part of a group that binds a crawler, from the user-agent line that names it to the end of the group.

The items are: the number of that user-agent line, or 0 for rules before any user-agent line; the number of the line
that starts the next group, or NO_END; the name on the user-agent line; and the version of the standard in which the
group is written."""


@dataclass(slots=True, eq=False, repr=False)
class Group:
    r"""A run of user-agent lines, and the lines up to the next run.

    >>> from politesse import RobotsTxt
    >>> robots = RobotsTxt.parse("User-agent: a\nUser-agent: b\nDisallow: /x\nUser-agent: *\nAllow: /")
    >>> robots.groups
    [<Group a, b: 1 rules>, <Group *: 1 rules>]

    Attributes:
        agents: maps each name, in lower case, to its index in the group, from 0; ``*`` stands for all crawlers.
        heads: user-agent lines.
        rules: lines that are rules, Allow and Disallow in most dialects; they bind all agents of the group.
        directives: (number of agents, line, typed value) for each directive. The number counts the agents above the
            line; the line binds only these agents.
        usage: (number of agents, line) for each Content-Usage and Content-Signal line; the number has the same meaning.
        version: the version of the standard in which the group is written, in dialects with versions.
    """

    agents: dict[str, int]
    heads: list[Line]
    rules: list[Line]
    directives: list[tuple[int, Line, DirectiveValue]]
    usage: list[tuple[int, Line]]
    version: Version

    def __repr__(self) -> str:
        return f"<Group {', '.join(self.agents)}: {len(self.rules)} rules>"
