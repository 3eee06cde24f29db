"""Rule sets of the dialects that compare literal prefixes in the order of the file, and what Google's rules imply."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, ClassVar

from politesse.errors import InvalidURL
from politesse.origin import split
from politesse.robots.pattern import without_dot_segments
from politesse.robots.prefixes import FirstPrefix
from politesse.robots.ruleset import (
    BYTES_PER_RULE,
    NO_RULE_MATCH,
    ROBOTS_TXT,
    ROBOTS_TXT_MATCH,
    RuleSet,
    is_void,
)
from politesse.verdict import Match, Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.origin import Origin
    from politesse.robots.dialect import Dialect
    from politesse.robots.lexer import Line
    from politesse.robots.ruleset import Directives


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")  # RFC 3986 3.1


class FirstMatchRuleSet(RuleSet):
    """The first rule whose path the target starts with decides (draft-koster-robots-00 3.2.2).

    A target costs one look-up among the sorted paths.
    """

    precedence: ClassVar[str] = "the first rule that matches decides"

    __slots__ = ("_first_prefix", "_in_order")

    @property
    def in_order(self) -> tuple[Rule, ...]:
        """The rules in the order in which they are tried."""
        return self._in_order

    def decide(self, target: str) -> Match:
        """Return the match of a target in normal form."""
        if target == ROBOTS_TXT:
            return ROBOTS_TXT_MATCH
        rule = self._first_prefix.find(target)
        return NO_RULE_MATCH if rule is None else rule.match

    @property
    def rules(self) -> list[Rule]:
        """The rules in the order of the file, of equal ones the first."""
        return list(self._in_order)

    def reach(self, rule: Rule) -> tuple[str, ...]:
        """Return the path, and nothing: whatever starts with it matches."""
        return (rule.pattern, "")

    def precedes(self, rule: Rule, other: Rule) -> bool:
        """Whether ``rule`` stands before ``other``."""
        return rule.line < other.line

    def _compile(self, lines: Sequence[Line]) -> None:
        ends = self._matching.empty_disallow_ends
        rules: dict[str, Rule] = {}
        for line in lines:
            allow = line.field == "allow"
            if not line.value and not allow and ends:
                break  # the empty path is a prefix of every other: nothing behind it is ever reached
            path = self._path(line.value)
            if path and not is_void(line):
                pattern = self._matching.normalise_pattern(path)
                rules.setdefault(pattern, Rule(line.number, line.name, line.value, pattern, allow=allow))
        self._in_order = tuple(rules.values())
        self._first_prefix = FirstPrefix(self._in_order)
        self._unmetered_octets = sys.maxsize  # no wildcards: nothing to count
        self._count = len(rules)
        self.weight_bytes = BYTES_PER_RULE * len(rules) + 2 * sum(map(len, rules))

    def _path(self, value: str) -> str:
        """Return the path that the value of a rule stands for, empty for none."""
        return value


class SiteRuleSet(FirstMatchRuleSet):
    """The same, with rules that are URLs, absolute or relative to robots.txt (WWW::RobotRules, ``parse``).

    A rule that is the URL of another site binds nobody. Where it was not told whose file this is, the URL that is
    asked about tells; a bare target is taken to be of the site that a rule names.
    """

    __slots__ = ("_said",)

    def __init__(
        self, lines: Sequence[Line], directives: Directives, dialect: Dialect, origin: Origin | None = None
    ) -> None:
        super().__init__(lines, directives, dialect, origin)
        # What is needed to read the rules again once the site is known.
        unknown = origin is None and any(_has_authority(line.value) for line in lines)
        self._said = (lines, directives) if unknown else None

    def allowed(self, url: str) -> bool:
        """Whether an http(s) URL, or a target that starts with ``/``, may be requested; see ``match``."""
        return self.match(url).allowed

    def match(self, url: str) -> Match:
        """Return whether a URL or target may be requested, and the rule that decided; raises InvalidURL."""
        if self._said is None or url[:1] == "/":
            return super().match(url)
        origin, target = split(url)
        return type(self)(*self._said, self._dialect, origin).judge(target)

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


def allowed_directory(pattern: str) -> str | None:
    """Return the pattern of the directory whose index page is allowed, None where it is no such page.

    google/robotstxt, HandleAllow: ``/a/index.html`` stands for ``/a/``, and so does all that starts like it.
    """
    directory, slash, page = pattern.rpartition("/")
    return f"{directory}{slash}$" if slash and page.startswith("index.htm") else None


def _has_authority(value: str) -> bool:
    scheme = _SCHEME.match(value)
    return value.startswith("//", scheme.end() if scheme is not None else 0)


def _relative(value: str) -> str:
    """Return the path of a reference from robots.txt; empty for one of another scheme, which names no page here."""
    if _SCHEME.match(value) is not None:
        return ""
    path, question, query = value.partition("?")
    return (without_dot_segments(f"/{path}") if path else ROBOTS_TXT) + question + query
