"""Which links may be followed."""

import tracemalloc
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yarl import URL

from politesse.errors import InvalidURL
from politesse.page import followable_links
from politesse.queue._web import (
    SeenUrls,
    is_plain,
    is_plain_path,
    normal_form,
    resolved_link,
    resolved_location,
)

BASE = "https://example.com/a/b?c"


def links(*tags: str, head: str = "", **options: object) -> list[str]:
    body = f"<html><head>{head}</head><body>{''.join(tags)}</body></html>".encode()
    return followable_links(body, BASE, **options)  # type: ignore[arg-type]


def test_address_is_made_absolute() -> None:
    addresses = {
        "x": "https://example.com/a/x",
        "/x?y=1&amp;z": "https://example.com/x?y=1&z",
        "../../x": "https://example.com/x",
        "?q": "https://example.com/a/b?q",
        "#top": BASE,
        "": BASE,
        "//other.example/x": "https://other.example/x",
        "HTTP://Other.EXAMPLE:80/x#f": "http://other.example/x",
        "http://user:secret@other.example": "http://other.example/",
        " \n/x\t ": "https://example.com/x",
        "/x\ny": "https://example.com/xy",
        "/a b|c": "https://example.com/a%20b%7Cc",
        "/é": "https://example.com/%C3%A9",
        "/%C3%A9": "https://example.com/%C3%A9",
        "https://é.example/": "https://xn--9ca.example/",
    }
    found = {href: links(f'<a href="{href}">x</a>') for href in addresses}
    assert found == {href: [url] for href, url in addresses.items()}


def test_hostile_address_is_left_out() -> None:
    hostile = [
        *("mailto:a@example.com", "javascript:void(0)", "data:text/html,x", "ftp://example.com/", "tel:1", "http://"),
        *("http://[", "http://[::1", "//[", "http://exa mple/", "http://example.com:port/"),
        *("http://example.com:99999/", "http://a\\b/", "http://\0/", "http://" + "a" * 300, "http://1.2.3/"),
        *("/" + "x" * 9_000, "/" + "é" * 3_000, "http://&#xD800;/", "http://\u2100/"),
    ]
    found = {href: links(f'<a href="{href}">x</a><a href=/ok>') for href in hostile}
    assert found == {href: ["https://example.com/ok"] for href in hostile}


def test_link_that_must_not_be_followed_is_omitted() -> None:
    for rel in (
        *("nofollow", "NoFollow", "ugc", "sponsored", "external ugc", "noopener,nofollow", "nofollow;noopener"),
        *("nofollow|x", "\u201cnofollow\u201d", "x,nofollow", "NOFOLLOW\u00a0ugc"),
    ):
        assert links(f'<a href=/x rel="{rel}">', "<a href=/y rel=noopener>") == ["https://example.com/y"], rel


def test_links_keep_their_order_and_come_once() -> None:
    found = links("<a href=/b>", "<area href=/a>", "<a href=/b#x>", "<a href=https://example.com/a>", "<a href=/c>")
    assert found == ["https://example.com/b", "https://example.com/a", "https://example.com/c"]


def test_link_with_and_without_nofollow_is_followed() -> None:
    assert links("<a href=/x rel=nofollow>", "<a href=/x>") == ["https://example.com/x"]


@pytest.mark.clause("WHATWG HTML 4.2.3")
def test_first_base_goes_before_the_url_of_the_page() -> None:
    bases = {
        "/d/": "https://example.com/d/x",
        "https://other.example/d/e": "https://other.example/d/x",
        "  /d/\n": "https://example.com/d/x",
        "javascript:x": "https://example.com/a/x",
        "data:x": "https://example.com/a/x",
        "http://[": "https://example.com/a/x",
        "": "https://example.com/a/x",
    }
    head = '<base target=_top><base href="{}"><base href="/no/">'
    found = {base: links("<a href=x>", head=head.format(base)) for base in bases}
    assert found == {base: [url] for base, url in bases.items()}


