"""Lines in, groups out: which rules and directives bind which crawler (RFC 9309 2.2.1, and the other dialects)."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from politesse._checks import checked_names, wrong_type
from politesse.robots import crawl_directives
from politesse.robots.agents import EVERYBODY, checked_agent
from politesse.robots.cleanparam import CleanParams
from politesse.robots.dialect import Dialect
from politesse.robots.group import Group, GroupMatch
from politesse.robots.lexer import Lexed, lex, records
from politesse.robots.line import Line, Quirk
from politesse.robots.preferences import CONTENT_SIGNAL, CONTENT_USAGE, LICENSE, Said, SiteUsage
from politesse.robots.rule_sets.base import Directives, RuleSet
from politesse.robots.sitemaps import NO_SITEMAPS, SitemapLines
from politesse.usage.vocabulary import is_absolute_url

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from politesse.origin import Origin
    from politesse.robots.traits import Grouping


_DIRECTIVES: Final[dict[str, Callable[[str], crawl_directives.DirectiveValue | None]]] = {
    "crawl-delay": crawl_directives.parse_crawl_delay,
    "request-rate": crawl_directives.parse_request_rate,
    "visit-time": crawl_directives.parse_visit_time,
    "comment": str,
}
_USAGE_FIELDS: Final = frozenset({CONTENT_USAGE, CONTENT_SIGNAL, LICENSE})


class RobotsTxt:
    r"""A parsed robots.txt: its lines with their quirks, its groups, its sitemaps and licenses.

    >>> robots = RobotsTxt.parse("User-agent: *\nDisallow: /private\nSitemap: https://example.com/s.xml")
    >>> robots.rules_for("examplebot").allowed("https://example.com/private")
    False
    >>> robots.sitemaps
    ['https://example.com/s.xml']

    Attributes:
        dialect: how the file was read.
        origin: origin that the file speaks for; None if it was not given.
        lines: every line that is neither blank nor a comment only, including unknown fields.
        quirks: what is unusual about the file as a whole; each line has its own quirks.
        groups: groups in the order of the file, not merged.
        sitemaps: values of all Sitemap lines, anywhere in the file, except those with control characters.
        sitemap_lines: all Sitemap lines, each value once, not validated.
        licenses: absolute URLs of all License lines, anywhere in the file: they apply to everybody (RSL).
    """

    def __init__(self, lexed: Lexed, dialect: Dialect, origin: Origin | None = None) -> None:
        self.dialect = dialect
        self._traits = dialect.traits
        self.origin = origin
        self.lines = lexed.lines
        self.quirks = lexed.quirks
        self.groups: list[Group] = []
        self.sitemaps: list[str] = []
        self._listed: list[Line] = []
        self._groups_of: dict[str, list[Group]] = {}
        self._unnamed: Group | None = None
        self._license_lines: list[Line] = []
        self._signals: list[Line] = []  # Content-Signals before the first group
        self._states_usage = False
        for record in records(lexed):
            self._arrange(record)
        self.sitemap_lines = SitemapLines(self._listed) if self._listed else NO_SITEMAPS

    @classmethod
    def parse(cls, body: bytes | str, dialect: Dialect = Dialect.RFC9309, *, origin: Origin | None = None) -> RobotsTxt:
        """Parse a robots.txt. Never raises on content; time and memory are linear in its length.

        Args:
            body: the file; octets, or text that was decoded with ``surrogateescape``.
            dialect: how the file is read.
            origin: origin that the file speaks for. It matters only in the dialect PERL, where a rule may be a URL;
                without it, the origin of each URL that is judged is taken for it.

        Raises:
            ConfigurationTypeError: the body or the dialect has the wrong type.
        """
        if not isinstance(body, bytes | bytearray | str):
            raise wrong_type("body", body, "bytes or a str")
        if not isinstance(dialect, Dialect):
            raise wrong_type("dialect", dialect, "a Dialect")
        return cls(lex(body, dialect.traits.syntax), dialect, origin)

    @property
    def clean_params(self) -> CleanParams:
        """Query parameters that do not change the page, from the Clean-param lines."""
        return CleanParams(self.lines)

    @property
    def licenses(self) -> list[str]:
        """See the class."""
        return [line.value for line in self._license_lines]

    def rules_for(self, agent: str | Sequence[str]) -> RuleSet:
        """Return the rules that bind a crawler.

        RFC 9309 2.2.1: all groups that name the crawler are merged; a crawler that no group names obeys the groups of
        ``*``. Of several tokens, the first that any group names counts. Other dialects compare names in other ways,
        and some apply one group only.

        Args:
            agent: product token or User-Agent string, or several, the most specific first.

        Raises:
            ConfigurationError: a User-Agent string starts with Mozilla; that token names no crawler.
        """
        found = self._groups_that_bind(checked_names("agent", agent))
        rules = [line for group, _ in found for line in group.rules]
        values = [value for group, listed_at in found for before, _, value in group.directives if listed_at < before]
        version = found[-1][0].version if found else crawl_directives.VERSION_1
        usage = self._usage(found) if self._states_usage else None
        directives = Directives(values, version, self.sitemap_lines, usage)
        return self._traits.rule_set(rules, directives, self._traits.matching, self.origin)

    def groups_for(self, agent: str | Sequence[str]) -> list[Group]:
        """Return the groups that ``rules_for`` merges, in the order of the file.

        Args:
            agent: as for ``rules_for``.

        Raises:
            ConfigurationError: as ``rules_for`` does.
        """
        return [group for group, _ in self._groups_that_bind(checked_names("agent", agent))]

    def _usage(self, found: Sequence[GroupMatch]) -> SiteUsage:
        """Return what the file says to a crawler about the use of content."""
        # A Content-Signal for everybody applies to a crawler whose own groups have none.
        signals = _said(found, CONTENT_SIGNAL) or _said(self._everybody(), CONTENT_SIGNAL)
        signals = signals or [Said("", line) for line in self._signals]
        return SiteUsage(self._traits.matching, _said(found, CONTENT_USAGE), signals, self._license_lines)

    def _groups_that_bind(self, agents: Sequence[str]) -> Sequence[GroupMatch]:
        """Return the groups that bind a crawler, with the index of its name in each."""
        grouping = self._traits.grouping
        for agent in [checked_agent(agent) for agent in agents]:
            token = grouping.token(agent)
            if token and (found := grouping.named(self._naming(token))):
                return found
        return self._everybody()

    def _everybody(self) -> Sequence[GroupMatch]:
        everybody = [(group, group.agents[EVERYBODY]) for group in self._groups_of.get(EVERYBODY, ())]
        return self._traits.grouping.everybody(everybody)

    def _naming(self, token: str) -> list[GroupMatch]:
        """Return the groups that name a crawler, in the order of the file."""
        names = self._traits.grouping.names
        if names is None:
            return [(group, group.agents[token]) for group in self._groups_of.get(token, ())]
        # Each name is compared once, however many groups have it.
        alike = {name for name in self._groups_of if name != EVERYBODY and names(name, token)}
        return [
            (group, min(place for name, place in group.agents.items() if name in alike))
            for group in self.groups
            if not alike.isdisjoint(group.agents)
        ]

    def _arrange(self, lines: Sequence[Line]) -> None:
        traits = self._traits
        grouping, leading = traits.grouping, traits.matching.leading
        rules = grouping.rules
        group: Group | None = None
        row_ended = False  # whether the next user-agent line starts a group
        headed = True  # whether a Robot-version on the next line is misplaced
        for line in lines:
            field = line.field
            if field in rules:
                # RFC 9309 2.2.2: rules before the first user-agent line are ignored.
                if group is not None or (group := self._outside(line)) is not None:
                    group.rules.append(line)
                row_ended = headed = True
                if not line.value.startswith(leading) and (line.value or field == "allow"):
                    line.quirks += (Quirk.NO_LEADING_SLASH if line.value else Quirk.EMPTY_ALLOW,)
            elif field == "user-agent":
                # RFC 9309 2.1: a group ends only at a user-agent line that follows a rule.
                if group is None or row_ended:
                    group = Group()
                    self.groups.append(group)
                row_ended = headed = False
                if grouping.versioned:
                    group.version = crawl_directives.VERSION_1  # a Robot-version has to follow the last user-agent line
                self._name(group, line, grouping.name(line.value))
            elif field:
                headed = self._say(group, line, headed=headed)
                row_ended = row_ended or grouping.any_field_is_a_rule or _is_usage_rule(line, grouping)

    def _outside(self, line: Line) -> Group | None:
        """Return the group of a rule that is in no group, None if the rule binds no crawler."""
        everybody = self._traits.grouping.before_any_agent
        if everybody and not self.groups:
            self._unnamed = Group()
            self.groups.append(self._unnamed)
            for place, name in enumerate(everybody):
                self._unnamed.agents[name] = place
                self._groups_of[name] = [self._unnamed]
        if self.groups and self.groups[-1] is self._unnamed:
            return self._unnamed  # there was no user-agent line yet
        line.quirks += (self._stray(),)
        return None

    def _say(self, group: Group | None, line: Line, *, headed: bool) -> bool:
        """Record a line that is neither a rule nor a user-agent line.

        RFC 9309 2.2.4: such a record neither ends a group nor separates its user-agent lines.

        Returns:
            Whether a Robot-version on the next line is misplaced.
        """
        if line.field == "sitemap":
            self._listed.append(line)
            if Quirk.CONTROL_CHARACTER not in line.quirks:
                self.sitemaps.append(line.value)
        elif line.field in _USAGE_FIELDS:
            if line.field in self._traits.syntax.fields:
                self._prefer(group, line)
        elif (parse := _DIRECTIVES.get(line.field)) is not None:
            self._direct(group, line, parse(line.value))
            return True
        elif line.field == "robot-version" and self._traits.grouping.versioned:
            version = crawl_directives.parse_robot_version(line.value)
            if headed or group is None:
                line.quirks += (Quirk.MISPLACED_VERSION,)
            elif version is None:
                line.quirks += (Quirk.INVALID_VALUE,)
            else:
                group.version = version
            return True
        return headed

    def _prefer(self, group: Group | None, line: Line) -> None:
        """Record a line about the use of content; its value is parsed at the first question about it."""
        if Quirk.CONTROL_CHARACTER in line.quirks or (line.field == LICENSE and is_absolute_url(line.value) is None):
            line.quirks += (Quirk.INVALID_VALUE,)
            return
        if line.field == LICENSE:
            self._license_lines.append(line)
        elif group is not None:
            group.usage.append((len(group.agents), line))
        elif line.field == CONTENT_SIGNAL and not self.groups:
            self._signals.append(line)
        else:
            line.quirks += (self._stray(),)
            return
        self._states_usage = True

    def _stray(self) -> Quirk:
        """Return the quirk of a line that belongs in a group and is in none."""
        return Quirk.OUTSIDE_GROUP if self.groups else Quirk.BEFORE_ANY_GROUP

    def _direct(self, group: Group | None, line: Line, value: crawl_directives.DirectiveValue | None) -> None:
        if group is None:
            line.quirks += (self._stray(),)
        elif value is None or Quirk.CONTROL_CHARACTER in line.quirks:
            line.quirks += (Quirk.INVALID_VALUE,)
        else:
            group.directives.append((len(group.agents), line, value))

    def _name(self, group: Group, line: Line, name: str) -> None:
        group.heads.append(line)
        if not name or Quirk.CONTROL_CHARACTER in line.quirks:
            line.quirks += (Quirk.NAMES_NOBODY,)
            return
        agents = group.agents
        if name not in agents:
            agents[name] = len(agents)
            self._groups_of.setdefault(name, []).append(group)

    def __repr__(self) -> str:
        return f"<RobotsTxt {self.dialect.value}: {len(self.lines)} lines, {len(self.groups)} groups>"


def _is_usage_rule(line: Line, grouping: Grouping) -> bool:
    """Whether a line is a rule about the use of content. A line without a valid value is not.

    Otherwise it would end the row of user-agent lines, and the rules of RFC 9309 below would not bind those above it.
    """
    return line.field in grouping.usage_rules and bool(line.value) and Quirk.CONTROL_CHARACTER not in line.quirks


def _said(found: Sequence[GroupMatch], field: str) -> list[Said]:
    """Return the lines of a field that bind a crawler, each with the name by which it binds it."""
    said: list[Said] = []
    for group, listed_at in found:
        lines = [line for agents_before, line in group.usage if line.field == field and listed_at < agents_before]
        if lines:
            agent = next(islice(group.agents, listed_at, None))
            said += [Said(agent, line) for line in lines]
    return said
