"""Clocks that disagree: a wall clock that is set, and a monotonic clock that stands still while the machine sleeps."""

import asyncio

import pytest

from politesse import CacheOptions, Disallowed, Gatekeeper, HostPolicy, Reason
from politesse.ports import FetchResponse
from politesse.queue import PoliteQueue
from politesse.stores import MemoryStore
from politesse.testing import Answer, ManualClock, ScriptedFetcher
from politesse.verdict import AccessResult
from tests.support.tasks import settle

UA = "ExampleBot/1.0 (+https://example.com/bot)"
SITE = "https://example.com"
PAGE = f"{SITE}/"
OPEN = "User-agent: *\nDisallow:\n"
CLOSED = "User-agent: *\nDisallow: /\n"
MINUTE = 60.0
HOUR = 3_600.0
DAY = 86_400.0
NEVER_AHEAD = CacheOptions(refresh_after=1.0)


def step(clock: ManualClock, seconds: float) -> None:
    """Set the wall clock forward or back."""
    clock.set_wall(clock.wall() + seconds)


def lasting(seconds: int, body: str = OPEN) -> FetchResponse:
    return FetchResponse(200, f"{SITE}/robots.txt", {"cache-control": f"max-age={seconds}"}, body.encode())


@pytest.mark.parametrize(("slept_s", "passed_s"), [(HOUR, 0.0), (HOUR, 30.0), (0.0, HOUR), (-HOUR, 30.0), (-HOUR, 0.0)])
async def test_age_is_the_larger_of_monotonic_and_wall_time(slept_s: float, passed_s: float) -> None:
    clock, fetcher = ManualClock(), ScriptedFetcher({SITE: OPEN, "https://unavailable.example": 404})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        for site in (SITE, "https://unavailable.example"):
            await gate.check(f"{site}/")
        step(clock, slept_s)
        clock.advance(passed_s)
        for site in (SITE, "https://unavailable.example"):
            verdict = gate.peek(f"{site}/")
            assert verdict is not None
            assert verdict.age_s == max(passed_s, slept_s + passed_s)


async def test_copy_near_its_end_by_the_wall_clock_is_refreshed_in_the_background() -> None:
    clock, fetcher = ManualClock(), ScriptedFetcher({SITE: [OPEN, CLOSED]})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        await gate.check(PAGE)
        step(clock, 0.95 * DAY)
        assert await gate.check(PAGE)
        await settle()
        assert not await gate.check(PAGE)
        assert fetcher.count(SITE) == 2


async def test_a_verdict_keeps_the_age_and_the_copy_of_its_moment() -> None:
    clock, fetcher = ManualClock(), ScriptedFetcher({SITE: OPEN})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, cache=NEVER_AHEAD) as gate:
        await gate.check(PAGE)
        clock.advance(MINUTE)
        verdict = gate.peek(PAGE)
        assert verdict is not None
        source = verdict.source
        clock.advance(HOUR)
        step(clock, -2 * HOUR)
        assert await gate.check(f"{SITE}:443/")  # the plain way, which moves the times of the copy
        assert verdict.age_s == MINUTE
        assert verdict.source is source
        later = gate.peek(PAGE)
        assert later is not None
        assert later.age_s == MINUTE + HOUR
        assert later.source != source


@pytest.mark.parametrize("ahead_s", [1.0, 299.0])
async def test_record_from_a_clock_slightly_ahead_is_aged_from_its_receipt(ahead_s: float) -> None:
    store, ahead = MemoryStore(), ManualClock()
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: OPEN}), clock=ahead, store=store) as gate:
        await gate.check(PAGE)
    clock, fetcher = ManualClock(ahead.wall() - ahead_s), ScriptedFetcher({SITE: CLOSED})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, store=store, cache=NEVER_AHEAD) as gate:
        verdict = await gate.check(PAGE)
        assert (verdict.allowed, verdict.age_s) == (True, 0.0)
        clock.advance(DAY)
        assert not await gate.check(PAGE)


async def test_wall_clock_that_was_days_ahead_for_a_while_closes_no_site_for_longer() -> None:
    clock, fetcher = ManualClock(autojump=True), ScriptedFetcher({SITE: [503, OPEN]})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        await gate.check(PAGE)
        clock.advance(10.0)
        step(clock, -3 * DAY)
        verdict = await gate.check(PAGE)
        assert verdict.not_before is not None
        assert 50.0 <= verdict.not_before - clock.wall() <= 56.0
        queue: PoliteQueue[object] = PoliteQueue(gate)
        await queue.put(PAGE)
        async with queue.turn():
            assert clock.monotonic() < 100.0


@pytest.mark.parametrize("swing_s", [1.0, 30.0, 300.0])
@pytest.mark.parametrize(("answer", "most"), [(OPEN, 1), (lasting(600), 12), (lasting(60), 120), (404, 1), (503, 7)])
async def test_swinging_wall_clock_causes_no_repeated_fetches(swing_s: float, answer: Answer, most: int) -> None:
    clock, fetcher = ManualClock(), ScriptedFetcher({SITE: answer})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        for second in range(3_600):
            await gate.check(PAGE)
            await asyncio.sleep(0)
            step(clock, swing_s if second % 2 else -swing_s)
            clock.advance(1.0)
        await settle()
    assert fetcher.count(SITE) <= most