def test_only_absolute_links_survive_a_base_that_is_no_http_url() -> None:
    for base in ("ftp://example.com/", "mailto:x", "/" + "x" * 9_000):
        assert links("<a href=x>", "<a href=http://h/y>", head=f'<base href="{base}">') == ["http://h/y"], base


def test_nofollow_of_the_page_gives_no_links() -> None:
    assert links("<a href=x>", head="<meta name=robots content=nofollow>") == []
    assert links("<a href=x>", head="<meta name=robots content=none>") == []
    assert links("<a href=x>", headers={"X-Robots-Tag": "nofollow"}) == []
    assert links("<a href=x>", headers=iter([("Content-Type", "text/html"), ("X-Robots-Tag", "none")])) == []


def test_nofollow_for_another_crawler_does_not_count() -> None:
    head = "<meta name=otherbot content=nofollow>"
    headers = {"X-Robots-Tag": "otherbot: nofollow"}
    assert links("<a href=x>", head=head, headers=headers, token="ExampleBot") == ["https://example.com/a/x"]
    assert links("<a href=x>", head=head, token="OtherBot") == []


def test_nofollow_in_body_counts_only_with_in_body() -> None:
    tags = ("<meta name=robots content=nofollow>", "<a href=/x>")
    assert links(*tags) == ["https://example.com/x"]
    assert links(*tags, in_body=True) == []


def test_noindex_does_not_forbid_following() -> None:
    assert links("<a href=/x>", head="<meta name=robots content=noindex>") == ["https://example.com/x"]


def test_number_of_links_is_bounded() -> None:
    tags = [f"<a href=/{number}>" for number in range(10)]
    assert links(*tags, max_links=3) == [f"https://example.com/{number}" for number in range(3)]
    assert links(*tags, max_links=0) == []


def test_body_beyond_the_limit_is_not_read() -> None:
    assert links("<a href=/x>", " " * 1_000, "<a href=/y>", max_bytes=500) == ["https://example.com/x"]


def test_other_media_types_have_no_links() -> None:
    assert links("<a href=/x>", headers={"Content-Type": "text/plain"}) == []


def test_url_of_the_page_must_be_one() -> None:
    with pytest.raises(InvalidURL):
        followable_links(b"<a href=x>", "/relative")


def test_addresses_are_joined_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[str] = []

    def urljoin(base: str, href: str) -> str:
        joined.append(base + href)
        return href

    monkeypatch.setattr("politesse.page.links.urljoin", urljoin)
    for base, tag in (
        (f"https://example.com/{'a/' * 4_000}", "<a href={}>"),
        (f"https://example.com/{'a/' * 10_000}", "<a href=../{}>"),  # it makes no URL
        ("https://example.com/", f"<a href=//{'é' * 50}{{}}.example>"),
    ):
        joined.clear()
        body = "".join(tag.format(number) for number in range(4_000)).encode()
        followable_links(body, base, headers={"Content-Type": "text/html"}, max_bytes=2_000_000)
        assert 100 < len(joined) < 3_000, base[:30]


def test_ten_thousand_links_of_an_ordinary_page_are_found() -> None:
    body = "".join(f"<a href=/some/ordinary/path/to/page-{number}.html>" for number in range(11_000)).encode()
    found = followable_links(body, BASE, headers={"Content-Type": "text/html"}, max_bytes=len(body))
    assert len(found) == 10_000


# When two URLs count as one, what a link of PAGE refers to, and the default of `seen`.
PAGE = "https://a.example/dir/page?q=1"


