"""Which lines of a file bind which crawler."""

import gc
from collections.abc import Iterable, Sequence
from typing import Final

import pytest

from politesse.errors import ConfigurationError
from politesse.robots import Dialect, Quirk, RequestRate, RobotsTxt, RuleSet, TimeWindow, product_token
from politesse.robots.agents import (
    first_word,
    google_agent,
    google_token,
    short_name,
    token_or_starred,
    whole_value,
)
from politesse.robots.explain import explain, matching_alone
from politesse.robots.line import Span
from politesse.robots.native import NativeOutline
from tests.support.pure_robots import pure_robots

TOKENS: Final = {
    "ExampleBot": "examplebot",
    "ExampleBot/1.0 (+https://example.com/bot)": "examplebot",
    **dict.fromkeys(["Foo Bar", "Foo\tBar", "  Foo  ", "foo*", "Foo;bar", "Foo(bar)", "Foo,bar", "Foo@bar"], "foo"),
    **dict.fromkeys(["Fooé", "foo ツ"], "foo"),
    "Baiduspider+(+http://www.baidu.com/search/spider.htm)": "baiduspider",
    "MJ12bot/v1.4": "mj12bot",
    "360Spider": "360spider",
    "Foo-Bar_Baz.2": "foo-bar_baz.2",
    # The last one is the Kelvin sign: a "k" in lower case, and no ASCII.
    **dict.fromkeys(["", "   ", "/1.0", "*", "*foo", "+Foo", "(compatible)", "ツ", "\u212aelvin"], ""),
}
SHORT: Final = {
    "FooBot": "foobot",
    "FooBot/1.2 [http://foobot.int; foo@bot.int]": "foobot",
    "  Foo Bar/1": "foo",
    "Foo,Bar": "foo,bar",
    **dict.fromkeys(["/1.2", "", " ", "Föö"], ""),
}
CUT: Final = {"Foo Bar": "foo", "MJ12bot": "mj", "Foo_Bar-": "foo_bar-", "12": "", "": "", "*foo": "", "Foé": "fo"}
CUT_AGENTS: Final = {
    "FooBot/1.0 (+https://example.com/bot)": "foobot",
    "FooBot (x)": "foobot",
    "MJ12bot/v1.4": "mj",
    **dict.fromkeys(["Foo Bar", "Foo\tBar/1.0", ""], ""),
}
# Names of a line and of a crawler: whether the one is part of the other, its start, and whether they share a name.
BROWSER_LIKE: Final = "Mozilla/5.0 (compatible; GPTBot/1.2)"
NO_DIRECTIVES: Final = (None, (), (), ())


def read(*lines: str) -> RobotsTxt:
    return RobotsTxt.parse("\n".join(lines))


def denied(rules: RuleSet, *targets: str) -> set[str]:
    return {target for target in targets if not rules.allowed(target)}


def directives(rules: RuleSet) -> tuple[object, ...]:
    return rules.crawl_delay, rules.request_rates, rules.visit_times, rules.comments


def test_product_token_ends_before_an_invalid_character() -> None:
    assert {agent: product_token(agent) for agent in TOKENS} == TOKENS


def test_short_name_is_the_first_word_without_its_version() -> None:
    assert {agent: short_name(agent) for agent in SHORT} == SHORT


def test_google_cuts_names_of_crawlers_and_of_lines_alike() -> None:
    assert {value: google_token(value) for value in CUT} == CUT
    assert {agent: google_agent(agent) for agent in CUT_AGENTS} == CUT_AGENTS


def test_whole_value_is_compared_without_case() -> None:
    values = {
        "The FigTree robot/1.0": "the figtree robot/1.0",
        "FigTree ツ": "figtree ツ",
        "\u212aelvin": "\u212aelvin",
    }
    assert {value: whole_value(value) for value in values} == values


def test_everybody_is_a_star() -> None:
    everybody = {
        "*": (True, True, True, True),
        "* foo": (False, False, True, True),
        "*\tfoo": (False, False, True, True),
        "*foo": (False, False, False, False),
        "": (False, False, False, False),
    }
    readers = (first_word, whole_value, token_or_starred, google_token)
    assert {value: tuple(reader(value) == "*" for reader in readers) for value in everybody} == everybody
    assert {google_agent(value) for value in everybody} == {""}


def test_user_agent_of_a_browser_names_no_crawler_and_is_refused() -> None:
    agents = [BROWSER_LIKE, " mozilla/5.0", "MOZILLA (x)", "Mozilla FooBot", [BROWSER_LIKE], ["GPTBot", BROWSER_LIKE]]
    for dialect in Dialect:
        robots = RobotsTxt.parse("User-agent: Mozilla\nDisallow: /m\n\nUser-agent: GPTBot\nDisallow: /\n", dialect)
        for ask in (robots.rules_for, robots.groups_for, lambda agent: explain(robots, "/a", agent)):  # noqa: B023
            for agent in agents:
                with pytest.raises(ConfigurationError, match=r"its first product is Mozilla, .* give .*product token"):
                    ask(agent)


