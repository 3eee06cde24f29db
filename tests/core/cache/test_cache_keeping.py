"""What a cache keeps in its store and in its memory, and how much that weighs."""

import asyncio
import gc
import threading
import tracemalloc
import zlib
from collections.abc import Callable

import pytest

from politesse import CacheOptions, Gatekeeper
from politesse.origin import Origin
from politesse.ports import Validators
from politesse.robots import Dialect, RobotsTxt
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
    UA,
    caching,
    file,
    not_modified,
    site_number,
)
from tests.support.stores import KeptStore
from tests.support.tasks import settle

pytestmark = pytest.mark.usefixtures("_each_store")

MORE_RULES = "".join(f"Disallow: /some/pages/{number}?query\nDisallow: /*/{number}$\n" for number in range(20))


async def test_a_record_that_is_still_fresh_is_used_without_a_request() -> None:
    store = KeptStore({})
    async with caching({SITE: FILE}, store=store) as before:
        await before.ask()
        wall = before.clock.wall()
    async with caching({SITE: 503}, store=store, clock=ManualClock(wall + HOUR)) as after:
        entry = await after.ask()
        assert not entry.rules[BOT].allowed("/private")
        assert entry.source.fetched_wall == wall
        assert after.clock.monotonic() - entry.confirmed_mono == HOUR
        assert after.scripted.requests == []
        after.clock.advance(23 * HOUR)
        assert after.cache.valid(SITE) is None, "a restart does not lengthen a lifetime"


async def test_a_record_that_is_stale_is_revalidated_with_its_validators() -> None:
    store, clock = KeptStore({}), ManualClock()
    async with caching({SITE: file(etag='"x"')}, store=store, clock=clock) as before:
        await before.ask()
    clock.advance(2 * DAY)
    async with caching({SITE: not_modified()}, store=store, clock=clock) as after:
        assert not (await after.ask()).rules[BOT].allowed("/private")
        assert after.scripted.requests[0].validators == Validators(f"{SITE}/robots.txt", '"x"', "")


async def test_backoff_survives_a_store_that_forgot() -> None:
    async with caching({SITE: 503}, store=MemoryStore()) as bench:
        for wait_s in (60, 120, 240, 480):
            entry = await bench.ask()
            assert entry.source.not_before == bench.clock.wall() + wait_s
            await bench.store.delete(SITE)
            bench.clock.advance(wait_s)
        assert bench.scripted.count(SITE) == 4


async def test_file_that_the_store_has_lost_is_fetched_without_condition_and_stored_again() -> None:
    store, clock = MemoryStore(), ManualClock()
    async with caching({SITE: file(etag='"x"')}, store=store, clock=clock) as bench:
        await bench.ask()
        await store.delete(SITE)
        await bench.ask_after(0.95 * DAY)
        assert [request.validators for request in bench.scripted.requests] == [None, None]
    async with caching({SITE: 503}, store=store, clock=clock) as later:
        assert not (await later.ask()).rules[BOT].allowed("/private")


async def test_failure_is_stored_without_a_file_that_the_store_has_lost() -> None:
    store, clock = MemoryStore(), ManualClock()
    async with caching({SITE: [FILE, 503]}, store=store, clock=clock) as bench:
        await bench.ask()
        await store.delete(SITE)
        assert (await bench.ask_after(0.95 * DAY)).source.result is AccessResult.SUCCESSFUL
        assert "503" in (await bench.ask()).source.fault
    async with caching({SITE: 503}, store=store, clock=clock) as later:
        assert (await later.ask()).source.result is AccessResult.UNREACHABLE
        assert later.scripted.requests == []


async def test_a_new_agent_on_a_known_origin_is_compiled_from_the_store_without_a_request() -> None:
    async with caching({SITE: FILE}, store=MemoryStore()) as bench:
        first = await bench.ask()
        assert not first.answers(OTHER)
        bench.clock.advance(HOUR)
        second = await bench.ask(agent=OTHER)
        assert not second.rules[OTHER].allowed("/public")
        assert second.rules[BOT] is first.rules[BOT], "the agents that were known stay known"
        assert second.source == first.source
        assert bench.scripted.count(SITE) == 1


async def test_all_known_agents_are_compiled_when_a_copy_is_refreshed() -> None:
    async with caching({SITE: [FILE, NEW_FILE]}) as bench:
        await bench.ask(agent=BOT)
        await bench.ask(agent=OTHER)
        await bench.ask_after(0.95 * DAY)
        held = bench.cache.valid(SITE)
        assert held is not None
        assert set(held.rules) == {BOT, OTHER}
        assert not held.rules[OTHER].allowed("/new")
        assert held.rules[OTHER].allowed("/public")