async def test_setting_the_wall_clock_forward_does_not_shorten_a_backoff() -> None:
    clock, fetcher = ManualClock(), ScriptedFetcher({SITE: 503})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        await gate.check(PAGE)
        for _ in range(59):
            step(clock, HOUR)
            clock.advance(1.0)
            assert (await gate.check(PAGE)).reason is Reason.UNREACHABLE
        assert fetcher.count(SITE) == 1
        clock.advance(10.0)
        await gate.check(PAGE)
        assert fetcher.count(SITE) == 2


class Forgetful(MemoryStore):
    """A store that keeps nothing."""

    async def get(self, key: str, /) -> bytes | None:
        return None


@pytest.mark.parametrize("trouble", [503, 429])
@pytest.mark.parametrize("sleeps", [True, False])
async def test_copy_that_the_store_lost_serves_until_either_clock_ends_it(trouble: int, *, sleeps: bool) -> None:
    refused = FetchResponse(trouble, f"{SITE}/robots.txt", {"retry-after": "86400"})
    clock, fetcher = ManualClock(), ScriptedFetcher({SITE: [OPEN, refused]})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, store=Forgetful()) as gate:
        await gate.check(PAGE)
        clock.advance(0.95 * DAY)
        if not sleeps:
            step(clock, -23 * HOUR)
        assert await gate.check(PAGE)
        await settle()
        assert fetcher.count(SITE) == 2
        assert await gate.check(PAGE)
        if sleeps:
            step(clock, 0.05 * DAY)
        else:
            clock.advance(0.05 * DAY)
        verdict = await gate.check(PAGE)
        assert not verdict
        assert verdict.source is not None
        assert verdict.source.result in {AccessResult.UNREACHABLE, AccessResult.TOO_MANY_REQUESTS}


@pytest.mark.parametrize("ahead_s", [HOUR, -23 * HOUR])
@pytest.mark.parametrize("by_robots_txt", [True, False])
async def test_setting_the_wall_clock_changes_no_pause_of_a_host(ahead_s: float, *, by_robots_txt: bool) -> None:
    refusal = FetchResponse(429, "https://example.com:81/robots.txt", {"retry-after": "600"})
    clock, fetcher = (
        ManualClock(autojump=True),
        ScriptedFetcher({SITE: OPEN, f"{SITE}:81": refusal, f"{SITE}:82": OPEN}),
    )
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        async with gate.turn(PAGE) as turn:
            if not by_robots_txt:
                turn.observe(429, {"Retry-After": "600"})
        if by_robots_txt:
            await gate.check(f"{SITE}:81/")
        refused_mono = clock.monotonic()
        step(clock, ahead_s)
        assert (await gate.check(f"{SITE}:82/")).reason is Reason.TOO_MANY_REQUESTS
        assert fetcher.count(f"{SITE}:82") == 0
        async with gate.turn(PAGE):
            assert clock.monotonic() - refused_mono == pytest.approx(600.0)
        assert (await gate.check(f"{SITE}:82/")).reason is Reason.NO_RULE


async def test_permission_is_checked_again_after_the_machine_slept_during_a_wait() -> None:
    slow = lasting(60, "User-agent: *\nCrawl-delay: 200\n")
    clock, fetcher = ManualClock(), ScriptedFetcher({SITE: [lasting(60), slow, CLOSED]})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, cache=NEVER_AHEAD) as gate:
        await gate.check(PAGE)
        clock.advance(MINUTE / 2)
        first = gate.try_turn(PAGE)
        assert first
        waiting = asyncio.ensure_future(gate.take_turn(PAGE))
        await settle()
        clock.advance(MINUTE)
        gate.set_policy("example.com", HostPolicy(min_delay_s=10.0))
        first.give_back()
        clock.advance(1.0)
        await settle()  # policy changed and copy expired: robots.txt was fetched again, and states a delay
        assert (fetcher.count(SITE), waiting.done()) == (2, False)
        step(clock, 3 * DAY)
        clock.advance(200.0)
        await settle()
        with pytest.raises(Disallowed):
            await asyncio.wait_for(waiting, 1)


async def test_setting_the_wall_clock_back_during_a_save_keeps_no_record_fresh_for_years() -> None:
    clock = ManualClock()

    class Slow(MemoryStore):
        async def put(self, key: str, record: bytes, /) -> None:
            clock.set_wall(clock.wall() - 3_650 * 86_400)
            await super().put(key, record)

    fetcher = ScriptedFetcher()
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, store=Slow()) as gate:
        await gate.check("https://example.com/")
        clock.advance(86_401)
        assert gate.peek("https://example.com/") is None


async def test_a_turn_moves_the_times_of_a_copy_back_with_the_wall_clock() -> None:
    clock, fetcher = ManualClock(autojump=True), ScriptedFetcher({SITE: OPEN})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        await gate.check(PAGE)
        step(clock, -HOUR)
        async with gate.turn(PAGE) as turn:
            assert turn.verdict.source is not None
            assert turn.verdict.source.fetched_wall <= clock.wall()
