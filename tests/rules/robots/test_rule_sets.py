from __future__ import annotations

from collections.abc import Callable

import pytest

from politesse.errors import InvalidURL
from politesse.robots import Dialect, RobotsTxt, RuleSet
from politesse.verdict import Reason
from tests.support.pure_robots import pure_robots


def rules(*lines: str) -> RuleSet:
    return RobotsTxt.parse("\n".join(["user-agent: *", *lines])).rules_for("ExampleBot")


def decided_by(ruleset: RuleSet, target: str) -> str | None:
    """The line that decides, as it is written."""
    rule = ruleset.match(target).rule
    return None if rule is None else str(rule)


def test_equal_patterns_go_to_allow_in_any_spelling() -> None:
    ruleset = rules("disallow: /folder", "allow: /%66older", "disallow: /folder")
    match = ruleset.match("/folder/page")
    assert match.allowed
    assert match.rule is not None
    assert (match.rule.line, match.rule.value, match.rule.pattern) == (3, "/%66older", "/folder")


def test_first_of_equal_rules_is_reported() -> None:
    for field in ("allow", "disallow"):
        ruleset = rules("disallow: /b", f"{field}: /a", f"{field}: /%61", f"{field}: /a")
        match = ruleset.match("/a")
        assert match.rule is not None
        assert match.rule.line == 3
        assert len(ruleset) == 2


@pytest.mark.parametrize("parse", [RobotsTxt.parse, pure_robots])
def test_allow_that_replaces_an_equal_disallow_stands_at_its_own_line(parse: Callable[..., RobotsTxt]) -> None:
    stars = parse("user-agent: *\ndisallow: /b**\nallow: /b*$\nallow: /b**", Dialect.GOOGLE).rules_for("ExampleBot")
    assert decided_by(stars, "/b") == "allow: /b*$"
    pages = "user-agent: *\ndisallow: /a/index.htm\nallow: /a/index.html\nallow: /a/index.htm"
    assert decided_by(parse(pages, Dialect.GOOGLE).rules_for("ExampleBot"), "/a/") == "allow: /a/index.html"
    slash = parse("user-agent: *\ndisallow: /a/$\nallow: /a/index.html", Dialect.GOOGLE).rules_for("ExampleBot")
    assert [rule.pattern for rule in slash.rules] == ["/a/index.html", "/a/$"]


@pytest.mark.parametrize(
    ("allow", "disallow", "target", "allowed"),
    [
        # A star at the end counts, although it matches nothing more; of several in a row one.
        ("/", "/*", "/a", False),
        ("/fish", "/fish*", "/fish.html", False),
        ("/fish", "/fish*$", "/fish.html", False),
        ("/fish*", "/fish**", "/fish", True),
        ("/fish*", "/fishe", "/fishes", True),
        ("/fishe", "/fish*$", "/fishes", False),
        ("/fishe", "/fish*$", "/fishe", False),
        ("/fishes", "/fish*$", "/fishes", True),
        ("/a*b", "/a*b*", "/ab", False),
        ("/a*b", "/a*b*$", "/ab", False),
        # A percent sign without two hex digits is one octet.
        ("/100%zz", "/100%25", "/100%zz", True),
        ("/100%", "/100%25", "/100%", False),
        # Length is that of the normal form: ten octets of /%E3%83%84, two of /b.
        ("/ツ", "/*%84xx", "/ツxx", True),
        ("/%62", "/bc", "/bcd", False),
        ("/%62%63", "/bc", "/bcd", True),
        ("/%61%61", "/aaa", "/aaa", False),
        # A star that matches nothing counts all the same.
        ("/a*b", "/ab", "/ab", True),
        ("/ab", "/a*b", "/ab", False),
        ("/**ab", "/*ab", "/ab", True),
        # "*" alone has one.
        ("/", "*", "/a", True),
        ("*", "/", "/a", True),
        ("/", "**$", "/a", False),
    ],
)
def test_length_is_counted_in_octets_of_the_normal_form(
    allow: str, disallow: str, target: str, *, allowed: bool
) -> None:
    for lines in ((f"allow: {allow}", f"disallow: {disallow}"), (f"disallow: {disallow}", f"allow: {allow}")):
        assert rules(*lines).allowed(target) is allowed


def test_no_rule_matches_and_all_is_allowed() -> None:
    ruleset = rules("disallow: /a")
    for match in (ruleset.match("/b"), rules().match("/"), rules("allow: /a").match("/b")):
        assert (match.allowed, match.rule, match.reason) == (True, None, Reason.NO_RULE)


