"""Compiles, on demand, a robots.txt's preferences about the use of content: Content-Usage, Content-Signal, License.

Content-Usage and Content-Signal are resolved independently. The Content-Usage line with the longest matching path
applies; if several matching paths are equally long, all their lines apply (draft-ietf-aipref-attach 3.1). Lines with
shorter paths do not apply, even if they name a purpose that the longest line does not name. The Content-Signals in the
groups for the crawler apply. If these groups have none, the Content-Signals in the groups for ``*`` apply. If those
groups have none either, the Content-Signals before the first group apply.
"""

from __future__ import annotations

import re
from dataclasses import replace
from sys import getsizeof
from typing import TYPE_CHECKING, Final, NamedTuple

from politesse._base.text import BLANKS
from politesse.origin import target_of
from politesse.robots.budget import USAGE_BUDGET, Meter, metered_matcher
from politesse.robots.pattern import PLAIN
from politesse.usage.model import License, Mechanism, Place, Preference, Purpose, Statement, Usage
from politesse.usage.vocabulary import parse_content_signal, parse_content_usage, statements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from politesse.origin import StrOrURL
    from politesse.robots.dialect import Dialect
    from politesse.robots.line import AgentLine, Line

_PATH: Final = re.compile(f"/[^{BLANKS}]*")
_WHOLE_SITE: Final = "/"  # the path of a rule without a path
_PARSED_AT_ONCE: Final = 50
_MOST_LINES: Final = 1_000  # of each kind; the garbage collector would stop all threads for 30 ms with more
# The measured size of a Content-Usage, a Content-Signal and a License with their statements, without their text.
_BYTES_PER_LINE: Final = (700, 300, 60)
_BYTES_PER_STAR: Final = 72  # of the segment behind a star
_PLAIN_OCTETS: Final = bytes(PLAIN)


class _UsageRule(NamedTuple):
    """A Content-Usage line, compiled."""

    length: int
    matches: Callable[[Meter], bool]
    statements: tuple[Statement, ...]


class _Compiled(NamedTuple):
    """The compiled lines; ``refused`` maps each purpose to a refusal by a line after the first thousand."""

    rules: tuple[_UsageRule, ...]
    refused: dict[Purpose | None, Statement]
    signals: tuple[Statement, ...]
    licenses: tuple[License, ...]


