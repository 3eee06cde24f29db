from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Final

import pytest

from politesse.errors import ConfigurationError
from politesse.robots import Dialect, Quirk, RequestRate, RobotsTxt, RuleSet, TimeWindow, product_token
from politesse.robots.explain import explain
from politesse.robots.native import NativeOutline
from tests.support.pure_robots import pure_robots

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from politesse.robots.line import Span


def read(*lines: str) -> RobotsTxt:
    return RobotsTxt.parse("\n".join(lines))


def denied(rules: RuleSet, *targets: str) -> set[str]:
    """Which of the targets are denied."""
    return {target for target in targets if not rules.allowed(target)}


TOKENS: Final = {
    "examplebot": ["ExampleBot", "ExampleBot/1.0 (+https://example.com/bot)"],
    "foo": ["Foo Bar", "Foo\tBar", "  Foo  ", "foo*", "Foo;bar", "Foo(bar)", "Foo,bar", "Foo@bar", "Fooé", "foo ツ"],
    "baiduspider": ["Baiduspider+(+http://www.baidu.com/search/spider.htm)"],
    "mj12bot": ["MJ12bot/v1.4"],
    "360spider": ["360Spider"],
    "foo-bar_baz.2": ["Foo-Bar_Baz.2"],
    # The last one is the Kelvin sign: a "k" in lower case, and no ASCII.
    "": ["", "   ", "/1.0", "*", "*foo", "+Foo", "(compatible)", "ツ", "\u212aelvin"],
}


@pytest.mark.parametrize("token", TOKENS)
def test_product_token_ends_before_an_invalid_character(token: str) -> None:
    assert [product_token(agent) for agent in TOKENS[token]] == [token] * len(TOKENS[token])


@pytest.mark.parametrize("value", ["foobot", "FooBot/1.2", "foobot*", "FooBot (beta)", "foobot, barbot", "foobot;x"])
def test_suffix_of_a_user_agent_line_is_ignored(value: str) -> None:
    robots = read(f"user-agent: {value}", "disallow: /")
    assert not robots.rules_for("FooBot").allowed("/a")
    assert robots.rules_for("BarBot").allowed("/a")


BROWSER_LIKE = "Mozilla/5.0 (compatible; GPTBot/1.2)"


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize(
    "agent", [BROWSER_LIKE, " mozilla/5.0", "MOZILLA (x)", "Mozilla FooBot", [BROWSER_LIKE], ["GPTBot", BROWSER_LIKE]]
)
def test_user_agent_of_a_browser_names_no_crawler_and_is_refused(dialect: Dialect, agent: str | list[str]) -> None:
    robots = RobotsTxt.parse("User-agent: Mozilla\nDisallow: /m\n\nUser-agent: GPTBot\nDisallow: /\n", dialect)
    for ask in (robots.rules_for, robots.groups_for, lambda agent: explain(robots, "/a", agent)):
        with pytest.raises(ConfigurationError, match=r"its first product is Mozilla, .* give .*product token"):
            ask(agent)


@pytest.mark.parametrize("dialect", Dialect)
def test_mozilla_by_itself_is_a_token_like_any_other(dialect: Dialect) -> None:
    robots = RobotsTxt.parse("User-agent: Mozilla\nDisallow: /m\n\nUser-agent: Mozillabot\nDisallow: /\n", dialect)
    for token in ("Mozilla", "mozilla", ["mozilla"]):
        assert not robots.rules_for(token).allowed("/m")


@pytest.mark.parametrize("value", ["*", "* ", "*\t", "* foo", "*\tfoo", "* # all"])
def test_star_is_for_everybody(value: str) -> None:
    robots = read(f"user-agent: {value}", "disallow: /")
    assert not robots.rules_for("FooBot").allowed("/a")
    assert list(robots.groups[0].agents) == ["*"]


@pytest.mark.parametrize("value", ["", "*foo", "**", "/1.0", "(x)", "ツ", "foo\0", "\x01"])
def test_line_without_a_token_names_no_crawler(value: str) -> None:
    robots = read("user-agent: a", "disallow: /a", f"user-agent: {value}", "disallow: /")
    assert Quirk.NAMES_NOBODY in robots.lines[2].quirks
    assert robots.groups[1].agents == {}
    for agent in ("a", "foo", "bar", "", "*"):
        assert robots.rules_for(agent).allowed("/x"), agent
    assert not robots.rules_for("a").allowed("/a")


