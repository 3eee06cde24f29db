"""What a page allows one crawler to do with it, and the lists of directives that say so."""

import sys
from collections.abc import Iterable, Sequence
from email.message import Message
from typing import Final, cast

import httpx
import pytest
from multidict import CIMultiDict
from scrapy.http import Headers as ScrapyHeaders

from politesse.page import Headers, PageDirectives
from politesse.page.directives import (
    Directive,
    DirectiveStatement,
    page_date,
    parse_members,
    parse_scoped,
    parse_unscoped,
)

NOW = 1_800_000_000.0  # 2027
JUNE_2010 = 1_277_478_000.0  # 25 Jun 2010 15:00:00 GMT
HTML = {"Content-Type": "text/html; charset=utf-8"}


def of_page(head: str, token: str | Sequence[str] = ()) -> PageDirectives:
    body = f"<!DOCTYPE html><html><head>{head}<title>x</title></head><body></body></html>".encode()
    return PageDirectives.from_response(HTML, body, token)


def of_meta(*contents: str) -> PageDirectives:
    return of_page("".join(f'<meta name="robots" content="{content}">' for content in contents))


def of_header(*lines: str, token: str | Sequence[str] = ("ExampleBot",), field: str = "x-robots-TAG") -> PageDirectives:
    return PageDirectives.from_response([(field, line) for line in lines], None, token)


def answers(page: PageDirectives) -> tuple[bool, bool, bool]:
    """Return whether it may be indexed, followed, archived."""
    return bool(page.may_index(NOW)), bool(page.may_follow), bool(page.may_archive)


def test_page_without_a_word_allows_everything() -> None:
    page = of_page("")
    assert answers(page) == (True, True, True)
    assert page.may_snippet
    assert page.may_translate
    assert page.may_index_images
    limits = (page.max_snippet, page.max_image_preview, page.max_video_preview_s, page.unavailable_after)
    assert limits == (None, None, None, None)
    assert not page.truncated


def test_the_more_restrictive_directive_holds() -> None:
    expected = {
        "NOINDEX": (False, True, True),
        "NOFOLLOW": (True, False, True),
        "NOARCHIVE": (True, True, False),
        "INDEX, FOLLOW": (True, True, True),
        "ALL": (True, True, True),
        "NONE": (False, False, True),
        "none": (False, False, True),
        "noindex,nofollow": (False, False, True),
        "INDEX,NOINDEX,NOFOLLOW,FOLLOW,FOLLOW": (False, False, True),
        "all, none": (False, False, True),
        "noindex, index": (False, True, True),
        "nocache": (True, True, False),
        "": (True, True, True),
        "do as you like": (True, True, True),
    }
    assert {content: answers(of_meta(content)) for content in expected} == expected
    assert {content: answers(of_header(content)) for content in expected} == expected


def test_several_metas_and_headers_combine() -> None:
    assert answers(of_meta("noindex", "nofollow")) == (False, False, True)
    assert answers(of_header("noindex", "nofollow")) == (False, False, True)
    body = b"<head><meta name=robots content=noindex></head>"
    both = PageDirectives.from_response(HTML | {"X-Robots-Tag": "noarchive"}, body)
    assert answers(both) == (False, True, False)


def test_meta_that_names_the_crawler_adds_to_the_generic_one() -> None:
    head = '<meta name="robots" content="nofollow"><meta name="googlebot" content="noindex">'
    for token in ("Googlebot", "GoogleBot/1.0 (+https://example.com/bot)", ["Googlebot-News", "Googlebot"]):
        assert answers(of_page(head, token)) == (False, False, True)
    for token in ("ExampleBot", "", ["Googlebot-News"]):
        assert answers(of_page(head, token)) == (True, False, True)


@pytest.mark.clause("draft-illyes-repext-00 4")
def test_meta_in_body_counts_only_with_in_body() -> None:
    body = b"<html><head><title>x</title></head><body><p>x</p><meta name=robots content=noindex></body></html>"
    assert PageDirectives.from_response(HTML, body).may_index(NOW)
    assert not PageDirectives.from_response(HTML, body, in_body=True).may_index(NOW)


@pytest.mark.clause("draft-illyes-repext-00 2.1.1")
def test_empty_member_of_robots_tag_adds_and_exempts_nothing() -> None:
    page = of_header("*=noindex, nosnippet; ExampleBot=;", field="Robots-Tag")
    assert not page.may_index(NOW)
    assert not page.may_snippet


