import asyncio
import gc

import pytest

from politesse import Gatekeeper
from politesse.errors import ClosedError, StoreError
from politesse.origin import Origin
from politesse.ports import FaultKind, FetchFault, FetchRequest, FetchResult
from politesse.testing import Answer, ScriptedFetcher
from politesse.verdict import AccessResult
from tests.core.cache.caching import BOT, DAY, FILE, HOUR, OTHER, SITE, Bench, caching, site_number, status, stored
from tests.support.stores import KeptStore
from tests.support.tasks import settle


@pytest.mark.parametrize(
    "answer",
    [500, 503, 206, 304, 999, FetchFault(FaultKind.CONNECT, "refused", SITE), FetchFault(FaultKind.TLS, "bad", SITE)],
)
async def test_an_unreachable_site_is_asked_again_only_after_waits_that_double(answer: Answer) -> None:
    async with caching({SITE: answer}) as bench:
        asked_at = []
        for second in range(1_000):
            before = bench.cache.fetches
            entry = await bench.ask()
            assert entry.source.result is AccessResult.UNREACHABLE
            if bench.cache.fetches > before:
                asked_at.append(second)
            bench.clock.advance(1)
        assert asked_at == [0, 60, 180, 420, 900]
        assert bench.cache.fetches == bench.scripted.count(SITE) == len(bench.fetched()) == 5


async def test_too_many_requests_defers_until_the_moment_that_the_server_named_and_then_asks_before_any_page() -> None:
    async with caching({SITE: [status(429, retry_after="120"), FILE]}) as bench:
        start_wall = bench.clock.wall()
        entry = await bench.ask()
        assert entry.source.result is AccessResult.TOO_MANY_REQUESTS
        assert entry.source.not_before == start_wall + 120
        bench.clock.advance(119)
        assert (await bench.ask()).source.result is AccessResult.TOO_MANY_REQUESTS
        assert bench.scripted.count(SITE) == 1
        bench.clock.advance(1)
        assert bench.cache.valid(SITE) is None
        assert (await bench.ask()).source.result is AccessResult.SUCCESSFUL


class Raising(ScriptedFetcher):
    """A fetcher that raises an unexpected exception."""

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        self.requests.append(request)
        raise KeyError("bug")


async def test_fetcher_that_raises_closes_the_gate_and_publishes_component_failed() -> None:
    async with caching(fetcher=Raising()) as bench:
        entry = await bench.ask()
        assert entry.source.result is AccessResult.UNREACHABLE
        assert "KeyError" in entry.source.fault
        (failure,) = bench.failures()
        assert (failure.origin, failure.component) == (Origin.of(SITE), "fetcher")
        assert isinstance(failure.error, KeyError)
        assert bench.fetched()[0].fault == entry.source.fault


async def test_failed_read_of_the_store_is_a_miss_and_published() -> None:
    async with caching({SITE: FILE}, store=KeptStore({}, fails={"get": StoreError("disk")})) as bench:
        entry = await bench.ask()
        assert entry.source.result is AccessResult.SUCCESSFUL
        assert [(failure.component, str(failure.error)) for failure in bench.failures()] == [("store", "disk")]


async def test_failed_write_of_the_store_is_published_and_the_answer_holds() -> None:
    async with caching({SITE: FILE}, store=KeptStore({}, fails={"put": StoreError("disk full")})) as bench:
        entry = await bench.ask()
        assert not entry.rules[BOT].allowed("/private")
        bench.clock.advance(HOUR)
        assert await bench.ask() is entry
        assert [(failure.component, str(failure.error)) for failure in bench.failures()] == [("store", "disk full")]


@pytest.mark.parametrize(
    "garbage", [b"", b"garbage", b"politesse/0 ", b"politesse/1 ", bytes(1000), b"politesse/1 \xff"]
)
async def test_damaged_record_is_a_miss_published_and_overwritten(garbage: bytes) -> None:
    store = KeptStore({})
    await store.put(SITE, garbage)
    async with caching({SITE: FILE}, store=store) as bench:
        entry = await bench.ask()
        assert entry.source.result is AccessResult.SUCCESSFUL
        (failure,) = bench.failures()
        assert failure.component == "store"
        assert isinstance(failure.error, StoreError)
        assert (await stored(store)).copy is not None


@pytest.mark.parametrize("method", ["get", "put"])
async def test_unexpected_error_of_the_store_closes_the_gate_and_is_published(method: str) -> None:
    async with caching({SITE: FILE}, store=KeptStore({}, fails={method: ZeroDivisionError("bug")})) as bench:
        entry = await bench.ask()
        assert entry.source.result is AccessResult.UNREACHABLE
        assert "ZeroDivisionError" in entry.source.fault
        assert entry.rules == {}
        (failure,) = bench.failures()
        assert isinstance(failure.error, ZeroDivisionError)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("bug")

    __repr__ = __str__


@pytest.mark.parametrize("component", ["fetcher", "store"])
async def test_an_error_that_cannot_be_printed_closes_the_gate(component: str) -> None:
    error = Unprintable()
    answers: dict[str, Answer | list[Answer]] = {SITE: error if component == "fetcher" else FILE}
    store = KeptStore({}, fails={"get": error} if component == "store" else {})
    async with caching(answers, store=store) as bench:
        entry = await bench.ask()
        assert entry.source.result is AccessResult.UNREACHABLE
        assert "Unprintable" in entry.source.fault
        assert [failure.error for failure in bench.failures()] == [error]


async def test_another_agent_gets_an_answer_where_the_store_lost_the_copy_and_the_site_is_unreachable() -> None:
    async with caching({SITE: [FILE, 503]}) as bench:
        await bench.ask(agent=BOT)
        await bench.store.delete(SITE)
        async with asyncio.timeout(5):
            entry = await bench.ask(agent=OTHER)
        assert entry.source.result is AccessResult.UNREACHABLE
        assert bench.scripted.count(SITE) == 2


async def test_a_subscriber_that_raises_harms_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=ScriptedFetcher({SITE: FILE})) as gate:
        gate.subscribe(lambda event: 1 / 0)  # type: ignore[arg-type]
        assert await gate.check(f"{SITE}/public")
    assert "ZeroDivisionError" in caplog.text


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
