"""Rates and visit times, compiled once, against the plain definition: all lines, at each question."""

from collections.abc import Sequence
from itertools import islice, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from politesse import Gatekeeper, PacingOptions
from politesse._pacing.pace import longest_stated_s, rates_hold_until, stated_pace, visit_from
from politesse.robots import RequestRate, RobotsTxt, RuleSet, TimeWindow
from politesse.testing import ManualClock, ScriptedFetcher
from politesse.verdict import Bound

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


def read(lines: Sequence[str]) -> RuleSet:
    return RobotsTxt.parse("\n".join(["User-agent: *", *lines])).rules_for("x")


def slowest_s(said: Sequence[RuleSet], wall: float) -> float:
    rates = [rate for rules in said for rate in rules.request_rates]
    return max([rate.interval_s for rate in rates if rate.window is None or rate.window.contains(wall)], default=0)


def is_open(said: Sequence[RuleSet], wall: float) -> bool:
    return all(not rules.visit_times or any(time.contains(wall) for time in rules.visit_times) for rules in said)


@settings(max_examples=1_500, deadline=None)
@given(FILES, MOMENTS)
def test_pace_is_the_slowest_of_all_lines_that_hold_now(files: list[list[str]], wall: float) -> None:
    said = [read(lines) for lines in files]
    pace = stated_pace(said, wall, PacingOptions())
    delay_s = max((rules.crawl_delay or 0.0 for rules in said), default=0.0)
    assert pace.interval_s == max(1.0, delay_s, slowest_s(said, wall))
    if pace.bound_by is Bound.REQUEST_RATE:
        assert pace.interval_s == slowest_s(said, wall)
    everything = [rate.interval_s for rules in said for rate in rules.request_rates]
    assert longest_stated_s(said) == max([delay_s, *everything])


@settings(max_examples=1_500, deadline=None)
@given(FILES, MOMENTS)
def test_rates_hold_until_the_next_window_begins_or_ends(files: list[list[str]], wall: float) -> None:
    said = [read(lines) for lines in files]
    windows = [rate.window for rules in said for rate in rules.request_rates if rate.window is not None]
    until = rates_hold_until(said, wall)
    if not windows:
        assert until == float("inf")
        return
    ends = {minute % 1_440 * 60 for window in windows for minute in (window.start, window.end + 1)}
    assert until == min(end + day * DAY_S for end in ends for day in range(6) if end + day * DAY_S > wall)


@settings(max_examples=500, deadline=None)
@given(FILES, MOMENTS)
def test_visit_is_permitted_from_the_first_moment_at_which_all_files_permit_it(
    files: list[list[str]], wall: float
) -> None:
    said = [read(lines) for lines in files]
    midnight = wall - wall % DAY_S
    minutes = (midnight + minute * 60 for minute in range(2 * 1_440))
    moments = [wall, *(moment for moment in minutes if wall < moment < wall + DAY_S)]
    assert visit_from(said, wall) == next((moment for moment in moments if is_open(said, moment)), wall + DAY_S)


async def test_a_turn_reads_none_of_thousands_of_rates_again(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = islice(product(range(1_440), repeat=2), 19_000)
    lines = [f"Request-rate: 1/{2 + start % 7} {TimeWindow(start, end)}" for start, end in windows]
    looked_at = 0

    def count_look(before: object) -> None:
        nonlocal looked_at
        looked_at += 1

    def interval_s(rate: RequestRate) -> float:
        count_look(rate)
        return rate.period_s / rate.documents

    contains = TimeWindow.contains

    def contains_counted(window: TimeWindow, wall: float) -> bool:
        count_look(window)
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