@pytest.mark.parametrize(
    "between",
    [
        *("", "# a note", "Sitemap: https://h/s.xml", "Crawl-delay: 5", "Host: h", "foo: bar", "no colon at all"),
        "Request-rate: x",
    ],
)
def test_nothing_but_a_rule_ends_a_row_of_agents(between: str) -> None:
    robots = read("user-agent: a", between, "user-agent: b", between, "disallow: /")
    assert [list(group.agents) for group in robots.groups] == [["a", "b"]]
    assert not robots.rules_for("a").allowed("/x")
    assert not robots.rules_for("b").allowed("/x")


@pytest.mark.parametrize("rule", ["disallow: /x", "allow: /x", "disallow:", "dissallow: /x", "disallow /x"])
def test_a_user_agent_line_that_follows_a_rule_starts_a_group(rule: str) -> None:
    robots = read("user-agent: a", rule, "user-agent: b", "disallow: /y")
    assert [list(group.agents) for group in robots.groups] == [["a"], ["b"]]
    assert robots.rules_for("a").allowed("/y")


def test_agent_that_is_repeated_in_a_group_is_listed_once() -> None:
    robots = read("user-agent: foo", "user-agent: FOO/2", "user-agent: foo", "disallow: /x")
    assert robots.groups[0].agents == {"foo": 0}
    assert len(robots.rules_for("foo")) == 1


def test_the_first_token_that_has_a_group_counts() -> None:
    robots = read(
        "user-agent: bot", "disallow: /b", "user-agent: bot-news", "disallow: /n", "user-agent: *", "disallow: /e"
    )
    everything = ("/b", "/n", "/e")
    assert denied(robots.rules_for(["bot-news", "bot"]), *everything) == {"/n"}
    assert denied(robots.rules_for(["bot", "bot-news"]), *everything) == {"/b"}
    assert denied(robots.rules_for(("Bot-Image/2", "Bot/2")), *everything) == {"/b"}
    assert denied(robots.rules_for(["other", "another"]), *everything) == {"/e"}
    assert denied(robots.rules_for([]), *everything) == {"/e"}


def test_rules_before_any_agent_bind_no_crawler() -> None:
    robots = read("disallow: /", "allow: /a", "user-agent: *", "disallow: /b")
    assert [line.quirks for line in robots.lines] == [(Quirk.BEFORE_ANY_GROUP,), (Quirk.BEFORE_ANY_GROUP,), (), ()]
    assert denied(robots.rules_for("x"), "/a", "/b", "/c") == {"/b"}


@pytest.mark.parametrize("line", ["crawl-delay: 5", "request-rate: 1/5", "visit-time: 0600-0845", "comment: hi"])
def test_directives_before_any_agent_bind_no_crawler(line: str) -> None:
    robots = read(line, "user-agent: *", "disallow: /b")
    assert robots.lines[0].quirks == (Quirk.BEFORE_ANY_GROUP,)
    rules = robots.rules_for("x")
    assert (rules.crawl_delay, rules.request_rates, rules.visit_times, rules.comments) == (None, (), (), ())


@pytest.mark.parametrize("value", ["foo", "foo/", "http://h/a", "$", "?a", "%2Fa", ".*", "\\a"])
@pytest.mark.parametrize("field", ["allow", "disallow"])
def test_pattern_that_starts_with_neither_slash_nor_star_matches_nothing(field: str, value: str) -> None:
    robots = read("user-agent: *", f"{field}: {value}", "disallow: /z")
    assert robots.lines[1].quirks == (Quirk.NO_LEADING_SLASH,)
    rules = robots.rules_for("x")
    assert len(rules) == 1
    assert denied(rules, "/foo", "/foo/", "/", "/a", "/?a", "/http://h/a", "/z") == {"/z"}


def test_empty_allow_is_ignored() -> None:
    robots = read("user-agent: *", "disallow: /", "allow:")
    assert robots.lines[2].quirks == (Quirk.EMPTY_ALLOW,)
    assert not robots.rules_for("x").allowed("/a")


def test_rule_with_a_control_character_binds_no_crawler() -> None:
    robots = read("user-agent: *", "disallow: /a\0b", "allow: /\x1f", "disallow: /c", "disallow: /\x7f")
    assert [Quirk.CONTROL_CHARACTER in line.quirks for line in robots.lines] == [False, True, True, False, True]
    rules = robots.rules_for("x")
    assert len(rules) == 1
    assert denied(rules, "/a", "/a%00b", "/%1F", "/c", "/%7F") == {"/c"}