def test_two_urls_of_one_normal_form_count_as_one() -> None:
    forms = {
        "HTTP://A.EXAMPLE/Path": "http://a.example/Path",  # RFC 3986 6.2.2.1
        "https://a.example/%7euser%2dx": "https://a.example/~user-x",  # 6.2.2.2
        "https://a.example/a%2fb": "https://a.example/a%2Fb",  # 6.2.2.1
        "https://a.example/a/./b/../c": "https://a.example/a/c",  # 6.2.2.3
        "https://a.example:443/": "https://a.example/",  # 6.2.3
        "http://a.example:80": "http://a.example/",
        "http://a.example:8080": "http://a.example:8080/",
        "https://a.example": "https://a.example/",
        "https://a.example?q=/": "https://a.example/?q=/",
        "https://a.example/?": "https://a.example/",
        "https://a.example/a#part": "https://a.example/a",
        "https://a.example/a?b=2&a=1&b=1": "https://a.example/a?b=2&a=1&b=1",
        "https://a.example/a/": "https://a.example/a/",
        "https://a.example//a": "https://a.example//a",
        "https://münchen.example/é": "https://xn--mnchen-3ya.example/%C3%A9",
        "https://user@a.example/": "https://user@a.example/",
        "http://[::1]:80/": "http://[::1]/",
    }
    assert {url: normal_form(url) for url in forms} == forms
    assert [form for form in forms.values() if normal_form(form) != form] == []


def test_link_refers_to_a_url_that_is_requested_or_to_none() -> None:
    resolved = {
        "other": "https://a.example/dir/other",
        "../up": "https://a.example/up",
        "/abs?x#part": "https://a.example/abs?x",
        "?q=2": "https://a.example/dir/page?q=2",
        "#part": PAGE,
        "": PAGE,
        " \n/blank\t": "https://a.example/blank",
        "//b.example/x": "https://b.example/x",
        "http://B.example:80/%7Eu?%26": "http://b.example/%7Eu?%26",  # requested as written, but for the origin
        "/a b/é": "https://a.example/a%20b/%C3%A9",
        **dict.fromkeys(["mailto:x", "data:,x", "http:", "http:a", "http://[", "/\udcff"]),
    }
    assert {link: resolved_link(PAGE, link) for link in resolved} == resolved


def test_octets_of_a_location_are_escaped() -> None:
    assert resolved_location(PAGE, "/caf\udce9") == "https://a.example/caf%E9"
    assert resolved_location(PAGE, "") is None


def test_seen_urls_hold_each_url_once_in_some_120_octets() -> None:
    tracemalloc.start()
    seen = SeenUrls()
    for place in range(10_000):
        seen.add(f"https://www.site-{place % 997}.example/some/long/path/of/an/article-{place}.html?page={place}")
    octets = tracemalloc.get_traced_memory()[0] / 10_000
    tracemalloc.stop()
    assert len(seen) == 10_000
    assert octets < 120
    assert "https://www.site-5.example/some/long/path/of/an/article-5.html?page=5" in seen
    assert "https://www.site-5.example/" not in seen
    assert 5 not in seen


PIECES: Final = ["/", ".", "..", "?", "#", "%", ":", "@", "=", "&", ";", "+", ",", "-", "_", "~", "a", "Z7", "%41", "é"]
REFERENCES = st.lists(st.sampled_from(PIECES), max_size=8).map(lambda pieces: "/" + "".join(pieces))
HOSTS = st.sampled_from(["a.example", "1.2.3.4", "xn--mnich-kva.com", "A.example", "u@a.example", "a-b.example"])
SITES = st.builds(
    "{}://{}{}".format, st.sampled_from(["http", "https"]), HOSTS, st.sampled_from(["", ":80", ":443", ":8080"])
)


@settings(max_examples=2_000)
@given(SITES, REFERENCES)
def test_a_link_in_normal_form_is_its_own_target_and_its_own_form(site: str, path: str) -> None:
    """The short way for most links comes to the same URL as the long way."""
    if is_plain(site + path):
        assert str(URL(site + path)) == site + path
        # A reference with two slashes names another host (RFC 3986 4.2).
        link = site + path if path.startswith("//") else path
        assert resolved_link(f"{site}/page?x", link) == site + path
    if is_plain_path(path):
        assert resolved_link("https://example.com/page", path) == f"https://example.com{path}"
