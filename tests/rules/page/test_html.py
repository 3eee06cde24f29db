"""What is read of a page, in whatever encoding it comes."""

import codecs
from typing import Final

from politesse.page.html import MAX_METAS, Html, Link, Meta, is_html, may_be_html, read_html
from politesse.page.tags import Scan

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


# Octets of a page and its media type, and the encoding that is found.
ENCODINGS: Final = {
    (PAGE.encode(), "text/html"): "utf-8",
    (PAGE.encode(), "text/html; charset=utf-8"): "utf-8",
    (PAGE.encode(), 'text/html;charset="UTF8"'): "utf-8",
    (PAGE.encode(), "text/html; charset=nonsense"): "utf-8",
    (PAGE.encode(), "text/html; charset=punycode"): "utf-8",
    (PAGE.encode(), "text/html; charset=unicode_escape"): "utf-8",
    (PAGE.encode(), "text/html; charset=base64"): "utf-8",
    (PAGE.encode(), "text/html; charset=utf-16"): "utf-8",  # it does not look like it
    (codecs.BOM_UTF8 + PAGE.encode(), "text/html; charset=koi8-r"): "utf-8",  # the mark goes first
    (codecs.BOM_UTF16_LE + PAGE.encode("utf-16-le"), "text/html"): "utf-16-le",
    (codecs.BOM_UTF16_BE + PAGE.encode("utf-16-be"), "text/html"): "utf-16-be",
    (codecs.BOM_UTF32_LE + PAGE.encode("utf-32-le"), "text/html"): "utf-32-le",
    (PAGE.encode("utf-16-le"), "text/html"): "utf-16-le",
    (PAGE.encode("utf-16-be"), "text/html; charset=utf-8"): "utf-16-be",
    (f"<title>{'中' * 200}</title>{PAGE}".encode("utf-16-le"), "text/html; charset=utf-16le"): "utf-16-le",
    (f" \n<title>{'中' * 200}</title>{PAGE}".encode("utf-16-be"), "text/html"): "utf-16-be",
    (f"<!DOCTYPE html><title>一</title>{PAGE}".encode("utf-16-le"), "text/html"): "utf-16-le",  # U+4E00
    (f"words {PAGE}".encode("utf-16-le"), "text/html"): "utf-16-le",  # no markup at the start
    (f"words {PAGE}".encode("utf-16-be"), "text/html"): "utf-16-be",
    (b"\0<html>" + PAGE.encode(), "text/html"): "utf-8",
    (PAGE.encode("gb18030"), "text/html; charset=GB2312"): "gb18030",
    (b"<meta charset=shift_jis>" + "<meta name=description content=ツ>".encode("shift_jis"), ""): "shift_jis",
    (
        b'<meta http-equiv="Content-Type" content="text/html; charset=windows-1252">'
        + "<meta name=description content=é>".encode("cp1252"),
        "text/html",
    ): "cp1252",
    (b"<meta charset=latin1>", "text/html"): "cp1252",
    (b"<meta charset=utf-16>", "text/html"): "utf-8",
    (b"<meta charset=koi8-r>", "text/html; charset=cp866"): "cp866",
    (b" " * 1_024 + b"<meta charset=koi8-r>", "text/html"): "utf-8",
}


def test_encoding_is_found() -> None:
    found = {row: read(*row) for row in ENCODINGS}
    assert {row: html.encoding for row, html in found.items()} == ENCODINGS
    assert {meta.content for html in found.values() for meta in html.metas} == {"éツ", "ツ", "é"}