def test_mozilla_by_itself_is_a_token_like_any_other() -> None:
    for dialect in Dialect:
        robots = RobotsTxt.parse("User-agent: Mozilla\nDisallow: /m\n\nUser-agent: Mozillabot\nDisallow: /\n", dialect)
        for token in ("Mozilla", "mozilla", ["mozilla"]):
            assert not robots.rules_for(token).allowed("/m"), (dialect, token)


def test_crawler_without_a_name_is_everybody_in_every_dialect() -> None:
    for dialect in Dialect:
        robots = RobotsTxt.parse("user-agent: foo\ndisallow: /f\n\nuser-agent: *\ndisallow: /e\n", dialect)
        for agent in ("", "*", "/1.0", " ", "ツ"):
            assert denied(robots.rules_for(agent), "/f", "/e") == {"/e"}, (dialect, agent)


def test_agent_that_is_repeated_in_a_group_is_listed_once() -> None:
    robots = read("user-agent: foo", "user-agent: FOO/2", "user-agent: foo", "disallow: /x")
    assert robots.groups[0].agents == {"foo": 0}
    assert len(robots.rules_for("foo")) == 1


def test_the_first_token_that_has_a_group_counts_in_every_dialect() -> None:
    body = "user-agent: news\ndisallow: /n\n\nuser-agent: bot\ndisallow: /b\n\nuser-agent: *\ndisallow: /e\n"
    for dialect in Dialect:
        robots = RobotsTxt.parse(body, dialect)
        for tokens, expected in (
            (["news", "bot"], "/n"),
            (["image", "bot", "news"], "/b"),
            (("Image/2", "Bot/2"), "/b"),
            (["other", "another"], "/e"),
            ([], "/e"),
        ):
            assert denied(robots.rules_for(tokens), "/n", "/b", "/e") == {expected}, (dialect, tokens)


def test_rules_and_directives_before_any_agent_bind_no_crawler() -> None:
    lines = ("disallow: /", "allow: /a", "crawl-delay: 5", "request-rate: 1/5", "visit-time: 0600-0845", "comment: hi")
    robots = read(*lines, "user-agent: *", "disallow: /b")
    assert [line.quirks for line in robots.lines] == [(Quirk.BEFORE_ANY_GROUP,)] * len(lines) + [(), ()]
    assert denied(robots.rules_for("x"), "/a", "/b", "/c") == {"/b"}
    assert directives(robots.rules_for("x")) == NO_DIRECTIVES


def test_agent_with_a_control_character_names_no_crawler() -> None:
    robots = read("user-agent: fo\x0bo", "disallow: /")
    assert robots.lines[0].quirks == (Quirk.CONTROL_CHARACTER, Quirk.NAMES_NOBODY)
    assert robots.rules_for("fo").allowed("/a")


def test_directives_bind_the_agents_listed_so_far() -> None:
    robots = read(
        *("user-agent: a", "request-rate: 1/5", "crawl-delay: 2", "user-agent: b", "comment: for a and b"),
        *("user-agent: c", "user-agent: a", "disallow: /x", "visit-time: 0600-0845", "crawl-delay: 3"),
    )
    visits = (TimeWindow(360, 525),)
    assert {agent: directives(robots.rules_for(agent)) for agent in "abc"} == {
        "a": (3.0, (RequestRate(1, 5),), visits, ("for a and b",)),
        "b": (3.0, (), visits, ("for a and b",)),
        "c": (3.0, (), visits, ()),
    }
    assert not any(robots.rules_for(agent).allowed("/x") for agent in "abc")


def test_directives_bind_a_crawler_from_the_line_on_that_names_it_in_older_dialects() -> None:
    body = "user-agent: other\nrequest-rate: 1/5\nuser-agent: foo\nrequest-rate: 1/7\nuser-agent: foobot"
    for dialect in (Dialect.KOSTER_1994, Dialect.CONNER_2, Dialect.PERL):
        robots = RobotsTxt.parse(f"{body}\nrequest-rate: 1/9\ndisallow: /", dialect)
        assert robots.rules_for("foobot").request_rates == (RequestRate(1, 7), RequestRate(1, 9)), dialect
        assert [rate.period_s for rate in robots.rules_for("other").request_rates] == [5, 7, 9], dialect


@pytest.mark.clause("Conner 2.0, Visit-time")
def test_directives_for_everybody_never_bind_a_named_agent() -> None:
    lines = ("crawl-delay: 5", "request-rate: 1/10m", "visit-time: 0600-0845", "comment: hi")
    robots = read("user-agent: *", *lines, "disallow: /a", "", "user-agent: mybot", "disallow: /b")
    assert directives(robots.rules_for("mybot")) == NO_DIRECTIVES
    assert directives(robots.rules_for("other")) == (5.0, (RequestRate(1, 600),), (TimeWindow(360, 525),), ("hi",))


