import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from politesse import Gatekeeper
from politesse.errors import ConfigurationError
from politesse.origin import Origin
from politesse.ports import FetchRequest, FetchResponse
from politesse.queue import PoliteQueue
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


def test_robots_txt_waits_for_no_pace() -> None:
    assert_polite([FIRST, page("/a", 160.0), Exchange(f"{SITE}/robots.txt", 161.1, 161.2)], ROBOTS, agent="x")


@pytest.mark.parametrize(
    ("starts", "complaint"),
    [
        ((0.0, 0.1, 1.2, 62.0, 62.1), None),
        ((0.0, 0.05), r"while another robots.txt of the host was under way: .*:8001/"),
        ((0.0, 0.1, 0.9), r"too soon after another robots.txt of the host: .*:8002/.* not 1\)"),
    ],
)
def test_requests_for_robots_txt_to_one_host_are_judged(starts: tuple[float, ...], complaint: str | None) -> None:
    trace = [
        Exchange(f"{SITE}:{8000 + port}/robots.txt", started, started + 0.1) for port, started in enumerate(starts)
    ]
    if complaint is None:
        assert_polite(trace, {}, agent="x", min_delay_s=1.0)
    else:
        with pytest.raises(AssertionError, match=complaint):
            assert_polite(trace, {}, agent="x", min_delay_s=1.0)


def test_own_floor_counts_where_the_host_states_no_pace() -> None:
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


DAY_S = 86_400.0


def fetched(started: float, status: int = 200, **stated: Any) -> Exchange:
    return Exchange(f"{SITE}/robots.txt", started, started + 0.1, status, **stated)


@pytest.mark.parametrize(
    ("key", "origin"),
    [
        ("HTTPS://Example.COM:443", SITE),
        ("https://example.com/", SITE),
        ("https://example.com/robots.txt", SITE),
        ("https://user@example.com", SITE),
        ("http://b\u00fccher.example", "http://xn--bcher-kva.example"),
        ("http://xn--bcher-kva.example:80/", "http://B\u00dcCHER.example"),
    ],
)
def test_rules_bind_an_origin_in_any_spelling(key: str, origin: str) -> None:
    trace = [Exchange(f"{origin}/robots.txt", 1.0, 1.1), Exchange(f"{origin}/private", 2.0, 2.1)]
    with pytest.raises(AssertionError, match="against line 2"):
        assert_polite(trace, {key: "User-agent: *\nDisallow: /private\n"}, agent="x")


@pytest.mark.parametrize("key", ["example.com", "https://example.com/page", "ftp://example.com", ""])
def test_key_that_is_no_origin_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=r"example.com|''"):
        assert_polite([FIRST], {key: ""}, agent="x")


def test_two_keys_of_one_origin_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="twice"):
        assert_polite([FIRST], {SITE: "", f"{SITE}:443/": ""}, agent="x")


@pytest.mark.parametrize("agent", ["", "*", " ", "Mozilla/5.0 (compatible; ExampleBot/1.0)"])
def test_agent_that_is_no_product_token_is_refused(agent: str) -> None:
    with pytest.raises(ConfigurationError, match="product token"):
        assert_polite([FIRST], ROBOTS, agent=agent)


def test_requests_of_another_agent_are_named() -> None:
    trace = [fetched(100.0, agent="ExampleBot/1.0 (+https://example.com/bot)"), fetched(200.0, agent="curl/8.5")]
    with pytest.raises(AssertionError, match=r"1 violation:\nrequested under another User-Agent.*curl"):
        assert_polite(trace, ROBOTS, agent="examplebot")
    assert_polite(trace[:1], ROBOTS, agent="ExampleBot-Image", user_agent="ExampleBot")
    with pytest.raises(AssertionError, match="another User-Agent"):
        assert_polite(trace[:1], ROBOTS, agent="Example")


def test_address_in_a_user_agent_does_not_name_the_crawler() -> None:
    trace = [fetched(100.0, agent="OtherBot/1.0 (+https://bot.example/ExampleBot)")]
    with pytest.raises(AssertionError, match="another User-Agent"):
        assert_polite(trace, ROBOTS, agent="ExampleBot")


