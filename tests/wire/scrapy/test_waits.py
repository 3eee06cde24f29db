"""The sites that a Scrapy crawl waits for, for longer than a test may crawl."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy.statscollectors import MemoryStatsCollector

from politesse import Bound, NotYet
from politesse.events import FleetAway, FleetBack, HostClosed
from politesse.integrations.scrapy._waits import CrawlTally, Waits
from politesse.testing import ManualClock
from politesse.verdict import Refusal

HOST = "example.com"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def tally() -> CrawlTally:
    crawler: Any = SimpleNamespace(settings=SimpleNamespace(getbool=lambda _: False))
    crawler.stats = MemoryStatsCollector(crawler)
    return CrawlTally(crawler)


@pytest.fixture
def ended() -> list[str | None]:
    return []


@pytest.fixture
def waits(clock: ManualClock, tally: CrawlTally, ended: list[str | None]) -> Waits:
    return Waits(clock, 600.0, 300.0, tally, ended.append)


def wait(waits: Waits, clock: ManualClock, seconds: float, bound_by: Bound) -> None:
    waits.wait_for_turn(HOST, NotYet(clock.wall() + seconds, bound_by))


def test_host_that_is_given_up_twice_is_logged_once(
    waits: Waits, clock: ManualClock, ended: list[str | None], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        wait(waits, clock, 700.0, Bound.RETRY_AFTER)
        assert waits.given_up(f"http://{HOST}:8000") == HOST
        waits.end(HOST)
        assert waits.given_up(HOST) is None
    assert caplog.text.count("example.com is given up") == 1
    assert ended == [HOST, HOST]


def test_slow_host_is_logged_once(waits: Waits, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    wait(waits, clock, 59.0, Bound.CRAWL_DELAY)
    waits.end(HOST)
    assert caplog.text == ""
    for _ in range(2):
        wait(waits, clock, 60.0, Bound.CRAWL_DELAY)
        waits.end(HOST)
    assert caplog.text.count("example.com is waited for until") == 1


def test_answer_of_a_host_ends_the_reason_for_which_it_was_given_up(waits: Waits, clock: ManualClock) -> None:
    wait(waits, clock, 700.0, Bound.RETRY_AFTER)
    answer = waits.answer_of(HOST)
    assert answer is not None
    assert answer.bound_by is Bound.RETRY_AFTER
    waits.end(HOST)
    waits.note_status(HOST, 200)
    assert waits.answer_of(HOST) is None


def test_wait_until_a_time_ends_by_itself(waits: Waits, clock: ManualClock, ended: list[str | None]) -> None:
    waits.wait_until(HOST, NotYet(clock.wall() + 5.0, Bound.RETRY_AFTER), 10.0)
    clock.advance(9.0)
    assert waits.holds(f"https://{HOST}")
    clock.advance(1.0)
    assert ended == [HOST]
    assert not waits.holds(HOST)


def test_redis_that_is_away_is_given_up_after_the_longest_wait_and_all_go_on_when_it_is_back(
    waits: Waits, clock: ManualClock, ended: list[str | None], caplog: pytest.LogCaptureFixture
) -> None:
    waits.note(FleetAway("redis://127.0.0.1:6379/0", "refused\n"))
    clock.advance(599.0)
    assert not waits.holds(HOST)
    clock.advance(1.0)
    assert waits.holds(HOST)
    assert waits.given_up(f"http://{HOST}") == HOST
    answer = waits.answer_of(HOST)
    assert answer is not None
    assert answer.bound_by is Bound.FLEET
    assert "away for 600 s, as POLITESSE_MAX_WAIT permits (redis://127.0.0.1:6379/0: refused\\n)" in caplog.text
    waits.note(FleetBack("redis://127.0.0.1:6379/0", 601.0))
    assert ended == [None]
    assert not waits.holds(HOST)


@pytest.mark.parametrize("is_closed", [True, False])
def test_redis_that_is_back_in_time_is_not_given_up(waits: Waits, clock: ManualClock, is_closed: bool) -> None:  # noqa: FBT001
    waits.note_fleet_away("it was away before this spider was opened")
    clock.advance(300.0)
    if is_closed:
        waits.close()
    else:
        waits.note(FleetBack("redis://127.0.0.1:6379/0", 300.0))
    clock.advance(600.0)
    assert waits.fleet_lost is None


def test_summary_names_the_ten_sites_with_most_requests_and_counts_the_others(
    tally: CrawlTally, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for number in range(1, 13):
        tally.given_up(f"{number}.example", f"{number}.example", "slow")
        tally.left(f"{number}.example", number, on_disk=False)
    tally.log_summary()
    assert "78 requests, of which 0 stay in JOBDIR" in caplog.text
    assert "for the next run: 12.example (12: slow), 11.example (11: slow), " in caplog.text
    assert "3.example (3: slow), and 2 more\n" in caplog.text
    assert "2.example (2" not in caplog.text.replace("12.example (12", "")


@pytest.mark.parametrize(("times", "is_given_up"), [(1, False), (2, False), (3, True), (4, True)])
def test_a_site_that_refuses_is_given_up_at_the_third_time(
    waits: Waits, clock: ManualClock, caplog: pytest.LogCaptureFixture, times: int, *, is_given_up: bool
) -> None:
    waits.wait_for_turn(HOST, NotYet(clock.wall() + 500.0, Bound.REFUSED, "", Refusal(times, "403")))
    assert (waits.given_up(HOST) == HOST) is is_given_up
    assert (f"refused {times} times in a row: 403 until" in caplog.text) is is_given_up


def test_sites_that_refuse_are_counted_once(waits: Waits, tally: CrawlTally, clock: ManualClock) -> None:
    for host, bound_by in (("a", Bound.REFUSED), ("a", Bound.REFUSED), ("b", Bound.REFUSED), ("c", Bound.BACKOFF)):
        waits.note(HostClosed(host, clock.wall() + 900.0, bound_by, 900.0))
    assert tally._crawler.stats.get_value("politesse/hosts/refused") == 2
    assert tally._crawler.stats.get_value("politesse/hosts/closed") == 3