@pytest.mark.clause("draft-illyes-repext-00 2.1.1")
def test_members_of_robots_tag_for_others_do_not_count() -> None:
    lines = ("OtherBot=noindex; ExampleBot=nofollow", "examplebot=noarchive")
    assert answers(of_header(*lines, field="Robots-Tag")) == (True, False, False)


def test_indexifembedded_lifts_noindex_of_its_crawler_in_an_iframe_only() -> None:
    page = of_meta("noindex, indexifembedded")
    assert not page.may_index(NOW)
    assert page.may_index(NOW, embedded=True)
    assert of_meta("none,indexifembedded").may_index(NOW, embedded=True)
    assert not of_meta("none,indexifembedded").may_follow
    assert not of_meta("noindex, indexifembedded, unavailable_after: 2010-01-01").may_index(NOW, embedded=True)
    assert not of_header("noindex", "googlebot: indexifembedded").may_index(NOW, embedded=True)


LIMITS: Final[dict[str, dict[str, int | str | None]]] = {
    "max_snippet": {
        "nosnippet": 0,
        "max-snippet:0": 0,
        "max-snippet: 50, max-snippet:20": 20,
        "max-snippet:-1": None,
        "max-snippet:-1, max-snippet:50": 50,
        "max-snippet:lots": None,
        "max-snippet:lots, max-snippet:20": 20,
        "max-snippet:-2": None,
        "max-snippet:5.5": None,
        "max-snippet": None,
        "nosnippet, max-snippet:50": 0,
        "nosnippet, max-snippet:-1": 0,
        "max-snippet:20, max-image-preview:large": 20,
    },
    "max_image_preview": {
        "max-image-preview:none": "none",
        "max-image-preview:LARGE": "large",
        "max-image-preview:large, max-image-preview:standard": "standard",
        "max-image-preview:huge": None,
        "max-image-preview:huge, max-image-preview:large": "large",
    },
    "max_video_preview_s": {
        "max-video-preview:0": 0,
        "max-video-preview:10, max-video-preview:3": 3,
        "max-video-preview:-1": None,
        "max-video-preview:long": None,
    },
}


def test_the_least_limit_counts() -> None:
    for name, limits in LIMITS.items():
        pages = {content: of_meta(content) for content in limits}
        assert {content: getattr(page, name) for content, page in pages.items()} == limits
        for content, page in pages.items():
            assert bool(page.may_snippet) is (name != "max_snippet" or limits[content] != 0), content


def test_page_is_indexed_until_its_date() -> None:
    page = of_header("unavailable_after: 25 Jun 2010 15:00:00 GMT")
    assert page.unavailable_after == JUNE_2010
    assert page.may_index(JUNE_2010 - 1)
    assert not page.may_index(JUNE_2010)
    assert not page.may_index(NOW)
    assert not page.may_index(float("nan"))
    assert page.may_follow


def test_the_earliest_date_counts() -> None:
    page = of_meta("unavailable_after: 2030-01-01", "unavailable_after: 2020-09-21")
    assert page.unavailable_after == page_date("2020-09-21")


def test_all_forms_of_a_date_are_the_same_moment() -> None:
    for text in (
        *("25 Jun 2010 15:00:00 GMT", "Sat, 25 Jun 2010 15:00:00 GMT", "Sat, 25 Jun 2010 08:00:00 PDT"),
        *("Saturday, 25-Jun-10 15:00:00 GMT", "2010-06-25T15:00:00Z", "2010-06-25T15:00:00"),
        *("2010-06-25 17:00+02:00", "20100625T150000Z"),
    ):
        page = of_header(f"unavailable_after: {text}, nofollow")
        assert page_date(text) == page.unavailable_after == JUNE_2010, text
        assert not page.may_follow, text
    for text in ("2010-06-25", "25 Jun 2010", "Fri, 25 Jun 2010", "June 25, 2010", "25 June, 2010"):
        page = of_header(f"unavailable_after: {text}, nofollow")
        assert page.unavailable_after == JUNE_2010 - 15 * 3600, text  # the start of its day


def test_invalid_date_is_ignored() -> None:
    for text in ("", "soon", "2010-13-45", "31 Foo 2010 00:00:00 GMT", "9" * 100, "\0", "é"):
        assert page_date(text) is None, text
        assert of_header(f"unavailable_after: {text}").may_index(NOW), text


def test_images_and_translation_have_their_own_answers() -> None:
    page = of_meta("noimageindex, notranslate")
    assert not page.may_index_images
    assert not page.may_translate
    assert page.may_index(NOW)


def test_unknown_directives_are_kept() -> None:
    head = '<meta name="robots" content="noai, noimageai"><meta name=examplebot content="new:thing">'
    page = of_page(head, "ExampleBot")
    assert [statement.name for statement in page.statements][:2] == ["noai", "noimageai"]
    assert page.named("noai")[0].text == "noai, noimageai"
    assert answers(page) == (True, True, True)


