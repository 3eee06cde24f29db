"""A parsed robots.txt: finds the rules of a crawler quickly, and makes lines and groups on demand.

The rules are made from the outline of the file (``politesse.robots.outline``). The lists of all lines and groups are
made at the first access, for lint, explain and users.
"""

from __future__ import annotations

from array import array
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final

from politesse._base.checks import checked_names, wrong_type
from politesse.robots.agents import checked_agent
from politesse.robots.crawl_directives import VERSION_1
from politesse.robots.dialect import Dialect
from politesse.robots.lexer import CONTROL_IN_ROW, quirks_of, read_lines, utf_8_of
from politesse.robots.line import CONTENT_SIGNAL, CONTENT_USAGE, AgentLine, Line
from politesse.robots.native import NativeOutline, native_outline
from politesse.robots.other_records import CleanParams, OtherRecords, SitemapLines, lines_in
from politesse.robots.outline import Outline
from politesse.robots.rule_sets import Directives, RuleSet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from politesse.origin import Origin
    from politesse.robots.line import Group, Quirk, Span
    from politesse.robots.preferences import SiteUsage

    _State = tuple[bytes, tuple[Quirk, ...], Dialect, Origin | None]

_FEW: Final = 1_000  # as many look-ups in the core take less time than to make the reference
_FIRST_OCTETS: Final = 1024  # enough octets to see whether the file is a web page


@lru_cache(maxsize=100)
def _token(dialect: Dialect, agent: str) -> str:
    """Return the name of a crawler. The result is cached, because a program uses the same few names for each file."""
    return dialect.traits.grouping.token(checked_agent(agent))


