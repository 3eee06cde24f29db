"""Which start tags there are, and what lies in HEAD."""

import pytest

from politesse.page.tags import Scan

NAMES = frozenset({"meta", "a"})


def in_head(text: str) -> list[bool]:
    """Return for each META whether it lies in HEAD."""
    return [tag.in_head for tag in Scan(text, NAMES)]


@pytest.mark.parametrize(
    "text",
    [
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
    ],
)
def test_meta_is_in_head(text: str) -> None:
    assert in_head(text) == [True]


@pytest.mark.parametrize(
    "text",
    [
        *("<body><meta>", "<head></head><body><meta>", "<head><title>x</title></head>text<meta>", "<head>text<meta>"),
        *("<head>< p><meta>", "<head>1 < 2<meta>", "<p><meta>", "<head><img><meta>", "<head><h1>x</h1></head><meta>"),
        *("<html></html><meta>", "<head></br><meta>", "<frameset><meta>", "<body><head><meta>"),
        *("<body></head><head><meta>", "<body><noscript><meta></noscript>"),
    ],
)
def test_meta_is_in_body(text: str) -> None:
    assert in_head(text) == [False]


@pytest.mark.parametrize(
    "text",
    [
        *("", "meta", "<meta", "<meta name=robots content=noindex", "<!-- <meta> -->", "<!-- <meta>"),
        *("<!-- > <meta> -->", "<title><meta></title>", "<script><meta></script>", "<script><meta>"),
        *("<script></scripty><meta>", "<script><!--<script></script><meta>"),
        *("<script><!--<script></script>--!><meta>", "<script><!--<script><script></script><meta>"),
        *("<script><!--<script></script x><!--<script></script><meta>", "<style><meta></style>"),
        *("<textarea><meta></textarea>", "<xmp><meta></xmp>", "<iframe><meta></iframe>", "<plaintext><meta>"),
        *("<template><meta></template>", "<template><template></template><meta></template>", "<p title='<meta>'>"),
        *('<p title = "<meta>">', '<p title="<meta>', "<metax>", "<meta:x>", "< meta>", "</meta>", "<!meta>"),
        "<?meta>",
    ],
)
def test_no_meta_is_seen_where_none_is(text: str) -> None:
    assert in_head(text) == []


@pytest.mark.parametrize(
    ("text", "attributes"),
    [
        ("<meta name=robots>", " name=robots"),
        ("<meta/name=robots/>", "/name=robots/"),
        ('<meta a="x>y" b=\'">\'>', ' a="x>y" b=\'">\''),
        ("<meta\n\tname = robots\n>", "\n\tname = robots\n"),
        ("<meta a=>", " a="),
        ("<meta a= >", " a= "),
        ("<meta =x>", " =x"),
        ("<meta a\"b='c'>", " a\"b='c'"),
        ("<meta a=b'c>", " a=b'c"),
        ("<meta a==b>", " a==b"),
        ("<meta a<b>", " a<b"),
    ],
)
def test_tag_ends_as_in_browsers(text: str, attributes: str) -> None:
    (tag,) = Scan(text + "<p>", NAMES)
    assert tag.attributes == attributes
    assert not tag.cut


def test_of_very_many_attributes_the_first_are_kept() -> None:
    (tag,) = Scan("<meta name=robots " + "".join(f"a{number}=1 " for number in range(1_000)) + ">", NAMES)
    assert tag.attributes.startswith(" name=robots a0=1 ")
    assert tag.attributes.endswith("a254=1")
    assert tag.cut
