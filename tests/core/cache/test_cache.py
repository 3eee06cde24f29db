import asyncio

import pytest

from politesse import CacheOptions, Gatekeeper
from politesse.origin import Origin
from politesse.ports import FetchRequest, FetchResult, Validators
from politesse.testing import ManualClock, ScriptedFetcher
from politesse.verdict import AccessResult
from tests.core.cache.caching import BOT, DAY, FILE, SITE, caching, file, not_modified
from tests.support.tasks import settle


async def test_a_hundred_questions_about_an_unseen_origin_are_one_request() -> None:
    async with caching({SITE: FILE}) as bench:
        bench.scripted.gate.clear()
        tasks = [bench.start() for _ in range(100)]
        await settle()
        assert bench.cache.in_flight == 1
        assert not any(task.done() for task in tasks)
        bench.scripted.gate.set()
        entries = await asyncio.gather(*tasks)
        assert bench.scripted.count(SITE) == bench.cache.fetches == 1
        assert bench.cache.in_flight == 0
        for entry in entries:
            assert not entry.rules[BOT].allowed("/private")
            assert entry.rules[BOT].allowed("/public")


async def test_questions_about_different_origins_do_not_wait_for_each_other() -> None:
    class Slow(ScriptedFetcher):
        async def fetch(self, request: FetchRequest, /) -> FetchResult:
            if request.origin.host == "slow.example":
                await asyncio.Event().wait()
            return await super().fetch(request)

    async with caching(fetcher=Slow({SITE: FILE})) as bench:
        slow = bench.start("https://slow.example")
        await settle()
        assert (await bench.ask()).source.result is AccessResult.SUCCESSFUL
        assert not slow.done()
        slow.cancel()


@pytest.mark.parametrize("victim", [0, 1, 50, 99])
async def test_cancelling_one_waiter_does_not_affect_the_others(victim: int) -> None:
    async with caching({SITE: FILE}) as bench:
        bench.scripted.gate.clear()
        tasks = [bench.start() for _ in range(100)]
        await settle()
        tasks[victim].cancel()
        await settle()
        bench.scripted.gate.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(answers.pop(victim), asyncio.CancelledError)
        assert len(answers) == 99
        assert all(not isinstance(answer, BaseException) and answer.rules[BOT].allowed("/") for answer in answers)
        assert bench.scripted.count(SITE) == 1


async def test_flight_ends_normally_although_all_waiters_were_cancelled() -> None:
    async with caching({SITE: FILE}) as bench:
        bench.scripted.gate.clear()
        tasks = [bench.start() for _ in range(10)]
        await settle()
        for task in tasks:
            task.cancel()
        await settle()
        assert bench.cache.in_flight == 1
        bench.scripted.gate.set()
        await settle()
        assert bench.cache.in_flight == 0
        held = bench.cache.valid(SITE)
        assert held is not None
        assert not held.rules[BOT].allowed("/private")
        assert await bench.ask() is held
        assert bench.scripted.count(SITE) == 1


async def test_number_of_concurrent_fetches_is_limited() -> None:
    fetcher, options = ScriptedFetcher(), CacheOptions(max_concurrent_fetches=3)
    async with Gatekeeper(
        "ExampleBot/1.0 (+https://example.com)", fetcher=fetcher, clock=ManualClock(), cache=options
    ) as gate:
        fetcher.gate.clear()
        asking = asyncio.ensure_future(gate.check_batch(f"https://host{number}.example/" for number in range(10)))
        await settle()
        assert len(fetcher.requests) == 3
        fetcher.gate.set()
        await asking
        assert len(fetcher.requests) == 10


@pytest.mark.clause("RFC 9309 2.3")
async def test_each_scheme_host_and_port_has_its_own_robots_txt() -> None:
    sites = [SITE, "http://example.com", "https://example.com:8443", "https://www.example.com", "https://example.com."]
    async with caching(dict.fromkeys(sites, FILE)) as bench:
        for site in sites:
            assert (await bench.ask(site)).source.robots_url == f"{site}/robots.txt"
        assert [str(request.origin) for request in bench.scripted.requests] == sites


async def test_event_of_a_fetch_has_the_answer_and_the_source() -> None:
    async with caching({SITE: FILE}) as bench:
        entry = await bench.ask()
        (event,) = bench.fetched()
        assert (event.origin, event.status, event.fault) == (Origin.of(SITE), 200, "")
        assert event.source is entry.source


async def test_asking_ahead_waits_for_nothing_and_spares_the_question_its_wait() -> None:
    async with caching({SITE: FILE}) as bench:
        for _ in range(3):
            bench.cache.ask_ahead(Origin.of(SITE), BOT)
        assert bench.cache.in_flight == 1
        await settle()
        held = bench.cache.valid(SITE)
        assert held is not None
        assert held.answers(BOT)
        assert await bench.ask() is held
        assert bench.scripted.count(SITE) == 1


