import asyncio
import gc

import pytest

from politesse.errors import ClosedError
from tests.support.stores import KeptStore
from tests.support.tasks import settle
from tests.unit.cache.caching import DAY, FILE, SITE, Bench, caching, site_number


async def test_who_waits_when_the_cache_is_closed_gets_a_closed_error() -> None:
    async with caching({SITE: FILE}) as bench:
        bench.scripted.gate.clear()
        tasks = [bench.start(site) for site in (SITE, SITE, site_number(1))]
        await settle()
        await bench.cache.aclose()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(answer) for answer in answers] == [ClosedError] * 3
        assert bench.cache.in_flight == 0


async def test_closing_during_a_background_refresh_leaves_no_task_and_logs_nothing() -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    async with caching({SITE: FILE}) as bench:
        await bench.ask()
        bench.scripted.gate.clear()
        bench.clock.advance(0.95 * DAY)
        await bench.ask()
        await settle()
        assert bench.cache.in_flight == 1
    await settle()  # the loop still refers to its last callback
    gc.collect()
    await settle()
    assert complaints == []


async def test_flight_closed_before_its_first_step_leaves_no_task() -> None:
    async with caching({SITE: FILE}) as bench:
        task = bench.start()
        await asyncio.sleep(0)
        await bench.cache.aclose()
        with pytest.raises(ClosedError):
            await task
        assert bench.cache.entries == {}


async def test_closing_closes_fetcher_and_store_and_may_be_repeated() -> None:
    store = KeptStore({})
    async with caching({SITE: FILE}, store=store) as bench:
        await bench.cache.aclose()
        await bench.cache.aclose()
        assert bench.scripted.closed
        assert store.closed


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
