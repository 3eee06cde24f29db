"""What is read of a page, in whatever encoding it comes."""

import codecs
from typing import Final

import pytest

from politesse.page.html import MAX_METAS, Html, Link, Meta, is_html, may_be_html, read_html

PAGE = '<head><meta name="description" content="éツ"></head>'


def read(body: bytes | str, content_type: str = "text/html", *, in_body: bool = False, links: bool = False) -> Html:
    octets = body.encode() if isinstance(body, str) else body
    html = read_html(octets, content_type, in_body=in_body, links=links)
    assert html is not None
    return html


def test_metas_are_read_in_their_order() -> None:
    html = read("<meta NAME=a CONTENT='1'><meta charset=utf-8><meta name=' b '><meta name=a content=\"2&amp;3\">")
    assert html.metas == (Meta("a", "1"), Meta("b", ""), Meta("a", "2&3"))
    assert not html.truncated


def test_first_of_two_attributes_with_one_name_counts() -> None:
    assert read("<meta name=a content=1 content=2 politesse-number=7>").metas == (Meta("a", "1"),)


def test_metas_of_body_are_read_on_request() -> None:
    body = "<head><meta name=a content=1></head><body><meta name=b content=2>"
    assert read(body).metas == (Meta("a", "1"),)
    assert read(body, links=True).metas == (Meta("a", "1"),)
    assert read(body, in_body=True).metas == (Meta("a", "1"), Meta("b", "2"))


def test_links_are_read_on_request() -> None:
    body = """<head><base href="/x"><base href="/y"></head><body>
    <a href="a?x=1&copy=2&amp;y" rel="NoFollow  ugc">a</a><a name=n>n</a><link rel=next href=l>
    <map><area href=b rel=ugc,nofollow></map><!-- <a href=no> --><div><a href></div>"""
    html = read(body, links=True)
    assert html.links == (Link("a?x=1&copy=2&y", ("nofollow", "ugc")), Link("b", ("ugc", "nofollow")), Link("", ()))
    assert html.base_href == "/x"
    assert read(body).links == ()


@pytest.mark.parametrize(
    ("octets", "content_type", "encoding"),
    [
        (PAGE.encode(), "text/html", "utf-8"),
        (PAGE.encode(), "text/html; charset=utf-8", "utf-8"),
        (PAGE.encode(), 'text/html;charset="UTF8"', "utf-8"),
        (PAGE.encode(), "text/html; charset=nonsense", "utf-8"),
        (PAGE.encode(), "text/html; charset=punycode", "utf-8"),
        (PAGE.encode(), "text/html; charset=unicode_escape", "utf-8"),
        (PAGE.encode(), "text/html; charset=base64", "utf-8"),
        (PAGE.encode(), "text/html; charset=utf-16", "utf-8"),  # it does not look like it
        (codecs.BOM_UTF8 + PAGE.encode(), "text/html; charset=koi8-r", "utf-8"),  # the mark goes first
        (codecs.BOM_UTF16_LE + PAGE.encode("utf-16-le"), "text/html", "utf-16-le"),
        (codecs.BOM_UTF16_BE + PAGE.encode("utf-16-be"), "text/html", "utf-16-be"),
        (codecs.BOM_UTF32_LE + PAGE.encode("utf-32-le"), "text/html", "utf-32-le"),
        (PAGE.encode("utf-16-le"), "text/html", "utf-16-le"),
        (PAGE.encode("utf-16-be"), "text/html; charset=utf-8", "utf-16-be"),
        (f"<title>{'中' * 200}</title>{PAGE}".encode("utf-16-le"), "text/html; charset=utf-16le", "utf-16-le"),
        (f" \n<title>{'中' * 200}</title>{PAGE}".encode("utf-16-be"), "text/html", "utf-16-be"),
        (f"<!DOCTYPE html><title>一</title>{PAGE}".encode("utf-16-le"), "text/html", "utf-16-le"),  # U+4E00
        (f"words {PAGE}".encode("utf-16-le"), "text/html", "utf-16-le"),  # no markup at the start
        (f"words {PAGE}".encode("utf-16-be"), "text/html", "utf-16-be"),
        (b"\0<html>" + PAGE.encode(), "text/html", "utf-8"),
        (PAGE.encode("gb18030"), "text/html; charset=GB2312", "gb18030"),
        (b"<meta charset=shift_jis>" + "<meta name=description content=ツ>".encode("shift_jis"), "", "shift_jis"),
        (
            b'<meta http-equiv="Content-Type" content="text/html; charset=windows-1252">'
            + "<meta name=description content=é>".encode("cp1252"),
            "text/html",
            "cp1252",
        ),
        (b"<meta charset=latin1>", "text/html", "cp1252"),
        (b"<meta charset=utf-16>", "text/html", "utf-8"),
        (b"<meta charset=koi8-r>", "text/html; charset=cp866", "cp866"),
        (b" " * 1_024 + b"<meta charset=koi8-r>", "text/html", "utf-8"),
    ],
)
def test_encoding_is_found(octets: bytes, content_type: str, encoding: str) -> None:
    html = read(octets, content_type)
    assert html.encoding == encoding
    for meta in html.metas:
        assert meta.content in {"éツ", "ツ", "é"}


