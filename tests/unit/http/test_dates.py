"""Dates as servers write them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from politesse._http.dates import http_date, iso_date

SPECIMEN_WALL = 784_111_777.0


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
    "text",
    ["1994-11-06T08:49:37Z", "1994-11-06 08:49:37", "19941106T084937Z", " 1994-11-06T09:49:37+01:00 "],
)
def test_all_forms_of_an_iso_date_are_the_same_moment(text: str) -> None:
    assert iso_date(text) == SPECIMEN_WALL


@pytest.mark.parametrize(
    "text", ["", "never", "1994-13-06", "0000-01-01", "1994-11-06" + " " * 100, "1994-11-0\u0666", "\x00"]
)
def test_invalid_iso_date_is_none(text: str) -> None:
    assert iso_date(text) is None
