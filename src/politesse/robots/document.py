"""Lines in, groups out: which rules and directives are whose (RFC 9309 2.2.1)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from politesse.robots.dialect import Dialect
from politesse.robots.directives import parse_crawl_delay, parse_request_rate, parse_visit_time
from politesse.robots.lexer import Line, Quirk, lex
from politesse.robots.ruleset import Directives, RuleSet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from politesse.robots.directives import RequestRate, TimeWindow

EVERYBODY: Final = "*"

_TOKEN_END = re.compile(r"[ \t/;(,*]")


def product_token(agent: str) -> str:
    """Return the product token of a User-Agent string, or of a user-agent line, in lower case.

    It ends before a blank, ``/``, ``;``, ``(``, ``,`` or ``*``: ``ExampleBot/1.0 (+https://example.com/bot)`` is
    ``examplebot``. Empty where there is none, or where it is not ASCII.
    """
    token = _TOKEN_END.split(agent.strip(" \t"), maxsplit=1)[0]
    return token.lower() if token.isascii() else ""


class Group:
    """A run of user-agent lines and what follows up to the next run.

    Attributes:
        agents: the product tokens in lower case, ``*`` for everybody, each with its place among them, from 0.
        rules: the Allow and Disallow lines; they bind all agents of the group.
        directives: the other fields that belong to agents, each with its typed value and the number of agents
            that were listed before it: it binds those only.
    """

    __slots__ = ("agents", "directives", "rules")

    def __init__(self) -> None:
        self.agents: dict[str, int] = {}  # not a list: a file may name 100,000
        self.rules: list[Line] = []
        self.directives: list[tuple[int, Line, float | RequestRate | TimeWindow | str]] = []

    def __repr__(self) -> str:
        return f"<Group {', '.join(self.agents)}: {len(self.rules)} rules>"


_DIRECTIVES: Final[dict[str, Callable[[str], float | RequestRate | TimeWindow | str | None]]] = {
    "crawl-delay": parse_crawl_delay,
    "request-rate": parse_request_rate,
    "visit-time": parse_visit_time,
    "comment": str,
}


class RobotsTxt:
    """A robots.txt, read: its lines with their quirks, its groups, its sitemaps.

    Attributes:
        dialect: how it was read.
        lines: every line that says something, unknown fields included.
        quirks: what was unusual about the file as a whole; the lines carry their own.
        groups: in the order of the file, not yet merged.
        sitemaps: the values of all Sitemap lines, wherever they stand, but those with control characters.
    """

    __slots__ = ("_groups_of", "dialect", "groups", "lines", "quirks", "sitemaps")

    def __init__(self, lines: list[Line], quirks: tuple[Quirk, ...], dialect: Dialect) -> None:
        self.dialect = dialect
        self.lines = lines
        self.quirks = quirks
        self.groups: list[Group] = []
        self.sitemaps: list[str] = []
        self._groups_of: dict[str, list[Group]] = {}
        self._arrange()

    @classmethod
    def parse(cls, body: bytes | str, dialect: Dialect = Dialect.RFC9309) -> RobotsTxt:
        """Read a robots.txt. Never raises on content; time and memory are linear in its length."""
        lexed = lex(body, dialect.traits.syntax)
        return cls(lexed.lines, lexed.quirks, dialect)

    def rules_for(self, agent: str | Sequence[str]) -> RuleSet:
        """Return the rules that bind a crawler.

        ``agent`` is a product token, a User-Agent string, or several of either, the most specific first. All groups
        that name the first token that any group names are merged; without such a token, all groups of ``*``
        (RFC 9309 2.2.1). A named group replaces those of ``*`` completely.
        """
        tokens = [product_token(one) for one in ([agent] if isinstance(agent, str) else agent)]
        token = next((token for token in tokens if token in self._groups_of), EVERYBODY)
        rules: list[Line] = []
        directives = Directives()
        for group in self._groups_of.get(token, ()):
            rules += group.rules
            listed_at = group.agents[token]
            for agents_before, line, value in group.directives:
                if listed_at < agents_before:
                    directives.add(line.field, value)
        return RuleSet(rules, directives, self.dialect)

    def _arrange(self) -> None:
        leading = self.dialect.traits.matching.leading
        group: Group | None = None
        for line in self.lines:
            field = line.field
            if field in {"allow", "disallow"}:
                # RFC 9309 2.2.2: rules before the first user-agent line are nobody's.
                if group is None:
                    line.quirks += (Quirk.BEFORE_ANY_GROUP,)
                else:
                    group.rules.append(line)
                if not line.value.startswith(leading) and (line.value or field == "allow"):
                    line.quirks += (Quirk.NO_LEADING_SLASH if line.value else Quirk.EMPTY_ALLOW,)
            elif field == "user-agent":
                # RFC 9309 2.1: a group ends only at a user-agent line that follows a rule.
                if group is None or group.rules:
                    group = Group()
                    self.groups.append(group)
                self._name(group, line)
            elif field == "sitemap":
                if Quirk.CONTROL_CHARACTER not in line.quirks:
                    self.sitemaps.append(line.value)
            elif (parse := _DIRECTIVES.get(field)) is not None:
                _direct(group, line, parse(line.value))
            # RFC 9309 2.2.4: any other record neither ends a group nor separates its user-agent lines.

    def _name(self, group: Group, line: Line) -> None:
        token = EVERYBODY if line.value[:1] == EVERYBODY and line.value[1:2] in {"", " ", "\t"} else ""
        token = token or product_token(line.value)
        if not token or Quirk.CONTROL_CHARACTER in line.quirks:
            line.quirks += (Quirk.NAMES_NOBODY,)
            return
        if token in group.agents:
            return
        group.agents[token] = len(group.agents)
        self._groups_of.setdefault(token, []).append(group)

    def __repr__(self) -> str:
        return f"<RobotsTxt {self.dialect.value}: {len(self.lines)} lines, {len(self.groups)} groups>"


def _direct(group: Group | None, line: Line, value: float | RequestRate | TimeWindow | str | None) -> None:
    if group is None:
        line.quirks += (Quirk.BEFORE_ANY_GROUP,)
    elif value is None or Quirk.CONTROL_CHARACTER in line.quirks:
        line.quirks += (Quirk.INVALID_VALUE,)
    else:
        group.directives.append((len(group.agents), line, value))
