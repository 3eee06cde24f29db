"""Reads files and decides with the compiled core (``politesse._native``), if it is built and supports the dialect.

The core finds the groups that bind a crawler, and compiles their rules. The core decides like its reference,
``MostSpecificRuleSet``. Python code reads the few other records of a file (``other_records``).
"""

from __future__ import annotations

from functools import cache
from operator import itemgetter
from sys import intern
from typing import TYPE_CHECKING, Final

from politesse._native import core
from politesse.origin import MAX_URL_LENGTH, url_text
from politesse.robots import budget
from politesse.robots.agents import EVERYBODY
from politesse.robots.dialect import Winner
from politesse.robots.lexer import octets_of, read_lines
from politesse.robots.line import NO_QUIRKS, Line, Quirk
from politesse.robots.other_records import OtherRecords
from politesse.robots.outline import Outline
from politesse.robots.pattern import PLAIN
from politesse.robots.rule_sets import (
    ALLOW,
    NO_RULE_MATCH,
    ROBOTS_TXT_MATCH,
    Directives,
    MostSpecificRuleSet,
    RuleSet,
    line_of,
)
from politesse.verdict import Match, Reason, Rule, match_at

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from politesse._native import _core
    from politesse._native._core import Rules, WrittenRule
    from politesse.origin import StrOrURL
    from politesse.robots.dialect import Dialect, FieldName, Traits
    from politesse.robots.line import Span

_BOUND_REACHED, _NO_RULE, _ROBOTS_TXT, _OTHER = -1, -2, -4, -6  # _native/module.c; OTHER: Python has to normalise it
_ALLOWS, _AT_BOUND = 1, 2  # the lowest bits of the number of a rule that decides
_LONG: Final = 1_000
_FIELD, _SITEMAP, _USAGE_RULE, _USER_AGENT, _ALLOW, _DISALLOW = range(1, 7)  # _native/scan.h has the same numbers
IMPLEMENTATION: Final = "python" if core is None else "native"
"""``native`` if the compiled core decides, in the dialects that it supports; else ``python``."""
_NO_OTHERS: Final = OtherRecords()  # shared by all files without other records; never changed


class NativeRuleSet(RuleSet):
    """The rules in the compiled core; see the module.

    Args:
        rules: the compiled rules.
        directives: the other lines of the agent.
        dialect: the dialect of the file.
    """

    __slots__ = ("_rules",)

    def __init__(self, rules: Rules, directives: Directives, dialect: Dialect) -> None:
        super().__init__(directives, dialect)
        self._rules = rules

    def allowed(self, url: StrOrURL) -> bool:
        """See ``RuleSet.allowed``."""
        allowed = self._rules.allows(url if isinstance(url, str) else url_text(url))
        return self.match(url).allowed if allowed is None else allowed

    def match(self, url: StrOrURL) -> Match:
        """See ``RuleSet.match``."""
        decided = self._rules.decide(url if isinstance(url, str) else url_text(url))
        return super().match(url) if decided == _OTHER else self._match(decided)

    def judge(self, target: str) -> Match:
        """See ``RuleSet.judge``; wildcards are also compared with the query as it was written."""
        decided = self._rules.decide(target)
        if decided == _NO_RULE:
            return NO_RULE_MATCH
        if decided == _OTHER:
            forms = self._dialect.traits.matching.form.of_target(target)
            decided = self._rules.decide_normal(forms[0], forms[1] if len(forms) > 1 else None)
        return self._match(decided)

    def _match(self, decided: int) -> Match:
        if decided >= 0:
            return match_at(self, decided, decided & _ALLOWS != 0, decided & _AT_BOUND != 0)
        if decided == _ROBOTS_TXT:
            return ROBOTS_TXT_MATCH
        return Match(Reason.NO_RULE, bound_reached=True) if decided == _BOUND_REACHED else NO_RULE_MATCH

    def rule_at(self, place: int) -> Rule:
        """See ``FindsRule``; the verdicts that a program keeps share the text of a long rule, which may be hostile."""
        return _rule(self._rules.rule(place))

    @property
    def rules(self) -> list[Rule]:
        """See ``RuleSet.rules``."""
        return list(map(_rule, self._rules.listed()))

    def alone(self, rule: Rule) -> RuleSet:
        """See ``RuleSet.alone``; the reference decides."""
        return MostSpecificRuleSet([line_of(rule)], Directives(), self._dialect)

    def _rules_bytes(self) -> int:
        return self._rules.octets()

    def __len__(self) -> int:
        return len(self._rules)

    def __reduce__(self) -> tuple[object, ...]:
        rules = self.rules
        rows = ["user-agent:*"] + [""] * max((rule.line - 1 for rule in rules), default=0)
        for rule in rules:
            rows[rule.line - 1] = f"{rule.field}:{rule.value}"
        delays = () if self.crawl_delay is None else (self.crawl_delay,)
        values = (*delays, *self.request_rates, *self.visit_times, *self.comments)
        directives = Directives(values, sitemaps=self._sitemaps, usage=self.site_usage)
        return _remade, ("\n".join(rows), self._dialect, directives)


