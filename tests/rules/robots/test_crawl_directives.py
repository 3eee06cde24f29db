from __future__ import annotations

from typing import Final

import pytest

from politesse.robots import RequestRate, TimeWindow
from politesse.robots.crawl_directives import parse_crawl_delay, parse_request_rate, parse_visit_time

NOON: Final = 12 * 3600.0
DAY: Final = 86_400
MORNING: Final = TimeWindow(360, 525)
NIGHT: Final = TimeWindow(1020, 299)

DELAYS: Final = {"5": 5.0, "0": 0.0, "0.5": 0.5, ".5": 0.5, "5.": 5.0, "007": 7.0, "31536000": 31_536_000.0}  # a year
NO_DELAYS: Final = [
    *("", "-1", "+1", "soon", "NaN", "nan", "inf", "Infinity", "1e3", "0x10", "1_000", "5s", "5 s", "1,5", "1 2"),
    *(".", "1.2.3", "\u0665", "²", "5\n", "5\x00"),
    *("31536001", "9999999999", "10000000000", "9" * 100_000, "0." + "1" * 21),
]

RATES: Final = {
    "10/60": RequestRate(10, 60),
    "20/1h": RequestRate(20, 3600),
    "3/2d": RequestRate(3, 172_800),
    **dict.fromkeys(("1/5", "1/5s", "1/5S", "1 / 5"), RequestRate(1, 5)),
    "1/1M": RequestRate(1, 60),
    "1/1H": RequestRate(1, 3600),
    "1/1D": RequestRate(1, 86_400),
    "1\t/ 10 m": RequestRate(1, 600),
    "007/010": RequestRate(7, 10),
    "1/10m 1700-0459": RequestRate(1, 600, NIGHT),
    **dict.fromkeys(("1/10m 0600-0845", "1/10m\t0600 - 0845", "1/10m 0600 0845"), RequestRate(1, 600, MORNING)),
}
NO_RATES: Final = [
    *("", "/", "9/banana", "banana/9", "9", "9/", "/9", "0/60", "5/0", "5/0m", "-1/5", "1/-5", "1.5/60", "1/1.5"),
    *("1/5w", "1/5ms", "1//5", "1/5/6", "1/5 0600"),
    *("1/5 0600-", "1/5 2542-3199", "1/5 0600-2400", "1/5m0600-0845", "1/5 always", "10000000000/1"),
    *("1/10000000000", "1/366d"),
    *("1/5 0600-0845 x", "\u0665/\u0666"),
]

WINDOWS: Final = {
    **dict.fromkeys(("0600-0845", "0600 0845", "0600\t0845", "0600 - 0845", "0600 \t-  0845", "0600   0845"), MORNING),
    "0000-2359": TimeWindow(0, 1439),
    "1700-0459": NIGHT,
    "1200-1200": TimeWindow(720, 720),
}
NO_WINDOWS: Final = [
    *("", "0600", "06000845", "0600-", "-0845", "600-845", "06:00-08:45", "0600--0845", "0600-0845x"),
    *("0600-0845-0900", "2400-0100"),
    *("2542-3199", "0060-0100", "0000-0160", "0000-2400", "٠٦٠٠-٠٨٤٥", "0600-0845 UTC", "0600\u20130845"),
]


@pytest.mark.parametrize(("value", "seconds"), [*DELAYS.items(), *((value, None) for value in NO_DELAYS)])
def test_crawl_delay_is_seconds_with_fractions(value: str, seconds: float | None) -> None:
    assert parse_crawl_delay(value) == seconds


@pytest.mark.parametrize(("value", "rate"), [*RATES.items(), *((value, None) for value in NO_RATES)])
def test_request_rate_is_documents_per_period_perhaps_within_a_window(value: str, rate: RequestRate | None) -> None:
    assert parse_request_rate(value) == rate


@pytest.mark.parametrize(("value", "window"), [*WINDOWS.items(), *((value, None) for value in NO_WINDOWS)])
def test_visit_time_is_a_window_of_minutes(value: str, window: TimeWindow | None) -> None:
    assert parse_visit_time(value) == window


def test_interval_is_the_mean_time_between_two_starts() -> None:
    assert RequestRate(10, 60).interval_s == 6.0
    assert RequestRate(3, 1).interval_s == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("window", "inside"), [(MORNING, {*range(360, 526)}), (NIGHT, {*range(1020, 1440), *range(300)})]
)
@pytest.mark.parametrize("second", [0, 59.999])
def test_window_contains_its_first_and_its_last_minute(window: TimeWindow, inside: set[int], second: float) -> None:
    assert {minute for minute in range(1440) if window.contains(minute * 60 + second)} == inside


def test_window_is_the_same_on_every_day() -> None:
    window = TimeWindow(720, 720)
    for day in (0, 1, 20_000, -1):
        inside = [window.contains(day * DAY + NOON + second) for second in (-1, 0, 59, 60)]
        assert inside == [False, True, True, False]


def test_window_is_printed_as_a_file_writes_it() -> None:
    assert str(MORNING) == "0600-0845"
    assert str(TimeWindow(1439, 0)) == "2359-0000"


def test_blanks_in_a_directive_cost_no_more_than_their_number() -> None:
    blanks = " " * 500_000  # quadratic, this would take an hour
    assert parse_visit_time(f"0600{blanks}x") is None
    assert parse_request_rate(f"1/1{blanks}x") is None
