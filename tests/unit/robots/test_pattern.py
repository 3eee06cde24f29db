from __future__ import annotations

import pytest
from yarl import URL

from politesse.errors import InvalidURL
from politesse.origin import MAX_URL_LENGTH
from politesse.robots import RobotsTxt
from politesse.robots.pattern import (
    fold_target,
    is_normal,
    is_plain,
    match_plain_url,
    normalise_pattern,
    normalise_target,
)
from politesse.robots.wildcard import Wildcard


@pytest.mark.parametrize(
    ("target", "normal"),
    [
        ("/a/b-c_d.e~f", "/a/b-c_d.e~f"),
        # RFC 9309 2.2.2: escaped unreserved octets are decoded, once.
        ("/%62%61%7A", "/baz"),
        ("/%7ejoe/%41%5a%2d%2E%5F", "/~joe/AZ-._"),
        ("/%2562", "/%2562"),
        ("/%25%36%32", "/%2562"),
        # Reserved ones stay as they are written; hex digits are upper case.
        ("/a%2fb", "/a%2Fb"),
        ("/a/b", "/a/b"),
        ("/a%3a%40%26%3d%2b%3b%2c%21%27%28%29", "/a%3A%40%26%3D%2B%3B%2C%21%27%28%29"),
        ("/a:@&=+;,!'()", "/a:@&=+;,!'()"),
        ("/a%3fb%23c", "/a%3Fb%23c"),
        ("/a[b]%5b%5d", "/a[b]%5B%5D"),
        # What is no ASCII is encoded, octet by octet.
        ("/ツ", "/%E3%83%84"),
        ("/%e3%83%84", "/%E3%83%84"),
        ("/é\u2028\x85", "/%C3%A9%E2%80%A8%C2%85"),
        ("/\U0001f600", "/%F0%9F%98%80"),
        # RFC 3986 2: what no URI holds raw is encoded.
        ("/a b", "/a%20b"),
        ('/"<>\\^`{|}', "/%22%3C%3E%5C%5E%60%7B%7C%7D"),
        ("/%3cd", "/%3Cd"),
        # Figure 6: a star and a dollar are themselves.
        ("/a*b$", "/a%2Ab%24"),
        ("/a%2ab%24", "/a%2Ab%24"),
        # A percent sign without two hex digits is a percent sign.
        ("/100%", "/100%25"),
        ("/%zz", "/%25zz"),
        ("/%4", "/%254"),
        ("/%%41", "/%25A"),
        ("/%\u0664\u0661", "/%25%D9%A4%D9%A1"),
        ("/%00%7f", "/%00%7F"),
    ],
)
def test_target_is_brought_to_normal_form(target: str, normal: str) -> None:
    assert normalise_target(target) == normal


@pytest.mark.parametrize(
    ("query", "normal"),
    [
        # RFC 9309 figure 4, row 2: what is legal raw in a query equals its escape.
        ("a=http%3A%2F%2fh", "a=http://h"),
        ("%3f%40%5b%5D", "?@[]"),
        ("?@[]:/", "?@[]:/"),
        # The delimiters of parameters do not.
        ("a=%26&b=%3d%2B%3B%2c%21%27%28%29", "a=%26&b=%3D%2B%3B%2C%21%27%28%29"),
        ("%61%7E", "a~"),
        ("%23%25%2a%24", "%23%25%2A%24"),
        ("a b+c", "a%20b+c"),
        ("é%c3%a9", "%C3%A9%C3%A9"),
        ("a/../b/./c", "a/../b/./c"),
    ],
)
def test_query_is_brought_to_normal_form(query: str, normal: str) -> None:
    assert normalise_target(f"/p?{query}") == f"/p?{normal}"
    assert normalise_pattern(f"/p?{query}") == f"/p?{normal}"


def test_percent_sign_without_two_hex_digits_stays_in_a_pattern_only() -> None:
    assert normalise_target("/p?%zz%") == "/p?%25zz%25"
    assert normalise_pattern("/p?%zz%") == "/p?%zz%"
    assert normalise_pattern("/%%32%46%2%46%%zz") == "/%252F%252F%%zz"  # digits that are escaped make no escape


def test_star_and_dollar_in_a_query_are_special_in_a_pattern_only() -> None:
    assert normalise_target("/p?a*b$c$") == "/p?a%2Ab%24c%24"
    assert normalise_pattern("/p?a*b$c$") == "/p?a*b%24c$"


def test_the_first_question_mark_starts_the_query() -> None:
    assert normalise_target("/%3A%3F?%3A?%3A") == "/%3A%3F?:?:"
    assert normalise_pattern("/%3A%3F?%3A?%3A") == "/%3A%3F?:?:"


