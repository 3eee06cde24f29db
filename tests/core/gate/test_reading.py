"""Large files are read in threads of the gate's own, whoever else keeps those of the event loop busy."""

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from politesse import CacheOptions, Gatekeeper, Origin, Reason
from politesse.sites import FileOutcome
from politesse.stores import MemoryStore
from politesse.testing import ManualClock, ScriptedFetcher

UA = "ExampleBot/1.0 (+https://example.com/bot)"
SITE = "https://example.com"
LARGE = 100 * 1024


@pytest.fixture
async def _no_thread_to_be_had() -> AsyncIterator[None]:
    """Keep every thread of the event loop's own executor busy."""
    release = threading.Event()
    loop = asyncio.get_running_loop()
    executor = ThreadPoolExecutor(1)
    loop.set_default_executor(executor)
    busy = loop.run_in_executor(None, release.wait)
    yield
    release.set()
    await busy


@pytest.mark.usefixtures("_no_thread_to_be_had")
async def test_a_large_robots_txt_is_read_though_the_loop_has_no_thread_left() -> None:
    robots = f"User-agent: *\nDisallow: /private\nSitemap: {SITE}/a.xml\n" + f"# {'x' * 98}\n" * (LARGE // 100)
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: robots}), clock=ManualClock()) as gate:
        async with asyncio.timeout(10):
            assert (await gate.check(f"{SITE}/private")).reason is Reason.DISALLOW_RULE


@pytest.mark.usefixtures("_no_thread_to_be_had")
async def test_many_sitemaps_are_read_though_the_loop_has_no_thread_left() -> None:
    robots = "".join(f"Sitemap: {SITE}/{number}.xml\n" for number in range(500))
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: robots}), clock=ManualClock()) as gate:
        async with asyncio.timeout(10):
            assert len((await gate.sitemaps(SITE)).urls) == 500


@pytest.mark.usefixtures("_no_thread_to_be_had")
async def test_a_large_data_txt_is_read_though_the_loop_has_no_thread_left() -> None:
    fetcher = ScriptedFetcher({f"{SITE}/data.txt": "Dataset: /d.csv\n" * (LARGE // 10)})
    async with Gatekeeper(UA, fetcher=fetcher, clock=ManualClock(autojump=True)) as gate, asyncio.timeout(10):
        answer = await gate.datatxt(SITE)
        [record] = answer.records
        assert (answer.outcome, len(record.values("dataset"))) == (FileOutcome.FOUND, LARGE // 10)


@pytest.mark.usefixtures("_no_thread_to_be_had")
async def test_a_large_tdmrep_json_is_read_though_the_loop_has_no_thread_left() -> None:
    tdmrep = '[{"location": "/*", "tdm-reservation": 1}' + " " * LARGE + "]"
    fetcher = ScriptedFetcher({f"{SITE}/.well-known/tdmrep.json": tdmrep})
    clock = ManualClock(autojump=True)
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, enforce_usage={"tdm"}) as gate, asyncio.timeout(10):
        assert (await gate.check(f"{SITE}/page")).reason is Reason.USAGE_DISALLOWED


async def test_no_thread_outlives_a_gate_that_is_closed() -> None:
    before = set(threading.enumerate())
    robots = "User-agent: *\nDisallow: /private\n" + f"# {'x' * 98}\n" * (LARGE // 100)
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: robots}), clock=ManualClock()) as gate:
        await gate.check(f"{SITE}/page")
        started = set(threading.enumerate()) - before
    async with asyncio.timeout(10):
        while any(thread.is_alive() for thread in started):
            await asyncio.sleep(0.001)
    assert started


@pytest.mark.parametrize(("status", "option"), [(403, {"on_forbidden": "disallow"}), (429, {})])
async def test_stored_record_is_judged_by_the_options_of_its_reader(status: int, option: dict[str, str]) -> None:
    store = MemoryStore()
    lenient = CacheOptions(on_too_many_requests="allow")
    gate = Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: status}), store=store, cache=lenient)
    assert await gate.check(f"{SITE}/")
    strict = CacheOptions(**option)  # type: ignore[arg-type]
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: status}), store=store, cache=strict) as other:
        assert not await other.check(f"{SITE}/")


async def test_forget_is_not_undone_by_a_pending_read_of_the_store() -> None:
    reading, go_on = asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        async def get(self, key: str, /) -> bytes | None:
            kept = await super().get(key)
            reading.set()
            await go_on.wait()
            return kept

    store = Slow()
    go_on.set()
    fetcher = ScriptedFetcher()
    async with Gatekeeper(UA, fetcher=fetcher, store=store) as gate:
        await gate.check(f"{SITE}/")
        fetcher.answers[SITE] = "User-agent: *\nDisallow: /"
        go_on.clear()
        reading.clear()
        gate.ask_ahead(Origin.of("https://other.example/"))
        other = gate.agent(tokens="OtherBot", user_agent="OtherBot/1")
        await gate.forget(SITE)
        asking = asyncio.ensure_future(other.check(f"{SITE}/"))
        await reading.wait()
        await gate.forget(SITE)
        go_on.set()
        assert not await asking
    assert fetcher.count(SITE) == 2
