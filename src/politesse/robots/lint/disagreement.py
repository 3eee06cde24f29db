"""Finds rules on which the dialects disagree, by trying each rule in all dialects on similar paths.

If two dialects disagree about a path, a rule is reported only if it decides about the path in one of the two dialects.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from politesse._base.checks import InvalidURL
from politesse.robots.agents import EVERYBODY
from politesse.robots.dialect import Dialect
from politesse.robots.document import RobotsTxt
from politesse.robots.line import Line, is_void
from politesse.robots.lint.diagnostics import Report, shown
from politesse.robots.lint.groups import bindings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from politesse.robots.lint.lines import Rows
    from politesse.robots.rule_sets import RuleSet
    from politesse.verdict import Match

_MAX_PROBE: Final = 2_000  # URLs with more characters are not requested in practice
_MAX_SAMPLES: Final = 2
_MAX_EFFORT: Final = 10_000_000_000  # in bytes of searched rules; this maximum takes a few seconds
_EFFORT_OF_A_MATCH: Final = 20_000  # the effort of a match, in addition to the bytes of the rules
_EFFORT_OF_A_RULE: Final = 20_000  # the effort to compile a rule
_EFFORT_OF_A_NAME: Final = 10_000  # the effort to compare a name with the name of a crawler
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")

_CODE: Final = "dialects-disagree"


def check_disagreement(robots: RobotsTxt, rows: Rows, report: Report, octets: bytes) -> None:
    """Report each rule on which another dialect decides differently, with an example path."""
    if not any(group.rules for group in robots.groups):
        return
    readings = {other: RobotsTxt.parse(octets, other, origin=robots.origin) for other in Dialect}
    names = sum(len(group.agents) for group in robots.groups)
    trial = _Trial()
    reported: set[int] = set()
    chosen, whole = bindings(robots)
    for agent, groups in chosen:
        lines = [line for group in groups for line in group.rules if line.value and not is_void(line)]
        if all(line.number in reported for line in lines):
            continue
        trial.start(robots.rules_for(agent), {other: reading.rules_for(agent) for other, reading in readings.items()})
        trial.effort_left -= _EFFORT_OF_A_NAME * names
        for line in lines:
            if trial.effort_left < 0 or report.is_full(_CODE):
                report.give_up(_CODE, "not every rule was tried in every dialect")
                return
            if line.number not in reported and (samples := trial.of(line)):
                reported.add(line.number)
                whom = "" if agent == EVERYBODY else f" to {shown(agent)}"
                message = "; ".join(sample.message(whom) for sample in samples)
                report.add(_CODE, message, line.number, rows.of_value(line))
    if not whole:
        report.give_up(_CODE, "not every crawler that the file names was tried")


class _Sample(NamedTuple):
    """A path with the decision of the chosen dialect, and with the dialects that decide otherwise."""

    path: str
    allowed: bool
    others: list[Dialect]

    def message(self, whom: str) -> str:
        here, there = ("allowed", "disallowed") if self.allowed else ("disallowed", "allowed")
        names = ", ".join(other.value for other in self.others)
        return f"{shown(self.path)} is {here}{whom}, but {there} by {names}"


class _Trial:
    """Decides in all dialects about paths that are similar to a rule, for one crawler.

    Attributes:
        effort_left: how much of the permitted effort is not spent, in bytes of rules.
    """

    def __init__(self) -> None:
        self.effort_left = _MAX_EFFORT

    def start(self, here: RuleSet, there: Mapping[Dialect, RuleSet]) -> None:
        """Set the rules of a crawler: ``here`` by the chosen dialect, ``there`` by every dialect."""
        self._here = here
        self._there = there
        self._effort = sum(rules.weight_bytes + _EFFORT_OF_A_MATCH for rules in (here, *there.values()))
        self.effort_left -= _EFFORT_OF_A_RULE * sum(map(len, there.values()))

    def of(self, line: Line) -> list[_Sample]:
        """Return at most two paths about which dialects disagree because of this line. No dialect is reported twice."""
        samples: list[_Sample] = []
        known: set[Dialect] = set()
        for path in _paths_near(line.value):
            self.effort_left -= self._effort
            try:
                answer = self._here.match(path)
                answers = {other: rules.match(path) for other, rules in self._there.items()}
            except InvalidURL:
                continue  # such a path cannot be requested
            ours = _decides(line, answer)
            differing = [
                other
                for other, match in answers.items()
                if match.allowed is not answer.allowed and (ours or _decides(line, match)) and other not in known
            ]
            if differing:
                known.update(differing)
                samples.append(_Sample(path, answer.allowed, differing))
            if len(samples) == _MAX_SAMPLES:
                break
        return samples


def _decides(line: Line, match: Match) -> bool:
    return match.rule is not None and match.rule.line == line.number


def _paths_near(value: str) -> Iterator[str]:
    """Yield paths that a rule may match, likely paths first, each once."""
    stem = value.removesuffix("$")
    stem = stem if stem.startswith("/") else f"/{stem}"
    stem = stem.partition("#")[0]
    filled, bare = stem.replace("*", "x"), stem.replace("*", "")
    paths = [filled, f"{filled}x", f"{filled}/x", f"{filled}?x=1", bare, f"{bare}x"]
    if "%" in value or "~" in value or not value.isascii():
        # A rule without escapes is not tried on escaped paths, because dialects that do not decode escapes would
        # disagree about every rule.
        swapped = _ESCAPE.sub(lambda escape: escape[0].swapcase(), filled)
        paths += [_ESCAPE.sub(_decoded, filled), swapped, filled.replace("~", "%7E")]
    paths.append(value)
    for path in dict.fromkeys(paths):
        if path.startswith("/") and len(path) <= _MAX_PROBE and path.isprintable():
            yield path


def _decoded(escape: re.Match[str]) -> str:
    return chr(int(escape[0][1:], 16))
