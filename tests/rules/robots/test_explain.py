from __future__ import annotations

import pytest
from hypothesis import given, settings

from politesse.errors import InvalidURL
from politesse.robots import Dialect, RobotsTxt
from politesse.robots.explain import explain
from politesse.verdict import Reason
from tests.rules.properties.strategies import DIALECT_GROUPS, Case

BODY = "User-agent: FooBot\nDisallow: /\n\nUser-agent: *\nDisallow: /a\nAllow: /a/b\nDisallow: /*.pdf$\nDisallow: /c\n"


def test_every_match_is_reported_with_its_length_and_the_winner() -> None:
    told = explain(RobotsTxt.parse(BODY), "https://example.com/a/b/c.pdf", "ExampleBot")
    assert [(rule.line, len(rule.pattern)) for rule in told.matches] == [(5, 2), (6, 4), (7, 7)]
    assert told.winner is not None
    assert (told.winner.line, told.match.allowed) == (7, False)
    assert [head.number for group in told.groups for head in group.heads] == [4]
    assert "longest" in told.precedence


def test_groups_of_one_crawler_are_reported_together() -> None:
    robots = RobotsTxt.parse("User-agent: a\nDisallow: /x\nUser-agent: b\nDisallow: /\nUser-agent: A\nAllow: /x/y\n")
    told = explain(robots, "/x/y", "a")
    assert [group.heads[0].number for group in told.groups] == [1, 5]
    assert [rule.line for rule in told.matches] == [2, 6]


def test_equal_rules_all_match() -> None:
    told = explain(RobotsTxt.parse("User-agent: *\nDisallow: /a\nDisallow: /%61\nAllow: /a*\n"), "/a", "x")
    assert [rule.line for rule in told.matches] == [2, 3, 4]
    assert told.winner is not None
    assert told.winner.line == 4  # RFC 9309 2.2.2: equivalent, the Allow counts


def test_explanation_without_match_and_group_is_empty() -> None:
    told = explain(RobotsTxt.parse("User-agent: other\nDisallow: /\n"), "/a", "x")
    assert (told.groups, told.matches, told.winner, told.match.reason) == ((), (), None, Reason.NO_RULE)


def test_empty_disallow_that_ends_the_search_is_reported() -> None:
    body = "User-agent: *\nDisallow: /b\nDisallow:\nDisallow: /a\n"
    told = explain(RobotsTxt.parse(body, Dialect.KOSTER_1996), "/a", "x")
    assert told.match.allowed
    assert told.ended_by is not None
    assert told.ended_by.number == 3
    assert explain(RobotsTxt.parse(body), "/a", "x").ended_by is None
    assert explain(RobotsTxt.parse(body, Dialect.KOSTER_1996), "/b", "x").ended_by is None


def test_rule_set_without_a_match_that_denies_matches_nothing() -> None:
    body = "User-agent: *\nRobot-version: 2.0.0\nAllow: /a*\n"
    told = explain(RobotsTxt.parse(body, Dialect.CONNER_2), "/b", "x")
    assert (told.match.reason, told.matches) == (Reason.NOT_ALLOWED, ())


def test_rules_match_as_the_version_of_their_group_says() -> None:
    body = "User-agent: *\nRobot-version: 2.0.0\nAllow: /a\nDisallow: /\n"
    told = explain(RobotsTxt.parse(body, Dialect.CONNER_2), "/a", "x")
    assert [rule.line for rule in told.matches] == [3]  # whole paths: the Disallow is about the front page only
    assert told.winner is not None
    assert told.winner.line == 3


def test_invalid_url_raises() -> None:
    with pytest.raises(InvalidURL):
        explain(RobotsTxt.parse(BODY), "mailto:us", "x")


@pytest.mark.parametrize("dialect", Dialect)
@settings(max_examples=200, deadline=None)
@given(case=DIALECT_GROUPS)
def test_winner_is_among_the_matches_and_precedes_the_others(dialect: Dialect, case: Case) -> None:
    robots = RobotsTxt.parse(case.robots_txt, dialect)
    for agent in ("FooBot", "x"):
        for target in case.targets:
            try:
                expected = robots.rules_for(agent).match(target)
            except InvalidURL:
                continue
            told = explain(robots, target, agent)
            assert (told.match.allowed, told.match.reason) == (expected.allowed, expected.reason)
            lines = [rule.line for rule in told.matches]
            assert lines == sorted(lines)
            if told.winner is not None and told.match.reason is not Reason.NOT_ALLOWED:
                assert told.winner.line in lines
            if expected.reason is Reason.NO_RULE and told.ended_by is None:
                assert lines == []
