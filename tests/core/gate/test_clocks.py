"""Clocks that disagree: a wall clock that is set, and a monotonic clock that stands still while the machine sleeps."""

import asyncio
from itertools import product
from typing import Final

import pytest

from politesse import CacheOptions, Disallowed, HostPolicy, Reason
from politesse.queue import PoliteQueue
from politesse.stores import MemoryStore
from politesse.testing import Answer, ManualClock
from tests.core.gate import gates
from tests.core.gate.gates import CLOSED, DAY, HOUR, OPEN, PAGE, SITE, Answers, ScriptedGate, lasting, refusal
from tests.support.tasks import settle

AT_END: Final = CacheOptions(refresh_after=1.0)


def step(clock: ManualClock, seconds: float) -> None:
    """Set the wall clock forward or back."""
    clock.set_wall(clock.wall() + seconds)


async def test_age_is_the_larger_of_monotonic_and_wall_time() -> None:
    urls = (PAGE, "https://unavailable.example/")
    for slept_s, passed_s in ((HOUR, 0.0), (HOUR, 30.0), (0.0, HOUR), (-HOUR, 30.0), (-HOUR, 0.0)):
        async with ScriptedGate({SITE: OPEN}) as gate:
            await gate.check_batch(urls)
            step(gate.clock, slept_s)
            gate.clock.advance(passed_s)
            assert [gate.known(url).age_s for url in urls] == [max(passed_s, slept_s + passed_s)] * 2


async def test_copy_near_its_end_by_the_wall_clock_is_refreshed_in_the_background() -> None:
    async with ScriptedGate({SITE: [OPEN, CLOSED]}) as gate:
        await gate.check(PAGE)
        step(gate.clock, 0.95 * DAY)
        assert await gate.check(PAGE)
        await settle()
        assert not await gate.check(PAGE)
        assert gate.fetcher.count(SITE) == 2


async def test_verdict_keeps_the_age_and_the_copy_of_its_moment() -> None:
    async with ScriptedGate({SITE: OPEN}, cache=AT_END) as gate:
        await gate.check(PAGE)
        gate.clock.advance(60.0)
        verdict = gate.known(PAGE)
        source = verdict.source
        gate.clock.advance(HOUR)
        step(gate.clock, -2 * HOUR)
        assert await gate.check(f"{SITE}:443/")  # the plain way, which moves the times of the copy
        assert (verdict.age_s, verdict.source) == (60.0, source)
        later = gate.known(PAGE)
        assert later.age_s == 60.0 + HOUR
        assert later.source != source
        step(gate.clock, -HOUR)
        gate.clock.advance(60.0)
        async with gate.turn(PAGE) as turn:
            assert turn.verdict.source is not None
            assert turn.verdict.source.fetched_wall <= gate.clock.wall()


async def test_record_from_a_clock_slightly_ahead_is_aged_from_its_receipt() -> None:
    for ahead_s in (1.0, 299.0):
        store = MemoryStore()
        async with ScriptedGate({SITE: OPEN}, store=store) as ahead:
            await ahead.check(PAGE)
        clock = ManualClock(ahead.clock.wall() - ahead_s)
        async with ScriptedGate({SITE: CLOSED}, clock=clock, store=store, cache=AT_END) as gate:
            verdict = await gate.check(PAGE)
            assert (verdict.allowed, verdict.age_s) == (True, 0.0)
            clock.advance(DAY)
            assert not await gate.check(PAGE)


async def test_wall_clock_that_was_days_ahead_for_a_while_closes_no_site_for_longer() -> None:
    async with ScriptedGate({SITE: [503, OPEN]}, jumps=True) as gate:
        await gate.check(PAGE)
        gate.clock.advance(10.0)
        step(gate.clock, -3 * DAY)
        verdict = await gate.check(PAGE)
        assert verdict.not_before is not None
        assert 50.0 <= verdict.not_before - gate.clock.wall() <= 56.0
        queue: PoliteQueue[object] = PoliteQueue(gate)
        await queue.put(PAGE)
        async with queue.turn():
            assert gate.clock.monotonic() < 100.0


