"""A group of a robots.txt: user-agent lines, and the rules and directives that bind the crawlers they name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from politesse.robots.crawl_directives import VERSION_1, DirectiveValue

if TYPE_CHECKING:
    from politesse.robots.line import Line


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

    def __init__(self) -> None:
        self.agents: dict[str, int] = {}  # not a list: a file may name 100,000
        self.heads: list[Line] = []
        self.rules: list[Line] = []
        self.directives: list[tuple[int, Line, DirectiveValue]] = []
        self.usage: list[tuple[int, Line]] = []
        self.version = VERSION_1

    def __repr__(self) -> str:
        return f"<Group {', '.join(self.agents)}: {len(self.rules)} rules>"


GroupMatch = tuple[Group, int]
"""(group, index of the matching user-agent line); directives above that line do not apply."""