class RobotsTxt:
    r"""A parsed robots.txt: its lines with their quirks, its groups, its sitemaps and licenses.

    >>> robots = RobotsTxt.parse("User-agent: *\nDisallow: /private\nSitemap: https://example.com/s.xml")
    >>> robots.rules_for("examplebot").allowed("https://example.com/private")
    False
    >>> robots.sitemaps
    ['https://example.com/s.xml']

    Attributes:
        dialect: how the file was read.
        origin: the origin of the file, or None if unknown.
        lines: every line that is not blank and not only a comment, including unknown fields.
        quirks: quirks of the whole file; each line has its own quirks.
        groups: groups in the order of the file, not merged.
        sitemaps: values of all Sitemap lines, anywhere in the file, except those with control characters.
        sitemap_lines: all Sitemap lines, each value once, not validated.
        licenses: absolute URLs of all License lines, anywhere in the file; these apply to all crawlers (RSL).
    """

    dialect: Dialect
    origin: Origin | None

    def __init__(self, body: bytes | str, dialect: Dialect, origin: Origin | None = None) -> None:
        octets, quirks = utf_8_of(body, dialect.traits.syntax.max_octets)
        self.__setstate__((octets, quirks, dialect, origin))

    def __getstate__(self) -> _State:
        return self._octets, self._body_quirks, self.dialect, self.origin

    def __setstate__(self, state: _State) -> None:
        self._octets, self._body_quirks, self.dialect, self.origin = state
        self._outline = native_outline(self._octets, self.dialect) or self._reference
        self._look_ups = 0

    @classmethod
    def parse(cls, body: bytes | str, dialect: Dialect = Dialect.RFC9309, *, origin: Origin | None = None) -> RobotsTxt:
        """Parse a robots.txt. No content raises an error; time and memory are linear in the length of the file.

        Args:
            body: the file; octets, or text that was decoded with ``surrogateescape``.
            dialect: how the file is read.
            origin: the origin of the file. Only PERL needs the origin, because its rules may be URLs. If the origin is
                unknown, each URL is judged as if the file came from the origin of that URL.

        Raises:
            ConfigurationTypeError: the body or the dialect has the wrong type.
        """
        if not isinstance(body, (bytes, bytearray, str)):
            raise wrong_type("body", body, "bytes or a str")
        if not isinstance(dialect, Dialect):
            raise wrong_type("dialect", dialect, "a Dialect")
        return cls(body, dialect, origin)

    @cached_property
    def _reference(self) -> Outline:
        """The outline that is made in Python."""
        return Outline(self._read_lines(), self.dialect)

    def _read_lines(self) -> Iterator[Line | None]:
        return read_lines(self._octets.decode("utf-8", "surrogateescape"), self.dialect.traits.syntax)

    @cached_property
    def quirks(self) -> tuple[Quirk, ...]:
        """See the class."""
        return self._body_quirks + quirks_of(self._octets[:_FIRST_OCTETS].decode("utf-8", "surrogateescape"))

    @property
    def sitemaps(self) -> list[str]:
        """See the class."""
        return [value for value in self.sitemap_lines.values if CONTROL_IN_ROW.search(value) is None]

    @cached_property
    def sitemap_lines(self) -> SitemapLines:
        """See the class."""
        return SitemapLines(self._outline.sitemaps)

    @property
    def licenses(self) -> list[str]:
        """See the class."""
        return [line.value for line in self._outline.others.licenses]

    @cached_property
    def lines(self) -> list[Line]:
        """See the class."""
        rows = list(self._read_lines())
        self._reference = Outline(rows, self.dialect)  # gives the lines their last quirks, and has the same lines
        return [line for line in rows if line is not None]

    @cached_property
    def groups(self) -> list[Group]:
        """See the class."""
        _ = self.lines
        return [self._reference.group(group) for group in range(len(self._reference.starts))]

    @property
    def clean_params(self) -> CleanParams:
        """Query parameters that do not change the page, from the Clean-param lines."""
        return CleanParams(self.lines)

    def rules_for(self, agent: str | Sequence[str]) -> RuleSet:
        """Return the rules that bind a crawler.

        RFC 9309 2.2.1: all groups that name the crawler are merged. If no group names the crawler, it obeys the groups
        of ``*``. If several tokens are given, the first token that any group names is used. Other dialects compare
        names in other ways, and some apply only one group.

        Args:
            agent: product token or User-Agent string, or several of them, the most specific first.

        Raises:
            ConfigurationError: a User-Agent string starts with Mozilla, which names no crawler.
        """
        found, others = self._spans(agent), self._outline.others
        directives = Directives(
            [value for span in found for _, value in others.directives_in(span)],
            found[-1][-1] if found else VERSION_1,
            self._outline.sitemaps,
            self._site_usage(found) if others.usage or others.licenses or others.signals else None,
            self.origin,
        )
        return self._outline.rule_set(found, directives)

    def binding(self, agent: str | Sequence[str]) -> bytes:
        """Return a digest of the groups that bind a crawler. Two crawlers with the same digest have the same rules.

        Args:
            agent: as for ``rules_for``.

        Raises:
            ConfigurationError: see ``rules_for``.
        """
        from hashlib import blake2b  # noqa: PLC0415 - seldom used, and loads OpenSSL

        binding, others = array("I"), self._outline.others
        for span in self._spans(agent):
            listed_at, end, *_ = span
            binding.extend((end, len(others.directives_in(span)), listed_at if lines_in(others.usage, span) else 0))
        return blake2b(binding, digest_size=16).digest()

    def groups_for(self, agent: str | Sequence[str]) -> list[Group]:
        """Return the groups that ``rules_for`` merges, in the order of the file.

        Args:
            agent: as for ``rules_for``.

        Raises:
            ConfigurationError: see ``rules_for``.
        """
        return [self.groups[self._reference.group_at(listed_at)] for listed_at, *_ in self._spans(agent)]

    def usage_lines_for(self, agent: str | Sequence[str]) -> list[Line]:
        """Return the Content-Usage and Content-Signal lines that bind a crawler, as ``lines`` has them.

        Args:
            agent: as for ``rules_for``.

        Raises:
            ConfigurationError: see ``rules_for``.
        """
        _ = self.lines
        return [said.line for lines in self._stated(self._spans(agent), self._reference.others) for said in lines]

    def _site_usage(self, found: Sequence[Span]) -> SiteUsage:
        from politesse.robots.preferences import SiteUsage  # noqa: PLC0415 - few files state preferences

        others = self._outline.others
        return SiteUsage(self.dialect, *self._stated(found, others), others.licenses)

    def _stated(self, found: Sequence[Span], others: OtherRecords) -> tuple[list[AgentLine], list[AgentLine]]:
        """Return the Content-Usage lines and the Content-Signal lines that bind a crawler."""

        def said(spans: Sequence[Span], field: str) -> list[AgentLine]:
            lines = ((span, line) for span in spans for line in lines_in(others.usage, span))
            return [AgentLine(name, line) for (_, _, name, _), line in lines if line.field == field]

        # The Content-Signals in groups for ``*`` apply to a crawler whose own groups have no Content-Signal.
        signals = said(found, CONTENT_SIGNAL) or said(self._names.binding(()), CONTENT_SIGNAL)
        return said(found, CONTENT_USAGE), signals or [AgentLine("", line) for line in others.signals]

    def _spans(self, agent: str | Sequence[str]) -> Sequence[Span]:
        """Return the groups that bind a crawler."""
        names = (agent,) if isinstance(agent, str) else checked_names("agent", agent)
        return self._names.binding([_token(self.dialect, name) for name in names])

    @property
    def _names(self) -> Outline | NativeOutline:
        """The outline that finds names fastest: the core reads all rows for a name, the reference has an index."""
        self._look_ups += 1
        return self._reference if self._look_ups > _FEW or "_reference" in vars(self) else self._outline

    def __repr__(self) -> str:
        return f"<RobotsTxt {self.dialect.value}: {len(self.lines)} lines, {len(self.groups)} groups>"
