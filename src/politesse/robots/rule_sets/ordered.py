"""Rule sets of the dialects that compare literal prefixes in the order of the file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from politesse._base.constants import ROBOTS_TXT
from politesse.errors import InvalidURL
from politesse.origin import Origin, StrOrURL, split, url_text
from politesse.robots.line import rule_quirks
from politesse.robots.matchers import FirstPrefix
from politesse.robots.memory import memory_of
from politesse.robots.pattern import without_dot_segments
from politesse.robots.rule_sets.base import ROBOTS_TXT_MATCH, Directives, TableRuleSet
from politesse.robots.rule_table import ALLOW, RuleTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.robots.line import FieldRow
    from politesse.robots.traits import Matching
    from politesse.verdict import Match, Rule

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")  # RFC 3986 3.1


class FirstMatchRuleSet(TableRuleSet):
    """The first rule whose path is a prefix of the target decides (draft-koster-robots-00 3.2.2).

    A decision costs one look-up among the sorted paths.
    """

    precedence: ClassVar[str] = "the first rule that matches decides"

    __slots__ = ("_first_prefix",)

    def decide(self, target: str) -> Match:
        """See ``TableRuleSet.decide``."""
        if target == ROBOTS_TXT:
            return ROBOTS_TXT_MATCH
        return self._table.match(self._first_prefix.find(target))

    @property
    def rules(self) -> list[Rule]:
        """See ``RuleSet.rules``; the rules are tried in this order."""
        return self._table.rules(range(len(self._table)))

    def reach(self, rule: Rule) -> tuple[str, ...]:
        """See ``RuleSet.reach``; a rule matches every target that starts with its path."""
        return (rule.pattern, "")

    def precedes(self, rule: Rule, other: Rule) -> bool:
        """See ``RuleSet.precedes``."""
        return rule.line < other.line

    def _compile(self, rows: Sequence[FieldRow]) -> RuleTable:
        matching = self._matching
        rules: dict[str, FieldRow] = {}
        for row in rows:
            value, allow = row[2], row[1].field == ALLOW
            if not value and not allow and matching.empty_disallow_ends:
                break  # the empty path is a prefix of every target, so no later rule is reached
            path = self._path(value)
            if path and not rule_quirks(row[1].field, value, matching.leading):
                rules.setdefault(matching.normalise_pattern(path), row)
        self._first_prefix = FirstPrefix(rules)
        return RuleTable(rules, rules.values())

    def _tables_bytes(self) -> int:
        return self._first_prefix.weight_bytes

    def _path(self, value: str) -> str:
        """Return the path of a rule from its value; empty without a path."""
        return value


class SiteRuleSet(FirstMatchRuleSet):
    """A FirstMatchRuleSet whose rules may be URLs, absolute or relative to robots.txt (WWW::RobotRules, ``parse``).

    A rule with a URL of another site is ignored. If the origin of the file is unknown, each URL is judged as if the
    file came from the site of that URL. A target without a site is compared with the rules of all sites.
    """

    __slots__ = ("_said",)

    def __init__(
        self, rows: Sequence[FieldRow], directives: Directives, matching: Matching, origin: Origin | None = None
    ) -> None:
        super().__init__(rows, directives, matching, origin)
        # The rows are stored, because ``match`` compiles the rules again for the site of each URL.
        unknown = origin is None and any(_has_authority(row[2]) for row in rows)
        self._said = (rows, directives) if unknown else None

    def match(self, url: StrOrURL) -> Match:
        """See ``RuleSet.match``."""
        url = url_text(url)
        if self._said is None or url[:1] == "/":
            return super().match(url)
        origin, target = split(url)
        return type(self)(*self._said, self._matching, origin).judge(target)

    def _tables_bytes(self) -> int:
        rows = () if self._said is None else self._said[0]
        return super()._tables_bytes() + memory_of((rows, *rows, *[row[0] for row in rows]))

    def _path(self, value: str) -> str:
        if value[:1] == "/" and value[:2] != "//":
            return value
        if not _has_authority(value):
            return _relative(value)
        site = self._origin
        try:
            named, target = split(value if value[:2] != "//" else f"{site.scheme if site else 'http'}:{value}")
        except InvalidURL:
            return ""
        return target if site is None or named == site else ""


def _has_authority(value: str) -> bool:
    scheme = _SCHEME.match(value)
    return value.startswith("//", scheme.end() if scheme is not None else 0)


def _relative(value: str) -> str:
    """Return the path of a relative reference in robots.txt; empty for a reference with a scheme."""
    if _SCHEME.match(value) is not None:
        return ""
    path, question, query = value.partition("?")
    return (without_dot_segments(f"/{path}") if path else ROBOTS_TXT) + question + query
