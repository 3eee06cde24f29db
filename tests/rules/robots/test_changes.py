import random

import pytest

from politesse import ConfigurationError, RobotsTxt
from politesse.robots.changes import RobotsDiff


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


@pytest.mark.parametrize(
    "after",
    [
        "User-agent: *\nDisallow: /b\n# moved\nDISALLOW: /a # again\nDisallow: /a",
        "User-agent: *\nDisallow: /a\nUser-agent: *\nDisallow: /%62\nAllow: /b\nDisallow: /b\n",
    ],
)
def test_order_repetition_spelling_and_merged_groups_are_no_change(after: str) -> None:
    before = "User-agent: *\nDisallow: /a\nDisallow: /b" + ("\nAllow: /b" if "Allow" in after else "")
    assert shown(before, after) == []


def test_allow_decides_beside_an_equal_disallow() -> None:
    assert shown("User-agent: *\nAllow: /b\nDisallow: /b", "User-agent: *\nAllow: /b") == []


def test_changes_are_those_of_each_crawler_that_a_file_names() -> None:
    before = (
        "User-agent: *\nDisallow: /a\nUser-agent: One\nUser-agent: Two\nDisallow: /b\nUser-agent: Mozilla\nAllow: /"
    )
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
