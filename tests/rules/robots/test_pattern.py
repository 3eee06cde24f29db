from __future__ import annotations

from typing import Final

import pytest
from yarl import URL

from politesse.errors import InvalidURL
from politesse.robots import RobotsTxt
from politesse.robots.pattern import (
    normalise_pattern,
    normalise_target,
)

# The literal reference matcher and the tables of the standards try all of this on files; these are the forms.
TARGETS: Final = {
    "/%7ejoe/%41%5a%2d%2E%5F": "/~joe/AZ-._",  # RFC 9309 2.2.2: escaped unreserved octets are decoded, once
    "/%25%36%32": "/%2562",
    "/a%3a%40%26%3d%2b%3b%2c%21%27%28%29": "/a%3A%40%26%3D%2B%3B%2C%21%27%28%29",  # reserved ones stay as written
    "/a:@&=+;,!'()[b]%5b%5d": "/a:@&=+;,!'()[b]%5B%5D",
    "/%e3%83%84ツ": "/%E3%83%84%E3%83%84",
    "/é\u2028\x85\U0001f600": "/%C3%A9%E2%80%A8%C2%85%F0%9F%98%80",
    '/ "<>\\^`{|}': "/%20%22%3C%3E%5C%5E%60%7B%7C%7D",  # RFC 3986 2: what no URI holds raw
    "/a*b$%2a%24": "/a%2Ab%24%2A%24",  # figure 6: a star and a dollar are themselves
    "/100%/%zz/%4/%%41": "/100%25/%25zz/%254/%25A",  # a percent sign without two hex digits is a percent sign
    "/%\u0664\u0661%00%7f": "/%25%D9%A4%D9%A1%00%7F",
    "/p?a=http%3A%2F%2fh%3f%40%5b%5D": "/p?a=http://h?@[]",  # figure 4, row 2: legal raw in a query
    "/p?a=%26&b=%3d%2B%3B%2c%21%27%28%29%23%25%2a%24": "/p?a=%26&b=%3D%2B%3B%2C%21%27%28%29%23%25%2A%24",
    "/%3A%3F?%3A?%3A": "/%3A%3F?:?:",  # the first question mark starts the query
    "/a#?b": "/a",
    "/a?b#c#d": "/a?b",
    "/?#": "/?",
    # Dot segments are resolved as clients do.
    "/a/%2e%2E/private/./x": "/private/x",
    "/a/.%2e": "/",
    "/a/b/../../../c/.": "/c/",
    "//a//../b//": "//a/b//",
    "/.../.a/..b/c./d..": "/.../.a/..b/c./d..",
    "/a/..%2Fb": "/a/..%2Fb",
    "/a/..?b/../c": "/?b/../c",
    "/a\\..\\b": "/a%5C..%5Cb",
}
PATTERNS: Final = {
    "/a*b*.php$": "/a*b*.php$",  # RFC 9309 2.2.3: the special characters
    "/a$b$": "/a%24b$",  # a dollar is special at the very end only
    "/a$$": "/a%24$",
    "/a$*b": "/a%24*b",
    "/?$": "/?$",
    "/a-%2a%24$": "/a-%2A%24$",
    "/fish***": "/fish*",  # a second star beside the first adds nothing
    "/fish**$": "/fish*$",
    "/fish$*": "/fish%24*",
    "*$": "*$",
    "/%62ツ/caf\udce9\udc80": "/b%E3%83%84/caf%E9%80",  # the rest is as in a target
    "/100%*x": "/100%*x",
    "/%4*1%zz$": "/%4*1%zz$",
    "/%%32%46%2%46%%zz": "/%252F%252F%%zz",  # digits that are escaped make no escape
    "/a/../b/./": "/a/../b/./",
    "/a*?b=http%3A%2F%2Fh*c$d": "/a*?b=http://h*c%24d",
}


@pytest.mark.parametrize(("target", "normal"), TARGETS.items())
def test_target_is_brought_to_normal_form(target: str, normal: str) -> None:
    assert normalise_target(target) == normal


@pytest.mark.parametrize(("value", "pattern"), PATTERNS.items())
def test_pattern_is_brought_to_normal_form(value: str, pattern: str) -> None:
    assert normalise_pattern(value) == pattern


@pytest.mark.parametrize("control", [*map(chr, range(0x20)), "\x7f"])
def test_control_character_in_a_target_is_invalid(control: str) -> None:
    for target in (f"/a{control}", f"/?{control}", f"/#{control}"):
        with pytest.raises(InvalidURL, match=r"control character"):
            normalise_target(target)


@pytest.mark.parametrize("target", ["/\ud800", "/?\udfff", "/a\ud83d?b"])
def test_lone_surrogate_in_a_target_is_invalid(target: str) -> None:
    with pytest.raises(InvalidURL, match=r"lone surrogate"):
        normalise_target(target)


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