async def test_rules_that_origins_share_weigh_once() -> None:
    twin = "https://twin.example"
    async with caching({SITE: FILE, twin: FILE}) as bench:
        rules = (await bench.ask()).rules[BOT]
        alone = bench.cache.weight_bytes
        shared_bytes = alone - bench.cache.entries[SITE].own_bytes
        second = await bench.ask(twin)
        assert bench.cache.weight_bytes == alone + second.own_bytes
        await bench.cache.forget(Origin.of(SITE))
        assert bench.cache.weight_bytes == shared_bytes + second.own_bytes > rules.weight_bytes
        await bench.cache.forget(Origin.of(twin))
        assert bench.cache.weight_bytes == 0
        await bench.ask()
        assert bench.cache.weight_bytes == alone


async def test_rules_that_agents_share_weigh_once() -> None:
    async with caching({SITE: FILE + MORE_RULES}, store=MemoryStore()) as bench:
        rules = (await bench.ask()).rules[BOT]
        alone = bench.cache.weight_bytes
        await bench.ask(agent="another-bot")
        assert 0 <= bench.cache.weight_bytes - alone < rules.weight_bytes / 2


async def test_a_copy_that_serves_on_without_its_record_weighs_what_it_takes() -> None:
    async with caching({SITE: [FILE, 503]}, store=MemoryStore()) as bench:
        before = await bench.ask()
        await bench.store.delete(SITE)
        await bench.ask_after(0.95 * DAY)
        kept = bench.cache.entries[SITE]
        assert kept.own_bytes - before.own_bytes > len(kept.source.fault) > 0
        assert bench.cache.weight_bytes == kept.own_bytes + kept.rules.weight_bytes
        await bench.cache.forget(Origin.of(SITE))
        assert bench.cache.weight_bytes == 0


@pytest.mark.full
async def test_agents_that_the_same_groups_bind_share_one_rule_set() -> None:
    large = FILE + "".join(f"Disallow: /some/pages/{number}\n" for number in range(20_000))
    options = CacheOptions(max_entries_bytes=8_000_000)
    sites: dict[str, Answer | list[Answer]] = {site_number(number): FILE + f"# {number}" for number in range(200)}
    async with caching({SITE: large, **sites}, options=options) as bench:
        for site in sites:
            await bench.ask(site)
        tracemalloc.start()
        try:
            await bench.ask()
            one_bytes, _ = tracemalloc.get_traced_memory()
            entries = [await bench.ask(agent=f"bot{number}") for number in range(30)]
            thirty_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len({id(entries[-1].rules[f"bot{number}"]) for number in range(30)}) == 1
        assert thirty_bytes - one_bytes < 1.5 * len(large)  # the file itself, which was read again
        assert len(bench.cache.entries) == 201
        assert bench.cache.weight_bytes < options.max_entries_bytes


async def test_agents_that_different_groups_bind_have_rule_sets_of_their_own() -> None:
    groups = "User-agent: a\nUser-agent: b\nDisallow: /a\nUser-agent: b\nUser-agent: c\nDisallow: /c\n"
    late = "User-agent: d\nCrawl-delay: 5\nUser-agent: e\nUser-agent: f\nDisallow: /d\nContent-Usage: train-ai=n\n"
    async with caching({SITE: groups + late}) as bench:
        rules = {agent: (await bench.ask(agent=agent)).rules[agent] for agent in "abcdefxy"}
    assert len({id(rule_set) for rule_set in rules.values()}) == 7
    assert rules["x"] is rules["y"]
    assert [rules[agent].crawl_delay for agent in "def"] == [5, None, None]


@pytest.mark.parametrize(
    ("answer", "own"),
    [
        pytest.param(404, "", id="no file", marks=pytest.mark.full),
        pytest.param(503, "", id="failure", marks=pytest.mark.full),
        pytest.param(FILE, "", id="one file", marks=pytest.mark.full),
        pytest.param(FILE, "# {}", id="small files"),
        pytest.param(FILE + MORE_RULES, "# {}", id="larger files", marks=pytest.mark.full),
    ],
)
async def test_the_entries_weigh_about_what_they_take(answer: str | int, own: str) -> None:
    sites: dict[str, Answer | list[Answer]] = {
        site_number(at): answer if isinstance(answer, int) else answer + own.format(at) for at in range(300)
    }
    async with caching(sites) as bench:
        bench.gate.state.publisher._log = ()  # the log knows the origins that are closed, too
        await bench.ask(site_number(0))
        tracemalloc.start()
        try:
            for site in sites:
                rules = (await bench.ask(site)).rules
                assert not rules or rules[BOT].allowed("/some/path")
            bench.scripted.requests.clear()  # these, and the events, know the origins, too
            bench.events.clear()
            weight_bytes = bench.cache.weight_bytes
            gc.collect()
            with_bytes, _ = tracemalloc.get_traced_memory()
            bench.cache.shut()
            gc.collect()
            taken_bytes = with_bytes - tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
    assert 0.75 < weight_bytes / taken_bytes < 1.35