def test_empty_trace_proves_nothing() -> None:
    with pytest.raises(AssertionError, match="empty"):
        assert_polite(iter(()), ROBOTS, agent="x")


@pytest.mark.parametrize("option", ["min_delay_s", "slack_s", "min_refetch_s", "max_age_s"])
@pytest.mark.parametrize("value", [-1.0, float("nan")])
def test_seconds_below_zero_are_refused(option: str, value: float) -> None:
    options: dict[str, Any] = {option: value}
    with pytest.raises(ConfigurationError, match=option):
        assert_polite([FIRST], ROBOTS, agent="x", **options)


@pytest.mark.parametrize("status", [429, 500, 503, 599, 206, 999])
def test_page_after_a_robots_txt_that_closes_the_site_is_named(status: int) -> None:
    trace = [fetched(100.0, status), page("/a", 200.0)]
    with pytest.raises(AssertionError, match=r"without a usable robots\.txt"):
        assert_polite(trace, ROBOTS, agent="x")
    assert_polite([*trace[:1], fetched(161.0), page("/a", 200.0)], ROBOTS, agent="x")
    # Within a day, the copy from before may serve.
    assert_polite([fetched(0.0), *trace], ROBOTS, agent="x")


@pytest.mark.parametrize("status", [200, 203, 304, 301, 400, 404, 410, 0])
def test_page_after_any_other_answer_passes(status: int) -> None:
    assert_polite([fetched(100.0, status), page("/a", 200.0)], ROBOTS, agent="x")


def test_page_while_the_first_robots_txt_is_under_way_is_named() -> None:
    for ended in (101.0, float("inf")):
        with pytest.raises(AssertionError, match=r"without a usable robots\.txt"):
            assert_polite([Exchange(f"{SITE}/robots.txt", 100.0, ended), page("/a", 100.5)], {}, agent="x")


def test_page_with_a_copy_older_than_a_day_is_named() -> None:
    fresh, stale = page("/a", 100.1 + DAY_S), page("/b", 110.1 + DAY_S)
    assert_polite([FIRST, fresh], ROBOTS, agent="x")
    with pytest.raises(AssertionError, match=r"1 violation:\n.*robots.txt that is too old.*/b "):
        assert_polite([FIRST, fresh, stale], ROBOTS, agent="x")
    for renewal in (fetched(100.0 + DAY_S, 304), fetched(100.0 + DAY_S, 404)):
        assert_polite([FIRST, renewal, stale], ROBOTS, agent="x")
    with pytest.raises(AssertionError, match="too old"):
        assert_polite([FIRST, fetched(100.0 + DAY_S, 503), stale], ROBOTS, agent="x")
    assert_polite([FIRST, stale], ROBOTS, agent="x", max_age_s=7 * DAY_S)


@pytest.mark.parametrize("status", [200, 404, 503, 0])
def test_repeated_fetch_of_robots_txt_is_named(status: int) -> None:
    trace = [fetched(100.0 + n, status) for n in range(4)]
    with pytest.raises(AssertionError, match=r"3 violations:\nrobots.txt requested again too soon"):
        assert_polite(trace, ROBOTS, agent="x")
    assert_polite([fetched(100.0 + 54 * n, status) for n in range(4)], ROBOTS, agent="x")
    assert_polite(trace, ROBOTS, agent="x", min_refetch_s=1.0)
    with pytest.raises(AssertionError, match="again too soon"):
        assert_polite([fetched(100.0), fetched(3_700.0)], ROBOTS, agent="x", min_refetch_s=0.9 * DAY_S)


def test_robots_txt_that_another_one_redirects_to_is_not_fetched_again() -> None:
    www = "https://www.example.com/robots.txt"
    hop, own = Exchange(www, 100.2, 100.3), Exchange(www, 101.0, 101.1)
    for location in (www, None):
        moved = fetched(100.0, 301, location=location)
        assert_polite([moved, hop, own, page("/a", 200.0)], ROBOTS, agent="x")
        with pytest.raises(AssertionError, match=r"1 violation:\nrobots.txt requested again"):
            assert_polite([moved, hop, own, replace(own, started=103.0, ended=103.1)], ROBOTS, agent="x")