def _remade(text: str, dialect: Dialect, directives: Directives) -> RuleSet:
    """Return the rules of a copy; where the core is not built, the reference decides."""
    outline = native_outline(octets_of(text), dialect) or Outline(read_lines(text, dialect.traits.syntax), dialect)
    return outline.rule_set(outline.binding(()), directives)


def _rule(written: WrittenRule) -> Rule:
    line, name, value, pattern, allow = written
    if len(value) > _LONG:
        value, pattern = intern(value), intern(pattern)
    return Rule(line, name, value, pattern, allow=allow)


class NativeOutline:
    """The groups of a file as the compiled core finds them; see ``Outline``.

    Args:
        file: the rows of the file.
        dialect: its dialect.

    Attributes:
        others: see ``Outline``, but without sitemaps.
        sitemaps: see ``Outline``.
    """

    __slots__ = ("_dialect", "_file", "others", "sitemaps")

    def __init__(self, file: _core.File, dialect: Dialect) -> None:
        self._file = file
        self._dialect = dialect
        self.sitemaps: str = file.sitemaps()
        rows = file.others(0)
        self.others: OtherRecords = _NO_OTHERS if not rows else OtherRecords()
        while rows:  # the core returns some rows at a time, so that other threads run in between
            _add(rows, self.others, dialect.traits)
            rows = file.others(rows[-1][0] + 1)

    def binding(self, tokens: Iterable[str]) -> Sequence[Span]:
        """See ``Outline.binding``; in the dialects of the compiled core, a name has to equal a token."""
        found = self._file.binding([*tokens, EVERYBODY])
        return self._dialect.traits.grouping.everybody(found) if found and found[0][2] == EVERYBODY else found

    def rule_set(self, found: Sequence[Span], directives: Directives) -> NativeRuleSet:
        """See ``Outline.rule_set``."""
        return NativeRuleSet(self._file.rules(found), directives, self._dialect)


def _add(rows: Iterable[tuple[int, str, str, bool, bool]], others: OtherRecords, traits: Traits) -> None:
    names: dict[str, FieldName] = {}
    for number, name, value, has_control, in_group in rows:
        spelling, field, _ = names.get(name) or names.setdefault(name, traits.syntax.name_of(name))
        line = Line(number, spelling, field, value, (Quirk.CONTROL_CHARACTER,) if has_control else NO_QUIRKS)
        others.add(line, stray=None if in_group else Quirk.BEFORE_ANY_GROUP)


def native_outline(octets: bytes, dialect: Dialect) -> NativeOutline | None:
    """Return the outline of a file as the compiled core reads it, or None if the core does not support the dialect."""
    made = _dialect(dialect)
    return None if made is None else NativeOutline(made.scan(octets), dialect)


@cache
def _dialect(dialect: Dialect) -> _core.Dialect | None:
    """Return a dialect for the compiled core, from the tables of the reference."""
    traits = dialect.traits
    syntax, grouping, form = traits.syntax, traits.grouping, traits.matching.form
    if core is None or traits.winner is not Winner.MOST_SPECIFIC:
        return None

    kinds = dict.fromkeys(syntax.fields, _FIELD) | dict.fromkeys(grouping.usage_rules, _USAGE_RULE)
    kinds |= {"sitemap": _SITEMAP, "user-agent": _USER_AGENT, ALLOW: _ALLOW, "disallow": _DISALLOW}
    names = {field: field for field in syntax.fields} | dict(syntax.misspelled_fields)
    made: _core.Dialect = core.Dialect(
        tables=(
            _table(PLAIN),
            _table(form.in_path.kept),
            _table(form.in_path.decoded),
            _table(form.in_query.decoded),
            _table([octet for octet in range(128) if grouping.name(chr(octet)) not in {"", EVERYBODY}]),
        ),
        most_octets=MAX_URL_LENGTH,
        work=budget.WORK,
        names=tuple(sorted(((name, kinds[field]) for name, field in names.items()), key=itemgetter(1), reverse=True)),
        starts=tuple((start, kinds[field]) for start, field in syntax.field_starts.items()),
        odd_blanks=b" ".join(map(octets_of, syntax.odd_blanks)),
        missing_colon=syntax.missing_colon,
        most_line_octets=syntax.max_line_octets or 0,
        implies_directories=traits.matching.implied_allow is not None,
    )
    return made


def _table(octets: Collection[int]) -> bytes:
    return bytes(octet in octets for octet in range(256))
