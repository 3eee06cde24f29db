"""Whatever a page says, it never raises, never takes long, and never allows more for saying more."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser, LexborNode

from politesse.page import PageDirectives, followable_links, read_html
from politesse.page.directives import MAX_OCTETS, PLAIN, Directive, parse_members, parse_scoped, parse_unscoped
from politesse.page.html import MAX_BYTES
from politesse.page.preferences import header_usage
from politesse.usage import License
from tests.support.tiers import first_of

NOW: Final = 1_800_000_000.0
HTML: Final = [("Content-Type", "text/html")]
BASE: Final = "https://example.com/a"

VALUES: Final = ["0", "-1", "1", "50", "99999999999", "lots", "none", "standard", "large", ""]
NAMES: Final = ["max-snippet", "max-video-preview", "max-image-preview"]
DATES: Final = ["2020-09-21", "2999-01-01", "soon", "Sat, 25 Jun 2010"]
DIRECTIVES: Final = (
    st.sampled_from(sorted(PLAIN))
    | st.builds("{}:{}".format, st.sampled_from(NAMES), st.sampled_from(VALUES))
    | st.builds("unavailable_after: {}".format, st.sampled_from(DATES))
)
LISTS: Final = st.lists(DIRECTIVES, max_size=5)
LINES: Final = st.lists(
    st.tuples(
        st.sampled_from(["X-Robots-Tag", "Robots-Tag"]),
        LISTS.map(", ".join) | st.text(max_size=40) | st.builds("{}: {}".format, st.text(max_size=9), DIRECTIVES),
    ),
    max_size=5,
)


def permissions(page: PageDirectives) -> list[float]:
    """Return every answer as a number that is greater the more it allows."""
    sizes = ["none", "standard", "large", None]
    may = (page.may_index(NOW), page.may_follow, page.may_archive, page.may_snippet)
    limits = (page.max_snippet, page.max_video_preview_s, page.unavailable_after)
    return [
        *map(bool, (*may, page.may_translate, page.may_index_images)),
        *(float("inf") if limit is None else limit for limit in limits),
        sizes.index(page.max_image_preview),
    ]


def allows_no_more(more: PageDirectives, less: PageDirectives) -> bool:
    pairs = zip(permissions(more), permissions(less), strict=True)
    return all(after <= before for after, before in pairs)


@settings(max_examples=1_000)
@given(lines=LINES, line=LINES, at=st.integers(0, 5))
def test_one_more_line_never_allows_more(lines: list[tuple[str, str]], line: list[tuple[str, str]], at: int) -> None:
    before = PageDirectives.from_response(lines, None, "ExampleBot")
    after = PageDirectives.from_response([*lines[:at], *line, *lines[at:]], None, "ExampleBot")
    assert allows_no_more(after, before)


@settings(max_examples=1_000)
@given(directives=LISTS, added=DIRECTIVES, at=st.integers(0, 5))
def test_one_more_directive_in_a_list_never_allows_more(directives: list[str], added: str, at: int) -> None:
    longer = ", ".join([*directives[:at], added, *directives[at:]])
    for make in (_of_header, _of_members, _of_meta):
        assert allows_no_more(make(longer), make(", ".join(directives)))


@settings(max_examples=1_000)
@given(directives=LISTS, garbage=st.text(max_size=30) | st.text("a:=;, -\"'05", max_size=12))
@example(directives=["noindex"], garbage="unavailable_after: ")
def test_garbage_after_a_list_never_allows_more(directives: list[str], garbage: str) -> None:
    line = ", ".join(directives)
    for make in (_of_header, _of_members):
        assert allows_no_more(make(f"{line}, {garbage}"), make(line))


@settings(max_examples=1_000)
@given(garbage=st.text(max_size=20) | st.text("a:=;, -\"'05", max_size=12))
def test_statement_for_every_agent_survives_preceding_lines(garbage: str) -> None:
    for line in (f"{garbage}, robots: noindex", f"{garbage},\nnoindex"):
        found = {one.name for one in parse_scoped(line)}
        assert "noindex" in found
    assert Directive("noindex") in set(parse_unscoped(f"{garbage}, noindex"))


def _of_header(line: str) -> PageDirectives:
    return PageDirectives.from_response([("X-Robots-Tag", line)], None, "ExampleBot")


def _of_members(line: str) -> PageDirectives:
    return PageDirectives.from_response([("Robots-Tag", line)], None, "ExampleBot")


def _of_meta(content: str) -> PageDirectives:
    return PageDirectives.from_response(HTML, f'<meta name=robots content="{content}">'.encode(), "ExampleBot")


PIECES: Final = [
    *("<meta", " name=robots", " content=", "noindex", "<a href=", "x", "'", '"', ">", "/>", "</", "=", "&amp;"),
    *("&#0;", "é", " ", "<", "<base href=", "http://", "//[", "<!--", "-->", "--!>", "<!-->", "<!", "<?", "<script>"),
    *("</script>", "<style>", "</style>", "<title>", "</title>", "<textarea>", "</textarea>", "<html>", "<body>"),
    *("</body>", "</head>", "<br>", "<p>", "</p>", "<template>", "</template>", "<link>", "<div data-nosnippet"),
    *("<meta name=a>", "<meta name=b/>"),
]
MARKUP: Final = st.lists(
    st.sampled_from([*PIECES, "<head>", "<noscript>", "</noscript>", "\0", "\ufeff", "\x80"]), max_size=30
).map("".join)
TREES: Final = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


# What decides whether the content of an element is text or markup, as SCRIPT within SVG, and where browsers differ.
DOUBTFUL: Final = [
    *("<svg>", "</svg>", "<svg/>", "<math>", "</math>", "<foreignObject>", "</foreignObject>", "<desc>", "</desc>"),
    *("<mi>", "</mi>", "<mglyph>", "<annotation-xml>", "<annotation-xml encoding=text/html>", "<g>", "</g>", "<path/>"),
    *("<font>", "<font color=x>", "<![CDATA[", "]]>", "<select>", "</select>", "<option>", "<col>", "<colgroup>"),
    *("<table>", "</table>", "<td>", "</td>", "<b>", "</b>", "<div>", "</div>", "</br>", "<frameset>", "<path d=x/>"),
    *("<script>", "<script/>", "</script>", "</SCRIPT\t>", "<script ", "</script ", "<!---", "--", ">", "-", "<xmp>"),
    *("</xmp>", "<iframe>", "</iframe>", "<noembed>", "</noembed>", "<noframes>", "</noframes>", "<plaintext>"),
    *("<head>", "<noscript>", "</noscript>", "&#32;", "&Tab;", "&nbsp;", "</TITLE >", "<title/>", "<p a='>'>"),
]
DOUBTS: Final = st.lists(st.sampled_from([*PIECES, *DOUBTFUL]) | st.sampled_from(DOUBTFUL), max_size=30)
NUMBERS: Final = st.lists(st.integers(0, 30), min_size=1, max_size=4)


@settings(max_examples=1_000)
@given(
    body=MARKUP.map(str.encode) | MARKUP.map(lambda text: text.encode("utf-16-le")) | st.binary(max_size=300),
    content_type=st.sampled_from(["text/html", "", "text/html; charset=utf-16"]) | st.text(max_size=30),
    max_bytes=st.integers(0, 100),
)
def test_no_body_makes_the_parser_raise(body: bytes, content_type: str, max_bytes: int) -> None:
    headers = [("Content-Type", content_type)]
    for limit in (MAX_BYTES, max_bytes):
        PageDirectives.from_response(headers, body, "ExampleBot", max_bytes=limit, in_body=True).may_index(NOW)
        for url in followable_links(body, BASE, headers=headers, max_bytes=limit):
            assert url.startswith(("http://", "https://"))


@settings(max_examples=3_000)
@given(text=TREES)
@example("<script><!--><script></script><meta name=a>")
@example("<script><!---><script></script><meta name=a>")
@example("<script></\u017fcript><!--</script><meta name=a>")
@example("<style></\u017ftyle><!--</style><meta name=a>")
@example("<title></t\u0131tle><!--</title><meta name=a>")
def test_metas_are_those_of_the_tree_that_browsers_build(text: str) -> None:
    nodes = [node for node in LexborHTMLParser(text).css("meta") if node.attributes.get("name")]
    expected = [(node.attributes["name"], _lies_in_head(node)) for node in nodes]
    of_head, of_both = _contents(text)
    assert [meta.name for meta in of_both.metas if meta.name] == [name for name, _ in expected]
    assert [meta.name for meta in of_head.metas if meta.name] == [name for name, in_head in expected if in_head]


@settings(max_examples=3_000)
@given(pieces=DOUBTS, at=NUMBERS)
@example(["<math>", "<mi>", "<body>", "<mglyph>", "<title>"], [5])
@example(["<math>", "<mi>", "<td>", "<mglyph>", "<style>"], [5])
@example(["<svg>", "<desc>", "<tr>", "<![CDATA[", ">", "<!--", "]]>"], [7])
def test_no_meta_of_the_tree_that_browsers_build_is_missed(pieces: list[str], at: list[int]) -> None:
    for number, place in enumerate(at):
        pieces.insert(place, f"<meta name=m{number}>")
    text = "".join(pieces)
    metas = {f"m{number}" for number in range(len(at))}
    nodes = [node for node in LexborHTMLParser(text).css("meta") if node.attributes.get("name") in metas]
    of_head, of_both = _contents(text)
    if of_both.truncated:  # too many ways to read it, which is told
        return
    assert {node.attributes["name"] for node in nodes} <= {meta.name for meta in of_both.metas}
    assert {node.attributes["name"] for node in nodes if _lies_in_head(node)} <= {meta.name for meta in of_head.metas}


def _contents(text: str) -> list[Any]:
    """Return the metas that are read in HEAD only, and in BODY, too."""
    contents = [read_html(text.encode(), "text/html", in_body=in_body) for in_body in (False, True)]
    assert None not in contents
    return contents


def _lies_in_head(node: LexborNode) -> bool:
    parent = node.parent
    return parent is not None and (parent.tag == "head" or _lies_in_head(parent))


def cut_to(size: int, unit: str) -> bytes:
    return (unit * (size // len(unit) + 1))[:size].encode("latin-1")


def numbered(size: int, unit: str) -> bytes:
    return "".join(unit % number for number in range(size // (len(unit) + 4)))[:size].encode()


HOSTILE: Final[dict[str, Callable[[int], bytes]]] = {
    "tags without an end": lambda size: cut_to(size, "<meta"),
    "metas": lambda size: cut_to(size, "<meta name=robots content=noindex>"),
    "depth": lambda size: cut_to(size, "<div>"),
    "depth of paragraphs": lambda size: cut_to(size // 2, "<div>") + cut_to(size // 2, "<p>"),
    "misnested": lambda size: b"<p>" + numbered(size // 2, "<b i=%d>") + cut_to(size // 2, "<p>x"),
    "attributes": lambda size: b"<meta " + numbered(size - 99, "a%d ") + b">",
    "tags of attributes": lambda size: (b"<meta " + numbered(4_000, "a%d ") + b">") * (size // 4_000),
    "links": lambda size: cut_to(size, "<a href=x>"),
    "links in tables": lambda size: cut_to(size, "<table><a href=x>"),
    "templates": lambda size: cut_to(size, "<template>"),
    "comments": lambda size: cut_to(size, "<!--"),
    "dashes": lambda size: b"<!--" + cut_to(size, "-"),
    "bogus comments": lambda size: cut_to(size, "<!"),
    "less-than signs": lambda size: cut_to(size, "<"),
    "end tags": lambda size: cut_to(size, "</"),
    "quotes": lambda size: cut_to(size, "<a href='\""),
    "open quotes": lambda size: cut_to(size, "<a b=\"<a b='"),
    "scripts": lambda size: cut_to(size, "<script>"),
    "scripts in comments": lambda size: b"<script>" + cut_to(size, "<!--<script></script>"),
    "scripts that may be markup": lambda size: b"<svg><desc><p></desc>" + cut_to(size, "<script><a b='</script>"),
    "noscripts": lambda size: cut_to(size, "<noscript><p>"),
    "noscripts with comments": lambda size: cut_to(size, "<noscript><!--</noscript>"),
    "noscripts that do not end": lambda size: cut_to(size, "<noscript><title><svg>"),
    "selects": lambda size: cut_to(size, "<select><title><style><xmp>"),
    "columns": lambda size: cut_to(size, "<template><col><title><script><svg><textarea>"),
    "depth of SVG": lambda size: cut_to(size // 2, "<svg><g>") + cut_to(size // 2, "</x></p>"),
    "HTML in SVG": lambda size: b"<svg><desc>" + cut_to(size // 2, "<p>") + cut_to(size // 2, "</x></template>"),
    "SVG in HTML in SVG": lambda size: cut_to(size, "<svg><desc><p></b></td>"),
    "integration points that may be open": lambda size: cut_to(size, "<svg><desc><p></i><style><math><mi><b></u><xmp>"),
    "CDATA": lambda size: b"<svg><desc><p></i>" + cut_to(size, "<![CDATA[>"),
    "slashes": lambda size: b"<svg>" + cut_to(size, "<path a='b'/>"),
    "references in head": lambda size: cut_to(size, "&#32<meta>"),
    "titles": lambda size: cut_to(size, "<title></titl"),
    "text in head": lambda size: b"<noscript>" + cut_to(size, "x<i>"),
    "no-breaks": lambda size: cut_to(size, "\0"),
    "entities": lambda size: b"<a href='" + cut_to(size - 99, "&ampamp;&#x") + b"'>",
    "long directives": lambda size: b"<meta name=robots content='" + cut_to(size - 99, "a x,") + b"'>",
    "a long directive": lambda size: b"<meta name=robots content='" + cut_to(size - 99, "a:") + b"'>",
    "long bases": lambda size: b"<base href='/" + cut_to(8_000, "x") + b"/'>" + cut_to(size, "<a href=x>"),
    "dot segments": lambda size: b"<a href='" + cut_to(size - 99, "../") + b"'>",
    "binary": lambda size: bytes(range(256)) * (size // 256),
    "utf-16": lambda size: cut_to(size // 2, "<meta name=a>").decode().encode("utf-16-le"),
    "fragments": lambda size: numbered(size, "<a href=y#%d>"),
    "nothing": lambda _: b"",
}


LONG_S: Final = 0.3
"""A reference that takes longer is measured once: noise is small beside it."""


def seconds(work: Callable[[], object]) -> Iterator[float]:
    """Yield three times how long it takes; of the processor, as the machine may have other things to do."""
    for _ in range(3):
        start = time.process_time()
        work()
        yield time.process_time() - start


def least_s(work: Callable[[], object]) -> float:
    """Return how long a reference takes, at least 10 ms: below that noise would be measured."""
    measured = seconds(work)
    first = next(measured)
    return max(first if first > LONG_S else min(first, *measured), 0.01)


@pytest.mark.parametrize("name", first_of(1, HOSTILE))
def test_time_is_at_most_linear_in_the_body(name: str) -> None:
    def read(octets: bytes) -> None:
        PageDirectives.from_response(HTML, octets, "ExampleBot", in_body=True)
        followable_links(octets, BASE, headers=HTML, max_links=100)

    small, large = HOSTILE[name](65_536), HOSTILE[name](MAX_BYTES)
    # Quadratic would be 64 times as long for 8 times the octets; the floor keeps noise out.
    bound = 25 * least_s(lambda: read(small))
    assert any(one < bound for one in seconds(lambda: read(large)))


@pytest.mark.parametrize("name", first_of(1, HOSTILE))
def test_octets_beyond_the_limit_cost_nothing(name: str) -> None:
    octets = HOSTILE[name](2 * MAX_BYTES)
    bound = 10 * least_s(lambda: PageDirectives.from_response(HTML, octets[:MAX_BYTES]))
    assert any(one < bound for one in seconds(lambda: PageDirectives.from_response(HTML, octets)))


def linked(value: str) -> Iterable[License]:
    return header_usage([("Link", value)], BASE).licenses


UNITS: Final = [
    *("<>;a=b", "a:", "<", ",", "<>;", "a=", ";", "x,", "a: b, ", "Sat, ", "unavailable_after:", "max-snippet: ", "a "),
    *(": ", "<>", '<>;a="', "<a>;rel=license,", '"\\', "<>;=", "<>; \t", '<>;="\\"'),
]


@pytest.mark.parametrize("unit", first_of(1, UNITS))
def test_time_is_at_most_linear_in_a_header(unit: str) -> None:
    for parse in (parse_scoped, parse_unscoped, parse_members, linked):

        def read(size: int, parse: Callable[[str], Iterable[object]] = parse) -> None:
            for _ in parse(unit * (size // len(unit))):
                pass

        bound = 25 * least_s(lambda: read(MAX_OCTETS // 8))
        assert any(one < bound for one in seconds(lambda: read(MAX_OCTETS))), parse


def test_ten_megabytes_of_metas_count_as_a_truncated_page() -> None:
    page = PageDirectives.from_response(HTML, b"<meta name=robots content=noindex>" * 300_000)
    assert not page.may_index(NOW)
    assert page.truncated
    assert len(page.metas) <= 4_096
    assert len(page.statements) <= 4_096
