from __future__ import annotations

import pytest

from politesse.robots import Dialect, RequestRate, RobotsTxt
from politesse.robots.agents import (
    first_word,
    google_agent,
    google_token,
    is_part_of,
    is_start_of,
    shares_a_name,
    short_name,
    token_or_starred,
    whole_value,
)

SHORT = {"FooBot": "foobot", "FooBot/1.2 [http://foobot.int; foo@bot.int]": "foobot", "  Foo Bar/1": "foo"}
SHORT |= {"Foo,Bar": "foo,bar", "/1.2": "", "": "", " ": "", "Föö": ""}
CUT = {"Foo Bar": "foo", "MJ12bot": "mj", "Foo_Bar-": "foo_bar-", "12": "", "": "", "*foo": "", "Foé": "fo"}
CUT_AGENTS = {"FooBot/1.0 (+https://example.com/bot)": "foobot", "FooBot (x)": "foobot", "Foo Bar": ""}
CUT_AGENTS |= {"Foo\tBar/1.0": "", "MJ12bot/v1.4": "mj", "": ""}


def test_short_name_is_the_first_word_without_its_version() -> None:
    assert {agent: short_name(agent) for agent in SHORT} == SHORT


def test_google_cuts_names_of_crawlers_and_of_lines_alike() -> None:
    assert {value: google_token(value) for value in CUT} == CUT
    assert {agent: google_agent(agent) for agent in CUT_AGENTS} == CUT_AGENTS


def test_whole_value_is_compared_without_case() -> None:
    assert whole_value("The FigTree robot/1.0") == "the figtree robot/1.0"
    assert whole_value("FigTree ツ") == "figtree ツ"
    assert whole_value("\u212aelvin") == "\u212aelvin"  # the Kelvin sign: a "k" in lower case, and no ASCII


@pytest.mark.parametrize(
    ("value", "alone", "first"),
    [("*", True, True), ("* foo", False, True), ("*\tfoo", False, True), ("*foo", False, False), ("", False, False)],
)
def test_everybody_is_a_star(value: str, *, alone: bool, first: bool) -> None:
    assert (first_word(value) == "*") is alone
    assert (whole_value(value) == "*") is alone
    assert (token_or_starred(value) == "*") is first
    assert (google_token(value) == "*") is first
    assert google_agent(value) == ""


@pytest.mark.parametrize(
    ("name", "crawler", "part", "start", "shared"),
    [
        ("foobot", "foobot", True, True, True),
        ("foo", "foobot", True, True, True),
        ("bot", "foobot", True, False, True),
        ("foobot", "foo", False, False, True),
        ("the foobot", "foo", False, False, True),
        ("foo/1.0", "foobot", False, False, True),
        ("bar", "foo", False, False, False),
        ("()", "foo", False, False, False),
    ],
)
def test_names_are_compared_each_way(name: str, crawler: str, *, part: bool, start: bool, shared: bool) -> None:
    assert is_part_of(name, crawler) is part
    assert is_start_of(name, crawler) is start
    assert shares_a_name(name, crawler) is shared


@pytest.mark.parametrize("dialect", [Dialect.KOSTER_1994, Dialect.CONNER_2, Dialect.PERL])
def test_directives_bind_a_crawler_from_the_line_on_that_names_it(dialect: Dialect) -> None:
    body = "user-agent: other\nrequest-rate: 1/5\nuser-agent: foo\nrequest-rate: 1/7\nuser-agent: foobot"
    robots = RobotsTxt.parse(f"{body}\nrequest-rate: 1/9\ndisallow: /", dialect)
    assert robots.rules_for("foobot").request_rates == (RequestRate(1, 7), RequestRate(1, 9))
    assert robots.rules_for("other").request_rates == (RequestRate(1, 5), RequestRate(1, 7), RequestRate(1, 9))


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("agent", ["", "*", "/1.0", " ", "ツ"])
def test_crawler_without_a_name_is_everybody(dialect: Dialect, agent: str) -> None:
    robots = RobotsTxt.parse("user-agent: foo\ndisallow: /f\n\nuser-agent: *\ndisallow: /e\n", dialect)
    rules = robots.rules_for(agent)
    assert rules.allowed("/f")
    assert not rules.allowed("/e")


@pytest.mark.parametrize("dialect", Dialect)
def test_the_first_of_several_tokens_that_is_named_counts(dialect: Dialect) -> None:
    robots = RobotsTxt.parse("user-agent: news\ndisallow: /n\n\nuser-agent: bot\ndisallow: /b\n", dialect)
    assert not robots.rules_for(["image", "bot", "news"]).allowed("/b")
    assert robots.rules_for(["image", "bot", "news"]).allowed("/n")
