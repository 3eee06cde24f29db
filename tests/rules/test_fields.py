"""The fields of an answer: how long it is fresh, when to come back, how much is left, and where it redirects to."""

import math
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from politesse._http.freshness import cache_control, freshness_lifetime_s, http_date, iso_date, retry_after_s
from politesse._http.ratelimit import remaining_quota
from politesse.fetch import Hops
from politesse.origin import Origin
from politesse.ports import FaultKind, FetchFault, FetchRequest

# RFC 9110 5.6.7 gives this moment in all three forms.
SPECIMEN_WALL = 784_111_777.0
DATE = "Sun, 06 Nov 1994 08:49:37 GMT"
HOUR_LATER = "Sun, 06 Nov 1994 09:49:37 GMT"
HOUR_EARLIER = "Sun, 06 Nov 1994 07:49:37 GMT"
DAY_LATER = "Mon, 07 Nov 1994 08:49:37 GMT"


def _lifetime(**headers: str) -> float | None:
    """Return the lifetime at the moment of the specimen date; ``cache_control="..."`` is the Cache-Control header."""
    return freshness_lifetime_s({name.replace("_", "-"): value for name, value in headers.items()}, SPECIMEN_WALL)


@pytest.mark.clause("RFC 9309 2.4")
def test_headers_without_a_lifetime_mean_the_default() -> None:
    assert _lifetime() is _lifetime(age="50") is None
    assert _lifetime(date=DATE, last_modified=HOUR_EARLIER, etag='"x"') is None
    values = ["", "public", "private, must-revalidate", ",,;=\"'\\"]
    assert [value for value in values if _lifetime(cache_control=value) is not None] == []


@pytest.mark.clause("RFC 9111 5.2.2.1")
def test_max_age_is_the_lifetime() -> None:
    assert _lifetime(cache_control="max-age=0") == 0.0
    for value in (
        *("max-age=600", "MAX-AGE=600", 'max-age="600"', "public, max-age=600", "max-age=600, public"),
        *("public,max-age=600,immutable", "  max-age=600  ", "max-age=0000600"),
        *('x="no-cache, max-age=5", max-age=600', 'community="UCI", max-age=600'),
    ):
        assert _lifetime(cache_control=value) == 600.0, value


INVALID_SECONDS = ["", "x", "-5", "1.5", "٦٠٠", "6e2"]
NOT_KEPT = ["no-cache", "no-store", "NO-CACHE", "no-store, max-age=9", "max-age=9, no-cache", 'no-cache="set-cookie"']


@pytest.mark.clause("RFC 9111 4.2.1")
@pytest.mark.clause("RFC 9111 5.2.2.4")
@pytest.mark.clause("RFC 9111 5.3")
def test_an_invalid_lifetime_and_none_are_stale_already() -> None:
    for value in (*(f"max-age={value}" for value in (*INVALID_SECONDS, '""')), "max-age", *NOT_KEPT):
        assert _lifetime(cache_control=value, expires=DAY_LATER, date=DATE) == 0.0, value
    for value in ("0", "-1", "", "never", "Thu, 99 Foo 2020 99:99:99 GMT"):
        assert _lifetime(expires=value, date=DATE) == 0.0, value


def test_an_unreadable_age_takes_nothing_off() -> None:
    assert {_lifetime(cache_control="max-age=3600", age=age) for age in INVALID_SECONDS} == {3600.0}


@pytest.mark.clause("RFC 9111 1.2.2")
def test_a_huge_max_age_is_a_very_long_time_and_finite() -> None:
    for digits in ("2147483648", "99999999999", "9" * 4000):
        lifetime = _lifetime(cache_control=f"max-age={digits}")
        assert lifetime is not None
        assert 2**31 <= lifetime < math.inf, digits[:20]


@pytest.mark.clause("RFC 9111 5.2.2.10")
def test_s_maxage_is_for_shared_caches_and_ignored() -> None:
    assert _lifetime(cache_control="s-maxage=10") is None
    assert _lifetime(cache_control="s-maxage=10, max-age=600") == 600.0
    assert _lifetime(cache_control="s-maxage=10", expires=HOUR_LATER, date=DATE) == 3600.0


@pytest.mark.clause("RFC 9111 5.3")
def test_expires_less_date_is_the_lifetime() -> None:
    assert _lifetime(expires=HOUR_LATER, date=DATE) == 3600.0
    assert _lifetime(expires=DAY_LATER, date=HOUR_LATER) == 23 * 3600.0


