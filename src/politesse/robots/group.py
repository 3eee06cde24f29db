"""A group of a robots.txt: user-agent lines, and the rules and directives that bind the crawlers they name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from politesse.robots.crawl_directives import VERSION_1, DirectiveValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from politesse.robots.line import FieldRow, Line


class GroupRows:
    """A group as it is read: row numbers, and no lines; ``Group`` describes what both have.

    Attributes:
        place: index among the groups of the file.
        agents: names in lower case, each with its index among them.
        heads: row numbers of the user-agent lines.
        rules: rows of the rules.
        void: row numbers of rules that bind nobody, because they hold a control character.
        directives: (number of agents, row number, typed value); None for none.
        usage: (number of agents, line) about the use of content; None for none.
        version: version of the standard.
    """

    __slots__ = ("agents", "directives", "heads", "place", "rules", "usage", "version", "void")

    def __init__(self, place: int) -> None:
        self.place = place
        self.agents: dict[str, int] = {}  # not a list: a file may name 100,000
        self.heads: list[int] = []
        self.rules: list[FieldRow] = []
        self.void: Sequence[int] = ()
        # No list before there is something in it: a file may have 500 groups, and few have any of these.
        self.directives: list[tuple[int, int, DirectiveValue]] | None = None
        self.usage: list[tuple[int, Line]] | None = None
        self.version = VERSION_1

    def direct(self, number: int, value: DirectiveValue) -> None:
        """Add a directive for the agents so far."""
        if self.directives is None:
            self.directives = []
        self.directives.append((len(self.agents), number, value))

    def prefer(self, line: Line) -> None:
        """Add a line about the use of content for the agents so far."""
        if self.usage is None:
            self.usage = []
        self.usage.append((len(self.agents), line))


class Group:
    r"""A run of user-agent lines and what follows up to the next run.

    >>> from politesse import RobotsTxt
    >>> robots = RobotsTxt.parse("User-agent: a\nUser-agent: b\nDisallow: /x\nUser-agent: *\nAllow: /")
    >>> robots.groups
    [<Group a, b: 1 rules>, <Group *: 1 rules>]

    Attributes:
        agents: names in lower case, ``*`` for everybody, each with its index among them, from 0.
        heads: user-agent lines.
        rules: lines that are rules, Allow and Disallow in most dialects; they bind all agents of the group.
        directives: (number of agents, line, typed value) of each other field that belongs to agents. A directive
            binds only the agents that are listed before it; the number says how many.
        usage: (number of agents, line) of each Content-Usage and Content-Signal line; the number as in ``directives``.
        version: version of the standard that the group is written in, in dialects that have versions.
    """

    __slots__ = ("agents", "directives", "heads", "rules", "usage", "version")

    def __init__(self, rows: GroupRows, lines: Mapping[int, Line]) -> None:
        self.agents = rows.agents
        self.heads = [lines[number] for number in rows.heads]
        self.rules = [lines[number] for number in sorted([*(row[0] for row in rows.rules), *rows.void])]
        self.directives = [(before, lines[number], value) for before, number, value in rows.directives or ()]
        self.usage = [(before, lines[line.number]) for before, line in rows.usage or ()]
        self.version = rows.version

    def __repr__(self) -> str:
        return f"<Group {', '.join(self.agents)}: {len(self.rules)} rules>"


GroupMatch = tuple[GroupRows, int]
"""(group, index of the matching user-agent line); directives above that line do not apply."""