def test_target_of_a_redirect_waits_for_no_pace_and_decides_for_the_first_origin() -> None:
    moved = fetched(100.0, 301, location="/file")
    target = Exchange(f"{SITE}/file", 100.2, 100.3)
    assert_polite([moved, target, page("/a", 200.0)], ROBOTS, agent="x")
    with pytest.raises(AssertionError, match=r"without a usable robots\.txt"):
        assert_polite([moved, replace(target, status=503), page("/a", 200.0)], ROBOTS, agent="x")


def test_robots_txt_during_retry_after_is_named() -> None:
    busy = page("/a", 200.0, status=503, retry_after_s=60)
    with pytest.raises(AssertionError, match=r"robots\.txt requested before Retry-After was over"):
        assert_polite([FIRST, busy, fetched(210.0)], ROBOTS, agent="x")
    with pytest.raises(AssertionError, match=r"robots\.txt requested before Retry-After was over"):
        assert_polite([fetched(100.0, 429, retry_after_s=120), fetched(210.0)], ROBOTS, agent="x")
    assert_polite([FIRST, busy, fetched(261.0)], ROBOTS, agent="x")


def test_request_that_was_sent_before_a_retry_after_was_read_passes() -> None:
    """A page and a robots.txt may be under way together, so one may reach the server after the other is answered."""
    other = Exchange("https://example.com:8443/robots.txt", 199.0, 200.0, 429, retry_after_s=60.0)
    assert_polite([FIRST, other, page("/a", 200.5), page("/b", 261.0)], ROBOTS, agent="x")
    for late in ([page("/a", 201.5)], [page("/a", 200.1), page("/b", 207.0)]):
        with pytest.raises(AssertionError, match=r"1 violation:\npage requested before Retry-After was over"):
            assert_polite([FIRST, other, *late], ROBOTS, agent="x")
    earlier = page("/a", 150.0, status=429, retry_after_s=90.0)  # this one was read
    with pytest.raises(AssertionError, match=r"page requested before Retry-After was over: https://example.com/b \(40"):
        assert_polite([FIRST, earlier, other, page("/b", 200.5)], ROBOTS, agent="x")
    busy = page("/a", 200.0, status=429, retry_after_s=60.0)
    refreshed = fetched(busy.ended + 0.5)
    assert_polite([FIRST, busy, refreshed], ROBOTS, agent="x")
    with pytest.raises(AssertionError, match=r"1 violation:\nrobots\.txt requested before Retry-After was over"):
        assert_polite([FIRST, busy, fetched(busy.ended + 1.5)], ROBOTS, agent="x")


@pytest.mark.parametrize("ended", [199.9, float("nan")])
def test_exchange_that_ends_before_it_starts_is_named(ended: float) -> None:
    with pytest.raises(AssertionError, match=r"1 violation:\nexchange ends before it starts: https://example.com/a"):
        assert_polite([FIRST, Exchange(f"{SITE}/a", 200.0, ended)], ROBOTS, agent="x")


def test_copy_that_is_fetched_anew_does_not_restart_the_pace() -> None:
    assert_polite([FIRST, page("/a", 200.0), fetched(204.0), page("/b", 206.0)], ROBOTS, agent="x")
    with pytest.raises(AssertionError, match="not 5"):
        assert_polite([FIRST, page("/a", 200.0), fetched(204.0), page("/b", 205.0)], ROBOTS, agent="x")


def test_host_is_bound_by_each_site_that_is_known() -> None:
    other = "https://example.com:8443"
    robots = {**ROBOTS, other: "User-agent: *\nRequest-rate: 1/20\n"}
    known = Exchange(f"{other}/robots.txt", 210.0, 210.1)
    assert_polite([FIRST, page("/a", 200.0), page("/b", 206.0), known], robots, agent="x")
    with pytest.raises(AssertionError, match=r"not 20 \(request-rate"):
        assert_polite([FIRST, page("/a", 200.0), known, page("/b", 220.0)], robots, agent="x")