class SiteUsage:
    """Preferences of a robots.txt for a crawler; made only for files with preferences.

    The matching work is bounded, as for rules. Some lines are not compared: lines beyond the bound, and lines after the
    first thousand of their kind. Only the refusals in these lines count, and they apply to all paths. Up to 50 lines
    are parsed at the first call of ``usage``. If there are more lines, all are parsed at construction.

    Attributes:
        weight_bytes: approximate memory that the preferences take once they are compiled.
    """

    __slots__ = ("_compiled", "_dialect", "_licenses", "_rules", "_signals", "weight_bytes")

    _compiled: _Compiled | None

    def __init__(
        self, dialect: Dialect, rules: Sequence[AgentLine], signals: Sequence[AgentLine], licenses: Sequence[Line]
    ) -> None:
        self._dialect = dialect
        self._rules = tuple(rules)
        self._signals = tuple(signals)
        self._licenses = tuple(licenses[:_MOST_LINES])
        lines = (*([one.line for one in some[:_MOST_LINES]] for some in (rules, signals)), self._licenses)
        weighed = [(each, line) for each, some in zip(_BYTES_PER_LINE, lines, strict=True) for line in some]
        self.weight_bytes: int = sum([each + _text_bytes(line.value) for each, line in weighed])
        self._compiled = None
        if len(weighed) > _PARSED_AT_ONCE:  # such a file is parsed off the event loop, so compile here, too
            self._compiled = self._compile()
            self._rules = self._signals = self._licenses = ()

    def usage(self, url: StrOrURL) -> Usage:
        """Return the preferences about a URL or target, even if it may not be requested.

        Raises:
            InvalidURL: see ``RuleSet.match``.
        """
        if self._compiled is None:
            self._compiled = self._compile()
        bearing, applied = self._by_path(self._compiled, target_of(url))
        signals = self._compiled.signals
        return Usage((*bearing, *signals), (*applied, *signals), self._compiled.licenses)

    def _compile(self) -> _Compiled:
        signals = [statement for said in self._signals[:_MOST_LINES] for statement in _signal_statements(said)]
        return _Compiled(
            tuple(_usage_rule(said, self._dialect) for said in self._rules[:_MOST_LINES]),
            _refusals(_usage_rule(said, self._dialect).statements for said in self._rules[_MOST_LINES:]),
            (*signals, *_refusals(map(_signal_statements, self._signals[_MOST_LINES:])).values()),
            tuple(License(line.value, Place.ROBOTS_TXT, _text(line), line.number) for line in self._licenses),
        )

    def _by_path(self, compiled: _Compiled, target: str) -> tuple[list[Statement], list[Statement]]:
        """Return the statements of all matching Content-Usage lines, and of those with the longest path."""
        meter = Meter(self._dialect.traits.matching.form.of_target(target), USAGE_BUDGET)
        matching: list[_UsageRule] = []
        refused = compiled.refused
        for place, rule in enumerate(compiled.rules):
            if rule.matches(meter):
                matching.append(rule)
            elif meter.exhausted:
                refused = {**refused, **_refusals(undecided.statements for undecided in compiled.rules[place:])}
                break
        longest = max((rule.length for rule in matching), default=0)
        bearing = [statement for rule in matching for statement in rule.statements]
        applied = [statement for rule in matching if rule.length == longest for statement in rule.statements]
        return [*bearing, *refused.values()], [*applied, *refused.values()]

    def __repr__(self) -> str:
        compiled = self._compiled or self._compile()
        counts = map(len, (compiled.rules, compiled.signals, compiled.licenses))
        return "<SiteUsage {} rules, {} signals, {} licenses>".format(*counts)


def _text_bytes(value: str) -> int:
    """Return about how much memory the texts of a line take: value, line and path, the pattern and its segments."""
    octets = value.encode("utf-8", "surrogateescape")
    pattern = len(octets) + 2 * len(octets.translate(None, _PLAIN_OCTETS))
    return 3 * getsizeof(value) + 2 * pattern + _BYTES_PER_STAR * value.count("*")


def _refusals(undecided: Iterable[tuple[Statement, ...]]) -> dict[Purpose | None, Statement]:
    """Return the first refusal of each purpose among the statements of lines that were not compared."""
    refused: dict[Purpose | None, Statement] = {}
    for stated in undecided:
        for statement in stated:
            if statement.preference is Preference.DISALLOWED:
                refused.setdefault(statement.purpose, statement)
    return refused


def _usage_rule(said: AgentLine, dialect: Dialect) -> _UsageRule:
    path, preferences = _cut(said.line.value)
    pattern = dialect.traits.matching.normalise_pattern(path or _WHOLE_SITE)
    template = _template(Mechanism.CONTENT_USAGE, said, path)
    return _UsageRule(len(pattern), metered_matcher(pattern), statements(parse_content_usage(preferences), template))


def _template(mechanism: Mechanism, said: AgentLine, path: str = "") -> Statement:
    """Return a Statement for a line; its preference is not yet set."""
    where = Place.ROBOTS_TXT, _text(said.line), said.line.number, path, said.agent
    return Statement(None, Preference.UNSTATED, mechanism, *where)


def _cut(value: str) -> tuple[str, str]:
    """Cut the value of a Content-Usage line into path and preferences (draft-ietf-aipref-attach 3)."""
    path = _PATH.match(value)
    return ("", value) if path is None else (path[0], value[path.end() :].strip(BLANKS))


def _signal_statements(said: AgentLine) -> tuple[Statement, ...]:
    signals, use = parse_content_signal(said.line.value)
    return statements(signals, replace(_template(Mechanism.CONTENT_SIGNAL, said), use=use))


def _text(line: Line) -> str:
    return f"{line.name}: {line.value}"