async def test_copy_is_refreshed_in_the_background_from_nine_tenths_of_its_lifetime() -> None:
    async with caching({SITE: [FILE, "User-agent: *\nDisallow: /new\n"]}) as bench:
        old = await bench.ask()
        bench.clock.advance(0.9 * DAY)
        bench.scripted.gate.clear()
        async with asyncio.timeout(1):  # the refresh is held back, and no task waits for it
            assert [await bench.ask() for _ in range(100)] == [old] * 100
        assert bench.cache.valid(SITE) is old
        await settle()
        assert bench.cache.valid(SITE) is old
        assert bench.cache.in_flight == 1
        bench.scripted.gate.set()
        await settle()
        new = await bench.ask()
        assert new is not old
        assert not new.rules[BOT].allowed("/new")
        assert not old.rules[BOT].allowed("/private"), "the old copy is replaced, not changed"
        assert bench.scripted.count(SITE) == 2


async def test_a_refresh_that_landed_is_not_repeated_until_the_new_copy_is_old() -> None:
    async with caching({SITE: FILE}) as bench:
        await bench.ask()
        bench.clock.advance(0.95 * DAY)
        await bench.ask()
        await settle()
        bench.clock.advance(0.89 * DAY)
        await bench.ask()
        await settle()
        assert bench.scripted.count(SITE) == 2
        bench.clock.advance(0.01 * DAY)
        await bench.ask()
        await settle()
        assert bench.scripted.count(SITE) == 3


async def test_a_refresh_that_is_still_under_way_at_the_deadline_is_waited_for() -> None:
    async with caching({SITE: [FILE, "User-agent: *\nDisallow: /new\n"]}) as bench:
        old = await bench.ask()
        bench.scripted.gate.clear()
        bench.clock.advance(0.95 * DAY)
        assert await bench.ask() is old
        await settle()
        bench.clock.advance(0.05 * DAY)
        late = bench.start()
        await settle()
        assert not late.done()
        bench.scripted.gate.set()
        assert not (await late).rules[BOT].allowed("/new")
        assert bench.scripted.count(SITE) == 2


async def test_failed_refresh_keeps_the_copy_and_is_retried_after_the_backoff() -> None:
    async with caching({SITE: [FILE, 503]}) as bench:
        await bench.ask()
        bench.clock.advance(0.95 * DAY)
        await bench.ask()
        await settle()
        held = await bench.ask()
        assert held.source.result is AccessResult.SUCCESSFUL
        assert "503" in held.source.fault
        assert not held.rules[BOT].allowed("/private")
        bench.clock.advance(59)
        await bench.ask()
        await settle()
        assert bench.scripted.count(SITE) == 2
        bench.clock.advance(1)
        await bench.ask()
        await settle()
        assert bench.scripted.count(SITE) == 3


async def test_a_stale_copy_does_not_answer_and_is_revalidated_with_its_validators() -> None:
    first = file(etag='"x"', last_modified="then", cache_control="max-age=600")
    async with caching({SITE: [first, not_modified(cache_control="max-age=1200")]}) as bench:
        await bench.ask()
        bench.clock.advance(600)
        assert bench.cache.valid(SITE) is None
        bench.scripted.gate.clear()
        task = bench.start()
        await settle()
        assert not task.done()
        bench.scripted.gate.set()
        entry = await task
        assert bench.scripted.requests[0].validators is None
        assert bench.scripted.requests[1].validators == Validators(f"{SITE}/robots.txt", '"x"', "then")
        assert entry.source.result is AccessResult.SUCCESSFUL
        assert entry.source.status == 200
        assert entry.source.fetched_wall == bench.clock.wall()
        assert entry.source.fresh_until_wall == bench.clock.wall() + 1200
        assert not entry.rules[BOT].allowed("/private")


async def test_a_confirmed_copy_keeps_its_compiled_rules() -> None:
    async with caching({SITE: [file(etag='"x"', cache_control="max-age=600"), not_modified()]}) as bench:
        old = await bench.ask()
        bench.clock.advance(600)
        assert (await bench.ask()).rules[BOT] is old.rules[BOT]


async def test_answer_without_lifetime_still_answers_its_waiters() -> None:
    options = CacheOptions(min_lifetime_s=0.0)
    async with caching({SITE: file(cache_control="no-store")}, options=options) as bench:

        class Passing(ScriptedFetcher):
            async def fetch(self, request: FetchRequest, /) -> FetchResult:
                result = await super().fetch(request)
                asyncio.get_running_loop().call_soon(bench.clock.advance, 1.0)  # before any waiter has resumed
                return result

        bench.cache._fetcher = passing = Passing(bench.scripted.answers)
        entries = await asyncio.gather(*(bench.ask() for _ in range(10)))
        assert all(not entry.rules[BOT].allowed("/private") for entry in entries)
        assert passing.count(SITE) == 1
