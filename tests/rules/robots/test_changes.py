"""What changes between two files, and why a file decides as it does about one URL."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from politesse import ConfigurationError, Dialect, InvalidURL, Reason, RobotsTxt
from politesse.robots.changes import RobotsDiff
from politesse.robots.explain import explain
from tests.rules.properties.strategies import DIALECT_GROUPS, Case


def diff(before: str, after: str, *agents: str) -> RobotsDiff:
    return RobotsDiff(RobotsTxt.parse(before), RobotsTxt.parse(after), agents)


def shown(before: str, after: str, *agents: str) -> list[str]:
    return [f"{','.join(change.agents)} {change}" for change in diff(before, after, *agents).changes()]


def test_rules_are_added_removed_and_turned() -> None:
    before = "User-agent: *\nDisallow: /a\nDisallow: /b\nAllow: /c/d\nDisallow: /c"
    after = "User-agent: *\nDisallow: /c\nAllow: /b\nDisallow: /new\nAllow: /c/d"
    assert shown(before, after) == [
        "* - Disallow: /a (line 2)",
        "* ! Disallow: /b (line 3) -> Allow: /b (line 3)",
        "* + Disallow: /new (line 4)",
    ]


def test_order_repetition_spelling_and_merged_groups_are_no_change() -> None:
    before = "User-agent: *\nDisallow: /a\nDisallow: /b"
    assert shown(before, "User-agent: *\nDisallow: /b\n# moved\nDISALLOW: /a # again\nDisallow: /a") == []
    after = "User-agent: *\nDisallow: /a\nUser-agent: *\nDisallow: /%62\nAllow: /b\nDisallow: /b\n"
    assert shown(f"{before}\nAllow: /b", after) == []


def test_allow_decides_beside_an_equal_disallow() -> None:
    assert shown("User-agent: *\nAllow: /b\nDisallow: /b", "User-agent: *\nAllow: /b") == []


def test_changes_are_those_of_each_crawler_that_a_file_names() -> None:
    before = "User-agent: *\nDisallow: /a\nUser-agent: One\nUser-agent: Two\nDisallow: /b\nUser-agent: Mozilla\nAllow:"
    after = "User-agent: *\nDisallow: /a\nUser-agent: One\nDisallow: /b"
    assert shown(before, after) == ["two + Disallow: /a (line 2)", "two - Disallow: /b (line 5)"]
    assert shown(before, "User-agent: *\nDisallow: /a") == [
        "one,two + Disallow: /a (line 2)",
        "one,two - Disallow: /b (line 5)",
    ]
    assert shown(before, after, "one", "other") == []


def test_directives_count_as_they_take_effect() -> None:
    before = "User-agent: *\nCrawl-delay: 5\nCrawl-delay: 1\nRequest-rate: 1/5 0600-0700\nContent-Usage: train-ai=n"
    after = "User-agent: *\nCrawl-delay: 5.0\nVisit-time: 0200-0300\nContent-Usage: train-ai=y\nLicense: https://a.example/l"
    assert shown(before, f"{after}\nSitemap: https://a.example/s.xml") == [
        "* - request-rate: 1/5 0600-0700",
        "* + visit-time: 0200-0300",
        "* ! content-usage: train-ai=n -> train-ai=y",
        " + sitemap: https://a.example/s.xml",
        " + license: https://a.example/l",
    ]
    assert shown("User-agent: *\nCrawl-delay: 5", "User-agent: *\nCrawl-delay: 10") == ["* ! crawl-delay: 5 -> 10"]


def test_signals_for_all_count_for_a_crawler_without_its_own() -> None:
    group = "User-agent: one\nDisallow: /a\nUser-agent: *\nContent-Signal: ai-train="
    assert shown(f"{group}no", f"{group}yes", "one") == ["one ! content-signal: ai-train=no -> ai-train=yes"]
    stray = "Content-Signal: ai-train=no\nUser-agent: one\nDisallow: /a"
    change = "! content-signal: ai-train=no -> ai-train=yes"
    assert shown(stray, stray.replace("=no", "=yes")) == [f"* {change}", f"one {change}"]


def test_rule_that_changes_no_answer_has_no_effect() -> None:
    [change] = diff("User-agent: *\nDisallow: /a", "User-agent: *\nDisallow: /a\nDisallow: /a/b").changes()
    assert (change.has_effect, str(change)) == (False, "+ Disallow: /a/b (line 3) (no effect)")
    [change] = diff("User-agent: *\nDisallow: /*.pdf", "User-agent: *\nDisallow: /*.pdf\nAllow: /a/b/c/d").changes()
    assert change.has_effect


def test_plain_rules_have_an_effect_if_an_answer_differs() -> None:
    choose = random.Random(9309).choice
    paths = ["/", "/a", "/ab", "/a/b", "/a/", "/b", "/a/b/c", "/ab/c"]
    targets = [f"{path}{rest}" for path in paths for rest in ("", "x", "/", "b", "/b", "/x/y")]

    def made() -> str:
        return "User-agent: *\n" + "".join(
            f"{choose(['Allow', 'Disallow'])}: {choose(paths)}\n" for _ in range(choose([1, 2, 3]))
        )

    equal = 0
    for _ in range(500):
        before, after = made(), made()
        one, other = (RobotsTxt.parse(body).rules_for("bot") for body in (before, after))
        differs = any(one.allowed(target) is not other.allowed(target) for target in targets)
        assert any(change.has_effect for change in diff(before, after).changes()) is differs
        equal += not differs
    assert 20 < equal < 480


def test_decisions_name_the_deciding_rules_of_both_files() -> None:
    compared = diff("User-agent: *\nDisallow: /b", "User-agent: *\nDisallow: /\nAllow: /b")
    assert [str(change) for change in compared.decisions("https://a.example/b/x")] == [
        "! https://a.example/b/x: disallowed, Disallow: /b (line 2) -> allowed, Allow: /b (line 3)"
    ]
    assert [str(change) for change in compared.decisions("/c")] == ["! /c: allowed -> disallowed, Disallow: / (line 2)"]
    assert list(compared.decisions("/robots.txt")) == []


def test_agent_that_names_no_crawler_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        diff("", "", "Mozilla/5.0")


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


@settings(max_examples=1_000)
@given(dialect=st.sampled_from(Dialect), case=DIALECT_GROUPS)
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