def test_answer_names_the_deciding_statement() -> None:
    page = PageDirectives.from_response(
        [("X-Robots-Tag", "nofollow"), ("X-Robots-Tag", "nosnippet, NoIndex"), ("Content-Type", "text/html")],
        b"<meta name=viewport content=x><meta name=ROBOTS content=NONE>",
    )
    answer = page.may_index(NOW)
    assert not answer.allowed
    assert [(one.field, one.number, one.text) for one in answer.against] == [
        ("X-Robots-Tag", 2, "nosnippet, NoIndex"),
        ("META robots", 2, "NONE"),
    ]
    assert str(answer) == "must not index: X-Robots-Tag 2: nosnippet, NoIndex; META robots 2: NONE"
    assert str(page.may_archive) == "may archive: nothing on the page forbids it"


def test_other_metas_are_read() -> None:
    page = of_page(
        """<meta name="description"
            content="Welcome to Mary's Antiques web site">
        <meta name="keywords"
            content="antiques,mary,furniture,restoration">
        <meta name="revisit-after" content="10 days">"""
    )
    assert page.description == "Welcome to Mary's Antiques web site"
    assert page.keywords == ("antiques", "mary", "furniture", "restoration")
    assert page.revisit_after_days == 10


def test_revisit_after_is_a_number_of_days() -> None:
    days = {"10 days": 10, "1 day": 1, "7": 7, "0": 0, "soon": None, "9" * 9: None, "": None}
    pages = {content: of_page(f'<meta name="Revisit-After" content="{content}">') for content in days}
    assert {content: page.revisit_after_days for content, page in pages.items()} == days


def several_headers() -> list[object]:
    lines = [("Content-Type", "text/html"), ("X-Robots-Tag", "otherbot: noindex"), ("X-Robots-Tag", "nofollow")]
    message = Message()
    for name, value in lines:
        message[name] = value
    return [
        lines,
        iter(lines),
        tuple((name.encode(), value.encode()) for name, value in lines),
        CIMultiDict(lines),
        httpx.Headers(lines),
        httpx.Headers(lines).multi_items(),
        httpx.Headers(lines).raw,
        ScrapyHeaders({"Content-Type": "text/html", "X-Robots-Tag": ["otherbot: noindex", "nofollow"]}),
        ScrapyHeaders({"Content-Type": "text/html", "X-Robots-Tag": ["otherbot: noindex", "nofollow"]}).items(),
        {"content-type": "text/html", "x-robots-tag": ["otherbot: noindex", "nofollow"]},
        {b"Content-Type": b"text/html", b"X-Robots-Tag": [b"otherbot: noindex", b"nofollow"]},
        message.items(),
        message,
    ]


def test_name_of_a_meta_is_read_as_generously_as_its_content() -> None:
    for name in ("robots;otherbot", "\u201crobots\u201d", "'robots'", "robots\u200b", "otherbot, robots"):
        assert not of_page(f'<meta name="{name}" content="\u201cnoindex\u201d">').may_index(NOW), name


def test_headers_are_taken_as_clients_have_them() -> None:
    for headers in several_headers():
        body = b"<meta name=robots content=noarchive>"
        page = PageDirectives.from_response(cast("Headers", headers), body, "ExampleBot")
        assert answers(page) == (True, False, False), type(headers)


def test_header_beyond_the_limit_is_read_up_to_it() -> None:
    page = of_header("noindex, " + "x, " * 40_000 + "nofollow")
    assert answers(page) == (False, True, True)
    assert page.truncated


@pytest.mark.clause("draft-illyes-repext-00 2.1.1")
def test_eight_kibibytes_of_a_header_are_read() -> None:
    for field in ("X-Robots-Tag", "Robots-Tag"):
        page = of_header("x, " * 2_700 + "noindex", field=field)
        assert not page.may_index(NOW)
        assert not page.truncated


def test_long_list_is_read_up_to_the_limit_with_any_separator() -> None:
    for separator in (",", ";", " ", ", "):
        text = "noindex" + separator * 70_000 + "nofollow"
        for page in (of_header(text), of_meta(text)):
            assert answers(page) == (False, True, True), separator
            assert page.truncated, separator


def test_several_metas_beyond_the_limit_together_are_read_up_to_it() -> None:
    filling = "x, " * 10_000
    page = of_meta(f"{filling}nofollow", f"{filling}noarchive", f"{filling}noindex", "nosnippet")
    assert answers(page) == (True, False, False)
    assert {one.number for one in page.statements} == {1, 2, 3}  # of the third, what there is room for
    assert len(page.metas) == 4
    assert page.truncated


