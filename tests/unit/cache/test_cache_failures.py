from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from politesse._cache.codec import decode
from politesse._cache.guarded_store import GuardedStore
from politesse._cache.options import CacheOptions
from politesse._cache.robots import RobotsCache
from politesse.errors import StoreError
from politesse.events import Publisher
from politesse.origin import Origin
from politesse.ports import FaultKind, FetchFault, FetchRequest, FetchResult
from politesse.robots import Dialect
from politesse.stores.memory import MemoryStore
from politesse.testing import ManualClock, ScriptedFetcher
from politesse.verdict import AccessResult
from tests.support.tasks import settle
from tests.unit.cache.caching import (
    BOT,
    FILE,
    HOUR,
    OTHER,
    SITE,
    FaultyStore,
    caching,
    file,
    status,
)

if TYPE_CHECKING:
    from politesse.testing import Answer


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


async def test_a_thousand_tasks_do_not_ask_an_unreachable_site_more_often_than_one() -> None:
    async with caching({SITE: 503}) as bench:
        for _ in range(10):
            entries = await asyncio.gather(*(bench.ask() for _ in range(100)))
            assert {entry.source.result for entry in entries} == {AccessResult.UNREACHABLE}
            bench.clock.advance(5)
        assert bench.scripted.count(SITE) == 1


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


async def test_a_success_ends_the_backoff() -> None:
    answers: list[Answer] = [503, 503, file(cache_control="max-age=60"), 503]
    async with caching({SITE: answers}, options=CacheOptions(refresh_after=1.0)) as bench:
        await bench.ask()
        bench.clock.advance(60)
        await bench.ask()
        bench.clock.advance(120)
        assert (await bench.ask()).source.result is AccessResult.SUCCESSFUL
        bench.clock.advance(60)
        entry = await bench.ask()
        assert entry.trouble is not None
        assert entry.trouble.failures == 1
        assert entry.trouble.retry_wall == bench.clock.wall() + 60


async def test_a_file_serves_a_day_while_its_site_is_unreachable_and_then_no_more() -> None:
    async with caching({SITE: [file(cache_control="max-age=600"), 503]}) as bench:
        await bench.ask()
        for _ in range(23):
            bench.clock.advance(HOUR)
            entry = await bench.ask()
            await settle()
            assert entry.source.result is AccessResult.SUCCESSFUL
            assert not entry.rules[BOT].allowed("/private")
        bench.clock.advance(HOUR)
        assert (await bench.ask()).source.result is AccessResult.UNREACHABLE


class Raising(ScriptedFetcher):
    """A fetcher that raises what no fetcher should."""

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


async def test_a_fetcher_that_raises_is_asked_again_after_the_wait_only() -> None:
    fetcher = Raising()
    async with caching(fetcher=fetcher) as bench:
        await bench.ask()
        bench.clock.advance(59)
        await bench.ask()
        assert len(fetcher.requests) == 1
        bench.clock.advance(1)
        await bench.ask()
        assert len(fetcher.requests) == 2


async def test_copy_serves_while_the_fetcher_raises() -> None:
    async with caching({SITE: [file(cache_control="max-age=600"), KeyError("bug")]}) as bench:
        await bench.ask()
        bench.clock.advance(600)
        entry = await bench.ask()
        assert entry.source.result is AccessResult.SUCCESSFUL
        assert not entry.rules[BOT].allowed("/private")


async def test_failed_read_of_the_store_is_a_miss_and_published() -> None:
    async with caching({SITE: FILE}, store=FaultyStore(get=StoreError("disk"))) as bench:
        entry = await bench.ask()
        assert entry.source.result is AccessResult.SUCCESSFUL
        assert [(failure.component, str(failure.error)) for failure in bench.failures()] == [("store", "disk")]


async def test_failed_write_of_the_store_is_published_and_the_answer_holds() -> None:
    async with caching({SITE: FILE}, store=FaultyStore(put=StoreError("disk full"))) as bench:
        entry = await bench.ask()
        assert not entry.rules[BOT].allowed("/private")
        bench.clock.advance(HOUR)
        assert await bench.ask() is entry
        assert [(failure.component, str(failure.error)) for failure in bench.failures()] == [("store", "disk full")]


