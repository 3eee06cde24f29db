"""The targets of redirects; for real connections see tests/wire/fetch/test_fetch_requests.py."""

import pytest

from politesse.fetch import Hops
from politesse.origin import Origin
from politesse.ports import FaultKind, FetchFault, FetchRequest


def _hops(*seen: str) -> Hops:
    hops = Hops(FetchRequest(Origin.of("http://a"), max_redirects=5))
    hops.seen.extend(seen)
    return hops


def _led_to(hops: Hops, location: str) -> str:
    answer = hops.redirect(301, location)
    assert not isinstance(answer, FetchFault), answer
    origin, url = answer
    assert url.startswith(str(origin))
    return url


def _refused(hops: Hops, location: str) -> FaultKind:
    answer = hops.redirect(301, location)
    assert isinstance(answer, FetchFault)
    return answer.kind


@pytest.mark.clause("RFC 3986 5.4")
@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("g", "http://a/b/c/g"),
        ("./g", "http://a/b/c/g"),
        ("g/", "http://a/b/c/g/"),
        ("/g", "http://a/g"),
        ("//g", "http://g/"),  # RFC 3986 6.2.3
        ("?y", "http://a/b/c/d;p?y"),
        ("g?y", "http://a/b/c/g?y"),
        ("g#s", "http://a/b/c/g"),  # a request has no fragment
        ("g?y#s", "http://a/b/c/g?y"),
        (";x", "http://a/b/c/;x"),
        ("g;x", "http://a/b/c/g;x"),
        ("g;x?y#s", "http://a/b/c/g;x?y"),
        (".", "http://a/b/c/"),
        ("./", "http://a/b/c/"),
        ("..", "http://a/b/"),
        ("../", "http://a/b/"),
        ("../g", "http://a/b/g"),
        ("../..", "http://a/"),
        ("../../g", "http://a/g"),
        ("../../../g", "http://a/g"),
        ("../../../../g", "http://a/g"),
        ("/./g", "http://a/g"),
        ("/../g", "http://a/g"),
        ("g.", "http://a/b/c/g."),
        ("..g", "http://a/b/c/..g"),
        ("./g/.", "http://a/b/c/g/"),
        ("g/../h", "http://a/b/c/h"),
        ("g;x=1/../y", "http://a/b/c/y"),
        ("g?y/../x", "http://a/b/c/g?y/../x"),
        ("http://g/h", "http://g/h"),
        ("http://g/h/../i?j/../k", "http://g/i?j/../k"),
        # Not of the standard: what servers send.
        ("HTTP://a/g", "http://a/g"),
        ("http://user:secret@a/g", "http://a/g"),
        ("/g?a=b%20c&d=e", "http://a/g?a=b%20c&d=e"),
        ("/r%C3%A9.txt", "http://a/r%C3%A9.txt"),
        ("/ré.txt", "http://a/r%C3%A9.txt"),
        ("/with blank.txt", "http://a/with%20blank.txt"),
    ],
)
def test_a_reference_is_resolved_as_in_the_examples_of_the_standard(location: str, url: str) -> None:
    assert _led_to(_hops("http://a/b/c/d;p?q"), location) == url


@pytest.mark.clause("RFC 3986 5.2.2")
@pytest.mark.parametrize("location", ["#s", "robots.txt", "http://a/x/../robots.txt"])
def test_a_redirect_to_the_page_that_it_comes_from_is_a_loop(location: str) -> None:
    assert _refused(_hops(), location) is FaultKind.REDIRECT_LIMIT


@pytest.mark.clause("RFC 3986 5.2.2")
@pytest.mark.parametrize("url", ["http://a/robots.txt?", "http://a/robots.txt;", "http://a/robots.txt??"])
def test_an_empty_query_or_parameter_makes_another_url_and_no_loop(url: str) -> None:
    assert _led_to(_hops(), url) == url
    assert _led_to(_hops(), url.removeprefix("http://a")) == url
    assert _led_to(_hops(), url.removeprefix("http:")) == url
    assert _refused(_hops(url), url) is FaultKind.REDIRECT_LIMIT


@pytest.mark.parametrize(
    "location",
    [
        *["", " ", " \t", " //", "\thttp:x", "/\ud800"],  # says nothing, and so is no loop
        *["/a\tb", "/\t/b", "/\t/../b", "b\t/..", "ht\ttp://b/", "http://a/\x00", "/\x7f"],  # a control character
        *["http://[::1/", "http://[v1.x]/", "//[", "http://a:x/", "//a@/"],  # a broken authority
    ],
)
def test_a_location_that_is_no_url_is_refused(location: str) -> None:
    assert _refused(_hops(), location) is FaultKind.REDIRECT_TARGET
