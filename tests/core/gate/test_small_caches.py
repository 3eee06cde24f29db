"""Caches with room for one file: many users evict each other's files, and all of them go on."""

import asyncio
import gc
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final

import pytest

from politesse import CacheOptions, Gatekeeper
from politesse._cache.robots import Entry
from politesse.queue import PoliteQueue, QueueClosed
from politesse.testing import Answer, ManualClock, ScriptedFetcher
from tests.support.stores import KeptStore

UA: Final = "ExampleBot/1.0 (+https://example.com/bot)"
SITES: Final = [f"https://h{number}.example" for number in range(40)]
TICK_S: Final = 0.01  # a round of a busy event loop


def files(lines: str = "") -> dict[str, Answer | list[Answer]]:
    """Return a different robots.txt for each site."""
    return {site: f"User-agent: *\nDisallow: /private{number}\n{lines}" for number, site in enumerate(SITES)}


def small_gate(clock: ManualClock, answers: dict[str, Answer | list[Answer]], **arguments: Any) -> Gatekeeper:
    cache = CacheOptions(max_entries_bytes=1, max_site_files_bytes=1)
    return Gatekeeper(UA, fetcher=ScriptedFetcher(answers), clock=clock, cache=cache, **arguments)


async def pass_time(clock: ManualClock, tasks: list[asyncio.Task[None]], limit_s: float) -> None:
    """Let each round of the event loop take time, until all tasks have ended; cancel the others at the limit."""
    while clock.monotonic() < limit_s and not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        clock.advance(TICK_S)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def take_all(queue: PoliteQueue[str], turns: list[str]) -> None:
    """Take the turns of all URLs that were put, and note each URL."""
    queue.close()
    with suppress(QueueClosed):
        while True:
            async with queue.turn() as turn:
                turns.append(turn.url)


async def test_forty_queues_of_one_gate_hand_out_all_urls() -> None:
    clock, store, turns = ManualClock(), KeptStore({}), list[str]()

    async def work(gate: Gatekeeper, site: str) -> None:
        queue = PoliteQueue[str](gate)
        for number in range(3):
            await queue.put(f"{site}/{number}")
        await take_all(queue, turns)

    async with small_gate(clock, files(), store=store) as gate:
        await pass_time(clock, [asyncio.create_task(work(gate, site)) for site in SITES], 12.0)
    assert sorted(turns) == sorted(f"{site}/{number}" for site in SITES for number in range(3))
    assert store.count("get", "https") <= len(SITES) + 2 * len(turns)


async def test_a_crawl_delay_is_kept_although_its_file_was_evicted() -> None:
    clock, starts = ManualClock(), {site: list[float]() for site in SITES}

    async def work(gate: Gatekeeper, site: str, number: int) -> None:
        async with gate.turn(f"{site}/{number}"):
            starts[site].append(clock.monotonic())

    async with small_gate(clock, files("Crawl-delay: 10\n")) as gate:
        tasks = [asyncio.create_task(work(gate, site, number)) for number in range(3) for site in SITES]
        await pass_time(clock, tasks, 60.0)
    assert {len(times) for times in starts.values()} == {3}
    gaps = [after - before for times in starts.values() for before, after in pairwise(times)]
    assert min(gaps) == pytest.approx(10.0, abs=TICK_S)


async def test_the_files_of_several_agents_are_read_although_others_evict_them() -> None:
    clock = ManualClock()
    tokens = {"ai-train": "Example-Train", "search": "Example-Search"}

    async def work(gate: Gatekeeper, site: str) -> None:
        assert await gate.check(f"{site}/page")

    async with small_gate(clock, files(), policy_tokens=tokens) as gate:
        tasks = [asyncio.create_task(work(gate, site)) for site in SITES]
        await pass_time(clock, tasks, 12.0)
    assert not any(task.cancelled() for task in tasks)


@pytest.mark.parametrize("fragment", ["", "#part"])
async def test_reservations_are_enforced_although_others_evict_them(fragment: str) -> None:
    clock, turns = ManualClock(), list[str]()
    reserved: dict[str, Answer | list[Answer]] = {
        f"{site}/.well-known/tdmrep.json": '[{"location": "/reserved", "tdm-reservation": 1}]' for site in SITES
    }

    async def work(gate: Gatekeeper, site: str) -> None:
        queue = PoliteQueue[str](gate)
        await queue.put(f"{site}/page{fragment}")
        await queue.put(f"{site}/reserved")
        await take_all(queue, turns)

    async with small_gate(clock, files() | reserved, enforce_usage={"tdm"}) as gate:
        await pass_time(clock, [asyncio.create_task(work(gate, site)) for site in SITES], 60.0)
    assert sorted(turns) == sorted(f"{site}/page{fragment}" for site in SITES)


async def test_an_evicted_file_is_not_kept_longer_than_its_users() -> None:
    clock = ManualClock(autojump=True)
    async with small_gate(clock, files()) as gate:
        queue = PoliteQueue[str](gate)
        for site in SITES:
            await queue.put(f"{site}/1")
            await queue.put(f"{site}/2")
        for _ in SITES:
            async with queue.turn():
                pass
        await clock.sleep(0.2)  # the timers of the loads are over
        gc.collect()
        entries = [found for found in gc.get_objects() if isinstance(found, Entry)]
        assert gate.statistics().origins == 1
        assert len([entry for entry in entries if entry.origin.text in SITES]) == 1