@pytest.mark.parametrize(
    ("target", "normal"),
    [
        ("/a/../private/x", "/private/x"),
        ("/a/%2e%2E/private/x", "/private/x"),
        ("/a/.%2e/b", "/b"),
        ("/a/./b", "/a/b"),
        ("/a/%2e/b", "/a/b"),
        ("/a/.", "/a/"),
        ("/a/..", "/"),
        ("/a/b/..", "/a/"),
        ("/.", "/"),
        ("/..", "/"),
        ("/../../a", "/a"),
        ("/a/b/../../../c", "/c"),
        ("//folder/x", "//folder/x"),
        ("/a//b", "/a//b"),
        ("/a//../b", "/a/b"),
        ("/a//", "/a//"),
        ("/...", "/..."),
        ("/.a/..b/c./d..", "/.a/..b/c./d.."),
        ("/a..%2fb", "/a..%2Fb"),
        ("/a/..%2Fb", "/a/..%2Fb"),
        ("/a/..?b", "/?b"),
        ("/a?/../b", "/a?/../b"),
        ("/a\\..\\b", "/a%5C..%5Cb"),
        ("/a/..#/b", "/"),
    ],
)
def test_dot_segments_are_resolved_as_a_client_does(target: str, normal: str) -> None:
    assert normalise_target(target) == normal


@pytest.mark.parametrize(
    ("target", "normal"), [("/a#b", "/a"), ("/a#?b", "/a"), ("/a?b#c#d", "/a?b"), ("/a%23b", "/a%23b"), ("/?#", "/?")]
)
def test_fragment_is_dropped(target: str, normal: str) -> None:
    assert normalise_target(target) == normal


@pytest.mark.parametrize("control", [*map(chr, range(0x20)), "\x7f"])
def test_control_character_in_a_target_is_invalid(control: str) -> None:
    for target in (f"/a{control}", f"/?{control}", f"/#{control}"):
        with pytest.raises(InvalidURL, match=r"control character"):
            normalise_target(target)


@pytest.mark.parametrize("target", ["/\ud800", "/?\udfff", "/a\ud83d?b"])
def test_lone_surrogate_in_a_target_is_invalid(target: str) -> None:
    with pytest.raises(InvalidURL, match=r"lone surrogate"):
        normalise_target(target)


@pytest.mark.parametrize(
    ("value", "pattern"),
    [
        ("/", "/"),
        ("/a/b?c=d", "/a/b?c=d"),
        # RFC 9309 2.2.3: the special characters.
        ("/a*b", "/a*b"),
        ("/a$", "/a$"),
        ("/*.php$", "/*.php$"),
        ("*.gif$", "*.gif$"),
        # A dollar is special at the very end only.
        ("/a$b", "/a%24b"),
        ("/a$$", "/a%24$"),
        ("/a$b$", "/a%24b$"),
        ("/a$*b", "/a%24*b"),
        ("/$", "/$"),
        ("/?$", "/?$"),
        # Figure 6: the same two, meant literally.
        ("/a-%2A.html", "/a-%2A.html"),
        ("/a-%2a", "/a-%2A"),
        ("/foo-%24", "/foo-%24"),
        ("/foo-%24$", "/foo-%24$"),
        # A star at the end adds nothing, nor does a second one beside the first.
        ("/fish*", "/fish*"),
        ("/fish***", "/fish*"),
        ("/fish*$", "/fish*$"),
        ("/fish**$", "/fish*$"),
        ("/a**b***c", "/a*b*c"),
        ("/fish$*", "/fish%24*"),
        ("*", "*"),
        ("**", "*"),
        ("*$", "*$"),
        ("/*", "/*"),
        ("/?*", "/?*"),
        ("/?*=*", "/?*=*"),
        # The rest is as in a target.
        ("/%62%61%7A", "/baz"),
        ("/ツ", "/%E3%83%84"),
        ("/caf\udce9", "/caf%E9"),
        ("/\udc80\udcff", "/%80%FF"),
        ("/a%2fb", "/a%2Fb"),
        ("/a b", "/a%20b"),
        ("/100%*x", "/100%*x"),
        ("/%4*1", "/%4*1"),
        ("/%zz$", "/%zz$"),
        ("/a/../b/./", "/a/../b/./"),
        ("/a?b=http%3A%2F%2Fh", "/a?b=http://h"),
        ("/a*?b=%3A", "/a*?b=:"),
    ],
)
def test_pattern_is_brought_to_normal_form(value: str, pattern: str) -> None:
    assert normalise_pattern(value) == pattern


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("/a*b", ["/ab", "/axb", "/axbx", "/a/b", "/a?b", "/abab"], ["/a", "/b", "/ba", "x/ab", "/xab"]),
        ("/a*b$", ["/ab", "/axb", "/abab", "/abb"], ["/abx", "/a", "/axbx", "/b"]),
        ("/ab*b$", ["/abb", "/abxb"], ["/ab", "/abx"]),
        ("*b", ["/b", "/ab", "/a/bc"], ["/a", "/"]),
        ("*b$", ["/b", "/ab", "/bab"], ["/ba", "/"]),
        ("/*.php", ["/index.php", "/.php", "/a/b.php5?c"], ["/php", "/windows.PHP", "/index?php"]),
        ("/a*b*c", ["/abc", "/axbxc", "/abbcc", "/acbc"], ["/acb", "/ab", "/ac"]),
        ("/a*b*c$", ["/abc", "/abcc", "/abcbc"], ["/abcb", "/acb$", "/bc"]),
        ("/a*aa*aaa$", ["/aaaaaa", "/aaaaaaa", "/axaaxaaa"], ["/aaaaa", "/aaaaaab"]),
        ("/*ab*ab", ["/abab", "/xabxab"], ["/ab", "/aab", "/aba"]),
        ("*/*b", ["/b", "/ab", "//b"], ["/", "/a"]),
        ("*", ["/", "/a"], []),
    ],
)
def test_star_stands_for_any_number_of_any_octets(pattern: str, matching: list[str], other: list[str]) -> None:
    wildcard = Wildcard(pattern)
    assert [target for target in matching if not wildcard.matches(target)] == []
    assert [target for target in other if wildcard.matches(target)] == []