def test_without_a_usable_date_expires_counts_from_its_receipt() -> None:
    for headers in ({}, {"date": ""}, {"date": "0"}, {"date": "yesterday"}):
        assert _lifetime(expires=HOUR_LATER, **headers) == 3600.0, headers


@pytest.mark.clause("RFC 9111 5.3")
def test_max_age_counts_before_expires() -> None:
    assert _lifetime(cache_control="max-age=60", expires=DAY_LATER, date=DATE) == 60.0
    assert _lifetime(cache_control="max-age=86400", expires="0", date=DATE) == 86_400.0


@pytest.mark.clause("RFC 9111 4.2.1")
def test_first_of_several_values_is_the_lifetime() -> None:
    assert _lifetime(cache_control="max-age=60, public, max-age=3600", date=DATE) == 60.0
    assert _lifetime(cache_control="max-age=3600, max-age=60", date=DATE) == 3600.0
    assert _lifetime(expires=f"{HOUR_LATER}, {DAY_LATER}", date=DATE) == 3600.0
    assert _lifetime(expires=f"{DAY_LATER},{HOUR_LATER}", date=DATE) == 86_400.0


@pytest.mark.clause("RFC 9111 5.1")
def test_first_of_several_ages_counts() -> None:
    assert _lifetime(cache_control="max-age=3600", age="3000, 100") == 600.0


def test_earliest_of_several_dates_counts() -> None:
    for date in (f"{DATE}, {HOUR_EARLIER}", f"{HOUR_EARLIER}, {DATE}"):
        assert _lifetime(cache_control="max-age=7200", date=date) == 3600.0
        assert retry_after_s({"retry-after": DATE, "date": date}, SPECIMEN_WALL) == 3600.0


@pytest.mark.clause("RFC 9111 4.2.3")
def test_age_is_taken_off_the_lifetime() -> None:
    assert _lifetime(cache_control="max-age=3600", age="3000") == 600.0
    assert _lifetime(cache_control="max-age=3600", age=" 3000 ") == 600.0
    assert _lifetime(expires=HOUR_LATER, date=DATE, age="3000") == 600.0


@pytest.mark.clause("RFC 9111 4.2.3")
def test_the_larger_of_age_and_apparent_age_is_taken_off_the_lifetime() -> None:
    for headers, seconds in (
        ({"cache_control": "max-age=7200", "date": HOUR_EARLIER}, 3600.0),
        ({"cache_control": "max-age=7200", "date": HOUR_EARLIER, "age": "600"}, 3600.0),
        ({"cache_control": "max-age=7200", "date": HOUR_EARLIER, "age": "5400"}, 1800.0),
        ({"cache_control": "max-age=7200", "date": HOUR_LATER}, 7200.0),
        ({"cache_control": "max-age=7200", "date": HOUR_LATER, "age": "600"}, 6600.0),
        ({"cache_control": "max-age=7200", "date": "yesterday", "age": "600"}, 6600.0),
        ({"cache_control": "max-age=7200", "date": DATE}, 7200.0),
        ({"cache_control": "max-age=1800", "date": HOUR_EARLIER}, -1800.0),
        ({"expires": DAY_LATER, "date": HOUR_EARLIER}, 24 * 3600.0),
        ({"expires": DAY_LATER, "date": HOUR_EARLIER, "age": "7200"}, 23 * 3600.0),
    ):
        assert _lifetime(**headers) == seconds, headers


def test_a_hostile_cache_control_says_nothing_about_lifetime() -> None:
    for value in (
        *('"' * 50_000, 'a="' * 20_000, "a=" * 20_000, "a , " * 20_000, "," * 100_000, "=" * 100_000),
        *("a" + " " * 100_000, "a" * 100_000, "\udcff\x00\x7f"),
    ):
        assert _lifetime(cache_control=value) is None, value[:20]


def test_a_cache_control_is_read_to_its_end() -> None:
    for before in (
        "," * 65_000,
        "extension=" + "x" * 65_000 + ", ",
        'extension="' + "x, no-store, " * 5_000 + '", ',
        ", ".join(f"extension-{number}={number}" for number in range(3_000)) + ", ",
    ):
        assert cache_control(f"{before}max-age=600") == {"max-age": "600"}
        assert cache_control(f"{before}No-Store") == {"no-store": ""}
        assert _lifetime(cache_control=f"{before}no-cache") == 0.0


@given(
    st.dictionaries(st.sampled_from(["cache-control", "expires", "date", "age", "retry-after"]), st.text(max_size=80)),
    st.floats(0.0, 1e10),
)
def test_no_headers_make_the_lifetime_raise_or_infinite(headers: dict[str, str], now_wall: float) -> None:
    lifetime = freshness_lifetime_s(headers, now_wall)
    assert lifetime is None or math.isfinite(lifetime)
    wait = retry_after_s(headers, now_wall)
    assert wait is None or 0.0 <= wait < math.inf


