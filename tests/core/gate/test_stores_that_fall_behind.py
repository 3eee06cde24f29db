"""Stores that still hold an older truth than the gate: a write or a delete has failed, or the store was set back."""

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from politesse import CacheOptions, Gatekeeper, PacingOptions, Reason
from politesse._cache import records
from politesse.errors import StoreError
from politesse.ports import FetchResponse, Lease, LeasingStore, Store, UpdatingStore
from politesse.stores import MemoryStore, SharedMemoryStore, SqliteStore
from politesse.stores.redis import RedisStore
from politesse.testing import Answer, ManualClock, ScriptedFetcher
from tests.support.redis_servers import EXECUTABLES, shared_server
from tests.support.stores import KeptStore

UA: Final = "ExampleBot/1.0 (+https://example.com/bot)"
SITE: Final = "https://example.com"
PAGE: Final = f"{SITE}/page"
OTHER: Final = "https://other.example"
DAY: Final = 86_400.0
WRITES: Final = ("put", "put_leased")
CALLS: Final = (*WRITES, "get", "get_or_lease", "delete")


def answer(body: str, max_age_s: int) -> FetchResponse:
    headers = {"cache-control": f"max-age={max_age_s}"}
    return FetchResponse(200, f"{SITE}/robots.txt", headers, body.encode())


OPEN: Final = answer("User-agent: *\nAllow: /\n", 86_400)
CLOSED: Final = answer("User-agent: *\nDisallow: /\n", 60)
CLOSED_FOR_LONG: Final = answer("User-agent: *\nDisallow: /\n", 86_400)


def _redis(place: Path) -> Store:
    return RedisStore(shared_server(next(iter(EXECUTABLES))).url, prefix=f"{place}:")


MAKES: Final[dict[str, Callable[[Path], Store]]] = {
    "memory": lambda _: MemoryStore(),
    "shared memory": lambda _: SharedMemoryStore(),
    "sqlite": lambda place: SqliteStore(place / "robots.db"),
    "redis": _redis,
    "of a user": lambda _: KeptStore({}),
}


class Bench:
    """A gate with a store whose calls can be made to fail."""

    def __init__(self, store: Store, answers: list[Answer], **cache_options: Any) -> None:
        self.store = store
        self.clock = ManualClock()  # the stores take real time, so the clock must not jump while they are awaited
        self.scripted = ScriptedFetcher({SITE: answers, OTHER: OPEN})
        if isinstance(store, UpdatingStore):  # the clock jumps, and a state of a host that is being kept would be late
            store.update = self.keep_nothing  # type: ignore[method-assign]
        self.gate = self.next_gate(**cache_options)

    def next_gate(self, **cache_options: Any) -> Gatekeeper:
        return Gatekeeper(
            UA,
            fetcher=self.scripted,
            store=self.store,
            clock=self.clock,
            cache=CacheOptions(**cache_options),
            pacing=PacingOptions(scope="process"),
        )

    async def keep_nothing(self, _: str, change: Callable[[bytes | None], bytes]) -> None:
        change(None)

    def break_calls(self, *names: str, error: Exception | None = None) -> None:
        failure = error or StoreError("disk full")

        async def fail(*_: object) -> None:
            raise failure

        async def fail_without_lease(key: str, _: bytes, lease: Lease) -> None:
            assert isinstance(self.store, LeasingStore)
            await self.store.release(key, lease)  # otherwise the next fetch would wait for the end of the lease
            raise failure

        for name in names:
            if hasattr(self.store, name):
                setattr(self.store, name, fail_without_lease if name == "put_leased" else fail)

    def heal(self) -> None:
        for name in CALLS:
            vars(self.store).pop(name, None)

    async def refresh(self) -> None:
        """Let the copy of OPEN become due, and the next answer come."""
        async with asyncio.timeout(10):
            self.clock.advance(0.95 * DAY)
            await self.gate.check(PAGE)
            while self.gate.statistics().in_flight:
                await asyncio.sleep(0.001)