def test_agent_with_a_control_character_names_no_crawler() -> None:
    robots = read("user-agent: fo\x0bo", "disallow: /")
    assert robots.lines[0].quirks == (Quirk.CONTROL_CHARACTER, Quirk.NAMES_NOBODY)
    assert robots.rules_for("fo").allowed("/a")


def test_directives_bind_the_agents_listed_so_far() -> None:
    robots = read(
        *("user-agent: a", "request-rate: 1/5", "crawl-delay: 2", "user-agent: b", "comment: for a and b"),
        *("user-agent: c", "user-agent: a", "disallow: /x", "visit-time: 0600-0845", "crawl-delay: 3"),
    )
    a, b, c = (robots.rules_for(agent) for agent in "abc")
    assert (a.request_rates, b.request_rates, c.request_rates) == ((RequestRate(1, 5),), (), ())
    assert (a.comments, b.comments, c.comments) == (("for a and b",), ("for a and b",), ())
    assert (a.crawl_delay, b.crawl_delay, c.crawl_delay) == (3.0, 3.0, 3.0)
    for rules in (a, b, c):
        assert rules.visit_times == (TimeWindow(360, 525),)
        assert not rules.allowed("/x")


@pytest.mark.parametrize(
    ("line", "attribute", "nothing"),
    [
        ("crawl-delay: 5", "crawl_delay", None),
        ("request-rate: 1/10m", "request_rates", ()),
        ("visit-time: 0600-0845", "visit_times", ()),
        ("comment: hi", "comments", ()),
    ],
)
def test_directives_for_everybody_never_bind_a_named_agent(line: str, attribute: str, nothing: object) -> None:
    robots = read("user-agent: *", line, "disallow: /a", "", "user-agent: mybot", "disallow: /b")
    assert getattr(robots.rules_for("mybot"), attribute) == nothing
    assert getattr(robots.rules_for("other"), attribute) != nothing


def test_the_largest_of_several_delays_counts_and_zero_is_a_delay() -> None:
    robots = read(
        *("user-agent: a", "crawl-delay: 5", "crawl-delay: 10", "crawl-delay: 0.5", "disallow: /"),
        *("user-agent: a", "crawl-delay: 7", "disallow: /", "user-agent: b", "crawl-delay: 0"),
    )
    assert [robots.rules_for(agent).crawl_delay for agent in "abc"] == [10.0, 0.0, None]


def test_merged_groups_keep_all_directives_in_order() -> None:
    robots = read(
        *("user-agent: a", "comment: one", "request-rate: 10/60", "visit-time: 0100-0200", "disallow: /x"),
        *("user-agent: b", "comment: not mine", "disallow: /"),
        *("user-agent: a", "comment: two", "request-rate: 20/1h 0000-0100", "visit-time: 0300 0400"),
    )
    rules = robots.rules_for("a")
    assert rules.comments == ("one", "two")
    assert rules.request_rates == (RequestRate(10, 60), RequestRate(20, 3600, TimeWindow(0, 60)))
    assert rules.visit_times == (TimeWindow(60, 120), TimeWindow(180, 240))


@pytest.mark.parametrize(
    "line",
    [
        *("crawl-delay: soon", "crawl-delay:", "crawl-delay: -1", "request-rate: 0/5", "visit-time: 2542-3199"),
        *("crawl-delay: 5\0", "comment: a\x1b[2J"),
    ],
)
def test_invalid_directive_is_ignored(line: str) -> None:
    robots = read("user-agent: *", line, "disallow: /a")
    assert Quirk.INVALID_VALUE in robots.lines[1].quirks
    rules = robots.rules_for("x")
    assert (rules.crawl_delay, rules.request_rates, rules.visit_times, rules.comments) == (None, (), (), ())
    assert not rules.allowed("/a")


def test_comment_ends_at_a_number_sign_like_any_value() -> None:
    assert read("user-agent: *", "comment: write to us: a@b # thanks").rules_for("x").comments == ("write to us: a@b",)


def test_sitemaps_are_collected_wherever_they_stand() -> None:
    robots = read(
        *("SITEMAP: https://h/S.xml", "user-agent: a", "Sitemap: https://other.example/ü.xml", "disallow: /"),
        *("sitemap : http://h:80/3.xml # third", "user-agent: b", "site-map: https://h/no.xml", "Sitemap /4.xml"),
    )
    assert robots.sitemaps == ["https://h/S.xml", "https://other.example/ü.xml", "http://h:80/3.xml", "/4.xml"]


