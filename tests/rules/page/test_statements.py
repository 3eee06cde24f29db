"""Lists of directives, as headers and METAs have them."""

from collections.abc import Iterable

import pytest

from politesse.page.statements import Directive, DirectiveStatement, parse_members, parse_scoped, parse_unscoped


def said(directives: Iterable[Directive]) -> str:
    """Write directives as ``scope: name=value | name``."""
    words = ((f"{one.scope}: " * bool(one.scope), one.name, f"={one.value}" * bool(one.value)) for one in directives)
    return " | ".join(map("".join, words))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("noindex", "noindex"),
        ("NoIndex, NOFOLLOW", "noindex | nofollow"),
        ("googlebot: nofollow", "googlebot: nofollow"),
        ("noindex/nofollow", "noindex | nofollow"),
        ("noindex|nofollow+noarchive", "noindex | nofollow | noarchive"),
        ("noindex\uff0cnofollow", "noindex | nofollow"),
        ("\u201cnoindex, nofollow\u201d", "noindex | nofollow"),
        ("[noindex, nofollow.]", "noindex | nofollow"),
        ("otherbot: noindex/", "otherbot: noindex"),
        ("some/thing", "some/thing"),
        (
            "googlebot: nofollow, otherbot: noindex, nofollow",
            "googlebot: nofollow | otherbot: noindex | otherbot: nofollow",
        ),
        ("noindex, otherbot: nofollow", "noindex | otherbot: nofollow"),
        ("OtherBot/2.1: noindex", "otherbot: noindex"),
        ("otherbot:noindex,*:nofollow", "otherbot: noindex | nofollow"),
        ("robots: noindex", "noindex"),
        ("otherbot: noai", "otherbot: noai"),
        # These four are directives, never the names of crawlers.
        (
            "unavailable_after: 25 Jun 2010 15:00:00 PST, noindex",
            "unavailable_after=25 Jun 2010 15:00:00 PST | noindex",
        ),
        ("max-snippet: 50, noindex", "max-snippet=50 | noindex"),
        ("max-image-preview: large, noindex", "max-image-preview=large | noindex"),
        ("max-video-preview:-1, noindex", "max-video-preview=-1 | noindex"),
        ("otherbot: max-snippet:5, noindex", "otherbot: max-snippet=5 | otherbot: noindex"),
        # The comma in a date does not split the list.
        (
            "unavailable_after: Sat, 25 Jun 2010 15:00:00 GMT, nofollow",
            "unavailable_after=Sat, 25 Jun 2010 15:00:00 GMT | nofollow",
        ),
        (
            "otherbot: unavailable_after: Saturday, 25-Jun-10 15:00:00 GMT, nofollow",
            "otherbot: unavailable_after=Saturday, 25-Jun-10 15:00:00 GMT | otherbot: nofollow",
        ),
        ("unavailable_after: June 25, 2010, nofollow", "unavailable_after=June 25, 2010 | nofollow"),
        (
            "unavailable_after: Friday, Jun. 25, 2010 15:00 noindex",
            "unavailable_after=Friday, Jun. 25, 2010 15:00 | noindex",
        ),
        ("unavailable_after: 25 June, 2010; noindex", "unavailable_after=25 June, 2010 | noindex"),
        ("unavailable_after: June 25, noindex", "unavailable_after=June 25 | noindex"),
        ("unavailable_after: 25 Jun 2010, 7", "unavailable_after=25 Jun 2010 | 7"),
        # Several crawlers share a scope.
        ("examplebot, googlebot: noindex", "examplebot: noindex | googlebot: noindex"),
        (
            "a/1.0, b; c: max-snippet:5, d: nofollow",
            "a: max-snippet=5 | b: max-snippet=5 | c: max-snippet=5 | d: nofollow",
        ),
        ("a: noindex, b, c: nofollow", "a: noindex | b: nofollow | c: nofollow"),
        ("a, *: noindex", "noindex"),
        ("a: noindex, somethingnew, other", "a: noindex | a: somethingnew | a: other"),
        ("somethingnew, noindex, a: nofollow", "somethingnew | noindex | a: nofollow"),
        ("unavailable_after: 2020-09-21T15:00:00Z", "unavailable_after=2020-09-21T15:00:00Z"),
        ("unavailable_after: Sat, noindex", "unavailable_after=Sat | noindex"),
        ("unavailable_after: Sat", "unavailable_after=Sat"),
        ("noai, noimageai", "noai | noimageai"),
        ("somethingnew", "somethingnew"),
        ("", ""),
        (" ,, ;", ""),
    ],
)
def test_line_is_read_with_its_scopes(line: str, expected: str) -> None:
    assert said(parse_scoped(line)) == expected


