"""One fetch for all who ask, its refresh, and what fails."""

import asyncio
import gc

import pytest

from politesse import CacheOptions
from politesse.errors import ClosedError, StoreError
from politesse.origin import Origin
from politesse.ports import FaultKind, FetchFault, FetchRequest, FetchResult, Validators
from politesse.stores import MemoryStore
from politesse.testing import Answer, ManualClock, ScriptedFetcher
from politesse.verdict import AccessResult
from tests.core.cache.caching import (
    BOT,
    DAY,
    FILE,
    HOUR,
    NEW_FILE,
    OTHER,
    SITE,
    Bench,
    caching,
    file,
    is_kept,
    not_modified,
    site_number,
    status,
)
from tests.support.stores import KeptStore
from tests.support.tasks import settle

pytestmark = pytest.mark.usefixtures("_each_store")


async def test_a_hundred_questions_about_an_unseen_origin_are_one_request_whoever_is_cancelled() -> None:
    for victim in (0, 1, 50, 99):
        async with caching({SITE: FILE}) as bench:
            bench.scripted.gate.clear()
            tasks = [bench.start() for _ in range(100)]
            await settle()
            assert bench.gate.statistics().in_flight == 1
            assert not any(task.done() for task in tasks)
            tasks[victim].cancel()
            await settle()
            bench.scripted.gate.set()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(answers.pop(victim), asyncio.CancelledError)
            for entry in answers:
                assert not isinstance(entry, BaseException)
                assert (entry.rules[BOT].allowed("/private"), entry.rules[BOT].allowed("/public")) == (False, True)
            assert bench.scripted.count(SITE) == bench.gate.statistics().fetches == 1
            assert bench.gate.statistics().in_flight == 0


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
    async with caching(options=CacheOptions(max_concurrent_fetches=3)) as bench:
        bench.scripted.gate.clear()
        asking = [bench.start(site_number(number)) for number in range(10)]
        await settle()
        assert len(bench.scripted.requests) == 3
        bench.scripted.gate.set()
        await asyncio.gather(*asking)
        assert len(bench.scripted.requests) == 10


@pytest.mark.clause("RFC 9309 2.3")
async def test_each_scheme_host_and_port_has_its_own_robots_txt() -> None:
    sites = [SITE, "http://example.com", "https://example.com:8443", "https://www.example.com", "https://example.com."]
    async with caching(dict.fromkeys(sites, FILE), clock=ManualClock(autojump=True)) as bench:
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


# Refresh


async def test_copy_is_refreshed_in_the_background_from_nine_tenths_of_its_lifetime() -> None:
    async with caching({SITE: [FILE, NEW_FILE, FILE]}) as bench:
        old = await bench.ask()
        old_rules = old.rules[BOT]
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
        assert not old_rules.allowed("/private"), "the old copy is replaced, not changed"
        await bench.ask_after(0.89 * DAY)
        assert bench.scripted.count(SITE) == 2, "until the new copy is old"
        await bench.ask_after(0.01 * DAY)
        assert bench.scripted.count(SITE) == 3


async def test_a_refresh_that_is_still_under_way_at_the_deadline_is_waited_for() -> None:
    async with caching({SITE: [FILE, NEW_FILE]}) as bench:
        old = await bench.ask()
        bench.scripted.gate.clear()
        assert await bench.ask_after(0.95 * DAY) is old
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
        await bench.ask_after(0.95 * DAY)
        held = await bench.ask()
        assert held.source.result is AccessResult.SUCCESSFUL
        assert "503" in held.source.fault
        assert not held.rules[BOT].allowed("/private")
        await bench.ask_after(59)
        assert bench.scripted.count(SITE) == 2
        await bench.ask_after(1)
        assert bench.scripted.count(SITE) == 3


async def test_a_stale_copy_does_not_answer_and_is_revalidated_with_its_validators() -> None:
    first = file(etag='"x"', last_modified="then", cache_control="max-age=600")
    async with caching({SITE: [first, not_modified(cache_control="max-age=1200")]}) as bench:
        old = await bench.ask()
        bench.clock.advance(600)
        assert bench.cache.valid(SITE) is None
        bench.scripted.gate.clear()
        task = bench.start()
        await settle()
        assert not task.done()
        bench.scripted.gate.set()
        entry = await task
        asked = [request.validators for request in bench.scripted.requests]
        assert asked == [None, Validators(f"{SITE}/robots.txt", '"x"', "then")]
        assert (entry.source.result, entry.source.status) == (AccessResult.SUCCESSFUL, 200)
        assert entry.source.fetched_wall == bench.clock.wall()
        assert entry.source.fresh_until_wall == bench.clock.wall() + 1200
        assert entry.rules[BOT] is old.rules[BOT], "a copy that is confirmed keeps its compiled rules"


async def test_answer_without_lifetime_still_answers_its_waiters() -> None:
    clock = ManualClock()

    class Passing(ScriptedFetcher):
        async def fetch(self, request: FetchRequest, /) -> FetchResult:
            result = await super().fetch(request)
            asyncio.get_running_loop().call_soon(clock.advance, 1.0)  # before any waiter has resumed
            return result

    passing = Passing({SITE: file(cache_control="no-store")})
    async with caching(fetcher=passing, options=CacheOptions(min_lifetime_s=0.0), clock=clock) as bench:
        entries = await asyncio.gather(*(bench.ask() for _ in range(10)))
        assert all(not entry.rules[BOT].allowed("/private") for entry in entries)
        assert passing.count(SITE) == 1


# Failures


