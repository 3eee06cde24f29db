from __future__ import annotations

import asyncio
import gc
import threading
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from politesse._cache.codec import decode, encode
from politesse._cache.options import CacheOptions
from politesse._cache.record import Copy, Record
from politesse.errors import StoreError
from politesse.origin import Origin
from politesse.ports import Validators
from politesse.testing import ManualClock
from politesse.verdict import AccessResult
from tests.support.tasks import settle
from tests.unit.cache.caching import (
    BOT,
    DAY,
    FILE,
    HOUR,
    OTHER,
    SITE,
    FaultyStore,
    caching,
    file,
    not_modified,
    site_number,
    status,
)

if TYPE_CHECKING:
    from politesse.robots import Dialect
    from politesse.testing import Answer


async def test_a_record_that_is_still_fresh_is_used_without_a_request() -> None:
    store = FaultyStore()
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


async def test_a_record_of_trouble_is_held_to_without_a_request() -> None:
    store = FaultyStore()
    async with caching({SITE: status(503, retry_after="7200")}, store=store) as before:
        await before.ask()
    async with caching({SITE: FILE}, store=store) as after:
        entry = await after.ask()
        assert entry.source.result is AccessResult.UNREACHABLE
        after.clock.advance(7199)
        await after.ask()
        assert after.scripted.requests == []
        after.clock.advance(1)
        assert (await after.ask()).source.result is AccessResult.SUCCESSFUL


async def test_a_record_that_is_stale_is_revalidated_with_its_validators() -> None:
    store = FaultyStore()
    copy = Copy(AccessResult.SUCCESSFUL, 200, f"{SITE}/r", FILE.encode(), '"x"', "", 1_800_000_000.0 - 2 * DAY, DAY)
    await store.put(SITE, encode(Record(copy, None)))
    async with caching({SITE: not_modified()}, store=store) as bench:
        entry = await bench.ask()
        assert not entry.rules[BOT].allowed("/private")
        assert bench.scripted.requests[0].validators == Validators(f"{SITE}/r", '"x"', "")


async def test_every_answer_is_kept_in_the_store() -> None:
    async with caching({SITE: [FILE, 404, 503]}) as bench:
        for result in (AccessResult.SUCCESSFUL, AccessResult.UNAVAILABLE):
            await bench.ask()
            kept = await bench.store.get(SITE)
            assert kept is not None
            record = decode(kept)
            assert record.copy is not None
            assert (record.copy.result, record.trouble) == (result, None)
            bench.clock.advance(DAY)
        await bench.ask()
        kept = await bench.store.get(SITE)
        assert kept is not None
        record = decode(kept)
        assert record.trouble is not None
        assert record.trouble.status == 503


async def test_backoff_survives_a_store_that_forgot() -> None:
    async with caching({SITE: 503}) as bench:
        for wait_s in (60, 120, 240, 480):
            entry = await bench.ask()
            assert entry.source.not_before == bench.clock.wall() + wait_s
            await bench.store.delete(SITE)
            bench.clock.advance(wait_s)
        assert bench.scripted.count(SITE) == 4


async def test_one_copy_serves_several_agents_with_their_own_rules() -> None:
    async with caching({SITE: FILE}) as bench:
        bench.scripted.gate.clear()
        tasks = [bench.start(agent=BOT), bench.start(agent=OTHER), bench.start(agent=f"{OTHER},{BOT}")]
        await settle()
        bench.scripted.gate.set()
        mine, others, both = await asyncio.gather(*tasks)
        assert mine.rules[BOT].allowed("/public")
        assert not others.rules[OTHER].allowed("/public")
        assert not both.rules[f"{OTHER},{BOT}"].allowed("/public")
        assert bench.scripted.count(SITE) == 1


async def test_a_new_agent_on_a_known_origin_is_compiled_from_the_store_without_a_request() -> None:
    async with caching({SITE: FILE}) as bench:
        first = await bench.ask()
        assert not first.answers(OTHER)
        bench.clock.advance(HOUR)
        second = await bench.ask(agent=OTHER)
        assert not second.rules[OTHER].allowed("/public")
        assert second.rules[BOT] is first.rules[BOT], "the agents that were known stay known"
        assert second.source == first.source
        assert bench.scripted.count(SITE) == 1


async def test_a_new_agent_needs_no_file_where_there_is_none() -> None:
    async with caching({SITE: 404}) as bench:
        entry = await bench.ask()
        assert entry.rules == {}
        assert await bench.ask(agent=OTHER) is entry
        assert bench.scripted.count(SITE) == 1


async def test_all_known_agents_are_compiled_when_a_copy_is_refreshed() -> None:
    async with caching({SITE: [FILE, "User-agent: *\nDisallow: /new\n"]}) as bench:
        await bench.ask(agent=BOT)
        await bench.ask(agent=OTHER)
        bench.clock.advance(0.95 * DAY)
        await bench.ask(agent=BOT)
        await settle()
        held = bench.cache.valid(SITE)
        assert held is not None
        assert set(held.rules) == {BOT, OTHER}
        assert not held.rules[OTHER].allowed("/new")
        assert held.rules[OTHER].allowed("/public")


