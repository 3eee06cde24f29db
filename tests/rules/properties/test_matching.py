"""The compiled rules, those of each dialect and those of the judge of traces, against literal readings of the texts."""

from __future__ import annotations

import re
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from politesse.origin import Origin
from politesse.robots import Dialect, RobotsTxt
from politesse.testing import Exchange, assert_polite
from politesse.verdict import Reason
from tests.rules.properties import reference
from tests.rules.properties.reference_dialects import REFERENCES
from tests.rules.properties.strategies import DIALECT_GROUPS, MANY_GROUPS, ONE_GROUP, PERCENT_SIGNS, Case

SITE: Final = Origin.of("http://example.com")
RFC9309: Final = st.just(Dialect.RFC9309)
OTHERS: Final = [dialect for dialect in REFERENCES if dialect is not Dialect.RFC9309]
NO_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")
NAMES: Final = ("FooBot", "BAR-bot", "Other", "FooBot-News", "Fo")


def test_every_dialect_has_a_reference() -> None:
    assert set(REFERENCES) == set(Dialect)


def _hold(dialect: Dialect, octets: bytes, targets: tuple[str, ...], *names: str) -> None:
    robots = RobotsTxt.parse(octets, dialect, origin=SITE)
    for name in names:
        rules = robots.rules_for(name)
        for target in targets:
            match = rules.match(target)
            expected = REFERENCES[dialect](octets, name.encode(), target.encode())
            assert rules.allowed(target) is rules.allowed(f"{SITE}{target}") is expected.allowed, target
            assert match.allowed is expected.allowed, target
            assert (match.reason is Reason.ROBOTS_TXT) is expected.exempt, target
            if expected.lines:
                assert match.rule is not None
                assert match.rule.line in expected.lines, target
            if dialect is Dialect.RFC9309:
                said = (None if match.rule is None else len(match.rule.pattern), match.reason)
                assert said == (expected.octets, _reason(expected)), target


def _reason(expected: reference.Decision) -> Reason:
    if expected.octets is None:
        return Reason.ROBOTS_TXT if expected.exempt else Reason.NO_RULE
    return Reason.ALLOW_RULE if expected.allowed else Reason.DISALLOW_RULE


@settings(max_examples=11_000)
@given(
    st.tuples(RFC9309 | RFC9309 | st.sampled_from(OTHERS), ONE_GROUP)
    | st.tuples(RFC9309 | st.sampled_from([Dialect.GOOGLE, Dialect.KOSTER_1996]), PERCENT_SIGNS)
)
def test_rules_of_one_group_agree_with_the_literal_reference_of_their_dialect(given: tuple[Dialect, Case]) -> None:
    dialect, case = given
    _hold(dialect, case.robots_txt, case.targets, "ExampleBot")


@settings(max_examples=1_500)
@given(ONE_GROUP)
def test_one_rule_set_of_version_2_agrees_with_the_literal_reference(case: Case) -> None:
    octets = case.robots_txt.replace(b"\n", b"\nRobot-version: 2.0.0\n", 1)
    _hold(Dialect.CONNER_2, octets, case.targets, "ExampleBot")


@settings(max_examples=6_800)
@given(
    st.tuples(RFC9309 | RFC9309 | st.just(Dialect.KOSTER_2019), MANY_GROUPS)
    # Where Koster's text of 2019 is stricter than the library, these differ.
    | st.tuples(st.sampled_from([dialect for dialect in OTHERS if dialect is not Dialect.KOSTER_2019]), DIALECT_GROUPS)
)
def test_groups_agree_with_the_literal_reference_of_their_dialect(given: tuple[Dialect, Case]) -> None:
    dialect, case = given
    _hold(dialect, case.robots_txt, case.targets, *NAMES)


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


@settings(max_examples=2_500)
@given(ONE_GROUP | MANY_GROUPS, st.sampled_from(["FooBot", "BAR-bot", "OtherBot"]))
def test_the_judge_agrees_with_the_literal_reference(case: Case, token: str) -> None:
    # What a percent sign may mean that begins no escape is a question for the parser, not for the judge.
    robots_txt = NO_ESCAPE.sub("x", case.robots_txt.decode("latin-1")).encode("latin-1")
    records = reference.records_for(robots_txt, token.encode())
    for target in (NO_ESCAPE.sub("x", target) for target in case.targets):
        expected = reference.decide(records, target.encode())
        line = _forbidding_line(robots_txt, target, token)
        assert (line is None) is expected.allowed, (target, line)
        assert line is None or line in expected.lines, (target, line)
