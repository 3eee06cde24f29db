from __future__ import annotations

import asyncio

import pytest

from politesse import ConfigurationError
from politesse.origin import Origin
from politesse.ports import FetchRequest, FetchResponse
from politesse.testing import Exchange, ManualClock, ScriptedFetcher, ScriptedResolver, assert_polite

SITE = "https://example.com"
ROBOTS = {SITE: "User-agent: *\nDisallow: /private\nCrawl-delay: 5\n"}
FIRST = Exchange(f"{SITE}/robots.txt", 100.0, 100.1)


def page(path: str, started: float, *, status: int = 200, retry_after_s: float | None = None) -> Exchange:
    return Exchange(f"{SITE}{path}", started, started + 1.0, status, retry_after_s)


def test_polite_crawl_passes() -> None:
    assert_polite([page("/b", 111.2), FIRST, page("/a", 105.2)], ROBOTS, agent="x")


@pytest.mark.parametrize(
    ("trace", "complaint"),
    [
        ([page("/a", 99.0)], "before https://example.com/robots.txt"),
        ([FIRST, page("/private/x", 200.0)], "against line 2"),
        ([FIRST, page("/a", 200.0), page("/b", 205.9)], r"not 5 \(crawl-delay"),
        ([FIRST, page("/a", 200.0), page("/b", 200.5)], "not 5"),
        ([FIRST, page("/a", 101.0)], "not 5"),
        ([FIRST, page("/a", 200.0, status=429, retry_after_s=60), page("/b", 210.0)], "before Retry-After"),
    ],
)
def test_each_violation_is_named(trace: list[Exchange], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        assert_polite(trace, ROBOTS, agent="x")


def test_robots_txt_need_not_wait() -> None:
    assert_polite([FIRST, page("/a", 105.2), Exchange(f"{SITE}/robots.txt", 106.3, 106.4)], ROBOTS, agent="x")


def test_own_floor_counts_where_the_host_asks_for_nothing() -> None:
    trace = [FIRST, page("/a", 103.0), page("/b", 105.0)]
    assert_polite(trace, {}, agent="x", min_delay_s=1.0)
    with pytest.raises(AssertionError, match=r"not 2 \(floor"):
        assert_polite(trace, {}, agent="x", min_delay_s=2.0)


def test_visit_outside_the_window_is_named() -> None:
    midnight = 1_800_000_000.0 - 1_800_000_000.0 % 86_400
    robots = {SITE: "User-agent: *\nVisit-time: 0600-0845\n"}
    first = Exchange(f"{SITE}/robots.txt", midnight, midnight)
    assert_polite([first, page("/a", midnight + 6 * 3600)], robots, agent="x")
    with pytest.raises(AssertionError, match="Visit-time"):
        assert_polite([first, page("/a", midnight + 9 * 3600)], robots, agent="x")


async def test_manual_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(1_000.0)
    sleeper = asyncio.ensure_future(clock.sleep(10))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not sleeper.done()
    clock.advance(9.99)
    await asyncio.sleep(0)
    assert not sleeper.done()
    clock.advance(0.01)
    await sleeper
    assert (clock.monotonic(), clock.wall()) == (10.0, 1_010.0)


async def test_manual_clock_calls_on_the_way_what_was_due_in_order() -> None:
    clock = ManualClock()
    seen: list[tuple[str, float]] = []
    clock.call_later(5, lambda: seen.append(("five", clock.monotonic())))
    clock.call_later(2, lambda: seen.append(("two", clock.monotonic())))
    clock.call_later(3, lambda: seen.append(("never", clock.monotonic()))).cancel()
    clock.advance(20)
    assert seen == [("two", 2.0), ("five", 5.0)]
    assert clock.monotonic() == 20.0


async def test_autojump_moves_on_when_everybody_waits() -> None:
    clock = ManualClock(autojump=True)

    async def nap(seconds: float) -> float:
        await clock.sleep(seconds)
        return clock.monotonic()

    assert list(await asyncio.gather(nap(86_400), nap(5), nap(0))) == [86_400.0, 5.0, 0.0]


def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="does not go back"):
        ManualClock().advance(-1)


async def test_scripted_fetcher_answers_for_robots_txt_by_origin_and_for_other_files_by_url() -> None:
    fetcher = ScriptedFetcher({SITE: "User-agent: *", f"{SITE}/data.txt": [500, "Dataset: /d"]})
    origin = Origin.of(SITE)
    data_txt = FetchRequest(origin, 5, path="/data.txt")
    asked = [FetchRequest(origin, 5), data_txt, data_txt, FetchRequest(origin, 5, path="/other.txt")]
    assert [await fetcher.fetch(request) for request in asked] == [
        FetchResponse(200, f"{SITE}/robots.txt", body=b"User-agent: *"),
        FetchResponse(500, f"{SITE}/data.txt"),
        FetchResponse(200, f"{SITE}/data.txt", body=b"Dataset: /d"),
        FetchResponse(404, f"{SITE}/other.txt"),
    ]
    assert (fetcher.count(SITE), fetcher.count(f"{SITE}/data.txt")) == (1, 2)


def test_resolver_refuses_a_str_in_place_of_a_list_of_addresses() -> None:
    with pytest.raises(ConfigurationError, match=r"give a list, as in \['127.0.0.1'\]"):
        ScriptedResolver({"a.example": "127.0.0.1"})