async def test_two_origins_with_the_same_file_share_one_rule_set() -> None:
    async with caching({SITE: FILE, "https://twin.example": FILE, "https://other.example": FILE + "#"}) as bench:
        one, twin, other = [await bench.ask(site) for site in (SITE, "https://twin.example", "https://other.example")]
        assert one.rules[BOT] is twin.rules[BOT]
        assert one.rules[BOT] is not other.rules[BOT]


async def test_rules_that_origins_share_weigh_once() -> None:
    twin = "https://twin.example"
    async with caching({SITE: FILE, twin: FILE}) as bench:
        rules = (await bench.ask()).rules[BOT]
        alone = bench.cache.weight_bytes
        shared_bytes = alone - bench.cache.entries[SITE].own_bytes
        both = [bench.cache.entries[SITE], await bench.ask(twin)]
        assert bench.cache.weight_bytes == sum(entry.weight_bytes for entry in both) - shared_bytes
        await bench.cache.forget(Origin.of(SITE))
        assert bench.cache.weight_bytes == both[1].weight_bytes > rules.weight_bytes
        await bench.cache.forget(Origin.of(twin))
        assert bench.cache.weight_bytes == 0
        await bench.ask()
        assert bench.cache.weight_bytes == alone


async def test_the_bound_holds_more_origins_with_one_file_than_with_their_own() -> None:
    rules = "User-agent: *\n" + "\n".join(f"Disallow: /{number}" for number in range(1_000))
    options = CacheOptions(max_entries_bytes=40_000)
    kept = []
    for own in ("", "# {}"):
        sites: dict[str, Answer | list[Answer]] = {site_number(at): rules + own.format(at) for at in range(20)}
        async with caching(sites, options=options) as bench:
            for site in sites:
                await bench.ask(site)
            kept.append(len(bench.cache.entries))
    assert kept[0] == 20
    assert 2 <= kept[1] <= 4


async def test_a_rule_set_that_no_origin_has_is_let_go() -> None:
    async with caching({SITE: FILE}) as bench:
        await bench.ask()
        assert len(bench.cache._file_rules) == 1
        await bench.cache.forget(Origin.of(SITE))
        await settle()  # the loop holds on to what it has just handed over
        gc.collect()
        assert len(bench.cache._file_rules) == 0


async def test_the_entries_stay_within_their_bytes() -> None:
    options = CacheOptions(max_entries_bytes=50_000)
    async with caching({site_number(number): FILE + f"# {number}" for number in range(200)}, options=options) as bench:
        for number in range(200):
            entry = await bench.ask(site_number(number))
            assert not entry.rules[BOT].allowed("/private")
            assert bench.cache.weight_bytes <= 50_000
            assert bench.cache.weight_bytes == sum(entry.weight_bytes for entry in bench.cache.entries.values())
        assert 5 < len(bench.cache.entries) < 50


async def test_rules_of_an_agent_that_asks_later_count_once_for_all_origins_that_share_the_file() -> None:
    twin = "https://twin.example"
    async with caching({SITE: FILE, twin: FILE}) as bench:
        await bench.ask()
        await bench.ask(twin)
        before = bench.cache.weight_bytes
        entry = await bench.ask(agent=OTHER)
        assert bench.cache.weight_bytes == before + entry.rules[OTHER].weight_bytes
        assert bench.cache.entries[twin].answers(OTHER), "its file is the same"
        await bench.cache.forget(Origin.of(SITE))
        assert bench.cache.weight_bytes == bench.cache.entries[twin].weight_bytes
        await bench.cache.forget(Origin.of(twin))
        assert bench.cache.weight_bytes == 0


MORE_RULES = "".join(f"Disallow: /some/pages/{number}?query\nDisallow: /*/{number}$\n" for number in range(20))


@pytest.mark.parametrize(
    ("answer", "own"),
    [(404, ""), (FILE, ""), (FILE, "# {}"), (FILE + MORE_RULES, "# {}")],
    ids=["no file", "one file", "small files", "larger files"],
)
async def test_the_entries_weigh_about_what_they_take(answer: str | int, own: str) -> None:
    sites: dict[str, Answer | list[Answer]] = {
        site_number(at): answer if isinstance(answer, int) else answer + own.format(at) for at in range(300)
    }
    async with caching(sites) as bench:
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


async def test_recently_used_entries_survive_eviction() -> None:
    sites: dict[str, Answer | list[Answer]] = {site_number(number): FILE for number in range(400)}
    async with caching(sites, options=CacheOptions(max_entries_bytes=100_000)) as bench:
        await bench.ask(site_number(0))
        await bench.ask(site_number(1))
        for number in range(2, 400):
            await bench.ask(site_number(number))
            assert bench.cache.valid(site_number(1)) is not None, number
        assert bench.cache.valid(site_number(0)) is None