async def test_an_entry_that_was_let_go_comes_back_from_the_store_without_a_request() -> None:
    sites: dict[str, Answer | list[Answer]] = {site_number(number): FILE for number in range(100)}
    async with caching(sites, options=CacheOptions(max_entries_bytes=10_000), store=MemoryStore()) as bench:
        for number in range(100):
            await bench.ask(site_number(number))
        assert bench.cache.valid(site_number(0)) is None
        assert not (await bench.ask(site_number(0))).rules[BOT].allowed("/private")
        assert bench.scripted.count(site_number(0)) == 1


async def test_a_big_file_is_read_in_a_thread_and_a_small_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    parse = RobotsTxt.parse

    def observed(body: bytes, dialect: Dialect, *, origin: Origin) -> RobotsTxt:
        threads.append(threading.current_thread())
        return parse(body, dialect, origin=origin)

    monkeypatch.setattr(RobotsTxt, "parse", observed)
    async with caching({SITE: FILE + "#" * 4_000, site_number(1): FILE + "#" * 5_000}) as bench:
        for site in (SITE, site_number(1)):
            assert not (await bench.ask(site)).rules[BOT].allowed("/private")
    small, big = threads
    assert small is threading.current_thread() is not big


async def test_large_files_are_packed_and_unpacked_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    on_the_loop: list[str] = []
    for name in ("compress", "compressobj", "decompress", "decompressobj"):
        call = getattr(zlib, name)

        def observed(*given: object, name: str = name, call: Callable[..., object] = call, **named: object) -> object:
            if threading.current_thread() is threading.main_thread():
                on_the_loop.append(name)
            return call(*given, **named)

        monkeypatch.setattr(zlib, name, observed)
    large = "User-agent: *\nDisallow: /private\n" + "".join(f"# {at * at:x}\n" for at in range(40_000))
    fetcher = ScriptedFetcher({site_number(number): large + str(number) for number in range(6)})
    store = MemoryStore()
    for kept in (None, store, store):  # at the third time, the store has the files
        async with Gatekeeper(UA, fetcher=fetcher, store=kept) as gate:
            for number in range(6):
                assert not await gate.check(f"{site_number(number)}/private")
    assert on_the_loop == []
    assert len(fetcher.requests) == 12


async def test_an_agent_that_asks_while_a_big_file_is_read_is_answered_without_another_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, go_on = threading.Event(), threading.Event()
    parse = RobotsTxt.parse

    def held_back(body: bytes, dialect: Dialect, *, origin: Origin) -> RobotsTxt:
        reading.set()
        go_on.wait(10)
        return parse(body, dialect, origin=origin)

    monkeypatch.setattr(RobotsTxt, "parse", held_back)
    async with caching({SITE: FILE + "#" * 200_000}, store=MemoryStore()) as bench:
        first = bench.start(agent=BOT)
        await asyncio.to_thread(reading.wait, 10)
        second = bench.start(agent=OTHER)
        await settle()
        go_on.set()
        assert (await first).rules[BOT].allowed("/public")
        assert not (await second).rules[OTHER].allowed("/public")
        assert bench.scripted.count(SITE) == 1


async def test_parser_that_raises_closes_the_gate_and_publishes_component_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(body: bytes, dialect: Dialect, *, origin: Origin) -> RobotsTxt:
        raise RecursionError("bug")

    monkeypatch.setattr(RobotsTxt, "parse", broken)
    async with caching({SITE: FILE}) as bench:
        entry = await bench.ask()
        assert entry.source.result is AccessResult.UNREACHABLE
        assert [type(failure.error) for failure in bench.failures()] == [RecursionError]


async def test_forgotten_file_is_fetched_again_without_condition() -> None:
    async with caching({SITE: [file(etag='"x"'), 404]}, store=MemoryStore()) as bench:
        await bench.ask()
        await bench.cache.forget(Origin.of(SITE))
        assert bench.cache.valid(SITE) is None
        assert await bench.store.get(SITE) is None
        assert (await bench.ask()).source.result is AccessResult.UNAVAILABLE
        assert bench.scripted.requests[1].validators is None


async def test_forgetting_during_a_fetch_still_answers_the_waiters() -> None:
    async with caching({SITE: FILE}) as bench:
        bench.scripted.gate.clear()
        task = bench.start()
        await settle()
        await bench.cache.forget(Origin.of(SITE))
        bench.scripted.gate.set()
        assert not (await task).rules[BOT].allowed("/private")
        assert bench.scripted.count(SITE) == 1