def test_encodings_have_many_names() -> None:
    # WHATWG Encoding 4.2, "Names and labels"; the last ones are of Python.
    labels = {
        **dict.fromkeys(["windows-31j", "MS932", "ms_kanji"], "cp932"),
        **dict.fromkeys(["windows-949", "ks_c_5601-1989", "cp949", "uhc"], "cp949"),
        "x-sjis": "shift_jis",
        "x-euc-jp": "euc_jp",
        "x-gbk": "gbk",
        "x-x-big5": "big5",
        "Big5-HKSCS": "big5hkscs",
        **dict.fromkeys(["windows-874", "dos-874"], "cp874"),
        "x-cp1251": "cp1251",
        "iso-8859-8-i": "iso8859-8",
        "unicode-1-1-utf-8": "utf-8",
        "utf_8": "utf-8",
        "U8": "utf-8",
        "x-mac-roman": "mac-roman",
        "x-mac-cyrillic": "mac-cyrillic",
        "koi8_r": "koi8-r",
    }
    assert {label: read(b"", f"text/html; charset={label}").encoding for label in labels} == labels
    assert {label: read(f"<meta charset='{label}'>").encoding for label in labels} == labels


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


def test_html_is_recognised_by_media_type_or_first_octets() -> None:
    for content_type in (*HTML_TYPES, *NO_TYPES, *OTHER_TYPES):
        assert may_be_html(content_type) is (content_type not in OTHER_TYPES), content_type
        for body in (*MARKUP, *NO_MARKUP):
            expected = content_type in HTML_TYPES or (content_type in NO_TYPES and body in MARKUP)
            assert is_html(body, content_type) is expected, (content_type, body)
            assert (read_html(body, content_type) is not None) is expected, (content_type, body)


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


SEEN_IN_BODY: Final = [
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
]
SEEN_IN_HEAD: Final = [
    *("&#32;&Tab;&#x20 \n<meta name=m>", "<noscript><!--</noscript><meta name=m>"),
    *("<noscript><body></noscript><meta name=m>", "<template><svg><title></template><meta name=m>"),
    "<template><svg><template></template><p></svg></template><meta name=m>",
    "<template><svg><desc><template></svg></template></template><meta name=m>",
    "<template><svg><desc><p></desc><template></template><div></template><meta name=m>",
    "<script><!--><script></script><meta name=m>",
]
UNSEEN: Final = [
    "<svg><title>x</title><path d=x/></svg><script><meta name=m></script>",
    "<svg><foreignObject><div>x<br></div></foreignObject><style>a<b</style></svg><script><meta name=m></script>",
    *("<math><mi>x</mi><mo>=</mo></math><style><meta name=m></style>", "<svg/><title><meta name=m></title>"),
    "<select><option>x</select><title><meta name=m></title>",
    "<select><script><meta name=m></script></select>",
    "<svg><desc><template><p><meta name=m></template></desc></svg>",
    "<template><table><col></table></template><title><meta name=m></title>",
    "<svg><desc><![CDATA[<meta name=m>]]></desc></svg>",
]


def test_meta_is_read_that_a_browser_or_the_standard_sees() -> None:
    seen = Meta("m", "")
    assert [body for body in SEEN_IN_BODY if seen not in read("<body>" + body, in_body=True).metas] == []
    assert [body for body in SEEN_IN_HEAD if read("<head>" + body).metas != (seen,)] == []
    assert [body for body in UNSEEN if read("<body>" + body, in_body=True).metas != ()] == []


def test_page_that_can_be_read_in_too_many_ways_is_read_in_part() -> None:
    body = "<body><select>" + "<title>" * 1_000 + "</title>" * 1_000
    assert read(body, in_body=True).truncated
    assert not read(body).truncated  # in HEAD there is no doubt


