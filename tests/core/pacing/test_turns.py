"""Turns of a gate: what they wait for, what is said of them, and what becomes of one that is not ended."""

import asyncio
import gc
from collections.abc import AsyncIterator
from itertools import product
from typing import Any

import pytest

from politesse import (
    Bound,
    Disallowed,
    Gatekeeper,
    HostPolicy,
    InvalidURL,
    NotYet,
    PacingOptions,
    PoliteQueue,
    Reason,
    Turn,
    Verdict,
)
from politesse.errors import TurnHeld
from politesse.events import Event, LongDelay, TurnExpired
from politesse.options import Limit, SharedPacer
from politesse.ports import FaultKind, FetchFault, FetchResponse
from politesse.testing import Answer, Exchange, ManualClock, ScriptedFetcher, ScriptedResolver, assert_polite
from tests.support.tasks import apart

UA = "ExampleBot/1.0 (+https://example.com/bot)"
SITE = "https://example.com"
ROBOTS = "User-agent: *\nDisallow: /private\nCrawl-delay: 5\n"


@pytest.fixture
def fetcher() -> ScriptedFetcher:
    return ScriptedFetcher({SITE: ROBOTS})


def gate_for(clock: ManualClock, *answers: Answer, **options: Any) -> Gatekeeper:
    """Return a gate with a pace of its own, and these answers for the robots.txt of SITE."""
    fetcher = ScriptedFetcher({SITE: list(answers)} if answers else {})
    return Gatekeeper(UA, fetcher=fetcher, pacer=SharedPacer(clock=clock), **options)


async def test_turns_are_spaced_by_the_pace_from_end_to_start(gate: Gatekeeper, clock: ManualClock) -> None:
    trace = [Exchange(f"{SITE}/robots.txt", clock.wall(), clock.wall())]

    async def visit(n: int) -> None:
        async with gate.turn(f"{SITE}/{n}") as turn:
            started = clock.wall()
            await clock.sleep(3)
            turn.observe(200, {})
        trace.append(Exchange(turn.url, started, clock.wall()))

    await asyncio.gather(*(visit(n) for n in range(5)))
    assert_polite(trace, {SITE: ROBOTS}, agent="ExampleBot")
    assert clock.monotonic() == pytest.approx(5 * (5 + 3))  # the first waits for the interval after robots.txt


async def test_first_page_waits_out_the_crawl_delay_however_late_it_comes(clock: ManualClock) -> None:
    for later_s in (0, 2, 4.5, 6):
        async with gate_for(clock, ROBOTS) as gate:
            await gate.check(f"{SITE}/x")
            fetched_mono = clock.monotonic()
            await clock.sleep(later_s)
            async with gate.turn(f"{SITE}/x"):
                assert clock.monotonic() - fetched_mono == pytest.approx(max(5, later_s))


async def test_what_is_disallowed_or_no_url_gets_no_turn_and_costs_no_time(
    gate: Gatekeeper, clock: ManualClock
) -> None:
    errors: dict[str, type[Exception]] = {f"{SITE}/private": Disallowed, "mailto:x": InvalidURL}
    for url, error in errors.items():
        with pytest.raises(error):
            async with gate.turn(url):
                pytest.fail("a turn for no page")
        with pytest.raises(error):
            gate.try_turn(url)
    with pytest.raises(Disallowed) as caught:
        await gate.take_turn(f"{SITE}/private")
    assert caught.value.verdict.reason is Reason.DISALLOW_RULE
    assert clock.monotonic() == 0
    assert gate.statistics().turns == 0


async def test_what_turn_returns_can_be_entered_once(gate: Gatekeeper) -> None:
    waiting = gate.turn(f"{SITE}/x")
    async with waiting:
        with pytest.raises(RuntimeError, match=r"call turn\(\) for each"):
            async with waiting:
                pytest.fail("entered twice")
        assert gate.statistics().turns == 1
    assert gate.statistics().turns == 0