def test_word_that_the_limit_cuts_is_not_read() -> None:
    line = "x," * 32_761 + " max-snippet:500"
    page = of_header(line)
    assert line.index("500") == 65_535
    assert page.max_snippet is None
    assert page.truncated


def test_page_that_is_cut_in_its_head_is_truncated_and_keeps_its_directives() -> None:
    meta = b"<meta name=robots content="
    body = b"<head>" + meta + b"noindex><!--" + b"x" * 2_000 + b"-->" + meta + b"nofollow></head>"
    page = PageDirectives.from_response(HTML, body, max_bytes=1_000)
    assert answers(page) == (False, True, True)
    assert page.truncated


def test_page_that_is_cut_in_its_body_is_truncated_only_with_in_body() -> None:
    body = b"<head><meta name=robots content=noindex></head><body>" + b"x" * 2_000
    assert not PageDirectives.from_response(HTML, body, max_bytes=1_000).truncated
    assert PageDirectives.from_response(HTML, body, max_bytes=1_000, in_body=True).truncated


def test_other_media_types_speak_by_headers_only() -> None:
    for content_type in ("application/pdf", "text/plain", "image/png", "application/rss+xml"):
        headers = {"Content-Type": content_type, "X-Robots-Tag": "noarchive"}
        page = PageDirectives.from_response(headers, b"<meta name=robots content=noindex>")
        assert answers(page) == (True, True, False), content_type


def test_headers_are_read_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "selectolax.lexbor", None)
    headers = HTML | {"X-Robots-Tag": "noindex"}
    assert not PageDirectives.from_response(headers, None).may_index(NOW)
    with pytest.raises(ImportError, match=r"pip install '\.\[html\]'"):
        PageDirectives.from_response(headers, b"<meta name=robots content=none>")


def said(directives: Iterable[Directive]) -> str:
    """Write directives as ``scope: name=value | name``."""
    words = ((f"{one.scope}: " * bool(one.scope), one.name, f"={one.value}" * bool(one.value)) for one in directives)
    return " | ".join(map("".join, words))


SATURDAY: Final = "Sat, 25 Jun 2010 15:00:00 GMT"
RFC_850: Final = "Saturday, 25-Jun-10 15:00:00 GMT"
LINES: Final = {
    "noindex": "noindex",
    "NoIndex, NOFOLLOW": "noindex | nofollow",
    "googlebot: nofollow": "googlebot: nofollow",
    "noindex/nofollow": "noindex | nofollow",
    "noindex|nofollow+noarchive": "noindex | nofollow | noarchive",
    "noindex\uff0cnofollow": "noindex | nofollow",
    "\u201cnoindex, nofollow\u201d": "noindex | nofollow",
    "[noindex, nofollow.]": "noindex | nofollow",
    "otherbot: noindex/": "otherbot: noindex",
    "some/thing": "some/thing",
    "googlebot: nofollow, otherbot: noindex, nofollow": "googlebot: nofollow | otherbot: noindex | otherbot: nofollow",
    "noindex, otherbot: nofollow": "noindex | otherbot: nofollow",
    "OtherBot/2.1: noindex": "otherbot: noindex",
    "otherbot:noindex,*:nofollow": "otherbot: noindex | nofollow",
    "robots: noindex": "noindex",
    "otherbot: noai": "otherbot: noai",
    # These four are directives, never the names of crawlers.
    "unavailable_after: 25 Jun 2010 15:00:00 PST, noindex": "unavailable_after=25 Jun 2010 15:00:00 PST | noindex",
    "max-snippet: 50, noindex": "max-snippet=50 | noindex",
    "max-image-preview: large, noindex": "max-image-preview=large | noindex",
    "max-video-preview:-1, noindex": "max-video-preview=-1 | noindex",
    "otherbot: max-snippet:5, noindex": "otherbot: max-snippet=5 | otherbot: noindex",
    # The comma in a date does not split the list.
    f"unavailable_after: {SATURDAY}, nofollow": f"unavailable_after={SATURDAY} | nofollow",
    f"a: unavailable_after: {RFC_850}, nofollow": f"a: unavailable_after={RFC_850} | a: nofollow",
    "unavailable_after: June 25, 2010, nofollow": "unavailable_after=June 25, 2010 | nofollow",
    "unavailable_after: Friday, Jun. 25, 2010 15:00 noindex": "unavailable_after=Friday, Jun. 25, 2010 15:00 | noindex",
    "unavailable_after: 25 June, 2010; noindex": "unavailable_after=25 June, 2010 | noindex",
    "unavailable_after: June 25, noindex": "unavailable_after=June 25 | noindex",
    "unavailable_after: 25 Jun 2010, 7": "unavailable_after=25 Jun 2010 | 7",
    # Several crawlers share a scope.
    "examplebot, googlebot: noindex": "examplebot: noindex | googlebot: noindex",
    "a/1.0, b; c: max-snippet:5, d: nofollow": "a: max-snippet=5 | b: max-snippet=5 | c: max-snippet=5 | d: nofollow",
    "a: noindex, b, c: nofollow": "a: noindex | b: nofollow | c: nofollow",
    "a, *: noindex": "noindex",
    "a: noindex, somethingnew, other": "a: noindex | a: somethingnew | a: other",
    "somethingnew, noindex, a: nofollow": "somethingnew | noindex | a: nofollow",
    "unavailable_after: 2020-09-21T15:00:00Z": "unavailable_after=2020-09-21T15:00:00Z",
    "unavailable_after: Sat, noindex": "unavailable_after=Sat | noindex",
    "unavailable_after: Sat": "unavailable_after=Sat",
    "noai, noimageai": "noai | noimageai",
    "somethingnew": "somethingnew",
    "": "",
    " ,, ;": "",
}