@pytest.fixture(params=MAKES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MAKES[request.param](tmp_path)


@pytest.mark.parametrize("error", [StoreError("disk full"), OSError("disk full")], ids=["StoreError", "OSError"])
async def test_a_newer_file_that_could_not_be_stored_is_not_replaced_by_the_older_one(
    store: Store, error: Exception
) -> None:
    bench = Bench(store, [OPEN, CLOSED])
    async with bench.gate as gate:
        assert await gate.check(PAGE)
        bench.break_calls(*WRITES, error=error)
        await bench.refresh()
        assert not await gate.check(PAGE)
        for _ in range(3):
            bench.clock.advance(120)  # the older file is still fresh
            assert not await gate.check(PAGE)
        bench.heal()
        bench.clock.advance(600)
        assert (await gate.check(PAGE)).reason is Reason.DISALLOW_RULE


async def test_an_agent_that_comes_later_does_not_bring_back_the_older_file(store: Store) -> None:
    bench = Bench(store, [OPEN, CLOSED_FOR_LONG])
    async with bench.gate as gate:
        assert await gate.check(PAGE)
        bench.break_calls(*WRITES)
        await bench.refresh()
        bench.heal()
        other = gate.agent(tokens=["ExampleBot-Image", "ExampleBot"])
        assert not await other.check(PAGE)
        assert not await gate.check(PAGE)


async def test_a_store_that_fails_for_a_moment_does_not_bring_back_its_older_file() -> None:
    bench = Bench(KeptStore({}), [OPEN, CLOSED_FOR_LONG])
    async with bench.gate as gate:
        assert await gate.check(PAGE)
    bench.break_calls(*CALLS)
    bench.clock.advance(10)
    async with bench.next_gate() as gate:
        assert not await gate.check(PAGE)
        bench.heal()
        bench.clock.advance(10)  # the pause of the store is over
        other = gate.agent(tokens=["ExampleBot-Image", "ExampleBot"])
        assert not await other.check(PAGE)
        assert not await gate.check(PAGE)


async def test_a_file_that_was_forgotten_does_not_come_back_if_it_could_not_be_deleted(store: Store) -> None:
    bench = Bench(store, [OPEN, CLOSED, CLOSED])
    async with bench.gate as gate:
        assert await gate.check(PAGE)
        bench.break_calls("delete", *WRITES)
        await gate.forget(SITE)
        bench.clock.advance(10)
        assert not await gate.check(PAGE)
        bench.clock.advance(120)
        assert not await gate.check(PAGE)
        assert bench.scripted.count(SITE) == 3


async def test_a_write_that_succeeds_late_does_not_bring_back_a_file_that_was_forgotten_meanwhile() -> None:
    began, goes_on = asyncio.Event(), asyncio.Event()

    class SlowStore(KeptStore):
        async def put(self, key: str, record: bytes, /) -> None:
            began.set()
            await goes_on.wait()
            await super().put(key, record)

    bench = Bench(SlowStore({}), [OPEN, CLOSED_FOR_LONG], max_entries_bytes=1)
    async with bench.gate as gate:
        checking = asyncio.create_task(gate.check(PAGE))
        await began.wait()
        bench.clock.advance(0.1)
        bench.break_calls("delete")
        await gate.forget(SITE)
        bench.heal()
        goes_on.set()
        assert await checking
        assert await gate.check(OTHER)  # there is room for one file only
        gc.collect()  # an evicted file that a traceback holds would be found again
        assert not await gate.check(PAGE)


async def test_a_write_that_fails_late_does_not_bring_back_a_file_that_was_forgotten_meanwhile() -> None:
    began, fails = asyncio.Event(), asyncio.Event()

    class SlowStore(KeptStore):
        async def put(self, key: str, record: bytes, /) -> None:
            if not began.is_set():
                began.set()
                await fails.wait()
                raise StoreError("disk full")
            await super().put(key, record)

    bench = Bench(SlowStore({}), [OPEN, OPEN, CLOSED_FOR_LONG], max_entries_bytes=1)
    async with bench.gate as gate, bench.next_gate() as other:
        checking = asyncio.create_task(gate.check(PAGE))
        await began.wait()
        bench.clock.advance(0.1)
        assert await other.check(PAGE)
        bench.clock.advance(0.1)
        bench.break_calls("delete")
        await gate.forget(SITE)
        fails.set()
        assert await checking
        assert await gate.check(OTHER)  # there is room for one file only
        gc.collect()  # an evicted file that a traceback holds would be found again
        bench.clock.advance(10)  # the pause before the third request for the file is over
        assert not await gate.check(PAGE)
        bench.heal()


@pytest.mark.parametrize("later", [CLOSED_FOR_LONG, 503], ids=["file", "fault"])
async def test_an_evicted_file_that_could_not_be_stored_is_fetched_again(store: Store, later: Answer) -> None:
    bench = Bench(store, [OPEN, CLOSED_FOR_LONG, later], max_entries_bytes=1)
    async with bench.gate as gate:
        assert await gate.check(PAGE)
        bench.break_calls(*WRITES)
        await bench.refresh()
        assert await gate.check(OTHER)  # there is room for one file only
        bench.heal()
        bench.clock.advance(10)
        gc.collect()  # an evicted file that a traceback holds would be found again
        assert not await gate.check(PAGE)
        assert bench.scripted.count(SITE) == 3


async def test_no_older_record_counts_after_more_writes_have_failed_than_the_gate_remembers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(records, "_MAX_DOUBTED", 10)
    bench = Bench(KeptStore({}), [OPEN, CLOSED_FOR_LONG], max_entries_bytes=1)
    async with bench.gate as gate:
        assert await gate.check(PAGE)
        assert await gate.check(OTHER)
        bench.break_calls(*WRITES)
        await bench.refresh()
        for number in range(12):
            await gate.check(f"https://h{number}.example/")
        bench.heal()
        bench.clock.advance(10)
        assert not await gate.check(PAGE)
        before = bench.scripted.count(SITE)
        assert await gate.check(OTHER)  # its record is older than the newest one that is lost
        assert await gate.check("https://new.example/")
        assert not await gate.check(PAGE)  # the store has taken this record
        assert bench.scripted.count(SITE) == before


@pytest.mark.parametrize("make", [MAKES["sqlite"], MAKES["redis"]], ids=["sqlite", "redis"])
@pytest.mark.parametrize("forgets", [False, True], ids=["write", "delete"])
async def test_the_next_gate_does_not_find_a_record_that_a_failed_call_has_left(
    tmp_path: Path, make: Callable[[Path], Store], *, forgets: bool
) -> None:
    bench = Bench(make(tmp_path), [OPEN, CLOSED])
    async with bench.gate as gate:
        assert await gate.check(PAGE)
        bench.break_calls("delete", *WRITES)
        if forgets:
            await gate.forget(SITE)
        else:
            await bench.refresh()
        bench.heal()
    bench.store = make(tmp_path)
    bench.clock.advance(10)
    async with bench.next_gate() as gate:
        assert not await gate.check(PAGE)


async def test_a_store_that_was_set_back_does_not_bring_back_an_older_file() -> None:
    store = KeptStore({})
    bench = Bench(store, [OPEN, CLOSED])
    async with bench.gate as gate:
        assert await gate.check(PAGE)
        backup = dict(store.records)
        await bench.refresh()
        assert not await gate.check(PAGE)
        store.records.update(backup)
        bench.clock.advance(120)
        assert not await gate.check(PAGE)
