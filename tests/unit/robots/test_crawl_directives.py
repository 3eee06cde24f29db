from __future__ import annotations

import pytest

from politesse.robots import RequestRate, TimeWindow
from politesse.robots.crawl_directives import parse_crawl_delay, parse_request_rate, parse_visit_time

NOON = 12 * 3600.0
DAY = 86_400


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("5", 5.0),
        ("0", 0.0),
        ("0.5", 0.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("007", 7.0),
        ("86400", 86_400.0),
        ("31536000", 31_536_000.0),  # a year
    ],
)
def test_crawl_delay_is_seconds_with_fractions(value: str, seconds: float) -> None:
    assert parse_crawl_delay(value) == seconds


@pytest.mark.parametrize(
    "value",
    [
        *(
            "",
            "-1",
            "+1",
            "soon",
            "NaN",
            "nan",
            "inf",
            "Infinity",
            "1e3",
            "0x10",
            "1_000",
            "5s",
            "5 s",
            "1,5",
            "1 2",
            ".",
        ),
        *(
            "1.2.3",
            "\u0665",
            "²",
            "31536001",
            "9999999999",
            "10000000000",
            "9" * 100_000,
            "0." + "1" * 21,
            "5\n",
            "5\x00",
        ),
    ],
)
def test_invalid_crawl_delay_is_none(value: str) -> None:
    assert parse_crawl_delay(value) is None


@pytest.mark.parametrize(
    ("value", "documents", "period_s"),
    [
        ("10/60", 10, 60),
        ("10/10m", 10, 600),
        ("20/1h", 20, 3600),
        ("1/5", 1, 5),
        ("1/5s", 1, 5),
        ("1/5S", 1, 5),
        ("3/2d", 3, 172_800),
        ("1/1M", 1, 60),
        ("1/1H", 1, 3600),
        ("1/1D", 1, 86_400),
        ("1 / 5", 1, 5),
        ("1\t/ 10 m", 1, 600),
        ("007/010", 7, 10),
    ],
)
def test_request_rate_is_documents_per_period(value: str, documents: int, period_s: int) -> None:
    assert parse_request_rate(value) == RequestRate(documents, period_s, None)


@pytest.mark.parametrize(
    ("value", "window"),
    [
        ("1/10m 1300-1659", TimeWindow(780, 1019)),
        ("1/10m\t1300 - 1659", TimeWindow(780, 1019)),
        ("1/10m 1700-0459", TimeWindow(1020, 299)),
        ("1/10m 1300 1659", TimeWindow(780, 1019)),
    ],
)
def test_request_rate_may_hold_within_a_window_only(value: str, window: TimeWindow) -> None:
    assert parse_request_rate(value) == RequestRate(1, 600, window)


@pytest.mark.parametrize(
    "value",
    [
        *(
            "",
            "/",
            "9/banana",
            "banana/9",
            "9",
            "9/",
            "/9",
            "0/60",
            "5/0",
            "5/0m",
            "-1/5",
            "1/-5",
            "1.5/60",
            "1/1.5",
            "1/5w",
        ),
        *(
            "1/5ms",
            "1//5",
            "1/5/6",
            "1/5 0600",
            "1/5 0600-",
            "1/5 2542-3199",
            "1/5 0600-2400",
            "1/5m0600-0845",
            "1/5 always",
        ),
        *("10000000000/1", "1/10000000000", "1/366d", "1/5 0600-0845 x", "\u0665/\u0666"),
    ],
)
def test_invalid_request_rate_is_none(value: str) -> None:
    assert parse_request_rate(value) is None


def test_interval_is_the_mean_time_between_two_starts() -> None:
    assert RequestRate(10, 60).interval_s == 6.0
    assert RequestRate(20, 3600).interval_s == 180.0
    assert RequestRate(3, 1).interval_s == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("value", "start", "end"),
    [
        ("0600-0845", 360, 525),
        ("0600 0845", 360, 525),
        ("0600\t0845", 360, 525),
        ("0100 - 0800", 60, 480),
        ("0100 \t-  0800", 60, 480),
        ("0100   0800", 60, 480),
        ("0000-2359", 0, 1439),
        ("1700-0459", 1020, 299),
        ("1200-1200", 720, 720),
    ],
)
def test_visit_time_is_a_window_of_minutes(value: str, start: int, end: int) -> None:
    assert parse_visit_time(value) == TimeWindow(start, end)


@pytest.mark.parametrize(
    "value",
    [
        *(
            "",
            "0600",
            "06000845",
            "0600-",
            "-0845",
            "600-845",
            "06:00-08:45",
            "0600--0845",
            "0600-0845x",
            "0600-0845-0900",
        ),
        *(
            "2400-0100",
            "2542-3199",
            "0060-0100",
            "0000-0160",
            "0000-2400",
            "٠٦٠٠-٠٨٤٥",
            "0600-0845 UTC",
            "0600\u20130845",
        ),
    ],
)
def test_invalid_visit_time_is_none(value: str) -> None:
    assert parse_visit_time(value) is None


@pytest.mark.parametrize(
    ("hour", "minute", "inside"),
    [
        (5, 59, False),
        (6, 0, True),
        (7, 30, True),
        (8, 45, True),
        (8, 46, False),
        (9, 0, False),
        (18, 0, False),
        (0, 0, False),
    ],
)
def test_window_contains_its_first_and_its_last_minute(hour: int, minute: int, *, inside: bool) -> None:
    window = TimeWindow(360, 525)
    for second in (0, 59.999):
        assert window.contains(hour * 3600 + minute * 60 + second) is inside


@pytest.mark.parametrize(
    ("hour", "minute", "inside"),
    [
        (16, 59, False),
        (17, 0, True),
        (23, 0, True),
        (23, 59, True),
        (0, 0, True),
        (4, 59, True),
        (5, 0, False),
        (12, 0, False),
    ],
)
def test_window_with_a_later_start_crosses_midnight(hour: int, minute: int, *, inside: bool) -> None:
    assert TimeWindow(1020, 299).contains(hour * 3600 + minute * 60) is inside


def test_window_is_the_same_on_every_day() -> None:
    window = TimeWindow(720, 720)
    for day in (0, 1, 20_000, -1):
        assert window.contains(day * DAY + NOON)
        assert window.contains(day * DAY + NOON + 59)
        assert not window.contains(day * DAY + NOON + 60)
        assert not window.contains(day * DAY + NOON - 1)


def test_window_is_printed_as_a_file_writes_it() -> None:
    assert str(TimeWindow(360, 525)) == "0600-0845"
    assert str(TimeWindow(1439, 0)) == "2359-0000"
    assert parse_visit_time(str(TimeWindow(61, 1439))) == TimeWindow(61, 1439)


def test_blanks_in_a_directive_cost_no_more_than_their_number() -> None:
    blanks = " " * 500_000  # quadratic, this would take an hour
    assert parse_visit_time(f"0600{blanks}x") is None
    assert parse_request_rate(f"1/1{blanks}x") is None