async def test_swinging_wall_clock_causes_no_repeated_fetches() -> None:
    bounds: list[tuple[Answer, int]] = [(OPEN, 1), (lasting(600), 12), (lasting(60), 120), (404, 1), (503, 7)]
    for (answer, most), swing_s in product(bounds, (30.0, 300.0)):
        async with ScriptedGate({SITE: answer}) as gate:
            for place in range(720):
                await gate.check(PAGE)
                await asyncio.sleep(0)
                step(gate.clock, swing_s if place % 2 else -swing_s)
                gate.clock.advance(5.0)
            await settle()
            assert gate.fetcher.count(SITE) <= most


async def test_setting_the_wall_clock_forward_does_not_shorten_a_backoff() -> None:
    async with ScriptedGate({SITE: 503}) as gate:
        await gate.check(PAGE)
        for _ in range(59):
            step(gate.clock, HOUR)
            gate.clock.advance(1.0)
            assert (await gate.check(PAGE)).reason is Reason.UNREACHABLE
        assert gate.fetcher.count(SITE) == 1
        gate.clock.advance(10.0)
        await gate.check(PAGE)
        assert gate.fetcher.count(SITE) == 2


async def test_copy_that_the_store_lost_serves_until_either_clock_ends_it() -> None:
    troubles = {503: Reason.UNREACHABLE, 429: Reason.TOO_MANY_REQUESTS}
    for trouble, sleeps in product(troubles, (True, False)):
        async with ScriptedGate({SITE: [OPEN, refusal(trouble, "86400")]}, store=gates.Forgetful()) as gate:
            await gate.check(PAGE)
            gate.clock.advance(0.95 * DAY)
            if not sleeps:
                step(gate.clock, -23 * HOUR)
            assert await gate.check(PAGE)
            await settle()
            assert gate.fetcher.count(SITE) == 2
            assert await gate.check(PAGE)
            if sleeps:
                step(gate.clock, 0.05 * DAY)
            else:
                gate.clock.advance(0.05 * DAY)
            assert (await gate.check(PAGE)).reason is troubles[trouble]


async def test_setting_the_wall_clock_changes_no_pause_of_a_host() -> None:
    answers: Answers = {SITE: OPEN, f"{SITE}:81": refusal(429, "600", f"{SITE}:81/robots.txt"), f"{SITE}:82": OPEN}
    for by_robots_txt, ahead_s in product((True, False), (HOUR, -23 * HOUR)):
        async with ScriptedGate(answers, jumps=True) as gate:
            async with gate.turn(PAGE) as turn:
                if not by_robots_txt:
                    turn.observe(429, {"Retry-After": "600"})
            if by_robots_txt:
                await gate.check(f"{SITE}:81/")
            refused_mono = gate.clock.monotonic()
            step(gate.clock, ahead_s)
            assert (await gate.check(f"{SITE}:82/")).reason is Reason.TOO_MANY_REQUESTS
            assert gate.fetcher.count(f"{SITE}:82") == 0
            async with gate.turn(PAGE):
                assert gate.clock.monotonic() - refused_mono == pytest.approx(600.0)
            assert (await gate.check(f"{SITE}:82/")).reason is Reason.NO_RULE


async def test_permission_is_checked_again_after_the_machine_slept_during_a_wait() -> None:
    slow = lasting(60, "User-agent: *\nCrawl-delay: 200\n")
    async with ScriptedGate({SITE: [lasting(60), slow, CLOSED]}, cache=AT_END) as gate:
        await gate.check(PAGE)
        gate.clock.advance(30.0)
        first = gate.try_turn(PAGE)
        assert first
        waiting = asyncio.ensure_future(gate.take_turn(PAGE))
        await settle()
        gate.clock.advance(60.0)
        gate.set_policy("example.com", HostPolicy(min_delay_s=10.0))
        first.give_back()
        gate.clock.advance(1.0)
        await settle()  # policy changed and copy expired: robots.txt was fetched again, and states a delay
        assert (gate.fetcher.count(SITE), waiting.done()) == (2, False)
        step(gate.clock, 3 * DAY)
        gate.clock.advance(200.0)
        await settle()
        with pytest.raises(Disallowed):
            await asyncio.wait_for(waiting, 1)


async def test_setting_the_wall_clock_back_during_a_save_keeps_no_record_fresh_for_years() -> None:
    class Slow(MemoryStore):
        async def put(self, key: str, record: bytes, /) -> None:
            step(gate.clock, -3_650 * DAY)
            await super().put(key, record)

    async with ScriptedGate(store=Slow()) as gate:
        await gate.check(PAGE)
        gate.clock.advance(86_401)
        assert gate.peek(PAGE) is None
