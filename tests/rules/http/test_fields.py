import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from politesse._http.freshness import cache_control, freshness_lifetime_s, http_date, iso_date, retry_after_s
from politesse._http.ratelimit import remaining_quota

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
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"cache-control": ""},
        {"cache-control": "public"},
        {"cache-control": "private, must-revalidate"},
        {"age": "50"},
        {"date": DATE, "last-modified": HOUR_EARLIER, "etag": '"x"'},
        {"cache-control": ",,;=\"'\\"},
    ],
)
def test_headers_without_a_lifetime_mean_the_default(headers: dict[str, str]) -> None:
    assert freshness_lifetime_s(headers, SPECIMEN_WALL) is None


@pytest.mark.clause("RFC 9111 5.2.2.1")
@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("max-age=600", 600.0),
        ("max-age=0", 0.0),
        ("MAX-AGE=600", 600.0),
        ('max-age="600"', 600.0),
        ("public, max-age=600", 600.0),
        ("max-age=600, public", 600.0),
        ("public,max-age=600,immutable", 600.0),
        ("  max-age=600  ", 600.0),
        ('x="no-cache, max-age=5", max-age=600', 600.0),
        ('community="UCI", max-age=600', 600.0),
        ("max-age=0000600", 600.0),
    ],
)
def test_max_age_is_the_lifetime(value: str, seconds: float) -> None:
    assert _lifetime(cache_control=value) == seconds


INVALID_SECONDS = ["", "x", "-5", "1.5", "٦٠٠", "6e2"]
NOT_KEPT = ["no-cache", "no-store", "NO-CACHE", "no-store, max-age=9", "max-age=9, no-cache", 'no-cache="set-cookie"']


@pytest.mark.clause("RFC 9111 4.2.1")
@pytest.mark.clause("RFC 9111 5.2.2.4")
@pytest.mark.clause("RFC 9111 5.3")
@pytest.mark.parametrize(
    "headers",
    [
        *({"cache_control": f"max-age={value}", "expires": DAY_LATER} for value in (*INVALID_SECONDS, '""')),
        *({"cache_control": value, "expires": DAY_LATER} for value in ("max-age", *NOT_KEPT)),
        *({"expires": value} for value in ("0", "-1", "", "never", "Thu, 99 Foo 2020 99:99:99 GMT")),
    ],
)
def test_an_invalid_lifetime_and_none_are_stale_already(headers: dict[str, str]) -> None:
    assert _lifetime(date=DATE, **headers) == 0.0


@pytest.mark.parametrize("age", INVALID_SECONDS)
def test_an_unreadable_age_takes_nothing_off(age: str) -> None:
    assert _lifetime(cache_control="max-age=3600", age=age) == 3600.0


@pytest.mark.clause("RFC 9111 1.2.2")
@pytest.mark.parametrize("digits", ["2147483648", "99999999999", "9" * 4000], ids=["2**31", "11 digits", "4000 digits"])
def test_a_huge_max_age_is_a_very_long_time_and_finite(digits: str) -> None:
    lifetime = _lifetime(cache_control=f"max-age={digits}")
    assert lifetime is not None
    assert 2**31 <= lifetime < math.inf


@pytest.mark.clause("RFC 9111 5.2.2.10")
def test_s_maxage_is_for_shared_caches_and_ignored() -> None:
    assert _lifetime(cache_control="s-maxage=10") is None
    assert _lifetime(cache_control="s-maxage=10, max-age=600") == 600.0
    assert _lifetime(cache_control="s-maxage=10", expires=HOUR_LATER, date=DATE) == 3600.0


@pytest.mark.clause("RFC 9111 5.3")
def test_expires_less_date_is_the_lifetime() -> None:
    assert _lifetime(expires=HOUR_LATER, date=DATE) == 3600.0
    assert _lifetime(expires=DAY_LATER, date=HOUR_LATER) == 23 * 3600.0


@pytest.mark.parametrize("date", ["", "0", "yesterday"])
def test_without_a_usable_date_expires_counts_from_its_receipt(date: str) -> None:
    assert _lifetime(expires=HOUR_LATER, date=date) == 3600.0
    assert _lifetime(expires=HOUR_LATER) == 3600.0


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
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
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
    ],
)
def test_the_larger_of_age_and_apparent_age_is_taken_off_the_lifetime(headers: dict[str, str], seconds: float) -> None:
    assert _lifetime(**headers) == seconds