@pytest.mark.parametrize(
    "line",
    [
        *("noindex; nofollow", "noindex nofollow", "noindex,\xa0nofollow", '"noindex, nofollow"'),
        *("'noindex','nofollow'", "no-index, no_follow", "noindex: nofollow", "max-snippet: 5 noindex nofollow"),
        *("max_snippet=5, noindex, nofollow", "unavailable_after: 2020-09-21 noindex, nofollow"),
        *("unavailable_after: Sat, 25 Jun 2010 15:00:00 GMT noindex, nofollow", "noindex, \0\x80garbage, nofollow"),
        "nofollow max-snippet:5, noindex",
    ],
)
def test_odd_spellings_still_restrict_everybody(line: str) -> None:
    assert {Directive("noindex"), Directive("nofollow")} <= set(parse_scoped(line))


@pytest.mark.parametrize(
    "line",
    [
        *("goo gle bot: noindex", ": noindex", "<bot>: noindex", "b\xf6t: noindex"),
        *("https://example.com/bot: noindex", "a, b c: noindex", "one: two: noindex"),
        *("otherbot: nofollow, b c: noindex", "max-whatever: 5, noindex", "max-whatever: yes, noindex"),
        *("whatever: 5, noindex", "whatever: -1, noindex", "expires: Sat, 25 Jun 2010 15:00:00 GMT, noindex"),
        "otherbot: nofollow, 15:00:00: noindex",
    ],
)
def test_invalid_crawler_name_is_no_scope(line: str) -> None:
    assert Directive("noindex") in set(parse_scoped(line))


def test_directives_of_more_crawlers_than_are_kept_address_all() -> None:
    assert said(parse_scoped(", ".join(f"bot{number}" for number in range(21)) + ": noindex")) == "noindex"


def test_meta_has_no_scopes() -> None:
    assert Directive("noindex") in set(parse_unscoped("otherbot: noindex"))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("*=noindex, nosnippet; ExampleBot=;", "noindex | nosnippet"),
        ("ExampleBot=noindex, nofollow; *=nosnippet", "examplebot: noindex | examplebot: nofollow | nosnippet"),
        ("noindex, nofollow", "noindex | nofollow"),
        ("=noindex", "noindex"),
        ("a b=noindex", "a | b | noindex"),
        ("noindex=1", "noindex | 1"),
        ("ExampleBot=max-snippet:5", "examplebot: max-snippet=5"),
        (
            "ExampleBot=unavailable_after: Sat, 25 Jun 2010 15:00:00 GMT, noindex",
            "examplebot: unavailable_after=Sat, 25 Jun 2010 15:00:00 GMT | examplebot: noindex",
        ),
        ("max-snippet=5; noindex", "max-snippet=5 | noindex"),
        ("", ""),
    ],
)
@pytest.mark.clause("draft-illyes-repext-00 2.1.1")
def test_members_are_read_by_their_names(line: str, expected: str) -> None:
    assert said(parse_members(line)) == expected


def test_statement_shows_its_place() -> None:
    statement = DirectiveStatement(Directive("noindex"), "X-Robots-Tag", 2, "noindex\x1b[31m" + "x" * 500)
    assert str(statement).startswith("X-Robots-Tag 2: noindex\\x1b[31mxxx")
    assert len(str(statement)) < 300