@pytest.mark.clause("RFC 9110 10.2.3")
def test_retry_after_is_seconds_or_a_date() -> None:
    waits: dict[str, float] = {
        "120": 120.0,
        "0": 0.0,
        " 120 ": 120.0,
        "0120": 120.0,
        "1.5": 1.5,
        "120.": 120.0,
        "120, 240": 240.0,
        "240,120": 240.0,
        "soon, 120": 120.0,
        f"7, {HOUR_LATER}": 3600.0,
        f"{HOUR_LATER}, 7": 3600.0,
        f"{HOUR_LATER}, {DAY_LATER}": 86_400.0,
        HOUR_LATER: 3600.0,
        "Sunday, 06-Nov-94 09:49:37 GMT": 3600.0,
        "Sun Nov  6 09:49:37 1994": 3600.0,
    }
    for headers in ({}, {"date": ""}, {"date": "0"}, {"date": "yesterday"}):
        assert {value: retry_after_s({"retry-after": value, **headers}, SPECIMEN_WALL) for value in waits} == waits


def test_retry_after_as_a_date_counts_from_the_date_of_its_answer() -> None:
    for date, seconds in ((HOUR_EARLIER, 7200.0), (HOUR_LATER, 0.0), (DAY_LATER, 0.0)):
        assert retry_after_s({"retry-after": HOUR_LATER, "date": date}, SPECIMEN_WALL) == seconds, date
        assert retry_after_s({"retry-after": "120", "date": date}, SPECIMEN_WALL) == 120.0, date


def test_an_unreadable_retry_after_says_nothing() -> None:
    values = ["", "soon", "-120", "1.5.5", ".", "1e3", "120s", "soon, later", ",", "٣", "0x10", "\udcff", "x" * 9_999]
    assert [value for value in values if retry_after_s({"retry-after": value}, SPECIMEN_WALL) is not None] == []


def test_blanks_and_commas_cost_no_more_than_their_number() -> None:
    for value in ("5" + " " * 500_000 + "x", "," * 500_000, ", " * 250_000, ", 06 Jan" * 70_000):  # not their square
        assert remaining_quota({"ratelimit-remaining": "5", "ratelimit-reset": value}, 0.0) is None
        assert remaining_quota({"ratelimit-remaining": value, "ratelimit-reset": "5"}, 0.0) is None
        assert retry_after_s({"retry-after": value, "date": value}, 0.0) is None


@pytest.mark.clause("RFC 9110 5.6.7")
def test_all_forms_of_a_date_are_the_same_moment() -> None:
    texts = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994")
    assert [http_date(text) for text in texts] == [SPECIMEN_WALL] * 3
    texts = ("1994-11-06T08:49:37Z", "1994-11-06 08:49:37", "19941106T084937Z")
    assert [iso_date(text) for text in (*texts, " 1994-11-06T09:49:37+01:00 ")] == [SPECIMEN_WALL] * 4


def test_invalid_date_is_none() -> None:
    http_dates = [
        *("", "0", "-1", "never", "1994-11-06T08:49:37Z", "Thu, 99 Foo 2020 99:99:99 GMT"),
        *("Sun, 31 Feb 2021 08:49:37 GMT", "Sun, 06 Nov 1994 25:00:00 GMT", "Sun, 06 Nov 1994 08:49:37 +9999999999"),
        *("Sun, ٠٦ Nov 1994 08:49:37 GMT", "Sun, 06 Nov 99999 08:49:37 GMT", "x" * 100_000, "\x00", "\udcff"),
        "Sun, 06 Nov 1994 08:49:37 GMT" + " " * 100,
    ]
    assert [text for text in http_dates if http_date(text) is not None] == []
    iso_dates = ["", "never", "1994-13-06", "0000-01-01", "1994-11-06" + " " * 100, "1994-11-0\u0666", "\x00"]
    assert [text for text in iso_dates if iso_date(text) is not None] == []


@given(
    st.text(max_size=70) | st.from_regex(r"[A-Z][a-z]{2},? [0-9]{1,3}[ -][A-Za-z]{3}[ -][0-9]{1,6} [0-9:]{1,9} .{1,9}")
)
def test_no_text_makes_the_date_parser_raise(text: str) -> None:
    for moment in (http_date(text), iso_date(text)):
        assert moment is None or math.isfinite(moment)


QUOTA_WALL = 1_800_000_000.0