@pytest.mark.parametrize(
    "garbage", [b"", b"garbage", b"politesse/0 ", b"politesse/1 ", bytes(1000), b"politesse/1 \xff"]
)
async def test_damaged_record_is_a_miss_published_and_overwritten(garbage: bytes) -> None:
    store = FaultyStore()
    await store.put(SITE, garbage)
    async with caching({SITE: FILE}, store=store) as bench:
        entry = await bench.ask()
        assert entry.source.result is AccessResult.SUCCESSFUL
        (failure,) = bench.failures()
        assert failure.component == "store"
        assert isinstance(failure.error, StoreError)
        kept = await store.get(SITE)
        assert kept is not None
        assert decode(kept).copy is not None


@pytest.mark.parametrize("method", ["get", "put"])
async def test_unexpected_error_of_the_store_closes_the_gate_and_is_published(method: str) -> None:
    async with caching({SITE: FILE}, store=FaultyStore(**{method: ZeroDivisionError("bug")})) as bench:
        entry = await bench.ask()
        assert entry.source.result is AccessResult.UNREACHABLE
        assert "ZeroDivisionError" in entry.source.fault
        assert entry.rules == {}
        (failure,) = bench.failures()
        assert isinstance(failure.error, ZeroDivisionError)


async def test_a_gate_that_its_store_has_closed_opens_when_the_store_is_well_again() -> None:
    store = FaultyStore(get=ZeroDivisionError("bug"))
    async with caching({SITE: FILE}, store=store) as bench:
        await bench.ask()
        store.errors.clear()
        bench.clock.advance(59)
        assert (await bench.ask()).source.result is AccessResult.UNREACHABLE
        bench.clock.advance(1)
        assert (await bench.ask()).source.result is AccessResult.SUCCESSFUL


async def test_the_waits_double_while_the_store_raises_something_unexpected() -> None:
    async with caching({SITE: FILE}, store=FaultyStore(get=ZeroDivisionError("bug"))) as bench:
        for wait_s in (60, 120, 240):
            entry = await bench.ask()
            assert entry.source.not_before == bench.clock.wall() + wait_s
            bench.clock.advance(wait_s)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("bug")

    __repr__ = __str__


@pytest.mark.parametrize("component", ["fetcher", "store"])
async def test_an_error_that_cannot_be_printed_closes_the_gate(component: str) -> None:
    error = Unprintable()
    answers: dict[str, Answer | list[Answer]] = {SITE: error if component == "fetcher" else FILE}
    store = FaultyStore(**({"get": error} if component == "store" else {}))
    async with caching(answers, store=store) as bench:
        entry = await bench.ask()
        assert entry.source.result is AccessResult.UNREACHABLE
        assert "Unprintable" in entry.source.fault
        assert [failure.error for failure in bench.failures()] == [error]


async def test_error_of_the_jitter_is_raised_in_all_waiters() -> None:
    async with caching({SITE: FILE}) as bench:
        bench.cache._jitter = lambda: 1 / 0
        with pytest.raises(ZeroDivisionError):
            await bench.ask()
        assert bench.cache.in_flight == 0


async def test_another_agent_gets_an_answer_where_the_store_lost_the_copy_and_the_site_is_unreachable() -> None:
    async with caching({SITE: [FILE, 503]}) as bench:
        await bench.ask(agent=BOT)
        await bench.store.delete(SITE)
        async with asyncio.timeout(5):
            entry = await bench.ask(agent=OTHER)
        assert entry.source.result is AccessResult.UNREACHABLE
        assert bench.scripted.count(SITE) == 2


async def test_a_subscriber_that_raises_harms_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    publisher = Publisher()
    publisher.subscribe(lambda event: 1 / 0)  # type: ignore[arg-type]
    clock = ManualClock()
    cache = RobotsCache(
        ScriptedFetcher({SITE: FILE}),
        GuardedStore(MemoryStore(), timeout_s=5.0, clock=clock),
        dialect=Dialect.RFC9309,
        options=CacheOptions(),
        clock=clock,
        publisher=publisher,
    )
    assert (await cache.entry(Origin.of(SITE), BOT)).source.result is AccessResult.SUCCESSFUL
    assert "ZeroDivisionError" in caplog.text
    await cache.aclose()
