"""Which rule decides about a target, and the form in which patterns and targets are compared."""

from typing import Final

import pytest
from yarl import URL

from politesse.errors import InvalidURL
from politesse.robots import Dialect, RobotsTxt, RuleSet
from politesse.robots.pattern import normalise_pattern
from politesse.verdict import Reason
from tests.support.pure_robots import pure_robots

# The literal reference matcher and the tables of the standards try the other forms, and those of targets, on files.
PATTERNS: Final = {
    "/a$$": "/a%24$",  # a dollar is special at the very end only
    "/fish$*": "/fish%24*",
    "/a-%2a%24$": "/a-%2A%24$",
    "/fish**$": "/fish*$",  # a second star beside the first adds nothing
    "/%62ツ/caf\udce9\udc80": "/b%E3%83%84/caf%E9%80",
    "/%%32%46%2%46%%zz": "/%252F%252F%%zz",  # digits that are escaped make no escape
    "/a*?b=http%3A%2F%2Fh*c$d": "/a*?b=http://h*c%24d",
}
# An Allow and a Disallow, a target, and whether it is allowed. The length is counted in octets of the normal form.
LENGTHS: Final = {
    # A star at the end counts, although it matches nothing more; of several in a row one.
    ("/", "/*", "/a"): False,
    ("/fish", "/fish*", "/fish.html"): False,
    ("/fish", "/fish*$", "/fish.html"): False,
    ("/fish*", "/fish**", "/fish"): True,
    ("/fish*", "/fishe", "/fishes"): True,
    ("/fishe", "/fish*$", "/fishes"): False,
    ("/fishe", "/fish*$", "/fishe"): False,
    ("/fishes", "/fish*$", "/fishes"): True,
    ("/a*b", "/a*b*", "/ab"): False,
    ("/a*b", "/a*b*$", "/ab"): False,
    # A percent sign without two hex digits is one octet.
    ("/100%zz", "/100%25", "/100%zz"): True,
    ("/100%", "/100%25", "/100%"): False,
    # Length is that of the normal form: ten octets of /%E3%83%84, two of /b.
    ("/ツ", "/*%84xx", "/ツxx"): True,
    ("/%62", "/bc", "/bcd"): False,
    ("/%62%63", "/bc", "/bcd"): True,
    ("/%61%61", "/aaa", "/aaa"): False,
    # A star that matches nothing counts all the same.
    ("/a*b", "/ab", "/ab"): True,
    ("/ab", "/a*b", "/ab"): False,
    ("/**ab", "/*ab", "/ab"): True,
    # "*" alone has one.
    ("/", "*", "/a"): True,
    ("*", "/", "/a"): True,
    ("/", "**$", "/a"): False,
}


def rules(*lines: str, dialect: Dialect = Dialect.RFC9309) -> RuleSet:
    return RobotsTxt.parse("\n".join(["user-agent: *", *lines]), dialect).rules_for("ExampleBot")


def decided_by(ruleset: RuleSet, target: str) -> str | None:
    """The line that decides, as it is written."""
    rule = ruleset.match(target).rule
    return None if rule is None else str(rule)


def problem(ruleset: RuleSet, url: str) -> str:
    """What is wrong with a URL that both questions refuse, as one of them tells."""
    with pytest.raises(InvalidURL):
        ruleset.allowed(url)
    with pytest.raises(InvalidURL) as caught:
        ruleset.match(url)
    return caught.value.problem


def test_pattern_is_brought_to_normal_form() -> None:
    assert {value: normalise_pattern(value) for value in PATTERNS} == PATTERNS


def test_invalid_url_raises() -> None:
    ruleset = rules("disallow: /")
    for url in ("", "a", "example.com/a", "?a", "#a", "ftp://h/a", "http://", "http://h:x/", "http://h/a\0"):
        assert problem(ruleset, url)
    for control in (*map(chr, range(0x20)), "\x7f"):
        for target in (f"/a{control}", f"/?{control}", f"/#{control}"):
            assert "control character" in problem(ruleset, target), target
    for target in ("/\ud800", "/?\udfff", "/a\ud83d?b", "http://h/?\udfff"):
        assert "lone surrogate" in problem(ruleset, target), target


def test_urls_that_aiohttp_rewrites_are_judged_as_sent_if_passed_as_yarl() -> None:
    for written, sent in (("/a?", "/a"), ("/a%26b", "/a&b")):
        ruleset, url = rules(f"Disallow: {sent}$"), f"https://example.com{written}"
        assert (ruleset.allowed(url), ruleset.allowed(str(URL(url)))) == (True, False)


def test_star_that_reaches_into_the_query_meets_its_escapes() -> None:
    for pattern, target in (
        ("/*%2Fadmin", "/login?next=%2Fadmin"),
        ("*%5B", "/q?a%5B0%5D=1"),
        ("/*%3Ax", "/?%3Ax"),
        ("/*/foo", "/x?y=%2Ffoo"),
    ):
        assert not rules(f"Disallow: {pattern}").allowed(target), pattern


def test_equal_patterns_go_to_allow_in_any_spelling() -> None:
    match = rules("disallow: /folder", "allow: /%66older", "disallow: /folder").match("/folder/page")
    assert match.rule is not None
    assert (match.allowed, match.rule.line, match.rule.value, match.rule.pattern) == (True, 3, "/%66older", "/folder")


