"""What is judged against what aiohttp's URL library would send."""

import re

import yarl
from hypothesis import given, settings
from hypothesis import strategies as st

from politesse.origin import split
from politesse.robots import Dialect
from tests.fuzz.urls import TARGET
from tests.rules.properties.strategies import ABSOLUTE_URLS

HOSTS = st.builds("http://{}{}/".format, st.text(min_size=1, max_size=6), st.sampled_from(["", ".com", ".Ex.", ":81"]))
STARTS = st.sampled_from(["", "/", "//", "http://", "https://example.com", "http://h:80?", "http://u@h/", "ftp://h/"])
ANYTHING = st.builds("{}{}".format, STARTS, st.text(st.characters(exclude_categories=()), max_size=200))

# yarl sends some things otherwise than they are written: it drops a "?" with nothing behind it, escapes brackets in a
# path, unescapes reserved characters, and writes "+" for a blank in a query. RFC 3986 6.2.2.2 and RFC 9309 2.2.2 tell
# those forms apart, and a client that sends what is written exists: whoever sends through yarl asks about yarl's form.
AUTHORITY = re.compile(r"[^:]*://[^/?#]*")
REWRITTEN = re.compile(r"[\[\] ]|%(?:21|26|27|28|29|2C|3A|3B|3D|40)|\?(?=#|\Z)", re.IGNORECASE)


def normalise_target(target: str) -> str:
    return Dialect.RFC9309.traits.matching.form.of_target(target)[0]


@settings(max_examples=8_000)
@given(ABSOLUTE_URLS | HOSTS | ANYTHING)
def test_the_origin_names_itself_and_is_the_server_that_aiohttp_would_connect_to(url: str) -> None:
    TARGET.check(url.replace("\n", "").encode("utf-8", "surrogatepass"))


@settings(max_examples=4_000)
@given(ABSOLUTE_URLS)
def test_the_target_that_is_judged_is_in_normal_form_and_is_what_aiohttp_would_send(url: str) -> None:
    try:
        origin, target = split(url)
        normal, sent = normalise_target(target), yarl.URL(url)
    except ValueError:
        return
    assert normalise_target(normal) == normal
    assert normal.isascii()
    assert normal.startswith("/")
    origin_sent, target_sent = split(str(sent))
    assert origin_sent == origin
    if REWRITTEN.search(AUTHORITY.sub("", url, count=1)) is None:
        assert normal == normalise_target(target_sent) == normalise_target(sent.raw_path_qs)
