"""Which sites a Scrapy crawl waits for: what a crawl of a few seconds cannot show."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy.statscollectors import MemoryStatsCollector

from politesse import Bound, NotYet
from politesse.integrations.scrapy.closures import Closures
from politesse.integrations.scrapy.tally import CrawlTally
from politesse.testing import ManualClock

HOST = "example.com"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def closures(clock: ManualClock) -> Closures:
    crawler: Any = SimpleNamespace(settings=SimpleNamespace(getbool=lambda _: False))
    crawler.stats = MemoryStatsCollector(crawler)
    return Closures(clock, 600.0, CrawlTally(crawler))


def wait(closures: Closures, clock: ManualClock, seconds: float, bound_by: Bound) -> None:
    closures.wait_for_turn(HOST, NotYet(clock.wall() + seconds, bound_by))


def test_host_that_is_given_up_twice_is_logged_once(
    closures: Closures, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        wait(closures, clock, 700.0, Bound.RETRY_AFTER)
        assert closures.is_given_up(HOST)
        closures.end(HOST)
        assert not closures.is_given_up(HOST)
    assert caplog.text.count("example.com is given up") == 1


def test_slow_host_is_logged_once(closures: Closures, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    wait(closures, clock, 59.0, Bound.CRAWL_DELAY)
    closures.end(HOST)
    assert caplog.text == ""
    for _ in range(2):
        wait(closures, clock, 60.0, Bound.CRAWL_DELAY)
        closures.end(HOST)
    assert caplog.text.count("example.com is waited for until") == 1


def test_answer_of_a_host_ends_the_reason_for_which_it_was_given_up(closures: Closures, clock: ManualClock) -> None:
    wait(closures, clock, 700.0, Bound.RETRY_AFTER)
    answer = closures.answer_of(HOST)
    assert answer is not None
    assert answer.bound_by is Bound.RETRY_AFTER
    closures.end(HOST)
    closures.note_answer(HOST, 200)
    assert closures.answer_of(HOST) is None
