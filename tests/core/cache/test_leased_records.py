"""Caches of several processes that share a store which leases: one of them fetches, and all answer by its record."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from politesse.errors import ClosedError, StoreError
from politesse.origin import Origin
from politesse.ports import FaultKind, FetchFault
from politesse.testing import Answer, ManualClock
from politesse.verdict import AccessResult
from tests.core.cache.caching import BOT, FILE, OTHER, SITE, Bench, caching, file, is_kept, not_modified, status
from tests.support.stores import LeasingDict
from tests.support.tasks import settle


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> LeasingDict:
    return LeasingDict(clock)


@asynccontextmanager
async def two(store: LeasingDict, clock: ManualClock, *answers: Answer) -> AsyncIterator[tuple[Bench, Bench]]:
    """Return the caches of two processes, which are answered alike."""
    async with (
        caching({SITE: list(answers)}, store=store, clock=clock) as one,
        caching({SITE: list(answers)}, store=store, clock=clock) as other,
    ):
        yield one, other


async def pass_time(clock: ManualClock, seconds: float) -> None:
    """Let time pass in steps in which every task may go on."""
    for _ in range(round(seconds / 0.05)):
        clock.advance(0.05)
        await settle()


def calls(store: LeasingDict) -> list[tuple[str, str]]:
    """Return the calls about SITE; there are others about the pace of its host."""
    return [call for call in store.calls if call[1] == SITE]


def requests(*benches: Bench) -> int:
    return sum(bench.scripted.count(SITE) for bench in benches)


async def test_one_request_serves_all_whatever_its_answer() -> None:
    closed = FetchFault(FaultKind.HOST_CLOSED, "shut", SITE, retry_after_s=60)
    answers: list[tuple[Answer, AccessResult]] = [
        (FILE, AccessResult.SUCCESSFUL),
        (404, AccessResult.UNAVAILABLE),
        (503, AccessResult.UNREACHABLE),
        (status(503, retry_after="600"), AccessResult.UNREACHABLE),
        (status(429, retry_after="600"), AccessResult.TOO_MANY_REQUESTS),
        (FetchFault(FaultKind.TLS, "bad", SITE), AccessResult.UNREACHABLE),
        (ValueError("a bug"), AccessResult.UNREACHABLE),
        (closed, AccessResult.TOO_MANY_REQUESTS),
    ]
    for answer, result in answers:
        clock = ManualClock()
        store = LeasingDict(clock)
        async with two(store, clock, answer) as (one, other):
            one.scripted.gate.clear()
            asked = [one.start(), one.start(agent=OTHER), other.start(), other.start(agent=OTHER)]
            await pass_time(clock, 1.0)
            assert not any(task.done() for task in asked)
            one.scripted.gate.set()
            await pass_time(clock, 0.5)
            assert {(await task).source.result for task in asked} == {result}
            assert requests(one, other) == 1
            assert store.leases == {}


async def test_an_unknown_origin_takes_one_call_before_its_fetch_and_one_after(
    store: LeasingDict, clock: ManualClock
) -> None:
    async with two(store, clock, FILE) as (one, other):
        await one.ask()
        assert calls(store) == [("get_or_lease", SITE), ("put_leased", SITE)]
        await other.ask()
        assert calls(store)[2:] == [("get_or_lease", SITE)]


async def test_a_copy_that_is_due_is_refreshed_once_for_all(store: LeasingDict, clock: ManualClock) -> None:
    answers = (file(cache_control="max-age=3600", etag='"1"'), not_modified(cache_control="max-age=3600"))
    async with two(store, clock, *answers) as (one, other):
        other.scripted.answers[SITE] = answers[1]
        await one.ask()
        await other.ask()
        clock.advance(0.95 * 3600)
        for bench in (one, other):
            await bench.ask()
            await pass_time(clock, 0.5)
        assert requests(one, other) == 2
        assert one.cache.entries[SITE].source.fetched_wall == other.cache.entries[SITE].source.fetched_wall
        clock.advance(0.5 * 3600)
        await one.ask()
        await other.ask()
        await settle()
        assert requests(one, other) == 2


async def test_while_another_process_refreshes_the_old_copy_serves(store: LeasingDict, clock: ManualClock) -> None:
    async with two(store, clock, file(cache_control="max-age=3600"), "User-agent: *\nDisallow: /") as (one, other):
        await one.ask()
        await other.ask()
        clock.advance(0.95 * 3600)
        one.scripted.gate.clear()
        await one.ask()
        await settle()
        old = other.cache.entries[SITE]
        assert await other.ask() is old
        await pass_time(clock, 0.5)
        assert await other.ask() is old
        one.scripted.gate.set()
        await pass_time(clock, 0.5)
        assert (await other.ask()).source.fetched_wall > old.source.fetched_wall
        assert requests(one, other) == 2


async def test_a_lease_is_renewed_while_its_fetch_runs_and_no_longer(store: LeasingDict, clock: ManualClock) -> None:
    async with two(store, clock, FILE) as (one, other):
        one.scripted.gate.clear()
        asked = [one.start(), other.start()]
        await pass_time(clock, 20.0)
        renewed = store.renewed
        assert 15 <= renewed <= 20  # once a second
        assert requests(one, other) == 1
        one.scripted.gate.set()
        await pass_time(clock, 0.5)
        await asyncio.gather(*asked)
        await pass_time(clock, 10.0)
        assert store.renewed == store.count("renew") == renewed


async def test_a_process_that_closes_in_mid_fetch_hands_its_lease_on(store: LeasingDict, clock: ManualClock) -> None:
    async with two(store, clock, FILE) as (one, other):
        one.scripted.gate.clear()
        lost, asked = one.start(), other.start()
        await settle()
        await one.cache.aclose()
        with pytest.raises(ClosedError):
            await lost
        await pass_time(clock, 0.1)
        assert (await asked).source.result is AccessResult.SUCCESSFUL
        assert (store.count("release"), requests(other)) == (1, 1)


async def test_a_leader_that_ends_without_a_word_is_replaced_when_its_lease_ends(
    store: LeasingDict, clock: ManualClock
) -> None:
    store.leases[SITE] = ("00000001", clock.monotonic() + 3.0)
    async with caching({SITE: FILE}, store=store, clock=clock) as bench:
        asked = bench.start()
        await pass_time(clock, 2.9)
        assert not asked.done()
        await pass_time(clock, 0.15)
        assert (await asked).source.result is AccessResult.SUCCESSFUL


async def test_a_leader_that_was_late_replaces_no_newer_record(store: LeasingDict, clock: ManualClock) -> None:
    async with two(store, clock, FILE) as (one, other):
        one.scripted.gate.clear()
        other.scripted.answers[SITE] = "User-agent: *\nDisallow: /"
        late = one.start()
        await settle()
        store.fails["renew"] = StoreError("a cable is out")
        clock.advance(3.0)  # its event loop stands still
        newer = await other.ask()
        store.fails.clear()
        one.scripted.gate.set()
        assert (await late).source.result is AccessResult.SUCCESSFUL
        assert store.refused == [SITE]
        assert other.cache.entries[SITE] is newer
    async with caching(store=store, clock=clock) as later:
        assert not (await later.ask()).rules[BOT].allowed("/")


async def test_nobody_waits_for_ever_for_another_process(store: LeasingDict, clock: ManualClock) -> None:
    store.leases[SITE] = ("00000001", float("inf"))
    async with caching({SITE: FILE}, store=store, clock=clock) as bench:
        asked = bench.start()
        await pass_time(clock, 29.9)
        assert not asked.done()
        assert store.count("get_or_lease") < 200
        await pass_time(clock, 0.5)
        assert (await asked).source.result is AccessResult.SUCCESSFUL
        assert bench.failures() == []
        assert SITE in store.records


async def test_a_store_that_fails_is_published_once_and_the_file_is_fetched(
    store: LeasingDict, clock: ManualClock
) -> None:
    error = store.fails["get_or_lease"] = StoreError("a cable is out")
    async with caching({SITE: FILE}, store=store, clock=clock) as bench:
        assert (await bench.ask()).source.result is AccessResult.SUCCESSFUL
        assert [failure.error for failure in bench.failures()] == [error]
        assert calls(store) == [("get_or_lease", SITE), ("put", SITE)]


async def test_a_store_that_fails_while_another_process_fetches_ends_the_wait(
    store: LeasingDict, clock: ManualClock
) -> None:
    async with two(store, clock, FILE) as (one, other):
        one.scripted.gate.clear()
        first, asked = one.start(), other.start()
        await pass_time(clock, 0.5)
        store.fails["get_or_lease"] = StoreError("a cable is out")
        await pass_time(clock, 0.5)
        assert (await asked).source.result is AccessResult.SUCCESSFUL
        assert len(other.failures()) == 1
        one.scripted.gate.set()
        await first


async def test_a_record_that_cannot_be_read_is_published_and_replaced(store: LeasingDict, clock: ManualClock) -> None:
    for damaged in (b"", b"nonsense", b"politesse/2 nonsense"):
        await store.put(SITE, damaged)
        async with caching({SITE: FILE}, store=store, clock=clock) as bench:
            assert (await bench.ask()).source.result is AccessResult.SUCCESSFUL
            assert len(bench.failures()) == 1
        assert await is_kept(store)


async def test_a_store_that_ignores_the_version_does_not_keep_a_process_busy(
    store: LeasingDict, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put(SITE, b"nonsense")
    honest = store.get_or_lease
    monkeypatch.setattr(store, "get_or_lease", lambda key, _: honest(key, ""))
    async with caching({SITE: FILE}, store=store, clock=clock) as bench:
        asked = bench.start()
        await pass_time(clock, 31.0)
        assert (await asked).source.result is AccessResult.SUCCESSFUL
        assert store.count("get_or_lease") < 200


async def test_what_was_forgotten_while_another_process_fetched_is_not_taken_from_the_store(
    store: LeasingDict, clock: ManualClock
) -> None:
    async with two(store, clock, FILE) as (one, other):
        one.scripted.gate.clear()
        first, asked = one.start(), other.start()
        await settle()
        await other.cache.forget(Origin.of(SITE))
        one.scripted.gate.set()
        await pass_time(clock, 0.5)
        await asyncio.gather(first, asked)
        assert (requests(one), requests(other)) == (1, 1)


async def test_an_error_of_the_stores_program_releases_the_lease(store: LeasingDict, clock: ManualClock) -> None:
    async with caching({SITE: FILE}, store=store, clock=clock) as bench:
        store.fails["put_leased"] = ZeroDivisionError("a bug")
        assert (await bench.ask(agent=BOT)).source.result is AccessResult.UNREACHABLE
        assert [type(failure.error) for failure in bench.failures()] == [ZeroDivisionError]
        await settle()
        assert store.leases == {}