@pytest.mark.parametrize(
    "value",
    [
        '"' * 50_000,
        'a="' * 20_000,
        "a=" * 20_000,
        "a , " * 20_000,
        "," * 100_000,
        "=" * 100_000,
        "a" + " " * 100_000,
        "a" * 100_000,
        "\udcff\x00\x7f",
    ],
    ids=["quotes", "open quotes", "assignments", "lists", "commas", "equal signs", "blanks", "one name", "octets"],
)
def test_a_hostile_cache_control_says_nothing_about_lifetime(value: str) -> None:
    assert _lifetime(cache_control=value) is None


@pytest.mark.parametrize(
    "before",
    [
        "," * 65_000,
        "extension=" + "x" * 65_000 + ", ",
        'extension="' + "x, no-store, " * 5_000 + '", ',
        ", ".join(f"extension-{number}={number}" for number in range(3_000)) + ", ",
    ],
    ids=["commas", "value", "quoted value", "directives"],
)
def test_a_cache_control_is_read_to_its_end(before: str) -> None:
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
@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        *(("120", 120.0), ("0", 0.0), (" 120 ", 120.0), ("0120", 120.0)),
        *(("1.5", 1.5), ("120.", 120.0), ("120, 240", 240.0), ("240,120", 240.0), ("soon, 120", 120.0)),
        *((f"7, {HOUR_LATER}", 3600.0), (f"{HOUR_LATER}, 7", 3600.0), (f"{HOUR_LATER}, {DAY_LATER}", 86_400.0)),
        *((HOUR_LATER, 3600.0), ("Sunday, 06-Nov-94 09:49:37 GMT", 3600.0), ("Sun Nov  6 09:49:37 1994", 3600.0)),
    ],
)
@pytest.mark.parametrize("date", ["", "0", "yesterday"])
def test_retry_after_is_seconds_or_a_date(value: str, seconds: float, date: str) -> None:
    assert retry_after_s({"retry-after": value}, SPECIMEN_WALL) == seconds
    assert retry_after_s({"retry-after": value, "date": date}, SPECIMEN_WALL) == seconds


@pytest.mark.parametrize(("date", "seconds"), [(HOUR_EARLIER, 7200.0), (HOUR_LATER, 0.0), (DAY_LATER, 0.0)])
def test_retry_after_as_a_date_counts_from_the_date_of_its_answer(date: str, seconds: float) -> None:
    assert retry_after_s({"retry-after": HOUR_LATER, "date": date}, SPECIMEN_WALL) == seconds
    assert retry_after_s({"retry-after": "120", "date": date}, SPECIMEN_WALL) == 120.0


@pytest.mark.parametrize(
    "value", ["", "soon", "-120", "1.5.5", ".", "1e3", "120s", "soon, later", ",", "٣", "0x10", "\udcff", "x" * 9_999]
)
def test_an_unreadable_retry_after_says_nothing(value: str) -> None:
    assert retry_after_s({"retry-after": value}, SPECIMEN_WALL) is None


def test_blanks_and_commas_cost_no_more_than_their_number() -> None:
    for value in ("5" + " " * 500_000 + "x", "," * 500_000, ", " * 250_000, ", 06 Jan" * 70_000):  # not their square
        assert remaining_quota({"ratelimit-remaining": "5", "ratelimit-reset": value}, 0.0) is None
        assert remaining_quota({"ratelimit-remaining": value, "ratelimit-reset": "5"}, 0.0) is None
        assert retry_after_s({"retry-after": value, "date": value}, 0.0) is None


