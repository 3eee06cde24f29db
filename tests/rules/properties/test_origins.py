"""What is judged against what aiohttp's URL library would send."""

import re

import yarl
from hypothesis import given, settings
from hypothesis import strategies as st

from politesse.errors import InvalidURL
from politesse.origin import Origin, split
from politesse.robots import Dialect
from tests.rules.properties.strategies import ABSOLUTE_URLS
from tests.rules.properties.urls import server_of

normalise_target = Dialect.RFC9309.traits.matching.normalise_target

# yarl sends some things otherwise than they are written: it drops a "?" with nothing behind it, escapes brackets in a
# path, unescapes reserved characters, and writes "+" for a blank in a query. RFC 3986 6.2.2.2 and RFC 9309 2.2.2 tell
# those forms apart, and a client that sends what is written exists: whoever sends through yarl asks about yarl's form.
REWRITTEN = re.compile(r"[\[\] ]|%(?:21|26|27|28|29|2C|3A|3B|3D|40)|\?(?=#|\Z)", re.IGNORECASE)


def _rewritten(url: str) -> bool:
    authority_end = re.match(r"[^:]*://[^/?#]*", url)
    assert authority_end is not None
    return REWRITTEN.search(url, authority_end.end()) is not None


def _both(url: str) -> tuple[tuple[Origin, str], yarl.URL] | None:
    try:
        return split(url), yarl.URL(url)
    except ValueError:
        return None


@settings(max_examples=3_000)
@given(ABSOLUTE_URLS)
def test_the_origin_is_the_server_that_aiohttp_would_connect_to(url: str) -> None:
    if (both := _both(url)) is None:
        return
    (origin, _), sent = both
    assert (origin.scheme, origin.host, origin.port) == server_of(sent)
    assert split(str(sent))[0] == origin


@settings(max_examples=3_000)
@given(st.text(min_size=1, max_size=6), st.sampled_from(("", ".com", ".Example.", ":81")))
def test_any_host_that_both_accept_is_the_same_host(host: str, rest: str) -> None:
    if (both := _both(f"http://{host}{rest}/")) is None:
        return
    (origin, _), sent = both
    assert (origin.scheme, origin.host, origin.port) == server_of(sent)


@settings(max_examples=3_000)
@given(ABSOLUTE_URLS.filter(lambda url: not _rewritten(url)))
def test_the_target_that_is_judged_is_the_target_that_aiohttp_would_send(url: str) -> None:
    if (both := _both(url)) is None:
        return
    (_, target), sent = both
    assert normalise_target(target) == normalise_target(split(str(sent))[1])
    assert normalise_target(target) == normalise_target(sent.raw_path_qs)


@settings(max_examples=2_000)
@given(ABSOLUTE_URLS)
def test_an_origin_names_itself(url: str) -> None:
    try:
        origin = Origin.of(url)
    except InvalidURL:
        return
    assert split(str(origin)) == (origin, "/")
    assert split(origin.robots_url) == (origin, "/robots.txt")


@settings(max_examples=2_000)
@given(ABSOLUTE_URLS)
def test_a_normal_target_is_its_own_normal_form(url: str) -> None:
    try:
        target = normalise_target(split(url)[1])
    except InvalidURL:
        return
    assert normalise_target(target) == target
    assert target.isascii()
    assert target.startswith("/")