def test_line_is_read_with_its_scopes() -> None:
    assert {line: said(parse_scoped(line)) for line in LINES} == LINES


ODD: Final = [
    *("noindex; nofollow", "noindex nofollow", "noindex,\xa0nofollow", '"noindex, nofollow"'),
    *("'noindex','nofollow'", "no-index, no_follow", "noindex: nofollow", "max-snippet: 5 noindex nofollow"),
    *("max_snippet=5, noindex, nofollow", "unavailable_after: 2020-09-21 noindex, nofollow"),
    *("unavailable_after: Sat, 25 Jun 2010 15:00:00 GMT noindex, nofollow", "noindex, \0\x80garbage, nofollow"),
    "nofollow max-snippet:5, noindex",
]
NO_SCOPES: Final = [
    *("goo gle bot: noindex", ": noindex", "<bot>: noindex", "b\xf6t: noindex"),
    *("https://example.com/bot: noindex", "a, b c: noindex", "one: two: noindex"),
    *("otherbot: nofollow, b c: noindex", "max-whatever: 5, noindex", "max-whatever: yes, noindex"),
    *("whatever: 5, noindex", "whatever: -1, noindex", "expires: Sat, 25 Jun 2010 15:00:00 GMT, noindex"),
    "otherbot: nofollow, 15:00:00: noindex",
]


def test_odd_spellings_still_restrict_everybody() -> None:
    both = {Directive("noindex"), Directive("nofollow")}
    assert [line for line in ODD if not both <= set(parse_scoped(line))] == []


def test_invalid_crawler_name_is_no_scope() -> None:
    assert [line for line in NO_SCOPES if Directive("noindex") not in set(parse_scoped(line))] == []


def test_directives_of_more_crawlers_than_are_kept_address_all() -> None:
    assert said(parse_scoped(", ".join(f"bot{number}" for number in range(21)) + ": noindex")) == "noindex"


def test_meta_has_no_scopes() -> None:
    assert Directive("noindex") in set(parse_unscoped("otherbot: noindex"))


@pytest.mark.clause("draft-illyes-repext-00 2.1.1")
def test_members_are_read_by_their_names() -> None:
    members = {
        "*=noindex, nosnippet; ExampleBot=;": "noindex | nosnippet",
        "ExampleBot=noindex, nofollow; *=nosnippet": "examplebot: noindex | examplebot: nofollow | nosnippet",
        "noindex, nofollow": "noindex | nofollow",
        "=noindex": "noindex",
        "a b=noindex": "a | b | noindex",
        "noindex=1": "noindex | 1",
        "ExampleBot=max-snippet:5": "examplebot: max-snippet=5",
        f"A=unavailable_after: {SATURDAY}, noindex": f"a: unavailable_after={SATURDAY} | a: noindex",
        "max-snippet=5; noindex": "max-snippet=5 | noindex",
        "": "",
    }
    assert {line: said(parse_members(line)) for line in members} == members


def test_statement_shows_its_place() -> None:
    statement = DirectiveStatement(Directive("noindex"), "X-Robots-Tag", 2, "noindex\x1b[31m" + "x" * 500)
    assert str(statement).startswith("X-Robots-Tag 2: noindex\\x1b[31mxxx")
    assert len(str(statement)) < 300