def test_every_line_with_content_is_kept() -> None:
    lines = ("# a note", "foo: bar", "", "user-agent: *", "no colon here", "Disallow[Content-Type]: image/jpeg")
    robots = read(*lines, "Noindex: /a")
    assert [(line.number, line.name, line.value) for line in robots.lines] == [
        (2, "foo", "bar"),
        (4, "user-agent", "*"),
        (5, "no colon here", ""),
        (6, "Disallow[Content-Type]", "image/jpeg"),
        (7, "Noindex", "/a"),
    ]
    assert len(robots.rules_for("x")) == 0


def test_quirks_of_the_file_are_kept() -> None:
    assert RobotsTxt.parse(b"\xef\xbb\xbf<html>").quirks == (Quirk.BYTE_ORDER_MARK, Quirk.LOOKS_LIKE_HTML)
    assert RobotsTxt.parse("user-agent: *\n".encode("utf-16")).quirks == (Quirk.TRANSCODED,)
    assert RobotsTxt.parse(b"user-agent: *\n").quirks == ()


def test_web_page_restricts_nothing() -> None:
    robots = read(
        "<!DOCTYPE html>", "<html><head><title>404: not found</title></head>", "<body>Disallow: /</body>", "</html>"
    )
    assert robots.groups == []
    assert robots.rules_for("x").allowed("/a")


def test_default_dialect_is_rfc_9309() -> None:
    assert read().dialect is Dialect.RFC9309
    assert RobotsTxt.parse(b"", dialect=Dialect.RFC9309).dialect is Dialect.RFC9309


def test_repr_of_a_group_names_its_agents() -> None:
    robots = read("user-agent: a", "user-agent: *", "disallow: /x", "allow: /y")
    assert repr(robots.groups[0]) == "<Group a, *: 2 rules>"
    assert [line.number for line in robots.groups[0].rules] == [3, 4]
    assert repr(robots) == "<RobotsTxt rfc9309: 4 lines, 1 groups>"


def test_undecodable_octets_in_a_text_body_are_the_octets_that_they_were() -> None:
    rules = RobotsTxt.parse(b"User-agent: *\nDisallow: /caf\xe9".decode("utf-8", "surrogateescape")).rules_for("x")
    assert not rules.allowed("/caf%E9")


@pytest.mark.parametrize(
    "row",
    [
        *("User-agent:a{}\nAllow:/\n", "User-agent:*\nallow:/{}\n", "User-agent:a\nContent-Usage:/{} ai=n\n"),
        *("Content-Signal:/{} ai=n\n", "License:http://a/{}\n", "Disallow:/{}*%4\n"),
    ],
)
def test_hostile_files_make_few_objects_that_the_collector_visits(row: str) -> None:
    """Otherwise it would stop all threads, for 24 to 70 ms, while a thread reads the file."""
    body = ("User-agent: *\n" + "".join(row.format(number) for number in range(480_000 // len(row)))).encode()
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        robots = RobotsTxt.parse(body)
        kept = robots, robots.rules_for("x")
        assert len(gc.get_objects()) - before < 75_000, kept
    finally:
        gc.enable()


def test_a_body_that_is_changed_after_it_was_parsed_changes_nothing() -> None:
    body = bytearray(b"User-agent: *\nDisallow: /a")
    robots = RobotsTxt.parse(body)  # type: ignore[arg-type] # a bytearray is accepted, as before
    body[-1:] = b"b"
    assert [line.value for line in robots.lines] == ["*", "/a"]
    assert not robots.rules_for("examplebot").allowed("/a")


def test_many_crawlers_are_not_each_looked_for_in_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    scans = 0

    def scanning(outline: NativeOutline, tokens: Iterable[str]) -> Sequence[Span]:
        nonlocal scans
        scans += 1
        return look_up(outline, tokens)

    look_up = NativeOutline.binding
    monkeypatch.setattr(NativeOutline, "binding", scanning)
    body = "".join(f"User-agent: bot{number}\nDisallow: /{number}\nCrawl-delay: {number}\n" for number in range(3_000))
    robots, expected = RobotsTxt.parse(body), pure_robots(body)
    for number in range(0, 3_000, 2):
        rules = robots.rules_for(f"bot{number}")
        assert (rules.rules, rules.crawl_delay) == (expected.rules_for(f"bot{number}").rules, number)
    assert scans <= 1_000
    # As diff and lint do, which read the groups first.
    scans, robots = 0, RobotsTxt.parse(body)
    assert [robots.groups_for(f"bot{number}") for number in range(0, 3_000, 2)] == [[one] for one in robots.groups[::2]]
    assert scans <= 1
