"""Finds rules that never decide, because they match no target, or because another rule always precedes them.

Every report is proven, so there are no false positives. The check misses a rule that never decides because of several
other rules, if none of these precedes it for all targets. Rule A covers rule B if A matches every target that B
matches. To test this, the stars of A cut its pattern into pieces, and each star of B becomes a character that only a
star of A matches. A covers B if the pieces of A occur in the resulting text, in order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from politesse.robots.explain import compiled_alone, ending_line
from politesse.robots.line import Line, is_void
from politesse.robots.lint.diagnostics import Report, shown
from politesse.robots.lint.groups import bindings
from politesse.verdict import Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.robots.document import RobotsTxt
    from politesse.robots.line import Group
    from politesse.robots.lint.lines import Rows
    from politesse.robots.rule_sets import RuleSet

_STAR: Final = "\n"  # stands for a star of the covered rule; no normal form contains a control character
_MAX_COMPARISONS: Final = 500_000
_MAX_RULES: Final = 500_000  # limits the rules in all combinations of groups together
# Maps a first piece to the rules that begin with it, each with all its pieces.
_ByHead = dict[str, list[tuple[Rule, tuple[str, ...]]]]
_DOT_SEGMENT = re.compile(r"/\.{1,2}(?:/|\$\Z)")


def check_rules(robots: RobotsTxt, rows: Rows, report: Report) -> None:
    """Report rules that match no target, and rules that never win."""
    lone = {line.number: _Lone(robots, line, group) for group in robots.groups for line in group.rules if _says(line)}
    for one in lone.values():
        if one.matches_nothing:
            message = f"{shown(one.line.value)} matches no URL in this dialect"
            report.add("matches-nothing", message, one.line.number, rows.of_value(one.line))
    chosen, whole = bindings(robots)
    # If not all crawlers were tried, each group is checked alone. This suffices, because a rule that never wins in its
    # own group does not win among more rules.
    combinations = [one.groups for one in chosen] if whole else [[group] for group in robots.groups]
    shadows = _Shadows(robots, lone)
    losing: dict[int, Rule] = {}
    winning: set[int] = set()
    for groups in combinations:
        lost = shadows.of(groups)
        losing |= lost
        winning.update(line.number for group in groups for line in group.rules if line.number not in lost)
    for number, by in losing.items():
        if number not in winning and not lone[number].matches_nothing:
            same = lone[number].says_so
            how = "says the same" if same is not None and _alike(same, by) else "goes before it wherever it matches"
            message = f"it never decides: line {by.line}, {shown(str(by))}, {how}"
            report.add("never-wins", message, number, rows.of_value(lone[number].line))
    if shadows.gave_up:
        report.give_up("never-wins", "there are too many rules to compare each with each")


def _alike(rule: Rule, other: Rule) -> bool:
    return rule.pattern == other.pattern and rule.allow is other.allow


def _says(line: Line) -> bool:
    return bool(line.value) and not is_void(line)


class _Lone:
    """One line of a file, compiled alone.

    Attributes:
        line: the line.
        rules: its rules; several in dialects in which a rule implies others.
        rule_set: these rules, compiled.
        says_so: the rule that the path itself states, not an implied rule; None for a URL, which may be of another
            site.
        matches_nothing: whether the line matches no target in normal form.
    """

    __slots__ = ("line", "matches_nothing", "rule_set", "rules", "says_so")

    def __init__(self, robots: RobotsTxt, line: Line, group: Group) -> None:
        self.line = line
        self.rule_set: RuleSet = compiled_alone(robots, line, group.version)
        self.rules = self.rule_set.rules
        pattern = robots.dialect.traits.matching.normalise_pattern(line.value)
        self.says_so = next((rule for rule in self.rules if rule.pattern == pattern), None)
        self.matches_nothing = not self.rules or all(_has_dot_segment(rule.pattern) for rule in self.rules)


def _has_dot_segment(pattern: str) -> bool:
    """Whether a pattern matches only paths with a dot segment. Clients remove dot segments from every request."""
    path = pattern.partition("?")[0].partition("*")[0]  # a star may reach into the query, which keeps dot segments
    return _DOT_SEGMENT.search(path) is not None


@dataclass
class _Shadows:
    """Finds, in a combination of groups, the rules that another rule always precedes."""

    _robots: RobotsTxt
    _lone: dict[int, _Lone]
    _comparisons_left: int = _MAX_COMPARISONS
    _rules_left: int = _MAX_RULES
    gave_up: bool = False

    def of(self, groups: Sequence[Group]) -> dict[int, Rule]:
        """Return the line numbers of rules that never win, each with a rule that precedes it."""
        lines = [line for group in groups for line in group.rules if line.number in self._lone]
        self._rules_left -= len(lines)
        if self._rules_left < 0:
            self.gave_up = True
            return {}
        by_head: _ByHead = {}
        for one in (self._lone[line.number] for line in lines):
            if one.says_so is not None:
                reach = one.rule_set.reach(one.says_so)
                by_head.setdefault(reach[0], []).append((one.says_so, reach))
        if (end := ending_line(self._robots, groups)) is not None:
            everything = Rule(end.number, end.name, end.value, "", allow=True)
            by_head.setdefault("", []).append((everything, ("", "")))
        lengths = sorted({len(head) for head in by_head})
        lost: dict[int, Rule] = {}
        for line in lines:
            one = self._lone[line.number]
            before = [self._before(one.rule_set, rule, by_head, lengths) for rule in one.rules]
            if one.says_so is not None and before and before[0] is not None and None not in before:
                lost[line.number] = before[0]
        return lost

    def _before(self, rule_set: RuleSet, rule: Rule, by_head: _ByHead, lengths: list[int]) -> Rule | None:
        """Return a rule that precedes ``rule`` wherever ``rule`` matches, or None."""
        pieces = rule_set.reach(rule)
        text, head = _STAR.join(pieces), pieces[0]
        for length in lengths:
            if length > len(head):
                break
            for other, reach in by_head.get(head[:length], ()):
                self._comparisons_left -= 1
                if self._comparisons_left < 0:
                    self.gave_up = True
                    return None
                if other.line != rule.line and rule_set.precedes(other, rule) and covers(reach, text):
                    return other
        return None


def covers(pieces: tuple[str, ...], text: str) -> bool:
    """Whether ``text`` consists of ``pieces``, in order, with any text between the pieces."""
    first, *others = pieces
    if not others:
        return text == first
    *middle, last = others
    position = len(first)
    if not text.startswith(first):
        return False
    for piece in middle:
        # The leftmost match leaves the most room for later pieces.
        found = text.find(piece, position)
        if found < 0:
            return False
        position = found + len(piece)
    return text.endswith(last) and len(text) - len(last) >= position
