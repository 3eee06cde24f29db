"""All sources of a pace, and when a request may start."""

import math
from collections.abc import Sequence
from itertools import islice, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from politesse import Gatekeeper, PacingOptions
from politesse._pacing.demand import Demand
from politesse._pacing.pace import (
    Closing,
    Pace,
    longest_stated_s,
    rates_hold_until,
    stated_pace,
    visit_from,
)
from politesse.robots import RequestRate, RuleSet, TimeWindow
from politesse.testing import ManualClock, ScriptedFetcher
from politesse.verdict import Bound, NotYet
from tests.support.pacing import MIDNIGHT, at, rules

CONNER_RATES = ("Request-rate: 1/10m 1300-1659", "Request-rate: 1/20m 1700-0459", "Request-rate: 5/1m 0500-1259")

FLOOR = Pace(1.0, Bound.FLOOR)
SLOW = Pace(10.0, Bound.CRAWL_DELAY)
HOURLY = Pace(3600.0, Bound.REQUEST_RATE)
NOON = at("1200")
OPEN_AT_13 = rules("Visit-time: 1300-1359")
OPEN_TILL_12 = rules("Visit-time: 1100-1200")
RATE_TILL_1230 = rules("Request-rate: 1/1h 1100-1229")
NOW_MONO = 1000.0
OPEN = Closing(-math.inf, Bound.BACKOFF)


def test_the_slowest_that_is_stated_binds() -> None:
    mixed = ["Request-rate: 10/60", "Request-rate: 10/10m", "Request-rate: 20/1h"]
    rows: list[tuple[Sequence[str], str, float, Bound]] = [
        ([], "0800", 1.0, Bound.FLOOR),
        (["Crawl-delay: 0.5"], "0800", 1.0, Bound.FLOOR),
        (["Crawl-delay: 1"], "0800", 1.0, Bound.FLOOR),
        (["Crawl-delay: 5"], "0800", 5.0, Bound.CRAWL_DELAY),
        (["Crawl-delay: 5", "Crawl-delay: 10"], "0800", 10.0, Bound.CRAWL_DELAY),
        (["Request-rate: 10/60"], "0800", 6.0, Bound.REQUEST_RATE),
        (mixed, "0800", 180.0, Bound.REQUEST_RATE),
        (["Request-rate: 100/1"], "0800", 1.0, Bound.FLOOR),
        (["Crawl-delay: 5", "Request-rate: 10/10m"], "0800", 60.0, Bound.REQUEST_RATE),
        (["Crawl-delay: 90", "Request-rate: 10/10m"], "0800", 90.0, Bound.CRAWL_DELAY),
        *((CONNER_RATES, hhmm, 600.0, Bound.REQUEST_RATE) for hhmm in ("1400", "1659")),
        *((CONNER_RATES, hhmm, 1200.0, Bound.REQUEST_RATE) for hhmm in ("1700", "2359", "0000", "0459")),
        (CONNER_RATES, "0500", 12.0, Bound.REQUEST_RATE),
        (["Request-rate: 1/1h 0100-0159"], "0200", 1.0, Bound.FLOOR),
        (["Request-rate: 1/1h 0100-0159", "Crawl-delay: 7"], "0200", 7.0, Bound.CRAWL_DELAY),
    ]
    found = [(lines, hhmm, *stated_pace([rules(*lines)], at(hhmm), PacingOptions())) for lines, hhmm, *_ in rows]
    assert found == rows
    origins = [rules("Crawl-delay: 3"), rules("Crawl-delay: 9"), rules("Request-rate: 1/5")]
    assert stated_pace(origins, MIDNIGHT, PacingOptions()) == Pace(9.0, Bound.CRAWL_DELAY)


def test_a_host_that_says_nothing_is_left_the_floor() -> None:
    assert stated_pace([], MIDNIGHT, PacingOptions(min_delay_s=0.25)) == Pace(0.25, Bound.FLOOR)
    assert stated_pace([], MIDNIGHT, PacingOptions(min_delay_s=0)) == Pace(0, Bound.FLOOR)


def test_a_long_delay_is_capped_only_where_it_is_asked_for() -> None:
    capping = PacingOptions(on_long_crawl_delay="cap", max_crawl_delay_s=120)
    for said in (rules("Crawl-delay: 86400"), rules("Request-rate: 1/1d")):
        assert stated_pace([said], MIDNIGHT, capping).interval_s == 120.0
        assert stated_pace([said], MIDNIGHT, PacingOptions(max_crawl_delay_s=120)).interval_s == 86_400.0


