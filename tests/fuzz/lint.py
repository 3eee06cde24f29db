"""Lint and explain.

Invariant: for all octets and in every dialect, lint reports places that are in the file, in their order, in printable
words, and at most the requested number of each kind. explain gives the answer of the rules, and the deciding rule is
among its matches.

Input: one octet for the dialect and one for the number of reports; a line for a target; and the file.
"""

from collections import Counter
from typing import Final

from politesse.errors import InvalidURL
from politesse.robots import Dialect, RobotsTxt, product_token
from politesse.robots.explain import explain
from politesse.robots.lint import CODES, lint
from politesse.verdict import Reason
from tests.fuzz.rows import utf_8
from tests.fuzz.target import Target, choose, dictionary, text
from tests.rules.properties.reference import split_lines

_MOST: Final = (100, 1, 2, 5)


def check(octets: bytes) -> None:
    """Hold lint and explain to the invariant."""
    dialect, most = choose(octets[:1], tuple(Dialect)), choose(octets[1:2], _MOST)
    path, _, body = octets[2:].partition(b"\n")
    _check_lint(body, dialect, most)
    robots = RobotsTxt.parse(body, dialect)
    names = [name for group in robots.groups[:2] for name in group.agents]
    for agent in ("ExampleBot", *(name for name in names if product_token(name) != "mozilla")):  # a browser is refused
        _check_explanation(robots, "/" + text(path).removeprefix("/"), agent)


def _check_lint(body: bytes, dialect: Dialect, most: int) -> None:
    found = lint(body, dialect, most_per_code=most)
    assert found == lint(text(body), dialect, most_per_code=most), "octets and text differ"
    rows = [text(line) for line in split_lines(utf_8(body))]
    told = Counter(one.code for one in found)
    assert all(count <= most for code, count in told.items() if code != "capped")
    places = [(one.line, one.column) for one in found if one.code != "capped"]
    assert places == sorted(places)
    for one in found:
        assert CODES[one.code].severity is one.severity
        assert 1 <= one.line <= len(rows), one
        assert 1 <= one.column <= len(rows[one.line - 1]) + 1, one
        assert one.message.isprintable(), one


def _check_explanation(robots: RobotsTxt, target: str, agent: str) -> None:
    rules = robots.rules_for(agent)
    try:
        match = rules.match(target)
    except InvalidURL:
        return
    explanation = explain(robots, target, agent)
    assert (explanation.match.reason, repr(explanation.winner)) == (match.reason, repr(match.rule))
    assert [rule.line for rule in explanation.matches] == sorted(rule.line for rule in explanation.matches)
    if match.reason in {Reason.ALLOW_RULE, Reason.DISALLOW_RULE}:
        assert match.rule is not None
        deciding = {(rule.line, rule.allow) for rule in explanation.matches}
        assert (match.rule.line, match.rule.allow) in deciding, f"{match} is not among {explanation.matches}"
    if explanation.ended_by is not None:
        assert match.reason is Reason.NO_RULE
        assert explanation.ended_by.value == ""


TARGET: Final = Target("lint", check, dictionary("lint"), 512, short_runs=400)