def test_the_largest_of_several_delays_counts_and_zero_is_a_delay() -> None:
    robots = read(
        *("user-agent: a", "crawl-delay: 5", "crawl-delay: 10", "crawl-delay: 0.5", "disallow: /"),
        *("user-agent: a", "crawl-delay: 7", "disallow: /", "user-agent: b", "crawl-delay: 0"),
    )
    assert [robots.rules_for(agent).crawl_delay for agent in "abc"] == [10.0, 0.0, None]


@pytest.mark.clause("Conner 2.0, Comment")
def test_merged_groups_keep_all_directives_in_order() -> None:
    rules = read(
        *("user-agent: a", "comment: one", "request-rate: 10/60", "visit-time: 0100-0200", "disallow: /x"),
        *("user-agent: b", "comment: not mine", "disallow: /"),
        *("user-agent: a", "comment: two", "request-rate: 20/1h 0000-0100", "visit-time: 0300 0400"),
    ).rules_for("a")
    rates = (RequestRate(10, 60), RequestRate(20, 3600, TimeWindow(0, 60)))
    assert directives(rules) == (None, rates, (TimeWindow(60, 120), TimeWindow(180, 240)), ("one", "two"))


def test_invalid_directive_is_ignored() -> None:
    for line in (
        *("crawl-delay: soon", "crawl-delay:", "crawl-delay: -1", "request-rate: 0/5", "visit-time: 2542-3199"),
        *("crawl-delay: 5\0", "comment: a\x1b[2J"),
    ):
        robots = read("user-agent: *", line, "disallow: /a")
        assert Quirk.INVALID_VALUE in robots.lines[1].quirks, line
        assert directives(robots.rules_for("x")) == NO_DIRECTIVES, line
        assert not robots.rules_for("x").allowed("/a"), line


def test_comment_ends_at_a_number_sign_like_any_value() -> None:
    assert read("user-agent: *", "comment: write to us: a@b # thanks").rules_for("x").comments == ("write to us: a@b",)


def test_quirks_of_the_file_are_kept() -> None:
    assert RobotsTxt.parse(b"\xef\xbb\xbf<html>").quirks == (Quirk.BYTE_ORDER_MARK, Quirk.LOOKS_LIKE_HTML)
    assert RobotsTxt.parse("user-agent: *\n".encode("utf-16")).quirks == (Quirk.TRANSCODED,)
    assert RobotsTxt.parse(b"user-agent: *\n").quirks == ()


def test_default_dialect_is_rfc_9309() -> None:
    assert read().dialect is RobotsTxt.parse(b"", dialect=Dialect.RFC9309).dialect is Dialect.RFC9309


def test_repr_of_a_group_names_its_agents() -> None:
    robots = read("user-agent: a", "user-agent: *", "disallow: /x", "allow: /y")
    assert repr(robots.groups[0]) == "<Group a, *: 2 rules>"
    assert [line.number for line in robots.groups[0].rules] == [3, 4]
    assert repr(robots) == "<RobotsTxt rfc9309: 4 lines, 1 groups>"


def test_undecodable_octets_in_a_text_body_are_the_octets_that_they_were() -> None:
    rules = RobotsTxt.parse(b"User-agent: *\nDisallow: /caf\xe9".decode("utf-8", "surrogateescape")).rules_for("x")
    assert not rules.allowed("/caf%E9")


def test_hostile_files_make_few_objects_that_the_collector_visits() -> None:
    """Otherwise it would stop all threads, for 24 to 70 ms, while a thread reads the file."""
    for row in (
        *("User-agent:a{}\nAllow:/\n", "User-agent:*\nallow:/{}\n", "User-agent:a\nContent-Usage:/{} ai=n\n"),
        *("Content-Signal:/{} ai=n\n", "License:http://a/{}\n", "Disallow:/{}*%4\n"),
    ):
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


def test_each_compiled_rule_alone_matches_what_the_lines_of_the_file_match() -> None:
    rules = ["Disallow: /a", "Allow: /a/b", "Disallow: /*.gif$", "Allow: *x", "Disallow: /c*", "Disallow: /é"]
    body = "\n".join(["User-agent: *", *rules, "Allow: /index.html"])
    for robots in (RobotsTxt.parse(body, dialect) for dialect in Dialect):
        for target in ("/", "/a", "/a/b", "/q.gif", "/cx", "/%C3%A9", "/index.html", "/yx"):
            alone = {rule.line for rule, matches in matching_alone(robots.rules_for("x"), target, 99) if matches}
            assert alone == {rule.line for rule in explain(robots, target, "x").matches}, (robots.dialect, target)
        assert len(matching_alone(robots.rules_for("x"), "/", 2)) == 2
