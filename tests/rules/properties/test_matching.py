"""The compiled rules against a literal reading of the RFC."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from politesse.robots import Dialect, RobotsTxt
from politesse.verdict import Reason
from tests.rules.properties import reference
from tests.rules.properties.strategies import MANY_GROUPS, ONE_GROUP, PERCENT_SIGNS, Case

if TYPE_CHECKING:
    from politesse.robots import Match


DIALECTS = st.sampled_from(Dialect)
_WORDS = st.lists(st.sampled_from(["a", "b", "ab", "p.html", "robots.txt", ""]), min_size=1, max_size=3).map("/".join)
_PATHS = _WORDS.map("/{}".format)
_RULES = st.tuples(st.sampled_from(["Allow", "Disallow"]), _PATHS, st.sampled_from(["", "", "", "", "*", "$", "*a"]))


def _octets(match: Match) -> int | None:
    return None if match.rule is None else len(match.rule.pattern)


def _shown(match: Match) -> tuple[Reason, bool, str]:
    rule = match.rule
    return match.reason, match.bound_reached, "" if rule is None else f"{rule!r} {rule.pattern} {rule.allow}"


def _hold(case: Case, token: str) -> None:
    rules = RobotsTxt.parse(case.robots_txt).rules_for(token)
    records = reference.records_for(case.robots_txt, token.encode())
    for target in case.targets:
        match = rules.match(target)
        expected = reference.decide(records, target.encode())
        assert (match.allowed, _octets(match)) == (expected.allowed, expected.octets), target
        assert rules.allowed(target) is rules.allowed(f"http://example.com{target}") is expected.allowed, target
        if match.rule is None:
            assert match.reason is (Reason.ROBOTS_TXT if expected.exempt else Reason.NO_RULE), target
        else:
            assert match.rule.line in expected.lines, target
            assert match.reason is (Reason.ALLOW_RULE if expected.allowed else Reason.DISALLOW_RULE), target


@settings(max_examples=20_000, deadline=None)
@given(ONE_GROUP)
def test_most_specific_match_agrees_with_the_literal_reference(case: Case) -> None:
    _hold(case, "ExampleBot")


@settings(max_examples=4_000, deadline=None)
@given(MANY_GROUPS)
def test_groups_agree_with_the_literal_reference(case: Case) -> None:
    for token in ("FooBot", "BAR-bot", "OtherBot"):
        _hold(case, token)


@settings(max_examples=4_000, deadline=None)
@given(PERCENT_SIGNS)
def test_percent_signs_agree_with_the_literal_reference(case: Case) -> None:
    _hold(case, "ExampleBot")


@settings(max_examples=1_000, deadline=None)
@given(ONE_GROUP)
def test_order_of_the_rules_changes_no_decision(case: Case) -> None:
    agent, *lines = case.robots_txt.split(b"\n")
    forwards = RobotsTxt.parse(case.robots_txt).rules_for("ExampleBot")
    backwards = RobotsTxt.parse(b"\n".join([agent, *reversed(lines)])).rules_for("ExampleBot")
    for target in case.targets:
        one, other = forwards.match(target), backwards.match(target)
        assert (one.allowed, _octets(one)) == (other.allowed, _octets(other)), target


@settings(max_examples=1_000, deadline=None)
@given(ONE_GROUP)
def test_a_decision_does_not_depend_on_earlier_decisions(case: Case) -> None:
    rules = RobotsTxt.parse(case.robots_txt).rules_for("ExampleBot")
    first = [rules.match(target) for target in case.targets]
    again = [rules.match(target) for target in reversed(case.targets)]
    alone = [RobotsTxt.parse(case.robots_txt).rules_for("ExampleBot").match(target) for target in case.targets]
    assert first == again[::-1]  # the very same values: nothing is made anew
    assert [(match.allowed, _octets(match)) for match in first] == [(match.allowed, _octets(match)) for match in alone]
