"""The compiled rules, those of each dialect and those of the judge of traces, against literal readings of the texts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from politesse.origin import Origin
from politesse.robots import Dialect, RobotsTxt
from politesse.testing import Exchange, assert_polite
from politesse.verdict import Reason
from tests.rules.properties import reference
from tests.rules.properties.reference_dialects import REFERENCES
from tests.rules.properties.strategies import DIALECT_GROUPS, MANY_GROUPS, ONE_GROUP, PERCENT_SIGNS, Case

if TYPE_CHECKING:
    from politesse.robots import Match

SITE: Final = Origin.of("http://example.com")
OTHERS: Final = [dialect for dialect in REFERENCES if dialect is not Dialect.RFC9309]
NO_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")


def _octets(match: Match) -> int | None:
    return None if match.rule is None else len(match.rule.pattern)


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


@settings(max_examples=6_000)
@given(ONE_GROUP)
def test_most_specific_match_agrees_with_the_literal_reference(case: Case) -> None:
    _hold(case, "ExampleBot")


@settings(max_examples=3_000)
@given(MANY_GROUPS)
def test_groups_agree_with_the_literal_reference(case: Case) -> None:
    for token in ("FooBot", "BAR-bot", "OtherBot"):
        _hold(case, token)


@settings(max_examples=3_000)
@given(PERCENT_SIGNS)
def test_percent_signs_agree_with_the_literal_reference(case: Case) -> None:
    _hold(case, "ExampleBot")


@settings(max_examples=1_000)
@given(ONE_GROUP)
def test_order_of_the_rules_changes_no_decision(case: Case) -> None:
    agent, *lines = case.robots_txt.split(b"\n")
    forwards = RobotsTxt.parse(case.robots_txt).rules_for("ExampleBot")
    backwards = RobotsTxt.parse(b"\n".join([agent, *reversed(lines)])).rules_for("ExampleBot")
    for target in case.targets:
        one, other = forwards.match(target), backwards.match(target)
        assert (one.allowed, _octets(one)) == (other.allowed, _octets(other)), target


@settings(max_examples=1_000)
@given(ONE_GROUP)
def test_a_decision_does_not_depend_on_earlier_decisions(case: Case) -> None:
    rules = RobotsTxt.parse(case.robots_txt).rules_for("ExampleBot")
    first = [rules.match(target) for target in case.targets]
    again = [rules.match(target) for target in reversed(case.targets)]
    alone = [RobotsTxt.parse(case.robots_txt).rules_for("ExampleBot").match(target) for target in case.targets]
    assert first == again[::-1]  # the very same values: nothing is made anew
    assert [(match.allowed, _octets(match)) for match in first] == [(match.allowed, _octets(match)) for match in alone]


def _hold_dialect(dialect: Dialect, octets: bytes, targets: tuple[str, ...], *names: str) -> None:
    robots = RobotsTxt.parse(octets, dialect, origin=SITE)
    for name in names:
        rules = robots.rules_for(name)
        for target in targets:
            match = rules.match(target)
            expected = REFERENCES[dialect](octets, name.encode(), target.encode())
            assert match.allowed is expected.allowed, target
            assert rules.allowed(target) is rules.allowed(f"{SITE}{target}") is expected.allowed, target
            assert (match.reason is Reason.ROBOTS_TXT) is expected.exempt, target
            if expected.lines:
                assert match.rule is not None
                assert match.rule.line in expected.lines, target


def test_every_dialect_has_a_reference() -> None:
    assert set(REFERENCES) == set(Dialect)


@settings(max_examples=5_000)
@given(st.sampled_from(OTHERS), ONE_GROUP)
def test_one_group_of_each_dialect_agrees_with_its_literal_reference(dialect: Dialect, case: Case) -> None:
    _hold_dialect(dialect, case.robots_txt, case.targets, "ExampleBot")


@settings(max_examples=2_000)
@given(st.sampled_from([Dialect.GOOGLE, Dialect.KOSTER_1996]), PERCENT_SIGNS)
def test_percent_signs_of_each_dialect_agree_with_its_literal_reference(dialect: Dialect, case: Case) -> None:
    _hold_dialect(dialect, case.robots_txt, case.targets, "ExampleBot")


@settings(max_examples=1_500)
@given(ONE_GROUP)
def test_one_rule_set_of_version_2_agrees_with_the_literal_reference(case: Case) -> None:
    octets = case.robots_txt.replace(b"\n", b"\nRobot-version: 2.0.0\n", 1)
    _hold_dialect(Dialect.CONNER_2, octets, case.targets, "ExampleBot")


@settings(max_examples=3_000)
@given(st.sampled_from([dialect for dialect in OTHERS if dialect is not Dialect.KOSTER_2019]), DIALECT_GROUPS)
def test_groups_of_each_dialect_agree_with_its_literal_reference(dialect: Dialect, case: Case) -> None:
    _hold_dialect(dialect, case.robots_txt, case.targets, "FooBot", "BAR-bot", "Other", "FooBot-News", "Fo")


@settings(max_examples=800)
@given(MANY_GROUPS)
def test_groups_of_koster_2019_agree_with_the_literal_reference_except_where_it_is_lenient(case: Case) -> None:
    _hold_dialect(Dialect.KOSTER_2019, case.robots_txt, case.targets, "FooBot", "BAR-bot", "Other", "FooBot-News")


@settings(max_examples=1_000)
@given(st.sampled_from(Dialect), DIALECT_GROUPS)
def test_a_url_is_judged_as_its_target_is_in_every_dialect(dialect: Dialect, case: Case) -> None:
    rules = RobotsTxt.parse(case.robots_txt, dialect, origin=SITE).rules_for("FooBot")
    for target in case.targets:
        assert rules.match(f"http://example.com{target}") == rules.match(target), target
        assert rules.match(f"HTTP://user@EXAMPLE.com:80{target}#top") == rules.match(target), target


def _forbidding_line(robots_txt: bytes, target: str, token: str) -> int | None:
    """Return the number of the line that forbids a target, as the judge reads the file."""
    trace = [Exchange(f"{SITE}/robots.txt", 0.0, 0.0), Exchange(f"{SITE}{target}", 60.0, 60.0)]
    try:
        assert_polite(trace, {str(SITE): robots_txt}, agent=token)
    except AssertionError as error:  # it may also tell that the page came too soon
        found = re.search(r"^forbidden page requested: .* \(against line (\d+): ", str(error), re.MULTILINE)
        return None if found is None else int(found[1])
    return None


def _hold_judge(case: Case, token: str) -> None:
    # What a percent sign may mean that begins no escape is a question for the parser, not for the judge.
    robots_txt = NO_ESCAPE.sub("x", case.robots_txt.decode("latin-1")).encode("latin-1")
    records = reference.records_for(robots_txt, token.encode())
    for target in (NO_ESCAPE.sub("x", target) for target in case.targets):
        expected = reference.decide(records, target.encode())
        line = _forbidding_line(robots_txt, target, token)
        assert (line is None) is expected.allowed, (target, line)
        assert line is None or line in expected.lines, (target, line)


@settings(max_examples=2_000)
@given(ONE_GROUP)
def test_rules_of_the_judge_agree_with_the_literal_reference(case: Case) -> None:
    _hold_judge(case, "ExampleBot")


@settings(max_examples=500)
@given(MANY_GROUPS)
def test_groups_of_the_judge_agree_with_the_literal_reference(case: Case) -> None:
    for token in ("FooBot", "BAR-bot", "OtherBot"):
        _hold_judge(case, token)