@pytest.mark.parametrize(
    ("pattern", "head", "needle"),
    [("/a*bcd*ef", "/a", "bcd"), ("*.gif$", "", ".gif"), ("/*x*yy*zz", "/", "yy"), ("/longer*b$", "/longer", "b")],
)
def test_head_and_needle_reject_targets_quickly(pattern: str, head: str, needle: str) -> None:
    wildcard = Wildcard(pattern)
    assert (wildcard.head, wildcard.needle) == (head, needle)


@pytest.mark.parametrize("text", ["", "/", "/a/b-c_d.e~f", "/a?b=c&d[]=:@/?;,+!'()", "/a/../b"])
def test_plain_text_is_its_own_normal_form_but_for_dot_segments(text: str) -> None:
    assert is_plain(text) is not None


@pytest.mark.parametrize(
    "character",
    ["%", "*", "$", "#", " ", "é", "\\", "|", "^", "`", "{", "}", '"', "<", ">", "\n", "\0", "\x7f", "\ud800"],
)
def test_text_with_any_other_character_is_not_plain(character: str) -> None:
    assert is_plain(f"/a{character}") is None
    assert is_plain(f"{character}/a") is None
    assert match_plain_url(f"http://h/a{character}") is None


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://example.com/", "/"),
        ("https://example.com/a?b", "/a?b"),
        ("https://a-b.example.com//a/../b?", "//a/../b?"),
        ("http://H/A", "/A"),
    ],
)
def test_plain_url_has_its_target_in_one_group(url: str, target: str) -> None:
    match = match_plain_url(url)
    assert match is not None
    assert match[1] == target


@pytest.mark.parametrize(
    "url",
    [
        "http://h",
        "http://h?a",
        "http://h:80/",
        "http://u@h/",
        "http://[::1]/",
        "HTTP://h/",
        "ftp://h/",
        "//h/",
        "/a",
        "http:///a",
        "http://h\\x/",
        "http://é/",
        " http://h/",
        "http://h/\n",
    ],
)
def test_odd_url_takes_the_slow_road(url: str) -> None:
    assert match_plain_url(url) is None


@pytest.mark.parametrize(("written", "sent"), [("/a?", "/a"), ("/a%26b", "/a&b")])
def test_urls_that_aiohttp_rewrites_are_judged_as_sent_if_passed_as_yarl(written: str, sent: str) -> None:
    rules = RobotsTxt.parse(f"User-agent: *\nDisallow: {sent}$\n").rules_for("x")
    assert rules.allowed(f"https://example.com{written}")
    assert not rules.allowed(str(URL(f"https://example.com{written}")))


@pytest.mark.parametrize(
    ("pattern", "target"),
    [
        ("/*%2Fadmin", "/login?next=%2Fadmin"),
        ("*%5B", "/q?a%5B0%5D=1"),
        ("/*%3Ax", "/?%3Ax"),
        ("/*/foo", "/x?y=%2Ffoo"),
    ],
)
def test_star_that_reaches_into_the_query_meets_its_escapes(pattern: str, target: str) -> None:
    assert not RobotsTxt.parse(f"User-agent: *\nDisallow: {pattern}").rules_for("x").allowed(target)


@pytest.mark.parametrize("start", ["/", "/a?", "/a?b%20?"])
def test_only_a_target_that_normalisation_does_not_change_is_normal(start: str) -> None:
    escapes = [f"%{octet:02X}" for octet in range(256)] + [f"%{octet:02x}" for octet in range(256)]
    for part in (*escapes, *map(chr, range(33, 127)), "%", "%4", "%G0", "é", "/./", "/..", "a" * MAX_URL_LENGTH):
        target = f"{start}{part}x"
        # A "<" has the target normalised whole: it becomes an escape, and what is normal before it stays.
        whole = f"{start}{part}x<"
        unchanged = len(whole) < MAX_URL_LENGTH and normalise_target(whole) == f"{target}%3C"
        assert is_normal(target) is (unchanged and "/." not in target), target
        if is_normal(target):
            assert normalise_target(target) == fold_target(target) == target