def test_a_visit_waits_for_every_window() -> None:
    day, night, past_midnight = ["Visit-time: 0600-0845"], ["Visit-time: 1700-0459"], ["Visit-time: 2300-0200"]
    rows: list[tuple[list[list[str]], str, str]] = [
        ([day], "0559", "0600"),
        ([day], "0600", "0600"),
        ([day], "0845", "0845"),
        ([day], "0846", "3000"),
        ([day], "0900", "3000"),
        ([night], "2300", "2300"),
        ([night], "0000", "0000"),
        ([night], "0459", "0459"),
        ([night], "0500", "1700"),
        ([night], "1200", "1700"),
        ([["Visit-time: 0000-0000"]], "0001", "2400"),
        ([["Visit-time: 0600-0700"], ["Visit-time: 0630-0800"]], "0500", "0630"),
        ([past_midnight, ["Visit-time: 0100-0300"]], "1200", "2500"),
        ([[], ["Visit-time: 0600-0700"]], "0500", "0600"),
        ([["Visit-time: 0100-0200"], ["Visit-time: 0300-0400"]], "1200", "3600"),  # they never meet: in a day again
        ([], "0500", "0500"),
    ]
    found = [visit_from([rules(*lines) for lines in said], at(hhmm)) for said, hhmm, _ in rows]
    assert found == [at(expected) for *_, expected in rows]


def test_a_rate_holds_until_its_window_or_anothers_begins() -> None:
    rows: list[tuple[Sequence[str], float, float]] = [
        ([], at("0800"), math.inf),
        (["Request-rate: 1/60"], at("0800"), math.inf),
        (CONNER_RATES, at("0800"), at("1300")),
        (CONNER_RATES, at("1300"), at("1700")),
        (CONNER_RATES, at("2300"), at("2900")),
        (["Request-rate: 1/60 0000-2359"], at("0800"), at("2400")),
        (["Request-rate: 1/60 0000-2359"], at("0000"), at("2400")),
        (["Request-rate: 1/60 2200-0100"], at("0059", 59), at("0101")),
        (["Request-rate: 1/60 2200-0100"], at("0101"), at("2200")),
    ]
    assert [(lines, now, rates_hold_until([rules(*lines)], now)) for lines, now, _ in rows] == rows


def test_not_yet_is_false_and_tells_what_binds() -> None:
    not_yet = NotYet(at("0600"), Bound.VISIT_TIME)
    assert not not_yet
    assert "visit-time" in repr(not_yet)
    assert "06:00" in repr(not_yet)


def test_when_a_request_may_start() -> None:
    def closed(seconds: float, bound_by: Bound = Bound.BACKOFF) -> Closing:
        return Closing(NOW_MONO + seconds, bound_by)

    minute_and_a_half = Pace(90.0, Bound.CRAWL_DELAY)
    never = -math.inf
    rows: list[tuple[float, Pace, Closing, list[RuleSet], float, Bound]] = [
        # The interval counts from the last request, and the pace is that of the request.
        (never, FLOOR, OPEN, [], never, Bound.FLOOR),
        (1000.0, FLOOR, OPEN, [], 1001.0, Bound.FLOOR),
        (1000.0, SLOW, OPEN, [], 1010.0, Bound.CRAWL_DELAY),
        (500.0, SLOW, OPEN, [], 510.0, Bound.CRAWL_DELAY),
        # A closure binds if it ends later; it adds nothing to the interval.
        (1000.0, SLOW, closed(5.0), [], 1010.0, Bound.CRAWL_DELAY),
        (1000.0, SLOW, closed(60.0), [], 1060.0, Bound.BACKOFF),
        (never, FLOOR, closed(60.0, Bound.RETRY_AFTER), [], 1060.0, Bound.RETRY_AFTER),
        (1000.0, SLOW, closed(0.0), [], 1010.0, Bound.CRAWL_DELAY),
        (1000.0, SLOW, closed(-60.0), [], 1010.0, Bound.CRAWL_DELAY),
        # A window must be open when the request starts, not now.
        (never, FLOOR, OPEN, [OPEN_AT_13], 4600.0, Bound.VISIT_TIME),
        (1000.0, SLOW, OPEN, [OPEN_TILL_12], 1010.0, Bound.CRAWL_DELAY),
        (1000.0, minute_and_a_half, OPEN, [OPEN_TILL_12], 1000.0 + 23 * 3600.0, Bound.VISIT_TIME),
        (never, FLOOR, closed(7200.0), [OPEN_AT_13], 1000.0 + 25 * 3600.0, Bound.VISIT_TIME),
        (never, FLOOR, closed(3700.0), [OPEN_AT_13], 4700.0, Bound.BACKOFF),
        # All statements of an agent have to permit a visit.
        (never, FLOOR, OPEN, [OPEN_AT_13, rules("Visit-time: 1330-1400")], 6400.0, Bound.VISIT_TIME),
        # A rate with a window is worked out again when the window ends.
        (1000.0, HOURLY, OPEN, [RATE_TILL_1230], 2800.0, Bound.REQUEST_RATE),
        (never, HOURLY, OPEN, [RATE_TILL_1230], never, Bound.REQUEST_RATE),
        (-3000.0, HOURLY, OPEN, [RATE_TILL_1230], 600.0, Bound.REQUEST_RATE),
    ]
    starts = [
        Demand(closing=closing, last_mono=last_mono).start(pace, timed, NOW_MONO, NOON, PacingOptions())
        for last_mono, pace, closing, timed, *_ in rows
    ]
    assert [start[:3] for start in starts] == [(row[4], row[5], row[1]) for row in rows]
    for start, (_, pace, *_) in zip(starts, rows, strict=True):
        assert start.yields_until_mono == start.ready_mono - 2.0 * pace.interval_s