@pytest.mark.clause("RFC 9110 5.6.7")
@pytest.mark.parametrize(
    "text",
    ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"],
    ids=["imf-fixdate", "rfc850", "asctime"],
)
def test_all_three_forms_of_an_http_date_are_the_same_moment(text: str) -> None:
    assert http_date(text) == SPECIMEN_WALL


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "-1",
        "never",
        "1994-11-06T08:49:37Z",
        "Thu, 99 Foo 2020 99:99:99 GMT",
        "Sun, 31 Feb 2021 08:49:37 GMT",
        "Sun, 06 Nov 1994 25:00:00 GMT",
        "Sun, 06 Nov 1994 08:49:37 +9999999999",
        "Sun, ٠٦ Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 99999 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 GMT" + " " * 100,
        "x" * 100_000,
        "\x00",
        "\udcff",
    ],
)
def test_invalid_http_date_is_none(text: str) -> None:
    assert http_date(text) is None


@given(
    st.text(max_size=70) | st.from_regex(r"[A-Z][a-z]{2},? [0-9]{1,3}[ -][A-Za-z]{3}[ -][0-9]{1,6} [0-9:]{1,9} .{1,9}")
)
def test_no_text_makes_the_date_parser_raise(text: str) -> None:
    for moment in (http_date(text), iso_date(text)):
        assert moment is None or math.isfinite(moment)


@pytest.mark.parametrize(
    "text", ["1994-11-06T08:49:37Z", "1994-11-06 08:49:37", "19941106T084937Z", " 1994-11-06T09:49:37+01:00 "]
)
def test_all_forms_of_an_iso_date_are_the_same_moment(text: str) -> None:
    assert iso_date(text) == SPECIMEN_WALL


@pytest.mark.parametrize(
    "text", ["", "never", "1994-13-06", "0000-01-01", "1994-11-06" + " " * 100, "1994-11-0\u0666", "\x00"]
)
def test_invalid_iso_date_is_none(text: str) -> None:
    assert iso_date(text) is None


QUOTA_WALL = 1_800_000_000.0


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
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
        # ... of the server's clock, which its Date shows
        (
            {"x-ratelimit-remaining": "7", "x-ratelimit-reset": "1799996460", "date": "Fri, 15 Jan 2027 07:00:00 GMT"},
            (7, 60),
        ),
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
        (
            {
                "ratelimit-remaining": "9",
                "ratelimit-reset": "9",
                "x-ratelimit-remaining": "1",
                "x-ratelimit-reset": "60",
            },
            (1, 60),
        ),
    ],
)
def test_remaining_quota_is_read_in_every_form(headers: dict[str, str], expected: tuple[float, float]) -> None:
    assert remaining_quota(headers, QUOTA_WALL) == expected


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/html", "server": "ratelimit"},
        {"ratelimit": ""},
        {"ratelimit": "garbage"},
        {"ratelimit": '"default";r=50'},
        {"ratelimit": '"default";t=50'},
        {"ratelimit": '"default";r=-5;t=30'},
        {"ratelimit": '"default";r=5;t=-30'},
        {"ratelimit": '"default";r=5.5.5;t=3.5'},
        {"ratelimit": '"default";r=nan;t=inf'},
        {"ratelimit": '"default";r=1e9;t=1e9'},
        {"ratelimit": '"default";r=5;t=9999999999999999'},
        {"ratelimit": "\0" * 2000},
        {"ratelimit": "x" * 2000 + ";r=0;t=60"},
        {"ratelimit": "remaining=५, reset=६"},
        {"ratelimit-policy": '"default";q=100'},
        {"ratelimit-policy": '"default";w=60'},
        {"ratelimit-policy": '"default";q=100;w=60;qu="content-bytes"'},
        {"ratelimit-policy": '"default";q=many;w=60'},
        {"ratelimit-policy": "100"},
        {"ratelimit": '"default";r=5', "ratelimit-policy": '"other";q=soon;w=60'},
        {"ratelimit-remaining": "5"},
        {"ratelimit-reset": "5"},
        {"ratelimit-remaining": "soon", "ratelimit-reset": "5"},
        {"ratelimit-remaining": "-1", "ratelimit-reset": "5"},
        {"x-ratelimit-remaining": "5", "x-ratelimit-reset": "Sat, 21 Nov 2026 03:45:00 GMT"},
        {"x-ratelimit-remaining": "\u0665", "x-ratelimit-reset": "5"},
        {"ratelimit-remaining": "5", "x-ratelimit-reset": "5"},
    ],
)
def test_unreadable_quota_is_ignored(headers: dict[str, str]) -> None:
    assert remaining_quota(headers, QUOTA_WALL) is None