@pytest.mark.parametrize(
    "line", ["disallow: /", "disallow: *", "disallow: /robots.txt", "disallow: /robots.txt$", "disallow: /*.txt"]
)
def test_robots_txt_itself_is_always_allowed(line: str) -> None:
    ruleset = rules(line)
    for target in (
        "/robots.txt",
        "/%72obots.txt",
        "/a/../robots.txt",
        "/./robots.txt",
        "/robots.txt#a",
        "http://h/robots.txt",
    ):
        match = ruleset.match(target)
        assert (match.allowed, match.rule, match.reason) == (True, None, Reason.ROBOTS_TXT), target


def test_only_robots_txt_at_the_root_and_without_a_query_is_exempt() -> None:
    ruleset = rules("disallow: *")
    for target in (
        *("/robots.txt.bak", "/x/robots.txt", "//robots.txt", "/robots.txt/", "/robots.txt?x=1", "/Robots.txt"),
        *("/robots%2Etxt/", "/robots.txt%00", "/robots.tx", "/?/robots.txt", "https://h/robots.txt?"),
    ):
        assert ruleset.match(target).reason is Reason.DISALLOW_RULE, target


@pytest.mark.parametrize(
    "url",
    [
        *("/a/b?c=d", "/a/b?c=d#f", "http://h/a/b?c=d", "https://h:8443/a/b?c=d#f", "HTTP://U:P@H/a/b?c=d"),
        *("http://[::1]/a/b?c=d", "http://é.example/a/b?c=d", "http://h/x/../a/b?c=d", "http://h/%61/b?c=%64"),
        "/a/./b?c=d",
    ],
)
def test_url_and_target_are_judged_alike(url: str) -> None:
    ruleset = rules("disallow: /a/b?c=d$")
    assert decided_by(ruleset, url) == "disallow: /a/b?c=d$"
    assert not ruleset.allowed(url)


@pytest.mark.parametrize(
    "url",
    [
        *("", "a", "example.com/a", "?a", "#a", "ftp://h/a", "http://", "http://h:x/", "/a\nb", "http://h/a\0"),
        *("/\ud800", "http://h/?\udfff"),
    ],
)
def test_invalid_url_raises(url: str) -> None:
    ruleset = rules("disallow: /")
    for ask in (ruleset.allowed, ruleset.match):
        with pytest.raises(InvalidURL):
            ask(url)


@pytest.mark.parametrize("character", [*map(chr, range(0x21, 0x7F)), " ", "é", "ツ"])
def test_any_character_may_stand_behind_a_star(character: str) -> None:
    escaped = {"#": "%23", "*": "%2A", "$": "%24", "?": "%3F"}.get(character, character)
    other = "." if character != "." else ","
    for head in ("*", "/*", "/a*"):
        ruleset = rules(f"disallow: {head}{escaped}~~")
        assert not ruleset.allowed(f"/a{escaped}~~")
        assert not ruleset.allowed(f"/a{other}{escaped}~~{other}")
        assert ruleset.allowed(f"/a{escaped}{other}~~")


def test_rule_has_line_field_value_and_pattern_as_written() -> None:
    ruleset = RobotsTxt.parse("# a\r\nUser-Agent: *\r\n\r\n DisAllow :\t/%7ejoe/* # b\r\n").rules_for("x")
    rule = ruleset.match("/~joe/x").rule
    assert rule is not None
    assert (rule.line, rule.field, rule.value, rule.pattern, rule.allow) == (
        4,
        "DisAllow",
        "/%7ejoe/*",
        "/~joe/*",
        False,
    )
    assert str(rule) == "DisAllow: /%7ejoe/*"
    assert repr(rule) == "<Rule line 4: 'DisAllow: /%7ejoe/*'>"


def test_misspelled_rule_keeps_its_spelling() -> None:
    assert decided_by(rules("dissalow: /a"), "/a") == "dissalow: /a"
    assert decided_by(rules("disallow /a"), "/a") == "disallow: /a"


def test_match_shows_answer_and_rule() -> None:
    assert repr(rules("disallow: /a").match("/a")) == "Match(allowed=False, rule=<Rule line 2: 'disallow: /a'>)"
    assert repr(rules().match("/a")) == "Match(allowed=True, rule=None)"


def test_length_of_a_ruleset_is_its_number_of_different_rules() -> None:
    assert len(rules()) == 0
    assert len(rules("disallow:", "allow:", "disallow: x", "disallow: /\0")) == 0
    assert (
        len(rules("disallow: /a", "disallow: /b$", "disallow: /c*d", "disallow: *e", "disallow: /*f", "allow: /a")) == 5
    )