# Rates and visit times, compiled once, against the plain definition: all lines, at each question


DAY_S = 86_400

# Few different minutes, so that windows meet, enclose one another and cross midnight.
MINUTES = st.sampled_from([0, 1, 59, 60, 61, 300, 719, 720, 1_000, 1_438, 1_439])
WINDOWS = st.builds(lambda start, end: str(TimeWindow(start, end)), MINUTES, MINUTES)
RATES = st.builds(
    lambda documents, period, window: f"Request-rate: {documents}/{period} {window}",
    st.integers(1, 5),
    st.integers(1, 30),
    st.one_of(st.just(""), WINDOWS),
)
LINES = st.one_of(RATES, RATES, WINDOWS.map(lambda window: f"Visit-time: {window}"), st.just("Crawl-delay: 7"))
FILES = st.lists(st.lists(LINES, max_size=6), max_size=3)
MOMENTS = st.builds(
    lambda day, minute, second: day * DAY_S + minute * 60 + second,
    st.integers(0, 3),
    st.one_of(MINUTES, st.integers(0, 1_439)),
    st.sampled_from([0, 0.25, 30, 59.75]),
)


def slowest_s(said: Sequence[RuleSet], wall: float) -> float:
    rates = [rate for rules in said for rate in rules.request_rates]
    return max([rate.interval_s for rate in rates if rate.window is None or rate.window.contains(wall)], default=0)


def is_open(said: Sequence[RuleSet], wall: float) -> bool:
    return all(not rules.visit_times or any(time.contains(wall) for time in rules.visit_times) for rules in said)


@settings(max_examples=1_500)
@given(FILES, MOMENTS)
def test_pace_is_the_slowest_of_all_lines_that_hold_now(files: list[list[str]], wall: float) -> None:
    said = [rules(*lines) for lines in files]
    pace = stated_pace(said, wall, PacingOptions())
    delay_s = max((rules.crawl_delay or 0.0 for rules in said), default=0.0)
    assert pace.interval_s == max(1.0, delay_s, slowest_s(said, wall))
    if pace.bound_by is Bound.REQUEST_RATE:
        assert pace.interval_s == slowest_s(said, wall)
    everything = [rate.interval_s for rules in said for rate in rules.request_rates]
    assert longest_stated_s(said) == max([delay_s, *everything])


@settings(max_examples=1_500)
@given(FILES, MOMENTS)
def test_rates_hold_until_the_next_window_begins_or_ends(files: list[list[str]], wall: float) -> None:
    said = [rules(*lines) for lines in files]
    windows = [rate.window for rules in said for rate in rules.request_rates if rate.window is not None]
    until = rates_hold_until(said, wall)
    if not windows:
        assert until == float("inf")
        return
    ends = {minute % 1_440 * 60 for window in windows for minute in (window.start, window.end + 1)}
    assert until == min(end + day * DAY_S for end in ends for day in range(6) if end + day * DAY_S > wall)


@settings(max_examples=500)
@given(FILES, MOMENTS)
def test_visit_is_permitted_from_the_first_moment_at_which_all_files_permit_it(
    files: list[list[str]], wall: float
) -> None:
    said = [rules(*lines) for lines in files]
    midnight = wall - wall % DAY_S
    minutes = (midnight + minute * 60 for minute in range(2 * 1_440))
    moments = [wall, *(moment for moment in minutes if wall < moment < wall + DAY_S)]
    assert visit_from(said, wall) == next((moment for moment in moments if is_open(said, moment)), wall + DAY_S)


async def test_a_turn_reads_none_of_thousands_of_rates_again(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = islice(product(range(1_440), repeat=2), 19_000)
    lines = [f"Request-rate: 1/{2 + start % 7} {TimeWindow(start, end)}" for start, end in windows]
    looked_at = 0

    def interval_s(rate: RequestRate) -> float:
        nonlocal looked_at
        looked_at += 1
        return rate.period_s / rate.documents

    contains = TimeWindow.contains

    def contains_counted(window: TimeWindow, wall: float) -> bool:
        nonlocal looked_at
        looked_at += 1
        return contains(window, wall)

    monkeypatch.setattr(RequestRate, "interval_s", property(interval_s))
    monkeypatch.setattr(TimeWindow, "contains", contains_counted)
    clock = ManualClock()
    fetcher = ScriptedFetcher({"https://h.example": "\n".join(["User-agent: *", *lines]).encode()})
    async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=fetcher, clock=clock) as gate:
        assert await gate.check("https://h.example/")
        clock.advance(60)
        looked_at = 0
        turn = gate.try_turn("https://h.example/")
        assert turn
        turn.give_back()
        async with gate.turn("https://h.example/"):
            assert not gate.try_turn("https://h.example/a")
        assert looked_at < 100