def test_message_is_bounded() -> None:
    pages = [Exchange(f"{SITE}/{'a' * 1_000}", float(n), float(n)) for n in range(1_000)]
    with pytest.raises(AssertionError) as caught:
        assert_polite(pages, {}, agent="x")
    lines = str(caught.value).splitlines()
    assert (lines[0], len(lines), lines[-1]) == ("1000 violations:", 52, "and 950 more")
    assert max(map(len, lines)) < 400


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


async def test_manual_clock_calls_due_callbacks_in_order() -> None:
    clock = ManualClock()
    seen: list[tuple[str, float]] = []
    clock.call_later(5, lambda: seen.append(("five", clock.monotonic())))
    clock.call_later(2, lambda: seen.append(("two", clock.monotonic())))
    clock.call_later(3, lambda: seen.append(("never", clock.monotonic()))).cancel()
    clock.advance(20)
    assert seen == [("two", 2.0), ("five", 5.0)]
    assert clock.monotonic() == 20.0


async def test_autojump_advances_when_all_tasks_wait() -> None:
    clock = ManualClock(autojump=True)

    async def nap(seconds: float) -> float:
        await clock.sleep(seconds)
        return clock.monotonic()

    assert list(await asyncio.gather(nap(86_400), nap(5), nap(0))) == [86_400.0, 5.0, 0.0]


def test_the_text_of_a_clock_has_both_times() -> None:
    clock = ManualClock(1_800_000_000.0)
    clock.advance(2.5)
    assert repr(clock) == "ManualClock(wall=1800000002.5, monotonic=2.5)"


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


def test_resolver_refuses_a_str_instead_of_a_list_of_addresses() -> None:
    with pytest.raises(ConfigurationError, match=r"give a list, as in \['127.0.0.1'\]"):
        ScriptedResolver({"a.example": "127.0.0.1"})


# ManualClock: it moves whenever every task waits, whatever its timers do.


UA = "ExampleBot/1.0 (+https://example.com/bot)"
ROUNDED_DOWN_S = 4045.699504362398
"""A time to which 60 s are added with a loss: ``(t + 60.0) - t < 60.0``."""


@pytest.mark.parametrize("start_s", [0.0, ROUNDED_DOWN_S])
async def test_a_stalled_queue_reports_once_and_goes_on(start_s: float, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "politesse.queue")
    fetcher = ScriptedFetcher({"https://example.com": "User-agent: *\nCrawl-delay: 300\n"})
    clock = ManualClock(autojump=True)
    clock.advance(start_s)
    async with asyncio.timeout(5), Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        queue = PoliteQueue[object](gate)
        await queue.put("https://example.com/1")
        async with queue.turn() as turn:
            assert turn.url == "https://example.com/1"
    assert "no progress for 60 s" in caplog.text


async def test_a_positive_delay_moves_the_clock_however_short_it_is() -> None:
    clock = ManualClock(autojump=True)
    clock.advance(1e9)
    due_s = clock.monotonic() + 1e-9
    calls = list[float]()

    def look() -> None:
        calls.append(clock.monotonic())
        if clock.monotonic() <= due_s:
            clock.call_later(1e-9, look)

    look()
    async with asyncio.timeout(5):
        await clock.sleep(1.0)
    assert len(calls) == 2


async def test_a_timer_that_raises_stops_no_other_timer() -> None:
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    clock = ManualClock(autojump=True)

    def fail() -> None:
        raise ValueError("a broken callback")

    clock.call_later(1.0, fail)
    async with asyncio.timeout(5):
        await clock.sleep(2.0)
    assert clock.monotonic() == 2.0
    assert [str(failure["exception"]) for failure in failures] == ["a broken callback"]


def test_a_clock_jumps_in_a_second_event_loop() -> None:
    clock = ManualClock(autojump=True)

    async def leave_a_timer() -> None:
        clock.call_later(5.0, lambda: None)

    async def sleep() -> None:
        async with asyncio.timeout(5):
            await clock.sleep(10.0)

    asyncio.run(leave_a_timer())
    asyncio.run(sleep())
    assert clock.monotonic() == 10.0