async def test_429_on_robots_txt_closes_the_host_though_a_copy_serves(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    await gate.check(f"{SITE}/")
    fetcher.answers[SITE] = FetchResponse(429, f"{SITE}/robots.txt", {"retry-after": "1000"})
    await clock.sleep(0.95 * 86_400)
    gate.peek(f"{SITE}/")
    while gate.statistics().in_flight:
        await asyncio.sleep(0)
    now = clock.monotonic()
    async with gate.turn(f"{SITE}/x"):
        assert clock.monotonic() >= now + 1000


async def test_try_turn_of_an_unknown_origin_starts_its_fetch(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    answer = gate.try_turn(f"{SITE}/x")
    assert isinstance(answer, NotYet)
    assert not answer
    assert answer.bound_by is Bound.ROBOTS_TXT
    while not fetcher.requests or gate.statistics().in_flight:
        await asyncio.sleep(0)
    again = gate.try_turn(f"{SITE}/x")
    assert isinstance(again, NotYet)
    assert again.bound_by is Bound.CRAWL_DELAY


async def test_try_turn_gives_one_turn_and_then_says_when(gate: Gatekeeper, clock: ManualClock) -> None:
    await gate.check(f"{SITE}/")
    await clock.sleep(5)
    turn = gate.try_turn(f"{SITE}/x")
    assert isinstance(turn, Turn)
    with turn:
        busy = gate.try_turn(f"{SITE}/y")
        assert isinstance(busy, NotYet)
        assert busy.bound_by is Bound.IN_FLIGHT
    after = gate.try_turn(f"{SITE}/y")
    assert isinstance(after, NotYet)
    assert after.not_before == pytest.approx(clock.wall() + 5)


async def test_try_turns_answers_each_url_in_its_place(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers |= {"https://free.example": 404, "https://slow.example": ROBOTS, "https://new.example": 404}
    await gate.check_batch([f"{SITE}/", "https://free.example/", "https://slow.example/"])
    await clock.sleep(5)
    async with gate.turn("https://slow.example/"):
        pass
    urls = [f"{SITE}/1", f"{SITE}/2", "https://new.example/", "mailto:x", f"{SITE}/private", "https://free.example/"]
    before = gate.statistics()
    first, second, unknown, invalid, denied, free = await gate.try_turns(urls)
    assert isinstance(first, Turn)
    assert isinstance(second, NotYet)
    assert (second.bound_by, second.held_by) == (Bound.IN_FLIGHT, f"{SITE}/1")
    assert isinstance(unknown, NotYet)
    assert unknown.bound_by is Bound.ROBOTS_TXT
    assert isinstance(invalid, Verdict)
    assert invalid.reason is Reason.INVALID_URL
    assert isinstance(denied, Verdict)
    assert denied.reason is Reason.DISALLOW_RULE
    assert isinstance(free, Turn)
    assert (first.url, free.url) == (f"{SITE}/1", "https://free.example/")
    after = gate.statistics()
    assert after.allowed - before.allowed == 3, "each verdict counts once, and there is none before robots.txt"
    assert {reason: count - before.denied.get(reason, 0) for reason, count in after.denied.items()} == {
        Reason.DISALLOW_RULE: 1,
        Reason.INVALID_URL: 1,
    }
    first.give_back()
    free.end()
    (waiting,) = await gate.try_turns(["https://slow.example/"])
    assert isinstance(waiting, NotYet)
    assert waiting.not_before == pytest.approx(clock.wall() + 5)
    assert gate.statistics().turns == 0


async def test_turn_that_is_never_entered_is_given_back_with_a_warning(gate: Gatekeeper, clock: ManualClock) -> None:
    await gate.check(f"{SITE}/")
    await clock.sleep(5)
    with pytest.warns(ResourceWarning, match="never entered"):
        _take_and_drop(gate)
    assert gate.statistics().turns == 0
    turn = gate.try_turn(f"{SITE}/x")
    assert isinstance(turn, Turn)
    turn.give_back()


async def test_turn_that_is_dropped_after_max_turn_s_is_reported_once(gate: Gatekeeper, clock: ManualClock) -> None:
    events: list[Event] = []
    await clock.sleep(50)
    turn = (await gate.take_turn(f"{SITE}/x")).__enter__()
    gate.subscribe(events.append)
    await clock.sleep(700)
    assert not turn.under_way
    del turn
    gc.collect()
    await asyncio.sleep(0)
    (expired,) = events
    assert isinstance(expired, TurnExpired)
    assert expired.url == f"{SITE}/x"
    assert expired.held_s == pytest.approx(600.0, abs=0.01)


async def test_collected_turn_is_reported_after_the_subscriber_that_is_at_work(gate: Gatekeeper) -> None:
    def cycle(turn: Turn) -> None:
        itself: list[object] = [turn.__enter__()]
        itself.append(itself)

    at_work: list[Event] = []
    reported: list[Event] = []

    def subscriber(event: Event) -> None:
        assert at_work == []
        at_work.append(event)
        gc.collect()  # as it may happen at any moment
        reported.append(at_work.pop())

    gc.disable()
    try:
        cycle(await gate.take_turn(f"{SITE}/x"))
        gate.subscribe(subscriber)
        with pytest.warns(ResourceWarning, match="was dropped"):
            await gate.check(f"{SITE}/y")
    finally:
        gc.enable()
    assert gate.statistics().turns == 0
    await asyncio.sleep(0)
    assert [type(event).__name__ for event in reported] == ["Decided", "TurnDropped"]


async def test_policy_sets_the_floor_and_the_concurrency_of_a_host(clock: ManualClock) -> None:
    async with gate_for(clock) as gate:
        gate.set_policy("partner.example", HostPolicy(min_delay_s=0.1, max_concurrent=2))
        async with gate.turn("https://partner.example/1"), gate.turn("https://partner.example/2"):
            assert clock.monotonic() == pytest.approx(0.2)


async def test_policy_that_was_withdrawn_binds_nobody() -> None:
    for busy in (False, True):
        clock = ManualClock(autojump=True)
        async with gate_for(clock) as gate:
            gate.set_policy("partner.example", HostPolicy(min_delay_s=3_000))
            if busy:  # else its pacing begins after that
                await gate.check("https://partner.example/")
            gate.set_policy("partner.example", None)
            for number in range(3):
                async with gate.turn(f"https://partner.example/{number}"):
                    assert clock.monotonic() == number + 1


async def test_long_crawl_delay_is_reported_whatever_is_done_about_it() -> None:
    delays: dict[Any, float | None] = {"obey": 1000, "cap": 100, "skip": None}
    for done, delay_s in delays.items():
        clock, events = ManualClock(autojump=True), list[Event]()
        pacing = PacingOptions(max_crawl_delay_s=100, on_long_crawl_delay=done)
        fetcher = ScriptedFetcher({SITE: "User-agent: *\nCrawl-delay: 1000\nDisallow:\n"})
        for mode in ("enforce", "report"):
            async with Gatekeeper(UA, fetcher=fetcher, clock=clock, pacing=pacing, mode=mode) as gate:
                gate.subscribe(events.append)
                if delay_s is None:
                    with pytest.raises(Disallowed, match=r"^disallowed: .*1000 s") as caught:
                        await anext(_turns(gate, f"{SITE}/x"))
                    assert caught.value.verdict.reason is Reason.TOO_SLOW
                    assert not caught.value.verdict
                    assert gate.statistics().denied == {Reason.TOO_SLOW: 1}
                elif mode == "enforce":
                    await anext(_turns(gate, f"{SITE}/x"))
                    assert clock.monotonic() == delay_s
        told = [event for event in events if isinstance(event, LongDelay)]
        assert told
        assert {(event.delay_s, event.done) for event in told} == {(1000.0, done)}


def _take_and_drop(gate: Gatekeeper) -> None:
    assert gate.try_turn(f"{SITE}/x")
    gc.collect()


async def _turns(gate: Gatekeeper, *urls: str) -> AsyncIterator[str]:
    for url in urls:
        async with gate.turn(url) as turn:
            pass
        yield turn.url


async def test_a_site_whose_robots_txt_is_gone_asks_for_no_pace_any_more(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    async with gate.turn(f"{SITE}/x"):
        pass
    await gate.forget(SITE)
    fetcher.answers[SITE] = 404
    before_mono = clock.monotonic()
    async with gate.turn(f"{SITE}/x"):
        assert clock.monotonic() - before_mono == pytest.approx(1.0, abs=0.01)


async def test_a_host_that_a_robots_txt_redirects_to_has_answered_a_request_too(clock: ManualClock) -> None:
    led = FetchResponse(200, "https://other.example/robots.txt", body=b"")
    astray = FetchFault(FaultKind.REDIRECT_TARGET, "leads to ftp", "ftp://other.example/robots.txt")
    fetcher = ScriptedFetcher({SITE: led, "https://astray.example": astray})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        await gate.check("https://other.example/x")
        await clock.sleep(700)  # the fetch is remembered for ten minutes
        await gate.check(f"{SITE}/x")
        answer = gate.try_turn("https://other.example/x")
        assert isinstance(answer, NotYet)
        assert (answer.not_before, answer.bound_by) == (clock.wall() + 1, Bound.FLOOR)
        assert not await gate.check("https://astray.example/x")


def _passing(robots: str, **headers: str) -> FetchResponse:
    """Return a robots.txt that holds for as little as a copy can."""
    return FetchResponse(200, f"{SITE}/robots.txt", {"cache-control": "no-cache"} | headers, robots.encode())


async def test_answer_that_holds_for_less_than_the_pace_is_no_hindrance() -> None:
    rows: list[tuple[FetchResponse, float, HostPolicy | None, float]] = [
        (_passing("User-agent: *\nCrawl-delay: 30\n"), 1.0, None, 30.0),
        (_passing("User-agent: *\nCrawl-delay: 120\n"), 1.0, None, 120.0),
        (_passing(""), 90.0, None, 90.0),
        (_passing(""), 1.0, HostPolicy(min_delay_s=120), 120.0),
    ]
    for (answer, floor_s, policy, delay_s), by_queue in product(rows, (False, True)):
        clock, fetcher = ManualClock(autojump=True), ScriptedFetcher({SITE: answer})
        pacing = PacingOptions(min_delay_s=floor_s)
        async with Gatekeeper(UA, fetcher=fetcher, clock=clock, pacing=pacing) as gate, asyncio.timeout(10):
            gate.set_policy("example.com", policy)
            queue: PoliteQueue[None] = PoliteQueue(gate)
            for turns in range(1, 11):
                if by_queue:
                    await queue.put(f"{SITE}/{turns}")
                async with queue.turn() if by_queue else gate.turn(f"{SITE}/{turns}"):
                    late_s = clock.monotonic() - delay_s * turns
                    assert 0 <= late_s <= 0.002 * turns * by_queue  # robots.txt is fetched again before a queue's turn
                if turns == 1 and not by_queue:
                    assert fetcher.count(SITE) == 1, "it holds for the turn"
            assert fetcher.count(SITE) <= 1 + 10 * delay_s / 60  # it holds for a minute at least


async def test_copy_that_a_429_came_after_holds_no_longer_for_its_pace(clock: ManualClock) -> None:
    robots = _passing("User-agent: *\nCrawl-delay: 500\n", **{"cache-control": "max-age=100"})
    fetcher = ScriptedFetcher({SITE: [robots, 429]})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        assert await gate.check(f"{SITE}/x")
        clock.advance(95)
        assert await gate.check(f"{SITE}/x"), "asked for again behind this"
        await asyncio.sleep(0.01)
        clock.advance(10)
        assert (await gate.check(f"{SITE}/x")).reason is Reason.TOO_MANY_REQUESTS


async def test_rules_that_change_while_the_turn_is_waited_for_still_count(clock: ManualClock) -> None:
    fetcher = ScriptedFetcher({SITE: [_passing(""), _passing("User-agent: *\nDisallow: /\n")]})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate, asyncio.timeout(10):
        gate.set_policy("example.com", HostPolicy(min_delay_s=120))
        waiting = apart(anext(_turns(gate, f"{SITE}/x")))
        await clock.sleep(61)
        await gate.check(f"{SITE}/y")  # fetches it again
        assert fetcher.count(SITE) == 2
        with pytest.raises(Disallowed):
            await waiting


async def test_policy_that_is_set_during_any_step_of_a_check_denies() -> None:
    for steps in range(12):
        clock = ManualClock(autojump=True)
        async with gate_for(clock, ROBOTS) as gate:
            waiting = asyncio.create_task(gate.take_turn(f"{SITE}/page", max_wait_s=60))
            for _ in range(steps):
                clock.monotonic()  # reading the clock keeps it from jumping
                await asyncio.sleep(0)
            gate.set_policy("example.com", HostPolicy(deny=True))
            with pytest.raises(Disallowed):
                await waiting


# A turn of another line


async def test_second_turn_of_an_address_or_domain_is_an_error_at_once() -> None:
    first, second = "https://a.example.com/1", "https://b.example.com/2"
    resolver = ScriptedResolver({"a.example.com": ["192.0.2.1"], "b.example.com": ["192.0.2.1"]})
    by_key = PacingOptions(key="domain"), PacingOptions(key="address")
    limit = Limit(min_delay_s=1.0)
    scoped = (*by_key, PacingOptions(domain=limit), PacingOptions(address=limit))
    for pacing, known in product(scoped, (False, True)):
        clock = ManualClock(autojump=True)
        async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=clock, pacing=pacing, resolver=resolver) as gate:
            if known:
                async with gate.turn(second):
                    pass
            async with gate.turn(first):
                with pytest.raises(TurnHeld, match=first):
                    async with gate.turn(second):
                        pass
            assert gate.statistics().turns == 0
            async with gate.turn(second):
                pass