async def test_an_unreachable_site_is_asked_again_only_after_waits_that_double() -> None:
    answers: list[Answer] = [500, 503, 206, 304, 999]
    answers += [FetchFault(kind, "bad", SITE) for kind in (FaultKind.CONNECT, FaultKind.TLS)]
    for answer in answers:
        async with caching({SITE: answer}) as bench:
            asked_at = []
            for second in range(1_000):
                before = bench.cache.fetches
                assert (await bench.ask()).source.result is AccessResult.UNREACHABLE
                if bench.cache.fetches > before:
                    asked_at.append(second)
                bench.clock.advance(1)
            assert asked_at == [0, 60, 180, 420, 900]
            assert bench.cache.fetches == bench.scripted.count(SITE) == len(bench.fetched()) == 5


async def test_too_many_requests_defers_until_the_moment_that_the_server_named_and_then_asks_before_any_page() -> None:
    async with caching({SITE: [status(429, retry_after="120"), FILE]}) as bench:
        start_wall = bench.clock.wall()
        for seconds in (0, 119):
            entry = await bench.ask_after(seconds)
            assert entry.source.result is AccessResult.TOO_MANY_REQUESTS
            assert entry.source.not_before == start_wall + 120
        assert bench.scripted.count(SITE) == 1
        bench.clock.advance(1)
        assert bench.cache.valid(SITE) is None
        assert (await bench.ask()).source.result is AccessResult.SUCCESSFUL


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("bug")

    __repr__ = __str__


async def test_an_unexpected_error_closes_the_gate_and_is_published() -> None:
    for component, method in (("fetcher", ""), ("cache", "get"), ("cache", "put")):
        errors: list[Exception] = [KeyError("bug"), ZeroDivisionError("bug"), Unprintable()]
        for error in errors:
            answer: Answer = FILE if method else error
            async with caching({SITE: answer}, store=KeptStore({}, fails={method: error})) as bench:
                entry = await bench.ask()
                assert entry.source.result is AccessResult.UNREACHABLE
                assert type(error).__name__ in entry.source.fault
                assert entry.rules == {}
                (failure,) = bench.failures()
                assert (failure.component, failure.error) == (component, error)
                if component == "fetcher":
                    assert bench.fetched()[0].fault == entry.source.fault


async def test_failed_call_of_the_store_is_published_and_the_answer_holds() -> None:
    for method in ("get", "put", "delete"):
        async with caching({SITE: FILE}, store=KeptStore({}, fails={method: StoreError("disk")})) as bench:
            entry = await bench.ask()
            assert not entry.rules[BOT].allowed("/private")
            bench.clock.advance(HOUR)
            assert await bench.ask() is entry
            await bench.cache.forget(Origin.of(SITE))
            assert bench.cache.valid(SITE) is None
            assert [(failure.component, str(failure.error)) for failure in bench.failures()] == [("store", "disk")]


async def test_damaged_record_is_a_miss_published_and_overwritten() -> None:
    for garbage in (b"", b"garbage", b"politesse/0 ", b"politesse/1 ", bytes(1000), b"politesse/1 \xff"):
        store = KeptStore({SITE: garbage})
        async with caching({SITE: FILE}, store=store) as bench:
            assert (await bench.ask()).source.result is AccessResult.SUCCESSFUL
            (failure,) = bench.failures()
            assert failure.component == "store"
            assert isinstance(failure.error, StoreError)
        assert await is_kept(store)


async def test_another_agent_gets_an_answer_where_the_store_lost_the_copy_and_the_site_is_unreachable() -> None:
    async with caching({SITE: [FILE, 503]}, store=MemoryStore()) as bench:
        await bench.ask(agent=BOT)
        await bench.store.delete(SITE)
        async with asyncio.timeout(5):
            entry = await bench.ask(agent=OTHER)
        assert entry.source.result is AccessResult.UNREACHABLE
        assert bench.scripted.count(SITE) == 2


# The end


async def test_who_waits_when_the_cache_is_closed_gets_a_closed_error() -> None:
    store = KeptStore({})
    async with caching({SITE: FILE}, store=store) as bench:
        bench.scripted.gate.clear()
        tasks = [bench.start(site) for site in (SITE, SITE, site_number(1))]
        await settle()
        await bench.cache.aclose()
        await bench.cache.aclose()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(answer) for answer in answers] == [ClosedError] * 3
        assert bench.cache.in_flight == 0
        assert (bench.scripted.closed, store.closed) == (True, True)


async def test_flight_closed_before_its_first_step_leaves_no_task() -> None:
    async with caching({SITE: FILE}) as bench:
        task = bench.start()
        await asyncio.sleep(0)
        await bench.cache.aclose()
        with pytest.raises(ClosedError):
            await task
        assert bench.cache.entries == {}


async def test_closing_during_a_background_refresh_leaves_no_task_and_logs_nothing() -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    async with caching({SITE: FILE}) as bench:
        await bench.ask()
        bench.scripted.gate.clear()
        await bench.ask_after(0.95 * DAY)
        assert bench.cache.in_flight == 1
    await settle()  # the loop still refers to its last callback
    gc.collect()
    await settle()
    assert complaints == []


def test_closing_the_loop_during_a_flight_logs_nothing() -> None:
    complaints: list[dict[str, object]] = []

    async def abandoned() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        bench = Bench({SITE: FILE})
        bench.scripted.gate.clear()
        waiter = bench.start()
        await settle()
        assert bench.cache.in_flight == 1
        waiter.cancel()

    asyncio.run(abandoned())
    gc.collect()
    assert complaints == []


async def test_a_question_from_outside_the_loop_is_answered_and_starts_no_refresh() -> None:
    async with caching({SITE: FILE}) as bench:
        entry = await bench.ask()
        bench.clock.advance(0.95 * DAY)
        assert await asyncio.to_thread(bench.cache.valid, SITE) is entry
        assert bench.cache.in_flight == 0
        assert await bench.ask() is entry
        await settle()
        assert bench.scripted.count(SITE) == 2