async def test_an_entry_that_was_let_go_comes_back_from_the_store_without_a_request() -> None:
    sites: dict[str, Answer | list[Answer]] = {site_number(number): FILE for number in range(100)}
    async with caching(sites, options=CacheOptions(max_entries_bytes=10_000)) as bench:
        for number in range(100):
            await bench.ask(site_number(number))
        assert bench.cache.valid(site_number(0)) is None
        assert not (await bench.ask(site_number(0))).rules[BOT].allowed("/private")
        assert bench.scripted.count(site_number(0)) == 1


async def test_an_entry_larger_than_the_bound_answers_all_the_same() -> None:
    async with caching({SITE: FILE, site_number(1): FILE}, options=CacheOptions(max_entries_bytes=1)) as bench:
        assert not (await bench.ask()).rules[BOT].allowed("/private")
        assert not (await bench.ask(site_number(1))).rules[BOT].allowed("/private")
        assert len(bench.cache.entries) == 1


async def test_replacing_an_entry_does_not_change_the_total_weight() -> None:
    async with caching({SITE: file(cache_control="max-age=60")}) as bench:
        await bench.ask()
        weight = bench.cache.weight_bytes
        for _ in range(10):
            bench.clock.advance(60)
            await bench.ask()
        assert bench.cache.weight_bytes == weight > 0
        await bench.cache.forget(Origin.of(SITE))
        assert bench.cache.weight_bytes == 0


@pytest.mark.parametrize(("size", "helpers"), [(1_000, 0), (200_000, 1)])
async def test_a_big_file_is_read_in_a_thread_and_a_small_one_is_not(
    size: int, helpers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from politesse._cache import robots as module

    threads = []
    compile_rules = module._compile

    def observed(body: bytes, dialect: Dialect, origin: Origin, agents: frozenset[str]) -> object:
        threads.append(threading.current_thread())
        return compile_rules(body, dialect, origin, agents)

    monkeypatch.setattr(module, "_compile", observed)
    async with caching({SITE: FILE + "#" * size}) as bench:
        assert not (await bench.ask()).rules[BOT].allowed("/private")
        assert len(threads) == 1
        assert len({*threads} - {threading.current_thread()}) == helpers


async def test_an_agent_that_asks_while_a_big_file_is_read_is_answered_without_another_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from politesse._cache import robots as module

    reading, go_on = threading.Event(), threading.Event()
    compile_rules = module._compile

    def held_back(body: bytes, dialect: Dialect, origin: Origin, agents: frozenset[str]) -> object:
        reading.set()
        go_on.wait(10)
        return compile_rules(body, dialect, origin, agents)

    monkeypatch.setattr(module, "_compile", held_back)
    async with caching({SITE: FILE + "#" * 200_000}) as bench:
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
    from politesse._cache import robots as module

    def broken(body: bytes, dialect: Dialect, origin: Origin, agents: frozenset[str]) -> object:
        raise RecursionError("bug")

    monkeypatch.setattr(module, "_compile", broken)
    async with caching({SITE: FILE}) as bench:
        entry = await bench.ask()
        assert entry.source.result is AccessResult.UNREACHABLE
        assert [type(failure.error) for failure in bench.failures()] == [RecursionError]


async def test_forgotten_file_is_fetched_again_without_condition() -> None:
    async with caching({SITE: [file(etag='"x"'), 404]}) as bench:
        await bench.ask()
        await bench.cache.forget(Origin.of(SITE))
        assert bench.cache.valid(SITE) is None
        assert await bench.store.get(SITE) is None
        assert (await bench.ask()).source.result is AccessResult.UNAVAILABLE
        assert bench.scripted.requests[1].validators is None


async def test_forgetting_ends_a_backoff() -> None:
    async with caching({SITE: [503, FILE]}) as bench:
        await bench.ask()
        await bench.cache.forget(Origin.of(SITE))
        assert (await bench.ask()).source.result is AccessResult.SUCCESSFUL


async def test_forgetting_what_is_not_known_does_nothing() -> None:
    async with caching({SITE: FILE}) as bench:
        entry = await bench.ask()
        await bench.cache.forget(Origin.of(site_number(1)))
        assert await bench.ask() is entry
        assert bench.failures() == []


async def test_failed_delete_in_the_store_is_published() -> None:
    async with caching({SITE: FILE}, store=FaultyStore(delete=StoreError("read-only"))) as bench:
        await bench.ask()
        await bench.cache.forget(Origin.of(SITE))
        assert bench.cache.valid(SITE) is None
        assert [(failure.component, str(failure.error)) for failure in bench.failures()] == [("store", "read-only")]


async def test_forgetting_during_a_fetch_still_answers_the_waiters() -> None:
    async with caching({SITE: FILE}) as bench:
        bench.scripted.gate.clear()
        task = bench.start()
        await settle()
        await bench.cache.forget(Origin.of(SITE))
        bench.scripted.gate.set()
        assert not (await task).rules[BOT].allowed("/private")
        assert bench.scripted.count(SITE) == 1