@pytest.mark.parametrize(
    ("label", "encoding"),
    [
        *[(label, "cp932") for label in ("windows-31j", "MS932", "ms_kanji")],
        *[(label, "cp949") for label in ("windows-949", "ks_c_5601-1989", "cp949", "uhc")],
        *[("x-sjis", "shift_jis"), ("x-euc-jp", "euc_jp"), ("x-gbk", "gbk"), ("x-x-big5", "big5")],
        *[("Big5-HKSCS", "big5hkscs"), ("windows-874", "cp874"), ("dos-874", "cp874"), ("x-cp1251", "cp1251")],
        *[("iso-8859-8-i", "iso8859-8"), ("unicode-1-1-utf-8", "utf-8"), ("utf_8", "utf-8"), ("U8", "utf-8")],
        *[("x-mac-roman", "mac-roman"), ("x-mac-cyrillic", "mac-cyrillic"), ("koi8_r", "koi8-r")],
    ],
)
def test_encodings_have_many_names(label: str, encoding: str) -> None:
    # WHATWG Encoding 4.2, "Names and labels"; the last ones are of Python.
    assert read(b"", f"text/html; charset={label}").encoding == encoding
    assert read(f"<meta charset='{label}'>".encode()).encoding == encoding


def test_invalid_octets_are_replaced() -> None:
    assert read(b"<meta name=a content='\xff'>").metas == (Meta("a", "\ufffd"),)


# Media types of HTML, types that say nothing, and other types.
HTML_TYPES: Final = ["text/html", "TEXT/HTML; charset=x", "application/xhtml+xml", "text/plain, text/html"]
NO_TYPES: Final = [
    *("", "html", '"text/html"', "text/html charset=utf-8", "nonsense", "*/*", "unknown/unknown"),
    "application/unknown; x",
]
OTHER_TYPES: Final = [
    *("text/plain", "application/pdf", "image/svg+xml", "text/htmlx", "*/*, image/gif", "text/plain, nonsense")
]
MARKUP: Final = [
    *(b"<html>", b"\xef\xbb\xbf\r\n <!DOCTYPE HTML>", b"<!-- x -->", b'<?xml version="1.0"?>'),
    "<html>".encode("utf-16-le"),
]
NO_MARKUP: Final = [b"%PDF-1.7", b"\x1f\x8b\x08\x00", b"<htmlx>", b"plain", b""]


@pytest.mark.parametrize("content_type", [*HTML_TYPES, *NO_TYPES, *OTHER_TYPES])
def test_html_is_recognised_by_media_type_or_first_octets(content_type: str) -> None:
    assert may_be_html(content_type) is (content_type not in OTHER_TYPES)
    for body in (*MARKUP, *NO_MARKUP):
        expected = content_type in HTML_TYPES or (content_type in NO_TYPES and body in MARKUP)
        assert is_html(body, content_type) is expected, body
        assert (read_html(body, content_type) is not None) is expected, body


def test_number_of_metas_is_bounded() -> None:
    html = read(b"<meta name=a>" * (MAX_METAS + 1))
    assert len(html.metas) == MAX_METAS
    assert html.truncated


