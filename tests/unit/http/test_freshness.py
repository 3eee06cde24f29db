from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from politesse._http.freshness import cache_control, freshness_lifetime_s, retry_after_s

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


@pytest.mark.clause("RFC 9111 4.2.1")
@pytest.mark.parametrize(
    "value",
    ["max-age", "max-age=", "max-age=x", "max-age=-5", "max-age=1.5", 'max-age=""', "max-age=٦٠٠", "max-age=6e2"],
)
def test_an_invalid_max_age_is_stale_already(value: str) -> None:
    assert _lifetime(cache_control=value, expires=DAY_LATER) == 0.0


@pytest.mark.clause("RFC 9111 4.2.1")
def test_of_two_max_ages_the_first_counts() -> None:
    assert _lifetime(cache_control="max-age=60, max-age=6000") == 60.0


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
@pytest.mark.parametrize("expires", ["0", "-1", "", "never", "Thu, 99 Foo 2020 99:99:99 GMT"])
def test_invalid_expires_is_stale_already(expires: str) -> None:
    assert _lifetime(expires=expires, date=DATE) == 0.0


def test_past_expires_is_stale_already() -> None:
    lifetime = _lifetime(expires=HOUR_EARLIER, date=DATE)
    assert lifetime is not None
    assert lifetime <= 0.0


@pytest.mark.clause("RFC 9111 5.3")
def test_max_age_counts_before_expires() -> None:
    assert _lifetime(cache_control="max-age=60", expires=DAY_LATER, date=DATE) == 60.0
    assert _lifetime(cache_control="max-age=86400", expires="0", date=DATE) == 86_400.0


@pytest.mark.clause("RFC 9111 5.2.2.4")
@pytest.mark.parametrize(
    "value",
    ["no-cache", "no-store", "NO-CACHE", "no-store, max-age=3600", "max-age=3600, no-cache", 'no-cache="set-cookie"'],
)
def test_no_cache_and_no_store_are_stale_already(value: str) -> None:
    assert _lifetime(cache_control=value, expires=DAY_LATER, date=DATE) == 0.0


def test_directives_whose_names_only_resemble_no_cache_mean_nothing() -> None:
    assert _lifetime(cache_control="x-no-cache, no-cached, max-age=600") == 600.0


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


def test_an_age_beyond_the_lifetime_makes_it_stale_already() -> None:
    lifetime = _lifetime(cache_control="max-age=3600", age="3601")
    assert lifetime is not None
    assert lifetime <= 0.0


@pytest.mark.parametrize("age", ["", "x", "-5", "1.5", "٣"])
def test_an_unreadable_age_takes_nothing_off(age: str) -> None:
    assert _lifetime(cache_control="max-age=3600", age=age) == 3600.0


def test_a_huge_age_is_bounded_and_stale() -> None:
    lifetime = _lifetime(cache_control="max-age=3600", age="9" * 4000)
    assert lifetime is not None
    assert -math.inf < lifetime <= 0.0


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
@pytest.mark.parametrize(("value", "seconds"), [("120", 120.0), ("0", 0.0), (" 120 ", 120.0), ("0120", 120.0)])
def test_retry_after_in_seconds(value: str, seconds: float) -> None:
    assert retry_after_s({"retry-after": value}, SPECIMEN_WALL) == seconds


@pytest.mark.clause("RFC 9110 10.2.3")
@pytest.mark.parametrize(
    "value",
    [HOUR_LATER, "Sunday, 06-Nov-94 09:49:37 GMT", "Sun Nov  6 09:49:37 1994"],
    ids=["imf", "rfc850", "asctime"],
)
def test_retry_after_as_a_date_counts_from_now(value: str) -> None:
    assert retry_after_s({"retry-after": value}, SPECIMEN_WALL) == 3600.0


@pytest.mark.parametrize(("date", "seconds"), [(HOUR_EARLIER, 7200.0), (HOUR_LATER, 0.0), (DAY_LATER, 0.0)])
def test_retry_after_as_a_date_counts_from_the_date_of_its_answer(date: str, seconds: float) -> None:
    assert retry_after_s({"retry-after": HOUR_LATER, "date": date}, SPECIMEN_WALL) == seconds
    assert retry_after_s({"retry-after": "120", "date": date}, SPECIMEN_WALL) == 120.0


@pytest.mark.parametrize("date", ["", "0", "yesterday"])
def test_retry_after_as_a_date_counts_from_its_receipt_where_no_date_can_be_read(date: str) -> None:
    assert retry_after_s({"retry-after": HOUR_LATER, "date": date}, SPECIMEN_WALL) == 3600.0


def test_retry_after_in_the_past_means_no_wait() -> None:
    assert retry_after_s({"retry-after": HOUR_EARLIER}, SPECIMEN_WALL) == 0.0


@pytest.mark.parametrize(
    "value", ["", "soon", "-120", "1.5", "1e3", "120s", "120, 240", "٣", "0x10", "\udcff", "x" * 9_999]
)
def test_an_unreadable_retry_after_says_nothing(value: str) -> None:
    assert retry_after_s({"retry-after": value}, SPECIMEN_WALL) is None


def test_no_retry_after_says_nothing() -> None:
    assert retry_after_s({}, SPECIMEN_WALL) is None


def test_a_huge_retry_after_is_finite() -> None:
    wait = retry_after_s({"retry-after": "9" * 4000}, SPECIMEN_WALL)
    assert wait is not None
    assert 2**31 <= wait < math.inf