AHEAD = {"x-ratelimit-remaining": "7", "x-ratelimit-reset": "1799996460", "date": "Fri, 15 Jan 2027 07:00:00 GMT"}
BOTH = {"ratelimit-remaining": "9", "ratelimit-reset": "9", "x-ratelimit-remaining": "1", "x-ratelimit-reset": "60"}
QUOTAS: Final[list[tuple[dict[str, str], tuple[float, float]]]] = [
    ({"ratelimit": '"default";r=50;t=30'}, (50, 30)),
    ({"ratelimit": '"default"; r=50; t=30'}, (50, 30)),
    ({"ratelimit": '"default";t=30;r=50'}, (50, 30)),
    ({"ratelimit": '"default";r=0;t=30'}, (0, 30)),
    ({"ratelimit": '"default";r=5.5;t=3.5'}, (5.5, 3.5)),
    ({"ratelimit": '"default";r=5;t=0'}, (5, 0)),
    ({"ratelimit": '"burst";r=9;t=3, "daily";r=2;t=600'}, (2, 600)),  # the slowest binds
    ({"ratelimit": '"daily";r=2;t=600, "burst";r=9;t=3'}, (2, 600)),
    ({"ratelimit": '"daily";r=1000;t=600, "burst";r=0;t=3'}, (0, 3)),
    ({"ratelimit": "limit=100, remaining=50, reset=30"}, (50, 30)),
    ({"ratelimit": "remaining=50,reset=30"}, (50, 30)),
    ({"ratelimit-limit": "100", "ratelimit-remaining": "50", "ratelimit-reset": "30"}, (50, 30)),
    ({"x-ratelimit-remaining": " 7 ", "x-ratelimit-reset": "60"}, (7, 60)),
    ({"x-ratelimit-remaining": "7", "x-ratelimit-reset": "1800000060"}, (7, 60)),  # a Unix time
    ({"x-ratelimit-remaining": "7", "x-ratelimit-reset": "1700000000"}, (7, 0)),
    (AHEAD, (7, 60)),  # ... of the clock of the server, which its Date shows
    # A policy without its remaining quota.
    ({"ratelimit-policy": '"default";q=100;w=60'}, (100, 60)),
    ({"ratelimit-policy": '"default";q=100;w=60;qu="requests"'}, (100, 60)),
    ({"ratelimit-policy": '"burst";q=10;w=1, "daily";q=100;w=600'}, (100, 600)),
    ({"ratelimit-policy": "10;w=1, 50;w=60"}, (50, 60)),
    ({"ratelimit": '"a";r=50;t=30', "ratelimit-policy": '"a";q=1;w=60'}, (50, 30)),
    ({"ratelimit": '"a";r=50;t=30', "ratelimit-policy": '"a";q=1;w=60, "b";q=1;w=7'}, (1, 7)),
    ({"ratelimit": '"a";r=50', "ratelimit-policy": '"a";q=100;w=60'}, (50, 60)),  # within the window
    ({"ratelimit": "limit=10, remaining=5, reset=3", "ratelimit-policy": "10;w=1, 50;w=60"}, (50, 60)),
    ({"ratelimit": '"default";r=5;t=1800000060'}, (5, 1_800_000_060)),  # never a Unix time
    (BOTH, (1, 60)),
]


def test_remaining_quota_is_read_in_every_form() -> None:
    assert [(headers, remaining_quota(headers, QUOTA_WALL)) for headers, _ in QUOTAS] == QUOTAS


def test_unreadable_quota_is_ignored() -> None:
    values = {
        "ratelimit": [
            *("", "garbage", '"default";r=50', '"default";t=50', '"default";r=-5;t=30', '"default";r=5;t=-30'),
            *('"default";r=5.5.5;t=3.5', '"default";r=nan;t=inf', '"default";r=1e9;t=1e9', "remaining=५, reset=६"),
            *('"default";r=5;t=9999999999999999', "\0" * 2000, "x" * 2000 + ";r=0;t=60"),
        ],
        "ratelimit-policy": [
            *('"default";q=100', '"default";w=60', '"default";q=100;w=60;qu="content-bytes"', '"default";q=many;w=60'),
            "100",
        ],
        "ratelimit-remaining": ["5"],
        "ratelimit-reset": ["5"],
    }
    unreadable: list[dict[str, str]] = [
        *({name: value} for name, listed in values.items() for value in listed),
        {},
        {"content-type": "text/html", "server": "ratelimit"},
        {"ratelimit": '"default";r=5', "ratelimit-policy": '"other";q=soon;w=60'},
        {"ratelimit-remaining": "soon", "ratelimit-reset": "5"},
        {"ratelimit-remaining": "-1", "ratelimit-reset": "5"},
        {"x-ratelimit-remaining": "5", "x-ratelimit-reset": "Sat, 21 Nov 2026 03:45:00 GMT"},
        {"x-ratelimit-remaining": "\u0665", "x-ratelimit-reset": "5"},
        {"ratelimit-remaining": "5", "x-ratelimit-reset": "5"},
    ]
    assert [headers for headers in unreadable if remaining_quota(headers, QUOTA_WALL) is not None] == []