def test_of_a_page_half_a_mebibyte_is_read() -> None:
    meta = b"<meta name=m>"
    page = b"<!--".ljust(2**19 - len(meta) - 3, b"x") + b"-->" + meta
    assert (read(page).metas, read(page).truncated) == ((Meta("m", ""),), False)
    assert (read(b" " + page).metas, read(b" " + page).truncated) == ((), True)


def test_meta_with_very_many_attributes_makes_the_reading_a_part() -> None:
    html = read("<meta " + "".join(f"a{number} " for number in range(1_000)) + "name=robots content=noindex>")
    assert html.metas == ()
    assert html.truncated


@pytest.mark.parametrize(
    "body",
    [
        *("<svg><script><meta name=m></script>", "<svg><style><meta name=m></style></svg>"),
        *("<svg><title><meta name=m></title></svg>", "<svg><script/><meta name=m>"),
        *("<svg a='b'/><script></script><meta name=m>", "<math><plaintext><meta name=m>"),
        *("<math><mi><mglyph><textarea><meta name=m>", "<svg><template><meta name=m></template></svg>"),
        "<svg><![CDATA[ > <title> ]]><meta name=m>",
        "<svg><foreignObject><div><p>x</div></foreignObject><title></svg><meta name=m>",
        "<svg><desc><p></desc></p></desc><title></svg><meta name=m>",
        "<table><td><svg><desc><td><title></title><meta name=m>",
        "<div><svg></div><title><!--</title><meta name=m>",
        "<math><annotation-xml encoding='text/html'><title><!--</title><meta name=m>",
        "<math><annotation-xml><svg><desc><title><!--</title><meta name=m>",
        *("<svg><font color=red><title><!--</title><meta name=m>", "<svg><font><title><b><meta name=m>"),
        *("<select><title></select><meta name=m>", "<select><title><!--</title></select><meta name=m>"),
        *("<template><col><title></template><meta name=m>", "<noscript><!--</noscript><meta name=m>"),
        *("<noscript><meta name=m></noscript>", "<svg><noscript><meta name=m>"),
        "<svg><desc><template></p></template></desc><title><meta name=m>",
        "<svg><desc><template><b></p></template></desc><title><meta name=m>",
        *("<table><svg><desc><p></desc></table><title></title><meta name=m>", "<svg></p><![CDATA[<g><meta name=m>"),
    ],
)
def test_meta_is_read_that_a_browser_or_the_standard_sees(body: str) -> None:
    assert Meta("m", "") in read("<body>" + body, in_body=True).metas


@pytest.mark.parametrize(
    "body",
    [
        *("&#32;&Tab;&#x20 \n<meta name=m>", "<noscript><!--</noscript><meta name=m>"),
        *("<noscript><body></noscript><meta name=m>", "<template><svg><title></template><meta name=m>"),
        "<template><svg><template></template><p></svg></template><meta name=m>",
        "<template><svg><desc><template></svg></template></template><meta name=m>",
        "<template><svg><desc><p></desc><template></template><div></template><meta name=m>",
        "<script><!--><script></script><meta name=m>",
    ],
)
def test_meta_of_head_is_read_that_a_browser_or_the_standard_sees(body: str) -> None:
    assert read("<head>" + body).metas == (Meta("m", ""),)


@pytest.mark.parametrize(
    "body",
    [
        "<svg><title>x</title><path d=x/></svg><script><meta name=m></script>",
        "<svg><foreignObject><div>x<br></div></foreignObject><style>a<b</style></svg><script><meta name=m></script>",
        *("<math><mi>x</mi><mo>=</mo></math><style><meta name=m></style>", "<svg/><title><meta name=m></title>"),
        "<select><option>x</select><title><meta name=m></title>",
        "<select><script><meta name=m></script></select>",
        "<svg><desc><template><p><meta name=m></template></desc></svg>",
        "<template><table><col></table></template><title><meta name=m></title>",
        "<svg><desc><![CDATA[<meta name=m>]]></desc></svg>",
    ],
)
def test_meta_is_not_read_where_nothing_sees_one(body: str) -> None:
    assert read("<body>" + body, in_body=True).metas == ()


def test_page_that_can_be_read_in_too_many_ways_is_read_in_part() -> None:
    body = "<body><select>" + "<title>" * 1_000 + "</title>" * 1_000
    assert read(body, in_body=True).truncated
    assert not read(body).truncated  # in HEAD there is no doubt
