"""Each dialect against a literal reading of its own text."""

from typing import Final

import pytest
from hypothesis import given, settings

from politesse.origin import Origin
from politesse.robots import Dialect, RobotsTxt
from politesse.verdict import Reason
from tests.rules.properties.reference_dialects import REFERENCES
from tests.rules.properties.strategies import DIALECT_GROUPS, MANY_GROUPS, ONE_GROUP, PERCENT_SIGNS, Case

SITE: Final = Origin.of("http://example.com")
OTHER_DIALECTS: Final = [dialect for dialect in REFERENCES if dialect is not Dialect.RFC9309]
NAMES: Final = ("FooBot", "BAR-bot", "Other", "FooBot-News", "Fo")

every_dialect = pytest.mark.parametrize("dialect", OTHER_DIALECTS)


def _hold(dialect: Dialect, case: Case, name: str, *, versioned: bytes = b"") -> None:
    octets = case.robots_txt.replace(b"\n", b"\n" + versioned, 1) if versioned else case.robots_txt
    rules = RobotsTxt.parse(octets, dialect, origin=SITE).rules_for(name)
    for target in case.targets:
        match = rules.match(target)
        expected = REFERENCES[dialect](octets, name.encode(), target.encode())
        assert match.allowed is expected.allowed, target
        assert rules.allowed(target) is rules.allowed(f"{SITE}{target}") is expected.allowed, target
        assert (match.reason is Reason.ROBOTS_TXT) is expected.exempt, target
        if expected.lines:
            assert match.rule is not None
            assert match.rule.line in expected.lines, target


def test_every_other_dialect_has_a_reference() -> None:
    assert set(REFERENCES) == set(Dialect)


@every_dialect
@settings(max_examples=2_000, deadline=None)
@given(case=ONE_GROUP)
def test_one_group_agrees_with_the_literal_reference(dialect: Dialect, case: Case) -> None:
    _hold(dialect, case, "ExampleBot")


@pytest.mark.parametrize("dialect", [Dialect.GOOGLE, Dialect.KOSTER_1996])
@settings(max_examples=3_000, deadline=None)
@given(case=PERCENT_SIGNS)
def test_percent_signs_agree_with_the_literal_reference(dialect: Dialect, case: Case) -> None:
    _hold(dialect, case, "ExampleBot")


@settings(max_examples=2_000, deadline=None)
@given(case=ONE_GROUP)
def test_one_rule_set_of_version_2_agrees_with_the_literal_reference(case: Case) -> None:
    _hold(Dialect.CONNER_2, case, "ExampleBot", versioned=b"Robot-version: 2.0.0\n")


@pytest.mark.parametrize("dialect", [dialect for dialect in OTHER_DIALECTS if dialect is not Dialect.KOSTER_2019])
@settings(max_examples=1_500, deadline=None)
@given(case=DIALECT_GROUPS)
def test_groups_agree_with_the_literal_reference(dialect: Dialect, case: Case) -> None:
    for name in NAMES:
        _hold(dialect, case, name)


@settings(max_examples=1_500, deadline=None)
@given(case=MANY_GROUPS)
def test_groups_of_koster_2019_agree_with_the_literal_reference_except_where_it_is_lenient(case: Case) -> None:
    for name in NAMES:
        _hold(Dialect.KOSTER_2019, case, name)


@pytest.mark.parametrize("dialect", Dialect)
@settings(max_examples=300, deadline=None)
@given(case=DIALECT_GROUPS)
def test_a_url_is_judged_as_its_target_is_in_every_dialect(dialect: Dialect, case: Case) -> None:
    rules = RobotsTxt.parse(case.robots_txt, dialect, origin=SITE).rules_for("FooBot")
    for target in case.targets:
        assert rules.match(f"http://example.com{target}") == rules.match(target), target
        assert rules.match(f"HTTP://user@EXAMPLE.com:80{target}#top") == rules.match(target), target