# Which start tags there are, and what lies in HEAD.
NAMES: Final = frozenset({"meta", "a"})
IN_HEAD: Final = [
    "<meta>",
    "<html><head><meta>",
    "<!doctype html>\n<!-- text --><?xml x?><html><head>\n<title>text <b></title>\n<meta>",
    "<head><style>body{} <b></style><script>if (a<b) {'<p>'}</script><meta>",
    "<head></head>\n<meta>",
    "<head><noscript><img src=x>text<iframe></iframe></noscript><meta>",
    "<head><noscript><meta></noscript>",
    "<head><noscript><body></noscript><meta>",  # where scripts run, a NOSCRIPT holds text
    "<head><template><div>text</div></template><meta>",
    "\ufeff\0<head><meta>",
    "<br>Warning: text<html><head><meta>",
    "<link><base></p></div><meta>",
    "<head><script><!-- document.write('<script></script>') //--></script><meta>",
    "<head><script><!--\nx()\n</script><meta>",
    "<head><script><!-- <script> --></script><meta>",
    "<head><script>x = '<script>'</script><meta>",
    "<script><!--><script></script><meta>",
    "<script><!---><script></script><meta>",
    "<script><!----><script></script><meta>",
    "<script><!-- <!--><script></script><meta>",
    "<script><!-- <script> <!--></script><meta>",
    "<script><!--<script></script>--></script><meta>",
    "<script><!--<SCRIPT/></Script\n></sCript\f/><meta>",
    "<script><!-x<script></script><meta>",
    "<head><!--><meta>",
    "<head><!---><meta>",
    "<head><!-- x --!><meta>",
    "<head></><meta>",
    "<head></ p><meta>",
    "<head><!x p><meta>",
    "<META>",
    "<head><title>x</TITLE ><meta>",
]
IN_BODY: Final = [
    *("<body><meta>", "<head></head><body><meta>", "<head><title>x</title></head>text<meta>", "<head>text<meta>"),
    *("<head>< p><meta>", "<head>1 < 2<meta>", "<p><meta>", "<head><img><meta>", "<head><h1>x</h1></head><meta>"),
    *("<html></html><meta>", "<head></br><meta>", "<frameset><meta>", "<body><head><meta>"),
    *("<body></head><head><meta>", "<body><noscript><meta></noscript>"),
]
NO_META: Final = [
    *("", "meta", "<meta", "<meta name=robots content=noindex", "<!-- <meta> -->", "<!-- <meta>"),
    *("<!-- > <meta> -->", "<title><meta></title>", "<script><meta></script>", "<script><meta>"),
    *("<script></scripty><meta>", "<script><!--<script></script><meta>"),
    *("<script><!--<script></script>--!><meta>", "<script><!--<script><script></script><meta>"),
    *("<script><!--<script></script x><!--<script></script><meta>", "<style><meta></style>"),
    *("<textarea><meta></textarea>", "<xmp><meta></xmp>", "<iframe><meta></iframe>", "<plaintext><meta>"),
    *("<template><meta></template>", "<template><template></template><meta></template>", "<p title='<meta>'>"),
    *('<p title = "<meta>">', '<p title="<meta>', "<metax>", "<meta:x>", "< meta>", "</meta>", "<!meta>"),
    "<?meta>",
]
ATTRIBUTES: Final = {
    "<meta name=robots>": " name=robots",
    "<meta/name=robots/>": "/name=robots/",
    '<meta a="x>y" b=\'">\'>': ' a="x>y" b=\'">\'',
    "<meta\n\tname = robots\n>": "\n\tname = robots\n",
    "<meta a=>": " a=",
    "<meta a= >": " a= ",
    "<meta =x>": " =x",
    "<meta a\"b='c'>": " a\"b='c'",
    "<meta a=b'c>": " a=b'c",
    "<meta a==b>": " a==b",
    "<meta a<b>": " a<b",
}


def test_start_tag_of_a_meta_is_found_in_head_or_in_body() -> None:
    in_head = {**dict.fromkeys(IN_HEAD, (True,)), **dict.fromkeys(IN_BODY, (False,)), **dict.fromkeys(NO_META, ())}
    assert {text: tuple(tag.in_head for tag in Scan(text, NAMES)) for text in in_head} == in_head


def test_tag_ends_as_in_browsers() -> None:
    tags = {text: list(Scan(text + "<p>", NAMES)) for text in ATTRIBUTES}
    assert {text: [(tag.attributes, tag.cut) for tag in found] for text, found in tags.items()} == {
        text: [(attributes, False)] for text, attributes in ATTRIBUTES.items()
    }


def test_of_very_many_attributes_the_first_are_kept() -> None:
    (tag,) = Scan("<meta name=robots " + "".join(f"a{number}=1 " for number in range(1_000)) + ">", NAMES)
    assert tag.attributes.startswith(" name=robots a0=1 ")
    assert tag.attributes.endswith("a254=1")
    assert tag.cut