# The targets of redirects; for real connections see tests/wire/fetch/test_fetch_redirects.py.


def _led_to(location: str, *seen: str) -> str | FaultKind:
    """Return where a redirect leads, or the fault that it is."""
    hops = Hops(FetchRequest(Origin.of("http://a"), max_redirects=5))
    hops.seen.extend(seen)
    answer = hops.redirect(301, location)
    if isinstance(answer, FetchFault):
        return answer.kind
    origin, url = answer
    assert url.startswith(str(origin))
    return url


@pytest.mark.clause("RFC 3986 5.4")
def test_a_reference_is_resolved_as_in_the_examples_of_the_standard() -> None:
    references = {
        "g": "http://a/b/c/g",
        "./g": "http://a/b/c/g",
        "g/": "http://a/b/c/g/",
        "/g": "http://a/g",
        "//g": "http://g/",  # RFC 3986 6.2.3
        "?y": "http://a/b/c/d;p?y",
        "g?y": "http://a/b/c/g?y",
        "g#s": "http://a/b/c/g",  # a request has no fragment
        "g?y#s": "http://a/b/c/g?y",
        ";x": "http://a/b/c/;x",
        "g;x": "http://a/b/c/g;x",
        "g;x?y#s": "http://a/b/c/g;x?y",
        ".": "http://a/b/c/",
        "./": "http://a/b/c/",
        "..": "http://a/b/",
        "../": "http://a/b/",
        "../g": "http://a/b/g",
        "../..": "http://a/",
        "../../g": "http://a/g",
        "../../../g": "http://a/g",
        "../../../../g": "http://a/g",
        "/./g": "http://a/g",
        "/../g": "http://a/g",
        "g.": "http://a/b/c/g.",
        "..g": "http://a/b/c/..g",
        "./g/.": "http://a/b/c/g/",
        "g/../h": "http://a/b/c/h",
        "g;x=1/../y": "http://a/b/c/y",
        "g?y/../x": "http://a/b/c/g?y/../x",
        "http://g/h": "http://g/h",
        "http://g/h/../i?j/../k": "http://g/i?j/../k",
        # Not of the standard: what servers send.
        "HTTP://a/g": "http://a/g",
        "http://user:secret@a/g": "http://a/g",
        "/g?a=b%20c&d=e": "http://a/g?a=b%20c&d=e",
        "/r%C3%A9.txt": "http://a/r%C3%A9.txt",
        "/ré.txt": "http://a/r%C3%A9.txt",
        "/with blank.txt": "http://a/with%20blank.txt",
    }
    assert {location: _led_to(location, "http://a/b/c/d;p?q") for location in references} == references


@pytest.mark.clause("RFC 3986 5.2.2")
def test_a_redirect_to_the_page_that_it_comes_from_is_a_loop() -> None:
    for location in ("#s", "robots.txt", "http://a/x/../robots.txt"):
        assert _led_to(location) is FaultKind.REDIRECT_LIMIT, location


@pytest.mark.clause("RFC 3986 5.2.2")
def test_an_empty_query_or_parameter_makes_another_url_and_no_loop() -> None:
    for rest in ("?", ";", "??"):
        url = f"http://a/robots.txt{rest}"
        assert [_led_to(location) for location in (url, url[len("http://a") :], url[len("http:") :])] == [url] * 3
        assert _led_to(url, url) is FaultKind.REDIRECT_LIMIT, url


def test_a_location_that_is_no_url_is_refused() -> None:
    refused = [
        *("", " ", " \t", " //", "\thttp:x", "/\ud800"),  # says nothing, and so is no loop
        *("/a\tb", "/\t/b", "/\t/../b", "b\t/..", "ht\ttp://b/", "http://a/\x00", "/\x7f"),  # a control character
        *("http://[::1/", "http://[v1.x]/", "//[", "http://a:x/", "//a@/"),  # a broken authority
    ]
    found = {location: _led_to(location) for location in refused}
    assert found == dict.fromkeys(refused, FaultKind.REDIRECT_TARGET)