def test_first_of_equal_rules_is_reported() -> None:
    for field in ("allow", "disallow"):
        ruleset = rules("disallow: /b", f"{field}: /a", f"{field}: /%61", f"{field}: /a")
        rule = ruleset.match("/a").rule
        assert rule is not None
        assert (rule.line, len(ruleset)) == (3, 2)


def test_allow_that_replaces_an_equal_disallow_stands_at_its_own_line() -> None:
    for parse in (RobotsTxt.parse, pure_robots):
        stars = parse("user-agent: *\ndisallow: /b**\nallow: /b*$\nallow: /b**", Dialect.GOOGLE).rules_for("x")
        assert decided_by(stars, "/b") == "allow: /b*$"
        body = "user-agent: *\ndisallow: /a/index.htm\nallow: /a/index.html\nallow: /a/index.htm"
        assert decided_by(parse(body, Dialect.GOOGLE).rules_for("x"), "/a/") == "allow: /a/index.html"
        slash = parse("user-agent: *\ndisallow: /a/$\nallow: /a/index.html", Dialect.GOOGLE).rules_for("x")
        assert [rule.pattern for rule in slash.rules] == ["/a/index.html", "/a/$"]


def test_length_is_counted_in_octets_of_the_normal_form() -> None:
    assert {row: rules(f"allow: {row[0]}", f"disallow: {row[1]}").allowed(row[2]) for row in LENGTHS} == LENGTHS
    assert {row: rules(f"disallow: {row[1]}", f"allow: {row[0]}").allowed(row[2]) for row in LENGTHS} == LENGTHS


def test_robots_txt_itself_is_always_allowed_in_every_dialect() -> None:
    lines = [f"disallow: {path}" for path in ("/", "*", "/robots.txt", "/robots.txt$", "/*.txt")]
    for dialect in Dialect:
        for ruleset in (*(rules(line, dialect=dialect) for line in lines), rules(*lines, dialect=dialect)):
            for target in ("/robots.txt", "/a/../robots.txt", "/./robots.txt", "/robots.txt#a", "http://h/robots.txt"):
                match = ruleset.match(target)
                assert (match.allowed, match.rule, match.reason) == (True, None, Reason.ROBOTS_TXT), (dialect, target)
    assert rules(*lines).match("/%72obots.txt").reason is Reason.ROBOTS_TXT


def test_only_robots_txt_at_the_root_and_without_a_query_is_exempt() -> None:
    ruleset = rules("disallow: *")
    others = [rules("disallow: /", dialect=dialect) for dialect in Dialect]
    for target in (
        *("/robots.txt.bak", "/x/robots.txt", "//robots.txt", "/robots.txt/", "/robots.txt?x=1", "/Robots.txt"),
        *("/robots%2Etxt/", "/robots.txt%00", "/robots.tx", "/?/robots.txt", "https://h/robots.txt?"),
    ):
        assert ruleset.match(target).reason is Reason.DISALLOW_RULE, target
        assert not any(one.allowed(target) for one in others), target


def test_url_and_target_are_judged_alike() -> None:
    ruleset = rules("disallow: /a/b?c=d$")
    for url in (
        *("/a/b?c=d", "/a/b?c=d#f", "http://h/a/b?c=d", "https://h:8443/a/b?c=d#f", "HTTP://U:P@H/a/b?c=d"),
        *("http://[::1]/a/b?c=d", "http://é.example/a/b?c=d", "http://h/x/../a/b?c=d", "http://h/%61/b?c=%64"),
        "/a/./b?c=d",
    ):
        assert decided_by(ruleset, url) == "disallow: /a/b?c=d$", url
        assert not ruleset.allowed(url), url


def test_any_character_may_stand_behind_a_star() -> None:
    for character in (*map(chr, range(0x20, 0x7F)), "é", "ツ"):
        escaped = {"#": "%23", "*": "%2A", "$": "%24", "?": "%3F"}.get(character, character)
        other = "." if character != "." else ","
        for head in ("*", "/*", "/a*"):
            ruleset = rules(f"disallow: {head}{escaped}~~")
            assert not ruleset.allowed(f"/a{escaped}~~"), character
            assert not ruleset.allowed(f"/a{other}{escaped}~~{other}"), character
            assert ruleset.allowed(f"/a{escaped}{other}~~"), character


def test_rule_has_line_field_value_and_pattern_as_written() -> None:
    ruleset = RobotsTxt.parse("# a\r\nUser-Agent: *\r\n\r\n DisAllow :\t/%7ejoe/* # b\r\n").rules_for("x")
    rule = ruleset.match("/~joe/x").rule
    assert rule is not None
    assert (rule.line, rule.field, rule.value) == (4, "DisAllow", "/%7ejoe/*")
    assert (rule.pattern, rule.allow) == ("/~joe/*", False)
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
    lines = ("disallow: /a", "disallow: /b$", "disallow: /c*d", "disallow: *e", "disallow: /*f", "allow: /a")
    assert len(rules(*lines)) == 5


@pytest.mark.parametrize("dialect", Dialect)
def test_length_of_a_target_counts_not_that_of_its_url(dialect: Dialect) -> None:
    body = "User-agent: *\nDisallow: /xxx"
    longest = "https://example.com/" + "x" * 20_479
    for parsed in RobotsTxt.parse(body, dialect).rules_for("x"), pure_robots(body, dialect).rules_for("x"):
        assert not parsed.match(longest)
        with pytest.raises(InvalidURL, match=r"20,?4\d\d"):
            parsed.match(f"{longest}x")
