"""When two URLs count as one, what links refer to, and the default of ``seen``."""

import tracemalloc

from politesse.queue._web import SeenUrls, normal_form, resolved_link, resolved_location

BASE = "https://a.example/dir/page?q=1"


def test_normal_form_is_that_of_rfc_3986_and_its_own_normal_form() -> None:
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


def test_links_refer_to_http_urls_only() -> None:
    links = {
        "other": "https://a.example/dir/other",
        "../up": "https://a.example/up",
        "/abs?x#part": "https://a.example/abs?x",
        "?q=2": "https://a.example/dir/page?q=2",
        "#part": BASE,
        "": BASE,
        " \n/blank\t": "https://a.example/blank",
        "//b.example/x": "https://b.example/x",
        "http://B.example:80/%7Eu?%26": "http://b.example/%7Eu?%26",  # requested as written, but for the origin
        "/a b/é": "https://a.example/a%20b/%C3%A9",
        **dict.fromkeys(("mailto:x", "data:,x", "http:", "http:a", "http://[", "/\udcff")),
    }
    assert {link: resolved_link(BASE, link) for link in links} == links


def test_octets_of_a_location_are_escaped() -> None:
    assert resolved_location(BASE, "/caf\udce9") == "https://a.example/caf%E9"
    assert resolved_location(BASE, "") is None


def test_seen_urls_hold_each_url_once_in_some_120_octets() -> None:
    def urls() -> list[str]:
        return [
            f"https://www.site-{place % 97}.example/some/article-{place}.html?page={place}" for place in range(38_000)
        ]

    tracemalloc.start()
    seen = SeenUrls()
    for url in urls():
        seen.add(url)
    octets = tracemalloc.get_traced_memory()[0] / 38_000
    tracemalloc.stop()
    assert len(seen) == 38_000
    assert octets < 120
    assert all(url in seen for url in urls()[::5_000])
    assert "https://www.site-5.example/" not in seen
    assert 5 not in seen
